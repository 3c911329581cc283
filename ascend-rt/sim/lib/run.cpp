// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The C interface: an image and its launches.

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "core.h"

namespace ascend_twin {

namespace {

const char *const kRules[] = {
#define ASCEND_TWIN_X(id, name, what) name,
    ASCEND_TWIN_RULES(ASCEND_TWIN_X)
#undef ASCEND_TWIN_X
};

// The one image of this shared object.
struct Made {
    AscendTwinImage image;
    const Entry *entries;
    std::vector<AscendTwinKernel> kernels;
};
Made *made = nullptr;

} // namespace

struct Result {
    AscendTwinResult c{};
    AscendTwinError error{};
    std::string message, api, tensor, core, pipe, other_api;
    std::vector<std::vector<AscendTwinRecord>> records;
    std::vector<AscendTwinCoreRecord> cores;
    std::vector<const char *> apis;
    std::vector<AscendTwinSite> sites;
    std::vector<AscendTwinSync> syncs;
    std::vector<std::string> names;
};

namespace {

void fill_error(Result &r, Launch &l)
{
    r.message = l.message;
    r.api = l.api;
    r.tensor = l.tensor;
    r.core = l.core;
    r.pipe = l.pipe;
    r.other_api = l.other_api;
    r.error.rule = static_cast<uint32_t>(l.rule);
    r.error.rule_name = rule_name(l.rule);
    r.error.message = r.message.c_str();
    r.error.api = l.has_api ? r.api.c_str() : nullptr;
    r.error.tensor = l.has_tensor ? r.tensor.c_str() : nullptr;
    r.error.core = r.core.c_str();
    r.error.pipe = r.pipe.c_str();
    r.error.site = AscendTwinSite{l.site.file == nullptr ? "" : l.site.file, l.site.line};
    r.error.other_api = l.has_other ? r.other_api.c_str() : nullptr;
    r.error.other_site = AscendTwinSite{l.other_site.file == nullptr ? "" : l.other_site.file, l.other_site.line};
    r.c.error = &r.error;
}

void refuse(Launch &l, const char *what)
{
    l.failed = true;
    l.rule = Rule::Launch;
    l.message = what;
}

bool check_request(Launch &l, const AscendTwinLaunch *q)
{
    static const struct {
        bool cube, mix;
        uint32_t per;
        bool sync;
    } kinds[] = {{false, false, 1, false}, {true, false, 1, false}, {false, false, 1, true},
                 {true, false, 1, true},   {true, true, 2, true},   {true, true, 3, true}};
    if (q == nullptr || q->abi != ASCEND_TWIN_ABI || q->chip == nullptr) {
        refuse(l, "the launch is of another version of the interface");
        return false;
    }
    if (q->kernel >= made->kernels.size()) {
        refuse(l, "the image has no kernel of this index");
        return false;
    }
    l.entry = &made->entries[q->kernel];
    l.chip = *q->chip;
    if (l.chip.arch != made->image.arch) {
        l.message = "the kernel was compiled for architecture " + std::to_string(made->image.arch) + ", the chip has " +
                    std::to_string(l.chip.arch);
        l.failed = true;
        l.rule = Rule::Launch;
        return false;
    }
    const uint32_t task = l.entry->kernel.task;
    if (task > ASCEND_TWIN_MIX_1_2) {
        refuse(l, "the kernel is of an unknown kind");
        return false;
    }
    if (q->blocks == 0 || q->blocks > 65535) {
        refuse(l, "blocks: expected 1 to 65535");
        return false;
    }
    if (q->args_bytes < l.entry->kernel.args_bytes) {
        l.message = "the argument block has " + std::to_string(q->args_bytes) + " bytes, the kernel takes " +
                    std::to_string(l.entry->kernel.args_bytes);
        l.failed = true;
        l.rule = Rule::Launch;
        return false;
    }
    l.per_block = kinds[task].per;
    l.sync_allowed = kinds[task].sync;
    if (l.chip.cube_cores == 0 || l.chip.vector_cores < (kinds[task].mix ? l.per_block - 1 : 1)) {
        refuse(l, "the chip has no such cores");
        return false;
    }
    for (uint32_t b = 0; b < q->blocks; b++) {
        for (uint32_t i = 0; i < l.per_block; i++) {
            auto c = std::make_unique<Core>();
            c->launch = &l;
            c->index = static_cast<uint32_t>(l.cores.size());
            c->block = b;
            c->cube = kinds[task].mix ? i == 0 : kinds[task].cube;
            c->sub = kinds[task].mix && i > 0 ? i - 1 : 0;
            l.cores.push_back(std::move(c));
        }
    }
    return true;
}

const AscendTwinResult *run(const AscendTwinLaunch *q)
{
    auto *result = new Result;
    auto *l = new Launch;
    Launch *outer = g;
    g = l;
    l->request = q;
    l->arch = made->image.arch;
    if (check_request(*l, q)) {
        l->chaos = q->mode == ASCEND_TWIN_CHAOS;
        l->dry = q->mode == ASCEND_TWIN_DRY;
        l->record = q->record != 0;
        l->verbose = q->verbose != 0;
        l->random = q->seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
        l->random = l->random == 0 ? 1 : l->random;
        for (int i = 0; i < 8; i++) {
            l->draw();
        }
        for (uint32_t &w : l->pipe_weight) {
            // Some seeds starve a pipe, some let all run alike.
            const uint64_t d = l->draw() % 4;
            w = d == 0 ? 8 : d == 1 ? 64 : 256;
        }
        l->core_weight.resize(l->cores.size());
        for (uint32_t &w : l->core_weight) {
            const uint64_t d = l->draw() % 4;
            w = d == 0 ? 16 : d == 1 ? 96 : 256;
        }
        l->memory.assign(q->memory, q->memory + q->memories);
        std::sort(l->memory.begin(), l->memory.end(),
                  [](const AscendTwinMemory &a, const AscendTwinMemory &b) { return a.address < b.address; });
        l->deeds.resize(l->agents());
        for (auto &d : l->deeds) {
            d.push_back(Deed{"", Site{"", 0}});
        }
        for (auto &p : l->pending) {
            p.resize(l->cores.size() * kCrossIds);
        }
        if (setjmp(l->out) == 0) {
            run_all(*l);
        }
    }
    l = g;
    Result &r = *result;
    if (l->failed) {
        fill_error(r, *l);
    }
    r.c.instructions = l->instructions;
    if (l->record) {
        for (auto &c : l->cores) {
            r.records.push_back(std::move(c->records));
        }
        for (size_t i = 0; i < l->cores.size(); i++) {
            const Core &c = *l->cores[i];
            r.cores.push_back(AscendTwinCoreRecord{c.cube ? 1u : 0u, c.block, c.sub, r.records[i].data(), r.records[i].size()});
        }
    }
    r.apis = l->apis;
    r.sites = l->sites;
    r.names.reserve(l->sync_calls.size());
    for (const auto &[key, calls] : l->sync_calls) {
        r.names.push_back(key.second);
        r.syncs.push_back(AscendTwinSync{r.names.back().c_str(), l->sites[key.first], calls});
    }
    r.c.cores = r.cores.data();
    r.c.core_count = r.cores.size();
    r.c.api_names = r.apis.data();
    r.c.api_count = r.apis.size();
    r.c.sites = r.sites.data();
    r.c.site_count = r.sites.size();
    r.c.syncs = r.syncs.data();
    r.c.sync_count = r.syncs.size();
    r.c.ub_used = l->used[static_cast<int>(Mem::UB)];
    r.c.l1_used = l->used[static_cast<int>(Mem::L1)];
    r.c.l0a_used = l->used[static_cast<int>(Mem::L0A)];
    r.c.l0b_used = l->used[static_cast<int>(Mem::L0B)];
    r.c.l0c_used = l->used[static_cast<int>(Mem::L0C)];
    r.c.bt_used = l->used[static_cast<int>(Mem::BT)];
    r.c.fb_used = l->used[static_cast<int>(Mem::FB)];
    // What a stopped launch left behind.
    for (auto &c : l->cores) {
        for (auto &p : c->pipe) {
            for (Item &i : p.queue) {
                delete i.instr;
                if (i.issue != nullptr && --i.issue->refs == 0) {
                    delete i.issue;
                }
            }
        }
        if (c->issue != nullptr && --c->issue->refs == 0) {
            delete c->issue;
        }
        for (auto &q2 : c->tokens) {
            for (Token &t : q2) {
                t.clock->drop();
            }
        }
    }
    for (auto &mode : l->pending) {
        for (auto &q2 : mode) {
            for (Token &t : q2) {
                t.clock->drop();
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        if (l->barrier_clock[i] != nullptr) {
            l->barrier_clock[i]->drop();
        }
        if (l->barrier_done[i] != nullptr) {
            l->barrier_done[i]->drop();
        }
    }
    for (void *p : l->arena) {
        free(p);
    }
    delete l;
    g = outer;
    return &result->c;
}

void free_result(const AscendTwinResult *r)
{
    static_assert(offsetof(Result, c) == 0, "the result is the first member");
    delete reinterpret_cast<const Result *>(r);
}

} // namespace

const AscendTwinImage *make_image(const Entry *entries, size_t count, uint32_t arch)
{
    static Made m;
    if (made == nullptr) {
        m.entries = entries;
        for (size_t i = 0; i < count; i++) {
            m.kernels.push_back(entries[i].kernel);
        }
        m.image = AscendTwinImage{ASCEND_TWIN_ABI, arch,         m.kernels.data(),
                                  m.kernels.size(), kRules,       sizeof kRules / sizeof kRules[0],
                                  run,              free_result};
        made = &m;
    }
    return &made->image;
}

} // namespace ascend_twin
