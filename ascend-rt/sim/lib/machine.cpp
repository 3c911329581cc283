// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The machine: issue, pipes, flags, barriers, scheduling.

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "core.h"

namespace ascend_twin {

thread_local Launch *g = nullptr;

namespace {

const char *const kRuleNames[] = {
#define ASCEND_TWIN_X(id, name, what) name,
    ASCEND_TWIN_RULES(ASCEND_TWIN_X)
#undef ASCEND_TWIN_X
};

Exec exec;

uint64_t site_key(Site s) { return reinterpret_cast<uint64_t>(s.file) * 0x9e3779b97f4a7c15ull ^ s.line; }

uint32_t site_of(Launch &l, Site s)
{
    auto [at, fresh] = l.site_index.try_emplace(site_key(s), static_cast<uint32_t>(l.sites.size()));
    if (fresh) {
        l.sites.push_back(AscendTwinSite{s.file, s.line});
    }
    return at->second;
}

uint16_t api_of(Launch &l, const char *api)
{
    auto [at, fresh] = l.api_index.try_emplace(api, static_cast<uint16_t>(l.apis.size()));
    if (fresh) {
        // The same text may have several addresses.
        for (size_t i = 0; i < l.apis.size(); i++) {
            if (strcmp(l.apis[i], api) == 0) {
                at->second = static_cast<uint16_t>(i);
                return at->second;
            }
        }
        l.apis.push_back(api);
    }
    return at->second;
}

AscendTwinRecord &note(Core &c, uint8_t kind, Pipe pipe, const char *api, Site site)
{
    Launch &l = *c.launch;
    c.records.emplace_back();
    AscendTwinRecord &r = c.records.back();
    r = AscendTwinRecord{};
    r.kind = kind;
    r.pipe = static_cast<uint8_t>(pipe);
    r.api = api_of(l, api);
    r.site = site_of(l, site);
    return r;
}

bool ordered_pipe(const Launch &l, Pipe p) { return p == Pipe::V && l.arch == 3510; }

// The instruction that is checked or runs, for errors raised by its effect.
thread_local const Instr *running = nullptr;

// The clock that `pipe` hands on: all that it did is complete.
Clock complete(const PipeState &p, int pipe)
{
    Clock c = p.clock;
    c.own[pipe] = p.time;
    return c;
}

void tick(Core &c, int pipe, const char *api, Site site)
{
    PipeState &p = c.pipe[pipe];
    p.time++;
    auto &d = c.launch->deeds[c.index * kPipes + static_cast<uint32_t>(pipe)];
    d.push_back(Deed{api, site});
}

// The pipe learns what the scalar unit knew when it issued the item.
void learn(Core &c, PipeState &p, const Item &item)
{
    if (item.issue != nullptr) {
        p.clock.join(item.issue->clock);
    } else if (p.seen != c.version) {
        p.clock.join(c.pipe[0].clock);
        p.seen = c.version;
    }
}

Issue *snapshot(Core &c)
{
    if (c.issue == nullptr) {
        c.issue = new Issue{1, c.pipe[0].clock};
    }
    c.issue->refs++;
    return c.issue;
}

void release(Issue *i)
{
    if (i != nullptr && --i->refs == 0) {
        delete i;
    }
}

// The scalar unit learned something.
void scalar_learned(Core &c)
{
    c.version++;
    release(c.issue);
    c.issue = nullptr;
}

void deliver(Core &to, int id, Table *t, Site site)
{
    t->keep();
    auto &q = to.tokens[id];
    q.push_back(Token{t, site});
    if (q.size() > static_cast<size_t>(kCrossDepth)) {
        fail(Rule::CrossFlag, "CrossCoreSetFlag", nullptr, site,
             "flag %d of %s was set %zu times more than waited for; the counter holds %d: bound how far the setting core runs ahead", id,
             to.name().c_str(), q.size(), kCrossDepth);
    }
}

// Takes one set of each member of the group once all have one.
void gather(Launch &l, int mode, const std::vector<Core *> &members, const std::vector<Core *> &to, int id)
{
    for (Core *m : members) {
        if (l.pending[mode][m->index * kCrossIds + static_cast<uint32_t>(id)].empty()) {
            return;
        }
    }
    Table *all = Table::make(l.agents());
    Site site{};
    for (Core *m : members) {
        auto &q = l.pending[mode][m->index * kCrossIds + static_cast<uint32_t>(id)];
        Token t = q.front();
        q.pop_front();
        site = t.site;
        for (uint32_t i = 0; i < l.agents(); i++) {
            all->at()[i] = std::max(all->at()[i], t.clock->at()[i]);
        }
        t.clock->drop();
    }
    for (Core *c : to) {
        deliver(*c, id, all, site);
    }
    all->drop();
}

void group_of(Launch &l, const Core &c, int mode, std::vector<Core *> &members)
{
    if (mode == 0) {
        for (size_t i = l.live_from; i < l.live_to; i++) {
            if (l.cores[i]->cube == c.cube) {
                members.push_back(l.cores[i].get());
            }
        }
    } else {
        for (uint32_t i = 0; i < l.per_block; i++) {
            Core *o = l.cores[c.block * l.per_block + i].get();
            if (!o->cube) {
                members.push_back(o);
            }
        }
    }
}

void do_cross_set(Core &c, int pipe, const Item &item)
{
    Launch &l = *c.launch;
    PipeState &p = c.pipe[pipe];
    Table *t = complete(p, pipe).publish(c.index, l.agents());
    const uint32_t first = c.block * l.per_block;
    auto hold = [&](int mode, int id) {
        auto &q = l.pending[mode][c.index * kCrossIds + static_cast<uint32_t>(id)];
        t->keep();
        q.push_back(Token{t, item.site});
        if (q.size() > static_cast<size_t>(kCrossDepth)) {
            fail(Rule::CrossFlag, "CrossCoreSetFlag", nullptr, item.site,
                 "%s set flag %d (mode %d) %zu times more than the others of its group", c.name().c_str(), id, item.mode, q.size());
        }
    };
    if (item.mode == 4) {
        if (c.cube) {
            const uint32_t sub = item.id >= 16 ? 1 : 0;
            if (first + 1 + sub < first + l.per_block) {
                deliver(*l.cores[first + 1 + sub], item.id % 16, t, item.site);
            }
        } else {
            deliver(*l.cores[first], item.id + 16 * static_cast<int>(c.sub), t, item.site);
        }
    } else if (item.mode == 2 && c.cube) {
        for (uint32_t i = 1; i < l.per_block; i++) {
            deliver(*l.cores[first + i], item.id, t, item.site);
        }
    } else {
        hold(item.mode, item.id);
        std::vector<Core *> members, to;
        group_of(l, c, item.mode, members);
        if (item.mode == 2) {
            to.push_back(l.cores[first].get());
        } else {
            to = members;
        }
        gather(l, item.mode, members, to, item.id);
    }
    t->drop();
}

bool overlaps(const Unit &u, const Region &r) { return u.base < end_of(r) && r.addr < u.end; }

bool unit_ready(const Core &c, const Instr &i)
{
    if (i.unit_flag == 0) {
        return true;
    }
    if (i.pipe == Pipe::FIX) {
        for (int k = 0; k < i.count; k++) {
            if (i.operand[k].mem == Mem::L0C) {
                for (const Unit &u : c.unit_full) {
                    if (overlaps(u, i.operand[k].region)) {
                        return true;
                    }
                }
            }
        }
        return false;
    }
    for (int k = 0; k < i.count; k++) {
        if (i.operand[k].mem == Mem::L0C) {
            for (const Unit &u : c.unit_full) {
                if (overlaps(u, i.operand[k].region)) {
                    return false;
                }
            }
        }
    }
    return true;
}

void unit_before(Core &c, PipeState &p, const Instr &i)
{
    auto &list = i.pipe == Pipe::FIX ? c.unit_full : c.unit_free;
    for (int k = 0; k < i.count; k++) {
        if (i.operand[k].mem != Mem::L0C) {
            continue;
        }
        for (size_t u = 0; u < list.size();) {
            if (overlaps(list[u], i.operand[k].region)) {
                p.clock.join(list[u].clock);
                list.erase(list.begin() + static_cast<long>(u));
            } else {
                u++;
            }
        }
    }
}

void unit_after(Core &c, PipeState &p, const Instr &i)
{
    if (i.unit_flag != 3) {
        return;
    }
    auto &list = i.pipe == Pipe::FIX ? c.unit_free : c.unit_full;
    for (int k = 0; k < i.count; k++) {
        if (i.operand[k].mem == Mem::L0C) {
            const Clock clock = c.launch->dry ? Clock() : complete(p, static_cast<int>(i.pipe));
            list.push_back(Unit{i.operand[k].region.addr, end_of(i.operand[k].region), clock});
            return;
        }
    }
}

bool ready(Core &c, int pipe, const Item &item)
{
    switch (item.kind) {
    case Kind::Wait:
        return c.event[item.other][pipe][item.id].set;
    case Kind::Set:
        return !c.event[pipe][item.other][item.id].set;
    case Kind::CrossWait:
        return !c.tokens[item.id].empty();
    case Kind::Instr:
        return unit_ready(c, *item.instr);
    default:
        return true;
    }
}

// A dry launch is given what the scalar unit decides by, or it would decide something else.
void need_data(uint64_t addr, const char *api, const char *tensor, Site site)
{
    const AscendTwinMemory *m = memory_of(addr, 1);
    if (m != nullptr && m->role == ASCEND_TWIN_ABSENT) {
        fail(Rule::Undefined, api, tensor, site, "%s reads `%s`, of which this dry launch has only addresses", api,
             m->name == nullptr ? "an argument" : m->name);
    }
}

// A copy of whole numbers of 32 or 64 bits from memory to UB.
bool is_list(const Instr &i)
{
    const bool whole = i.dtype == ASCEND_TWIN_I32 || i.dtype == ASCEND_TWIN_U32 || i.dtype == ASCEND_TWIN_I64 || i.dtype == ASCEND_TWIN_U64;
    bool from = false, to = false;
    for (int k = 0; k < i.count; k++) {
        from = from || (i.operand[k].mem == Mem::GM && i.operand[k].use == Use::Read);
        to = to || (i.operand[k].mem == Mem::UB && i.operand[k].use == Use::Write);
    }
    return whole && from && to;
}

void run_instr(Core &c, int pipe, const Instr &instr)
{
    Launch &l = *c.launch;
    PipeState &p = c.pipe[pipe];
    l.instructions++;
    if (l.verbose) {
        char line[512];
        const int n = snprintf(line, sizeof line, "[%s] %-4s %s (%s:%u)\n", c.name().c_str(), pipe_name(instr.pipe), instr.api,
                               instr.site.file, instr.site.line);
        print(line, static_cast<size_t>(n));
    }
    if (instr.unit_flag != 0) {
        unit_before(c, p, instr);
    }
    if (l.dry) {
        unit_after(c, p, instr);
        // Only what the scalar unit may decide by is there: lists and offsets that are copied to UB.
        if (instr.pipe == Pipe::MTE2 && instr.effect != nullptr && is_list(instr)) {
            for (int i = 0; i < instr.count; i++) {
                if (instr.operand[i].mem == Mem::GM) {
                    need_data(instr.operand[i].region.addr, instr.api, instr.operand[i].name, instr.site);
                }
            }
            instr.effect(exec, instr);
        }
        return;
    }
    tick(c, pipe, instr.api, instr.site);
    touch_operands(c, p, instr);
    bool full = true;
    const Operand *hole = nullptr;
    for (int i = 0; i < instr.count; i++) {
        const Operand &o = instr.operand[i];
        if (o.use == Use::Read || o.use == Use::Update) {
            bool all = true;
            each_run(o.region, [&](uint64_t addr, uint64_t bytes) { all = all && exec.defined(o.mem, addr, bytes, o.peer); });
            if (!all && full) {
                full = false;
                hole = &o;
            }
        }
    }
    if (!full && instr.taint == nullptr) {
        fail(Rule::Undefined, instr.api, hole->name, instr.site,
             "%s: %s holds bytes without a defined value (%s from %#llx on); they would decide the result", instr.api, hole->name,
             mem_name(hole->mem), static_cast<unsigned long long>(hole->region.addr));
    }
    const Instr *before = running;
    running = &instr;
    if (full) {
        for (int i = 0; i < instr.count; i++) {
            const Operand &o = instr.operand[i];
            if (o.use == Use::Write || o.use == Use::Update) {
                each_run(o.region, [&](uint64_t addr, uint64_t bytes) { exec.define(o.mem, addr, bytes, true, o.peer); });
            }
        }
    }
    if (instr.effect != nullptr) {
        instr.effect(exec, instr);
    }
    if (!full) {
        instr.taint(exec, instr);
    }
    running = before;
    if (instr.ordered) {
        p.clock.own[pipe] = p.time;
    }
    unit_after(c, p, instr);
}

void run_item(Core &c, int pipe, const Item &item)
{
    Launch &l = *c.launch;
    Core *before = l.now;
    l.now = &c;
    PipeState &p = c.pipe[pipe];
    if (pipe != 0) {
        learn(c, p, item);
    }
    switch (item.kind) {
    case Kind::Instr:
        run_instr(c, pipe, *item.instr);
        break;
    case Kind::Set: {
        Event &e = c.event[pipe][item.other][item.id];
        e.set = true;
        e.site = item.site;
        e.api = item.api;
        if (!l.dry) {
            e.clock = complete(p, pipe);
        }
        break;
    }
    case Kind::Wait: {
        Event &e = c.event[item.other][pipe][item.id];
        e.set = false;
        p.clock.join(e.clock);
        if (pipe == 0) {
            scalar_learned(c);
        }
        break;
    }
    case Kind::Barrier:
        p.clock.own[pipe] = p.time;
        break;
    case Kind::CrossSet:
        do_cross_set(c, pipe, item);
        break;
    case Kind::CrossWait: {
        Token t = c.tokens[item.id].front();
        c.tokens[item.id].pop_front();
        p.clock.join_published(t.clock, c.index);
        t.clock->drop();
        if (pipe == 0) {
            scalar_learned(c);
        }
        break;
    }
    }
    l.now = before;
}

// Runs the head of a pipe's queue if it can run.
bool step(Core &c, int pipe)
{
    PipeState &p = c.pipe[pipe];
    if (p.queue.empty() || !ready(c, pipe, p.queue.front())) {
        return false;
    }
    Item item = p.queue.front();
    p.queue.pop_front();
    c.queued--;
    run_item(c, pipe, item);
    delete item.instr;
    release(item.issue);
    return true;
}

bool drain_core(Core &c)
{
    bool any = false;
    while (c.queued != 0) {
        bool moved = false;
        for (int p = 1; p < kPipes; p++) {
            while (step(c, p)) {
                moved = true;
            }
        }
        any = any || moved;
        if (!moved) {
            break;
        }
    }
    return any;
}

bool unblocked(Core &c)
{
    switch (c.blocked) {
    case Block::None:
    case Block::Yield:
        return true;
    case Block::Event:
        return c.event[c.block_pipe][0][c.block_id].set;
    case Block::EventFree:
        return !c.event[0][c.block_pipe][c.block_id].set;
    case Block::Drain:
        if (c.block_pipe == ASCEND_TWIN_ALL_PIPES) {
            return c.queued == 0;
        }
        return c.pipe[c.block_pipe].queue.empty();
    case Block::Token:
        return !c.tokens[c.block_id].empty();
    case Block::Barrier:
        return c.launch->generation[c.block_id] > c.block_generation;
    case Block::Space:
        return c.pipe[c.block_pipe].queue.size() < kQueueDepth;
    }
    return true;
}

// The scalar unit of the running core waits until the condition holds.
void block(Core &c, Block kind, uint8_t pipe, uint8_t id, const char *api, Site site)
{
    c.blocked = kind;
    c.block_pipe = pipe;
    c.block_id = id;
    c.block_api = api;
    c.block_site = site;
    if (!c.launch->chaos) {
        drain_core(c);
    }
    while (!unblocked(c)) {
        c.launch->in_fiber = false;
        c.fiber.suspend();
        c.launch->in_fiber = true;
    }
    c.blocked = Block::None;
}

// Chaos: now and then another core or a pipe goes on first.
void maybe_yield(Core &c)
{
    Launch &l = *c.launch;
    if (l.chaos && (l.draw() & 3) == 0) {
        c.blocked = Block::Yield;
        l.in_fiber = false;
        c.fiber.suspend();
        l.in_fiber = true;
        c.blocked = Block::None;
    }
}

void submit(Core &c, Pipe pipe, const Item &item)
{
    Launch &l = *c.launch;
    const int p = static_cast<int>(pipe);
    PipeState &s = c.pipe[p];
    if (!l.chaos && s.queue.empty() && ready(c, p, item)) {
        run_item(c, p, item);
        if (c.queued != 0) {
            drain_core(c);
        }
        return;
    }
    if (s.queue.size() >= kQueueDepth) {
        block(c, Block::Space, static_cast<uint8_t>(p), 0, item.api, item.site);
    }
    Item copy = item;
    if (item.kind == Kind::Instr) {
        copy.instr = new Instr(*item.instr);
    }
    copy.issue = snapshot(c);
    s.queue.push_back(copy);
    c.queued++;
    if (l.chaos) {
        maybe_yield(c);
    }
}

// Something of the scalar unit itself: done at once or waited for.
void scalar_item(Core &c, const Item &item)
{
    if (!ready(c, 0, item)) {
        switch (item.kind) {
        case Kind::Set:
            block(c, Block::EventFree, item.other, item.id, item.api, item.site);
            break;
        case Kind::Wait:
            block(c, Block::Event, item.other, item.id, item.api, item.site);
            break;
        default:
            block(c, Block::Token, 0, item.id, item.api, item.site);
            break;
        }
    }
    run_item(c, 0, item);
    if (!c.launch->chaos && c.queued != 0) {
        drain_core(c);
    }
}

// Hands a synchronisation to the pipe that carries it out.
void post(Core &c, Kind kind, Pipe pipe, int other, int mode, int id, const char *api, Site site)
{
    Item item;
    item.kind = kind;
    item.other = static_cast<uint8_t>(other);
    item.mode = static_cast<uint8_t>(mode);
    item.id = static_cast<uint8_t>(id);
    item.api = api;
    item.site = site;
    if (pipe == Pipe::S || pipe == Pipe::All) {
        scalar_item(c, item);
    } else {
        submit(c, pipe, item);
    }
}

void check_event(Pipe from, Pipe to, int id, Owner owner, const char *api, Site site)
{
    Core &c = core();
    if (from == Pipe::All || to == Pipe::All || from == to) {
        fail(Rule::Usage, api, nullptr, site, "%s: an event goes from one pipe to another", api);
    }
    if (id < 0 || id >= kIds) {
        fail(Rule::FlagId, api, nullptr, site, "%s: event id %d; expected 0 to %d", api, id, kIds - 1);
    }
    const int f = static_cast<int>(from), t = static_cast<int>(to);
    const auto bit = static_cast<uint8_t>(1u << id);
    if (owner == Owner::Hand) {
        if (id > 5 && (c.by_hand[f][t] & bit) == 0) {
            fail(Rule::FlagId, api, nullptr, site, "%s: event id %d is the system's; ids used by hand are 0 to 5", api, id);
        }
        if ((c.by_queue[f][t] & bit) != 0) {
            fail(Rule::FlagId, api, nullptr, site,
                 "%s: event id %d from %s to %s belongs to a queue of TPipe; take one by AllocEventID or FetchEventID", api, id,
                 pipe_name(from), pipe_name(to));
        }
        c.used_by_hand[f][t] |= bit;
    }
}

bool is_sync_muted(Launch &l, const char *api, Site site)
{
    const std::pair<uint64_t, std::string> key{site_of(l, site), api};
    l.sync_calls[key]++;
    if (l.request->mute_count == 0) {
        return false;
    }
    for (size_t i = 0; i < l.request->mute_count; i++) {
        const AscendTwinMute &m = l.request->mutes[i];
        if (m.line != site.line || (m.api != nullptr && strcmp(m.api, api) != 0)) {
            continue;
        }
        const size_t a = strlen(site.file), b = strlen(m.file);
        if (b > a || strcmp(site.file + (a - b), m.file) != 0) {
            continue;
        }
        if (m.nth == 0) {
            return true;
        }
        auto &counts = l.mute_counts[key];
        counts.resize(l.cores.size());
        return ++counts[core().index] == m.nth;
    }
    return false;
}

std::string stand_of(const Core &c)
{
    char text[512];
    std::string s = c.name() + ": ";
    if (c.finished) {
        return s + "finished";
    }
    if (!c.started) {
        return s + "not started";
    }
    auto where = [&](const char *api, Site site) {
        snprintf(text, sizeof text, "%s (%s:%u)", api, site.file, site.line);
        return std::string(text);
    };
    switch (c.blocked) {
    case Block::Event:
        s += "scalar waits in " + where(c.block_api, c.block_site) + " for event " + std::to_string(c.block_id) + " of " +
             pipe_name(static_cast<Pipe>(c.block_pipe));
        break;
    case Block::EventFree:
        s += "scalar waits in " + where(c.block_api, c.block_site) + " until event " + std::to_string(c.block_id) + " was taken by " +
             pipe_name(static_cast<Pipe>(c.block_pipe));
        break;
    case Block::Drain:
        s += "scalar waits in " + where(c.block_api, c.block_site) + " for its pipes";
        break;
    case Block::Token:
        s += "scalar waits in " + where(c.block_api, c.block_site) + " for cross-core flag " + std::to_string(c.block_id);
        break;
    case Block::Barrier:
        s += "waits in " + where(c.block_api, c.block_site) + " for all cores";
        break;
    case Block::Space:
        s += "scalar waits in " + where(c.block_api, c.block_site) + " for room in the queue of " +
             pipe_name(static_cast<Pipe>(c.block_pipe));
        break;
    default:
        s += c.returned ? "returned" : "runs";
        break;
    }
    for (int p = 1; p < kPipes; p++) {
        if (c.pipe[p].queue.empty()) {
            continue;
        }
        const Item &i = c.pipe[p].queue.front();
        s += std::string("; ") + pipe_name(static_cast<Pipe>(p)) + " waits at " + where(i.api, i.site);
        if (i.kind == Kind::Wait) {
            s += " for event " + std::to_string(i.id) + " of " + pipe_name(static_cast<Pipe>(i.other));
        } else if (i.kind == Kind::CrossWait) {
            s += " for cross-core flag " + std::to_string(i.id);
        } else if (i.kind == Kind::Set) {
            s += " until the event that it sets was taken";
        } else if (i.kind == Kind::Instr && i.instr->unit_flag != 0) {
            s += " for the unit flag";
        }
    }
    return s;
}

[[noreturn]] void deadlock(Launch &l)
{
    std::string all;
    Core *first = nullptr;
    size_t shown = 0, more = 0;
    for (size_t i = l.live_from; i < l.live_to; i++) {
        Core &c = *l.cores[i];
        if (c.finished) {
            continue;
        }
        first = first == nullptr ? &c : first;
        if (shown < 12) {
            all += "\n  " + stand_of(c);
            shown++;
        } else {
            more++;
        }
    }
    if (more != 0) {
        all += "\n  and " + std::to_string(more) + " more";
    }
    l.now = first;
    Site site = first->block_site;
    const char *api = first->block_api;
    Pipe pipe = Pipe::S;
    if (first->blocked == Block::None || first->blocked == Block::Drain || first->returned) {
        for (int p = 1; p < kPipes; p++) {
            if (!first->pipe[p].queue.empty()) {
                site = first->pipe[p].queue.front().site;
                api = first->pipe[p].queue.front().api;
                pipe = static_cast<Pipe>(p);
                break;
            }
        }
    }
    l.pipe = pipe_name(pipe);
    fail(Rule::Deadlock, api, nullptr, site, "no core can go on:%s", all.c_str());
}

void check_end(Core &c)
{
    Launch &l = *c.launch;
    for (int f = 0; f < kPipes; f++) {
        for (int t = 0; t < kPipes; t++) {
            for (int i = 0; i < kIds; i++) {
                if (c.event[f][t][i].set) {
                    const Event &e = c.event[f][t][i];
                    fail(Rule::FlagUnmatched, e.api, nullptr, e.site,
                         "event %d from %s to %s is set at the end of the kernel and never waited for: the next kernel finds it set", i,
                         pipe_name(static_cast<Pipe>(f)), pipe_name(static_cast<Pipe>(t)));
                }
            }
        }
    }
    if (c.state.atomic != 0) {
        fail(Rule::StateLeft, "SetAtomicAdd", nullptr, c.state.atomic_site,
             "atomic operation is still on at the end of the kernel: SetAtomicNone is missing");
    }
    if (c.state.counter_mode || c.state.mask_dirty) {
        fail(Rule::StateLeft, "SetVectorMask", nullptr, c.state.mask_site,
             "%s is still set at the end of the kernel: %s is missing", c.state.counter_mode ? "counter mode" : "a vector mask",
             c.state.counter_mode ? "SetMaskNorm" : "ResetMask");
    }
    if (!l.dry) {
        for (const auto &[line, data] : c.cache) {
            if (data.dirty != 0) {
                const AscendTwinMemory *m = memory_of(line * 64, 1);
                fail(Rule::DirtyCache, "SetValue", nullptr, data.site,
                     "what SetValue wrote to `%s` at byte %llu is still in the data cache at the end of the kernel: "
                     "DataCacheCleanAndInvalid is missing",
                     m == nullptr || m->name == nullptr ? "an argument" : m->name,
                     static_cast<unsigned long long>(m == nullptr ? 0 : line * 64 - m->address));
            }
        }
    }
}

void core_main(void *data)
{
    Core &c = *static_cast<Core *>(data);
    Launch &l = *c.launch;
    l.entry->call(l.request->args);
    for (size_t i = c.end_checks.size(); i-- > 0;) {
        c.end_checks[i].first(c.end_checks[i].second);
    }
    c.returned = true;
    block(c, Block::Drain, ASCEND_TWIN_ALL_PIPES, 0, "the end of the kernel", Site{l.entry->kernel.name, 0});
    check_end(c);
    c.finished = true;
    l.in_fiber = false;
    c.fiber.suspend();
    abort();
}

void resume(Launch &l, Core &c)
{
    if (!c.started) {
        c.started = true;
        c.fiber.start(core_main, &c);
    }
    Core *before = l.now;
    l.now = &c;
    l.in_fiber = true;
    c.fiber.resume();
    l.in_fiber = false;
    l.now = before;
    if (l.failed) {
        leave();
    }
}

bool advance(Launch &l, Core &c)
{
    if (c.finished) {
        return false;
    }
    const bool moved = l.chaos ? false : drain_core(c);
    if (!c.started || unblocked(c)) {
        resume(l, c);
        return true;
    }
    return moved;
}

void run_wave_fast(Launch &l)
{
    for (;;) {
        bool moved = false, open = false;
        for (size_t i = l.live_from; i < l.live_to; i++) {
            moved = advance(l, *l.cores[i]) || moved;
            open = open || !l.cores[i]->finished;
        }
        if (!open) {
            return;
        }
        if (!moved) {
            deadlock(l);
        }
    }
}

void run_wave_chaos(Launch &l)
{
    const size_t n = l.live_to - l.live_from;
    std::vector<Core *> &open = *new (malloc(sizeof(std::vector<Core *>))) std::vector<Core *>();
    for (size_t i = 0; i < n; i++) {
        open.push_back(l.cores[l.live_from + i].get());
    }
    size_t idle = 0;
    while (!open.empty()) {
        const size_t at = static_cast<size_t>(l.draw() % open.size());
        Core &c = *open[at];
        bool moved = false;
        if (l.draw() % 256 < l.core_weight[c.index]) {
            // A few turns of one core: its pipes, each as eager as the seed makes it, and its scalar unit.
            const int turns = 1 + static_cast<int>(l.draw() % 16);
            for (int t = 0; t < turns && !c.finished; t++) {
                // One draw among what has something to do.
                uint32_t able = !c.started || unblocked(c) ? 1u : 0u;
                for (int p = 1; p < kPipes; p++) {
                    able |= !c.pipe[p].queue.empty() && ready(c, p, c.pipe[p].queue.front()) ? 1u << p : 0u;
                }
                if (able == 0) {
                    break;
                }
                const uint64_t d = l.draw();
                auto skip = static_cast<int>((d >> 8) % static_cast<uint64_t>(__builtin_popcount(able)));
                while (skip-- > 0) {
                    able &= able - 1;
                }
                const int p = __builtin_ctz(able);
                if (d % 256 >= l.pipe_weight[p]) {
                    continue;
                }
                if (p == 0) {
                    resume(l, c);
                    moved = true;
                } else {
                    moved = step(c, p) || moved;
                }
            }
        }
        if (c.finished) {
            open[at] = open.back();
            open.pop_back();
            idle = 0;
            continue;
        }
        idle = moved ? 0 : idle + 1;
        if (idle > 64 + 16 * open.size()) {
            // Nothing was drawn for long: look whether anything can move at all.
            bool any = false;
            for (size_t i = 0; i < open.size() && !any; i++) {
                Core &o = *open[i];
                for (int p = 1; p < kPipes && !any; p++) {
                    any = step(o, p);
                }
                if (!any && (!o.started || unblocked(o))) {
                    resume(l, o);
                    any = true;
                    if (o.finished) {
                        open[i] = open.back();
                        open.pop_back();
                    }
                }
            }
            if (!any) {
                deadlock(l);
            }
            idle = 0;
        }
    }
    open.~vector();
    free(&open);
}

} // namespace

std::string Core::name() const
{
    if (cube) {
        return "AIC " + std::to_string(block);
    }
    const uint32_t per = launch->per_block - (launch->cores[block * launch->per_block]->cube ? 1 : 0);
    return "AIV " + std::to_string(block * per + sub);
}

const char *rule_name(Rule rule) { return kRuleNames[static_cast<uint32_t>(rule)]; }

void leave()
{
    Launch &l = launch();
    if (l.in_fiber) {
        l.in_fiber = false;
        l.now->fiber.suspend();
    }
    longjmp(l.out, 1);
}

void stop(Rule rule, const char *api, const char *tensor, Site site, Pipe pipe, const char *other_api, Site other, const char *format,
          va_list args)
{
    Launch &l = launch();
    if (!l.failed) {
        char small[1024];
        va_list again;
        va_copy(again, args);
        const int n = vsnprintf(small, sizeof small, format, args);
        if (n >= 0 && static_cast<size_t>(n) < sizeof small) {
            l.message = small;
        } else if (n > 0) {
            l.message.resize(static_cast<size_t>(n) + 1);
            vsnprintf(&l.message[0], l.message.size(), format, again);
            l.message.resize(static_cast<size_t>(n));
        }
        va_end(again);
        l.failed = true;
        l.rule = rule;
        l.has_api = api != nullptr;
        l.api = api == nullptr ? "" : api;
        l.has_tensor = tensor != nullptr;
        l.tensor = tensor == nullptr ? "" : tensor;
        l.site = site;
        l.core = l.now == nullptr ? "" : l.now->name();
        if (l.pipe.empty()) {
            l.pipe = pipe_name(pipe);
        }
        l.has_other = other_api != nullptr;
        l.other_api = other_api == nullptr ? "" : other_api;
        l.other_site = other;
    }
    va_end(args);
    leave();
}

void fail(Rule rule, const char *api, const char *tensor, Site site, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    stop(rule, api, tensor, site, running != nullptr ? running->pipe : Pipe::S, nullptr, Site{}, format, args);
}

void Exec::fail(Rule rule, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const Instr *i = running;
    stop(rule, i == nullptr ? nullptr : i->api, nullptr, i == nullptr ? Site{} : i->site, i == nullptr ? Pipe::S : i->pipe, nullptr,
         Site{}, format, args);
}

CoreState &Exec::state() { return core().state; }

void issue(Instr &instr)
{
    Core &c = core();
    Launch &l = *c.launch;
    c.calls++;
    running = &instr;
    const bool vector_pipe = instr.pipe == Pipe::V;
    const bool cube_pipe = instr.pipe == Pipe::M || instr.pipe == Pipe::FIX;
    if ((vector_pipe && c.cube) || (cube_pipe && !c.cube)) {
        fail(Rule::WrongCore, instr.api, nullptr, instr.site, "%s runs on %s cores; this is %s", instr.api, vector_pipe ? "vector" : "cube",
             c.name().c_str());
    }
    check_operands(c, instr);
    running = nullptr;
    if (ordered_pipe(l, instr.pipe)) {
        instr.ordered = true;
    }
    if (l.record) {
        AscendTwinRecord &r = note(c, ASCEND_TWIN_INSTRUCTION, instr.pipe, instr.api, instr.site);
        r.dtype = instr.dtype;
        r.l2 = instr.l2;
        memcpy(r.a, instr.a, sizeof r.a);
        bool from = false, to = false;
        for (int i = 0; i < instr.count; i++) {
            const Operand &o = instr.operand[i];
            if (o.use == Use::Read && !from) {
                r.from = static_cast<uint8_t>(o.mem);
                from = true;
            }
            if (o.use != Use::Read && !to) {
                r.to = static_cast<uint8_t>(o.mem);
                to = true;
            }
            if (o.mem == Mem::GM && r.gm_n1 == 0) {
                r.gm_address = o.region.addr;
                r.gm_bytes = o.region.bytes;
                r.gm_pitch1 = o.region.pitch1;
                r.gm_pitch2 = o.region.pitch2;
                r.gm_n1 = o.region.n1;
                r.gm_n2 = o.region.n2;
                r.gm_write = o.use == Use::Read ? 0 : o.use == Use::Atomic ? 2 : 1;
            }
        }
    }
    Item item;
    item.kind = Kind::Instr;
    item.api = instr.api;
    item.site = instr.site;
    item.instr = &instr;
    if (instr.pipe == Pipe::S) {
        run_item(c, 0, item);
        return;
    }
    submit(c, instr.pipe, item);
}

bool effects() { return !launch().dry; }

void set_flag(Pipe from, Pipe to, int id, Owner owner, const char *api, Site site)
{
    if (owner == Owner::Hand && muted(api, site)) {
        return;
    }
    Core &c = core();
    c.calls++;
    check_event(from, to, id, owner, api, site);
    Event &e = c.event[static_cast<int>(from)][static_cast<int>(to)][id];
    if (e.issued != 0) {
        fail(Rule::FlagDoubleSet, api, nullptr, site,
             "%s: event %d from %s to %s is set a second time without a WaitFlag between; events do not count", api, id, pipe_name(from),
             pipe_name(to));
    }
    e.issued = 1;
    if (c.launch->record) {
        AscendTwinRecord &r = note(c, ASCEND_TWIN_SET_FLAG, from, api, site);
        r.pipe2 = static_cast<uint8_t>(to);
        r.id = static_cast<uint8_t>(id);
    }
    post(c, Kind::Set, from, static_cast<int>(to), 0, id, api, site);
}

void wait_flag(Pipe from, Pipe to, int id, Owner owner, const char *api, Site site)
{
    if (owner == Owner::Hand && muted(api, site)) {
        return;
    }
    Core &c = core();
    c.calls++;
    check_event(from, to, id, owner, api, site);
    c.event[static_cast<int>(from)][static_cast<int>(to)][id].issued = 0;
    if (c.launch->record) {
        AscendTwinRecord &r = note(c, ASCEND_TWIN_WAIT_FLAG, from, api, site);
        r.pipe2 = static_cast<uint8_t>(to);
        r.id = static_cast<uint8_t>(id);
    }
    post(c, Kind::Wait, to, static_cast<int>(from), 0, id, api, site);
}

int alloc_event(Pipe from, Pipe to, Owner owner, const char *api, Site site)
{
    Core &c = core();
    const int f = static_cast<int>(from), t = static_cast<int>(to);
    // Queues take ids from below, the kernel from above: an id that was fetched and given back seldom becomes a queue's.
    static const int downwards[kIds] = {5, 4, 3, 2, 1, 0, 6, 7};
    for (int i = 0; i < kIds; i++) {
        const int id = owner == Owner::Queue ? i : downwards[i];
        const auto bit = static_cast<uint8_t>(1u << id);
        if (((c.by_queue[f][t] | c.by_hand[f][t]) & bit) != 0) {
            continue;
        }
        if (owner == Owner::Queue && (c.used_by_hand[f][t] & bit) != 0) {
            fail(Rule::FlagId, api, nullptr, site,
                 "%s: event id %d from %s to %s, which the kernel uses by hand, is the next that a queue gets; take ids by AllocEventID",
                 api, id, pipe_name(from), pipe_name(to));
        }
        (owner == Owner::Queue ? c.by_queue : c.by_hand)[f][t] |= bit;
        return id;
    }
    fail(Rule::FlagId, api, nullptr, site, "%s: all %d event ids from %s to %s are taken", api, kIds, pipe_name(from), pipe_name(to));
}

void release_event(Pipe from, Pipe to, int id, Owner owner, const char *api, Site site)
{
    Core &c = core();
    const int f = static_cast<int>(from), t = static_cast<int>(to);
    if (id < 0 || id >= kIds || ((owner == Owner::Queue ? c.by_queue : c.by_hand)[f][t] & (1u << id)) == 0) {
        fail(Rule::FlagId, api, nullptr, site, "%s: event id %d from %s to %s was not allocated", api, id, pipe_name(from), pipe_name(to));
    }
    (owner == Owner::Queue ? c.by_queue : c.by_hand)[f][t] &= static_cast<uint8_t>(~(1u << id));
}

void pipe_barrier(Pipe pipe, const char *api, Site site)
{
    if (muted(api, site)) {
        return;
    }
    Core &c = core();
    Launch &l = *c.launch;
    c.calls++;
    if (pipe == Pipe::S) {
        fail(Rule::Usage, api, nullptr, site, "%s: PIPE_S has no barrier; the scalar unit is in order", api);
    }
    if (l.record) {
        note(c, ASCEND_TWIN_BARRIER, pipe, api, site);
    }
    if (pipe != Pipe::All) {
        Item item;
        item.kind = Kind::Barrier;
        item.api = api;
        item.site = site;
        submit(c, pipe, item);
        return;
    }
    block(c, Block::Drain, ASCEND_TWIN_ALL_PIPES, 0, api, site);
    Clock &s = c.pipe[0].clock;
    for (int p = 1; p < kPipes; p++) {
        s.join(c.pipe[p].clock);
    }
    for (int p = 0; p < kPipes; p++) {
        s.own[p] = c.pipe[p].time;
    }
    scalar_learned(c);
}

void drain(Pipe pipe, const char *api, Site site)
{
    Core &c = core();
    if (pipe == Pipe::All || pipe == Pipe::S) {
        fail(Rule::Usage, api, nullptr, site, "%s: waits for one pipe other than the scalar unit", api);
    }
    const int p = static_cast<int>(pipe);
    if (c.launch->record) {
        AscendTwinRecord &a = note(c, ASCEND_TWIN_SET_FLAG, pipe, api, site);
        a.id = kIds;
        AscendTwinRecord &b = note(c, ASCEND_TWIN_WAIT_FLAG, pipe, api, site);
        b.id = kIds;
    }
    block(c, Block::Drain, static_cast<uint8_t>(p), 0, api, site);
    c.pipe[0].clock.join(complete(c.pipe[p], p));
    scalar_learned(c);
}

static void check_cross(int mode, Pipe pipe, int id, const char *api, Site site)
{
    Core &c = core();
    Launch &l = *c.launch;
    if (!l.sync_allowed) {
        fail(Rule::CrossFlag, api, nullptr, site,
             "%s: kernels of type KERNEL_TYPE_AIV_ONLY and KERNEL_TYPE_AIC_ONLY have no cross-core synchronisation; use a MIX type", api);
    }
    if (mode < 0 || mode > 4 || mode == 3 || (mode == 4 && l.arch != 3510)) {
        fail(Rule::Range, api, nullptr, site, "%s: mode %d; expected 0, 1, 2%s", api, mode, l.arch == 3510 ? " or 4" : "");
    }
    const int ids = mode == 4 || l.arch == 3510 ? 32 : 16;
    if (id < 0 || id >= ids || (mode != 4 && id >= 16 && l.arch != 3510)) {
        fail(Rule::Range, api, nullptr, site, "%s: flag id %d; expected 0 to %d", api, id, ids - 1);
    }
    if (mode != 0 && mode != 1 && l.per_block == 1) {
        fail(Rule::CrossFlag, api, nullptr, site, "%s: mode %d joins a cube core and its vector cores; this kernel has one kind of core", api,
             mode);
    }
    if (mode == 1 && c.cube) {
        fail(Rule::CrossFlag, api, nullptr, site, "%s: mode 1 joins the two vector cores of a block; this is a cube core", api);
    }
    (void)pipe;
}

void cross_set(int mode, Pipe pipe, int id, const char *api, Site site)
{
    if (muted(api, site)) {
        return;
    }
    Core &c = core();
    c.calls++;
    check_cross(mode, pipe, id, api, site);
    if (c.launch->record) {
        AscendTwinRecord &r = note(c, ASCEND_TWIN_CROSS_SET, pipe, api, site);
        r.mode = static_cast<uint8_t>(mode);
        r.id = static_cast<uint8_t>(id);
    }
    post(c, Kind::CrossSet, pipe, 0, mode, id, api, site);
}

void cross_wait(int mode, Pipe pipe, int id, const char *api, Site site)
{
    if (muted(api, site)) {
        return;
    }
    Core &c = core();
    c.calls++;
    check_cross(mode == 4 ? 4 : 0, pipe, id, api, site);
    if (c.launch->record) {
        AscendTwinRecord &r = note(c, ASCEND_TWIN_CROSS_WAIT, pipe, api, site);
        r.mode = static_cast<uint8_t>(mode);
        r.id = static_cast<uint8_t>(id);
    }
    post(c, Kind::CrossWait, pipe, 0, mode, id, api, site);
}

namespace {

// Arrives at the barrier `w` of `members` cores and goes on when all have.
void meet(Core &c, int w, uint32_t members, const char *api, Site site)
{
    Launch &l = *c.launch;
    block(c, Block::Drain, ASCEND_TWIN_ALL_PIPES, 0, api, site);
    Clock mine = c.pipe[0].clock;
    for (int p = 0; p < kPipes; p++) {
        mine.join(c.pipe[p].clock);
    }
    for (int p = 0; p < kPipes; p++) {
        mine.own[p] = c.pipe[p].time;
    }
    Table *t = mine.publish(c.index, l.agents());
    if (l.barrier_clock[w] == nullptr) {
        l.barrier_clock[w] = t;
    } else {
        for (uint32_t i = 0; i < l.agents(); i++) {
            l.barrier_clock[w]->at()[i] = std::max(l.barrier_clock[w]->at()[i], t->at()[i]);
        }
        t->drop();
    }
    c.block_generation = l.generation[w];
    if (++l.arrived[w] == members) {
        l.arrived[w] = 0;
        if (l.barrier_done[w] != nullptr) {
            l.barrier_done[w]->drop();
        }
        l.barrier_done[w] = l.barrier_clock[w];
        l.barrier_clock[w] = nullptr;
        l.generation[w]++;
    }
    block(c, Block::Barrier, 0, static_cast<uint8_t>(w), api, site);
    c.pipe[0].clock.join_published(l.barrier_done[w], c.index);
    scalar_learned(c);
}

void check_fit(Launch &l, bool cube, const char *api, Site site)
{
    const bool mix = l.per_block > 1;
    const uint32_t fit = mix   ? std::min(l.chip.cube_cores, l.chip.vector_cores / (l.per_block - 1))
                         : cube ? l.chip.cube_cores
                                : l.chip.vector_cores;
    if (l.request->blocks > fit) {
        fail(Rule::Blocks, api, nullptr, site, "%s: %u blocks on %u cores: those that wait for a core are never reached", api,
             l.request->blocks, fit);
    }
}

} // namespace

void sync_all(bool cube, const char *api, Site site)
{
    if (muted(api, site)) {
        return;
    }
    Core &c = core();
    Launch &l = *c.launch;
    c.calls++;
    if (!l.sync_allowed) {
        fail(Rule::CrossFlag, api, nullptr, site, "%s: needs a kernel of a MIX type", api);
    }
    if (!cube && c.cube) {
        fail(Rule::WrongCore, api, nullptr, site, "%s: of vector cores only, called on a cube core", api);
    }
    check_fit(l, c.cube, api, site);
    if (l.record) {
        AscendTwinRecord &r = note(c, ASCEND_TWIN_SYNC_ALL, Pipe::All, api, site);
        r.mode = cube ? 1 : 0;
    }
    uint32_t members = 0;
    for (size_t i = l.live_from; i < l.live_to; i++) {
        members += cube || !l.cores[i]->cube ? 1 : 0;
    }
    meet(c, cube ? 1 : 0, members, api, site);
}

void sync_soft(uint32_t cores, const char *api, Site site)
{
    if (muted(api, site)) {
        return;
    }
    Core &c = core();
    Launch &l = *c.launch;
    c.calls++;
    if (c.cube) {
        fail(Rule::WrongCore, api, nullptr, site, "%s: of vector cores only, called on a cube core", api);
    }
    check_fit(l, false, api, site);
    uint32_t all = 0, me = 0;
    for (size_t i = l.live_from; i < l.live_to; i++) {
        if (l.cores[i].get() == &c) {
            me = all;
        }
        all += l.cores[i]->cube ? 0 : 1;
    }
    const uint32_t members = cores == 0 ? all : cores;
    if (members > all || me >= members) {
        fail(Rule::Usage, api, nullptr, site, "%s: of %u cores, called on vector core %u of %u", api, members, me, all);
    }
    if (l.record) {
        note(c, ASCEND_TWIN_SYNC_ALL, Pipe::All, api, site);
    }
    meet(c, 0, members, api, site);
}

bool muted(const char *api, Site site) { return is_sync_muted(launch(), api, site); }

namespace {

Instr scalar_instr(const char *api, Site site)
{
    Instr i;
    i.api = api;
    i.site = site;
    i.pipe = Pipe::S;
    return i;
}

void note_scalar(Core &c, uint32_t what, uint32_t amount, const char *api, Site site)
{
    if (c.launch->record) {
        AscendTwinRecord &r = note(c, ASCEND_TWIN_SCALAR, Pipe::S, api, site);
        r.a[0] = what;
        r.a[1] = amount;
    }
}

// A GM access of the scalar unit must lie in the launch's memory; it is no instruction of a pipe.
void check_scalar_gm(Core &c, uint64_t addr, uint32_t bytes, const Buffer &buffer, bool write, const char *api, const char *tensor,
                     Site site)
{
    Instr i = scalar_instr(api, site);
    i.add(tensor, write ? Use::Write : Use::Read, Mem::GM, Region{addr, bytes, 0, 0, 1, 1}, buffer);
    check_operands(c, i);
}

void write_back(Core &c, uint64_t line, CacheLine &l, const char *api, Site site)
{
    if (l.dirty == 0) {
        return;
    }
    Operand o;
    o.name = "line";
    o.mem = Mem::GM;
    o.use = Use::Write;
    tick(c, 0, api, site);
    for (uint32_t i = 0; i < 64;) {
        if ((l.dirty >> i & 1) == 0) {
            i++;
            continue;
        }
        uint32_t n = 1;
        while (i + n < 64 && (l.dirty >> (i + n) & 1) != 0) {
            n++;
        }
        touch_gm(c, Pipe::S, o, line * 64 + i, n, c.pipe[0].time, api, site, true, false);
        memcpy(reinterpret_cast<void *>(line * 64 + i), l.data + i, n);
        exec.define(Mem::GM, line * 64 + i, n, true);
        i += n;
    }
    l.dirty = 0;
}

// Whether the cache may still hold a line as an earlier launch found it. The tiling comes with the arguments, which the
// runtime puts before a launch where the core finds them.
bool may_be_old(Core &c, uint64_t line, uint64_t addr)
{
    if (!c.launch->chaos || c.cache_fresh || c.fresh_lines.count(line) != 0) {
        return false;
    }
    const AscendTwinMemory *m = memory_of(addr, 1);
    return m == nullptr || m->name == nullptr || strcmp(m->name, "tiling") != 0;
}

CacheLine &line_of(Core &c, uint64_t line, bool &missed)
{
    auto [at, fresh] = c.cache.try_emplace(line);
    missed = fresh;
    if (fresh) {
        CacheLine &l = at->second;
        l.dirty = 0;
        l.stamp = c.launch->stamp;
        // Only the part that is the launch's memory can be read.
        memset(l.data, 0, sizeof l.data);
        const AscendTwinMemory *m = nullptr;
        for (uint32_t i = 0; i < 64 && !c.launch->dry; i++) {
            const uint64_t a = line * 64 + i;
            if (m == nullptr || a - m->address >= m->bytes) {
                m = memory_of(a, 1);
            }
            if (m != nullptr) {
                l.data[i] = *reinterpret_cast<const uint8_t *>(a);
            }
        }
    }
    return at->second;
}

} // namespace

void scalar_read(Mem mem, uint64_t addr, void *to, uint32_t bytes, const Buffer &buffer, const char *api, const char *tensor, Site site)
{
    Core &c = core();
    Launch &l = *c.launch;
    c.calls++;
    if (mem != Mem::GM) {
        note_scalar(c, ASCEND_TWIN_LOCAL_READ, bytes, api, site);
        Instr i = scalar_instr(api, site);
        Operand &o = i.add(tensor, Use::Read, mem, Region{addr, bytes, 0, 0, 1, 1}, buffer);
        o.align = static_cast<uint16_t>(bytes);
        check_operands(c, i);
        if (l.dry) {
            if (mem == Mem::UB) {
                memcpy(to, exec.at(mem, addr), bytes);
            } else {
                memset(to, 0, bytes);
            }
            return;
        }
        maybe_yield(c);
        run_instr(c, 0, i);
        memcpy(to, exec.at(mem, addr), bytes);
        return;
    }
    check_scalar_gm(c, addr, bytes, buffer, false, api, tensor, site);
    auto *out = static_cast<uint8_t *>(to);
    if (l.dry) {
        bool missed = c.cache.try_emplace(addr / 64).second;
        note_scalar(c, missed ? ASCEND_TWIN_GM_MISS : ASCEND_TWIN_GM_HIT, bytes, api, site);
        need_data(addr, api, tensor, site);
        memcpy(to, reinterpret_cast<const void *>(addr), bytes);
        return;
    }
    maybe_yield(c);
    tick(c, 0, api, site);
    bool any_miss = false;
    for (uint32_t i = 0; i < bytes;) {
        const uint64_t line = (addr + i) / 64;
        const auto from = static_cast<uint32_t>((addr + i) % 64);
        const uint32_t n = bytes - i < 64 - from ? bytes - i : 64 - from;
        bool missed = false;
        CacheLine &cl = line_of(c, line, missed);
        any_miss = any_miss || missed;
        const uint64_t own = n == 64 ? ~0ull : ((1ull << n) - 1) << from;
        if ((cl.dirty & own) != own) {
            Operand o;
            o.name = tensor;
            o.mem = Mem::GM;
            o.use = Use::Read;
            touch_gm(c, Pipe::S, o, addr + i, n, c.pipe[0].time, api, site, false, true);
            if (may_be_old(c, line, addr + i)) {
                fail(Rule::StaleCache, api, tensor, site,
                     "%s reads a line that an earlier launch may have left in the data cache: DataCacheCleanAndInvalid at the "
                     "start of the kernel is missing",
                     api);
            }
            if (!missed) {
                bool stale = false;
                l.gm.look(addr + i, n, [&](const Segment &s) { stale = stale || (s.stamp > cl.stamp && s.write.agent != kNobody); });
                if (stale) {
                    fail(Rule::StaleCache, api, tensor, site,
                         "%s reads a line of the data cache that was loaded before the memory was written again: "
                         "DataCacheCleanAndInvalid is missing",
                         api);
                }
            }
            if (!exec.defined(Mem::GM, addr + i, n)) {
                fail(Rule::Undefined, api, tensor, site, "%s reads bytes of %s that hold no defined value", api, tensor);
            }
        }
        memcpy(out + i, cl.data + from, n);
        i += n;
    }
    note_scalar(c, any_miss ? ASCEND_TWIN_GM_MISS : ASCEND_TWIN_GM_HIT, bytes, api, site);
}

void scalar_write(Mem mem, uint64_t addr, const void *from, uint32_t bytes, const Buffer &buffer, const char *api, const char *tensor,
                  Site site)
{
    Core &c = core();
    Launch &l = *c.launch;
    c.calls++;
    if (mem != Mem::GM) {
        note_scalar(c, ASCEND_TWIN_LOCAL_WRITE, bytes, api, site);
        Instr i = scalar_instr(api, site);
        Operand &o = i.add(tensor, Use::Write, mem, Region{addr, bytes, 0, 0, 1, 1}, buffer);
        o.align = static_cast<uint16_t>(bytes);
        check_operands(c, i);
        if (l.dry) {
            if (mem == Mem::UB) {
                memcpy(exec.at(mem, addr), from, bytes);
            }
            return;
        }
        maybe_yield(c);
        run_instr(c, 0, i);
        memcpy(exec.at(mem, addr), from, bytes);
        return;
    }
    check_scalar_gm(c, addr, bytes, buffer, true, api, tensor, site);
    const auto *in = static_cast<const uint8_t *>(from);
    bool any_miss = false;
    for (uint32_t i = 0; i < bytes;) {
        const uint64_t line = (addr + i) / 64;
        const auto at = static_cast<uint32_t>((addr + i) % 64);
        const uint32_t n = bytes - i < 64 - at ? bytes - i : 64 - at;
        bool missed = false;
        CacheLine &cl = line_of(c, line, missed);
        any_miss = any_miss || missed;
        if (!l.dry) {
            memcpy(cl.data + at, in + i, n);
            cl.dirty |= (n == 64 ? ~0ull : ((1ull << n) - 1) << at);
            cl.site = site;
        }
        i += n;
    }
    note_scalar(c, any_miss ? ASCEND_TWIN_GM_MISS : ASCEND_TWIN_GM_HIT, bytes, api, site);
}

void cache_clean(uint64_t addr, bool all, bool write_back_too, const char *api, Site site)
{
    if (muted(api, site)) {
        return;
    }
    Core &c = core();
    c.calls++;
    note_scalar(c, ASCEND_TWIN_CACHE_CLEAN, all ? 1 : 0, api, site);
    maybe_yield(c);
    auto one = [&](uint64_t line, CacheLine &l) {
        if (write_back_too && !c.launch->dry) {
            write_back(c, line, l, api, site);
        }
    };
    if (all) {
        for (auto &[line, l] : c.cache) {
            one(line, l);
        }
        c.cache.clear();
        c.cache_fresh = true;
        return;
    }
    const auto at = c.cache.find(addr / 64);
    if (at != c.cache.end()) {
        one(at->first, at->second);
        c.cache.erase(at);
    }
    if (!c.cache_fresh) {
        c.fresh_lines.insert(addr / 64);
    }
}

void scalar_call(uint32_t cycles, const char *api, Site site)
{
    Core &c = core();
    c.calls++;
    note_scalar(c, ASCEND_TWIN_CALL, cycles, api, site);
}

uint32_t open_buffer(Mem mem, uint64_t base, uint64_t bytes, const char *what, Site site)
{
    Launch &l = launch();
    l.buffers.push_back(LiveBuffer{mem, base, bytes, what, site, true, core().index});
    return static_cast<uint32_t>(l.buffers.size() - 1);
}

void close_buffer(uint32_t id) { launch().buffers[id].live = false; }

void undefine(Mem mem, uint64_t base, uint64_t bytes)
{
    Core &c = core();
    // Where earlier instructions have not run yet, they may still use the bytes: then it is left out.
    if (!c.launch->dry && !c.launch->chaos && c.queued == 0 && c.mem[static_cast<int>(mem)].exists()) {
        c.mem[static_cast<int>(mem)].undefine(base, bytes);
    }
}

void used(Mem mem, uint64_t end)
{
    uint32_t &u = launch().used[static_cast<int>(mem)];
    u = end > u ? static_cast<uint32_t>(end) : u;
}

bool is_cube() { return core().cube; }
uint32_t block_index() { return core().block; }
uint32_t block_count() { return launch().request->blocks; }
uint32_t sub_block() { return core().sub; }
uint32_t vector_per_cube()
{
    const Launch &l = launch();
    return l.per_block - 1;
}
uint32_t task() { return launch().entry->kernel.task; }
const AscendTwinChip &chip() { return launch().chip; }

uint32_t capacity(Mem mem)
{
    const AscendTwinChip &c = launch().chip;
    switch (mem) {
    case Mem::L1:
        return c.l1;
    case Mem::L0A:
        return c.l0a;
    case Mem::L0B:
        return c.l0b;
    case Mem::L0C:
        return c.l0c;
    case Mem::UB:
        return c.ub;
    case Mem::BT:
        return c.bt;
    case Mem::FB:
        return c.fb;
    case Mem::L0A_MX:
        return c.l0a_mx;
    case Mem::L0B_MX:
        return c.l0b_mx;
    case Mem::GM:
        break;
    }
    return 0xffffffffu;
}

const char *mem_name(Mem mem)
{
    static const char *const names[] = {"GM", "L1", "L0A", "L0B", "L0C", "UB", "BT", "FB", "L0A_MX", "L0B_MX"};
    return names[static_cast<int>(mem)];
}

const char *pipe_name(Pipe pipe)
{
    static const char *const names[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"};
    return pipe == Pipe::All ? "all" : names[static_cast<int>(pipe)];
}

const char *kernel_name() { return launch().entry->kernel.name; }

uint64_t cycle() { return core().calls * 16; }

void print(const char *text, size_t bytes)
{
    const AscendTwinLaunch *r = launch().request;
    if (r->print != nullptr) {
        r->print(r->user, text, bytes);
    } else {
        fwrite(text, 1, bytes, stdout);
    }
}

CoreState &state() { return core().state; }

void *arena(size_t bytes)
{
    void *p = calloc(1, bytes);
    launch().arena.push_back(p);
    return p;
}

void *&frame() { return core().frame; }

void at_end(void (*check)(void *), void *data) { core().end_checks.emplace_back(check, data); }

void run_all(Launch &l)
{
    // A launch that was stopped leaves the instruction that did it.
    running = nullptr;
    const uint32_t blocks = l.request->blocks;
    const bool mix = l.per_block > 1;
    const bool cube = l.cores[0]->cube;
    const uint32_t wave = mix   ? std::min(l.chip.cube_cores, l.chip.vector_cores / (l.per_block - 1))
                          : cube ? l.chip.cube_cores
                                 : l.chip.vector_cores;
    for (uint32_t from = 0; from < blocks; from += wave) {
        const uint32_t to = std::min(blocks, from + wave);
        l.live_from = static_cast<size_t>(from) * l.per_block;
        l.live_to = static_cast<size_t>(to) * l.per_block;
        for (size_t i = l.live_from; i < l.live_to; i++) {
            Core &c = *l.cores[i];
            if (!c.cube) {
                c.mem[static_cast<int>(Mem::UB)].create(capacity(Mem::UB));
                if (l.dry) {
                    // What was not copied there reads as zero.
                    memset(c.mem[static_cast<int>(Mem::UB)].at(0), 0, capacity(Mem::UB));
                }
                continue;
            }
            for (Mem m : {Mem::L1, Mem::L0A, Mem::L0B, Mem::L0C, Mem::BT, Mem::FB, Mem::L0A_MX, Mem::L0B_MX}) {
                if (capacity(m) != 0 && !l.dry) {
                    c.mem[static_cast<int>(m)].create(capacity(m));
                }
            }
        }
        if (l.chaos) {
            run_wave_chaos(l);
        } else {
            run_wave_fast(l);
        }
        for (size_t i = l.live_from; i < l.live_to; i++) {
            Core &c = *l.cores[i];
            for (int id = 0; id < kCrossIds; id++) {
                if (!c.tokens[id].empty()) {
                    l.now = &c;
                    fail(Rule::CrossFlag, "CrossCoreSetFlag", nullptr, c.tokens[id].front().site,
                         "cross-core flag %d of %s is left set %zu times at the end of the kernel: the next kernel finds it set", id,
                         c.name().c_str(), c.tokens[id].size());
                }
                for (int mode = 0; mode < 3; mode++) {
                    auto &q = l.pending[mode][c.index * kCrossIds + static_cast<uint32_t>(id)];
                    if (!q.empty()) {
                        l.now = &c;
                        fail(Rule::CrossFlag, "CrossCoreSetFlag", nullptr, q.front().site,
                             "%s set cross-core flag %d (mode %d) %zu times more than the others of its group", c.name().c_str(), id, mode,
                             q.size());
                    }
                }
            }
            for (Local &m : c.mem) {
                m = Local();
            }
        }
    }
}

} // namespace ascend_twin
