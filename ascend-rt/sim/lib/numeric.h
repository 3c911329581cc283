// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Number formats: every format widens to F32 exactly, and F32 is rounded to every format in one step.

#ifndef ASCEND_TWIN_NUMERIC_H
#define ASCEND_TWIN_NUMERIC_H

#include <stddef.h>
#include <stdint.h>

#include "twin/abi.h"

namespace ascend_twin {

// The numbers are those of the kernel language's RoundMode.
enum class Round : uint8_t {
    None, // as Rint where precision is lost
    Rint, // to nearest, ties to even
    Floor,
    Ceil,
    Round, // to nearest, ties away from zero
    Trunc,
    Odd, // inexact results get an odd last bit
    Hybrid // HiF8 only
};

// What becomes of values that the format cannot hold.
enum class Overflow : uint8_t {
    Ieee, // infinity where there is one (E4M3: NaN), NaN stays NaN; formats without either: the largest value, 0
    Saturate, // the largest value of that sign, also for infinity; NaN becomes 0
    SaturateKeepNan // as Saturate, but NaN stays NaN where the format has one
};

// One value. Widening is exact; E8M0 has no zero and no sign, code 255 is NaN.
float f16_to_f32(uint16_t v);
float bf16_to_f32(uint16_t v);
float e4m3_to_f32(uint8_t v);
float e5m2_to_f32(uint8_t v);
float hif8_to_f32(uint8_t v);
float e8m0_to_f32(uint8_t v);
float e2m1_to_f32(uint8_t nibble); // low four bits
float e1m2_to_f32(uint8_t nibble);

uint16_t f32_to_f16(float v, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
uint16_t f32_to_bf16(float v, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
uint8_t f32_to_e4m3(float v, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
uint8_t f32_to_e5m2(float v, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
uint8_t f32_to_hif8(float v, Round round = Round::Round, Overflow overflow = Overflow::Ieee);
uint8_t f16_to_hif8(uint16_t v, Round round = Round::Round, Overflow overflow = Overflow::Ieee);
// Drops sign and mantissa; infinity and anything larger becomes 254.
uint8_t f32_to_e8m0(float v);
uint8_t f32_to_e2m1(float v, Round round = Round::Rint);
uint8_t f32_to_e1m2(float v, Round round = Round::Rint);

// To an integral value, still F32.
float round_f32(float v, Round round);
// Saturating; NaN becomes 0. `bits` up to 32, or 64.
int64_t f32_to_int(float v, Round round, int bits, bool is_signed);
float i64_to_f32(int64_t v, Round round);
double i64_to_f64(int64_t v, Round round);
float f64_to_f32(double v, Round round);

// Many values. `from` and `to` may be unaligned, and must not overlap unless equal addresses are given for equal widths.
void f16_to_f32(float *to, const void *from, size_t count);
void bf16_to_f32(float *to, const void *from, size_t count);
void e4m3_to_f32(float *to, const void *from, size_t count);
void e5m2_to_f32(float *to, const void *from, size_t count);
void hif8_to_f32(float *to, const void *from, size_t count);
void e8m0_to_f32(float *to, const void *from, size_t count);
// Two values a byte, the low nibble first; `count` values.
void e2m1_to_f32(float *to, const void *from, size_t count);
void e1m2_to_f32(float *to, const void *from, size_t count);
void i4_to_f32(float *to, const void *from, size_t count);

void f32_to_f16(void *to, const float *from, size_t count, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
void f32_to_bf16(void *to, const float *from, size_t count, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
void f32_to_e4m3(void *to, const float *from, size_t count, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
void f32_to_e5m2(void *to, const float *from, size_t count, Round round = Round::Rint, Overflow overflow = Overflow::Ieee);
void f32_to_hif8(void *to, const float *from, size_t count, Round round = Round::Round, Overflow overflow = Overflow::Ieee);

// By AscendTwinType: all of the above and the integers up to 32 bits (these widen with one rounding to nearest where F32 is
// too narrow). False: there is no such conversion. 4-bit types: `count` values, packed.
bool widen(uint8_t type, float *to, const void *from, size_t count);
bool narrow(uint8_t type, void *to, const float *from, size_t count, Round round, Overflow overflow);

// Bits of one element of an AscendTwinType; 0 for none.
constexpr int type_bits(uint8_t type)
{
    switch (type) {
    case ASCEND_TWIN_I4:
    case ASCEND_TWIN_E2M1:
    case ASCEND_TWIN_E1M2:
    case ASCEND_TWIN_MX_E2M1:
    case ASCEND_TWIN_MX_E1M2:
        return 4;
    case ASCEND_TWIN_E4M3:
    case ASCEND_TWIN_E5M2:
    case ASCEND_TWIN_HIF8:
    case ASCEND_TWIN_E8M0:
    case ASCEND_TWIN_I8:
    case ASCEND_TWIN_U8:
    case ASCEND_TWIN_MX_E4M3:
    case ASCEND_TWIN_MX_E5M2:
        return 8;
    case ASCEND_TWIN_F16:
    case ASCEND_TWIN_BF16:
    case ASCEND_TWIN_I16:
    case ASCEND_TWIN_U16:
        return 16;
    case ASCEND_TWIN_F32:
    case ASCEND_TWIN_I32:
    case ASCEND_TWIN_U32:
        return 32;
    case ASCEND_TWIN_I64:
    case ASCEND_TWIN_U64:
        return 64;
    default:
        return 0;
    }
}
const char *type_name(uint8_t type); // "half", as kernels call it

} // namespace ascend_twin

#endif
