// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Element types of the kernel language as classes of the host. Values convert to and from C++ numbers, and arithmetic on
// them is that of float.

#ifndef ASCEND_TWIN_TYPES_H
#define ASCEND_TWIN_TYPES_H

#include "config.h"
#include "machine.h"

namespace ascend_twin {

constexpr float f16_value(uint16_t h)
{
    uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    uint32_t a = static_cast<uint32_t>(h & 0x7fffu) << 13;
    if (a >= 0x0f800000u) {
        return __builtin_bit_cast(float, sign | 0x7f800000u | a | (a > 0x0f800000u ? 0x400000u : 0u));
    }
    float f = __builtin_bit_cast(float, a) * 5.192296858534828e33f; // 2^112: the difference of the biases
    return sign ? -f : f;
}

// To nearest, ties to even.
constexpr uint16_t f16_code(float v)
{
    uint32_t x = __builtin_bit_cast(uint32_t, v);
    uint32_t sign = (x >> 16) & 0x8000u, a = x & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return static_cast<uint16_t>(sign | 0x7e00u);
    }
    if (a >= 0x477ff000u) {
        return static_cast<uint16_t>(sign | 0x7c00u);
    }
    if (a < 0x38800000u) {
        return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, __builtin_bit_cast(float, a) + 0.5f) - 0x3f000000u));
    }
    return static_cast<uint16_t>(sign | ((a + 0xfffu + ((a >> 13) & 1) - 0x38000000u) >> 13));
}

constexpr float bf16_value(uint16_t h) { return __builtin_bit_cast(float, static_cast<uint32_t>(h) << 16); }

constexpr uint16_t bf16_code(float v)
{
    uint32_t x = __builtin_bit_cast(uint32_t, v);
    if ((x & 0x7fffffffu) > 0x7f800000u) {
        return static_cast<uint16_t>((x >> 16) | 0x40u);
    }
    return static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1)) >> 16);
}

// The small formats, by AscendTwinType; in the library.
float small_value(uint8_t type, uint8_t code);
uint8_t small_code(uint8_t type, float v);

template <class T> using Number = std::enable_if_t<std::is_arithmetic<T>::value, int>;

} // namespace ascend_twin

// IEEE half precision.
struct half {
    uint16_t bits;
    half() = default;
    template <class T, ascend_twin::Number<T> = 0> constexpr half(T v) : bits(ascend_twin::f16_code(static_cast<float>(v))) {}
    constexpr operator float() const { return ascend_twin::f16_value(bits); }
    static half twin_from_bits(uint16_t bits)
    {
        half h;
        h.bits = bits;
        return h;
    }
    half &operator+=(float v) { return *this = half(static_cast<float>(*this) + v); }
    half &operator-=(float v) { return *this = half(static_cast<float>(*this) - v); }
    half &operator*=(float v) { return *this = half(static_cast<float>(*this) * v); }
    half &operator/=(float v) { return *this = half(static_cast<float>(*this) / v); }
};

// Of two halves, and of nothing else: what is mixed with numbers is float.
#define ASCEND_TWIN_HALF(sign)                                                                                         \
    template <class H, std::enable_if_t<std::is_same<H, half>::value, int> = 0> constexpr half operator sign(H a, H b) \
    {                                                                                                                  \
        return half(static_cast<float>(a) sign static_cast<float>(b));                                                 \
    }
ASCEND_TWIN_HALF(+)
ASCEND_TWIN_HALF(-)
ASCEND_TWIN_HALF(*)
ASCEND_TWIN_HALF(/)
#undef ASCEND_TWIN_HALF
template <class H, std::enable_if_t<std::is_same<H, half>::value, int> = 0> constexpr half operator-(H a)
{
    return half(-static_cast<float>(a));
}

struct bfloat16_t {
    uint16_t bits;
    bfloat16_t() = default;
    template <class T, ascend_twin::Number<T> = 0>
    constexpr bfloat16_t(T v) : bits(ascend_twin::bf16_code(static_cast<float>(v)))
    {}
    constexpr operator float() const { return ascend_twin::bf16_value(bits); }
    static bfloat16_t twin_from_bits(uint16_t bits)
    {
        bfloat16_t h;
        h.bits = bits;
        return h;
    }
};

#define ASCEND_TWIN_SMALL(name, type)                                                                                  \
    struct name {                                                                                                      \
        uint8_t bits;                                                                                                  \
        name() = default;                                                                                              \
        template <class T, ascend_twin::Number<T> = 0>                                                                 \
        explicit name(T v) : bits(ascend_twin::small_code(type, static_cast<float>(v)))                                \
        {}                                                                                                             \
        explicit operator float() const { return ascend_twin::small_value(type, bits); }                               \
        friend bool operator==(name a, name b) { return static_cast<float>(a) == static_cast<float>(b); }              \
        friend bool operator!=(name a, name b) { return !(a == b); }                                                   \
        static name twin_from_bits(uint8_t bits)                                                                       \
        {                                                                                                              \
            name v;                                                                                                    \
            v.bits = bits;                                                                                             \
            return v;                                                                                                  \
        }                                                                                                              \
    };
ASCEND_TWIN_SMALL(fp8_e4m3fn_t, ASCEND_TWIN_E4M3)
ASCEND_TWIN_SMALL(fp8_e5m2_t, ASCEND_TWIN_E5M2)
ASCEND_TWIN_SMALL(fp8_e8m0_t, ASCEND_TWIN_E8M0)
ASCEND_TWIN_SMALL(hifloat8_t, ASCEND_TWIN_HIF8)
#undef ASCEND_TWIN_SMALL

// Two values in a byte, the first one in the low bits. Tensors of these types count values, not bytes.
struct fp4x2_e2m1_t {
    static constexpr uint32_t twin_bits = 4;
    uint8_t bits;
};
struct fp4x2_e1m2_t {
    static constexpr uint32_t twin_bits = 4;
    uint8_t bits;
};

namespace AscendC {

struct int4b_t {
    static constexpr uint32_t twin_bits = 4;
    uint8_t bits;
};
using ::bfloat16_t;
using ::half;

} // namespace AscendC

namespace ascend_twin {

template <class T> struct TypeOf {
    static constexpr uint8_t value = ASCEND_TWIN_NONE;
};
#define ASCEND_TWIN_TYPE_OF(T, V)                                                                                      \
    template <> struct TypeOf<T> {                                                                                     \
        static constexpr uint8_t value = V;                                                                            \
    };
ASCEND_TWIN_TYPE_OF(float, ASCEND_TWIN_F32)
ASCEND_TWIN_TYPE_OF(half, ASCEND_TWIN_F16)
ASCEND_TWIN_TYPE_OF(bfloat16_t, ASCEND_TWIN_BF16)
ASCEND_TWIN_TYPE_OF(fp8_e4m3fn_t, ASCEND_TWIN_E4M3)
ASCEND_TWIN_TYPE_OF(fp8_e5m2_t, ASCEND_TWIN_E5M2)
ASCEND_TWIN_TYPE_OF(fp8_e8m0_t, ASCEND_TWIN_E8M0)
ASCEND_TWIN_TYPE_OF(hifloat8_t, ASCEND_TWIN_HIF8)
ASCEND_TWIN_TYPE_OF(fp4x2_e2m1_t, ASCEND_TWIN_E2M1)
ASCEND_TWIN_TYPE_OF(fp4x2_e1m2_t, ASCEND_TWIN_E1M2)
ASCEND_TWIN_TYPE_OF(AscendC::int4b_t, ASCEND_TWIN_I4)
ASCEND_TWIN_TYPE_OF(int8_t, ASCEND_TWIN_I8)
ASCEND_TWIN_TYPE_OF(uint8_t, ASCEND_TWIN_U8)
ASCEND_TWIN_TYPE_OF(int16_t, ASCEND_TWIN_I16)
ASCEND_TWIN_TYPE_OF(uint16_t, ASCEND_TWIN_U16)
ASCEND_TWIN_TYPE_OF(int32_t, ASCEND_TWIN_I32)
ASCEND_TWIN_TYPE_OF(uint32_t, ASCEND_TWIN_U32)
ASCEND_TWIN_TYPE_OF(int64_t, ASCEND_TWIN_I64)
ASCEND_TWIN_TYPE_OF(uint64_t, ASCEND_TWIN_U64)
ASCEND_TWIN_TYPE_OF(bool, ASCEND_TWIN_U8)

} // namespace ascend_twin

#endif
