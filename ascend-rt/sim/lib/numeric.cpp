// SPDX-License-Identifier: MIT OR Apache-2.0

#include "numeric.h"

#include <math.h>
#include <string.h>

#include "twin/types.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ASCEND_TWIN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ASCEND_TWIN_CLONES
#endif

namespace ascend_twin {
namespace {

template <class To, class From> inline To cast_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "bits");
    To t;
    memcpy(&t, &v, sizeof(t));
    return t;
}

// A binary format with sign: `max` is the code of its largest value, `inf` that of infinity (0: none), `nan` of NaN (0: none).
template <int Exp, int Man, int Bias, uint32_t Max, uint32_t Inf, uint32_t Nan> struct Format {
    static constexpr int kMan = Man;
    static constexpr int kBias = Bias;
    static constexpr uint32_t kMax = Max, kInf = Inf, kNan = Nan;
    static constexpr uint32_t kSign = 1u << (Exp + Man);
};
using F16 = Format<5, 10, 15, 0x7bff, 0x7c00, 0x7e00>;
using Bf16 = Format<8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0>;
using E4m3 = Format<4, 3, 7, 0x7e, 0, 0x7f>;
using E5m2 = Format<5, 2, 15, 0x7b, 0x7c, 0x7e>;
using E2m1 = Format<2, 1, 1, 7, 0, 0>;
using E1m2 = Format<1, 2, 1, 7, 0, 0>;

// What is added to the kept bits `q`, given the dropped bits `rest`, the first of them being `half`.
template <class U> inline U round_up(Round mode, bool negative, U q, U rest, U half)
{
    switch (mode) {
    case Round::None:
    case Round::Rint:
        return rest > half || (rest == half && (q & 1));
    case Round::Floor:
        return negative && rest != 0;
    case Round::Ceil:
        return !negative && rest != 0;
    case Round::Round:
    case Round::Hybrid:
        return rest >= half;
    case Round::Trunc:
        return 0;
    case Round::Odd:
        return rest != 0 && !(q & 1);
    }
    return 0;
}

// Whether a value beyond the largest one rounds to infinity.
inline bool to_infinity(Round mode, bool negative)
{
    switch (mode) {
    case Round::Floor:
        return negative;
    case Round::Ceil:
        return !negative;
    case Round::Trunc:
    case Round::Odd:
        return false;
    default:
        return true;
    }
}

template <class F> uint32_t encode(float v, Round mode, Overflow overflow)
{
    uint32_t x = cast_bits<uint32_t>(v);
    bool negative = x >> 31;
    uint32_t sign = negative ? F::kSign : 0;
    uint32_t a = x & 0x7fffffffu;
    if (a > 0x7f800000u) {
        bool keep = F::kNan != 0 && overflow != Overflow::Saturate;
        return keep ? (sign | F::kNan) : 0;
    }
    uint32_t beyond = F::kInf != 0 ? F::kInf : F::kNan != 0 ? F::kNan : F::kMax;
    if (overflow != Overflow::Ieee) {
        beyond = F::kMax;
    }
    if (a == 0x7f800000u) {
        return sign | beyond;
    }
    int e = static_cast<int>(a >> 23);
    uint32_t sig = a & 0x7fffffu;
    if (e != 0) {
        sig |= 0x800000u;
    } else {
        e = 1;
    }
    constexpr int kMin = 1 - F::kBias;
    int exponent = e - 127;
    int shift = 23 - F::kMan;
    if (exponent < kMin) {
        shift += kMin - exponent;
    }
    // The significand has 24 bits: from 26 on only "not zero" is left of it.
    if (shift > 26) {
        shift = 26;
    }
    uint32_t q = sig >> shift;
    uint32_t rest = sig & ((1u << shift) - 1);
    q += round_up<uint32_t>(mode, negative, q, rest, 1u << (shift - 1));
    uint32_t code = exponent >= kMin ? (static_cast<uint32_t>(exponent - kMin) << F::kMan) + q : q;
    if (code > F::kMax) {
        code = to_infinity(mode, negative) ? beyond : F::kMax;
    }
    return sign | code;
}

template <class F> float decode(uint32_t code)
{
    bool negative = code & F::kSign;
    uint32_t a = code & (F::kSign - 1);
    uint32_t sign = negative ? 0x80000000u : 0;
    if (F::kInf != 0 && a == F::kInf) {
        return cast_bits<float>(sign | 0x7f800000u);
    }
    if (a > F::kMax) {
        // The payload of a NaN moves to the top of the mantissa, and it becomes quiet.
        return cast_bits<float>(sign | 0x7fc00000u | ((a & ((1u << F::kMan) - 1)) << (23 - F::kMan)));
    }
    uint32_t e = a >> F::kMan;
    float sig = static_cast<float>(e == 0 ? a : ((a & ((1u << F::kMan) - 1)) | (1u << F::kMan)));
    float value = ldexpf(sig, static_cast<int>(e == 0 ? 1 : e) - F::kBias - F::kMan);
    return negative ? -value : value;
}

float hif8_value(uint8_t code)
{
    bool negative = code & 0x80;
    uint32_t a = code & 0x7f;
    if (code == 0x80) {
        return cast_bits<float>(0x7fc00000u);
    }
    float sign = negative ? -1.0f : 1.0f;
    if (a == 0x6f) {
        return sign * static_cast<float>(INFINITY);
    }
    if (a == 0) {
        return 0.0f;
    }
    if (a < 8) {
        return ldexpf(sign, static_cast<int>(a) - 23);
    }
    int width, mantissa_bits; // of the exponent with its sign, of the mantissa
    if (a < 0x10) {
        width = 0, mantissa_bits = 3;
    } else if (a < 0x20) {
        width = 1, mantissa_bits = 3;
    } else if (a < 0x40) {
        width = 2, mantissa_bits = 3;
    } else if (a < 0x60) {
        width = 3, mantissa_bits = 2;
    } else {
        width = 4, mantissa_bits = 1;
    }
    int mantissa = static_cast<int>(a & ((1u << mantissa_bits) - 1));
    int exponent = 0;
    if (width > 0) {
        int field = static_cast<int>((a >> mantissa_bits) & ((1u << width) - 1));
        // The first bit is the sign; the leading one of the magnitude is not stored.
        int magnitude = (1 << (width - 1)) | (field & ((1 << (width - 1)) - 1));
        exponent = (field >> (width - 1)) ? -magnitude : magnitude;
    }
    return ldexpf(sign * static_cast<float>((1 << mantissa_bits) + mantissa), exponent - mantissa_bits);
}

uint8_t hif8_code(bool negative, int exponent, int mantissa)
{
    uint32_t sign = negative ? 0x80 : 0;
    if (exponent < -15) {
        return static_cast<uint8_t>(sign | static_cast<uint32_t>(exponent + 23));
    }
    int magnitude = exponent < 0 ? -exponent : exponent;
    uint32_t s = exponent < 0;
    uint32_t m = static_cast<uint32_t>(mantissa);
    if (magnitude == 0) {
        return static_cast<uint8_t>(sign | 0x08 | m);
    }
    if (magnitude == 1) {
        return static_cast<uint8_t>(sign | 0x10 | (s << 3) | m);
    }
    if (magnitude < 4) {
        return static_cast<uint8_t>(sign | 0x20 | (s << 4) | ((static_cast<uint32_t>(magnitude) & 1) << 3) | m);
    }
    if (magnitude < 8) {
        return static_cast<uint8_t>(sign | 0x40 | (s << 4) | ((static_cast<uint32_t>(magnitude) & 3) << 2) | m);
    }
    return static_cast<uint8_t>(sign | 0x60 | (s << 4) | ((static_cast<uint32_t>(magnitude) & 7) << 1) | m);
}

// `mantissa` has `bits` bits below the leading one; the threshold of hybrid rounding comes from the low bits of the source:
// its first `threshold_bits` dropped bits are compared with it.
uint8_t hif8_round(bool negative, int exponent, uint32_t mantissa, int bits, uint32_t threshold, int threshold_bits, Round mode,
                   Overflow overflow)
{
    auto dropped = [&](int kept) { // the first threshold_bits bits after `kept` of the mantissa
        int shift = bits - kept - threshold_bits;
        uint32_t mask = (1u << threshold_bits) - 1;
        return (shift >= 0 ? mantissa >> shift : mantissa << -shift) & mask;
    };
    auto first = [&](int kept) { return (mantissa >> (bits - kept - 1)) & 1; };
    bool hybrid = mode == Round::Hybrid;
    int m = 0;
    if (exponent < -23) {
        return 0;
    }
    if (exponent == -23) {
        uint32_t value = (1u << (threshold_bits - 1)) | (mantissa >> (bits - threshold_bits + 1));
        bool up = !hybrid || value >= threshold;
        return up ? static_cast<uint8_t>((negative ? 0x80 : 0) | 1) : 0;
    }
    if (exponent <= 15) {
        int magnitude = exponent < 0 ? -exponent : exponent;
        int kept = magnitude < 4 ? 3 : magnitude < 8 ? 2 : magnitude < 16 ? 1 : 0;
        m = kept ? static_cast<int>(mantissa >> (bits - kept)) : 0;
        bool up = hybrid && magnitude >= 4 ? dropped(kept) >= threshold : first(kept) != 0;
        if (up && ++m >> kept) {
            exponent++;
            m = 0;
        }
    }
    if (exponent > 15 || (exponent == 15 && m == 1)) {
        return static_cast<uint8_t>((negative ? 0x80 : 0) | (overflow == Overflow::Ieee ? 0x6f : 0x6e));
    }
    return hif8_code(negative, exponent, m);
}

struct Tables {
    float e4m3[256], e5m2[256], hif8[256], e8m0[256], e2m1[256][2], e1m2[256][2], i4[256][2];
    Tables()
    {
        for (uint32_t i = 0; i < 256; i++) {
            e4m3[i] = decode<E4m3>(i);
            e5m2[i] = decode<E5m2>(i);
            hif8[i] = hif8_value(static_cast<uint8_t>(i));
            e8m0[i] = i == 255 ? cast_bits<float>(0x7fc00000u) : ldexpf(1.0f, static_cast<int>(i) - 127);
            for (uint32_t h = 0; h < 2; h++) {
                uint32_t nibble = (i >> (4 * h)) & 15;
                e2m1[i][h] = decode<E2m1>(nibble);
                e1m2[i][h] = decode<E1m2>(nibble);
                i4[i][h] = static_cast<float>(nibble < 8 ? static_cast<int>(nibble) : static_cast<int>(nibble) - 16);
            }
        }
    }
};
const Tables &tables()
{
    static const Tables t;
    return t;
}

void from_table(float *to, const void *from, size_t count, const float *table)
{
    const uint8_t *p = static_cast<const uint8_t *>(from);
    for (size_t i = 0; i < count; i++) {
        to[i] = table[p[i]];
    }
}

void from_nibbles(float *to, const void *from, size_t count, const float (*table)[2])
{
    const uint8_t *p = static_cast<const uint8_t *>(from);
    for (size_t i = 0; i < count; i++) {
        to[i] = table[p[i / 2]][i % 2];
    }
}

template <class T, class E> void each(void *to, const float *from, size_t count, E e)
{
    unsigned char *p = static_cast<unsigned char *>(to);
    for (size_t i = 0; i < count; i++) {
        T v = static_cast<T>(e(from[i]));
        memcpy(p + i * sizeof(T), &v, sizeof(T));
    }
}

template <class E> void each_nibble(void *to, const float *from, size_t count, E e)
{
    uint8_t *p = static_cast<uint8_t *>(to);
    for (size_t i = 0; i < count; i++) {
        uint8_t v = static_cast<uint8_t>(e(from[i]) & 15);
        p[i / 2] = static_cast<uint8_t>(i % 2 ? (p[i / 2] & 15) | (v << 4) : (p[i / 2] & 0xf0) | v);
    }
}

// Rounding of a magnitude with `bits` significant bits kept: the shared part of integer and double conversions.
inline uint64_t round_shift(uint64_t v, int shift, Round mode, bool negative)
{
    if (shift <= 0) {
        return v << -shift;
    }
    if (shift > 63) {
        shift = 63; // nothing but a sticky bit below one half remains for values under 2^62
    }
    uint64_t q = v >> shift;
    return q + round_up<uint64_t>(mode, negative, q, v & ((1ull << shift) - 1), 1ull << (shift - 1));
}

} // namespace

float f16_to_f32(uint16_t v) { return decode<F16>(v); }
float bf16_to_f32(uint16_t v) { return cast_bits<float>(static_cast<uint32_t>(v) << 16); }
float e4m3_to_f32(uint8_t v) { return tables().e4m3[v]; }
float e5m2_to_f32(uint8_t v) { return tables().e5m2[v]; }
float hif8_to_f32(uint8_t v) { return tables().hif8[v]; }
float e8m0_to_f32(uint8_t v) { return tables().e8m0[v]; }
float e2m1_to_f32(uint8_t nibble) { return tables().e2m1[nibble & 15][0]; }
float e1m2_to_f32(uint8_t nibble) { return tables().e1m2[nibble & 15][0]; }

uint16_t f32_to_f16(float v, Round round, Overflow overflow) { return static_cast<uint16_t>(encode<F16>(v, round, overflow)); }
uint16_t f32_to_bf16(float v, Round round, Overflow overflow) { return static_cast<uint16_t>(encode<Bf16>(v, round, overflow)); }
uint8_t f32_to_e4m3(float v, Round round, Overflow overflow) { return static_cast<uint8_t>(encode<E4m3>(v, round, overflow)); }
uint8_t f32_to_e5m2(float v, Round round, Overflow overflow) { return static_cast<uint8_t>(encode<E5m2>(v, round, overflow)); }
uint8_t f32_to_e2m1(float v, Round round) { return static_cast<uint8_t>(encode<E2m1>(v, round, Overflow::Ieee)); }
uint8_t f32_to_e1m2(float v, Round round) { return static_cast<uint8_t>(encode<E1m2>(v, round, Overflow::Ieee)); }

uint8_t f32_to_e8m0(float v)
{
    uint32_t a = cast_bits<uint32_t>(v) & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return 255;
    }
    uint32_t e = a >> 23;
    return static_cast<uint8_t>(e > 254 ? 254 : e);
}

uint8_t f32_to_hif8(float v, Round round, Overflow overflow)
{
    uint32_t x = cast_bits<uint32_t>(v);
    bool negative = x >> 31;
    if (v != v) {
        return overflow == Overflow::Saturate ? 0 : 0x80;
    }
    // An F32 subnormal has an exponent far below the smallest HiF8.
    int exponent = static_cast<int>((x >> 23) & 255) - 127;
    return hif8_round(negative, exponent, x & 0x7fffffu, 23, x & 0x3fffu, 14, round, overflow);
}

uint8_t f16_to_hif8(uint16_t v, Round round, Overflow overflow)
{
    uint32_t a = v & 0x7fffu;
    bool negative = v >> 15;
    if (a > 0x7c00) {
        return overflow == Overflow::Saturate ? 0 : 0x80;
    }
    uint32_t threshold = ((v & 1u) << 1) | 1u;
    if (a < 0x400) {
        // Subnormal: normalised first, so that every value of F16 gives what the same value of F32 gives.
        if (a == 0) {
            return 0;
        }
        int exponent = -14;
        while (!(a & 0x400)) {
            a <<= 1;
            exponent--;
        }
        return hif8_round(negative, exponent, a & 0x3ff, 10, threshold, 2, round, overflow);
    }
    return hif8_round(negative, static_cast<int>(a >> 10) - 15, a & 0x3ff, 10, threshold, 2, round, overflow);
}

float round_f32(float v, Round round)
{
    uint32_t x = cast_bits<uint32_t>(v);
    int e = static_cast<int>((x >> 23) & 255) - 127;
    if (e >= 23) {
        return v; // integral, infinite or NaN
    }
    bool negative = x >> 31;
    uint32_t sig = (x & 0x7fffffu) | ((x & 0x7f800000u) ? 0x800000u : 0);
    int shift = 23 - e;
    if (shift > 26) {
        shift = 26;
    }
    uint32_t q = sig >> shift;
    q += round_up<uint32_t>(round, negative, q, sig & ((1u << shift) - 1), 1u << (shift - 1));
    float value = static_cast<float>(q);
    return negative ? -value : value;
}

int64_t f32_to_int(float v, Round round, int bits, bool is_signed)
{
    if (v != v) {
        return 0;
    }
    float r = round_f32(v, round);
    if (is_signed) {
        double limit = ldexp(1.0, bits - 1);
        int64_t most = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
        if (static_cast<double>(r) >= limit) {
            return most;
        }
        if (static_cast<double>(r) < -limit) {
            return -most - 1;
        }
        return static_cast<int64_t>(r);
    }
    double limit = ldexp(1.0, bits);
    if (static_cast<double>(r) >= limit) {
        return bits == 64 ? -1 : (int64_t{1} << bits) - 1;
    }
    return r <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(r));
}

float i64_to_f32(int64_t v, Round round)
{
    if (v == 0) {
        return 0.0f;
    }
    bool negative = v < 0;
    uint64_t a = negative ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
    int shift = 64 - __builtin_clzll(a) - 24;
    if (shift <= 0) {
        float f = static_cast<float>(a);
        return negative ? -f : f;
    }
    float f = ldexpf(static_cast<float>(round_shift(a, shift, round, negative)), shift);
    return negative ? -f : f;
}

double i64_to_f64(int64_t v, Round round)
{
    if (v == 0) {
        return 0.0;
    }
    bool negative = v < 0;
    uint64_t a = negative ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
    int shift = 64 - __builtin_clzll(a) - 53;
    double f = shift <= 0 ? static_cast<double>(a) : ldexp(static_cast<double>(round_shift(a, shift, round, negative)), shift);
    return negative ? -f : f;
}

float f64_to_f32(double v, Round round)
{
    uint64_t x = cast_bits<uint64_t>(v);
    bool negative = x >> 63;
    int e = static_cast<int>((x >> 52) & 2047);
    if (e == 2047 || v == 0) {
        return static_cast<float>(v);
    }
    if (e < 1023 - 200) {
        // Far below the smallest F32: only the direction of rounding matters.
        bool up = (round == Round::Floor && negative) || (round == Round::Ceil && !negative) || round == Round::Odd;
        float tiny = up ? cast_bits<float>(1u) : 0.0f;
        return negative ? -tiny : tiny;
    }
    uint64_t sig = (x & 0xfffffffffffffull) | (1ull << 52);
    int exponent = e - 1023;
    int shift = exponent < -126 ? 29 + (-126 - exponent) : 29;
    uint64_t q = round_shift(sig, shift, round, negative);
    float f = exponent > 127 ? static_cast<float>(INFINITY) : static_cast<float>(ldexp(static_cast<double>(q), exponent - 52 + shift));
    if (f > 3.4028234663852886e38f) {
        f = to_infinity(round, negative) ? static_cast<float>(INFINITY) : 3.4028234663852886e38f;
    }
    return negative ? -f : f;
}

ASCEND_TWIN_CLONES void f16_to_f32(float *to, const void *from, size_t count)
{
    const unsigned char *p = static_cast<const unsigned char *>(from);
    for (size_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, 2);
        uint32_t a = (h & 0x7fffu) << 13;
        // Exponent and mantissa in the place of F32's, then the difference of the biases: exact, subnormals too.
        float f;
        memcpy(&f, &a, 4);
        f *= 5.192296858534828e33f; // 2^112
        uint32_t r;
        memcpy(&r, &f, 4);
        // All ones in the exponent: infinity, or NaN made quiet.
        uint32_t special = a >= 0x0f800000u ? 0x7f800000u | a | (a > 0x0f800000u ? 0x400000u : 0u) : r;
        special |= (h & 0x8000u) << 16;
        memcpy(to + i, &special, 4);
    }
}

ASCEND_TWIN_CLONES void bf16_to_f32(float *to, const void *from, size_t count)
{
    const unsigned char *p = static_cast<const unsigned char *>(from);
    for (size_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, 2);
        uint32_t r = static_cast<uint32_t>(h) << 16;
        memcpy(to + i, &r, 4);
    }
}

void e4m3_to_f32(float *to, const void *from, size_t count) { from_table(to, from, count, tables().e4m3); }
void e5m2_to_f32(float *to, const void *from, size_t count) { from_table(to, from, count, tables().e5m2); }
void hif8_to_f32(float *to, const void *from, size_t count) { from_table(to, from, count, tables().hif8); }
void e8m0_to_f32(float *to, const void *from, size_t count) { from_table(to, from, count, tables().e8m0); }
void e2m1_to_f32(float *to, const void *from, size_t count) { from_nibbles(to, from, count, tables().e2m1); }
void e1m2_to_f32(float *to, const void *from, size_t count) { from_nibbles(to, from, count, tables().e1m2); }
void i4_to_f32(float *to, const void *from, size_t count) { from_nibbles(to, from, count, tables().i4); }

namespace {

ASCEND_TWIN_CLONES void rint_f16(unsigned char *to, const float *from, size_t count, uint32_t beyond, uint32_t nan)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x;
        memcpy(&x, from + i, 4);
        uint32_t sign = (x >> 16) & 0x8000u;
        uint32_t a = x & 0x7fffffffu;
        // Normal results: the exponent is moved and the 13 low bits are rounded away, carries run into the exponent.
        uint32_t normal = (a + 0xfffu + ((a >> 13) & 1) - 0x38000000u) >> 13;
        // Subnormal results: adding 1/2 puts the last bit that is kept at F32's last place.
        float f;
        memcpy(&f, &a, 4);
        f += 0.5f;
        uint32_t small;
        memcpy(&small, &f, 4);
        small -= 0x3f000000u;
        uint32_t r = a < 0x38800000u ? small : normal;
        r = a >= 0x477ff000u ? beyond : r;
        r = a > 0x7f800000u ? nan : r;
        uint16_t h = static_cast<uint16_t>(r | (r == 0 && a > 0x7f800000u ? 0 : sign));
        memcpy(to + 2 * i, &h, 2);
    }
}

ASCEND_TWIN_CLONES void rint_bf16(unsigned char *to, const float *from, size_t count, uint32_t beyond, uint32_t nan)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x;
        memcpy(&x, from + i, 4);
        uint32_t sign = (x >> 16) & 0x8000u;
        uint32_t a = x & 0x7fffffffu;
        uint32_t r = (a + 0x7fffu + ((a >> 16) & 1)) >> 16;
        r = a >= 0x7f7f8000u ? beyond : r;
        r = a > 0x7f800000u ? nan : r;
        uint16_t h = static_cast<uint16_t>(r | (r == 0 && a > 0x7f800000u ? 0 : sign));
        memcpy(to + 2 * i, &h, 2);
    }
}

} // namespace

void f32_to_f16(void *to, const float *from, size_t count, Round round, Overflow overflow)
{
    if (round == Round::None || round == Round::Rint) {
        rint_f16(static_cast<unsigned char *>(to), from, count, overflow == Overflow::Ieee ? F16::kInf : F16::kMax,
                 overflow == Overflow::Saturate ? 0 : F16::kNan);
        return;
    }
    each<uint16_t>(to, from, count, [&](float v) { return encode<F16>(v, round, overflow); });
}

void f32_to_bf16(void *to, const float *from, size_t count, Round round, Overflow overflow)
{
    if (round == Round::None || round == Round::Rint) {
        rint_bf16(static_cast<unsigned char *>(to), from, count, overflow == Overflow::Ieee ? Bf16::kInf : Bf16::kMax,
                  overflow == Overflow::Saturate ? 0 : Bf16::kNan);
        return;
    }
    each<uint16_t>(to, from, count, [&](float v) { return encode<Bf16>(v, round, overflow); });
}

void f32_to_e4m3(void *to, const float *from, size_t count, Round round, Overflow overflow)
{
    each<uint8_t>(to, from, count, [&](float v) { return encode<E4m3>(v, round, overflow); });
}

void f32_to_e5m2(void *to, const float *from, size_t count, Round round, Overflow overflow)
{
    each<uint8_t>(to, from, count, [&](float v) { return encode<E5m2>(v, round, overflow); });
}

void f32_to_hif8(void *to, const float *from, size_t count, Round round, Overflow overflow)
{
    each<uint8_t>(to, from, count, [&](float v) { return f32_to_hif8(v, round, overflow); });
}

namespace {

template <class T> void from_int(float *to, const void *from, size_t count)
{
    const unsigned char *p = static_cast<const unsigned char *>(from);
    for (size_t i = 0; i < count; i++) {
        T v;
        memcpy(&v, p + i * sizeof(T), sizeof(T));
        to[i] = static_cast<float>(v);
    }
}

} // namespace

bool widen(uint8_t type, float *to, const void *from, size_t count)
{
    switch (type) {
    case ASCEND_TWIN_F32:
        memcpy(to, from, count * 4);
        return true;
    case ASCEND_TWIN_F16:
        f16_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_BF16:
        bf16_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_E4M3:
    case ASCEND_TWIN_MX_E4M3:
        e4m3_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_E5M2:
    case ASCEND_TWIN_MX_E5M2:
        e5m2_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_HIF8:
        hif8_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_E8M0:
        e8m0_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_E2M1:
    case ASCEND_TWIN_MX_E2M1:
        e2m1_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_E1M2:
    case ASCEND_TWIN_MX_E1M2:
        e1m2_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_I4:
        i4_to_f32(to, from, count);
        return true;
    case ASCEND_TWIN_I8:
        from_int<int8_t>(to, from, count);
        return true;
    case ASCEND_TWIN_U8:
        from_int<uint8_t>(to, from, count);
        return true;
    case ASCEND_TWIN_I16:
        from_int<int16_t>(to, from, count);
        return true;
    case ASCEND_TWIN_U16:
        from_int<uint16_t>(to, from, count);
        return true;
    case ASCEND_TWIN_I32:
        from_int<int32_t>(to, from, count);
        return true;
    case ASCEND_TWIN_U32:
        from_int<uint32_t>(to, from, count);
        return true;
    default:
        return false;
    }
}

bool narrow(uint8_t type, void *to, const float *from, size_t count, Round round, Overflow overflow)
{
    switch (type) {
    case ASCEND_TWIN_F32:
        memcpy(to, from, count * 4);
        return true;
    case ASCEND_TWIN_F16:
        f32_to_f16(to, from, count, round, overflow);
        return true;
    case ASCEND_TWIN_BF16:
        f32_to_bf16(to, from, count, round, overflow);
        return true;
    case ASCEND_TWIN_E4M3:
    case ASCEND_TWIN_MX_E4M3:
        f32_to_e4m3(to, from, count, round, overflow);
        return true;
    case ASCEND_TWIN_E5M2:
    case ASCEND_TWIN_MX_E5M2:
        f32_to_e5m2(to, from, count, round, overflow);
        return true;
    case ASCEND_TWIN_HIF8:
        f32_to_hif8(to, from, count, round, overflow);
        return true;
    case ASCEND_TWIN_E8M0:
        each<uint8_t>(to, from, count, [](float v) { return f32_to_e8m0(v); });
        return true;
    case ASCEND_TWIN_E2M1:
    case ASCEND_TWIN_MX_E2M1:
        each_nibble(to, from, count, [&](float v) { return encode<E2m1>(v, round, overflow); });
        return true;
    case ASCEND_TWIN_E1M2:
    case ASCEND_TWIN_MX_E1M2:
        each_nibble(to, from, count, [&](float v) { return encode<E1m2>(v, round, overflow); });
        return true;
    case ASCEND_TWIN_I4:
        each_nibble(to, from, count, [&](float v) { return f32_to_int(v, round, 4, true); });
        return true;
    case ASCEND_TWIN_I8:
        each<int8_t>(to, from, count, [&](float v) { return f32_to_int(v, round, 8, true); });
        return true;
    case ASCEND_TWIN_U8:
        each<uint8_t>(to, from, count, [&](float v) { return f32_to_int(v, round, 8, false); });
        return true;
    case ASCEND_TWIN_I16:
        each<int16_t>(to, from, count, [&](float v) { return f32_to_int(v, round, 16, true); });
        return true;
    case ASCEND_TWIN_U16:
        each<uint16_t>(to, from, count, [&](float v) { return f32_to_int(v, round, 16, false); });
        return true;
    case ASCEND_TWIN_I32:
        each<int32_t>(to, from, count, [&](float v) { return f32_to_int(v, round, 32, true); });
        return true;
    case ASCEND_TWIN_U32:
        each<uint32_t>(to, from, count, [&](float v) { return f32_to_int(v, round, 32, false); });
        return true;
    case ASCEND_TWIN_I64:
        each<int64_t>(to, from, count, [&](float v) { return f32_to_int(v, round, 64, true); });
        return true;
    default:
        return false;
    }
}

float small_value(uint8_t type, uint8_t code)
{
    float v = 0;
    widen(type, &v, &code, 1);
    return v;
}

uint8_t small_code(uint8_t type, float v)
{
    uint8_t code = 0;
    narrow(type, &code, &v, 1, type == ASCEND_TWIN_HIF8 ? Round::Round : Round::Rint, Overflow::Ieee);
    return code;
}

const char *type_name(uint8_t type)
{
    static const char *const names[] = {"none",         "float",        "half",         "bfloat16_t",    "fp8_e4m3fn_t",
                                        "fp8_e5m2_t",   "hifloat8_t",   "fp4x2_e2m1_t", "fp4x2_e1m2_t",  "fp8_e8m0_t",
                                        "int4b_t",      "int8_t",       "uint8_t",      "int16_t",       "uint16_t",
                                        "int32_t",      "uint32_t",     "int64_t",      "uint64_t",      "mx_fp8_e4m3_t",
                                        "mx_fp8_e5m2_t", "mx_fp4_e2m1_t", "mx_fp4_e1m2_t"};
    return type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

} // namespace ascend_twin
