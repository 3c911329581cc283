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

enum class DataFormat : uint8_t { ND = 0, NZ, NCHW, NC1HWC0, NHWC, NCDHW, NDC1HWC0, FRACTAL_Z_3D };

using TTagType = int32_t;

constexpr int32_t K_MAX_SHAPE_DIM = 8;
constexpr int32_t K_MAX_DIM = K_MAX_SHAPE_DIM;

// Shape of a tensor: a note of the kernel to itself, of which no call here makes use but DumpTensor.
struct ShapeInfo {
    ShapeInfo() = default;
    ShapeInfo(const uint8_t inputShapeDim, const uint32_t inputShape[], const uint8_t inputOriginalShapeDim,
              const uint32_t inputOriginalShape[], const DataFormat inputFormat)
        : shapeDim(inputShapeDim), originalShapeDim(inputOriginalShapeDim), dataFormat(inputFormat)
    {
        for (int32_t i = 0; i < K_MAX_DIM; i++) {
            shape[i] = i < inputShapeDim ? inputShape[i] : 0;
            originalShape[i] = i < inputOriginalShapeDim ? inputOriginalShape[i] : 0;
        }
    }
    ShapeInfo(const uint8_t inputShapeDim, const uint32_t inputShape[], const DataFormat inputFormat)
        : ShapeInfo(inputShapeDim, inputShape, inputShapeDim, inputShape, inputFormat)
    {
    }
    ShapeInfo(const uint8_t inputShapeDim, const uint32_t inputShape[])
        : ShapeInfo(inputShapeDim, inputShape, inputShapeDim, inputShape, DataFormat::ND)
    {
    }
    uint8_t shapeDim = 0;
    uint8_t originalShapeDim = 0;
    uint32_t shape[K_MAX_DIM] = {};
    uint32_t originalShape[K_MAX_DIM] = {};
    DataFormat dataFormat = DataFormat::ND;
};

inline int GetShapeSize(const ShapeInfo &shapeInfo)
{
    int size = 1;
    for (uint8_t i = 0; i < shapeInfo.shapeDim; i++) {
        size *= static_cast<int>(shapeInfo.shape[i]);
    }
    return size;
}

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

namespace ascend_twin {

// Bits of an element in memory. Tensors of four-bit types count single values, of which two share a byte.
template <class T> struct ElementBits {
    static constexpr uint8_t type = TypeOf<T>::value;
    static constexpr uint32_t value =
        type == ASCEND_TWIN_I4 || type == ASCEND_TWIN_E2M1 || type == ASCEND_TWIN_E1M2 ? 4 : 8 * sizeof(T);
};
template <class T> constexpr uint64_t bytes_of(uint64_t elements)
{
    return elements * ElementBits<T>::value / 8;
}
template <class T> constexpr uint64_t elements_in(uint64_t bytes)
{
    return bytes * 8 / ElementBits<T>::value;
}

// What `tensor(i)` gives: read where a value is wanted, written by assignment.
template <class T, class Index> class Element {
public:
    Element(Mem mem, uint64_t addr, const Buffer &buffer, Site site) : mem_(mem), addr_(addr), buffer_(buffer), site_(site) {}
    Element(const Element &) = default;
    operator T() const
    {
        T v;
        scalar_read(mem_, addr_, &v, sizeof(T), buffer_, "operator()", "src", site_);
        return v;
    }
    const Element &operator=(T v) const
    {
        scalar_write(mem_, addr_, &v, sizeof(T), buffer_, "operator()", "dst", site_);
        return *this;
    }
    const Element &operator=(const Element &o) const { return *this = static_cast<T>(o); }
    template <class V> const Element &operator+=(V v) const { return *this = static_cast<T>(static_cast<T>(*this) + v); }
    template <class V> const Element &operator-=(V v) const { return *this = static_cast<T>(static_cast<T>(*this) - v); }
    template <class V> const Element &operator*=(V v) const { return *this = static_cast<T>(static_cast<T>(*this) * v); }
    template <class V> const Element &operator/=(V v) const { return *this = static_cast<T>(static_cast<T>(*this) / v); }

private:
    Mem mem_;
    uint64_t addr_;
    Buffer buffer_;
    Site site_;
};

AscendC::ShapeInfo *keep_shape(const AscendC::ShapeInfo &shape);
// Values of a tensor as text, for Print and DumpTensor. `desc` < 0: Print.
void dump(Mem mem, uint64_t addr, uint8_t dtype, uint32_t element_bits, uint32_t count, int64_t desc,
          const AscendC::ShapeInfo *shape, const Buffer &buffer, const char *api, Site site);

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
        buffer_ = ascend_twin::Buffer{addr_, ascend_twin::bytes_of<T>(bufferSize), 0};
    }
    void SetGlobalBuffer(__gm__ T *buffer)
    {
        addr_ = reinterpret_cast<uint64_t>(buffer);
        elements_ = 0;
        buffer_ = ascend_twin::Buffer{};
    }
    const __gm__ T *GetPhyAddr() const { return reinterpret_cast<const T *>(addr_); }
    __gm__ T *GetPhyAddr(const uint64_t offset) const
    {
        return reinterpret_cast<T *>(addr_ + ascend_twin::bytes_of<T>(offset));
    }
    uint64_t GetSize() const { return elements_; }
    GlobalTensor operator[](const uint64_t offset) const
    {
        GlobalTensor t = *this;
        t.addr_ += ascend_twin::bytes_of<T>(offset);
        t.elements_ = elements_ > offset ? elements_ - offset : 0;
        return t;
    }
    ascend_twin::Element<T, uint64_t> operator()(const uint64_t offset,
                                                 ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        return {ascend_twin::Mem::GM, addr_ + ascend_twin::bytes_of<T>(offset), buffer_, site};
    }
    T GetValue(const uint64_t offset, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        T v;
        ascend_twin::scalar_read(ascend_twin::Mem::GM, addr_ + ascend_twin::bytes_of<T>(offset), &v, sizeof(T), buffer_,
                                 "GetValue", "src", site);
        return v;
    }
    void SetValue(const uint64_t offset, T value, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        ascend_twin::scalar_write(ascend_twin::Mem::GM, addr_ + ascend_twin::bytes_of<T>(offset), &value, sizeof(T), buffer_,
                                  "SetValue", "dst", site);
    }
    template <class U> GlobalTensor<U> ReinterpretCast() const
    {
        GlobalTensor<U> t;
        t.addr_ = addr_;
        t.elements_ = ascend_twin::elements_in<U>(ascend_twin::bytes_of<T>(elements_));
        t.buffer_ = buffer_;
        t.l2_ = l2_;
        return t;
    }
    template <CacheRwMode rwMode = CacheRwMode::RW> void SetL2CacheHint(CacheMode mode)
    {
        l2_ = mode == CacheMode::CACHE_MODE_DISABLE ? 1 : 0;
    }
    void SetShapeInfo(const ShapeInfo &shapeInfo) { shape_ = ascend_twin::keep_shape(shapeInfo); }
    ShapeInfo GetShapeInfo() const { return shape_ != nullptr ? *shape_ : ShapeInfo(); }

    // For the twin's own headers.
    uint64_t twin_addr() const { return addr_; }
    ascend_twin::Buffer twin_buffer() const { return buffer_; }
    uint8_t twin_l2() const { return l2_; }

private:
    template <class> friend class GlobalTensor;
    uint64_t addr_ = 0;
    uint64_t elements_ = 0;
    ascend_twin::Buffer buffer_;
    uint8_t l2_ = 0;
    ShapeInfo *shape_ = nullptr;
};

template <class T> class LocalTensor {
public:
    using PrimType = T;

    LocalTensor() = default;
    // A tensor at a byte address of its memory, without TPipe.
    LocalTensor(TPosition pos, uint32_t addr, uint32_t tileSize)
        : addr_(addr), elements_(tileSize), position_(pos), buffer_{addr, ascend_twin::bytes_of<T>(tileSize), 0}
    {
        ascend_twin::used(ascend_twin::mem_of(pos), addr + ascend_twin::bytes_of<T>(tileSize));
    }

    // dst = a + b and the like (vector.h).
    template <class E, bool = E::twin_expression> LocalTensor &operator=(const E &expression)
    {
        expression.twin_assign(*this);
        return *this;
    }
    LocalTensor operator[](const uint32_t offset) const
    {
        LocalTensor t = *this;
        t.addr_ += ascend_twin::bytes_of<T>(offset);
        t.elements_ = elements_ > offset ? elements_ - offset : 0;
        return t;
    }
    template <class U> LocalTensor<U> ReinterpretCast() const
    {
        LocalTensor<U> t;
        t.addr_ = addr_;
        t.elements_ = static_cast<uint32_t>(ascend_twin::elements_in<U>(ascend_twin::bytes_of<T>(elements_)));
        t.position_ = position_;
        t.buffer_ = buffer_;
        t.queue_ = queue_;
        t.tag_ = tag_;
        return t;
    }
    ascend_twin::Element<T, uint32_t> operator()(const uint32_t offset,
                                                 ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        return {twin_mem(), addr_ + ascend_twin::bytes_of<T>(offset), buffer_, site};
    }
    T GetValue(const uint32_t offset, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        T v;
        ascend_twin::scalar_read(twin_mem(), addr_ + ascend_twin::bytes_of<T>(offset), &v, sizeof(T), buffer_, "GetValue", "src",
                                 site);
        return v;
    }
    template <class V>
    void SetValue(const uint32_t index, const V value, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        T v = static_cast<T>(value);
        ascend_twin::scalar_write(twin_mem(), addr_ + ascend_twin::bytes_of<T>(index), &v, sizeof(T), buffer_, "SetValue", "dst",
                                  site);
    }
    uint32_t GetSize() const { return elements_; }
    uint32_t GetLength() const { return static_cast<uint32_t>(ascend_twin::bytes_of<T>(elements_)); }
    void SetSize(const uint32_t size) { elements_ = size; }
    void SetBufferLen(uint32_t dataLen) { elements_ = dataLen; }
    int32_t GetPosition() const { return static_cast<int32_t>(position_); }
    uint64_t GetPhyAddr() const { return addr_; }
    uint64_t GetPhyAddr(const uint32_t offset) const { return addr_ + ascend_twin::bytes_of<T>(offset); }
    template <class U> void SetAddrWithOffset(LocalTensor<U> &src, uint32_t offset)
    {
        uint64_t skip = ascend_twin::bytes_of<U>(offset), all = ascend_twin::bytes_of<U>(src.elements_);
        *this = src.template ReinterpretCast<T>();
        addr_ += skip;
        elements_ = static_cast<uint32_t>(ascend_twin::elements_in<T>(all > skip ? all - skip : 0));
    }
    void SetUserTag(const TTagType tag) { tag_ = tag; }
    TTagType GetUserTag() const { return tag_; }
    void SetShapeInfo(const ShapeInfo &shapeInfo) { shape_ = ascend_twin::keep_shape(shapeInfo); }
    ShapeInfo GetShapeInfo() const { return shape_ != nullptr ? *shape_ : ShapeInfo(); }
    void Print(ascend_twin::Site site = ascend_twin::Site::here()) const { Print(elements_, site); }
    void Print(uint32_t len, ascend_twin::Site site = ascend_twin::Site::here()) const
    {
        ascend_twin::dump(twin_mem(), addr_, ascend_twin::TypeOf<T>::value, ascend_twin::ElementBits<T>::value, len, -1, nullptr,
                          buffer_, "Print", site);
    }

    // For the twin's own headers.
    TPosition twin_position() const { return position_; }
    ascend_twin::Mem twin_mem() const { return ascend_twin::mem_of(position_); }
    uint64_t twin_addr() const { return addr_; }
    ascend_twin::Buffer twin_buffer() const { return buffer_; }
    const ShapeInfo *twin_shape() const { return shape_; }
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
    TTagType tag_ = 0;
    ShapeInfo *shape_ = nullptr;
};

} // namespace AscendC

#endif
