// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What copies and loads of a cube core put where: GM to L1, L1 to L0A, L0B, BT and FB.

#include "peek.h"

using namespace AscendC;
using example::finish;

namespace {

double from_one(size_t i) { return static_cast<double>(i) + 1; }
double minus(size_t) { return -1; }
double small(size_t i) { return static_cast<double>(i % 120) + 1; }

template <class T> LocalTensor<T> l1(uint32_t address, uint32_t count) { return LocalTensor<T>(TPosition::A1, address, count); }
template <class T> LocalTensor<T> l0a(uint32_t count) { return LocalTensor<T>(TPosition::A2, 0, count); }
template <class T> LocalTensor<T> l0b(uint32_t count) { return LocalTensor<T>(TPosition::B2, 0, count); }

// Runs `load` from a poked L1 to a poked destination and compares with want(element) of the source, -1: untouched.
template <class T, class L, class W>
void check(example::Scratch &gm, const LocalTensor<T> &dst, uint32_t from, uint32_t to, L load, W want, double (*value)(size_t) = from_one)
{
    auto a = l1<T>(0, from);
    auto out = gm.out<T>(to);
    example::poke(a, from, value);
    example::poke(dst, to, minus);
    finish();
    load(dst, a);
    finish();
    example::peek(out, dst, to);
    finish();
    expect_each(out, to, [&](size_t i) {
        const long s = want(i);
        return s < 0 ? -1.0 : value(static_cast<size_t>(s));
    });
}

// The element of the source for element i of fractals that lie `gap` apart, taken `stride` apart from `start` on.
long fractals(size_t i, size_t size, long start, long stride, size_t gap, size_t count, bool transposed = false)
{
    const size_t at = i / size, in = i % size;
    if (at % (gap + 1) != 0 || at / (gap + 1) >= count) {
        return -1;
    }
    const long f = start + static_cast<long>(at / (gap + 1)) * stride;
    return f * static_cast<long>(size) + static_cast<long>(transposed ? in % 16 * 16 + in / 16 : in);
}

} // namespace

// ---- GM to L1

CUBE_EXAMPLE(nd_to_nz, "DataCopy（GMToL1随路转换-ND2NZ搬运）")
{
    auto src = gm.fill<half>(16 * 32, from_one);
    auto dst = gm.out<half>(512);
    auto a = l1<half>(0, 512);
    Nd2NzParams p;
    p.ndNum = 1;
    p.nValue = 16;
    p.dValue = 23;
    p.srcNdMatrixStride = 0;
    p.srcDValue = 32;
    p.dstNzC0Stride = 16;
    p.dstNzNStride = 1;
    p.dstNzMatrixStride = 0;
    DataCopy(a, src, p);
    finish();
    example::peek(dst, a, 512);
    finish();
    expect_each(dst, 512, [](size_t i) {
        const size_t c = i / 256 * 16 + i % 16, r = i % 256 / 16;
        return c < 23 ? r * 32 + c + 1.0 : 0.0;
    });
}

CUBE_EXAMPLE(nd_to_nz_spread, "DataCopy（GMToL1随路转换-ND2NZ搬运）")
{
    auto src = gm.fill<half>(2 * 384, from_one);
    auto dst = gm.out<half>(72 * 16);
    auto a = l1<half>(0, 72 * 16);
    example::poke(a, 72 * 16, minus);
    finish();
    DataCopy(a, src, Nd2NzParams{2, 8, 23, 384, 32, 37, 2, 320});
    finish();
    example::peek(dst, a, 72 * 16);
    finish();
    expect_each(dst, 72 * 16, [](size_t i) {
        const size_t row = i / 16, e = i % 16;
        for (size_t x = 0; x < 2; x++) {
            for (size_t b = 0; b < 2; b++) {
                const size_t first = x * 20 + b * 37;
                if (row >= first && row < first + 16 && (row - first) % 2 == 0) {
                    const size_t c = b * 16 + e;
                    return c < 23 ? x * 384 + (row - first) / 2 * 32 + c + 1.0 : 0.0;
                }
            }
        }
        return -1.0;
    });
}

CUBE_EXAMPLE(nd_to_nz_does_not_fill_rows, "DataCopy（GMToL1随路转换-ND2NZ搬运）")
{
    auto src = gm.fill<half>(10 * 16, from_one);
    auto map = gm.out<uint8_t>(512);
    auto a = l1<half>(0, 256);
    DataCopy(a, src, Nd2NzParams{1, 10, 16, 0, 16, 16, 1, 0});
    finish();
    example::peek_defined(map, a, 512);
    finish();
    expect_each(map, 512, [](size_t i) { return i < 320; });
}

CUBE_EXAMPLE(nd_to_nz_row_by_row, "DataCopy（GMToL1随路转换-ND2NZ搬运）")
{
    // Each row a matrix of its own: any order of rows.
    auto src = gm.fill<float>(4 * 24, from_one);
    auto dst = gm.out<float>(3 * 16 * 8);
    auto a = l1<float>(0, 3 * 16 * 8);
    example::poke(a, 3 * 16 * 8, minus);
    finish();
    DataCopy(a, src, Nd2NzParams{4, 1, 24, 24, 24, 16, 1, 8});
    finish();
    example::peek(dst, a, 3 * 16 * 8);
    finish();
    expect_each(dst, 3 * 16 * 8, [](size_t i) {
        const size_t r = i % 128 / 8;
        return r < 4 ? r * 24 + i / 128 * 8 + i % 8 + 1.0 : -1.0;
    });
}

CUBE_EXAMPLE(blocks_with_gaps, "DataCopy（GMToL1高维切分数据搬运）")
{
    auto src = gm.fill<half>(112, from_one);
    auto dst = gm.out<half>(128);
    auto a = l1<half>(0, 128);
    example::poke(a, 128, minus);
    finish();
    DataCopyParams p;
    p.blockCount = 2;
    p.blockLen = 3;
    p.srcGap = 1;
    p.dstGap = 2;
    DataCopy(a, src, p);
    finish();
    example::peek(dst, a, 128);
    finish();
    expect_each(dst, 128, [](size_t i) { return i < 48 ? i + 1.0 : i < 80 ? -1.0 : i - 80 + 65.0; });
}

CUBE_EXAMPLE(fractals_down_to_l1, "LoadData（GMToL1-2D矩阵搬运）")
{
    auto src = gm.fill<float>(7 * 128, from_one);
    auto dst = gm.out<float>(10 * 128);
    auto a = l1<float>(0, 10 * 128);
    example::poke(a, 10 * 128, minus);
    finish();
    LoadData2DParams p;
    p.startIndex = 6;
    p.repeatTimes = 4;
    p.srcStride = 2;
    p.dstGap = 2;
    p.addrMode = 1;
    LoadData(a, src, p);
    finish();
    example::peek(dst, a, 10 * 128);
    finish();
    const size_t gap = __NPU_ARCH__ == 3510 ? 0 : 2;
    expect_each(dst, 10 * 128, [=](size_t i) {
        const long s = fractals(i, 128, 6, -2, gap, 4);
        return s < 0 ? -1.0 : static_cast<double>(s) + 1;
    });
}

#if __NPU_ARCH__ == 3510
CUBE_EXAMPLE(dn_to_nz, "DataCopy（GMToL1随路转换-DN2NZ搬运）")
{
    auto src = gm.fill<half>(23 * 16, from_one);
    auto dst = gm.out<half>(512);
    auto a = l1<half>(0, 512);
    DataCopy(a, src, Dn2NzParams{1, 16, 23, 0, 16, 16, 1, 0});
    finish();
    example::peek(dst, a, 512);
    finish();
    expect_each(dst, 512, [](size_t i) {
        const size_t c = i / 256 * 16 + i % 16, r = i % 256 / 16;
        return c < 23 ? c * 16 + r + 1.0 : 0.0;
    });
}

CUBE_EXAMPLE(dn_to_nz_spread, "DataCopy（GMToL1随路转换-DN2NZ搬运）")
{
    auto src = gm.fill<half>(2 * 400, from_one);
    auto dst = gm.out<half>(72 * 16);
    auto a = l1<half>(0, 72 * 16);
    example::poke(a, 72 * 16, minus);
    finish();
    DataCopy(a, src, Dn2NzParams{2, 8, 23, 400, 16, 37, 2, 320});
    finish();
    example::peek(dst, a, 72 * 16);
    finish();
    expect_each(dst, 72 * 16, [](size_t i) {
        const size_t row = i / 16, e = i % 16;
        for (size_t x = 0; x < 2; x++) {
            for (size_t b = 0; b < 2; b++) {
                const size_t first = x * 20 + b * 37;
                if (row >= first && row < first + 16 && (row - first) % 2 == 0) {
                    const size_t c = b * 16 + e;
                    return c < 23 ? x * 400 + c * 16 + (row - first) / 2 + 1.0 : 0.0;
                }
            }
        }
        return -1.0;
    });
}

CUBE_EXAMPLE(small_blocks, "DataCopy（GMToL1随路转换-ND2NZ搬运）")
{
    auto src = gm.fill<half>(10 * 3, from_one);
    auto dst = gm.out<half>(48);
    auto a = l1<half>(0, 48);
    DataCopy<half, true>(a, src, Nd2NzParams{1, 10, 3, 0, 3, 1, 1, 0});
    finish();
    example::peek(dst, a, 48);
    finish();
    expect_each(dst, 48, [](size_t i) { return i < 40 && i % 4 < 3 ? i / 4 * 3 + i % 4 + 1.0 : 0.0; });
}

CUBE_EXAMPLE(pad_to_l1, "DataCopyPad（GMToL1非对齐数据搬运）")
{
    auto src = gm.fill<int8_t>(144, small);
    auto dst = gm.out<int8_t>(192);
    auto a = l1<int8_t>(0, 192);
    DataCopyExtParams copy{3, 48, 0, 0, 0};
    DataCopyPadExtParams<int8_t> pad;
    pad.rightPadding = 16;
    DataCopyPad(a, src, copy, pad);
    finish();
    auto map = gm.out<uint8_t>(192);
    example::peek(dst, a, 192);
    example::peek_defined(map, a, 192);
    finish();
    expect_each(map, 192, [](size_t i) { return i % 64 < 48; });
    const int8_t *p = dst.GetPhyAddr();
    for (size_t i = 0; i < 192 && ascend_twin::effects(); i++) {
        if (i % 64 < 48 && p[i] != small(i / 64 * 48 + i % 64)) {
            ascend_twin::fail(ascend_twin::Rule::Assert, "expect", nullptr, ascend_twin::Site::here(), "byte %zu", i);
        }
    }
}

CUBE_EXAMPLE(pad_to_l1_compact, "DataCopyPad（GMToL1非对齐数据搬运）")
{
    auto src = gm.fill<int8_t>(144, small);
    auto dst = gm.out<int8_t>(160);
    auto map = gm.out<uint8_t>(160);
    auto a = l1<int8_t>(0, 160);
    DataCopyPad<int8_t, PaddingMode::Compact>(a, src, DataCopyExtParams{3, 48, 0, 0, 0}, DataCopyPadExtParams<int8_t>{});
    finish();
    example::peek(dst, a, 144);
    example::peek_defined(map, a, 160);
    finish();
    expect_each(dst, 144, small);
    expect_each(map, 160, [](size_t i) { return i < 144; });
}

CUBE_EXAMPLE(gm_to_l0_is_no_path, "!usage")
{
    auto src = gm.fill<half>(256, from_one);
    LoadData2DParams p;
    p.repeatTimes = 1;
    LoadData(l0a<half>(256), src, p);
}
CUBE_EXAMPLE(l1_to_gm_is_no_path, "!usage")
{
    auto dst = gm.out<half>(256);
    DataCopy(dst, l1<half>(0, 256), 256);
}
#else
CUBE_EXAMPLE(l1_to_gm, "DataCopy（L1ToGM高维切分数据搬运）")
{
    auto dst = gm.out<half>(128);
    auto a = l1<half>(0, 112);
    example::poke(a, 112, from_one);
    finish();
    DataCopyParams p;
    p.blockCount = 2;
    p.blockLen = 3;
    p.srcGap = 1;
    p.dstGap = 2;
    DataCopy(dst, a, p);
    finish();
    expect_each(dst, 128, [](size_t i) { return i < 48 ? i + 1.0 : i < 80 ? 0.0 : i - 80 + 65.0; });
}

CUBE_EXAMPLE(l1_to_gm_all, "DataCopy（L1ToGM连续数据搬运）")
{
    auto dst = gm.out<half>(256);
    auto a = l1<half>(0, 256);
    example::poke(a, 256, from_one);
    finish();
    DataCopy(dst, a, 256);
    finish();
    expect_each(dst, 256, from_one);
}

CUBE_EXAMPLE(gm_to_l0a, "LoadData_2D")
{
    auto src = gm.fill<half>(4 * 256, from_one);
    auto dst = gm.out<half>(2 * 256);
    auto a = l0a<half>(2 * 256);
    LoadData(a, src, LoadData2DParams(1, 2, 2, 0, 0, false, 0));
    finish();
    example::peek(dst, a, 512);
    finish();
    expect_each(dst, 512, [](size_t i) { return fractals(i, 256, 1, 2, 0, 2) + 1; });
}

CUBE_EXAMPLE(l1_to_ub, "!usage") { DataCopy(LocalTensor<half>(TPosition::VECIN, 0, 64), l1<half>(0, 64), 64); }
#endif

// ---- L1 to BT and FB

CUBE_EXAMPLE(bias, "DataCopy（L1ToBiasTable-Buffer数据搬运）")
{
    auto dst = gm.out<float>(64);
    LocalTensor<float> a(TPosition::C1, 0, 64), b(TPosition::C2, 0, 64);
    example::poke(a, 64, from_one);
    finish();
    const uint16_t unit = __NPU_ARCH__ == 3510 ? 32 : 64;
    DataCopy(b, a, DataCopyParams(1, 64 * sizeof(float) / unit, 0, 0));
    finish();
    example::peek(dst, b, 64);
    finish();
    expect_each(dst, 64, from_one);
}

CUBE_EXAMPLE(bias_of_half, "DataCopy（L1ToBiasTable-Buffer数据搬运）")
{
    auto dst = gm.out<float>(64);
    LocalTensor<half> a(TPosition::C1, 0, 64);
    LocalTensor<float> b(TPosition::C2, 0, 64);
    example::poke(a, 64, [](size_t i) { return static_cast<double>(i) / 8; });
    finish();
    const uint16_t unit = __NPU_ARCH__ == 3510 ? 32 : 64;
    DataCopy(b, a, DataCopyParams(1, 64 * sizeof(half) / unit, 0, 0));
    finish();
    example::peek(dst, b, 64);
    finish();
    expect_each(dst, 64, [](size_t i) { return static_cast<double>(i) / 8; });
}

CUBE_EXAMPLE(bias_of_int8, "!type")
{
    LocalTensor<int8_t> a(TPosition::C1, 0, 64);
    LocalTensor<int32_t> b(TPosition::C2, 0, 64);
    DataCopy(b, a, DataCopyParams(1, 2, 0, 0));
}

CUBE_EXAMPLE(parameters_of_fixpipe, "DataCopy（L1ToFixpipe-Buffer数据搬运）")
{
    auto dst = gm.out<uint64_t>(64);
    LocalTensor<uint64_t> a(TPosition::C1, 0, 64), b(TPosition::C2PIPE2GM, 0, 64);
    example::poke(a, 64, from_one);
    finish();
    const uint16_t unit = __NPU_ARCH__ == 3510 ? 64 : 128;
    DataCopy(b, a, DataCopyParams(1, 64 * 8 / unit, 0, 0));
    finish();
    example::peek(dst, b, 64);
    finish();
    expect_each(dst, 64, from_one);
}

// ---- LoadData by fractals

CUBE_EXAMPLE(spread_fractals, "LoadData_2D")
{
    const size_t gap = __NPU_ARCH__ == 3510 ? 0 : 2; // dstGap has no effect on 3510
    check(gm, l0a<float>(10 * 128), 7 * 128, 10 * 128,
          [](const LocalTensor<float> &d, const LocalTensor<float> &s) {
              LoadData2DParams p;
              p.startIndex = 0;
              p.repeatTimes = 4;
              p.srcStride = 2;
              p.dstGap = 2;
              LoadData(d, s, p);
          },
          [=](size_t i) { return fractals(i, 128, 0, 2, gap, 4); });
}

CUBE_EXAMPLE(start_index, "LoadData_2D")
{
    const size_t gap = __NPU_ARCH__ == 3510 ? 0 : 2;
    check(gm, l0b<float>(10 * 128), 8 * 128, 10 * 128,
          [](const LocalTensor<float> &d, const LocalTensor<float> &s) {
              LoadData(d, s, LoadData2DParams(1, 4, 2, 0, 2, false, 0));
          },
          [=](size_t i) { return fractals(i, 128, 1, 2, gap, 4); });
}

CUBE_EXAMPLE(same_fractal_again, "LoadData_2D")
{
    check(gm, l0a<half>(3 * 256), 2 * 256, 3 * 256,
          [](const LocalTensor<half> &d, const LocalTensor<half> &s) {
              LoadData(d, s, LoadData2DParams(1, 3, 0, 0, 0, false, 0));
          },
          [](size_t i) { return fractals(i, 256, 1, 0, 0, 3); });
}

CUBE_EXAMPLE(transposed_fractals, "LoadData_2D")
{
    const size_t gap = __NPU_ARCH__ == 3510 ? 0 : 2;
    check(gm, l0b<half>(4 * 256), 3 * 256, 4 * 256,
          [](const LocalTensor<half> &d, const LocalTensor<half> &s) {
              LoadData2DParams p;
              p.repeatTimes = 2;
              p.srcStride = 2;
              p.dstGap = 2;
              p.ifTranspose = true;
              LoadData(d, s, p);
          },
          [=](size_t i) { return fractals(i, 256, 0, 2, gap, 2, true); });
}

CUBE_EXAMPLE(six_fractals_in_two_calls, "LoadData_2D")
{
    // NZ to ZZ of 32 x 24 floats: fractals column by column become row by row.
    check(gm, l0a<float>(6 * 128), 6 * 128, 6 * 128,
          [](const LocalTensor<float> &d, const LocalTensor<float> &s) {
              LoadData2DParams p;
              p.repeatTimes = 3;
              p.srcStride = 2;
              for (uint32_t i = 0; i < 2; i++) {
                  LoadData(d[i * 3 * 128], s[i * 128], p);
              }
          },
          [](size_t i) { return static_cast<long>((i / 128 % 3 * 2 + i / 384) * 128 + i % 128); });
}

CUBE_EXAMPLE(nothing_to_load, "LoadData_2D")
{
    check(gm, l0a<half>(256), 256, 256,
          [](const LocalTensor<half> &d, const LocalTensor<half> &s) {
              LoadData2DParams p;
              p.repeatTimes = 0;
              LoadData(d, s, p);
          },
          [](size_t) { return -1; });
}

CUBE_EXAMPLE(repeat_times_256, "!range")
{
    LoadData2DParams p;
    p.repeatTimes = 256;
    LoadData(l0a<half>(256), l1<half>(0, 65536), p);
}
CUBE_EXAMPLE(transpose_of_bytes, "!type")
{
    LoadData2DParams p;
    p.repeatTimes = 1;
    p.ifTranspose = true;
    LoadData(l0b<int8_t>(512), l1<int8_t>(0, 512), p);
}
CUBE_EXAMPLE(misaligned_l0, "!alignment")
{
    auto a = l1<half>(0, 512);
    example::poke(a, 512, from_one);
    finish();
    LoadData2DParams p;
    p.repeatTimes = 1;
    LoadData(l0a<half>(512)[16], a, p);
}
EXAMPLE(load_on_a_vector_core, "!wrong-core")
{
    LoadData2DParams p;
    p.repeatTimes = 1;
    LoadData(l0a<half>(256), l1<half>(0, 256), p);
}

// ---- LoadDataWithTranspose: squares of fractals

namespace {

// What squares of `fractals_of` fractals become: element i of the destination, fractals of size elements in a line of
// 32 bytes of `wide` elements.
template <class T>
long square(size_t i, long start, long stride, size_t gap, size_t inner, size_t count)
{
    constexpr size_t wide = 32 / sizeof(T), size = 16 * wide, n = sizeof(T) == 2 ? 1 : 2, side = sizeof(T) == 1 ? 32 : 16;
    const size_t f = i / size, r = i % size / wide, c = i % wide;
    for (size_t k = 0; k < count; k++) {
        for (size_t j = 0; j < n; j++) {
            if (f == k * (gap + 1) + j * (inner + 1)) {
                const long base = (start + static_cast<long>(k) * stride) * static_cast<long>(side * side);
                if (sizeof(T) == 4) {
                    // Row r of the result is column r of the square, which lies in its left or right fractal.
                    return base + static_cast<long>(r / 8 * size + (j * 8 + c) * 8 + r % 8);
                }
                return base + static_cast<long>(c * side + j * 16 + r);
            }
        }
    }
    return -1;
}

template <class T>
void squares(example::Scratch &gm, const LocalTensor<T> &dst, uint32_t from, uint32_t to, long start, uint32_t count, long stride,
             uint32_t gap, uint32_t inner, bool down = false)
{
    check(gm, dst, from, to,
          [&](const LocalTensor<T> &d, const LocalTensor<T> &s) {
              LoadData2dTransposeParams p;
              p.startIndex = start;
              p.repeatTimes = count;
              p.srcStride = stride;
              p.dstGap = gap;
              p.dstFracGap = inner;
              p.addrMode = down;
              LoadDataWithTranspose(d, s, p);
          },
          [&](size_t i) { return square<T>(i, start, down ? -stride : stride, gap, inner, count); }, sizeof(T) == 1 ? small : from_one);
}

} // namespace

CUBE_EXAMPLE(squares_of_int8, "LoadDataWithTranspose") { squares<int8_t>(gm, l0b<int8_t>(6 * 512), 3072, 6 * 512, 0, 3, 1, 1, 0); }
CUBE_EXAMPLE(squares_of_int8_by_rows, "LoadDataWithTranspose") { squares<int8_t>(gm, l0b<int8_t>(6 * 512), 3072, 6 * 512, 0, 3, 1, 0, 2); }
CUBE_EXAMPLE(squares_of_half, "LoadDataWithTranspose") { squares<half>(gm, l0b<half>(3 * 256), 768, 3 * 256, 0, 3, 1, 0, 0); }
CUBE_EXAMPLE(squares_of_float, "LoadDataWithTranspose") { squares<float>(gm, l0b<float>(6 * 128), 768, 6 * 128, 0, 3, 1, 1, 0); }
CUBE_EXAMPLE(squares_of_float_by_rows, "LoadDataWithTranspose") { squares<float>(gm, l0b<float>(6 * 128), 768, 6 * 128, 0, 3, 1, 0, 2); }
CUBE_EXAMPLE(squares_from_the_second, "LoadDataWithTranspose") { squares<int8_t>(gm, l0b<int8_t>(4 * 512), 3072, 4 * 512, 1, 2, 1, 1, 0); }
CUBE_EXAMPLE(squares_spread, "LoadDataWithTranspose") { squares<int8_t>(gm, l0b<int8_t>(6 * 512), 3072, 6 * 512, 0, 2, 2, 2, 1); }
CUBE_EXAMPLE(squares_down, "LoadDataWithTranspose") { squares<int8_t>(gm, l0b<int8_t>(6 * 512), 3072, 6 * 512, 2, 3, 1, 1, 0, true); }

#if __NPU_ARCH__ == 2201
CUBE_EXAMPLE(squares_to_l0a, "LoadDataWithTranspose") { squares<int8_t>(gm, l0a<int8_t>(6 * 512), 3072, 6 * 512, 0, 3, 1, 1, 0); }

CUBE_EXAMPLE(squares_of_int4, "LoadDataWithTranspose")
{
    auto a = l1<uint8_t>(0, 2048);
    auto dst = gm.out<uint8_t>(2048);
    // Value of element (r, c): (r + 2 * c) % 16; 7 over 6 makes 0x76.
    example::poke(a, 2048, [](size_t i) {
        const size_t r = i / 32, c = i % 32 * 2;
        return static_cast<double>((r + 2 * c) % 16 + (r + 2 * c + 2) % 16 * 16);
    });
    finish();
    auto d = l0b<int4b_t>(4096);
    LoadData2dTransposeParams p;
    p.repeatTimes = 1;
    LoadDataWithTranspose(d, a.ReinterpretCast<int4b_t>(), p);
    finish();
    example::peek(dst, d.ReinterpretCast<uint8_t>(), 2048);
    finish();
    expect_each(dst, 2048, [](size_t i) {
        const size_t c = i / 32, r = i % 32 * 2; // of the source
        return (r + 2 * c) % 16 + (r + 1 + 2 * c) % 16 * 16;
    });
}
#else
CUBE_EXAMPLE(squares_to_l0a_are_no_path, "!usage")
{
    LoadData2dTransposeParams p;
    p.repeatTimes = 1;
    LoadDataWithTranspose(l0a<half>(256), l1<half>(0, 256), p);
}

CUBE_EXAMPLE(squares_with_gaps_in_the_source, "LoadDataWithTranspose")
{
    // The two fractals of a square lie three apart.
    check(gm, l0b<int8_t>(4 * 512), 5 * 512, 4 * 512,
          [](const LocalTensor<int8_t> &d, const LocalTensor<int8_t> &s) {
              LoadDataWithTranspose(d, s, LoadData2dTransposeParamsV2(0, 2, 1, 1, 0, 2));
          },
          [](size_t i) {
              const size_t f = i / 512, r = i % 512 / 32, c = i % 32;
              const size_t first = f / 2, j = f % 2; // square, fractal of the result
              return static_cast<long>((first + c / 16 * 3) * 512 + c % 16 * 32 + j * 16 + r);
          },
          small);
}

// ---- LoadData2DParamsV2

CUBE_EXAMPLE(matrix_from_the_middle, "LoadData_2D_V2")
{
    check(gm, l0a<half>(9 * 256), 25 * 256, 9 * 256,
          [](const LocalTensor<half> &d, const LocalTensor<half> &s) {
              LoadData2DParamsV2 p;
              p.mStartPosition = 2;
              p.kStartPosition = 2;
              p.mStep = 2;
              p.kStep = 3;
              p.srcStride = 5;
              p.dstStride = 3;
              p.ifTranspose = false;
              p.sid = 0;
              LoadData(d, s, p);
          },
          [](size_t i) {
              const size_t f = i / 256, k = f / 3, m = f % 3;
              return m < 2 ? static_cast<long>(((2 + k) * 5 + 2 + m) * 256 + i % 256) : -1;
          },
          small);
}

namespace {

// A matrix of m_step x k_step fractals, transposed: element by element.
template <class T> void transposed(example::Scratch &gm, uint32_t m_step, uint32_t k_step)
{
    constexpr size_t wide = 32 / sizeof(T);
    const uint32_t n = m_step * k_step * 16 * wide;
    const size_t rows = k_step * wide / 16;
    check(gm, l0b<T>(n), n, n,
          [&](const LocalTensor<T> &d, const LocalTensor<T> &s) {
              LoadData2DParamsV2 p;
              p.mStep = m_step;
              p.kStep = k_step;
              p.srcStride = m_step;
              p.dstStride = rows;
              p.ifTranspose = true;
              LoadData(d, s, p);
          },
          [=](size_t i) {
              const size_t f = i / (16 * wide), row = f % rows * 16 + i % (16 * wide) / wide, col = f / rows * wide + i % wide;
              // (row, col) of the result is (col, row) of the source.
              return static_cast<long>((row / wide * m_step + col / 16) * 16 * wide + col % 16 * wide + row % wide);
          },
          sizeof(T) == 1 ? small : from_one);
}

} // namespace

CUBE_EXAMPLE(transpose_8, "LoadData_2D_V2") { transposed<int8_t>(gm, 4, 3); }
CUBE_EXAMPLE(transpose_16, "LoadData_2D_V2") { transposed<half>(gm, 3, 2); }
CUBE_EXAMPLE(transpose_32, "LoadData_2D_V2") { transposed<float>(gm, 3, 4); }
CUBE_EXAMPLE(transpose_8_odd, "!range")
{
    LoadData2DParamsV2 p{0, 0, 3, 1, 3, 2, true, 0};
    LoadData(l0b<int8_t>(2048), l1<int8_t>(0, 2048), p);
}
CUBE_EXAMPLE(transpose_32_odd, "!range")
{
    LoadData2DParamsV2 p{0, 0, 1, 3, 1, 2, true, 0};
    LoadData(l0b<float>(2048), l1<float>(0, 2048), p);
}
CUBE_EXAMPLE(columns_that_overlap, "!overlap")
{
    LoadData2DParamsV2 p{0, 0, 3, 2, 3, 2, false, 0};
    LoadData(l0a<half>(2048), l1<half>(0, 2048), p);
}
CUBE_EXAMPLE(steps_beyond_255, "!range")
{
    LoadData2DParamsV2 p{0, 0, 256, 1, 256, 256, false, 0};
    LoadData(l0a<half>(256), l1<half>(0, 256), p);
}

CUBE_EXAMPLE(scales, "LoadData_2D_MX")
{
    // 48 rows, k = 128: cells of 16 x 2 scales, two along k, land at the sixteenth of the address.
    auto a = l1<fp8_e4m3fn_t>(0, 48 * 128);
    LocalTensor<uint8_t> s1(TPosition::A1, 16384, 6 * 32);
    auto dst = gm.out<uint8_t>(6 * 32);
    example::poke(a, 48 * 128, [](size_t) { return 1.0; });
    example::poke(s1, 6 * 32, from_one);
    finish();
    LocalTensor<fp8_e4m3fn_t> d(TPosition::A2, 2048, 48 * 128);
    LoadData2DParamsV2 p{0, 0, 3, 4, 3, 3, false, 0};
    LoadData2DMxParams mx{0, 0, 3, 2, 2, 2};
    LoadData(d, a, s1.ReinterpretCast<fp8_e8m0_t>(), p, mx);
    finish();
    example::peek_bytes(ascend_twin::Mem::L0A_MX, 2048 / 16, dst.twin_addr(), 6 * 32);
    finish();
    expect_each(dst, 6 * 32, from_one);
}

CUBE_EXAMPLE(scales_from_the_middle, "LoadData_2D_MX")
{
    auto a = l1<fp8_e4m3fn_t>(0, 32 * 64);
    LocalTensor<uint8_t> s1(TPosition::A1, 16384, 12 * 32);
    auto dst = gm.out<uint8_t>(2 * 32);
    example::poke(a, 32 * 64, [](size_t) { return 1.0; });
    example::poke(s1, 12 * 32, [](size_t i) { return static_cast<double>(i / 32); });
    finish();
    LocalTensor<fp8_e4m3fn_t> d(TPosition::B2, 0, 32 * 64);
    LoadData(d, a, s1.ReinterpretCast<fp8_e8m0_t>(), LoadData2DParamsV2{0, 0, 2, 2, 2, 2, false, 0}, LoadData2DMxParams{1, 2, 2, 1, 4, 1});
    finish();
    example::peek_bytes(ascend_twin::Mem::L0B_MX, 0, dst.twin_addr(), 2 * 32);
    finish();
    expect_each(dst, 2 * 32, [](size_t i) { return i < 32 ? 6 : 10; });
}

CUBE_EXAMPLE(mx_operand_at_512, "!alignment")
{
    auto a = l1<fp8_e4m3fn_t>(0, 32 * 64);
    LocalTensor<uint8_t> s1(TPosition::A1, 16384, 12 * 32);
    example::poke(a, 32 * 64, [](size_t) { return 1.0; });
    example::poke(s1, 12 * 32, from_one);
    finish();
    LocalTensor<fp8_e4m3fn_t> d(TPosition::A2, 512, 32 * 64);
    LoadData(d, a, s1.ReinterpretCast<fp8_e8m0_t>(), LoadData2DParamsV2{0, 0, 2, 2, 2, 2, false, 0}, LoadData2DMxParams{0, 0, 2, 1, 1, 1});
}
#endif

// ---- three dimensions

namespace {

#if __NPU_ARCH__ == 3510
void stride_of(uint32_t fractals_of_a_column) { SetLoadDataRepeat(LoadDataRepeatParam(0, 1, 0, fractals_of_a_column)); }
#else
void stride_of(uint32_t) {}
#endif

// Where element (row, column) of a matrix in L0A lies.
template <class T> size_t in_l0a(size_t row, size_t column, size_t rows, size_t columns)
{
    constexpr size_t wide = 32 / sizeof(T);
    const size_t m16 = (rows + 15) / 16, k0 = (columns + wide - 1) / wide;
    const size_t f = __NPU_ARCH__ == 3510 ? column / wide * m16 + row / 16 : row / 16 * k0 + column / wide;
    return f * 16 * wide + row % 16 * wide + column % wide;
}

// A feature map of 1 x H x W x C in NC1HWC0 form with values by index, and its expansion.
template <class T>
void convolution(example::Scratch &gm, int h, int w, int channels, int fh, int fw, int sh, int sw, int dh, int dw, int left, int right,
                 int top, int bottom, int m0, int m, int k0, int k)
{
    constexpr int wide = 32 / sizeof(T);
    const int out_w = (w + left + right - ((fw - 1) * dw + 1)) / sw + 1;
    const uint32_t rows = static_cast<uint32_t>(m + 15) / 16 * 16, columns = static_cast<uint32_t>(k);
    auto a = l1<T>(0, static_cast<uint32_t>(h * w * channels));
    auto dst = l0a<T>(rows * columns);
    auto out = gm.out<T>(rows * columns);
    example::poke(a, static_cast<uint32_t>(h * w * channels), small);
    finish();
    LoadData3DParamsV2<T> p;
    p.padList[0] = static_cast<uint8_t>(left);
    p.padList[1] = static_cast<uint8_t>(right);
    p.padList[2] = static_cast<uint8_t>(top);
    p.padList[3] = static_cast<uint8_t>(bottom);
    p.l1H = h;
    p.l1W = w;
    p.channelSize = channels;
    p.kExtension = k;
    p.mExtension = m;
    p.kStartPt = k0;
    p.mStartPt = m0;
    p.strideW = sw;
    p.strideH = sh;
    p.filterW = fw;
    p.filterH = fh;
    p.dilationFilterW = dw;
    p.dilationFilterH = dh;
    p.padValue = static_cast<T>(-7);
    stride_of(rows / 16);
    LoadData(dst, a, p);
    finish();
    example::peek(out, dst, rows * columns);
    finish();
    const T *got = out.GetPhyAddr();
    for (int r = 0; r < m && ascend_twin::effects(); r++) {
        for (int c = 0; c < k; c++) {
            const int mr = m0 + r, kc = k0 + c;
            const int block = kc / wide, point = block % (fh * fw), c1 = block / (fh * fw);
            const int y = mr / out_w * sh - top + point / fw * dh, x = mr % out_w * sw - left + point % fw * dw;
            const double want = y < 0 || y >= h || x < 0 || x >= w
                                    ? -7.0
                                    : small(static_cast<size_t>(((c1 * h + y) * w + x) * wide + kc % wide));
            const double found = example::number(got[in_l0a<T>(static_cast<size_t>(r), static_cast<size_t>(c), rows, columns)]);
            if (want != found) {
                ascend_twin::fail(ascend_twin::Rule::Assert, "expect", nullptr, ascend_twin::Site::here(), "row %d, column %d: expected %g, found %g",
                                  r, c, want, found);
            }
        }
    }
}

} // namespace

CUBE_EXAMPLE(convolution_2x2, "LoadData_3D") { convolution<half>(gm, 8, 8, 48, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 16, 32, 0, 32); }
CUBE_EXAMPLE(convolution_padded, "LoadData_3D") { convolution<half>(gm, 6, 7, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 0, 42, 0, 288); }
CUBE_EXAMPLE(convolution_strides, "LoadData_3D") { convolution<half>(gm, 9, 9, 16, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 0, 25, 16, 64); }
CUBE_EXAMPLE(convolution_dilated, "LoadData_3D") { convolution<int8_t>(gm, 9, 8, 64, 2, 3, 1, 1, 2, 2, 0, 0, 0, 0, 0, 28, 0, 384); }
CUBE_EXAMPLE(convolution_float, "LoadData_3D") { convolution<float>(gm, 4, 8, 24, 2, 2, 1, 2, 1, 1, 2, 0, 0, 1, 0, 16, 0, 96); }
CUBE_EXAMPLE(matrix_as_feature_map, "LoadData_3D") { convolution<half>(gm, 1, 48, 80, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 16, 32, 32, 48); }

CUBE_EXAMPLE(rows_beyond_the_map, "!range")
{
    LoadData3DParamsV2<half> p;
    p.l1H = 1;
    p.l1W = 32;
    p.channelSize = 16;
    p.kExtension = 16;
    p.mExtension = 48;
    stride_of(3);
    LoadData(l0a<half>(1024), l1<half>(0, 1024), p);
}
CUBE_EXAMPLE(columns_beyond_the_map, "!range")
{
    LoadData3DParamsV2<half> p;
    p.l1H = 1;
    p.l1W = 32;
    p.channelSize = 16;
    p.kExtension = 32;
    p.mExtension = 32;
    stride_of(2);
    LoadData(l0a<half>(1024), l1<half>(0, 1024), p);
}

CUBE_EXAMPLE(map_by_registers, "SetFmatrix")
{
    auto a = l1<half>(0, 2 * 5 * 16);
    auto dst = l0a<half>(256);
    auto out = gm.out<half>(256);
    example::poke(a, 160, from_one);
    finish();
    const uint8_t pad[4] = {1, 0, 0, 0};
    SetFmatrix(2, 5, pad, FmatrixMode::FMATRIX_LEFT);
    SetLoadDataPaddingValue<half>(static_cast<half>(99));
    static constexpr IsResetLoad3dConfig config = {false, false};
    LoadData3DParamsV2<half> p;
    p.l1H = 1; // not taken
    p.l1W = 1;
    p.channelSize = 16;
    p.kExtension = 16;
    p.mExtension = 12;
    stride_of(1);
    LoadData<half, config>(dst, a, p);
    finish();
    example::peek(out, dst, 256);
    finish();
    expect_each(out, 12 * 16, [](size_t i) {
        const size_t r = i / 16, y = r / 6, x = r % 6;
        return x == 0 ? 99.0 : (y * 5 + x - 1) * 16.0 + i % 16 + 1;
    });
}

CUBE_EXAMPLE(parameters_in_two_words, "LoadData_3D")
{
    auto a = l1<half>(0, 64 * 32);
    auto dst = l0a<half>(256);
    auto out = gm.out<half>(256);
    example::poke(a, 64 * 32, small);
    finish();
    const uint8_t pad[4] = {0, 0, 0, 0};
    SetFmatrix(1, 64, pad, FmatrixMode::FMATRIX_LEFT);
    LoadData3DParamsV2Pro p;
    p.channelSize = 32;
    p.extConfig = 32ull << 48 | 16ull << 32 | 16ull << 16 | 16;
    stride_of(1);
    LoadData(dst, a, p);
    finish();
    example::peek(out, dst, 256);
    finish();
    expect_each(out, 256, [](size_t i) { return small(64 * 16 + 32 * 16 + i); });
}

CUBE_EXAMPLE(map_not_set, "!usage")
{
    static constexpr IsResetLoad3dConfig config = {false, true};
    LoadData3DParamsV2<half> p;
    p.l1H = p.l1W = 1;
    p.channelSize = p.kExtension = p.mExtension = 16;
    LoadData<half, config>(l0a<half>(256), l1<half>(0, 256), p);
}

CUBE_EXAMPLE(repeat_along_m, "SetLoadDataRepeat")
{
    // 16 of every 32 rows, three times: a matrix of 48 rows.
    auto a = l1<half>(0, 96 * 16);
    auto dst = l0a<half>(48 * 16);
    auto out = gm.out<half>(48 * 16);
    example::poke(a, 96 * 16, from_one);
    finish();
    LoadData3DParamsV2<half> p;
    p.l1H = 1;
    p.l1W = 96;
    p.channelSize = 16;
    p.kExtension = 16;
    p.mExtension = 16;
#if __NPU_ARCH__ == 3510
    SetLoadDataRepeat(LoadDataRepeatParam(2, 3, 0, 3));
#else
    SetLoadDataRepeat(LoadDataRepeatParam(2, 3, 0));
#endif
    LoadData(dst, a, p);
    finish();
    example::peek(out, dst, 48 * 16);
    finish();
    expect_each(out, 48 * 16, [](size_t i) { return (i / 256 * 32 + i % 256 / 16) * 16 + i % 16 + 1; });
}

CUBE_EXAMPLE(repeat_along_k, "SetLoadDataRepeat")
{
    auto a = l1<half>(0, 16 * 80);
    auto dst = l0a<half>(16 * 48);
    auto out = gm.out<half>(16 * 48);
    example::poke(a, 16 * 80, from_one);
    finish();
    LoadData3DParamsV2<half> p;
    p.l1H = 1;
    p.l1W = 16;
    p.channelSize = 80;
    p.kExtension = 16;
    p.mExtension = 16;
#if __NPU_ARCH__ == 3510
    SetLoadDataRepeat(LoadDataRepeatParam(2, 3, 1, 1));
#else
    SetLoadDataRepeat(LoadDataRepeatParam(2, 3, 1));
#endif
    LoadData(dst, a, p);
    finish();
    example::peek(out, dst, 16 * 48);
    finish();
    expect_each(out, 16 * 48, [](size_t i) { return i / 256 * 2 * 256 + i % 256 + 1; });
}

// ---- Fill

CUBE_EXAMPLE(fill_l1, "Fill")
{
    auto a = l1<half>(0, 40 * 16);
    auto out = gm.out<half>(40 * 16);
    example::poke(a, 40 * 16, minus);
    finish();
    Fill(a, InitConstValueParams<half>(5, 3, 5, 0));
    finish();
    example::peek(out, a, 40 * 16);
    finish();
    expect_each(out, 40 * 16, [](size_t i) { return i / 16 % 8 < 3 ? 0 : -1; });
}

CUBE_EXAMPLE(fill_with_ones, "Fill")
{
    auto a = l1<float>(0, 256);
    auto out = gm.out<float>(256);
    Fill(a, {1, static_cast<uint16_t>(16 * 16 * sizeof(float) / 32), 0, 1});
    finish();
    example::peek(out, a, 256);
    finish();
    expect_each(out, 256, [](size_t) { return 1; });
}

#if __NPU_ARCH__ == 2201
CUBE_EXAMPLE(fill_l0a, "Fill")
{
    auto a = l0a<half>(25 * 256);
    auto out = gm.out<half>(25 * 256);
    example::poke(a, 25 * 256, minus);
    finish();
    Fill(a, InitConstValueParams<half>(5, 2, 3, 0));
    finish();
    example::peek(out, a, 25 * 256);
    finish();
    expect_each(out, 25 * 256, [](size_t i) { return i / 256 % 5 < 2 ? 0 : -1; });
}
#else
CUBE_EXAMPLE(fill_l0a_is_not_there, "!usage") { Fill(l0a<half>(256), InitConstValueParams<half>(1, 1, 0, 0)); }
#endif
CUBE_EXAMPLE(fill_bytes, "!type") { Fill(l1<int8_t>(0, 256), InitConstValueParams<int8_t>(1, 1, 0, 0)); }
CUBE_EXAMPLE(fill_too_often, "!range") { Fill(l1<half>(0, 256), InitConstValueParams<half>(32768, 1, 0, 0)); }

EXAMPLES_END
