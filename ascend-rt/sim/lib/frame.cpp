// SPDX-License-Identifier: MIT OR Apache-2.0
//
// TPipe, queues, buffers and the allocator without TPipe: what `twin/frame.h` declares.
//
// A buffer of a queue holds the ids of its events from their first use on, until the pipe or pool that it was cut from is
// reset. So two uses of one id are always ordered by the way of the buffer itself: filled, waited for, freed, waited for.

#include <stdarg.h>
#include <stdio.h>

#include "twin/frame.h"

namespace ascend_twin {

using AscendC::HardEvent;
using AscendC::TPosition;

namespace {

constexpr uint32_t kEventsPerPair = 8;
constexpr uint32_t kBuffersOfPipe = 64;
constexpr int kSlots = 3;

enum class Where : uint8_t { Free, Allocated, Queued, Taken };

// An event that a buffer sets and waits for.
struct Slot {
    HardEvent event = HardEvent::MAX;
    int id = -1;
    bool set = false;
};

} // namespace

struct QueueBuffer {
    QueueState *queue;
    uint64_t addr;
    uint64_t bytes;
    Where where;
    uint32_t open; // the machine's id of this use
    Slot filled[kSlots];
    Slot freed;
    HardEvent put; // what the last EnQue was asked for
    Site site; // of the last call that changed `where`
};

struct PoolState {
    PoolState *parent;
    TPosition position;
    uint64_t base, bytes, head;
    uint32_t limit, count;
    Site site;
};

struct QueueState {
    QueueState *next;
    PoolState *pool;
    QueueKind kind;
    const char *what;
    Site site;
    QueueBuffer *buffers;
    uint32_t count;
    uint32_t first_id; // of its buffers in the frame's table
    uint32_t cursor, allocated;
    uint32_t *line; // enqueued buffers, in a ring of `count` places
    uint32_t line_head, line_length;
    bool live;
    bool parked; // FreeAllEvent was called and nothing was allocated since
    // A TBuf: the machine's id of its one buffer.
    uint32_t open;
};

namespace {

// A part of a memory that was given away, for the table in a report.
struct Taken {
    Taken *next;
    Mem mem;
    uint64_t base, bytes;
    uint32_t count;
    const char *what;
    Site site;
};

struct Frame {
    AscendC::TPipe *pipe;
    Site pipe_site;
    QueueState *queues;
    QueueBuffer **table;
    uint32_t table_length, table_room;
    Taken *taken;
    uint64_t head[kMems];
    uint32_t buffers;
    bool allocator[static_cast<int>(AscendC::Hardware::MAX)];
    Site allocator_site[static_cast<int>(AscendC::Hardware::MAX)];
    uint8_t held[static_cast<int>(HardEvent::MAX)];
    Site held_site[static_cast<int>(HardEvent::MAX)][kEventsPerPair];
    uint8_t *sys_workspace;
};

template <class T> T *make(size_t count = 1)
{
    void *p = arena(count * sizeof(T));
    memset(p, 0, count * sizeof(T));
    return static_cast<T *>(p);
}

void finish(void *data);

Frame &state_of_core()
{
    void *&slot = frame();
    if (slot == nullptr) {
        slot = make<Frame>();
        at_end(finish, slot);
    }
    return *static_cast<Frame *>(slot);
}

const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *text(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t length = n < 0 ? 0 : static_cast<size_t>(n) < sizeof line ? static_cast<size_t>(n) : sizeof line - 1;
    char *p = static_cast<char *>(arena(length + 1));
    memcpy(p, line, length);
    p[length] = 0;
    return p;
}

const char *place(Site site)
{
    const char *file = site.file != nullptr ? site.file : "?";
    for (const char *c = file; *c != 0; c++) {
        if (*c == '/') {
            file = c + 1;
        }
    }
    return text("%s:%u", file, site.line);
}

const char *position_name(TPosition p)
{
    switch (p) {
    case TPosition::GM: return "GM";
    case TPosition::A1: return "A1";
    case TPosition::A2: return "A2";
    case TPosition::B1: return "B1";
    case TPosition::B2: return "B2";
    case TPosition::C1: return "C1";
    case TPosition::C2: return "C2";
    case TPosition::CO1: return "CO1";
    case TPosition::CO2: return "CO2";
    case TPosition::VECIN: return "VECIN";
    case TPosition::VECOUT: return "VECOUT";
    case TPosition::VECCALC: return "VECCALC";
    case TPosition::SPM: return "SPM";
    case TPosition::TSCM: return "TSCM";
    case TPosition::C2PIPE2GM: return "C2PIPE2GM";
    default: return "?";
    }
}

const char *kind_name(const QueueKind &k)
{
    if (k.scratch) {
        return text("TBuf<%s>", position_name(k.place));
    }
    if (queue_source(k.place) == k.source && queue_target(k.place) == k.target) {
        return text("TQue<%s>", position_name(k.place));
    }
    return text("TQueBind<%s, %s>", position_name(k.source), position_name(k.target));
}

const char *where_name(Where w)
{
    switch (w) {
    case Where::Free: return "freed";
    case Where::Allocated: return "allocated";
    case Where::Queued: return "enqueued";
    case Where::Taken: return "dequeued";
    }
    return "?";
}

// Whether this core has the pipe. A kernel for both kinds of core may touch the queues of the other kind.
bool has(Pipe p)
{
    switch (p) {
    case Pipe::V: return !is_cube();
    case Pipe::M:
    case Pipe::MTE1:
    case Pipe::FIX: return is_cube();
    default: return true;
    }
}
bool has(Ends e) { return has(e.from) && has(e.to); }

// What PipeBarrier<PIPE_ALL> does, as a part of another call: it cannot be muted by itself.
void all_done(const char *api, Site site)
{
    for (int p = 1; p < kPipes; p++) {
        if (has(static_cast<Pipe>(p))) {
            drain(static_cast<Pipe>(p), api, site);
        }
    }
}

// All of the memory, with what the kernel cannot use.
uint64_t physical(Mem mem)
{
    bool b = chip().arch == 3510;
    switch (mem) {
    case Mem::UB: return b ? 256 * 1024 : 192 * 1024;
    case Mem::L1: return 512 * 1024;
    default: return capacity(mem);
    }
}

[[noreturn]] void no_room(Frame &f, Mem mem, uint64_t base, uint64_t bytes, uint32_t count, const char *what, const char *api,
                          Site site)
{
    char table[3000];
    size_t at = 0;
    auto add = [&](const char *format, auto... args) {
        if (at < sizeof table - 1) {
            int n = snprintf(table + at, sizeof table - at, format, args...);
            at += n < 0 ? 0 : static_cast<size_t>(n);
        }
    };
    Taken *lines[96];
    int n = 0;
    for (Taken *t = f.taken; t != nullptr && n < 96; t = t->next) {
        if (t->mem == mem) {
            lines[n++] = t;
        }
    }
    while (n > 0) {
        Taken *t = lines[--n];
        add("\n  %8llu .. %8llu  %u x %llu B  %s at %s", static_cast<unsigned long long>(t->base),
            static_cast<unsigned long long>(t->base + t->bytes * t->count), t->count, static_cast<unsigned long long>(t->bytes),
            t->what, place(t->site));
    }
    add("\n  %8llu .. %8llu  %u x %llu B  %s at %s  <- does not fit", static_cast<unsigned long long>(base),
        static_cast<unsigned long long>(base + bytes * count), count, static_cast<unsigned long long>(bytes), what, place(site));
    uint64_t all = physical(mem), usable = capacity(mem);
    if (all > usable) {
        add("\n  %8llu .. %8llu  reserved by the system", static_cast<unsigned long long>(usable),
            static_cast<unsigned long long>(all));
    }
    fail(Rule::Capacity, api, nullptr, site, "%s needs %llu B from byte %llu of %s on, which has %llu B for the kernel on %s:%s",
         what, static_cast<unsigned long long>(bytes * count), static_cast<unsigned long long>(base), mem_name(mem),
         static_cast<unsigned long long>(usable), chip().name != nullptr ? chip().name : "this chip", table);
}

void note_taken(Frame &f, Mem mem, uint64_t base, uint64_t bytes, uint32_t count, const char *what, Site site)
{
    Taken *t = make<Taken>();
    t->next = f.taken;
    t->mem = mem;
    t->base = base;
    t->bytes = bytes;
    t->count = count;
    t->what = what;
    t->site = site;
    f.taken = t;
    used(mem, base + bytes * count);
}

uint64_t round32(uint64_t bytes) { return (bytes + 31) / 32 * 32; }

Frame &frame_with_pipe(const char *api, Site site)
{
    Frame &f = state_of_core();
    if (f.pipe == nullptr) {
        fail(Rule::Queue, api, nullptr, site, "there is no TPipe on this core, or it was destroyed");
    }
    return f;
}

void add_buffer(Frame &f, QueueBuffer *b)
{
    if (f.table_length == f.table_room) {
        uint32_t room = f.table_room == 0 ? 64 : 2 * f.table_room;
        QueueBuffer **bigger = make<QueueBuffer *>(room);
        if (f.table_length > 0) {
            memcpy(bigger, f.table, f.table_length * sizeof(*bigger));
        }
        f.table = bigger;
        f.table_room = room;
    }
    f.table[f.table_length++] = b;
}

// Buffers that hold or will hold an id of the event. Those of pools take turns.
uint32_t buffers_of_event(const Frame &f, HardEvent e)
{
    uint32_t n = 0;
    for (QueueState *q = f.queues; q != nullptr; q = q->next) {
        if (q->live && !q->kind.scratch && q->pool == nullptr && !q->parked && q->kind.filled == e) {
            n += q->count;
        }
    }
    return n;
}

Slot &slot_of(QueueBuffer &b, HardEvent e)
{
    for (Slot &s : b.filled) {
        if (s.event == e || s.event == HardEvent::MAX) {
            s.event = e;
            return s;
        }
    }
    // The positions of EnQue allow three events, and there are three places.
    return b.filled[0];
}

void take_id(Slot &s, const char *api, Site site)
{
    Ends e = ends_of(s.event);
    if (s.id < 0 && has(e)) {
        s.id = alloc_event(e.from, e.to, Owner::Queue, api, site);
    }
}

QueueState *new_queue(Frame &f, PoolState *pool, const QueueKind &kind, uint32_t count, Site site)
{
    if (count == 0) {
        fail(Rule::Queue, "InitBuffer", nullptr, site, "%s is given no buffer", kind_name(kind));
    }
    if (f.buffers + count > kBuffersOfPipe) {
        fail(Rule::Queue, "InitBuffer", nullptr, site, "a TPipe has at most %u buffers: %u are there and %s asks for %u more",
             kBuffersOfPipe, f.buffers, kind_name(kind), count);
    }
    if (!kind.scratch && pool == nullptr) {
        uint32_t there = buffers_of_event(f, kind.filled);
        if (there + count > kEventsPerPair) {
            fail(Rule::Queue, "InitBuffer", nullptr, site,
                 "each buffer of a queue takes an event, and a pair of pipes has %u: %u are taken by queues between the same pipes "
                 "and %s asks for %u more",
                 kEventsPerPair, there, kind_name(kind), count);
        }
    }
    QueueState *q = make<QueueState>();
    q->pool = pool;
    q->kind = kind;
    q->what = kind_name(kind);
    q->site = site;
    q->buffers = make<QueueBuffer>(count);
    q->count = count;
    q->line = make<uint32_t>(count);
    q->live = true;
    q->first_id = f.table_length + 1;
    for (uint32_t i = 0; i < count; i++) {
        QueueBuffer &b = q->buffers[i];
        b = QueueBuffer{};
        b.queue = q;
        b.where = Where::Free;
        b.put = HardEvent::MAX;
        b.site = site;
        add_buffer(f, &b);
        // Buffers of pools take turns: they get their ids when they are used.
        if (!kind.scratch && pool == nullptr) {
            take_id(slot_of(b, kind.filled), "InitBuffer", site);
            b.freed.event = kind.freed;
            take_id(b.freed, "InitBuffer", site);
        }
    }
    q->next = f.queues;
    f.queues = q;
    f.buffers += count;
    return q;
}

void open_scratch(QueueState *q)
{
    if (q->kind.scratch) {
        q->open = open_buffer(mem_of(q->kind.place), q->buffers[0].addr, q->buffers[0].bytes, q->what, q->site);
    }
}

QueueState &need(QueueState *q, const char *api, Site site)
{
    if (q == nullptr) {
        fail(Rule::Queue, api, nullptr, site, "InitBuffer was not called for this queue or buffer");
    }
    if (!q->live) {
        fail(Rule::Queue, api, nullptr, site, "%s of %s lost its memory: TPipe was reset or destroyed since", q->what,
             place(q->site));
    }
    return *q;
}

// The buffer that a tensor was allocated from; it must be one of `q`, and of its present use.
QueueBuffer &buffer_of(QueueState &q, uint32_t id, const Buffer &buffer, const char *api, Site site)
{
    Frame &f = state_of_core();
    if (id == 0 || id > f.table_length) {
        fail(Rule::Queue, api, "tensor", site, "the tensor was not allocated from a queue, so %s of %s cannot take it", q.what,
             place(q.site));
    }
    QueueBuffer &b = *f.table[id - 1];
    if (b.queue != &q) {
        fail(Rule::Queue, api, "tensor", site, "the tensor belongs to %s of %s, not to %s of %s", b.queue->what,
             place(b.queue->site), q.what, place(q.site));
    }
    if (b.where == Where::Free || b.open != buffer.id) {
        fail(Rule::Queue, api, "tensor", site, "the tensor was already freed (last use of its buffer at %s)", place(b.site));
    }
    return b;
}

void set_slot(Slot &s, const char *api, Site site)
{
    Ends e = ends_of(s.event);
    if (!has(e)) {
        return;
    }
    take_id(s, api, site);
    set_flag(e.from, e.to, s.id, Owner::Queue, api, site);
    s.set = true;
}

void wait_slot(Slot &s, const char *api, Site site)
{
    if (s.set) {
        Ends e = ends_of(s.event);
        wait_flag(e.from, e.to, s.id, Owner::Queue, api, site);
        s.set = false;
    }
}

void release_slot(Slot &s, const char *api, Site site)
{
    if (s.id >= 0) {
        Ends e = ends_of(s.event);
        release_event(e.from, e.to, s.id, Owner::Queue, api, site);
        s.id = -1;
    }
    s.set = false;
}

void release_events(QueueState &q, const char *api, Site site)
{
    for (uint32_t i = 0; i < q.count; i++) {
        QueueBuffer &b = q.buffers[i];
        wait_slot(b.freed, api, site);
        release_slot(b.freed, api, site);
        for (Slot &s : b.filled) {
            release_slot(s, api, site);
            s.event = HardEvent::MAX;
        }
    }
}

void check_idle(const QueueState &q, bool allocated_too, const char *api, Site site)
{
    if (q.kind.scratch) {
        return;
    }
    for (uint32_t i = 0; i < q.count; i++) {
        const QueueBuffer &b = q.buffers[i];
        if (b.where == Where::Queued) {
            fail(Rule::Queue, api, nullptr, b.site, "a tensor of %s of %s was enqueued and never dequeued: its event stays set", q.what,
                 place(q.site));
        }
        if (allocated_too && b.where != Where::Free) {
            fail(Rule::Queue, api, nullptr, b.site, "a tensor of %s of %s was %s and never freed", q.what, place(q.site),
                 where_name(b.where));
        }
    }
    (void)site;
}

void drop_queues(Frame &f, bool strict, const char *api, Site site)
{
    for (QueueState *q = f.queues; q != nullptr; q = q->next) {
        if (!q->live) {
            continue;
        }
        check_idle(*q, strict, api, site);
        release_events(*q, api, site);
        for (uint32_t i = 0; i < q->count; i++) {
            if (q->buffers[i].where != Where::Free) {
                close_buffer(q->buffers[i].open);
            }
        }
        if (q->kind.scratch) {
            close_buffer(q->open);
        }
        q->live = false;
    }
    f.queues = nullptr;
    f.taken = nullptr;
    f.buffers = 0;
    memset(f.head, 0, sizeof f.head);
}

// On 2201 a TPipe keeps three events of M_MTE1 for the system.
void keep_reserved(bool take, Site site)
{
    if (chip().arch == 2201 && is_cube()) {
        for (int i = 0; i < 3; i++) {
            if (take) {
                alloc_event(Pipe::M, Pipe::MTE1, Owner::Queue, "TPipe", site);
            } else {
                release_event(Pipe::M, Pipe::MTE1, i, Owner::Queue, "TPipe", site);
            }
        }
    }
}

void finish(void *data)
{
    Frame &f = *static_cast<Frame *>(data);
    if (f.pipe != nullptr) {
        for (QueueState *q = f.queues; q != nullptr; q = q->next) {
            check_idle(*q, true, "TPipe", f.pipe_site);
        }
    }
    for (int e = 0; e < static_cast<int>(HardEvent::MAX); e++) {
        for (uint32_t id = 0; f.held[e] != 0 && id < kEventsPerPair; id++) {
            if ((f.held[e] >> id & 1) != 0) {
                fail(Rule::FlagId, "AllocEventID", nullptr, f.held_site[e][id], "event id %u was allocated and never released", id);
            }
        }
    }
}

} // namespace

// --- TPipe ---

void pipe_open(AscendC::TPipe *pipe, Site site)
{
    Frame &f = state_of_core();
    if (f.pipe != nullptr) {
        fail(Rule::Queue, "TPipe", nullptr, site, "a second TPipe: the one of %s is still there, and both would hand out the same memory",
             place(f.pipe_site));
    }
    for (int h = 0; h < static_cast<int>(AscendC::Hardware::MAX); h++) {
        if (f.allocator[h]) {
            fail(Rule::Usage, "TPipe", nullptr, site, "TPipe and the LocalMemAllocator of %s would hand out the same memory",
                 place(f.allocator_site[h]));
        }
    }
    f.pipe = pipe;
    f.pipe_site = site;
    reset_state(site);
    keep_reserved(true, site);
}

void pipe_init(AscendC::TPipe *pipe, Site site)
{
    if (state_of_core().pipe == pipe) {
        fail(Rule::Queue, "Init", nullptr, site, "Init belongs after Destroy: the constructor of TPipe has called it already");
    }
    pipe_open(pipe, site);
}

void pipe_close(AscendC::TPipe *pipe, bool barrier, Site site)
{
    Frame &f = state_of_core();
    if (f.pipe != pipe) {
        return;
    }
    drop_queues(f, true, "TPipe", site);
    keep_reserved(false, site);
    f.pipe = nullptr;
    if (barrier) {
        all_done("TPipe", site);
    }
}

void pipe_reset(AscendC::TPipe *pipe, Site site)
{
    Frame &f = frame_with_pipe("Reset", site);
    (void)pipe;
    drop_queues(f, false, "Reset", site);
    reset_state(site);
}

AscendC::TPipe *pipe_of_core(Site site) { return frame_with_pipe("GetTPipePtr", site).pipe; }

// --- InitBuffer, InitBufPool ---

QueueState *queue_open(PoolState *pool, const QueueKind &kind, uint32_t count, uint64_t bytes, Site site)
{
    Frame &f = frame_with_pipe("InitBuffer", site);
    Mem mem = mem_of(kind.place);
    bytes = round32(bytes);
    if (pool != nullptr && pool->count + count > pool->limit) {
        fail(Rule::Queue, "InitBuffer", nullptr, site, "the TBufPool of %s hands out %u buffers at most, and this would be number %u",
             place(pool->site), pool->limit, pool->count + count);
    }
    QueueState *q = new_queue(f, pool, kind, count, site);
    uint64_t &head = pool != nullptr ? pool->head : f.head[static_cast<int>(mem)];
    uint64_t limit = pool != nullptr ? pool->base + pool->bytes : capacity(mem);
    if (bytes * count > limit || head > limit - bytes * count) {
        if (pool != nullptr) {
            fail(Rule::Capacity, "InitBuffer", nullptr, site, "%s needs %llu B, and of the %llu B of the TBufPool of %s %llu are left",
                 q->what, static_cast<unsigned long long>(bytes * count), static_cast<unsigned long long>(pool->bytes),
                 place(pool->site), static_cast<unsigned long long>(limit - head));
        }
        no_room(f, mem, head, bytes, count, q->what, "InitBuffer", site);
    }
    for (uint32_t i = 0; i < count; i++) {
        q->buffers[i].addr = head + i * bytes;
        q->buffers[i].bytes = bytes;
    }
    note_taken(f, mem, head, bytes, count, q->what, site);
    head += bytes * count;
    if (pool != nullptr) {
        pool->count += count;
    }
    open_scratch(q);
    return q;
}

QueueState *queue_open_at(const QueueKind &kind, uint32_t count, const uint64_t *starts, const uint64_t *lengths, Site site)
{
    Frame &f = frame_with_pipe("InitBuffer", site);
    Mem mem = mem_of(kind.place);
    QueueState *q = new_queue(f, nullptr, kind, count, site);
    for (uint32_t i = 0; i < count; i++) {
        if (starts[i] % 32 != 0) {
            fail(Rule::Alignment, "InitBuffer", nullptr, site, "buffer %u of %s starts at byte %llu, which is no multiple of 32", i,
                 q->what, static_cast<unsigned long long>(starts[i]));
        }
        if (lengths[i] > capacity(mem) || starts[i] > capacity(mem) - lengths[i]) {
            no_room(f, mem, starts[i], lengths[i], 1, q->what, "InitBuffer", site);
        }
        q->buffers[i].addr = starts[i];
        q->buffers[i].bytes = lengths[i];
        note_taken(f, mem, starts[i], lengths[i], 1, q->what, site);
    }
    open_scratch(q);
    return q;
}

PoolState *pool_open(PoolState *parent, TPosition position, uint64_t bytes, PoolState *share, uint32_t limit, Site site)
{
    Frame &f = frame_with_pipe("InitBufPool", site);
    Mem mem = mem_of(position);
    bytes = round32(bytes);
    PoolState *p = make<PoolState>();
    p->parent = parent;
    p->position = position;
    p->bytes = bytes;
    p->limit = limit;
    p->site = site;
    if (share != nullptr) {
        if (mem_of(share->position) != mem) {
            fail(Rule::Queue, "InitBufPool", nullptr, site, "a TBufPool in %s cannot share the memory of one in %s", mem_name(mem),
                 mem_name(mem_of(share->position)));
        }
        if (bytes > share->bytes) {
            fail(Rule::Capacity, "InitBufPool", nullptr, site, "the TBufPool of %s has %llu B to share, not %llu", place(share->site),
                 static_cast<unsigned long long>(share->bytes), static_cast<unsigned long long>(bytes));
        }
        p->base = share->base;
    } else {
        uint64_t &head = parent != nullptr ? parent->head : f.head[static_cast<int>(mem)];
        uint64_t end = parent != nullptr ? parent->base + parent->bytes : capacity(mem);
        if (bytes > end || head > end - bytes) {
            if (parent != nullptr) {
                fail(Rule::Capacity, "InitBufPool", nullptr, site, "%llu B do not fit into the %llu B that the TBufPool of %s has left",
                     static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(end - head), place(parent->site));
            }
            no_room(f, mem, head, bytes, 1, "TBufPool", "InitBufPool", site);
        }
        p->base = head;
        if (parent == nullptr) {
            note_taken(f, mem, head, bytes, 1, "TBufPool", site);
        }
        head += bytes;
    }
    p->head = p->base;
    return p;
}

void pool_reset(PoolState *pool, Site site)
{
    Frame &f = frame_with_pipe("Reset", site);
    for (QueueState *q = f.queues; q != nullptr; q = q->next) {
        bool inside = false;
        for (PoolState *p = q->pool; p != nullptr; p = p->parent) {
            inside = inside || p == pool;
        }
        if (q->live && inside) {
            check_idle(*q, true, "Reset", site);
            release_events(*q, "Reset", site);
        }
    }
}

// --- queues ---

Handed queue_alloc(QueueState *queue, Site site)
{
    QueueState &q = need(queue, "AllocTensor", site);
    bool quiet = muted("AllocTensor", site);
    QueueBuffer *b = nullptr;
    for (uint32_t i = 0; i < q.count && b == nullptr; i++) {
        QueueBuffer &c = q.buffers[(q.cursor + i) % q.count];
        if (c.where == Where::Free) {
            b = &c;
        }
    }
    if (b == nullptr) {
        const QueueBuffer &c = q.buffers[q.cursor];
        fail(Rule::Queue, "AllocTensor", nullptr, site,
             "all %u buffers of %s of %s are taken (the next one is %s since %s): the chip would wait for ever", q.count, q.what,
             place(q.site), where_name(c.where), place(c.site));
    }
    uint32_t index = static_cast<uint32_t>(b - q.buffers);
    q.cursor = (index + 1) % q.count;
    q.parked = false;
    if (quiet) {
        b->freed.set = false;
    } else {
        wait_slot(b->freed, "AllocTensor", site);
    }
    b->where = Where::Allocated;
    b->site = site;
    Mem mem = mem_of(q.kind.place);
    b->open = open_buffer(mem, b->addr, b->bytes, q.what, site);
    undefine(mem, b->addr, b->bytes);
    q.allocated++;
    return Handed{b->addr, b->bytes, Buffer{b->addr, b->bytes, b->open}, q.first_id + index};
}

void queue_put(QueueState *queue, uint32_t id, const Buffer &buffer, HardEvent event, Site site)
{
    QueueState &q = need(queue, "EnQue", site);
    bool quiet = muted("EnQue", site);
    QueueBuffer &b = buffer_of(q, id, buffer, "EnQue", site);
    if (b.where == Where::Queued) {
        fail(Rule::Queue, "EnQue", "tensor", site, "the tensor is in %s of %s already, since %s", q.what, place(q.site), place(b.site));
    }
    if (q.kind.depth > 0) {
        if (q.line_length >= static_cast<uint32_t>(q.kind.depth)) {
            fail(Rule::Queue, "EnQue", "tensor", site, "%s of %s has a depth of %d, and %u tensors are enqueued", q.what, place(q.site),
                 q.kind.depth, q.line_length);
        }
        q.line[(q.line_head + q.line_length++) % q.count] = static_cast<uint32_t>(&b - q.buffers);
    }
    b.put = event == HardEvent::MAX ? q.kind.filled : event;
    b.where = Where::Queued;
    b.site = site;
    if (b.put != HardEvent::V_V && !quiet) {
        set_slot(slot_of(b, b.put), "EnQue", site);
    }
}

static void wait_filled(QueueBuffer &b, bool quiet, Site site)
{
    if (b.put == HardEvent::V_V) {
        if (!quiet) {
            pipe_barrier(Pipe::V, "DeQue", site);
        }
        return;
    }
    Slot &s = slot_of(b, b.put);
    if (quiet) {
        s.set = false;
    } else {
        wait_slot(s, "DeQue", site);
    }
}

Handed queue_take(QueueState *queue, HardEvent event, Site site)
{
    QueueState &q = need(queue, "DeQue", site);
    bool quiet = muted("DeQue", site);
    if (q.line_length == 0) {
        fail(Rule::Queue, "DeQue", nullptr, site, "%s of %s is empty", q.what, place(q.site));
    }
    uint32_t index = q.line[q.line_head];
    q.line_head = (q.line_head + 1) % q.count;
    q.line_length--;
    QueueBuffer &b = q.buffers[index];
    if ((event == HardEvent::MAX ? q.kind.filled : event) != b.put) {
        fail(Rule::Queue, "DeQue", nullptr, site, "the positions of this DeQue are not those of the EnQue at %s", place(b.site));
    }
    wait_filled(b, quiet, site);
    b.where = Where::Taken;
    b.site = site;
    return Handed{b.addr, b.bytes, Buffer{b.addr, b.bytes, b.open}, q.first_id + index};
}

void queue_wait_in_place(QueueState *queue, uint32_t id, const Buffer &buffer, Site site)
{
    QueueState &q = need(queue, "DeQue", site);
    bool quiet = muted("DeQue", site);
    QueueBuffer &b = buffer_of(q, id, buffer, "DeQue", site);
    if (b.where != Where::Queued) {
        fail(Rule::Queue, "DeQue", "tensor", site, "the tensor is not enqueued: it was %s at %s", where_name(b.where), place(b.site));
    }
    wait_filled(b, quiet, site);
    b.where = Where::Taken;
    b.site = site;
}

void queue_free(QueueState *queue, uint32_t id, const Buffer &buffer, Site site)
{
    QueueState &q = need(queue, "FreeTensor", site);
    bool quiet = muted("FreeTensor", site);
    QueueBuffer &b = buffer_of(q, id, buffer, "FreeTensor", site);
    if (b.where == Where::Queued) {
        fail(Rule::Queue, "FreeTensor", "tensor", site, "the tensor is still enqueued, since %s", place(b.site));
    }
    if (!quiet) {
        b.freed.event = q.kind.freed;
        set_slot(b.freed, "FreeTensor", site);
    }
    close_buffer(b.open);
    b.where = Where::Free;
    b.site = site;
    q.allocated--;
}

void queue_free_events(QueueState *queue, Site site)
{
    QueueState &q = need(queue, "FreeAllEvent", site);
    check_idle(q, true, "FreeAllEvent", site);
    release_events(q, "FreeAllEvent", site);
    q.parked = true;
}

uint32_t queue_enqueued(const QueueState *queue, const char *api, Site site)
{
    return need(const_cast<QueueState *>(queue), api, site).line_length;
}
uint32_t queue_allocated(const QueueState *queue, const char *api, Site site)
{
    return need(const_cast<QueueState *>(queue), api, site).allocated;
}
uint32_t queue_buffers(const QueueState *queue) { return queue->count; }

Handed scratch_get(const QueueState *scratch, uint64_t offset, uint64_t bytes, const char *api, Site site)
{
    QueueState &q = need(const_cast<QueueState *>(scratch), api, site);
    const QueueBuffer &b = q.buffers[0];
    if (offset % 32 != 0) {
        fail(Rule::Alignment, api, nullptr, site, "an offset of %llu B into a TBuf is no multiple of 32",
             static_cast<unsigned long long>(offset));
    }
    if (offset > b.bytes || (bytes != ~0ull && bytes > b.bytes - offset)) {
        fail(Rule::Bounds, api, nullptr, site, "%s of %s has %llu B: %llu B from byte %llu on leave it", q.what, place(q.site),
             static_cast<unsigned long long>(b.bytes), static_cast<unsigned long long>(bytes),
             static_cast<unsigned long long>(offset));
    }
    uint64_t length = bytes == ~0ull ? b.bytes - offset : bytes;
    return Handed{b.addr + offset, length, Buffer{b.addr, b.bytes, q.open}, 0};
}

// --- events ---

int event_alloc(HardEvent event, Site site)
{
    Ends e = ends_of(event);
    Frame &f = frame_with_pipe("AllocEventID", site);
    int id = alloc_event(e.from, e.to, Owner::Hand, "AllocEventID", site);
    if (id >= 0 && id < static_cast<int>(kEventsPerPair)) {
        f.held[static_cast<int>(event)] = static_cast<uint8_t>(f.held[static_cast<int>(event)] | 1 << id);
        f.held_site[static_cast<int>(event)][id] = site;
    }
    return id;
}

int event_fetch(HardEvent event, Site site)
{
    Ends e = ends_of(event);
    frame_with_pipe("FetchEventID", site);
    int id = alloc_event(e.from, e.to, Owner::Hand, "FetchEventID", site);
    release_event(e.from, e.to, id, Owner::Hand, "FetchEventID", site);
    return id;
}

void event_release(HardEvent event, int id, Site site)
{
    Ends e = ends_of(event);
    Frame &f = frame_with_pipe("ReleaseEventID", site);
    uint8_t &held = f.held[static_cast<int>(event)];
    if (id < 0 || id >= static_cast<int>(kEventsPerPair) || (held >> id & 1) == 0) {
        fail(Rule::FlagId, "ReleaseEventID", nullptr, site, "event id %d was not allocated for this event", id);
    }
    held = static_cast<uint8_t>(held & ~(1 << id));
    release_event(e.from, e.to, id, Owner::Hand, "ReleaseEventID", site);
}

void hard_set(HardEvent event, int32_t id, Site site)
{
    Ends e = ends_of(event);
    if (e.from == e.to) {
        return; // the wait is a barrier
    }
    set_flag(e.from, e.to, id, Owner::Hand, "SetFlag", site);
}

void hard_wait(HardEvent event, int32_t id, Site site)
{
    Ends e = ends_of(event);
    if (e.from == e.to) {
        pipe_barrier(e.from, "WaitFlag", site);
        return;
    }
    wait_flag(e.from, e.to, id, Owner::Hand, "WaitFlag", site);
}

// --- memory without TPipe ---

void allocator_open(AscendC::Hardware hard, Site site)
{
    Frame &f = state_of_core();
    int h = static_cast<int>(hard);
    if (f.pipe != nullptr) {
        fail(Rule::Usage, "LocalMemAllocator", nullptr, site, "LocalMemAllocator and the TPipe of %s would hand out the same memory",
             place(f.pipe_site));
    }
    if (f.allocator[h]) {
        fail(Rule::Usage, "LocalMemAllocator", nullptr, site,
             "a second LocalMemAllocator for %s: it would hand out the same memory as the one of %s", mem_name(mem_of(hard)),
             place(f.allocator_site[h]));
    }
    f.allocator[h] = true;
    f.allocator_site[h] = site;
}

uint64_t allocator_take(AscendC::Hardware hard, uint32_t &head, uint64_t bytes, Site site)
{
    Frame &f = state_of_core();
    Mem mem = mem_of(hard);
    uint64_t addr = head, length = round32(bytes);
    if (length > capacity(mem) || addr > capacity(mem) - length) {
        no_room(f, mem, addr, length, 1, "Alloc", "Alloc", site);
    }
    note_taken(f, mem, addr, length, 1, "Alloc", site);
    head = static_cast<uint32_t>(addr + length);
    return addr;
}

Handed rest_of_memory(TPosition position, Site site)
{
    Frame &f = frame_with_pipe("PopStackBuffer", site);
    Mem mem = mem_of(position);
    uint64_t head = f.head[static_cast<int>(mem)], all = capacity(mem);
    if (head >= all) {
        fail(Rule::Capacity, "PopStackBuffer", nullptr, site, "nothing is left of the %llu B of %s",
             static_cast<unsigned long long>(all), mem_name(mem));
    }
    used(mem, all);
    return Handed{head, all - head, Buffer{head, all - head, 0}, 0};
}

void reset_state(Site site)
{
    CoreState &s = state();
    s.atomic = 0;
    s.atomic_type = 0;
    s.counter_mode = false;
    s.mask_dirty = false;
    s.mask[0] = ~0ull;
    s.mask[1] = ~0ull;
    s.load_padding = 0;
    scalar_call(4, "InitSocState", site);
}

// --- between cores, and what runs ---

void cross_core(bool set, int mode, Pipe pipe, uint16_t id, Site site)
{
    const char *api = set ? "CrossCoreSetFlag" : "CrossCoreWaitFlag";
    bool good = mode == 4 ? id <= 10 || (id >= 16 && id <= 26) : id <= 15;
    if (!good) {
        fail(Rule::CrossFlag, api, nullptr, site, "flag id %u: mode %d has %s", id, mode, mode == 4 ? "0..10 and 16..26" : "0..15");
    }
    if (set) {
        cross_set(mode, pipe, id, api, site);
    } else {
        cross_wait(mode, chip().arch == 2201 ? Pipe::S : pipe, id, api, site);
    }
}

void soft_sync_all(uint64_t gm_elements, uint32_t ub_elements, int32_t cores, Site site)
{
    uint64_t all = static_cast<uint64_t>(block_count()) * static_cast<uint64_t>(task_ratio());
    if (is_cube()) {
        fail(Rule::WrongCore, "SyncAll", nullptr, site, "SyncAll with a workspace is for vector cores");
    }
    if (cores < 0 || static_cast<uint64_t>(cores) > all) {
        fail(Rule::Range, "SyncAll", nullptr, site, "usedCores is %d, and %llu vector cores run", cores,
             static_cast<unsigned long long>(all));
    }
    uint64_t need = static_cast<uint64_t>(block_count()) * 8;
    if (gm_elements != 0 && gm_elements < need) {
        fail(Rule::Bounds, "SyncAll", "gmWorkspace", site, "the workspace has %llu elements and needs 8 for each block: %llu",
             static_cast<unsigned long long>(gm_elements), static_cast<unsigned long long>(need));
    }
    if (ub_elements < need) {
        fail(Rule::Bounds, "SyncAll", "ubWorkspace", site, "the workspace has %u elements and needs 8 for each block: %llu", ub_elements,
             static_cast<unsigned long long>(need));
    }
    sync_soft(static_cast<uint32_t>(cores), "SyncAll", site);
}

static const char *task_name(uint32_t t)
{
    static const char *const names[] = {"KERNEL_TYPE_AIV_ONLY",    "KERNEL_TYPE_AIC_ONLY",    "KERNEL_TYPE_MIX_AIV_1_0",
                                        "KERNEL_TYPE_MIX_AIC_1_0", "KERNEL_TYPE_MIX_AIC_1_1", "KERNEL_TYPE_MIX_AIC_1_2"};
    return t < sizeof(names) / sizeof(names[0]) ? names[t] : "a type that this chip does not have";
}

void task_declared(int declared, Site site)
{
    if (declared < 0 || declared > static_cast<int>(KERNEL_TYPE_MIX_AIC_1_2)) {
        fail(Rule::Launch, "KERNEL_TASK_TYPE_DEFAULT", nullptr, site, "this chip does not have the kernel type %d", declared);
    }
    if (static_cast<uint32_t>(declared) != task()) {
        fail(Rule::Launch, "KERNEL_TASK_TYPE_DEFAULT", nullptr, site, "the kernel is a %s and was launched as %s",
             task_name(static_cast<uint32_t>(declared)), task_name(task()));
    }
}

int64_t task_ratio()
{
    uint32_t v = vector_per_cube();
    return is_cube() || v == 0 ? 1 : v;
}
int64_t sub_block_num() { return task_ratio(); }
int64_t block_idx()
{
    if (is_cube() || vector_per_cube() == 0) {
        return block_index();
    }
    return static_cast<int64_t>(block_index()) * vector_per_cube() + sub_block();
}
uint32_t runtime_ub() { return capacity(Mem::UB); }

uint8_t *sys_workspace(bool set, uint8_t *value)
{
    Frame &f = state_of_core();
    if (set) {
        f.sys_workspace = value;
    }
    return f.sys_workspace;
}

void tiling_copy(void *to, const void *from, size_t bytes, Site site)
{
    uint8_t *t = static_cast<uint8_t *>(to);
    uint64_t addr = reinterpret_cast<uint64_t>(from);
    for (size_t at = 0; at < bytes;) {
        // Loads of up to 8 bytes that do not leave their 8 bytes: none crosses a line of the cache.
        size_t step = 8 - (addr + at) % 8;
        step = step < bytes - at ? step : bytes - at;
        scalar_read(Mem::GM, addr + at, t + at, static_cast<uint32_t>(step), Buffer{}, "GET_TILING_DATA", "tiling", site);
        at += step;
    }
}

// --- words to the outside ---

void print_format(const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0) {
        print(line, static_cast<size_t>(n) < sizeof line ? static_cast<size_t>(n) : sizeof line - 1);
    }
}

void assertion_failed(const char *condition, Site site, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    while (n > 0 && static_cast<size_t>(n) < sizeof line && line[n - 1] == '\n') {
        line[--n] = 0;
    }
    fail(Rule::Assert, "assert", nullptr, site, "assertion `%s` failed%s%s", condition, n > 0 ? ": " : "", n > 0 ? line : "");
}

void trapped(Site site) { fail(Rule::Assert, "Trap", nullptr, site, "the kernel called Trap"); }

namespace {

// What the effect of a dump needs.
struct Dump {
    uint8_t dtype;
    uint8_t bits;
    bool shaped;
    uint8_t dims;
    uint32_t shape[AscendC::K_MAX_DIM];
    uint32_t count;
    int64_t desc;
    Mem mem;
};

const char *dtype_name(uint8_t t)
{
    switch (t) {
    case ASCEND_TWIN_F32: return "float32";
    case ASCEND_TWIN_F16: return "float16";
    case ASCEND_TWIN_BF16: return "bfloat16";
    case ASCEND_TWIN_I8: return "int8";
    case ASCEND_TWIN_U8: return "uint8";
    case ASCEND_TWIN_I16: return "int16";
    case ASCEND_TWIN_U16: return "uint16";
    case ASCEND_TWIN_I32: return "int32";
    case ASCEND_TWIN_U32: return "uint32";
    case ASCEND_TWIN_I64: return "int64";
    case ASCEND_TWIN_U64: return "uint64";
    case ASCEND_TWIN_E4M3: return "fp8_e4m3fn";
    case ASCEND_TWIN_E5M2: return "fp8_e5m2";
    case ASCEND_TWIN_E8M0: return "fp8_e8m0";
    case ASCEND_TWIN_HIF8: return "hifloat8";
    default: return "raw";
    }
}

template <class T> T value_at(const uint8_t *p)
{
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}

float half_value(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    float v = exponent == 31 ? (fraction != 0 ? __builtin_nanf("") : __builtin_inff())
              : exponent == 0 ? static_cast<float>(fraction) * 5.9604644775390625e-8f
                              : __builtin_ldexpf(static_cast<float>(1024 + fraction), static_cast<int>(exponent) - 25);
    return (h & 0x8000) != 0 ? -v : v;
}

int value_text(char *to, size_t room, uint8_t dtype, uint32_t bits, const uint8_t *p)
{
    switch (dtype) {
    case ASCEND_TWIN_F32: return snprintf(to, room, "%f", static_cast<double>(value_at<float>(p)));
    case ASCEND_TWIN_F16: return snprintf(to, room, "%f", static_cast<double>(half_value(value_at<uint16_t>(p))));
    case ASCEND_TWIN_BF16: {
        uint32_t wide = static_cast<uint32_t>(value_at<uint16_t>(p)) << 16;
        float v;
        memcpy(&v, &wide, sizeof v);
        return snprintf(to, room, "%f", static_cast<double>(v));
    }
    case ASCEND_TWIN_I8: return snprintf(to, room, "%d", value_at<int8_t>(p));
    case ASCEND_TWIN_U8: return snprintf(to, room, "%u", value_at<uint8_t>(p));
    case ASCEND_TWIN_I16: return snprintf(to, room, "%d", value_at<int16_t>(p));
    case ASCEND_TWIN_U16: return snprintf(to, room, "%u", value_at<uint16_t>(p));
    case ASCEND_TWIN_I32: return snprintf(to, room, "%d", value_at<int32_t>(p));
    case ASCEND_TWIN_U32: return snprintf(to, room, "%u", value_at<uint32_t>(p));
    case ASCEND_TWIN_I64: return snprintf(to, room, "%lld", static_cast<long long>(value_at<int64_t>(p)));
    case ASCEND_TWIN_U64: return snprintf(to, room, "%llu", static_cast<unsigned long long>(value_at<uint64_t>(p)));
    default: {
        int n = snprintf(to, room, "0x");
        for (uint32_t i = (bits + 7) / 8; i-- > 0 && n + 3 < static_cast<int>(room);) {
            n += snprintf(to + n, room - static_cast<size_t>(n), "%02x", p[i]);
        }
        return n;
    }
    }
}

void dump_effect(Exec &x, const Instr &in)
{
    const Dump &d = in.get<Dump>();
    const Operand &o = in.operand[0];
    const uint8_t *bytes = x.at(o);
    if (d.desc >= 0) {
        print_format("DumpTensor: desc=%lld, addr=0x%llx, data_type=%s, position=%s, dump_size=%u\n", static_cast<long long>(d.desc),
                     static_cast<unsigned long long>(d.mem == Mem::GM ? 0 : o.region.addr), dtype_name(d.dtype), mem_name(d.mem),
                     d.count);
    }
    uint64_t shaped = 1;
    for (uint8_t i = 0; i < d.dims; i++) {
        shaped *= d.shape[i];
    }
    uint64_t count = d.shaped ? shaped : d.count;
    uint64_t row = d.shaped && d.dims > 0 ? d.shape[d.dims - 1] : d.desc < 0 ? 256 / d.bits : 32;
    row = row == 0 ? 1 : row;
    uint32_t size = (d.bits + 7) / 8;
    char line[4096];
    size_t at = 0;
    auto add = [&](const char *s, size_t n) {
        if (at + n > sizeof line) {
            print(line, at);
            at = 0;
        }
        memcpy(line + at, s, n);
        at += n;
    };
    add("[", 1);
    for (uint64_t i = 0; i < count; i++) {
        char one[64];
        int n;
        if (i >= d.count) {
            n = snprintf(one, sizeof one, "-");
        } else if (!x.defined(o.mem, o.region.addr + i * d.bits / 8, size)) {
            n = snprintf(one, sizeof one, "undefined");
        } else {
            n = value_text(one, sizeof one, d.dtype, d.bits, bytes + i * d.bits / 8);
        }
        const char *gap = i == 0 ? "" : i % row == 0 ? ",\n" : ", ";
        add(gap, strlen(gap));
        add(one, static_cast<size_t>(n));
    }
    add("]\n", 2);
    print(line, at);
}

// Nothing is written: there is nothing to say about it.
void no_taint(Exec &, const Instr &) {}

} // namespace

void dump(Mem mem, uint64_t addr, uint8_t dtype, uint32_t element_bits, uint32_t count, int64_t desc,
          const AscendC::ShapeInfo *shape, const Buffer &buffer, const char *api, Site site)
{
    // As on the chip, everything before the call is done when the values are read.
    all_done(api, site);
    Instr in;
    in.api = api;
    in.site = site;
    in.pipe = Pipe::S;
    in.dtype = dtype;
    Region r;
    r.addr = addr;
    r.bytes = (static_cast<uint64_t>(count) * element_bits + 7) / 8;
    Operand &o = in.add("tensor", Use::Read, mem, r, buffer);
    o.strict = false;
    o.align = 1;
    Dump d{};
    d.dtype = dtype;
    d.bits = static_cast<uint8_t>(element_bits);
    d.count = count;
    d.desc = desc;
    d.mem = mem;
    if (shape != nullptr) {
        d.shaped = true;
        d.dims = shape->shapeDim;
        memcpy(d.shape, shape->shape, sizeof d.shape);
    }
    in.put(d);
    in.effect = dump_effect;
    in.taint = no_taint;
    if (count > 0) {
        issue(in);
    }
}

AscendC::ShapeInfo *keep_shape(const AscendC::ShapeInfo &shape)
{
    AscendC::ShapeInfo *p = make<AscendC::ShapeInfo>();
    *p = shape;
    return p;
}

} // namespace ascend_twin
