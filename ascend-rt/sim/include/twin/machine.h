// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the API headers are written against. A call of the kernel becomes one `Instr`: the pipe that executes it, the
// memory it reads and writes, and a function that does what it does. `issue` checks it, records it and runs it now
// (fast mode) or when its turn comes (chaos mode). So a function that implements a call of the API
//
//   1. checks what only it knows (ranges of fields, types), with `fail`;
//   2. fills an `Instr`, its operands and its payload;
//   3. calls `issue`.
//
// Everything about addresses is then checked in one place: alignment, bounds, hazards, definedness.

#ifndef ASCEND_TWIN_MACHINE_H
#define ASCEND_TWIN_MACHINE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "abi.h"
#include "rules.h"

#ifndef __NPU_ARCH__
#define __NPU_ARCH__ 2201
#endif

namespace ascend_twin {

enum class Pipe : uint8_t { S, V, M, MTE1, MTE2, MTE3, FIX, All = ASCEND_TWIN_ALL_PIPES };
constexpr int kPipes = 7;

enum class Mem : uint8_t { GM, L1, L0A, L0B, L0C, UB, BT, FB, L0A_MX, L0B_MX };
constexpr int kMems = 10;

enum class Rule : uint32_t {
#define ASCEND_TWIN_X(id, name, what) id,
    ASCEND_TWIN_RULES(ASCEND_TWIN_X)
#undef ASCEND_TWIN_X
};

// The place of a call in the kernel. As a default argument of an API function it is that of the caller.
struct Site {
    const char *file;
    uint32_t line;
    static constexpr Site here(const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE())
    {
        return Site{file, line};
    }
};

// Whose memory: that of the core itself, or (3510: L0C to UB, UB to L1) of another core of the same block.
enum class Peer : uint8_t { Self, Aic, Aiv0, Aiv1 };

enum class Use : uint8_t {
    Read,
    Write,
    Update, // reads what is there and writes it: accumulation
    Atomic // GM only: read-modify-write that does not race with others of its kind
};

// n2 groups, pitch2 apart, of n1 runs, pitch1 apart, of `bytes` bytes. Pitches are from start to start. On-chip addresses
// are offsets in their memory, GM addresses are host addresses.
struct Region {
    uint64_t addr = 0;
    uint64_t bytes = 0;
    uint64_t pitch1 = 0;
    uint64_t pitch2 = 0;
    uint32_t n1 = 1;
    uint32_t n2 = 1;
};

// The buffer that a tensor was cut from. Its accesses must stay in [base, base + bytes); 0 bytes: no limit of its own.
struct Buffer {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint32_t id = 0; // of machine's buffer table, 0: none. A tensor whose buffer was given back is a `queue` error.
};

struct Operand {
    const char *name = "";
    Mem mem = Mem::UB;
    Peer peer = Peer::Self;
    Use use = Use::Read;
    // Reading on-chip memory that was never written stops the launch at once (`read-before-write`). Off for plain moves
    // (copies, LoadData), where padding may travel along until something uses it.
    bool strict = true;
    // Bytes to which `region.addr` must be aligned; 0: the natural alignment of the memory.
    uint16_t align = 0;
    Buffer buffer;
    Region region;
};

constexpr int kMaxOperands = 12;

struct Instr;
struct Exec;
using Effect = void (*)(Exec &, const Instr &);

struct Instr {
    const char *api = "";
    Site site{};
    Pipe pipe = Pipe::S;
    // Later instructions of the same pipe see what it wrote without a PipeBarrier. `issue` sets it for pipes and chips
    // where that always holds; Mmad sets it by its size.
    bool ordered = false;
    // unitFlag of Mmad and Fixpipe: 0 off, 2 more to come, 3 last. A Fixpipe with 3 runs once an Mmad with 3 has finished
    // its part of L0C, and an Mmad with 2 or 3 once such a part was taken; both without events.
    uint8_t unit_flag = 0;
    uint8_t dtype = ASCEND_TWIN_NONE;
    uint8_t l2 = 0;
    uint8_t count = 0;
    uint32_t a[4] = {0, 0, 0, 0}; // for the record, see abi.h
    Operand operand[kMaxOperands];
    // Does the work on the bytes. Null: nothing to do. When all that it reads is defined, all that it writes has been
    // declared defined before it is called; it may take that back for parts (padding) by `Exec::define`.
    Effect effect = nullptr;
    // Called after `effect` when some byte that it read is not defined: must say for all that was written whether it is
    // defined. Null: using undefined bytes is an error.
    Effect taint = nullptr;
    alignas(16) unsigned char payload[256];

    Operand &add(const char *name, Use use, Mem mem, Region region, Buffer buffer = Buffer{})
    {
        Operand &o = operand[count++];
        o.name = name;
        o.use = use;
        o.mem = mem;
        o.region = region;
        o.buffer = buffer;
        return o;
    }
    template <class P> void put(const P &p)
    {
        static_assert(sizeof(P) <= sizeof(payload) && std::is_trivially_copyable<P>::value, "payload");
        memcpy(payload, &p, sizeof(P));
    }
    template <class P> const P &get() const { return *reinterpret_cast<const P *>(payload); }
};

// State that instructions of one core take over when they are issued, and that must be reset at the end.
struct CoreState {
    uint64_t mask[2] = {~0ull, ~0ull};
    bool counter_mode = false;
    bool mask_dirty = false;
    uint8_t atomic = 0; // 0 none, 1 add, 2 max, 3 min
    uint8_t atomic_type = 0; // AscendTwinType
    Site atomic_site{};
    Site mask_site{};
    uint64_t ctrl = 1ull << 48; // bits of the control register; 48: infinity and NaN are kept, not saturated
    // Registers of cube instructions.
    uint64_t fmatrix[4] = {0, 0, 0, 0};
    uint64_t load_padding = 0;
    uint64_t load_repeat[4] = {0, 1, 0, 0}; // stride, times, mode, stride of the destination
    uint32_t load_boundary = 0;
    // The load that wrote each fractal of L0A last, counted from 1 in program order.
    uint32_t loads = 0;
    uint32_t l0a_load[128] = {0};
    uint64_t fixpipe_nd_num = 1, fixpipe_src_nd = 0, fixpipe_dst_nd = 0;
    uint64_t fixpipe_quant = 0; // scalar parameters of quantisation
    uint64_t fixpipe_table = ~0ull; // address of the parameters per column in FB; all ones: not set
    Buffer fixpipe_table_buffer;
    // Registers of copies: padding value, whether it was set, loop modes (GM to UB, UB to GM).
    uint64_t pad_value = 0;
    bool pad_value_set = false;
    uint64_t loop_mode[2][6] = {{0}, {0}};
    bool loop_mode_set[2] = {false, false};
    uint64_t spare[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    // Compare mask register of VSEL_CMPMASK_SPR, and its definedness.
    uint8_t cmpmask[32] = {0};
    bool cmpmask_defined = false;
    // The number that GatherMask and others leave.
    uint64_t reserved_count = 0;
};

// What effects see of the machine. Addresses are as in `Region`.
struct Exec {
    // The byte at `addr`; the whole operand was checked to lie in the memory.
    uint8_t *at(Mem mem, uint64_t addr, Peer peer = Peer::Self);
    uint8_t *at(const Operand &o) { return at(o.mem, o.region.addr, o.peer); }
    // Whether all bytes are defined.
    bool defined(Mem mem, uint64_t addr, uint64_t bytes, Peer peer = Peer::Self);
    // Declares bytes defined or undefined. Undefined bytes in a GM buffer that is no workspace are an `undefined` error.
    void define(Mem mem, uint64_t addr, uint64_t bytes, bool value, Peer peer = Peer::Self);
    // Moves definedness along with a copy.
    void define_like(Mem to, uint64_t to_addr, Mem from, uint64_t from_addr, uint64_t bytes, Peer to_peer = Peer::Self,
                     Peer from_peer = Peer::Self);
    // State of the core that the instruction itself reads or writes when it runs (compare mask, counts).
    CoreState &state();
    [[noreturn]] void fail(Rule rule, const char *format, ...) __attribute__((format(printf, 3, 4)));
};

// Issues the instruction. In chaos mode its effect may run after this returns: the payload must hold all it needs.
void issue(Instr &instr);

// Stops the launch: does not return. `tensor` and `api` may be null.
[[noreturn]] void fail(Rule rule, const char *api, const char *tensor, Site site, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

// Whether effects run at all (not in dry mode): saves work that only they need.
bool effects();

// Synchronisation. `owner` tells hand-used ids from those of queues.
enum class Owner : uint8_t { Hand, Queue };
void set_flag(Pipe from, Pipe to, int id, Owner owner, const char *api, Site site);
void wait_flag(Pipe from, Pipe to, int id, Owner owner, const char *api, Site site);
// An event id that neither the kernel nor a queue holds at the moment; fails when there is none.
int alloc_event(Pipe from, Pipe to, Owner owner, const char *api, Site site);
void release_event(Pipe from, Pipe to, int id, Owner owner, const char *api, Site site);
void pipe_barrier(Pipe pipe, const char *api, Site site);
// The scalar unit waits until everything issued to the pipe is done; what then follows is ordered after it.
void drain(Pipe pipe, const char *api, Site site);
void cross_set(int mode, Pipe pipe, int id, const char *api, Site site);
void cross_wait(int mode, Pipe pipe, int id, const char *api, Site site);
// All vector cores (cube = false) or all cores.
void sync_all(bool cube, const char *api, Site site);
// The first `cores` vector cores (0: all of them), by polling memory: needs no MIX type.
void sync_soft(uint32_t cores, const char *api, Site site);

// Whether the call is left out on purpose (mutants). Every synchronising call asks once before it does anything; the
// functions above ask by themselves unless a queue is the owner: queue calls (EnQue, DeQue, ...) ask for themselves.
bool muted(const char *api, Site site);

// Accesses of the scalar unit. On-chip memory is read and written at once; GM goes through the data cache.
void scalar_read(Mem mem, uint64_t addr, void *to, uint32_t bytes, const Buffer &buffer, const char *api, const char *tensor,
                 Site site);
void scalar_write(Mem mem, uint64_t addr, const void *from, uint32_t bytes, const Buffer &buffer, const char *api,
                  const char *tensor, Site site);
// Writes back and drops one line (64 B) or all.
void cache_clean(uint64_t addr, bool all, bool write_back, const char *api, Site site);
// A call that costs the scalar unit time and does nothing else that matters to the record.
void scalar_call(uint32_t cycles, const char *api, Site site);

// Buffers that come and go (TPipe, queues): an id for a live range of a memory. `close_buffer` makes every later access
// through a tensor with this id an error.
uint32_t open_buffer(Mem mem, uint64_t base, uint64_t bytes, const char *what, Site site);
void close_buffer(uint32_t id);
// Forgets what was written there: the next read before a write is an error. For AllocTensor of a fresh buffer.
void undefine(Mem mem, uint64_t base, uint64_t bytes);
// Highest byte in use, for the report; every tensor construction tells.
void used(Mem mem, uint64_t end);

// What the core is and runs.
bool is_cube();
uint32_t block_index(); // of the launched block
uint32_t block_count();
uint32_t sub_block();
uint32_t vector_per_cube(); // 0 on kernels of one kind, else 1 or 2
uint32_t task(); // AscendTwinTask
const char *kernel_name();
const AscendTwinChip &chip();
uint32_t capacity(Mem mem);
const char *mem_name(Mem mem);
const char *pipe_name(Pipe pipe);
// Program cycles are not modelled per statement; GetSystemCycle counts calls.
uint64_t cycle();
void print(const char *text, size_t bytes);

CoreState &state();
// Memory of the core that lives as long as the launch; freed by the machine.
void *arena(size_t bytes);
// A slot per core for the frame (TPipe registers itself here).
void *&frame();
// Called on each core when the kernel function has returned, before the machine's own checks at the end.
void at_end(void (*check)(void *), void *data);

} // namespace ascend_twin

#endif
