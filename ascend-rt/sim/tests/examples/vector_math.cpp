// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Elementwise arithmetic and logic.

#include "example.h"

#include "vector.h"

using example::Bench;

namespace {

double ramp(size_t i) { return static_cast<double>(i) + 1; }

} // namespace

EXAMPLE(abs_half, "Abs")
{
    Bench b(gm);
    auto src = b.fill<half>(512, [](size_t i) { return i % 2 ? -static_cast<double>(i) : static_cast<double>(i); });
    auto dst = b.room<half>(512);
    Abs(dst, src, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return static_cast<double>(i); });
}

EXAMPLE(abs_half_lanes, "Abs")
{
    Bench b(gm);
    auto src = b.fill<half>(512, [](size_t i) { return i % 2 ? -static_cast<double>(i) : static_cast<double>(i); });
    auto dst = b.room<half>(512);
    uint64_t mask = 256 / sizeof(half);
    Abs(dst, src, mask, 4, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return static_cast<double>(i); });
}

EXAMPLE(abs_half_bits, "Abs")
{
    Bench b(gm);
    auto src = b.fill<half>(512, [](size_t i) { return i % 2 ? -static_cast<double>(i) : static_cast<double>(i); });
    auto dst = b.room<half>(512);
    uint64_t mask[2] = {UINT64_MAX, UINT64_MAX};
    Abs(dst, src, mask, 4, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return static_cast<double>(i); });
}

// Source and destination sums of the Add page: 1 2 3 ..., 513 514 515 ...
EXAMPLE(add_count, "Add")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(512, ramp), y = b.fill<int16_t>(512, [](size_t i) { return i + 513.0; });
    auto dst = b.room<int16_t>(512);
    Add(dst, x, y, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return 514.0 + 2 * static_cast<double>(i); });
}

EXAMPLE(add_lanes, "Add")
{
    Bench b(gm);
    auto x = b.fill<half>(512, ramp), y = b.fill<half>(512, [](size_t i) { return i + 513.0; });
    auto dst = b.room<half>(512);
    uint64_t mask = 128;
    Add(dst, x, y, mask, 4, {1, 1, 1, 8, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return 514.0 + 2 * static_cast<double>(i); });
}

EXAMPLE(add_bits, "Add")
{
    Bench b(gm);
    auto x = b.fill<half>(512, ramp), y = b.fill<half>(512, [](size_t i) { return i + 513.0; });
    auto dst = b.room<half>(512);
    uint64_t mask[2] = {UINT64_MAX, UINT64_MAX};
    Add(dst, x, y, mask, 4, {1, 1, 1, 8, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return 514.0 + 2 * static_cast<double>(i); });
}

EXAMPLE(add_float_int32, "Add")
{
    Bench b(gm);
    auto x = b.fill<float>(100, ramp), y = b.fill<float>(100, [](size_t i) { return i + 513.0; });
    auto p = b.fill<int32_t>(100, ramp), q = b.fill<int32_t>(100, [](size_t i) { return i + 513.0; });
    auto dst = b.room<float>(100);
    auto sum = b.room<int32_t>(100);
    Add(dst, x, y, 100);
    Add(sum, p, q, 100);
    expect_each(b.out(dst, 100), 100, [](size_t i) { return 514.0 + 2 * static_cast<double>(i); });
    expect_each(b.out(sum, 100), 100, [](size_t i) { return 514.0 + 2 * static_cast<double>(i); });
}

EXAMPLE(sub_ramp, "Sub")
{
    Bench b(gm);
    auto x = b.fill<float>(512, ramp), y = b.fill<float>(512, [](size_t) { return 1.0; });
    auto dst = b.room<float>(512);
    Sub(dst, x, y, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return static_cast<double>(i); });
}

EXAMPLE(mul_ramp, "Mul")
{
    Bench b(gm);
    auto x = b.fill<half>(512, ramp), y = b.fill<half>(512, [](size_t) { return 2.0; });
    auto dst = b.room<half>(512);
    Mul(dst, x, y, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return 2 * ramp(i); });
}

EXAMPLE(div_ramp, "Div")
{
    Bench b(gm);
    auto x = b.fill<half>(512, ramp), y = b.fill<half>(512, [](size_t) { return 2.0; });
    auto dst = b.room<half>(512);
    Div(dst, x, y, 128, 4, {1, 1, 1, 8, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return ramp(i) / 2; });
}

EXAMPLE(max_ramps, "Max")
{
    Bench b(gm);
    auto x = b.fill<half>(512, ramp), y = b.fill<half>(512, [](size_t i) { return 513 - static_cast<double>(i); });
    auto dst = b.room<half>(512);
    Max(dst, x, y, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return std::fmax(ramp(i), 513 - static_cast<double>(i)); });
}

EXAMPLE(min_ramps, "Min")
{
    Bench b(gm);
    auto x = b.fill<half>(512, ramp), y = b.fill<half>(512, [](size_t i) { return 513 - static_cast<double>(i); });
    auto dst = b.room<half>(512);
    uint64_t mask[2] = {UINT64_MAX, UINT64_MAX};
    Min(dst, x, y, mask, 4, {1, 1, 1, 8, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return std::fmin(ramp(i), 513 - static_cast<double>(i)); });
}

EXAMPLE(exp_half, "Exp")
{
    Bench b(gm);
    auto src = b.fill<half>(16, [](size_t i) { return static_cast<double>(i % 4); });
    auto dst = b.room<half>(16);
    Exp(dst, src, 16);
    expect(b.out(dst, 16), {1.0, 2.719, 7.391, 20.08}, 0.006);
}

EXAMPLE(exp_float, "Exp")
{
    Bench b(gm);
    auto src = b.fill<float>(64, [](size_t i) { return static_cast<double>(i) / 4 - 8; });
    auto dst = b.room<float>(64);
    Exp(dst, src, 64, 1, {1, 1, 8, 8});
    auto g = b.out(dst, 64);
    expect_each(g, 64, [](size_t i) { return std::exp(static_cast<double>(i) / 4 - 8); }, 2e-4);
}

EXAMPLE(ln_ramp, "Ln")
{
    Bench b(gm);
    auto src = b.fill<float>(512, ramp);
    auto dst = b.room<float>(512);
    Ln(dst, src, 512);
    expect(b.out(dst, 512), {0.0, 0.6931, 1.0986, 1.3863}, 1e-4);
}

EXAMPLE(sqrt_squares, "Sqrt")
{
    Bench b(gm);
    auto src = b.fill<float>(64, [](size_t i) { return ramp(i) * ramp(i); });
    auto dst = b.room<float>(64);
    Sqrt(dst, src, 64);
    expect_each(b.out(dst, 64), 64, ramp);
}

EXAMPLE(rsqrt_squares, "Rsqrt")
{
    Bench b(gm);
    auto src = b.fill<float>(64, [](size_t i) { return ramp(i) * ramp(i); });
    auto dst = b.room<float>(64);
    Rsqrt(dst, src, 64);
    expect_each(b.out(dst, 64), 64, [](size_t i) { return 1 / ramp(i); }, 1e-6);
}

EXAMPLE(reciprocal_powers, "Reciprocal")
{
    Bench b(gm);
    auto src = b.in<float>({1, 2, 4, 8, -2, 0.5, 16, 32});
    auto dst = b.room<float>(8);
    Reciprocal(dst, src, 8);
    expect(b.out(dst, 8), {1.0, 0.5, 0.25, 0.125, -0.5, 2.0, 0.0625, 0.03125});
}

EXAMPLE(relu_signs, "Relu")
{
    Bench b(gm);
    auto src = b.in<int32_t>({1, -2, 3, -4, 5, -6, 7, 0});
    auto dst = b.room<int32_t>(8);
    Relu(dst, src, 8);
    expect(b.out(dst, 8), {1, 0, 3, 0, 5, 0, 7, 0});
}

EXAMPLE(not_bits, "Not")
{
    Bench b(gm);
    auto src = b.in<int16_t>({0, 1, -1, 255, 0x5555, -32768, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0});
    auto dst = b.room<int16_t>(16);
    Not(dst, src, 16);
    expect(b.out(dst, 16), {-1, -2, 0, -256, -0x5556, 32767, -8, -9});
}

EXAMPLE(and_ramps, "And")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(512, ramp), y = b.fill<int16_t>(512, [](size_t i) { return 513 - static_cast<double>(i); });
    auto dst = b.room<int16_t>(512);
    And(dst, x, y, 512);
    auto g = b.out(dst, 512);
    expect(g, {1, 0, 3});
    expect_each(g, 512, [](size_t i) { return static_cast<double>((i + 1) & (513 - i)); });
}

EXAMPLE(or_ramps, "Or")
{
    Bench b(gm);
    auto x = b.fill<uint16_t>(512, ramp), y = b.fill<uint16_t>(512, [](size_t i) { return 513 - static_cast<double>(i); });
    auto dst = b.room<uint16_t>(512);
    Or(dst, x, y, 128, 4, {1, 1, 1, 8, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return static_cast<double>((i + 1) | (513 - i)); });
}

EXAMPLE(shift_left_two, "ShiftLeft")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(512, ramp);
    auto dst = b.room<int16_t>(512);
    int16_t scalar = 2;
    ShiftLeft(dst, src, scalar, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return 4 * ramp(i); });
}

// 1010101010101010 as a signed and an unsigned number, shifted by 1 and by 3.
EXAMPLE(shift_left_sign, "ShiftLeft")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(16, [](size_t) { return static_cast<int16_t>(0xaaaa); });
    auto logical = b.fill<uint16_t>(16, [](size_t) { return 0xaaaa; });
    auto one = b.room<int16_t>(16), three = b.room<int16_t>(16);
    auto plain = b.room<uint16_t>(16);
    ShiftLeft(one, src, static_cast<int16_t>(1), 16);
    ShiftLeft(three, src, static_cast<int16_t>(3), 16);
    ShiftLeft(plain, logical, static_cast<uint16_t>(1), 16);
    expect_each(b.out(one, 16), 16, [](size_t) { return static_cast<double>(static_cast<int16_t>(0xd554)); });
    expect_each(b.out(three, 16), 16, [](size_t) { return static_cast<double>(static_cast<int16_t>(0xd550)); });
    expect_each(b.out(plain, 16), 16, [](size_t) { return static_cast<double>(0x5554); });
}

EXAMPLE(shift_right_two, "ShiftRight")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(512, ramp);
    auto dst = b.room<int16_t>(512);
    ShiftRight(dst, src, static_cast<int16_t>(2), 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return std::floor(ramp(i) / 4); });
}

EXAMPLE(shift_right_sign, "ShiftRight")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(16, [](size_t) { return static_cast<int16_t>(0xaaaa); });
    auto logical = b.fill<uint16_t>(16, [](size_t) { return 0xaaaa; });
    auto one = b.room<int16_t>(16), three = b.room<int16_t>(16);
    auto plain = b.room<uint16_t>(16);
    ShiftRight(one, src, static_cast<int16_t>(1), 16);
    ShiftRight(three, src, static_cast<int16_t>(3), 16);
    ShiftRight(plain, logical, static_cast<uint16_t>(1), 16);
    expect_each(b.out(one, 16), 16, [](size_t) { return static_cast<double>(static_cast<int16_t>(0xd555)); });
    expect_each(b.out(three, 16), 16, [](size_t) { return static_cast<double>(static_cast<int16_t>(0xf555)); });
    expect_each(b.out(plain, 16), 16, [](size_t) { return static_cast<double>(0x5555); });
}

#if __NPU_ARCH__ == 2201
EXAMPLE(shift_right_round, "ShiftRight")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(128, [](size_t) { return 17; });
    auto dst = b.room<int16_t>(128);
    ShiftRight(dst, src, static_cast<int16_t>(5), 128, 1, {1, 1, 8, 8}, true);
    expect_each(b.out(dst, 128), 128, [](size_t) { return 1.0; });
}
#endif

EXAMPLE(adds_two, "Adds")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(512, ramp);
    auto dst = b.room<int16_t>(512);
    int16_t scalar = 2;
    Adds(dst, src, scalar, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return ramp(i) + 2; });
}

EXAMPLE(adds_lanes, "Adds")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(512, ramp);
    auto dst = b.room<int16_t>(512);
    uint64_t mask[2] = {UINT64_MAX, UINT64_MAX};
    int16_t scalar = 2;
    Adds(dst, src, scalar, mask, 4, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return ramp(i) + 2; });
}

EXAMPLE(muls_two, "Muls")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(512, ramp);
    auto dst = b.room<int16_t>(512);
    int16_t scalar = 2;
    uint64_t mask = 128;
    Muls(dst, src, scalar, mask, 4, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return ramp(i) * 2; });
}

EXAMPLE(maxs_two, "Maxs")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(512, ramp);
    auto dst = b.room<int16_t>(512);
    Maxs(dst, src, static_cast<int16_t>(2), 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return std::fmax(ramp(i), 2); });
}

EXAMPLE(mins_two, "Mins")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(512, ramp);
    auto dst = b.room<int16_t>(512);
    Mins(dst, src, static_cast<int16_t>(2), 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return std::fmin(ramp(i), 2); });
}

EXAMPLE(leaky_relu_numbers, "LeakyRelu")
{
    Bench b(gm);
    auto src = b.in<half>({-287, 246, -438, 177, 596, -950, -293, 322, 0, 0, 0, 0, 0, 0, 0, -900});
    auto dst = b.room<half>(16);
    half scalar = 0.001;
    LeakyRelu(dst, src, scalar, 16);
    expect(b.out(dst, 16), {-0.287, 246.0, -0.438, 177.0, 596.0, -0.950, -0.293, 322.0}, 5e-4);
}

EXAMPLE(axpy_half, "Axpy")
{
    Bench b(gm);
    auto src = b.fill<half>(512, ramp);
    auto dst = b.fill<half>(512, [](size_t) { return 0; });
    Axpy(dst, src, (half)2.0, 128, 4, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return 2 * ramp(i); });
}

EXAMPLE(axpy_half_to_float, "Axpy")
{
    Bench b(gm);
    auto src = b.fill<half>(512, ramp);
    auto dst = b.fill<float>(512, [](size_t) { return 0; });
    Axpy(dst, src, (half)2.0, 64, 8, {1, 1, 8, 4});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return 2 * ramp(i); });
}

EXAMPLE(mul_add_dst_half_to_float, "MulAddDst")
{
    Bench b(gm);
    auto x = b.fill<half>(256, ramp), y = b.fill<half>(256, [](size_t) { return 2; });
    auto dst = b.fill<float>(256, [](size_t) { return 1; });
    MulAddDst(dst, x, y, 64, 4, {1, 1, 1, 8, 4, 4});
    expect_each(b.out(dst, 256), 256, [](size_t i) { return 2 * ramp(i) + 1; });
}

EXAMPLE(mul_add_dst_count, "MulAddDst")
{
    Bench b(gm);
    auto x = b.fill<float>(100, ramp), y = b.fill<float>(100, [](size_t) { return 3; });
    auto dst = b.fill<float>(100, ramp);
    MulAddDst(dst, x, y, 100);
    expect_each(b.out(dst, 100), 100, [](size_t i) { return 4 * ramp(i); });
}

EXAMPLE(fused_mul_add, "FusedMulAdd")
{
    Bench b(gm);
    auto x = b.fill<float>(100, ramp), y = b.fill<float>(100, [](size_t) { return 3; });
    auto dst = b.fill<float>(100, [](size_t) { return 2; });
    FusedMulAdd(dst, x, y, 100);
    expect_each(b.out(dst, 100), 100, [](size_t i) { return 2 * ramp(i) + 3; });
}

EXAMPLE(mul_add_relu, "MulAddRelu")
{
    Bench b(gm);
    // The first numbers of the page's long rows are not repeated there in full; the formula is.
    auto x = b.in<half>({1, -2, 3, -4, 5, -6, 7, -8, 1, 1, 1, 1, 1, 1, 1, 1});
    auto y = b.in<half>({-4, 5, -4, 5, -4, 5, -4, 20, 0, 0, 0, 0, 0, 0, 0, 0});
    auto dst = b.fill<half>(16, [](size_t) { return 2; });
    MulAddRelu(dst, x, y, 16);
    expect(b.out(dst, 16), {0, 1, 2, 0, 6, 0, 10, 4});
}

EXAMPLE(add_relu, "AddRelu")
{
    Bench b(gm);
    auto x = b.in<half>({1, -2, 3, -6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), y = b.in<half>({1, 3, -4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    auto dst = b.room<half>(16);
    AddRelu(dst, x, y, 16);
    expect(b.out(dst, 16), {2, 1, 0, 0});
}

EXAMPLE(sub_relu, "SubRelu")
{
    Bench b(gm);
    auto x = b.in<half>({1, 2, 3, 512, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), y = b.in<half>({0, 1, 4, 513, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    auto dst = b.room<half>(16);
    SubRelu(dst, x, y, 16);
    expect(b.out(dst, 16), {1, 1, 0, 0});
}

EXAMPLE(add_relu_cast, "AddReluCast")
{
    Bench b(gm);
    auto x = b.fill<half>(512, [](size_t i) { return i == 0 ? 1.0 : i == 1 ? 1.0 : i == 2 ? 3.0 : 512.0; });
    auto y = b.fill<half>(512, [](size_t i) { return i == 0 ? 0.0 : i == 1 ? 0.5 : i == 2 ? -4.0 : -513.0; });
    auto dst = b.room<int8_t>(512);
    AddReluCast(dst, x, y, 128, 4, {1, 1, 1, 4, 8, 8});
    expect(b.out(dst, 512), {1, 2, 0, 0});
}

EXAMPLE(sub_relu_cast, "SubReluCast")
{
    Bench b(gm);
    auto x = b.in<float>({1, 2, 3, 512, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), y = b.in<float>({0, 0.5, 4, 513, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    auto dst = b.room<half>(16);
    SubReluCast(dst, x, y, 16);
    expect(b.out(dst, 16), {1.0, 1.5, 0.0, 0.0});
}

EXAMPLE(mul_cast, "MulCast")
{
    Bench b(gm);
    auto x = b.in<half>({1, -2, 3, -6, 100, -100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    auto y = b.in<half>({1, 3, -4, 5, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    auto dst = b.room<int8_t>(16);
    MulCast(dst, x, y, 16);
    expect(b.out(dst, 16), {1, -6, -12, -30, 127, -128});
}

EXAMPLE(add_deq_relu, "AddDeqRelu")
{
    Bench b(gm);
    auto x = b.in<int32_t>({70, 36, 43, 54, 28, 49, 27, 82, 95, -9, -100, 0, 0, 0, 0, 0});
    auto y = b.in<int32_t>({19, 33, 34, 50, 42, 2, 97, 93, 99, 3, 3, 0, 0, 0, 0, 0});
    auto dst = b.room<half>(16);
    half scale = 0.1;
    SetDeqScale(scale);
    AddDeqRelu(dst, x, y, 16);
    expect(b.out(dst, 16), {8.9, 6.9, 7.7, 10.4, 7.0, 5.1, 12.4, 17.5, 19.4, 0.0, 0.0}, 0.02);
}

// A mask of single bits, blocks apart: only what takes part changes.
EXAMPLE(adds_pattern_and_gaps, "掩码")
{
    Bench b(gm);
    auto src = b.fill<half>(256, ramp);
    auto dst = b.fill<half>(256, [](size_t) { return -1; });
    uint64_t mask[2] = {0x69A569A569A569A5, 0x69A569A569A569A5};
    Adds(dst, src, (half)1.0, mask, 1, {2, 2, 16, 16});
    expect_each(b.out(dst, 256), 256, [](size_t i) {
        size_t block = i / 16, lane = block / 2 * 16 + i % 16;
        bool on = block % 2 == 0 && ((0x69A5u >> (lane % 16)) & 1);
        return on ? ramp(i) + 1 : -1.0;
    });
}

EXAMPLE(adds_lanes_and_gaps, "掩码")
{
    Bench b(gm);
    auto src = b.fill<half>(256, ramp);
    auto dst = b.fill<half>(256, [](size_t) { return -1; });
    Adds(dst, src, (half)1.0, 100, 1, {2, 2, 16, 16});
    expect_each(b.out(dst, 256), 256, [](size_t i) {
        size_t block = i / 16, lane = block / 2 * 16 + i % 16;
        return block % 2 == 0 && lane < 100 ? ramp(i) + 1 : -1.0;
    });
}

// Counter mode: 130 elements in blocks that are one block apart.
EXAMPLE(adds_counter, "掩码")
{
    Bench b(gm);
    auto src = b.fill<half>(512, ramp);
    auto dst = b.fill<half>(512, [](size_t) { return -1; });
    SetMaskCount();
    uint64_t mask[2] = {130, 0};
    Adds<half, true>(dst, src, (half)1.0, mask, 1, {2, 2, 16, 16});
    SetMaskNorm();
    ResetMask();
    expect_each(b.out(dst, 512), 512, [](size_t i) {
        size_t block = i / 16, lane = block / 2 * 16 + i % 16;
        return block % 2 == 0 && lane < 130 ? ramp(i) + 1 : -1.0;
    });
}

EXAMPLE(adds_counter_register, "掩码")
{
    Bench b(gm);
    auto src = b.fill<half>(512, ramp);
    auto dst = b.fill<half>(512, [](size_t) { return -1; });
    SetMaskCount();
    SetVectorMask<half, MaskMode::COUNTER>(130);
    Adds<half, false>(dst, src, (half)1.0, MASK_PLACEHOLDER, 1, {2, 2, 16, 16});
    SetMaskNorm();
    ResetMask();
    expect_each(b.out(dst, 512), 512, [](size_t i) {
        size_t block = i / 16, lane = block / 2 * 16 + i % 16;
        return block % 2 == 0 && lane < 130 ? ramp(i) + 1 : -1.0;
    });
}

EXAMPLE(adds_normal_register, "SetVectorMask")
{
    Bench b(gm);
    auto src = b.fill<half>(256, ramp);
    auto dst = b.fill<half>(256, [](size_t) { return -1; });
    SetMaskNorm();
    SetVectorMask<half, MaskMode::NORMAL>(0x69A569A569A569A5, 0x69A569A569A569A5);
    Adds<half, false>(dst, src, (half)1.0, MASK_PLACEHOLDER, 2, {1, 1, 8, 8});
    ResetMask();
    expect_each(b.out(dst, 256), 256, [](size_t i) { return ((0x69A5u >> (i % 16)) & 1) ? ramp(i) + 1 : -1.0; });
}

EXAMPLE(three_calls_one_mask, "SetVectorMask")
{
    Bench b(gm);
    auto dst = b.fill<half>(128, [](size_t) { return 0; }), x = b.fill<half>(128, ramp), y = b.fill<half>(128, [](size_t) { return 2; });
    int32_t len = 128;
    SetMaskCount();
    SetVectorMask<half, MaskMode::COUNTER>(len);
    Add<half, false>(dst, x, y, MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
    PipeBarrier<PIPE_V>();
    Sub<half, false>(x, dst, y, MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
    PipeBarrier<PIPE_V>();
    Mul<half, false>(y, dst, x, MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
    SetMaskNorm();
    ResetMask();
    expect_each(b.out(y, 128), 128, [](size_t i) { return static_cast<double>(static_cast<float>(half((ramp(i) + 2) * ramp(i)))); });
}

#if __NPU_ARCH__ == 2201
EXAMPLE(counter_register_and_count, "SetVectorMask")
{
    Bench b(gm);
    auto src = b.fill<half>(256, ramp);
    auto dst = b.fill<half>(256, [](size_t) { return -1; });
    SetMaskCount();
    SetVectorMask<half, MaskMode::COUNTER>(200);
    Muls<half, false>(dst, src, (half)2, 1);
    SetMaskNorm();
    ResetMask();
    expect_each(b.out(dst, 256), 256, [](size_t i) { return i < 200 ? 2 * ramp(i) : -1.0; });
}
#endif

// A row broadcast: the block stride of the second source is 0.
EXAMPLE(mul_row_broadcast, "高维切分")
{
    Bench b(gm);
    auto x = b.fill<float>(128, ramp), y = b.fill<float>(16, [](size_t i) { return i < 8 ? 2 : 3; });
    auto dst = b.room<float>(128);
    Mul(dst, x, y, 64, 2, {1, 1, 0, 8, 8, 1});
    expect_each(b.out(dst, 128), 128, [](size_t i) { return ramp(i) * (i < 64 ? 2 : 3); });
}

// What ends with one repeat on top of the other: dst and src1 are one place with a repeat stride of 0.
EXAMPLE(add_into_one_repeat, "通用说明和约束")
{
    Bench b(gm);
    auto x = b.fill<float>(256, [](size_t i) { return static_cast<double>(i / 64); });
    auto sum = b.fill<float>(64, [](size_t) { return 10; });
    Add(sum, x, sum, 64, 4, {1, 1, 1, 0, 8, 0});
    expect_each(b.out(sum, 64), 64, [](size_t) { return 16.0; });
}

EXAMPLE(nothing_to_do, "Add")
{
    Bench b(gm);
    auto x = b.fill<float>(64, ramp);
    auto dst = b.fill<float>(64, [](size_t) { return 7; });
#if __NPU_ARCH__ == 2201
    Add(dst, x, x, 0);
    Add(dst, x, x, 64, 0, {1, 1, 1, 8, 8, 8});
#else
    (void)x;
#endif
    expect_each(b.out(dst, 64), 64, [](size_t) { return 7.0; });
}

// Values of the element types as scalars of a kernel.
EXAMPLE(half_as_a_number, "内置数据类型")
{
    (void)gm;
    auto check = [](bool good, ascend_twin::Site site = ascend_twin::Site::here()) {
        if (!good) {
            ascend_twin::fail(ascend_twin::Rule::Assert, "half", nullptr, site, "another value");
        }
    };
    constexpr half a = 1.75;
    static_assert(a.bits == 0x3f00, "0 01111 1100000000");
    half b = 2, sum = a + b, less = -a;
    check(sum.bits == 0x4380 && less.bits == 0xbf00);
    check(a * b == 3.5f && a + 1 == 2.75f && b / 4 == 0.5f && a < b && b >= 2 && a != b);
    check(static_cast<int32_t>(a) == 1 && static_cast<float>(half(65520.0f)) == INFINITY && half(6e-8f).bits == 1);
    b += 0.5f;
    check(b == 2.5f);
    bfloat16_t c = 1.75f;
    check(c.bits == 0x3fe0 && static_cast<float>(c) + 1 == 2.75f);
    check(static_cast<float>(fp8_e5m2_t(1.75 * 32768)) == 57344.0f && fp8_e4m3fn_t(-0.001953125 * 1).bits == 0x81);
    check(static_cast<float>(hifloat8_t(-14)) == -14.0f && fp8_e8m0_t(8).bits == 130);
}

EXAMPLE(operators, "Add")
{
    Bench b(gm);
    auto x = b.fill<float>(512, ramp), y = b.fill<float>(512, [](size_t i) { return i + 513.0; });
    auto sum = b.room<float>(512), difference = b.room<float>(512), product = b.room<float>(512), ratio = b.room<float>(512);
    auto less = b.room<uint8_t>(64);
    sum = x + y;
    difference = x - y;
    product = x * y;
    ratio = y / x;
    less = x < y;
    expect_each(b.out(sum, 512), 512, [](size_t i) { return 514.0 + 2 * static_cast<double>(i); });
    expect_each(b.out(difference, 512), 512, [](size_t) { return -512.0; });
    expect_each(b.out(product, 512), 512, [](size_t i) { return ramp(i) * (ramp(i) + 512); });
    expect_each(b.out(ratio, 512), 512, [](size_t i) { return (ramp(i) + 512) / ramp(i); }, 1e-4);
    expect_each(b.out(less, 64), 64, [](size_t) { return 255.0; });
}

#if __NPU_ARCH__ == 3510
EXAMPLE(add_bf16, "Add")
{
    Bench b(gm);
    auto x = b.fill<bfloat16_t>(128, ramp), y = b.fill<bfloat16_t>(128, [](size_t) { return 1; });
    auto dst = b.room<bfloat16_t>(128);
    Add(dst, x, y, 128);
    expect_each(b.out(dst, 128), 128, [](size_t i) { return ramp(i) + 1; });
}

EXAMPLE(neg_int64, "Neg(ISASI)")
{
    Bench b(gm);
    auto src = b.fill<int64_t>(512, ramp);
    auto dst = b.room<int64_t>(512);
    Neg(dst, src, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return -ramp(i); });
}

EXAMPLE(mull, "Mull(ISASI)")
{
    Bench b(gm);
    auto x = b.in<int32_t>({-2039520159, 95829766, -1522913829, 0, 0, 0, 0, 0});
    auto y = b.in<int32_t>({-1791575569, -291976917, -1973597151, 0, 0, 0, 0, 0});
    auto low = b.room<int32_t>(8), high = b.room<int32_t>(8);
    Mull(low, high, x, y, 8);
    expect(b.out(low, 8), {-1560359025, 212356098, 1219226939});
    expect(b.out(high, 8), {850752575, -6514620, 699800065});
}

EXAMPLE(prelu, "Prelu(ISASI)")
{
    Bench b(gm);
    auto x = b.in<float>({1, -2, -3, -512, 0, 0, 0, 0}), y = b.in<float>({513, -514, 515, 1, 0, 0, 0, 0});
    auto dst = b.room<float>(8);
    Prelu(dst, x, y, 8);
    // The third number of the page, -1045, is not -3 * 515.
    expect(b.out(dst, 8), {1, 1028, -1545, -512});
}

EXAMPLE(abs_sub, "AbsSub(ISASI)")
{
    Bench b(gm);
    auto x = b.fill<float>(512, ramp), y = b.fill<float>(512, [](size_t i) { return i + 513.0; });
    auto dst = b.room<float>(512);
    AbsSub(dst, x, y, 512);
    expect_each(b.out(dst, 512), 512, [](size_t) { return 512.0; });
}

EXAMPLE(exp_sub, "ExpSub(ISASI)")
{
    Bench b(gm);
    auto x = b.fill<half>(64, [](size_t i) { return static_cast<double>(i % 4); }), y = b.fill<half>(64, [](size_t) { return 1; });
    auto dst = b.room<float>(64);
    ExpSub(dst, x, y, 64);
    expect_each(b.out(dst, 64), 64, [](size_t i) { return std::exp(static_cast<double>(i % 4) - 1); }, 1e-6);
}

EXAMPLE(adds_single_element, "Adds（灵活标量位置）")
{
    Bench b(gm);
    auto x = b.fill<half>(512, ramp), y = b.fill<half>(512, ramp);
    auto after = b.room<half>(512), first = b.room<half>(512);
    static constexpr BinaryConfig config = {0};
    Adds(after, x, y[0], 512);
    Adds<BinaryDefaultType, true, config>(first, x[0], y, 128, 4, {1, 1, 8, 8});
    expect_each(b.out(after, 512), 512, [](size_t i) { return ramp(i) + 1; });
    expect_each(b.out(first, 512), 512, [](size_t i) { return ramp(i) + 1; });
}

EXAMPLE(divs_both_sides, "Divs（灵活标量位置）")
{
    Bench b(gm);
    auto x = b.fill<float>(512, [](size_t i) { return 2 * ramp(i); });
    auto two = b.fill<float>(8, [](size_t) { return 2; });
    auto after = b.room<float>(512), first = b.room<float>(512);
    static constexpr BinaryConfig config = {0};
    Divs(after, x, two[0], 512);
    Divs<BinaryDefaultType, true, config>(first, two[0], x, 512);
    expect_each(b.out(after, 512), 512, ramp);
    expect_each(b.out(first, 512), 512, [](size_t i) { return 1 / ramp(i); }, 1e-7);
}

EXAMPLE(subs_both_sides, "Subs（灵活标量位置）")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(512, ramp);
    auto after = b.room<int16_t>(512), first = b.room<int16_t>(512);
    Subs(after, x, static_cast<int16_t>(1), 512);
    Subs(first, static_cast<int16_t>(1), x, 512);
    expect_each(b.out(after, 512), 512, [](size_t i) { return static_cast<double>(i); });
    expect_each(b.out(first, 512), 512, [](size_t i) { return -static_cast<double>(i); });
}

EXAMPLE(ors_single_element, "Ors")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(512, ramp), one = b.fill<int16_t>(16, [](size_t) { return 1; });
    auto dst = b.room<int16_t>(512);
    Ors(dst, x, one[0], 128, 4, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, [](size_t i) { return static_cast<double>((i + 1) | 1); });
}

EXAMPLE(muls_cast, "MulsCast(ISASI)")
{
    Bench b(gm);
    auto x = b.in<float>({6, 5, 11, 0, 0, 0, 0, 0}), two = b.in<float>({2, 2, 2, 2, 2, 2, 2, 2});
    auto dst = b.room<half>(16);
    MulsCast(dst, x, two[0], 8);
    expect(b.out(dst, 8), {12, 10, 22});
}

EXAMPLE(shift_left_by_tensor, "ShiftLeft（左移位数为Tensor）")
{
    Bench b(gm);
    auto x = b.fill<int32_t>(512, ramp), s = b.fill<int32_t>(512, [](size_t) { return 2; });
    auto left = b.room<int32_t>(512), right = b.room<int32_t>(512);
    ShiftLeft(left, x, s, 512);
    ShiftRight(right, x, s, 512);
    expect_each(b.out(left, 512), 512, [](size_t i) { return 4 * ramp(i); });
    expect_each(b.out(right, 512), 512, [](size_t i) { return std::floor(ramp(i) / 4); });
}
#endif

EXAMPLES_END
