// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Copies of a vector core: GM and UB, UB and UB.

#include "peek.h"

using namespace AscendC;
using example::finish;

namespace {

int from_one(size_t i) { return static_cast<int>(i) + 1; }
int small(size_t i) { return static_cast<int>(i % 100) + 1; }
// What is in UB before a copy.
double minus(size_t) { return -1; }

template <class T> LocalTensor<T> ub(uint32_t address, uint32_t count) { return LocalTensor<T>(TPosition::VECCALC, address, count); }

} // namespace

EXAMPLE(contiguous, "DataCopy（GM与UB连续数据搬运）")
{
    auto src = gm.fill<half>(512, from_one);
    auto dst = gm.out<half>(512);
    auto a = ub<half>(0, 512);
    DataCopy(a, src, 512);
    finish();
    DataCopy(dst, a, 512);
    finish();
    expect_each(dst, 512, from_one);
}

EXAMPLE(one_block, "DataCopy（GM与UB高维切分数据搬运）")
{
    auto src = gm.fill<half>(512, from_one);
    auto dst = gm.out<half>(512);
    auto a = ub<half>(0, 512);
    DataCopyParams p;
    p.blockCount = 1;
    p.blockLen = 512 * sizeof(half) / 32;
    p.srcGap = 0;
    p.dstGap = 0;
    DataCopy(a, src, p);
    finish();
    DataCopy(dst, a, p);
    finish();
    expect_each(dst, 512, from_one);
}

EXAMPLE(blocks_with_gaps, "DataCopy（GM与UB高维切分数据搬运）")
{
    // Two blocks of three, one block apart in GM, two in UB.
    auto src = gm.fill<half>(112, from_one);
    auto dst = gm.out<half>(128);
    auto a = ub<half>(0, 128);
    example::poke(a, 128, minus);
    finish();
    DataCopy(a, src, {2, 3, 1, 2});
    finish();
    example::peek(dst, a, 128);
    finish();
    expect_each(dst, 128, [](size_t i) { return i < 48 ? i + 1.0 : i < 80 ? -1.0 : i - 80 + 65.0; });
}

EXAMPLE(blocks_back_to_gm, "DataCopy（GM与UB高维切分数据搬运）")
{
    auto src = gm.fill<half>(112, from_one);
    auto dst = gm.out<half>(128);
    auto a = ub<half>(0, 112);
    DataCopy(a, src, 112);
    finish();
    DataCopy(dst, a, DataCopyParams(2, 3, 1, 2));
    finish();
    expect_each(dst, 128, [](size_t i) { return i < 48 ? i + 1.0 : i < 80 ? 0.0 : i - 80 + 65.0; });
}

EXAMPLE(fields_are_numbers, "DataCopy（GM与UB高维切分数据搬运）")
{
    auto src = gm.fill<half>(512, from_one);
    auto dst = gm.out<half>(512);
    auto a = ub<half>(0, 512);
    constexpr DataCopyParams four(1, 4, 0, 0);
    DataCopyParams p;
    const int tail = 28;
    p.blockLen = four.blockCount == 1 ? four.blockLen : tail;
    p.blockLen += p.blockCount > 1 ? 0 : tail;
    p.blockCount++;
    p.blockCount -= 1;
    const uint16_t len = p.blockLen;
    DataCopy(a, src, {1, len, 0, 0});
    finish();
    DataCopy(dst, a, p.blockLen * 16);
    finish();
    expect_each(dst, 512, from_one);
}

EXAMPLE(ub_to_ub, "DataCopy（UBToUB连续数据搬运）")
{
    auto src = gm.fill<half>(512, from_one);
    auto dst = gm.out<half>(512);
    auto a = ub<half>(0, 512), b = ub<half>(4096, 512);
    DataCopy(a, src, 512);
    finish();
    DataCopy(b, a, 512);
    finish();
    DataCopy(dst, b, 512);
    finish();
    expect_each(dst, 512, from_one);
}

EXAMPLE(ub_to_ub_gaps, "DataCopy（UBToUB高维切分数据搬运）")
{
    auto src = gm.fill<half>(112, from_one);
    auto dst = gm.out<half>(128);
    auto a = ub<half>(0, 112), b = ub<half>(4096, 128);
    DataCopy(a, src, 112);
    example::poke(b, 128, minus);
    finish();
    DataCopyParams p;
    p.blockCount = 2;
    p.blockLen = 3;
    p.srcStride = 1;
    p.dstStride = 2;
    DataCopy(b, a, p);
    finish();
    DataCopy(dst, b, 128);
    finish();
    expect_each(dst, 128, [](size_t i) { return i < 48 ? i + 1.0 : i < 80 ? -1.0 : i - 80 + 65.0; });
}

EXAMPLE(slices, "DataCopy（GM与UB切片数据搬运）")
{
    auto src = gm.fill<float>(3 * 87, from_one);
    auto dst = gm.out<float>(96);
    auto a = ub<float>(0, 96);
    SliceInfo from[] = {{16, 70, 7, 3, 87}, {0, 2, 1, 1, 3}};
    SliceInfo to[] = {{0, 47, 0, 3, 48}, {0, 1, 0, 1, 2}};
    DataCopy(a, src, to, from, 2);
    finish();
    DataCopy(dst, a, to, to, 2);
    finish();
    expect_each(dst, 96, [](size_t i) {
        const size_t row = i / 48 * 2, piece = i % 48 / 24, in = i % 24;
        return row * 87 + 16 + piece * 31 + in + 1;
    });
}

EXAMPLE(slices_that_do_not_fit, "!range")
{
    auto src = gm.fill<float>(3 * 87, from_one);
    auto a = ub<float>(0, 96);
    SliceInfo from[] = {{16, 71, 7, 3, 87}, {0, 2, 1, 1, 3}};
    SliceInfo to[] = {{0, 47, 0, 3, 48}, {0, 1, 0, 1, 2}};
    DataCopy(a, src, to, from, 2);
}

// ---- layouts

EXAMPLE(nd_to_nz, "DataCopy（GMToUB随路转换ND2NZ搬运）")
{
    auto src = gm.fill<half>(1024, from_one);
    auto dst = gm.out<half>(1024);
    auto a = ub<half>(0, 1024);
    Nd2NzParams p{1, 32, 32, 0, 32, 32, 1, 0};
    DataCopy(a, src, p);
    finish();
    DataCopy(dst, a, 1024);
    finish();
    // 1 .. 16, 33 .. 48, 65 .. 80, ...
    expect_each(dst, 1024, [](size_t i) { return i % 512 / 16 * 32 + i / 512 * 16 + i % 16 + 1; });
}

EXAMPLE(nd_to_nz_two_matrices, "DataCopy（GMToUB随路转换ND2NZ搬运）")
{
    auto src = gm.fill<half>(144 + 48 + 24, from_one);
    auto dst = gm.out<half>(16 * 20);
    auto a = ub<half>(0, 16 * 20);
    example::poke(a, 16 * 20, minus);
    finish();
    Nd2NzParams p;
    p.ndNum = 2;
    p.nValue = 2;
    p.dValue = 24;
    p.srcNdMatrixStride = 144;
    p.srcDValue = 48;
    p.dstNzC0Stride = 11;
    p.dstNzNStride = 2;
    p.dstNzMatrixStride = 96;
    DataCopy(a, src, p);
    finish();
    example::peek(dst, a, 16 * 20);
    finish();
    expect_each(dst, 16 * 20, [](size_t i) {
        const size_t block = i / 16, e = i % 16;
        // Blocks of the destination: A1 B1 of both matrices, then A2 B2.
        const int at[] = {0, 2, 6, 8, 11, 13, 17, 19};
        const int from[] = {0, 48, 144, 192, 16, 64, 160, 208};
        for (int k = 0; k < 8; k++) {
            if (static_cast<int>(block) == at[k]) {
                return k < 4 || e < 8 ? from[k] + static_cast<double>(e) + 1 : 0.0; // filled with zeros to 32 bytes
            }
        }
        return -1.0;
    });
}

EXAMPLE(nz_to_nd, "DataCopy（UBToGM随路转换NZ2ND搬运）")
{
    auto src = gm.fill<half>(1024, from_one);
    auto dst = gm.out<half>(1024);
    auto a = ub<half>(0, 1024);
    DataCopy(a, src, 1024);
    finish();
    Nz2NdParamsFull p{1, 32, 32, 1, 32, 32, 1};
    DataCopy(dst, a, p);
    finish();
    // 1 .. 16, 513 .. 528, 17 .. 32, 529 .. 544, ...
    expect_each(dst, 1024, [](size_t i) { return i / 32 * 16 + i % 32 / 16 * 512 + i % 16 + 1; });
}

EXAMPLE(nz_to_nd_two_matrices, "DataCopy（UBToGM随路转换NZ2ND搬运）")
{
    auto src = gm.fill<half>(512, from_one);
    auto dst = gm.out<half>(4 * 160);
    auto a = ub<half>(0, 512);
    DataCopy(a, src, 512);
    finish();
    Nz2NdParamsFull p;
    p.ndNum = 2;
    p.nValue = 4;
    p.dValue = 32;
    p.srcNdMatrixStride = 1;
    p.srcNStride = 4;
    p.dstDStride = 160;
    p.dstNdMatrixStride = 48;
    DataCopy(dst, a, p);
    finish();
    expect_each(dst, 4 * 160, [](size_t i) {
        const size_t r = i / 160, c = i % 160;
        const size_t x = c / 48, in = c % 48;
        return x < 2 && in < 32 ? static_cast<double>(x * 256 + in / 16 * 64 + r * 16 + in % 16 + 1) : 0.0;
    });
}

EXAMPLE(nz_to_nd_float, "DataCopy（UBToGM随路转换NZ2ND搬运）")
{
    auto src = gm.fill<float>(512, from_one);
    auto dst = gm.out<float>(4 * 144);
    auto a = ub<float>(0, 512);
    DataCopy(a, src, 512);
    finish();
    DataCopy(dst, a, Nz2NdParamsFull{2, 4, 32, 1, 4, 144, 40});
    finish();
    expect_each(dst, 4 * 144, [](size_t i) {
        const size_t r = i / 144, c = i % 144, x = c / 40, in = c % 40;
        return x < 2 && in < 32 ? static_cast<double>(x * 256 + in / 16 * 64 + r * 16 + in % 16 + 1) : 0.0;
    });
}

// ---- blocks of any length

EXAMPLE(pad_aligned, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    // 64 bytes a block, one byte apart in GM, one block of 32 bytes apart in UB.
    auto src = gm.fill<int8_t>(129, small);
    auto dst = gm.out<int8_t>(160);
    auto a = ub<int8_t>(0, 160);
    example::poke(a, 160, minus);
    finish();
    DataCopyPad(a, src, DataCopyExtParams{2, 64, 1, 1, 0}, DataCopyPadExtParams<int8_t>{false, 0, 0, 0});
    finish();
    example::peek(dst, a, 160);
    finish();
    expect_each(dst, 160, [](size_t i) { return i < 64 ? small(i) : i < 96 ? -1 : small(i - 96 + 65); });
}

EXAMPLE(pad_dummies_repeat_the_first_element, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    auto src = gm.fill<int8_t>(95, small);
    auto dst = gm.out<int8_t>(160);
    auto map = gm.out<uint8_t>(160);
    auto a = ub<int8_t>(0, 160);
    example::poke(a, 160, minus);
    finish();
    DataCopyPad(a, src, DataCopyExtParams{2, 47, 1, 1, 0}, DataCopyPadExtParams<int8_t>{false, 0, 0, 0});
    finish();
    example::peek(dst, a, 160);
    example::peek_defined(map, a, 160);
    finish();
    expect_each(dst, 160, [](size_t i) {
        const size_t block = i / 96, in = i % 96;
        return in < 47 ? small(block * 48 + in) : in < 64 ? small(block * 48) : -1;
    });
    // Dummies have a value, but none to be used.
    expect_each(map, 160, [](size_t i) { return i % 96 < 47 || i % 96 >= 64; });
}

EXAMPLE(pad_value, "SetPadValue(ISASI)")
{
    auto src = gm.fill<half>(20, from_one);
    auto dst = gm.out<half>(32);
    auto a = ub<half>(0, 32);
    DataCopyExtParams copy{1, 20 * sizeof(half), 0, 0, 0};
    DataCopyPadExtParams<half> pad;
    pad.isPad = false;
    pad.leftPadding = 0;
    pad.rightPadding = 12;
    SetPadValue((half)1);
    DataCopyPad(a, src, copy, pad);
    finish();
    DataCopy(dst, a, 32);
    finish();
    expect_each(dst, 32, [](size_t i) { return i < 20 ? i + 1.0 : 1.0; });
}

EXAMPLE(pad_right, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    auto src = gm.fill<float>(32 * 59, from_one);
    auto dst = gm.out<float>(32 * 64);
    auto a = ub<float>(0, 32 * 64);
    DataCopyExtParams copy{32, 59 * sizeof(float), 0, 0, 0};
    DataCopyPadExtParams<float> pad;
    pad.isPad = true;
    pad.leftPadding = 0;
    pad.rightPadding = 5;
    DataCopyPad(a, src, copy, pad);
    finish();
    DataCopy(dst, a, 32 * 64);
    finish();
    expect_each(dst, 32 * 64, [](size_t i) { return i % 64 < 59 ? i / 64 * 59 + i % 64 + 1.0 : 0.0; });
}

EXAMPLE(pad_left_and_right, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    auto src = gm.fill<half>(20, from_one);
    auto dst = gm.out<half>(32);
    auto map = gm.out<uint8_t>(64);
    auto a = ub<half>(0, 32);
    DataCopyPad(a, src, DataCopyExtParams{1, 40, 0, 0, 0}, DataCopyPadExtParams<half>{true, 3, 5, 9});
    finish();
    example::peek(dst, a, 32);
    example::peek_defined(map, a, 64);
    finish();
    expect_each(dst, 32, [](size_t i) { return i >= 3 && i < 23 ? i - 2.0 : 9.0; });
    expect_each(map, 64, [](size_t i) { return i < 56; });
}

EXAMPLE(pad_to_gm, "DataCopyPad（UBToGM非对齐数据搬运）")
{
    auto src = gm.fill<int8_t>(160, small);
    auto dst = gm.out<int8_t>(130);
    auto a = ub<int8_t>(0, 160);
    DataCopy(a, src, 160);
    finish();
    DataCopyPad(dst, a, DataCopyExtParams{2, 64, 1, 1, 0});
    finish();
    expect_each(dst, 130, [](size_t i) { return i < 64 ? small(i) : i == 64 || i == 129 ? 0 : small(i - 65 + 96); });
}

EXAMPLE(pad_to_gm_unaligned, "DataCopyPad（UBToGM非对齐数据搬运）")
{
    auto src = gm.fill<int8_t>(160, small);
    auto dst = gm.out<int8_t>(96);
    auto a = ub<int8_t>(0, 160);
    DataCopy(a, src, 160);
    finish();
    DataCopyPad(dst, a, DataCopyExtParams{2, 47, 1, 1, 0});
    finish();
    expect_each(dst, 96, [](size_t i) { return i % 48 == 47 ? 0 : small(i / 48 * 96 + i % 48); });
}

EXAMPLE(pad_old_form, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    auto src = gm.fill<half>(40, from_one);
    auto dst = gm.out<half>(40);
    auto a = ub<half>(0, 64);
    DataCopyPad(a, src, DataCopyParams{2, 40, 0, 0}, DataCopyPadParams{true, 0, 12, 0});
    finish();
    DataCopyPad(dst, a, DataCopyParams{2, 40, 0, 0});
    finish();
    expect_each(dst, 40, from_one);
}

#if __NPU_ARCH__ == 3510
EXAMPLE(pad_same_block_again, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    auto src = gm.fill<int8_t>(48, small);
    auto dst = gm.out<int8_t>(192);
    auto a = ub<int8_t>(0, 192);
    example::poke(a, 192, minus);
    finish();
    DataCopyPad(a, src, DataCopyExtParams{2, 48, -48, 1, 0}, DataCopyPadExtParams<int8_t>{false, 0, 0, 0});
    finish();
    example::peek(dst, a, 192);
    finish();
    expect_each(dst, 160, [](size_t i) {
        const size_t in = i % 96;
        return in < 48 ? small(in) : in < 64 ? small(0) : -1;
    });
}

EXAMPLE(pad_compact, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    auto src = gm.fill<half>(72, from_one);
    auto dst = gm.out<half>(80);
    auto a = ub<half>(0, 80);
    DataCopyExtParams copy{3, 24 * sizeof(half), 0, 0, 0};
    DataCopyPadExtParams<half> pad;
    pad.isPad = true;
    pad.leftPadding = 0;
    pad.rightPadding = 8;
    DataCopyPad<half, PaddingMode::Compact>(a, src, copy, pad);
    finish();
    DataCopy(dst, a, 80);
    finish();
    expect_each(dst, 80, [](size_t i) { return i < 72 ? i + 1.0 : 0.0; });
}

EXAMPLE(loop_mode, "SetLoopModePara")
{
    auto src = gm.fill<int8_t>(384, small);
    auto dst = gm.out<int8_t>(544);
    auto a = ub<int8_t>(0, 544);
    example::poke(a, 544, minus);
    finish();
    LoopModeParams loops;
    loops.loop1Size = 2;
    loops.loop2Size = 2;
    loops.loop1SrcStride = 96;
    loops.loop2SrcStride = 192;
    loops.loop1DstStride = 128;
    loops.loop2DstStride = 288;
    SetLoopModePara(loops, DataCopyMVType::OUT_TO_UB);
    DataCopyPad<int8_t, PaddingMode::Compact>(a, src, DataCopyExtParams{2, 48, 0, 0, 0}, DataCopyPadExtParams<int8_t>{false, 0, 0, 0});
    ResetLoopModePara(DataCopyMVType::OUT_TO_UB);
    finish();
    example::peek(dst, a, 544);
    finish();
    expect_each(dst, 512, [](size_t i) {
        const size_t outer = i / 288, rest = i % 288, inner = rest / 128, in = rest % 128;
        return inner < 2 && in < 96 ? small(outer * 192 + inner * 96 + in) : -1;
    });
}

EXAMPLE(loop_mode_normal, "DataCopyPad（GMToUB非对齐数据搬运）")
{
    // Every block of 40 bytes is filled up to 64 with -1.
    auto src = gm.fill<int8_t>(2 * 2 * 2 * 40, small);
    auto dst = gm.out<int8_t>(2 * 2 * 2 * 64);
    auto a = ub<int8_t>(0, 2 * 2 * 2 * 64);
    SetLoopModePara(LoopModeParams{2, 2, 80, 128, 160, 256}, DataCopyMVType::OUT_TO_UB);
    DataCopyPad(a, src, DataCopyExtParams{2, 40, 0, 0, 0}, DataCopyPadExtParams<int8_t>{true, 0, 0, -1});
    ResetLoopModePara(DataCopyMVType::OUT_TO_UB);
    finish();
    DataCopy(dst, a, 512);
    finish();
    expect_each(dst, 512, [](size_t i) { return i % 64 < 40 ? small(i / 64 * 40 + i % 64) : -1; });
}

EXAMPLE(five_dimensions, "SetLoopModePara")
{
    auto src = gm.fill<int8_t>(2 * 4 * 3 * 128 * 126, small);
    auto dst = gm.out<int8_t>(512 * 128);
    auto a = ub<int8_t>(0, 512 * 128);
    LoopModeParams loops{2, 2, 128 * 126, 64 * 128, 3 * 128 * 126, 2 * 64 * 128};
    SetLoopModePara(loops, DataCopyMVType::OUT_TO_UB);
    DataCopyExtParams copy{64, 126, 0, 0, 0};
    DataCopyPadExtParams<int8_t> pad{true, 0, 0, 0};
    for (uint32_t dim0 = 0; dim0 < 2; dim0++) {
        DataCopyPad(a[dim0 * 2 * 2 * 64 * 128], src[dim0 * 4 * 3 * 128 * 126], copy, pad);
    }
    ResetLoopModePara(DataCopyMVType::OUT_TO_UB);
    finish();
    DataCopy(dst, a, 512 * 128);
    finish();
    expect_each(dst, 512 * 128, [](size_t i) {
        const size_t row = i / 128, c = i % 128;
        const size_t d0 = row / 256, d1 = row / 128 % 2, d2 = row / 64 % 2, d3 = row % 64;
        return c < 126 ? small((((d0 * 4 + d1) * 3 + d2) * 128 + d3) * 126 + c) : 0;
    });
}

EXAMPLE(loop_mode_left_set, "!state-left")
{
    SetLoopModePara(LoopModeParams{2, 2, 80, 128, 160, 256}, DataCopyMVType::OUT_TO_UB);
}

EXAMPLE(loop_mode_stride_in_ub, "!alignment")
{
    SetLoopModePara(LoopModeParams{2, 2, 80, 100, 160, 256}, DataCopyMVType::OUT_TO_UB);
}

EXAMPLE(copy_count, "Copy（UBToUB连续数据搬运）")
{
    auto src = gm.fill<int32_t>(100, from_one);
    auto dst = gm.out<int32_t>(100);
    auto a = ub<int32_t>(0, 104), b = ub<int32_t>(1024, 104);
    DataCopyPad(a, src, DataCopyExtParams{1, 400, 0, 0, 0}, DataCopyPadExtParams<int32_t>{false, 0, 0, 0});
    finish();
    Copy(b, a, 100);
    finish();
    DataCopyPad(dst, b, DataCopyExtParams{1, 400, 0, 0, 0});
    finish();
    expect_each(dst, 100, from_one);
}
#else
EXAMPLE(ub_to_l1, "!usage")
{
    auto a = ub<half>(0, 64);
    LocalTensor<half> b(TPosition::TSCM, 0, 64);
    DataCopy(b, a, 64);
}
#endif

// ---- Copy

EXAMPLE(copy_all, "Copy（UBToUB掩码式高维数据搬运）")
{
    auto src = gm.fill<int32_t>(512, from_one);
    auto dst = gm.out<int32_t>(512);
    auto a = ub<int32_t>(0, 512), b = ub<int32_t>(4096, 512);
    DataCopy(a, src, 512);
    finish();
    uint64_t mask = 64;
    Copy(b, a, mask, 8, {1, 1, 8, 8});
    finish();
    DataCopy(dst, b, 512);
    finish();
    expect_each(dst, 512, from_one);
}

EXAMPLE(copy_columns, "Copy（UBToUB掩码式高维数据搬运）")
{
    // The first eight of each of 18 rows of 64.
    auto src = gm.fill<int32_t>(18 * 64, from_one);
    auto dst = gm.out<int32_t>(18 * 8);
    auto a = ub<int32_t>(0, 18 * 64), b = ub<int32_t>(8192, 18 * 8);
    DataCopy(a, src, 18 * 64);
    finish();
    uint64_t mask = 8;
    Copy(b, a, mask, 18, {1, 1, 1, 8});
    finish();
    DataCopy(dst, b, 18 * 8);
    finish();
    expect_each(dst, 18 * 8, [](size_t i) { return i / 8 * 64 + i % 8 + 1; });
}

EXAMPLE(copy_bits, "Copy（UBToUB掩码式高维数据搬运）")
{
    auto src = gm.fill<half>(256, from_one);
    auto dst = gm.out<half>(256);
    auto a = ub<half>(0, 256), b = ub<half>(4096, 256);
    DataCopy(a, src, 256);
    example::poke(b, 256, minus);
    finish();
    uint64_t mask[2] = {0x5555555555555555ull, 0xffffull};
    Copy(b, a, mask, 2, {1, 1, 8, 8});
    finish();
    DataCopy(dst, b, 256);
    finish();
    expect_each(dst, 256, [](size_t i) {
        const size_t e = i % 128;
        return (e < 64 && e % 2 == 0) || (e >= 64 && e < 80) ? i + 1.0 : -1.0;
    });
}

EXAMPLE(copy_repeat_too_large, "!range")
{
    auto a = ub<half>(0, 256), b = ub<half>(4096, 256);
    uint64_t mask = 128;
    Copy(b, a, mask, 256, {1, 1, 8, 8});
}

// ---- atomic operations

EXAMPLE(atomic_add, "SetAtomicAdd")
{
    auto src = gm.fill<float>(256, from_one);
    auto dst = gm.fill<float>(256, from_one);
    auto a = ub<float>(0, 256);
    DisableDmaAtomic();
    DataCopy(a, src, 256);
    finish();
    SetAtomicAdd<float>();
    DataCopy(dst, a, 256);
    finish();
    DataCopy(dst, a, 256);
    DisableDmaAtomic();
    finish();
    expect_each(dst, 256, [](size_t i) { return 3 * (i + 1.0); });
}

EXAMPLE(atomic_max, "SetAtomicMax(ISASI)")
{
    auto first = gm.fill<int16_t>(256, [](size_t) { return 1; }), second = gm.fill<int16_t>(256, [](size_t) { return 2; });
    auto dst = gm.out<int16_t>(256);
    auto a = ub<int16_t>(0, 256), b = ub<int16_t>(512, 256);
    DataCopy(a, first, 256);
    DataCopy(b, second, 256);
    finish();
    SetAtomicMax<int16_t>();
    DataCopy(dst, b, 256);
    DataCopy(dst, a, 256); // no order between the two is needed
    SetAtomicNone();
    finish();
    expect_each(dst, 256, [](size_t) { return 2; });
}

template <class T> void atomic(example::Scratch &gm, double first, double second, double sum, double least)
{
    T *p = gm.raw<T>(64);
    for (int i = 0; i < 64; i++) {
        p[i] = static_cast<T>(first);
    }
    auto dst = example::Scratch::tensor(p, 64);
    auto src = gm.fill<T>(64, [=](size_t) { return second; });
    auto a = ub<T>(0, 64);
    DataCopy(a, src, 64);
    finish();
    SetAtomicMin<T>();
    DataCopy(dst[32], a, 32);
    SetAtomicNone();
    SetAtomicAdd<T>();
    DataCopy(dst, a, 32);
    SetAtomicNone();
    finish();
    expect_each(dst, 64, [=](size_t i) { return i < 32 ? sum : least; });
}

EXAMPLE(atomic_half, "SetAtomicAdd") { atomic<half>(gm, 2048, 1, 2048, 1); } // rounds to even
EXAMPLE(atomic_bfloat16, "SetAtomicAdd") { atomic<bfloat16_t>(gm, 1.5, -4, -2.5, -4); }
EXAMPLE(atomic_int32, "SetAtomicAdd") { atomic<int32_t>(gm, 100000, -3, 99997, -3); }
EXAMPLE(atomic_int16, "SetAtomicMin(ISASI)") { atomic<int16_t>(gm, 1000, 24, 1024, 24); }
EXAMPLE(atomic_int8, "SetAtomicAdd") { atomic<int8_t>(gm, 100, -30, 70, -30); }

EXAMPLE(atomic_of_another_type, "!usage")
{
    auto dst = gm.out<half>(64);
    auto a = ub<half>(0, 64);
    example::poke(a, 64, minus);
    finish();
    SetAtomicAdd<float>();
    DataCopy(dst, a, 64);
}
EXAMPLE(atomic_left_set, "!state-left") { SetAtomicAdd<float>(); }
EXAMPLE(atomic_type, "!type") { SetAtomicAdd<uint32_t>(); }

// ---- what must not pass

EXAMPLE(tail_is_no_block, "!alignment")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopy(ub<half>(0, 512), src, 500);
}
EXAMPLE(stride_overflows, "!range")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopyParams p;
    p.blockCount = 2;
    p.blockLen = 1;
    p.srcStride = 70000;
    DataCopy(ub<half>(0, 512), src, p);
}
EXAMPLE(too_many_blocks, "!range")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopy(ub<half>(0, 512), src, DataCopyParams(4096, 1, 0, 0));
}
EXAMPLE(rows_beyond_16384, "!range")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopy(ub<half>(0, 512), src, Nd2NzParams{1, 16385, 16, 0, 16, 16, 1, 0});
}
EXAMPLE(block_of_two_megabytes, "!range")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopyPad(ub<half>(0, 512), src, DataCopyExtParams{1, 2097152, 0, 0, 0}, DataCopyPadExtParams<half>{false, 0, 0, 0});
}
EXAMPLE(padding_of_34_bytes, "!range")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopyPad(ub<half>(0, 512), src, DataCopyExtParams{1, 32, 0, 0, 0}, DataCopyPadExtParams<half>{true, 0, 17, 0});
}
EXAMPLE(half_an_element, "!range")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopyPad(ub<half>(0, 512), src, DataCopyExtParams{1, 33, 0, 0, 0}, DataCopyPadExtParams<half>{false, 0, 0, 0});
}
EXAMPLE(dummies_to_gm, "!undefined")
{
    auto src = gm.fill<half>(512, from_one);
    auto dst = gm.out<half>(32);
    auto a = ub<half>(0, 32);
    DataCopyPad(a, src, DataCopyExtParams{1, 40, 0, 0, 0}, DataCopyPadExtParams<half>{false, 0, 0, 0});
    finish();
    DataCopy(dst, a, 32);
}
EXAMPLE(partial_overlap, "!overlap")
{
    auto a = ub<half>(0, 512);
    example::poke(a, 512, minus);
    finish();
    DataCopy(a[64], a, 128);
}
EXAMPLE(cube_memory_on_a_vector_core, "!wrong-core")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopy(LocalTensor<half>(TPosition::A1, 0, 512), src, 512);
}
EXAMPLE(beyond_ub, "!bounds|capacity")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopy(ub<half>(255 * 1024, 512), src, 512);
}
EXAMPLE(misaligned_ub, "!alignment")
{
    auto src = gm.fill<half>(512, from_one);
    DataCopy(ub<half>(16, 512), src, 512);
}
EXAMPLE(beyond_the_tensor, "!bounds")
{
    auto src = gm.fill<half>(64, from_one);
    DataCopy(ub<half>(0, 512), src, 128);
}

EXAMPLES_END
