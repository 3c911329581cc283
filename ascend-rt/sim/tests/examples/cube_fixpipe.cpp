// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Fixpipe: where results go, and what they become on the way.

#include "peek.h"

using namespace AscendC;
using example::finish;

namespace {

double by_index(size_t i) { return static_cast<double>(i); }
double small(size_t i) { return static_cast<double>(i % 100) - 50; }
double minus(size_t) { return -1; }

template <class T> LocalTensor<T> l0c(uint32_t count) { return LocalTensor<T>(TPosition::CO1, 0, count); }

// L0C as `rows` rows in columns of 16: element (r, c) is at c / 16 * rows * 16 + r * 16 + c % 16.
size_t at(size_t r, size_t c, size_t rows) { return c / 16 * rows * 16 + r * 16 + c % 16; }

uint64_t factor(float f, int offset = 0, bool is_signed = true)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits | static_cast<uint64_t>(offset & 0x1ff) << 37 | static_cast<uint64_t>(is_signed) << 46;
}

#if __NPU_ARCH__ == 3510
template <CO2Layout layout = CO2Layout::ROW_MAJOR> using Params = FixpipeParamsArch3510<layout>;
#else
template <CO2Layout layout = CO2Layout::ROW_MAJOR> using Params = FixpipeParamsV220;
#endif

template <CO2Layout layout = CO2Layout::ROW_MAJOR>
Params<layout> sizes(uint32_t m, uint32_t n, uint32_t rows, uint32_t stride, QuantMode_t mode = QuantMode_t::NoQuant, bool relu = false)
{
    Params<layout> p;
    p.mSize = m;
    p.nSize = n;
    p.srcStride = rows;
    p.dstStride = stride;
    p.quantPre = mode;
    p.reluEn = relu;
    return p;
}

// One row of 16 results of value(i), converted to T by `mode`.
template <class T, class S, class W>
void converted(example::Scratch &gm, QuantMode_t mode, uint64_t scalar, bool relu, double (*value)(size_t), W want)
{
    auto c = l0c<S>(256);
    auto out = gm.out<T>(256);
    example::poke(c, 256, value);
    finish();
    auto p = sizes(16, 16, 16, 16, mode, relu);
    p.deqScalar = scalar;
    Fixpipe(out, c, p);
    finish();
    expect_each(out, 256, [&](size_t i) { return want(value(i)); });
}

} // namespace

// ---- layouts

CUBE_EXAMPLE(to_rows, "NZ2ND")
{
    // Two matrices of 48 x 32 that lie 16 fractals apart.
    auto c = l0c<float>(16 * 256 + 2 * 64 * 16);
    auto out = gm.out<float>(4096 + 48 * 64);
    example::poke(c, 16 * 256 + 2 * 64 * 16, by_index);
    finish();
    auto p = sizes(48, 32, 64, 64);
#if __NPU_ARCH__ == 3510
    p.params = {2, 256, 4096};
#else
    p.ndNum = 2;
    p.srcNdStride = 16;
    p.dstNdStride = 4096;
#endif
    Fixpipe(out, c, p);
    finish();
    expect_each(out, 4096 + 48 * 64, [](size_t i) {
        const size_t x = i / 4096, r = i % 4096 / 64, n = i % 64;
        return r < 48 && n < 32 ? static_cast<double>(x * 4096 + at(r, n, 64)) : 0.0;
    });
}

CUBE_EXAMPLE(to_rows_tail, "Fixpipe（L0C到GM数据搬运）")
{
    auto c = l0c<float>(48 * 64);
    auto out = gm.out<float>(40 * 50);
    example::poke(c, 48 * 64, by_index);
    finish();
    Fixpipe(out, c, sizes(40, 50, 48, 50));
    finish();
    expect_each(out, 40 * 50, [](size_t i) { return at(i / 50, i % 50, 48); });
}

CUBE_EXAMPLE(to_nz, "NZ2NZ")
{
    auto c = l0c<float>(3 * 64 * 16);
    auto out = gm.out<half>(3 * 640);
    example::poke(c, 3 * 64 * 16, small);
    finish();
    // 40 rows from column to column: of 32 bytes on 2201, in elements on 3510.
    const uint32_t stride = __NPU_ARCH__ == 3510 ? 40 * 16 : 40;
    Fixpipe<half, float, CFG_NZ>(out, c, sizes<CO2Layout::NZ>(24, 48, 64, stride, QuantMode_t::F322F16));
    finish();
    expect_each(out, 3 * 640, [](size_t i) {
        const size_t b = i / 640, r = i % 640 / 16;
        return r < 24 ? small(b * 1024 + r * 16 + i % 16) : 0.0;
    });
}

CUBE_EXAMPLE(split_channels, "F32-Channel-Split")
{
    auto c = l0c<float>(64 * 32);
    auto out = gm.out<float>(64 * 32);
    example::poke(c, 64 * 32, by_index);
    finish();
    auto p = sizes<CO2Layout::NZ>(64, 32, 64, __NPU_ARCH__ == 3510 ? 64 * 8 : 64);
    p.isChannelSplit = true;
    Fixpipe<float, float, CFG_NZ>(out, c, p);
    finish();
    expect_each(out, 64 * 32, [](size_t i) { return at(i % 512 / 8, i / 512 * 8 + i % 8, 64); });
}

CUBE_EXAMPLE(split_channels_24, "F32-Channel-Split")
{
    auto c = l0c<float>(64 * 32);
    auto out = gm.out<float>(64 * 24);
    example::poke(c, 64 * 32, by_index);
    finish();
    auto p = sizes<CO2Layout::NZ>(64, 24, 64, __NPU_ARCH__ == 3510 ? 64 * 8 : 64);
    p.isChannelSplit = true;
    Fixpipe<float, float, CFG_NZ>(out, c, p);
    finish();
    expect_each(out, 64 * 24, [](size_t i) { return at(i % 512 / 8, i / 512 * 8 + i % 8, 64); });
}

CUBE_EXAMPLE(merge_channels, "Int8-Channel-Merge")
{
    // 32 x 48: the first 32 columns become one block, the last 16 stay one.
    auto c = l0c<float>(32 * 48);
    auto out = gm.out<int8_t>(32 * 48);
    example::poke(c, 32 * 48, small);
    finish();
    auto p = sizes<CO2Layout::NZ>(32, 48, 32, __NPU_ARCH__ == 3510 ? 32 * 32 : 32, QuantMode_t::QF322B8_PRE);
    p.deqScalar = factor(1);
    Fixpipe<int8_t, float, CFG_NZ>(out, c, p);
    finish();
    expect_each(out, 32 * 48, [](size_t i) { return i < 1024 ? small(at(i / 32, i % 32, 32)) : small(at((i - 1024) / 16, 32 + i % 16, 32)); });
}

CUBE_EXAMPLE(nz_of_17_columns, "!range")
{
    auto c = l0c<float>(512);
    example::poke(c, 512, by_index);
    finish();
    auto out = gm.out<float>(512);
    Fixpipe<float, float, CFG_NZ>(out, c, sizes<CO2Layout::NZ>(16, 17, 16, 32));
}

CUBE_EXAMPLE(nothing_to_write, "Fixpipe（L0C到GM数据搬运）")
{
    auto c = l0c<float>(256);
    auto out = gm.out<float>(256);
    Fixpipe(out, c, sizes(0, 16, 16, 16));
    finish();
    expect_each(out, 256, [](size_t) { return 0; });
}

#if __NPU_ARCH__ == 3510
CUBE_EXAMPLE(to_columns, "NZ2DN")
{
    auto c = l0c<float>(240 * 16 + 2 * 80 * 16);
    auto out = gm.out<float>(2 * 3840);
    example::poke(c, 240 * 16 + 2 * 80 * 16, by_index);
    finish();
    auto p = sizes<CO2Layout::COLUMN_MAJOR>(48, 32, 80, 80);
    p.params.dnNum = 2;
    p.params.srcNzMatrixStride = 240;
    p.params.dstDnMatrixStride = 3840;
    p.params.srcNzC0Stride = 1;
    Fixpipe<float, float, CFG_COLUMN_MAJOR>(out, c, p);
    finish();
    expect_each(out, 3840 + 32 * 80, [](size_t i) {
        const size_t x = i / 3840, n = i % 3840 / 80, r = i % 80;
        return n < 32 && r < 48 ? static_cast<double>(x * 3840 + at(r, n, 80)) : 0.0;
    });
}

CUBE_EXAMPLE(to_columns_every_second_row, "Fixpipe（L0C到UB数据搬运）")
{
    auto c = l0c<float>(240 * 16 + 2 * 80 * 16);
    auto out = gm.out<float>(2880 + 24 * 60);
    example::poke(c, 240 * 16 + 2 * 80 * 16, by_index);
    finish();
    auto p = sizes<CO2Layout::COLUMN_MAJOR>(24, 24, 80, 60);
    p.params = {2, 240, 48 * 60, 2};
    Fixpipe<float, float, CFG_COLUMN_MAJOR>(out, c, p);
    finish();
    expect_each(out, 2880 + 24 * 60, [](size_t i) {
        const size_t x = i / 2880, n = i % 2880 / 60, r = i % 60;
        return n < 24 && r < 24 ? static_cast<double>(x * 3840 + at(2 * r, n, 80)) : 0.0;
    });
}
#else
CUBE_EXAMPLE(columns_of_an_old_chip, "!usage")
{
    auto c = l0c<float>(256);
    auto out = gm.out<float>(256);
    Fixpipe<float, float, CFG_COLUMN_MAJOR>(out, c, sizes(16, 16, 16, 16));
}
CUBE_EXAMPLE(float_to_l1_of_an_old_chip, "!quant")
{
    LocalTensor<float> a(TPosition::A1, 0, 256);
    Fixpipe<float, float, CFG_NZ>(a, l0c<float>(256), sizes(16, 16, 16, 16));
}
CUBE_EXAMPLE(l0c_to_ub_of_an_old_chip, "!usage")
{
    LocalTensor<float> a(TPosition::VECIN, 0, 256);
    Fixpipe(a, l0c<float>(256), sizes(16, 16, 16, 16));
}
#endif

CUBE_EXAMPLE(to_l1, "Fixpipe（L0C到L1数据搬运）")
{
    auto c = l0c<float>(48 * 32);
    LocalTensor<half> a(TPosition::A1, 0, 48 * 32);
    auto out = gm.out<half>(48 * 32);
    example::poke(c, 48 * 32, small);
    example::poke(a, 48 * 32, minus);
    finish();
    const uint32_t stride = __NPU_ARCH__ == 3510 ? 48 * 16 : 48;
    Fixpipe<half, float, CFG_NZ>(a, c, sizes<CO2Layout::NZ>(40, 32, 48, stride, QuantMode_t::F322F16));
    finish();
    example::peek(out, a, 48 * 32);
    finish();
    expect_each(out, 48 * 32, [](size_t i) { return i % 768 / 16 < 40 ? small(i) : -1.0; });
}

CUBE_EXAMPLE(bytes_to_l1, "Fixpipe（L0C到L1数据搬运）")
{
    auto c = l0c<float>(32 * 64);
    LocalTensor<int8_t> a(TPosition::A1, 0, 32 * 64);
    auto out = gm.out<int8_t>(32 * 64);
    example::poke(c, 32 * 64, small);
    finish();
    auto p = sizes<CO2Layout::NZ>(32, 64, 32, __NPU_ARCH__ == 3510 ? 32 * 32 : 32, QuantMode_t::QF322B8_PRE);
    p.deqScalar = factor(2);
    Fixpipe<int8_t, float, CFG_NZ>(a, c, p);
    finish();
    example::peek(out, a, 32 * 64);
    finish();
    expect_each(out, 32 * 64, [](size_t i) { return 2 * small(at(i % 1024 / 32, i / 1024 * 32 + i % 32, 32)); });
}

// ---- conversions

CUBE_EXAMPLE(keeps_floats, "随路量化") { converted<float, float>(gm, QuantMode_t::NoQuant, 0, false, small, [](double v) { return v; }); }
CUBE_EXAMPLE(keeps_integers, "随路量化") { converted<int32_t, int32_t>(gm, QuantMode_t::NoQuant, 0, false, small, [](double v) { return v; }); }
CUBE_EXAMPLE(relu, "随路ReLU") { converted<float, float>(gm, QuantMode_t::NoQuant, 0, true, small, [](double v) { return v < 0 ? 0 : v; }); }
CUBE_EXAMPLE(relu_of_integers, "随路ReLU")
{
    converted<int32_t, int32_t>(gm, QuantMode_t::NoQuant, 0, true, small, [](double v) { return v < 0 ? 0 : v; });
}
CUBE_EXAMPLE(rounds_to_half, "随路量化")
{
    // 2048 + i is a tie for odd i: to even.
    converted<half, float>(gm, QuantMode_t::F322F16, 0, false, [](size_t i) { return 2048.0 + static_cast<double>(i % 4); },
                           [](double v) { return v == 2049 ? 2048.0 : v == 2051 ? 2052.0 : v; });
}
CUBE_EXAMPLE(rounds_to_bfloat16, "随路量化")
{
    converted<bfloat16_t, float>(gm, QuantMode_t::F322BF16, 0, true, [](size_t i) { return static_cast<double>(i % 4) + 256; },
                                 [](double v) { return v == 257 ? 256.0 : v == 259 ? 260.0 : v; });
}
CUBE_EXAMPLE(float_to_bytes, "随路量化与随路ReLU场景组合")
{
    converted<int8_t, float>(gm, QuantMode_t::QF322B8_PRE, factor(2, 3), false, [](size_t i) { return static_cast<double>(i) / 4 - 30; },
                             [](double v) {
                                 const double q = std::nearbyint(v * 2) + 3;
                                 return q > 127 ? 127 : q < -128 ? -128 : q;
                             });
}
CUBE_EXAMPLE(float_to_bytes_in_two_steps, "随路量化与随路ReLU场景组合")
{
    // Nine bits first, then the offset, then eight: 300 becomes 255 - 200.
    converted<int8_t, float>(gm, QuantMode_t::QF322B8_PRE, factor(1, -200), false, [](size_t i) { return 300.0 + static_cast<double>(i); },
                             [](double) { return 55; });
}
CUBE_EXAMPLE(float_to_unsigned_bytes, "随路量化与随路ReLU场景组合")
{
    converted<uint8_t, float>(gm, QuantMode_t::QF322B8_PRE, factor(4, 0, false), false, small,
                              [](double v) { return v * 4 < 0 ? 0 : v * 4 > 255 ? 255 : v * 4; });
}
CUBE_EXAMPLE(relu_before_offset, "随路量化与随路ReLU场景组合")
{
    converted<int8_t, float>(gm, QuantMode_t::QF322B8_PRE, factor(1, 5), true, small, [](double v) { return v < 0 ? 5 : v + 5; });
}
CUBE_EXAMPLE(integers_to_bytes, "随路量化与随路ReLU场景组合")
{
    converted<int8_t, int32_t>(gm, QuantMode_t::REQ8, factor(0.5f), false, small, [](double v) { return std::nearbyint(v / 2); });
}
#if __NPU_ARCH__ == 2201
CUBE_EXAMPLE(integers_shifted_first, "随路量化")
{
    // Bits 32 to 35 hold the shift less one, bit 36 switches it on.
    converted<int8_t, int32_t>(gm, QuantMode_t::REQ8, factor(1) | 3ull << 32 | 1ull << 36, false,
                               [](size_t i) { return static_cast<double>(i) * 15 - 2000; }, [](double v) { return std::floor(v / 16); });
}
#endif
CUBE_EXAMPLE(integers_to_half, "随路量化与随路ReLU场景组合")
{
    converted<half, int32_t>(gm, QuantMode_t::DEQF16, factor(0.25f), false, small, [](double v) { return v / 4; });
}
CUBE_EXAMPLE(ten_bits_of_mantissa, "随路量化")
{
    // The factor 1 + 2^-11 has no bit of its own left.
    converted<half, int32_t>(gm, QuantMode_t::DEQF16, factor(1 + 1.0f / 2048), false, small, [](double v) { return v; });
}
CUBE_EXAMPLE(factor_that_is_infinite, "!range")
{
    auto c = l0c<int32_t>(256);
    auto out = gm.out<half>(256);
    auto p = sizes(16, 16, 16, 16, QuantMode_t::DEQF16);
    p.deqScalar = 0x7f800000;
    Fixpipe(out, c, p);
}
CUBE_EXAMPLE(infinity_stays, "Fixpipe（L0C到GM数据搬运）")
{
    converted<half, float>(gm, QuantMode_t::F322F16, 0, false, [](size_t) { return 1e6; }, [](double) { return HUGE_VAL; });
}
CUBE_EXAMPLE(infinity_saturates, "Fixpipe（L0C到GM数据搬运）")
{
    ascend_twin::state().ctrl &= ~(1ull << 48);
    converted<half, float>(gm, QuantMode_t::F322F16, 0, false, [](size_t) { return 1e6; }, [](double) { return 65504; });
    ascend_twin::state().ctrl |= 1ull << 48;
}

#if __NPU_ARCH__ == 3510
CUBE_EXAMPLE(float_to_e4m3, "随路量化")
{
    converted<fp8_e4m3fn_t, float>(gm, QuantMode_t::QF322FP8_PRE, factor(2), false, [](size_t i) { return static_cast<double>(i % 8) - 4; },
                                   [](double v) { return 2 * v; });
}
CUBE_EXAMPLE(float_to_hif8, "随路量化")
{
    converted<hifloat8_t, float>(gm, QuantMode_t::QF322HIF8_PRE, factor(0.5f), false, [](size_t i) { return static_cast<double>(i % 8) * 2 - 8; },
                                 [](double v) { return v / 2; });
}
CUBE_EXAMPLE(float_to_hif8_hybrid, "随路量化")
{
    converted<hifloat8_t, float>(gm, QuantMode_t::QF322HIF8_PRE_HYBRID, factor(0.5f), false,
                                 [](size_t i) { return static_cast<double>(i % 8) * 2 - 8; }, [](double v) { return v / 2; });
}
CUBE_EXAMPLE(integers_to_bfloat16, "随路量化")
{
    converted<bfloat16_t, int32_t>(gm, QuantMode_t::QS322BF16_PRE, factor(0.5f), false, small, [](double v) { return v / 2; });
}
CUBE_EXAMPLE(float_scaled_to_half, "随路量化")
{
    converted<half, float>(gm, QuantMode_t::QF322F16_PRE, factor(0.5f), true, small, [](double v) { return v < 0 ? 0 : v / 2; });
}
CUBE_EXAMPLE(float_scaled_to_bfloat16, "随路量化")
{
    converted<bfloat16_t, float>(gm, QuantMode_t::QF322BF16_PRE, factor(2), false, small, [](double v) { return v * 2; });
}
CUBE_EXAMPLE(float_scaled_to_float, "随路量化")
{
    converted<float, float>(gm, QuantMode_t::QF322F32_PRE, factor(3), false, small, [](double v) { return v * 3; });
}
#else
CUBE_EXAMPLE(mode_of_a_new_chip, "!quant")
{
    auto out = gm.out<half>(256);
    Fixpipe(out, l0c<float>(256), sizes(16, 16, 16, 16, QuantMode_t::QF322F16_PRE));
}
#endif

CUBE_EXAMPLE(no_quant_to_bfloat16, "!quant")
{
    auto out = gm.out<bfloat16_t>(256);
    Fixpipe(out, l0c<float>(256), sizes(16, 16, 16, 16));
}
CUBE_EXAMPLE(float_mode_of_integers, "!quant")
{
    auto out = gm.out<half>(256);
    Fixpipe(out, l0c<int32_t>(256), sizes(16, 16, 16, 16, QuantMode_t::F322F16));
}

// ---- parameters per column

namespace {

uint64_t column_factor(size_t c) { return factor(static_cast<float>(c % 4 + 1), static_cast<int>(c)); }

LocalTensor<uint64_t> table(example::Scratch &gm, uint32_t n)
{
    auto g = gm.fill<uint64_t>(n, column_factor);
    LocalTensor<uint64_t> a(TPosition::C1, 0, n);
    DataCopy(a, g, n);
    return a;
}

} // namespace

CUBE_EXAMPLE(factor_per_column, "Fixpipe（L0C到GM数据搬运）")
{
    auto c = l0c<int32_t>(16 * 32);
    auto out = gm.out<half>(16 * 32);
    example::poke(c, 16 * 32, small);
    auto q = table(gm, 32);
    finish();
    Fixpipe(out, c, q, sizes(16, 32, 16, 32, QuantMode_t::VDEQF16));
    finish();
    expect_each(out, 16 * 32, [](size_t i) { return small(at(i / 32, i % 32, 16)) * static_cast<double>(i % 4 + 1); });
}

CUBE_EXAMPLE(bytes_with_a_factor_per_column, "Fixpipe（L0C到GM数据搬运）")
{
    auto c = l0c<float>(16 * 32);
    auto out = gm.out<int8_t>(16 * 32);
    example::poke(c, 16 * 32, [](size_t i) { return static_cast<double>(i % 20); });
    auto q = table(gm, 32);
    finish();
    Fixpipe(out, c, q, sizes(16, 32, 16, 32, QuantMode_t::VQF322B8_PRE));
    finish();
    expect_each(out, 16 * 32, [](size_t i) {
        return static_cast<double>(at(i / 32, i % 32, 16) % 20) * static_cast<double>(i % 4 + 1) + static_cast<double>(i % 32);
    });
}

CUBE_EXAMPLE(moved_by_data_copy, "DataCopy（L0C到GM数据搬运）")
{
    auto c = l0c<int32_t>(16 * 32);
    auto out = gm.out<half>(16 * 32);
    example::poke(c, 16 * 32, small);
    finish();
    SetFixpipePreQuantFlag(factor(2));
    SetFixpipeNz2ndFlag(1, 0, 0);
    DataCopyCO12DstParams p;
    p.nSize = 32;
    p.mSize = 16;
    p.srcStride = 16;
    p.dstStride = 32;
    p.quantPre = QuantMode_t::DEQF16;
    p.reluPre = 1;
    p.nz2ndEn = true;
    DataCopy(out, c, p);
    finish();
    expect_each(out, 16 * 32, [](size_t i) {
        const double v = small(at(i / 32, i % 32, 16));
        return v < 0 ? 0 : 2 * v;
    });
}

CUBE_EXAMPLE(table_in_the_fixpipe_buffer, "SetFixPipeConfig")
{
    auto c = l0c<int32_t>(16 * 32);
    auto out = gm.out<half>(16 * 32);
    example::poke(c, 16 * 32, small);
    auto q = table(gm, 32);
    finish();
    LocalTensor<uint64_t> fb(TPosition::C2PIPE2GM, 0, 32);
    DataCopy(fb, q, DataCopyParams(1, __NPU_ARCH__ == 3510 ? 4 : 2, 0, 0));
    SetFixPipeConfig(fb);
    PipeBarrier<PIPE_FIX>();
    SetFixpipeNz2ndFlag(1, 0, 0);
    DataCopyCO12DstParams p(32, 16, 32, 16, QuantMode_t::VDEQF16, 0, false, true);
    DataCopy(out, c, p);
    finish();
    expect_each(out, 16 * 32, [](size_t i) { return small(at(i / 32, i % 32, 16)) * static_cast<double>(i % 4 + 1); });
}

CUBE_EXAMPLE(barrier_after_the_table, "!hazard-raw|read-before-write")
{
    auto c = l0c<int32_t>(16 * 32);
    auto out = gm.out<half>(16 * 32);
    example::poke(c, 16 * 32, small);
    auto q = table(gm, 32);
    finish();
    LocalTensor<uint64_t> fb(TPosition::C2PIPE2GM, 0, 32);
    DataCopy(fb, q, DataCopyParams(1, __NPU_ARCH__ == 3510 ? 4 : 2, 0, 0));
    SetFixPipeConfig(fb);
    DataCopy(out, c, DataCopyCO12DstParams(32, 16, 32, 16, QuantMode_t::VDEQF16, 0, false, true));
}

CUBE_EXAMPLE(no_table, "!quant")
{
    auto out = gm.out<half>(256);
    DataCopy(out, l0c<int32_t>(256), DataCopyCO12DstParams(16, 16, 16, 16, QuantMode_t::VDEQF16, 0, false, true));
}

// ---- the rest

CUBE_EXAMPLE(adds_up_in_gm, "SetAtomicAdd")
{
    auto c = l0c<float>(256);
    auto out = gm.fill<float>(256, [](size_t) { return 100; });
    example::poke(c, 256, by_index);
    finish();
    SetAtomicAdd<float>();
    Fixpipe(out, c, sizes(16, 16, 16, 16));
    Fixpipe(out, c, sizes(16, 16, 16, 16));
    SetAtomicNone();
    finish();
    expect_each(out, 256, [](size_t i) { return 100 + 2 * i; });
}

CUBE_EXAMPLE(never_computed, "!read-before-write")
{
    auto out = gm.out<float>(256);
    Fixpipe(out, l0c<float>(256), sizes(16, 16, 16, 16));
}
CUBE_EXAMPLE(columns_that_overlap, "!range")
{
    auto out = gm.out<float>(1024);
    Fixpipe(out, l0c<float>(1024), sizes(32, 32, 16, 32));
}
CUBE_EXAMPLE(lines_that_overlap, "!overlap")
{
    auto out = gm.out<float>(1024);
    Fixpipe(out, l0c<float>(1024), sizes(16, 32, 16, 31));
}
CUBE_EXAMPLE(blocks_that_overlap, "!overlap")
{
    auto out = gm.out<float>(1024);
    Fixpipe<float, float, CFG_NZ>(out, l0c<float>(1024), sizes<CO2Layout::NZ>(24, 32, 32, __NPU_ARCH__ == 3510 ? 23 * 16 : 46));
}
CUBE_EXAMPLE(n_beyond_4095, "!range")
{
    auto out = gm.out<float>(1024);
    Fixpipe(out, l0c<float>(1024), sizes(16, 4096, 16, 4096));
}
CUBE_EXAMPLE(no_pitch, "!range")
{
    auto out = gm.out<float>(1024);
    Fixpipe(out, l0c<float>(1024), sizes(16, 16, 16, 0));
}
CUBE_EXAMPLE(beyond_gm, "!bounds")
{
    auto c = l0c<float>(256);
    example::poke(c, 256, by_index);
    finish();
    auto out = gm.out<float>(255);
    Fixpipe(out, c, sizes(16, 16, 16, 16));
}
EXAMPLE(fixpipe_on_a_vector_core, "!wrong-core")
{
    auto out = gm.out<float>(256);
    Fixpipe(out, l0c<float>(256), sizes(16, 16, 16, 16));
}

#if __NPU_ARCH__ == 3510
// ---- to the memory of vector cores. The cube core peeks there itself: nobody else takes part.

namespace {

constexpr FixpipeConfig kRowsToUb = {CO2Layout::ROW_MAJOR, true};
constexpr FixpipeConfig kNzToUb = {CO2Layout::NZ, true};
constexpr FixpipeConfig kColumnsToUb = {CO2Layout::COLUMN_MAJOR, true};

template <class T> GlobalTensor<T> peek_ub(example::Scratch &gm, int core, uint32_t count)
{
    auto out = gm.out<T>(count);
    example::peek_bytes(ascend_twin::Mem::UB, 0, out.twin_addr(), count * sizeof(T),
                        core == 0 ? ascend_twin::Peer::Aiv0 : ascend_twin::Peer::Aiv1);
    return out;
}

} // namespace

CORES_EXAMPLE(rows_to_ub, "Fixpipe（L0C到UB数据搬运）", ASCEND_TWIN_MIX_1_2, 1)
{
    if (!ascend_twin::is_cube()) {
        return;
    }
    auto c = l0c<float>(48 * 32);
    example::poke(c, 48 * 32, by_index);
    finish();
    LocalTensor<float> ub(TPosition::VECIN, 0, 40 * 32);
    auto p = sizes(40, 32, 48, 32);
    p.subBlockId = true;
    Fixpipe<float, float, kRowsToUb>(ub, c, p);
    finish();
    auto out = peek_ub<float>(gm, 1, 40 * 32);
    finish();
    expect_each(out, 40 * 32, [](size_t i) { return at(i / 32, i % 32, 48); });
}

CORES_EXAMPLE(halves_of_rows, "L0C-Buffer到UB双目标模式", ASCEND_TWIN_MIX_1_2, 1)
{
    if (!ascend_twin::is_cube()) {
        return;
    }
    auto c = l0c<float>(48 * 32);
    example::poke(c, 48 * 32, by_index);
    finish();
    LocalTensor<float> ub(TPosition::VECIN, 0, 24 * 32);
    auto p = sizes(48, 32, 48, 32);
    p.dualDstCtl = 1;
    Fixpipe<float, float, kRowsToUb>(ub, c, p);
    finish();
    auto first = peek_ub<float>(gm, 0, 24 * 32), second = peek_ub<float>(gm, 1, 24 * 32);
    finish();
    expect_each(first, 24 * 32, [](size_t i) { return at(i / 32, i % 32, 48); });
    expect_each(second, 24 * 32, [](size_t i) { return at(24 + i / 32, i % 32, 48); });
}

CORES_EXAMPLE(halves_of_columns, "L0C-Buffer到UB双目标模式", ASCEND_TWIN_MIX_1_2, 1)
{
    if (!ascend_twin::is_cube()) {
        return;
    }
    auto c = l0c<float>(64 * 32);
    example::poke(c, 64 * 32, by_index);
    finish();
    LocalTensor<float> ub(TPosition::VECIN, 0, 64 * 16);
    auto p = sizes<CO2Layout::NZ>(48, 32, 64, 64 * 16);
    p.dualDstCtl = 2;
    Fixpipe<float, float, kNzToUb>(ub, c, p);
    finish();
    auto first = peek_ub<float>(gm, 0, 48 * 16), second = peek_ub<float>(gm, 1, 48 * 16);
    finish();
    expect_each(first, 48 * 16, by_index);
    expect_each(second, 48 * 16, [](size_t i) { return 1024 + i; });
}

CORES_EXAMPLE(columns_to_ub, "Fixpipe（L0C到UB数据搬运）", ASCEND_TWIN_MIX_1_2, 1)
{
    if (!ascend_twin::is_cube()) {
        return;
    }
    auto c = l0c<float>(32 * 32);
    example::poke(c, 32 * 32, small);
    finish();
    LocalTensor<half> ub(TPosition::VECIN, 0, 32 * 32);
    auto p = sizes<CO2Layout::COLUMN_MAJOR>(32, 32, 32, 32, QuantMode_t::F322F16);
    p.params.srcNzC0Stride = 1;
    Fixpipe<half, float, kColumnsToUb>(ub, c, p);
    finish();
    auto out = peek_ub<half>(gm, 0, 32 * 32);
    finish();
    expect_each(out, 32 * 32, [](size_t i) { return small(at(i % 32, i / 32, 32)); });
}

CORES_EXAMPLE(l1_to_ub, "DataCopyL1ToUB（L1到UB数据搬运）", ASCEND_TWIN_MIX_1_2, 1)
{
    if (!ascend_twin::is_cube()) {
        return;
    }
    LocalTensor<half> a(TPosition::A1, 0, 512), ub(TPosition::VECIN, 0, 512);
    example::poke(a, 512, by_index);
    finish();
    DataCopyL1ToUB(ub, a, 512);
    DataCopyL1ToUB<half, 1>(ub, a, DataCopyParams(2, 1, 3, 0));
    finish();
    auto first = peek_ub<half>(gm, 0, 512), second = peek_ub<half>(gm, 1, 32);
    finish();
    expect_each(first, 512, by_index);
    expect_each(second, 32, [](size_t i) { return i < 16 ? i : i - 16 + 64; });
}

CORES_EXAMPLE(ub_to_l1, "DataCopy（UBToL1高维切分数据搬运）", ASCEND_TWIN_MIX_1_1, 1)
{
    if (ascend_twin::is_cube()) {
        CrossCoreWaitFlag<4, PIPE_MTE1>(3);
        finish();
        LocalTensor<half> a(TPosition::A1, 0, 17 * 16);
        auto out = gm.out<half>(17 * 16);
        example::peek(out, a, 17 * 16);
        finish();
        const half *p = out.GetPhyAddr();
        for (size_t i = 0; i < 17 * 16 && ascend_twin::effects(); i++) {
            if (i / 16 != 8 && example::number(p[i]) != by_index(i < 128 ? i : i - 16)) {
                ascend_twin::fail(ascend_twin::Rule::Assert, "expect", nullptr, ascend_twin::Site::here(), "element %zu", i);
            }
        }
        return;
    }
    LocalTensor<half> ub(TPosition::VECIN, 0, 256), a(TPosition::A1, 0, 17 * 16);
    example::poke(ub, 256, by_index);
    finish();
    DataCopyParams p;
    p.blockCount = 2;
    p.blockLen = 8;
    p.srcGap = 0;
    p.dstGap = 1;
    DataCopy(a, ub, p);
    CrossCoreSetFlag<4, PIPE_MTE3>(3);
}

CORES_EXAMPLE(ub_to_l1_as_nz, "DataCopy（UBToL1随路转换-ND2NZ搬运）", ASCEND_TWIN_MIX_1_1, 1)
{
    if (ascend_twin::is_cube()) {
        CrossCoreWaitFlag<4, PIPE_MTE1>(3);
        finish();
        LocalTensor<half> a(TPosition::A1, 0, 512);
        auto out = gm.out<half>(512);
        example::peek(out, a, 512);
        finish();
        expect_each(out, 512, [](size_t i) {
            const size_t c = i / 256 * 16 + i % 16, r = i % 256 / 16;
            return c < 24 ? r * 48 + c : 0;
        });
        return;
    }
    LocalTensor<half> ub(TPosition::VECIN, 0, 16 * 48), a(TPosition::A1, 0, 512);
    example::poke(ub, 16 * 48, by_index);
    finish();
    DataCopy(a, ub, Nd2NzParams{1, 16, 24, 0, 48, 16, 1, 0});
    CrossCoreSetFlag<4, PIPE_MTE3>(3);
}

CORES_EXAMPLE(halves_of_odd_rows, "!range", ASCEND_TWIN_MIX_1_2, 1)
{
    if (!ascend_twin::is_cube()) {
        return;
    }
    LocalTensor<float> ub(TPosition::VECIN, 0, 24 * 32);
    auto p = sizes(47, 32, 48, 32);
    p.dualDstCtl = 1;
    Fixpipe<float, float, kRowsToUb>(ub, l0c<float>(48 * 32), p);
}
CUBE_EXAMPLE(ub_of_a_core_that_is_not_there, "!wrong-core")
{
    LocalTensor<float> ub(TPosition::VECIN, 0, 256);
    Fixpipe<float, float, kRowsToUb>(ub, l0c<float>(256), sizes(16, 16, 16, 16));
}
CUBE_EXAMPLE(not_said_to_go_to_ub, "!usage")
{
    LocalTensor<float> ub(TPosition::VECIN, 0, 256);
    Fixpipe(ub, l0c<float>(256), sizes(16, 16, 16, 16));
}
#endif

EXAMPLES_END
