// SPDX-License-Identifier: MIT OR Apache-2.0
//
// GlobalTensor and LocalTensor: typed views of memory.

#ifndef ASCEND_TWIN_TENSOR_H
#define ASCEND_TWIN_TENSOR_H

#include "machine.h"
#include "types.h"

enum pipe_t {
    PIPE_S = 0,
    PIPE_V = 1,
    PIPE_M = 2,
    PIPE_MTE1 = 3,
    PIPE_MTE2 = 4,
    PIPE_MTE3 = 5,
    PIPE_ALL = 6,
    PIPE_FIX = 10
};

namespace AscendC {

enum class TPosition : uint8_t {
    GM,
    A1,
    A2,
    B1,
    B2,
    C1,
    C2,
    CO1,
    CO2,
    VECIN,
    VECOUT,
    VECCALC,
    LCM = VECCALC,
    SPM,
    SHM = SPM,
    TSCM,
    C2PIPE2GM,
    C2PIPE2LOCAL,
    MAX
};

enum class CacheMode : uint8_t { CACHE_MODE_DISABLE = 0, CACHE_MODE_NORMAL = 1, CACHE_MODE_LAST = 2, CACHE_MODE_PERSISTENT = 4 };
enum class CacheRwMode : uint8_t { READ = 1, WRITE = 2, RW = 3 };

} // namespace AscendC

namespace ascend_twin {

constexpr Pipe pipe_of(pipe_t p)
{
    return p == PIPE_S      ? Pipe::S
           : p == PIPE_V    ? Pipe::V
           : p == PIPE_M    ? Pipe::M
           : p == PIPE_MTE1 ? Pipe::MTE1
           : p == PIPE_MTE2 ? Pipe::MTE2
           : p == PIPE_MTE3 ? Pipe::MTE3
           : p == PIPE_FIX  ? Pipe::FIX
                            : Pipe::All;
}

constexpr Mem mem_of(AscendC::TPosition p)
{
    using P = AscendC::TPosition;
    return p == P::GM                                                                ? Mem::GM
           : p == P::A1 || p == P::B1 || p == P::C1 || p == P::TSCM || p == P::SPM   ? Mem::L1
           : p == P::A2                                                              ? Mem::L0A
           : p == P::B2                                                              ? Mem::L0B
           : p == P::C2                                                              ? Mem::BT
           : p == P::CO1                                                             ? Mem::L0C
           : p == P::C2PIPE2GM || p == P::C2PIPE2LOCAL                               ? Mem::FB
                                                                                     : Mem::UB;
}

} // namespace ascend_twin

namespace AscendC {

template <class T> class GlobalTensor {
public:
    using PrimType = T;

    GlobalTensor() = default;

    void SetGlobalBuffer(__gm__ T *buffer, uint64_t bufferSize)
    {
        addr_ = reinterpret_cast<uint64_t>(buffer);
        elements_ = bufferSize;
        buffer_ = ascend_twin::Buffer{addr_, bufferSize * sizeof(T), 0};
    }
    void SetGlobalBuffer(__gm__ T *buffer)
    {
        addr_ = reinterpret_cast<uint64_t>(buffer);
        elements_ = 0;
        buffer_ = ascend_twin::Buffer{};
    }
    const __gm__ T *GetPhyAddr() const { return reinterpret_cast<const T *>(addr_); }
    __gm__ T *GetPhyAddr(uint64_t offset) const { return reinterpret_cast<T *>(addr_ + offset * sizeof(T)); }
    uint64_t GetSize() const { return elements_; }
    void SetSize(uint32_t size) { elements_ = size; }
    GlobalTensor operator[](uint64_t offset) const
    {
        GlobalTensor t = *this;
        t.addr_ += offset * sizeof(T);
        t.elements_ = elements_ > offset ? elements_ - offset : 0;
        return t;
    }
    T GetValue(uint64_t offset, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        T v;
        ascend_twin::scalar_read(ascend_twin::Mem::GM, addr_ + offset * sizeof(T), &v, sizeof(T), buffer_, "GetValue", "src", site);
        return v;
    }
    void SetValue(uint64_t offset, T value, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        ascend_twin::scalar_write(ascend_twin::Mem::GM, addr_ + offset * sizeof(T), &value, sizeof(T), buffer_, "SetValue", "dst",
                                  site);
    }
    template <CacheRwMode rwMode = CacheRwMode::RW> void SetL2CacheHint(CacheMode mode)
    {
        l2_ = mode == CacheMode::CACHE_MODE_DISABLE ? 1 : 0;
    }

    // For the twin's own headers.
    uint64_t twin_addr() const { return addr_; }
    ascend_twin::Buffer twin_buffer() const { return buffer_; }
    uint8_t twin_l2() const { return l2_; }

private:
    uint64_t addr_ = 0;
    uint64_t elements_ = 0;
    ascend_twin::Buffer buffer_;
    uint8_t l2_ = 0;
};

template <class T> class LocalTensor {
public:
    using PrimType = T;

    LocalTensor() = default;
    // A tensor at a byte address of its memory, without TPipe.
    LocalTensor(TPosition position, uint32_t addr, uint32_t tileSize)
        : addr_(addr), elements_(tileSize), position_(position),
          buffer_{addr, static_cast<uint64_t>(tileSize) * sizeof(T), 0}
    {
        ascend_twin::used(ascend_twin::mem_of(position), addr + static_cast<uint64_t>(tileSize) * sizeof(T));
    }

    LocalTensor operator[](uint32_t offset) const
    {
        LocalTensor t = *this;
        t.addr_ += static_cast<uint64_t>(offset) * sizeof(T);
        t.elements_ = elements_ > offset ? elements_ - offset : 0;
        return t;
    }
    template <class U> LocalTensor<U> ReinterpretCast() const
    {
        LocalTensor<U> t;
        t.addr_ = addr_;
        t.elements_ = static_cast<uint32_t>(static_cast<uint64_t>(elements_) * sizeof(T) / sizeof(U));
        t.position_ = position_;
        t.buffer_ = buffer_;
        t.queue_ = queue_;
        return t;
    }
    T GetValue(uint32_t offset, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        T v;
        ascend_twin::scalar_read(twin_mem(), addr_ + static_cast<uint64_t>(offset) * sizeof(T), &v, sizeof(T), buffer_, "GetValue",
                                 "src", site);
        return v;
    }
    void SetValue(uint32_t offset, T value, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        ascend_twin::scalar_write(twin_mem(), addr_ + static_cast<uint64_t>(offset) * sizeof(T), &value, sizeof(T), buffer_,
                                  "SetValue", "dst", site);
    }
    uint32_t GetSize() const { return elements_; }
    uint32_t GetLength() const { return elements_ * static_cast<uint32_t>(sizeof(T)); }
    void SetSize(uint32_t size) { elements_ = size; }
    TPosition GetPosition() const { return position_; }
    uint64_t GetPhyAddr() const { return addr_; }

    // For the twin's own headers.
    ascend_twin::Mem twin_mem() const { return ascend_twin::mem_of(position_); }
    uint64_t twin_addr() const { return addr_; }
    ascend_twin::Buffer twin_buffer() const { return buffer_; }
    // Identity of a queue's buffer (set by the frame); 0: none.
    uint32_t twin_queue() const { return queue_; }
    static LocalTensor twin_make(TPosition position, uint64_t addr, uint32_t elements, ascend_twin::Buffer buffer, uint32_t queue)
    {
        LocalTensor t;
        t.addr_ = addr;
        t.elements_ = elements;
        t.position_ = position;
        t.buffer_ = buffer;
        t.queue_ = queue;
        return t;
    }

private:
    template <class> friend class LocalTensor;
    uint64_t addr_ = 0;
    uint32_t elements_ = 0;
    TPosition position_ = TPosition::VECCALC;
    ascend_twin::Buffer buffer_;
    uint32_t queue_ = 0;
};

} // namespace AscendC

#endif
