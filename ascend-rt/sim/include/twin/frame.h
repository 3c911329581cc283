// SPDX-License-Identifier: MIT OR Apache-2.0
//
// TPipe, queues and buffers: who owns which part of on-chip memory, and which events order its uses. Everything that
// needs no template is in lib/frame.cpp.

#ifndef ASCEND_TWIN_FRAME_H
#define ASCEND_TWIN_FRAME_H

#include "sync.h"

namespace AscendC {

enum class Hardware : uint8_t { GM, UB, L1, L0A, L0B, L0C, BIAS, FIXBUF, MAX };

using QuePosition = TPosition;

struct TQueConfig {
    bool nd2nz = false;
    bool nz2nd = false;
    bool scmBlockGroup = false;
    uint32_t bufferLen = 0;
    uint32_t bufferNumber = 0;
    uint32_t consumerSize = 0;
    TPosition consumer[8] = {};
    bool enableStaticEvtId = false;
    bool enableLoopQueue = false;
};

class TPipe;
template <TPosition pos, uint32_t bufIDSize> class TBufPool;

} // namespace AscendC

namespace ascend_twin {

constexpr Mem mem_of(AscendC::Hardware h)
{
    using H = AscendC::Hardware;
    return h == H::UB    ? Mem::UB
           : h == H::L1  ? Mem::L1
           : h == H::L0A ? Mem::L0A
           : h == H::L0B ? Mem::L0B
           : h == H::L0C ? Mem::L0C
           : h == H::BIAS ? Mem::BT
           : h == H::FIXBUF ? Mem::FB
                            : Mem::GM;
}
constexpr AscendC::TPosition position_of(AscendC::Hardware h)
{
    using H = AscendC::Hardware;
    using P = AscendC::TPosition;
    return h == H::UB    ? P::VECCALC
           : h == H::L1  ? P::A1
           : h == H::L0A ? P::A2
           : h == H::L0B ? P::B2
           : h == H::L0C ? P::CO1
           : h == H::BIAS ? P::C2
                          : P::C2PIPE2GM;
}

// Both ends of the queue that is named by one position.
constexpr AscendC::TPosition queue_source(AscendC::TPosition p)
{
    using P = AscendC::TPosition;
    return p == P::A2                                                ? P::A1
           : p == P::B2                                              ? P::B1
           : p == P::C2                                              ? P::C1
           : p == P::C2PIPE2GM                                       ? P::B1
           : p == P::VECOUT || p == P::CO1 || p == P::CO2            ? p
                                                                     : P::GM;
}
constexpr AscendC::TPosition queue_target(AscendC::TPosition p)
{
    using P = AscendC::TPosition;
    return p == P::VECOUT || p == P::CO2 ? P::GM : p == P::CO1 ? P::CO2 : p;
}
// Where the buffers of a queue lie.
constexpr AscendC::TPosition queue_place(AscendC::TPosition src, AscendC::TPosition dst)
{
    return dst == AscendC::TPosition::GM || dst == AscendC::TPosition::CO2 ? src : dst;
}
// CO2 is in global memory on chips where cube and vector are separate cores.
constexpr Mem queue_end(AscendC::TPosition p)
{
    return p == AscendC::TPosition::CO2 ? Mem::GM : mem_of(p);
}
// What says that a buffer is filled; MAX where there is no such path. V_V stands for a barrier of the vector unit.
constexpr AscendC::HardEvent filled_event(Mem src, Mem dst)
{
    using E = AscendC::HardEvent;
    return src == Mem::GM    ? (dst == Mem::UB                       ? E::MTE2_V
                                : dst == Mem::L1                     ? E::MTE2_MTE1
                                : dst == Mem::L0A || dst == Mem::L0B ? E::MTE2_M
                                                                     : E::MAX)
           : src == Mem::UB  ? (dst == Mem::GM ? E::V_MTE3 : dst == Mem::L1 ? E::MTE3_MTE1 : dst == Mem::UB ? E::MTE2_MTE3 : E::MAX)
           : src == Mem::L1  ? (dst == Mem::L0A || dst == Mem::L0B || dst == Mem::BT ? E::MTE1_M
                                : dst == Mem::FB                                      ? E::MTE1_FIX
                                                                                      : E::MAX)
           : src == Mem::L0C ? (dst == Mem::GM ? E::M_FIX : E::MAX)
                             : E::MAX;
}
// The event back: the same pipes the other way.
constexpr AscendC::HardEvent free_event(AscendC::HardEvent e)
{
    using E = AscendC::HardEvent;
    return e == E::MTE2_V      ? E::V_MTE2
           : e == E::MTE2_MTE1 ? E::MTE1_MTE2
           : e == E::MTE2_M    ? E::M_MTE2
           : e == E::V_MTE3    ? E::MTE3_V
           : e == E::MTE3_MTE1 ? E::MTE1_MTE3
           : e == E::MTE2_MTE3 ? E::MTE3_MTE2
           : e == E::MTE1_M    ? E::M_MTE1
           : e == E::MTE1_FIX  ? E::FIX_MTE1
           : e == E::M_FIX     ? E::FIX_M
                               : E::MAX;
}

struct QueueState;
struct QueueBuffer;
struct PoolState;

// What a queue is, as far as its template arguments say.
struct QueueKind {
    AscendC::TPosition source;
    AscendC::TPosition target;
    AscendC::TPosition place;
    AscendC::HardEvent filled;
    AscendC::HardEvent freed;
    int32_t depth;
    bool scratch; // a TBuf: no events, nothing to allocate
};

// A buffer of a queue as the tensor needs it.
struct Handed {
    uint64_t addr;
    uint64_t bytes;
    Buffer buffer;
    uint32_t queue;
};

void pipe_open(AscendC::TPipe *pipe, Site site);
void pipe_init(AscendC::TPipe *pipe, Site site);
void pipe_close(AscendC::TPipe *pipe, bool barrier, Site site);
void pipe_reset(AscendC::TPipe *pipe, Site site);
AscendC::TPipe *pipe_of_core(Site site);
// `pool` is null for the pipe itself.
QueueState *queue_open(PoolState *pool, const QueueKind &kind, uint32_t count, uint64_t bytes, Site site);
QueueState *queue_open_at(const QueueKind &kind, uint32_t count, const uint64_t *starts, const uint64_t *lengths, Site site);
PoolState *pool_open(PoolState *parent, AscendC::TPosition position, uint64_t bytes, PoolState *share, uint32_t limit, Site site);
void pool_reset(PoolState *pool, Site site);

Handed queue_alloc(QueueState *queue, Site site);
// `event` is what the call sets or waits for; MAX: that of the queue.
void queue_put(QueueState *queue, uint32_t id, const Buffer &buffer, AscendC::HardEvent event, Site site);
Handed queue_take(QueueState *queue, AscendC::HardEvent event, Site site);
void queue_wait_in_place(QueueState *queue, uint32_t id, const Buffer &buffer, Site site);
void queue_free(QueueState *queue, uint32_t id, const Buffer &buffer, Site site);
void queue_free_events(QueueState *queue, Site site);
uint32_t queue_enqueued(const QueueState *queue, const char *api, Site site);
uint32_t queue_allocated(const QueueState *queue, const char *api, Site site);
uint32_t queue_buffers(const QueueState *queue);
Handed scratch_get(const QueueState *scratch, uint64_t offset, uint64_t bytes, const char *api, Site site);

int event_alloc(AscendC::HardEvent event, Site site);
int event_fetch(AscendC::HardEvent event, Site site);
void event_release(AscendC::HardEvent event, int id, Site site);

// Memory without TPipe.
void allocator_open(AscendC::Hardware hard, Site site);
uint64_t allocator_take(AscendC::Hardware hard, uint32_t &head, uint64_t bytes, Site site);
// The state that instructions take over, as at the start of a kernel.
void reset_state(Site site);
Handed rest_of_memory(AscendC::TPosition position, Site site);

} // namespace ascend_twin

namespace AscendC {

template <TPosition src, TPosition dst, int32_t depth, auto mask = 0> class TQueBind {
    static constexpr TPosition kPlace = ascend_twin::queue_place(src, dst);
    static constexpr HardEvent kFilled = ascend_twin::filled_event(ascend_twin::queue_end(src), ascend_twin::queue_end(dst));
    static_assert(kFilled != HardEvent::MAX, "a queue between these positions has no path on this chip");
    static_assert(kPlace != TPosition::GM && kPlace != TPosition::VECCALC && kPlace != TPosition::CO2,
                  "buffers of a queue lie in VECIN, VECOUT, A1, A2, B1, B2, C1, C2 or CO1");
    static_assert(depth >= 0, "the depth of a queue is not negative");
    static constexpr ascend_twin::QueueKind kKind{src, dst, kPlace, kFilled, ascend_twin::free_event(kFilled), depth, false};
    using Site = ascend_twin::Site;

    template <TPosition from, TPosition to> static constexpr HardEvent user_event()
    {
        static_assert(ascend_twin::mem_of(from) == ascend_twin::Mem::UB || from == TPosition::GM,
                      "EnQue and DeQue with positions are for GM, VECIN, VECOUT and VECCALC");
        static_assert(ascend_twin::mem_of(to) == ascend_twin::Mem::UB || to == TPosition::GM,
                      "EnQue and DeQue with positions are for GM, VECIN, VECOUT and VECCALC");
        static_assert(from != TPosition::GM || to != TPosition::GM, "EnQue and DeQue do not take GM twice");
        return from == TPosition::GM ? HardEvent::MTE2_V : to == TPosition::GM ? HardEvent::V_MTE3 : HardEvent::V_V;
    }
    template <class T> static LocalTensor<T> tensor(const ascend_twin::Handed &h)
    {
        return LocalTensor<T>::twin_make(kPlace, h.addr, static_cast<uint32_t>(ascend_twin::elements_in<T>(h.bytes)), h.buffer,
                                         h.queue);
    }

public:
    static constexpr TPosition srcPosition = src;
    static constexpr TPosition dstPosition = dst;
    static constexpr int32_t queDepth = depth;

    template <class T> LocalTensor<T> AllocTensor(Site site = Site::here())
    {
        static_assert(depth != 0, "AllocTensor() is for queues of a depth of 1 or more; with depth 0 use AllocTensor(tensor)");
        return tensor<T>(ascend_twin::queue_alloc(state_, site));
    }
    template <class T> void AllocTensor(LocalTensor<T> &tensor_, Site site = Site::here())
    {
        static_assert(depth == 0, "AllocTensor(tensor) is for queues of depth 0");
        tensor_ = tensor<T>(ascend_twin::queue_alloc(state_, site));
    }
    template <class T> bool EnQue(const LocalTensor<T> &tensor_, Site site = Site::here())
    {
        ascend_twin::queue_put(state_, tensor_.twin_queue(), tensor_.twin_buffer(), HardEvent::MAX, site);
        return true;
    }
    template <TPosition srcUserPos, TPosition dstUserPos, class T>
    bool EnQue(const LocalTensor<T> &tensor_, Site site = Site::here())
    {
        static_assert(depth != 0, "EnQue with positions is for queues of a depth of 1 or more");
        ascend_twin::queue_put(state_, tensor_.twin_queue(), tensor_.twin_buffer(), user_event<srcUserPos, dstUserPos>(), site);
        return true;
    }
    template <class T> LocalTensor<T> DeQue(Site site = Site::here())
    {
        static_assert(depth != 0, "DeQue() is for queues of a depth of 1 or more; with depth 0 use DeQue(tensor)");
        return tensor<T>(ascend_twin::queue_take(state_, HardEvent::MAX, site));
    }
    template <class T> void DeQue(LocalTensor<T> &tensor_, Site site = Site::here())
    {
        static_assert(depth == 0, "DeQue(tensor) is for queues of depth 0");
        ascend_twin::queue_wait_in_place(state_, tensor_.twin_queue(), tensor_.twin_buffer(), site);
    }
    template <TPosition srcUserPos, TPosition dstUserPos, class T> LocalTensor<T> DeQue(Site site = Site::here())
    {
        static_assert(depth != 0, "DeQue with positions is for queues of a depth of 1 or more");
        return tensor<T>(ascend_twin::queue_take(state_, user_event<srcUserPos, dstUserPos>(), site));
    }
    template <class T> void FreeTensor(LocalTensor<T> &tensor_, Site site = Site::here())
    {
        ascend_twin::queue_free(state_, tensor_.twin_queue(), tensor_.twin_buffer(), site);
    }
    bool VacantInQue(Site site = Site::here())
    {
        static_assert(depth != 0, "VacantInQue is for queues of a depth of 1 or more");
        return ascend_twin::queue_enqueued(state_, "VacantInQue", site) < static_cast<uint32_t>(depth);
    }
    bool HasTensorInQue(Site site = Site::here())
    {
        return ascend_twin::queue_enqueued(state_, "HasTensorInQue", site) != 0;
    }
    int32_t GetTensorCountInQue(Site site = Site::here())
    {
        return static_cast<int32_t>(ascend_twin::queue_enqueued(state_, "GetTensorCountInQue", site));
    }
    bool HasIdleBuffer(Site site = Site::here())
    {
        static_assert(depth != 0, "HasIdleBuffer is for queues of a depth of 1 or more");
        return ascend_twin::queue_allocated(state_, "HasIdleBuffer", site) < ascend_twin::queue_buffers(state_);
    }
    void FreeAllEvent(Site site = Site::here())
    {
        static_assert(depth != 0, "FreeAllEvent is for queues of a depth of 1 or more");
        ascend_twin::queue_free_events(state_, site);
    }

    // For the twin's own headers.
    static constexpr ascend_twin::QueueKind twin_kind() { return kKind; }
    void twin_set(ascend_twin::QueueState *state) { state_ = state; }

private:
    ascend_twin::QueueState *state_ = nullptr;
};

template <TPosition pos, int32_t depth, auto mask = 0>
class TQue : public TQueBind<ascend_twin::queue_source(pos), ascend_twin::queue_target(pos), depth, mask> {
};

template <TPosition pos = TPosition::LCM> class TBuf {
    static_assert(pos != TPosition::GM, "a TBuf lies on the chip");
    using Site = ascend_twin::Site;
    template <class T> static LocalTensor<T> tensor(const ascend_twin::Handed &h)
    {
        return LocalTensor<T>::twin_make(pos, h.addr, static_cast<uint32_t>(ascend_twin::elements_in<T>(h.bytes)), h.buffer, 0);
    }

public:
    template <class T> LocalTensor<T> Get(Site site = Site::here())
    {
        return tensor<T>(ascend_twin::scratch_get(state_, 0, ~0ull, "Get", site));
    }
    template <class T> LocalTensor<T> Get(uint32_t len, Site site = Site::here())
    {
        return tensor<T>(ascend_twin::scratch_get(state_, 0, ascend_twin::bytes_of<T>(len), "Get", site));
    }
    template <class T> LocalTensor<T> GetWithOffset(uint32_t size, uint32_t bufOffset, Site site = Site::here())
    {
        return tensor<T>(ascend_twin::scratch_get(state_, bufOffset, ascend_twin::bytes_of<T>(size), "GetWithOffset", site));
    }

    // For the twin's own headers.
    static constexpr ascend_twin::QueueKind twin_kind()
    {
        return ascend_twin::QueueKind{pos, pos, pos, HardEvent::MAX, HardEvent::MAX, 0, true};
    }
    void twin_set(ascend_twin::QueueState *state) { state_ = state; }

private:
    ascend_twin::QueueState *state_ = nullptr;
};

constexpr uint32_t defaultBufIDSize = 4;

template <TPosition pos, uint32_t bufIDSize = defaultBufIDSize> class TBufPool {
    static_assert(bufIDSize <= 16, "a TBufPool hands out at most 16 buffers");
    using Site = ascend_twin::Site;

public:
    template <class T> bool InitBuffer(T &que, uint8_t num, uint32_t len, Site site = Site::here())
    {
        static_assert(ascend_twin::mem_of(T::twin_kind().place) == ascend_twin::mem_of(pos),
                      "a queue lies in the same memory as the pool that it is cut from");
        que.twin_set(ascend_twin::queue_open(need(site), T::twin_kind(), num, len, site));
        return true;
    }
    template <TPosition bufPos> bool InitBuffer(TBuf<bufPos> &buf, uint32_t len, Site site = Site::here())
    {
        static_assert(ascend_twin::mem_of(bufPos) == ascend_twin::mem_of(pos),
                      "a TBuf lies in the same memory as the pool that it is cut from");
        buf.twin_set(ascend_twin::queue_open(need(site), TBuf<bufPos>::twin_kind(), 1, len, site));
        return true;
    }
    template <TPosition p, uint32_t n> bool InitBufPool(TBufPool<p, n> &bufPool, uint32_t len, Site site = Site::here())
    {
        bufPool.twin_set(ascend_twin::pool_open(need(site), p, len, nullptr, n, site));
        return true;
    }
    template <TPosition p, uint32_t n, class U>
    bool InitBufPool(TBufPool<p, n> &bufPool, uint32_t len, U &shareBuf, Site site = Site::here())
    {
        bufPool.twin_set(ascend_twin::pool_open(need(site), p, len, shareBuf.twin_state(), n, site));
        return true;
    }
    void Reset(Site site = Site::here()) { ascend_twin::pool_reset(need(site), site); }

    // For the twin's own headers.
    void twin_set(ascend_twin::PoolState *state) { state_ = state; }
    ascend_twin::PoolState *twin_state() const { return state_; }

private:
    ascend_twin::PoolState *need(Site site)
    {
        if (state_ == nullptr) {
            ascend_twin::fail(ascend_twin::Rule::Queue, "TBufPool", nullptr, site, "InitBufPool was not called for this TBufPool");
        }
        return state_;
    }
    ascend_twin::PoolState *state_ = nullptr;
};

class TPipe {
    using Site = ascend_twin::Site;

public:
    TPipe(Site site = Site::here()) : site_(site) { ascend_twin::pipe_open(this, site); }
    ~TPipe() { ascend_twin::pipe_close(this, true, site_); }
    TPipe(const TPipe &) = delete;
    TPipe &operator=(const TPipe &) = delete;

    void Init(Site site = Site::here()) { ascend_twin::pipe_init(this, site); }
    void Destroy(Site site = Site::here()) { ascend_twin::pipe_close(this, true, site); }
    void DestroyWithoutPipeAll(Site site = Site::here()) { ascend_twin::pipe_close(this, false, site); }
    void Reset(Site site = Site::here()) { ascend_twin::pipe_reset(this, site); }

    template <class T> bool InitBuffer(T &que, uint8_t num, uint32_t len, Site site = Site::here())
    {
        que.twin_set(ascend_twin::queue_open(nullptr, T::twin_kind(), num, len, site));
        return true;
    }
    template <TPosition pos> bool InitBuffer(TBuf<pos> &buf, uint32_t len, Site site = Site::here())
    {
        buf.twin_set(ascend_twin::queue_open(nullptr, TBuf<pos>::twin_kind(), 1, len, site));
        return true;
    }
    // Buffers at addresses of the kernel's choice: pairs of start and length in bytes.
    template <class T, class U0, class V0, class... Addrs>
    bool InitBuffer(T &que, const std::tuple<U0, V0> &addr0, const Addrs &...addrs)
    {
        const uint64_t starts[] = {static_cast<uint64_t>(std::get<0>(addr0)), static_cast<uint64_t>(std::get<0>(addrs))...};
        const uint64_t lengths[] = {static_cast<uint64_t>(std::get<1>(addr0)), static_cast<uint64_t>(std::get<1>(addrs))...};
        que.twin_set(ascend_twin::queue_open_at(T::twin_kind(), 1 + sizeof...(addrs), starts, lengths, site_));
        return true;
    }
    template <TPosition p, uint32_t n> bool InitBufPool(TBufPool<p, n> &bufPool, uint32_t len, Site site = Site::here())
    {
        bufPool.twin_set(ascend_twin::pool_open(nullptr, p, len, nullptr, n, site));
        return true;
    }
    template <TPosition p, uint32_t n, class U>
    bool InitBufPool(TBufPool<p, n> &bufPool, uint32_t len, U &shareBuf, Site site = Site::here())
    {
        bufPool.twin_set(ascend_twin::pool_open(nullptr, p, len, shareBuf.twin_state(), n, site));
        return true;
    }
    template <HardEvent evt> TEventID AllocEventID(Site site = Site::here())
    {
        return static_cast<TEventID>(ascend_twin::event_alloc(evt, site));
    }
    template <HardEvent evt> void ReleaseEventID(TEventID id, Site site = Site::here())
    {
        ascend_twin::event_release(evt, id, site);
    }
    template <HardEvent evt> TEventID FetchEventID(Site site = Site::here())
    {
        return static_cast<TEventID>(ascend_twin::event_fetch(evt, site));
    }
    TEventID FetchEventID(HardEvent evt, Site site = Site::here())
    {
        return static_cast<TEventID>(ascend_twin::event_fetch(evt, site));
    }
    // Addresses of tensors count from the start of their memory.
    uint8_t *GetBaseAddr(int8_t) { return nullptr; }

private:
    Site site_;
};

inline TPipe *GetTPipePtr(ascend_twin::Site site = ascend_twin::Site::here()) { return ascend_twin::pipe_of_core(site); }

inline void InitSocState(ascend_twin::Site site = ascend_twin::Site::here()) { ascend_twin::reset_state(site); }

// All of the memory that is left.
template <class T, TPosition pos> bool PopStackBuffer(LocalTensor<T> &popLocal, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::Handed h = ascend_twin::rest_of_memory(pos, site);
    popLocal = LocalTensor<T>::twin_make(pos, h.addr, static_cast<uint32_t>(ascend_twin::elements_in<T>(h.bytes)), h.buffer, 0);
    return true;
}

template <Hardware hard = Hardware::UB> class LocalMemAllocator {
    static_assert(hard != Hardware::GM && hard != Hardware::MAX, "LocalMemAllocator is for memory on the chip");
    using Site = ascend_twin::Site;
    template <TPosition pos, class T> LocalTensor<T> take(uint32_t tileSize, Site site)
    {
        static_assert(ascend_twin::mem_of(pos) == ascend_twin::mem_of(hard), "the position lies in another memory");
        uint64_t bytes = ascend_twin::bytes_of<T>(tileSize);
        uint64_t addr = ascend_twin::allocator_take(hard, head_, bytes, site);
        return LocalTensor<T>::twin_make(pos, addr, tileSize, ascend_twin::Buffer{addr, bytes, 0}, 0);
    }

public:
    LocalMemAllocator(Site site = Site::here()) { ascend_twin::allocator_open(hard, site); }
    uint32_t GetCurAddr() const { return head_; }
    template <class DataType, uint32_t tileSize> LocalTensor<DataType> Alloc(Site site = Site::here())
    {
        return take<ascend_twin::position_of(hard), DataType>(tileSize, site);
    }
    template <TPosition pos, class DataType, uint32_t tileSize> LocalTensor<DataType> Alloc(Site site = Site::here())
    {
        return take<pos, DataType>(tileSize, site);
    }
    template <class DataType> LocalTensor<DataType> Alloc(uint32_t tileSize, Site site = Site::here())
    {
        return take<ascend_twin::position_of(hard), DataType>(tileSize, site);
    }
    template <TPosition pos, class DataType> LocalTensor<DataType> Alloc(uint32_t tileSize, Site site = Site::here())
    {
        return take<pos, DataType>(tileSize, site);
    }

private:
    uint32_t head_ = 0;
};

} // namespace AscendC

#endif
