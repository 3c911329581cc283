// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Checks of the memory that an instruction names: alignment, bounds, whose memory it is, hazards by vector clocks, and
// definedness.

#include <stdio.h>

#include <algorithm>

#include "core.h"

namespace ascend_twin {

namespace {

[[noreturn]] void refuse(Rule rule, const Instr &instr, const Operand *o, const Deed *other, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
[[noreturn]] void refuse(Rule rule, const Instr &instr, const Operand *o, const Deed *other, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    stop(rule, instr.api, o == nullptr ? nullptr : o->name, instr.site, instr.pipe, other == nullptr ? nullptr : other->api,
         other == nullptr ? Site{} : other->site, format, args);
}

uint32_t natural_align(Mem m)
{
    switch (m) {
    case Mem::GM:
        return 1;
    case Mem::L0A:
    case Mem::L0B:
        return 512;
    case Mem::L0C:
    case Mem::BT:
    case Mem::FB:
        return 64;
    default:
        return 32;
    }
}

Core *core_of(Core &c, Peer peer)
{
    if (peer == Peer::Self) {
        return &c;
    }
    Launch &l = launch();
    const uint32_t first = c.block * l.per_block;
    const bool cube_first = l.cores[first]->cube;
    if (peer == Peer::Aic) {
        return cube_first ? l.cores[first].get() : nullptr;
    }
    const uint32_t at = (cube_first ? 1u : 0u) + (peer == Peer::Aiv1 ? 1u : 0u);
    return at < l.per_block ? l.cores[first + at].get() : nullptr;
}

// Slot of an agent in the shadows of `owner`'s memories.
int slot_of(const Core &owner, const Core &actor, Pipe pipe)
{
    const int p = static_cast<int>(pipe);
    if (&owner == &actor) {
        return p;
    }
    const int which = actor.cube ? 0 : static_cast<int>(actor.sub) + (owner.cube ? 0 : 1);
    return kPipes * (1 + (which > 1 ? 1 : which)) + p;
}

// The reverse: which core's pipe a slot stands for.
const Core &actor_of(const Core &owner, int slot)
{
    if (slot < kPipes) {
        return owner;
    }
    Launch &l = launch();
    const int which = slot / kPipes - 1;
    const uint32_t first = owner.block * l.per_block;
    if (owner.cube) {
        return *l.cores[first + 1 + static_cast<uint32_t>(which)];
    }
    return which == 0 ? *l.cores[first] : *l.cores[first + 1 + (1 - owner.sub)];
}

uint32_t known(const Core &c, const Clock &clock, const Core &actor, int pipe)
{
    if (&actor == &c) {
        return clock.own[pipe];
    }
    return clock.other(actor.index * kPipes + static_cast<uint32_t>(pipe));
}

[[noreturn]] void hazard(Rule rule, const Core &c, const Instr &instr, const Operand &o, uint64_t addr, const Core &actor, int pipe,
                         uint32_t time, bool other_read)
{
    Launch &l = launch();
    const auto &deeds = l.deeds[actor.index * kPipes + static_cast<uint32_t>(pipe)];
    static const Deed unknown{"?", Site{"?", 0}};
    const Deed &other = time < deeds.size() ? deeds[time] : unknown;
    const char *hint;
    if (&actor != &c) {
        hint = "no cross-core flag or SyncAll orders them";
    } else if (pipe == static_cast<int>(instr.pipe)) {
        hint = "both are of one pipe, which may overlap them: a PipeBarrier is missing between them";
    } else {
        hint = "no event orders them: a SetFlag / WaitFlag pair or a queue is missing";
    }
    char place[256];
    const AscendTwinMemory *m = o.mem == Mem::GM ? memory_of(addr, 1) : nullptr;
    if (m != nullptr) {
        snprintf(place, sizeof place, "byte %llu of `%s`", static_cast<unsigned long long>(addr - m->address),
                 m->name == nullptr ? "an argument" : m->name);
    } else {
        snprintf(place, sizeof place, "%s %#llx", mem_name(o.mem), static_cast<unsigned long long>(addr));
    }
    refuse(rule, instr, &o, &other, "%s of %s on pipe %s %s what %s (%s:%u) of %s on pipe %s %s, at %s: %s", instr.api,
           c.name().c_str(), pipe_name(instr.pipe), rule == Rule::HazardRaw ? "reads" : "overwrites", other.api, other.site.file,
           other.site.line, actor.name().c_str(), pipe_name(static_cast<Pipe>(pipe)), other_read ? "reads" : "writes", place, hint);
}

} // namespace

const AscendTwinMemory *memory_of(uint64_t addr, uint64_t bytes)
{
    const auto &m = launch().memory;
    auto at = std::upper_bound(m.begin(), m.end(), addr, [](uint64_t a, const AscendTwinMemory &r) { return a < r.address; });
    if (at == m.begin()) {
        return nullptr;
    }
    --at;
    return addr - at->address <= at->bytes && bytes <= at->bytes - (addr - at->address) ? &*at : nullptr;
}

void check_operands(Core &c, const Instr &instr)
{
    Launch &l = launch();
    for (int i = 0; i < instr.count; i++) {
        const Operand &o = instr.operand[i];
        const Region &r = o.region;
        if (r.bytes == 0 || r.n1 == 0 || r.n2 == 0) {
            continue;
        }
        const uint32_t align = o.align != 0 ? o.align : natural_align(o.mem);
        if (r.addr % align != 0) {
            refuse(Rule::Alignment, instr, &o, nullptr, "%s: %s starts at byte %#llx of %s; expected a multiple of %u", instr.api, o.name,
                   static_cast<unsigned long long>(r.addr), mem_name(o.mem), align);
        }
        const uint64_t end = end_of(r);
        if (o.buffer.id != 0) {
            const LiveBuffer &b = l.buffers[o.buffer.id];
            if (!b.live) {
                refuse(Rule::Queue, instr, &o, nullptr,
                       "%s: %s is a tensor of %s that was given back (FreeTensor or Reset); it was made at %s:%u", instr.api, o.name,
                       b.what.c_str(), b.opened.file, b.opened.line);
            }
        }
        if (o.buffer.bytes != 0 && (r.addr < o.buffer.base || end > o.buffer.base + o.buffer.bytes)) {
            refuse(Rule::Bounds, instr, &o, nullptr,
                   "%s: %s covers bytes %#llx to %#llx of %s, its tensor only %#llx to %#llx", instr.api, o.name,
                   static_cast<unsigned long long>(r.addr), static_cast<unsigned long long>(end), mem_name(o.mem),
                   static_cast<unsigned long long>(o.buffer.base), static_cast<unsigned long long>(o.buffer.base + o.buffer.bytes));
        }
        if (o.mem == Mem::GM) {
            // The end decides: a region's runs ascend.
            if (memory_of(r.addr, end - r.addr) == nullptr) {
                const AscendTwinMemory *near = nullptr;
                for (const auto &m : l.memory) {
                    if (m.address <= r.addr) {
                        near = &m;
                    }
                }
                if (near == nullptr) {
                    refuse(Rule::Bounds, instr, &o, nullptr, "%s: %s is at no memory of this launch", instr.api, o.name);
                }
                refuse(Rule::Bounds, instr, &o, nullptr,
                       "%s: %s covers bytes %llu to %llu of `%s`, which has %llu", instr.api, o.name,
                       static_cast<unsigned long long>(r.addr - near->address), static_cast<unsigned long long>(end - near->address),
                       near->name == nullptr ? "an argument" : near->name, static_cast<unsigned long long>(near->bytes));
            }
            continue;
        }
        Core *owner = core_of(c, o.peer);
        if (owner == nullptr) {
            refuse(Rule::WrongCore, instr, &o, nullptr, "%s: %s is in the %s of a core that this kernel's blocks do not have", instr.api,
                   o.name, mem_name(o.mem));
        }
        const bool of_vector = o.mem == Mem::UB;
        if (of_vector == owner->cube) {
            refuse(Rule::WrongCore, instr, &o, nullptr, "%s: %s is in %s, which %s does not have", instr.api, o.name, mem_name(o.mem),
                   owner->name().c_str());
        }
        const uint32_t size = capacity(o.mem);
        if (end > size) {
            refuse(Rule::Bounds, instr, &o, nullptr, "%s: %s covers bytes %#llx to %#llx of %s, which has %#x", instr.api, o.name,
                   static_cast<unsigned long long>(r.addr), static_cast<unsigned long long>(end), mem_name(o.mem), size);
        }
        uint32_t &used = l.used[static_cast<int>(o.mem)];
        used = end > used ? static_cast<uint32_t>(end) : used;
    }
    // Vector instructions work on blocks in flight: source and destination are the same place or do not meet.
    if (instr.pipe == Pipe::V) {
        for (int i = 0; i < instr.count; i++) {
            const Operand &w = instr.operand[i];
            if (w.use == Use::Read) {
                continue;
            }
            for (int j = 0; j < instr.count; j++) {
                const Operand &r = instr.operand[j];
                if (r.use != Use::Read || r.mem != w.mem || r.region.bytes == 0 || w.region.bytes == 0) {
                    continue;
                }
                if (r.region.addr == w.region.addr) {
                    continue;
                }
                // Interleaved strides may not meet though their hulls do.
                const bool simple = r.region.n1 == 1 && r.region.n2 == 1 && w.region.n1 == 1 && w.region.n2 == 1;
                if (simple && r.region.addr < end_of(w.region) && w.region.addr < end_of(r.region)) {
                    refuse(Rule::Overlap, instr, &w, nullptr,
                           "%s: %s (%#llx to %#llx) overlaps %s (%#llx to %#llx) in part; they must be the same or apart", instr.api,
                           w.name, static_cast<unsigned long long>(w.region.addr), static_cast<unsigned long long>(end_of(w.region)),
                           r.name, static_cast<unsigned long long>(r.region.addr), static_cast<unsigned long long>(end_of(r.region)));
                }
            }
        }
    }
}

void touch_gm(Core &c, Pipe pipe, const Operand &o, uint64_t addr, uint64_t bytes, uint32_t time, const char *api, Site site,
              bool as_write, bool as_read)
{
    Launch &l = launch();
    PipeState &p = c.pipe[static_cast<int>(pipe)];
    const uint32_t agent = c.index * kPipes + static_cast<uint32_t>(pipe);
    const bool atomic = o.use == Use::Atomic;
    auto ordered = [&](const Touch &t) {
        if (t.agent == kNobody) {
            return true;
        }
        const uint32_t other = t.agent / kPipes;
        const uint32_t k = other == c.index ? (t.agent == agent && pipe == Pipe::S ? ~0u : p.clock.own[t.agent % kPipes])
                                            : p.clock.other(t.agent);
        return t.time <= k;
    };
    Instr as;
    as.api = api;
    as.site = site;
    as.pipe = pipe;
    auto report = [&](Rule rule, const Touch &t, bool other_read, uint64_t at) {
        hazard(rule, c, as, o, at, *l.cores[t.agent / kPipes], static_cast<int>(t.agent % kPipes), t.time, other_read);
    };
    uint64_t at = addr / Gm::kPage * Gm::kPage;
    uint64_t last_lo = UINT64_MAX;
    l.gm.visit(addr, bytes, [&](Segment &s) {
        if (last_lo != UINT64_MAX && s.lo <= last_lo) {
            at += Gm::kPage;
        }
        last_lo = s.lo;
        const uint64_t here = at + s.lo;
        if (as_read || atomic || as_write) {
            if (s.atomic && !atomic) {
                for (const Touch &t : s.atomics) {
                    if (!ordered(t)) {
                        report(as_read && !as_write ? Rule::HazardRaw : Rule::HazardWaw, t, false, here);
                    }
                }
            }
            if (!ordered(s.write)) {
                report(as_read && !as_write ? Rule::HazardRaw : Rule::HazardWaw, s.write, false, here);
            }
        }
        if (as_write || atomic) {
            for (const Touch &t : s.reads) {
                // Reads of the same pipe come before in order.
                if (t.agent != agent && !ordered(t)) {
                    report(Rule::HazardWar, t, true, here);
                }
            }
            s.reads.clear();
            if (atomic) {
                s.atomic = true;
                bool found = false;
                for (Touch &t : s.atomics) {
                    if (t.agent == agent) {
                        t.time = time;
                        found = true;
                    }
                }
                if (!found) {
                    s.atomics.push_back(Touch{agent, time});
                }
            } else {
                s.atomic = false;
                s.atomics.clear();
                s.write = Touch{agent, time};
            }
            s.stamp = ++l.stamp;
        } else if (as_read) {
            bool found = false;
            for (Touch &t : s.reads) {
                if (t.agent == agent) {
                    t.time = time;
                    found = true;
                }
            }
            if (!found) {
                s.reads.push_back(Touch{agent, time});
            }
        }
    });
}

void touch_operands(Core &c, PipeState &p, const Instr &instr)
{
    const uint32_t time = p.time;
    // First all checks, then all marks: an instruction does not race with itself.
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < instr.count; i++) {
            const Operand &o = instr.operand[i];
            if (o.region.bytes == 0 || o.region.n1 == 0 || o.region.n2 == 0) {
                continue;
            }
            const bool writes = o.use != Use::Read;
            const bool reads = o.use == Use::Read || o.use == Use::Update;
            if (o.mem == Mem::GM) {
                if (pass == 0) {
                    each_run(o.region, [&](uint64_t addr, uint64_t bytes) {
                        touch_gm(c, instr.pipe, o, addr, bytes, time, instr.api, instr.site, writes && o.use != Use::Atomic, reads);
                    });
                }
                continue;
            }
            Core *owner = core_of(c, o.peer);
            Local &m = owner->mem[static_cast<int>(o.mem)];
            const int me = slot_of(*owner, c, instr.pipe);
            each_run(o.region, [&](uint64_t addr, uint64_t bytes) {
                const auto first = static_cast<uint32_t>(addr / kCell);
                const auto cells = static_cast<uint32_t>((addr + bytes - 1) / kCell) - first + 1;
                if (pass == 1) {
                    uint32_t *marks = writes ? m.writes_of(me) : m.reads_of(me);
                    std::fill(marks + first, marks + first + cells, time);
                    if (writes) {
                        m.touch(addr, bytes);
                    }
                    return;
                }
                for (int s = 0; s < kSlots; s++) {
                    const uint32_t *w = m.writes(s);
                    const uint32_t *r = writes && s != me ? m.reads(s) : nullptr;
                    if (w == nullptr && r == nullptr) {
                        continue;
                    }
                    const Core &actor = actor_of(*owner, s);
                    const int pipe = s % kPipes;
                    if (&actor == &c && pipe == static_cast<int>(Pipe::S) && instr.pipe == Pipe::S) {
                        continue; // the scalar unit is in order with itself
                    }
                    const uint32_t k = known(c, p.clock, actor, pipe);
                    if (w != nullptr) {
                        const uint32_t at = first_greater(w + first, cells, k);
                        if (at != cells) {
                            hazard(reads ? Rule::HazardRaw : Rule::HazardWaw, c, instr, o, uint64_t{first + at} * kCell, actor, pipe,
                                   w[first + at], false);
                        }
                    }
                    if (r != nullptr) {
                        const uint32_t at = first_greater(r + first, cells, k);
                        if (at != cells) {
                            hazard(Rule::HazardWar, c, instr, o, uint64_t{first + at} * kCell, actor, pipe, r[first + at], true);
                        }
                    }
                }
            });
            if (pass == 0 && reads && o.strict) {
                each_run(o.region, [&](uint64_t addr, uint64_t bytes) {
                    const uint64_t fresh = m.first_fresh(addr, bytes);
                    if (fresh != UINT64_MAX) {
                        refuse(Rule::ReadBeforeWrite, instr, &o, nullptr, "%s: %s reads %s at %#llx, where nothing was written yet",
                               instr.api, o.name, mem_name(o.mem), static_cast<unsigned long long>(fresh));
                    }
                });
            }
        }
    }
}

// Effects.

uint8_t *Exec::at(Mem mem, uint64_t addr, Peer peer)
{
    if (mem == Mem::GM) {
        return reinterpret_cast<uint8_t *>(addr);
    }
    return core_of(core(), peer)->mem[static_cast<int>(mem)].at(addr);
}

bool Exec::defined(Mem mem, uint64_t addr, uint64_t bytes, Peer peer)
{
    if (mem != Mem::GM) {
        return core_of(core(), peer)->mem[static_cast<int>(mem)].defined(addr, bytes);
    }
    Launch &l = launch();
    bool all = true;
    const AscendTwinMemory *m = memory_of(addr, bytes);
    if (m != nullptr && m->role == ASCEND_TWIN_WORKSPACE) {
        l.gm.visit(addr, bytes, [&](Segment &s) { all = all && !s.undefined; });
    }
    return all;
}

void Exec::define(Mem mem, uint64_t addr, uint64_t bytes, bool value, Peer peer)
{
    if (bytes == 0) {
        return;
    }
    if (mem != Mem::GM) {
        core_of(core(), peer)->mem[static_cast<int>(mem)].define(addr, bytes, value);
        return;
    }
    Launch &l = launch();
    const AscendTwinMemory *m = memory_of(addr, bytes);
    const bool workspace = m != nullptr && m->role == ASCEND_TWIN_WORKSPACE;
    if (!value && !workspace) {
        fail(Rule::Undefined, "bytes without a defined value are written to `%s` at byte %llu",
             m == nullptr || m->name == nullptr ? "an argument" : m->name,
             static_cast<unsigned long long>(m == nullptr ? 0 : addr - m->address));
    }
    if (workspace) {
        l.gm.visit(addr, bytes, [&](Segment &s) { s.undefined = !value; });
    }
}

void Exec::define_like(Mem to, uint64_t to_addr, Mem from, uint64_t from_addr, uint64_t bytes, Peer to_peer, Peer from_peer)
{
    if (defined(from, from_addr, bytes, from_peer)) {
        define(to, to_addr, bytes, true, to_peer);
        return;
    }
    if (to != Mem::GM && from != Mem::GM) {
        Local &a = core_of(core(), to_peer)->mem[static_cast<int>(to)];
        Local &b = core_of(core(), from_peer)->mem[static_cast<int>(from)];
        for (uint64_t i = 0; i < bytes; i += 32) {
            const auto n = static_cast<uint32_t>(bytes - i < 32 ? bytes - i : 32);
            a.set_bits(to_addr + i, n, b.bits(from_addr + i, n));
        }
        return;
    }
    // Runs of one kind, so that GM is not cut into bytes.
    uint64_t start = 0;
    bool kind = defined(from, from_addr, 1, from_peer);
    for (uint64_t i = 1; i <= bytes; i++) {
        const bool k = i < bytes && defined(from, from_addr + i, 1, from_peer);
        if (i == bytes || k != kind) {
            define(to, to_addr + start, i - start, kind, to_peer);
            start = i;
            kind = k;
        }
    }
}

} // namespace ascend_twin
