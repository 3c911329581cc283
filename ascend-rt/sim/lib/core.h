// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A launch: its cores, their pipes, and what they know of each other.

#ifndef ASCEND_TWIN_CORE_H
#define ASCEND_TWIN_CORE_H

#include <setjmp.h>
#include <stdarg.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "clock.h"
#include "fiber.h"
#include "gm.h"
#include "memory.h"
#include "twin/machine.h"
#include "twin/register.h"

namespace ascend_twin {

constexpr int kIds = 8; // event ids per pair of pipes; 6 and 7 are the system's
constexpr int kCrossIds = 32;
constexpr int kCrossDepth = 15;
constexpr size_t kQueueDepth = 64;

// What the scalar unit knew when it issued something.
struct Issue {
    uint32_t refs;
    Clock clock;
};

enum class Kind : uint8_t { Instr, Set, Wait, Barrier, CrossSet, CrossWait };

struct Item {
    Kind kind = Kind::Instr;
    uint8_t other = 0; // the other pipe of a flag
    uint8_t id = 0;
    uint8_t mode = 0;
    const char *api = nullptr;
    Site site{};
    Instr *instr = nullptr;
    Issue *issue = nullptr;
};

struct Event {
    bool set = false;
    // In the order of the program: 1 after a SetFlag, 0 after its WaitFlag.
    int issued = 0;
    Site site{};
    const char *api = nullptr;
    Clock clock;
};

struct Token {
    Table *clock;
    Site site;
};

struct PipeState {
    std::deque<Item> queue;
    Clock clock; // own[pipe]: up to where earlier instructions of the pipe itself are known to be complete
    uint32_t time = 0; // things done
    uint64_t seen = 0; // version of the scalar unit's clock that it has joined
};

// Mmad with unitFlag 3 hands its result to Fixpipe, and Fixpipe hands the place back.
struct Unit {
    uint64_t base, end;
    Clock clock;
};

struct CacheLine {
    uint8_t data[64];
    uint64_t dirty; // one bit per byte
    uint64_t stamp;
    Site site; // of the first write that made it dirty
};

enum class Block : uint8_t { None, Event, EventFree, Drain, Token, Barrier, Space, Yield };

struct Launch;

struct Core {
    Launch *launch = nullptr;
    uint32_t index = 0; // of all cores of the launch
    bool cube = false;
    uint32_t block = 0;
    uint32_t sub = 0;

    Fiber fiber;
    bool started = false;
    bool returned = false;
    bool finished = false;

    // What the scalar unit waits for.
    Block blocked = Block::None;
    uint8_t block_pipe = 0;
    uint8_t block_id = 0;
    uint64_t block_generation = 0;
    const char *block_api = nullptr;
    Site block_site{};

    PipeState pipe[kPipes];
    size_t queued = 0;
    uint64_t version = 1; // of the scalar unit's clock
    Issue *issue = nullptr; // snapshot of that version, made when something is queued

    Event event[kPipes][kPipes][kIds];
    uint8_t by_queue[kPipes][kPipes] = {};
    uint8_t by_hand[kPipes][kPipes] = {};
    uint8_t used_by_hand[kPipes][kPipes] = {};

    std::deque<Token> tokens[kCrossIds];
    std::vector<Unit> unit_full, unit_free;

    Local mem[kMems];
    CoreState state;
    std::unordered_map<uint64_t, CacheLine> cache;
    // Lines that are not those of an earlier launch: all of them, or these.
    bool cache_fresh = false;
    std::unordered_set<uint64_t> fresh_lines;
    std::vector<AscendTwinRecord> records;
    void *frame = nullptr;
    std::vector<std::pair<void (*)(void *), void *>> end_checks;
    uint64_t calls = 0;

    std::string name() const;
};

struct LiveBuffer {
    Mem mem;
    uint64_t base, bytes;
    std::string what;
    Site opened;
    bool live;
    uint32_t core;
};

// A recorded thing that touched memory, for reports: what agent did at a time.
struct Deed {
    const char *api;
    Site site;
};

struct Result;

struct Launch {
    const AscendTwinLaunch *request = nullptr;
    const Entry *entry = nullptr;
    uint32_t arch = 0;
    AscendTwinChip chip{};
    bool chaos = false, dry = false, record = false, verbose = false;
    uint32_t per_block = 1;
    bool sync_allowed = false;
    uint64_t random = 0;

    std::vector<std::unique_ptr<Core>> cores;
    size_t live_from = 0, live_to = 0; // cores of this wave
    std::vector<std::vector<Deed>> deeds; // per agent, index = time
    Gm gm;
    uint64_t stamp = 1;
    uint64_t instructions = 0;

    // Sets that wait for the rest of their group: [mode][core][id].
    std::vector<std::deque<Token>> pending[3];

    uint64_t barrier_generation = 0;
    uint32_t arrived[2] = {0, 0};
    Table *barrier_clock[2] = {nullptr, nullptr};
    uint64_t generation[2] = {0, 0};
    Table *barrier_done[2] = {nullptr, nullptr};

    std::vector<AscendTwinMemory> memory; // sorted by address
    std::vector<LiveBuffer> buffers{1};
    std::vector<void *> arena;
    uint32_t used[kMems] = {};

    std::unordered_map<uint64_t, uint32_t> site_index;
    std::vector<AscendTwinSite> sites;
    std::unordered_map<const char *, uint16_t> api_index;
    std::vector<const char *> apis;
    std::map<std::pair<uint64_t, std::string>, uint64_t> sync_calls; // (site, api)
    std::map<std::pair<uint64_t, std::string>, std::vector<uint32_t>> mute_counts;

    // Chaos: how eager every pipe and every core is under this seed.
    uint32_t pipe_weight[kPipes] = {};
    std::vector<uint32_t> core_weight;

    Core *now = nullptr; // whose code or instruction runs
    bool in_fiber = false;
    jmp_buf out;

    // The error, once there is one.
    bool failed = false;
    Rule rule{};
    std::string message, api, tensor, core, pipe, other_api;
    Site site{}, other_site{};
    bool has_api = false, has_tensor = false, has_other = false;

    uint32_t agents() const { return static_cast<uint32_t>(cores.size()) * kPipes; }
    uint64_t draw()
    {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random * 0x2545f4914f6cdd1dull;
    }
};

extern thread_local Launch *g;

inline Launch &launch() { return *g; }
inline Core &core() { return *g->now; }

const char *rule_name(Rule rule);
[[noreturn]] void stop(Rule rule, const char *api, const char *tensor, Site site, Pipe pipe, const char *other_api, Site other,
                       const char *format, va_list args);
[[noreturn]] void leave();
void run_all(Launch &l);

// hazards.cpp
void check_operands(Core &c, const Instr &instr);
void touch_operands(Core &c, PipeState &p, const Instr &instr);
void touch_gm(Core &c, Pipe pipe, const Operand &o, uint64_t addr, uint64_t bytes, uint32_t time, const char *api, Site site,
              bool as_write, bool as_read);
const AscendTwinMemory *memory_of(uint64_t addr, uint64_t bytes);

// Calls f(address, bytes) for every run of a region, merging runs that touch.
template <class F> inline void each_run(const Region &r, F f)
{
    if (r.bytes == 0 || r.n1 == 0 || r.n2 == 0) {
        return;
    }
    const bool inner = r.n1 == 1 || r.pitch1 == r.bytes;
    const uint64_t run = inner ? r.bytes * r.n1 : r.bytes;
    if (inner && (r.n2 == 1 || r.pitch2 == run)) {
        f(r.addr, run * r.n2);
        return;
    }
    for (uint32_t j = 0; j < r.n2; j++) {
        const uint64_t base = r.addr + j * r.pitch2;
        if (inner) {
            f(base, run);
            continue;
        }
        for (uint32_t i = 0; i < r.n1; i++) {
            f(base + i * r.pitch1, r.bytes);
        }
    }
}

inline uint64_t end_of(const Region &r)
{
    if (r.bytes == 0 || r.n1 == 0 || r.n2 == 0) {
        return r.addr;
    }
    return r.addr + (r.n1 - 1) * r.pitch1 + (r.n2 - 1) * r.pitch2 + r.bytes;
}

} // namespace ascend_twin

#endif
