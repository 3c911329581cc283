// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Filling, copying, comparison, selection, gathering, transposition.

#include "example.h"

#include "vector.h"

using example::Bench;

namespace {

double ramp(size_t i) { return static_cast<double>(i) + 1; }

const double kPrimes[] = {2, 3, 5, 7, 11, 13, 17, 19}, kEven[] = {2, 4, 6, 8, 10, 12, 14, 16};

// Eight of each of the first primes against eight of each even number, as the Compare page's picture has it.
double wide_prime(size_t i) { return kPrimes[i / 8 % 4]; }
double wide_even(size_t i) { return kEven[i / 8 % 4]; }

void compare_primes(example::Scratch &gm, CMPMODE mode, double want, ascend_twin::Site site = ascend_twin::Site::here())
{
    Bench b(gm);
    auto x = b.fill<float>(256, [](size_t i) { return kPrimes[i % 8]; }), y = b.fill<float>(256, [](size_t i) { return kEven[i % 8]; });
    auto dst = b.room<uint8_t>(32);
    Compare(dst, x, y, mode, 256, site);
    expect_each(b.out(dst, 32, site), 32, [want](size_t) { return want; }, 0, site);
}

} // namespace

EXAMPLE(duplicate_half, "Duplicate")
{
    Bench b(gm);
    auto lanes = b.room<half>(256), bits = b.room<half>(256), count = b.room<half>(256);
    half scalar = 18.0;
    Duplicate(lanes, scalar, 128, 2, 1, 8);
    uint64_t mask[2] = {UINT64_MAX, UINT64_MAX};
    Duplicate(bits, scalar, mask, 2, 1, 8);
    Duplicate<half>(count, scalar, 256);
    for (auto &t : {lanes, bits, count}) {
        expect_each(b.out(t, 256), 256, [](size_t) { return 18.0; });
    }
}

EXAMPLE(duplicate_every_other_block, "Duplicate")
{
    Bench b(gm);
    auto dst = b.fill<int32_t>(256, [](size_t) { return 5; });
    Duplicate(dst, 9, 64, 2, 2, 16);
    expect_each(b.out(dst, 256), 256, [](size_t i) { return i / 8 % 2 == 0 ? 9.0 : 5.0; });
}

EXAMPLE(create_vec_index, "CreateVecIndex")
{
    Bench b(gm);
    auto count = b.room<int16_t>(128), lanes = b.room<int16_t>(128);
    CreateVecIndex(count, (int16_t)0, 128);
    uint64_t mask = 128;
    CreateVecIndex(lanes, (int16_t)0, mask, 1, 1, 8);
    expect_each(b.out(count, 128), 128, [](size_t i) { return static_cast<double>(i); });
    expect_each(b.out(lanes, 128), 128, [](size_t i) { return static_cast<double>(i); });
}

EXAMPLE(arith_progression, "Arange")
{
    Bench b(gm);
    auto half_steps = b.room<float>(100);
    auto down = b.room<int32_t>(100);
    ArithProgression(half_steps, 1.0f, 0.5f, 100);
    Arange(down, 5, -3, 100);
    expect_each(b.out(half_steps, 100), 100, [](size_t i) { return 1 + static_cast<double>(i) / 2; });
    expect_each(b.out(down, 100), 100, [](size_t i) { return 5 - 3 * static_cast<double>(i); });
}

EXAMPLE(brcb_half, "Brcb")
{
    Bench b(gm);
    auto src = b.fill<half>(16, ramp);
    auto dst = b.fill<half>(256, [](size_t) { return 0; });
    Brcb(dst, src, 2, {1, 8});
    expect_each(b.out(dst, 256), 256, [](size_t i) { return ramp(i / 16); });
}

EXAMPLE(brcb_gaps, "Brcb")
{
    Bench b(gm);
    auto src = b.fill<float>(8, ramp);
    auto dst = b.fill<float>(128, [](size_t) { return 0; });
    Brcb(dst, src, 1, {2, 16});
    expect_each(b.out(dst, 128), 128, [](size_t i) { return i / 8 % 2 == 0 ? ramp(i / 16) : 0.0; });
}

EXAMPLE(copy_all, "Copy（UBToUB掩码式高维数据搬运）")
{
    Bench b(gm);
    auto src = b.fill<int32_t>(512, ramp);
    auto dst = b.room<int32_t>(512);
    uint64_t mask = 64;
    Copy(dst, src, mask, 8, {1, 1, 8, 8});
    expect_each(b.out(dst, 512), 512, ramp);
}

EXAMPLE(copy_columns, "Copy（UBToUB掩码式高维数据搬运）")
{
    Bench b(gm);
    auto src = b.fill<int32_t>(18 * 64, ramp);
    auto dst = b.room<int32_t>(18 * 8);
    uint64_t mask = 8;
    Copy(dst, src, mask, 18, {1, 1, 1, 8});
    expect_each(b.out(dst, 144), 144, [](size_t i) { return ramp(i / 8 * 64 + i % 8); });
}

EXAMPLE(copy_counter, "Copy（UBToUB掩码式高维数据搬运）")
{
    Bench b(gm);
    auto src = b.fill<int32_t>(18 * 64, ramp);
    auto dst = b.room<int32_t>(18 * 8);
    SetMaskCount();
    SetVectorMask<int32_t, MaskMode::COUNTER>(144);
    Copy<int32_t, false>(dst, src, MASK_PLACEHOLDER, 1, {1, 8, 8, 64});
    SetMaskNorm();
    ResetMask();
    expect_each(b.out(dst, 144), 144, [](size_t i) { return ramp(i / 8 * 64 + i % 8); });
}

EXAMPLE(compare_lt_wide, "Compare")
{
    Bench b(gm);
    auto x = b.fill<float>(64, [](size_t i) { return i < 32 ? wide_prime(i) : 0; });
    auto y = b.fill<float>(64, [](size_t i) { return i < 32 ? wide_even(i) : 0; });
    auto dst = b.room<uint8_t>(8);
    Compare(dst, x, y, CMPMODE::LT, 64);
    // The page prints a full byte as 127.
    expect(b.out(dst, 8), {0, 255, 255, 255, 0, 0, 0, 0});
}
EXAMPLE(compare_gt, "Compare") { compare_primes(gm, CMPMODE::GT, 240); }
EXAMPLE(compare_ge, "Compare") { compare_primes(gm, CMPMODE::GE, 241); }
EXAMPLE(compare_le, "Compare") { compare_primes(gm, CMPMODE::LE, 15); }
EXAMPLE(compare_eq, "Compare") { compare_primes(gm, CMPMODE::EQ, 1); }
EXAMPLE(compare_ne, "Compare") { compare_primes(gm, CMPMODE::NE, 254); }
EXAMPLE(compare_lt, "Compare") { compare_primes(gm, CMPMODE::LT, 14); }

EXAMPLE(compare_lanes, "Compare")
{
    Bench b(gm);
    auto x = b.fill<half>(256, [](size_t i) { return static_cast<double>(i % 3); }), y = b.fill<half>(256, [](size_t) { return 1; });
    auto dst = b.room<uint8_t>(32);
    Compare(dst, x, y, CMPMODE::GE, 128, 2, {1, 1, 1, 8, 8, 8});
    expect_each(b.out(dst, 32), 32, [](size_t i) {
        int v = 0;
        for (size_t j = 0; j < 8; j++) {
            v |= ((8 * i + j) % 3 >= 1 ? 1 : 0) << j;
        }
        return static_cast<double>(v);
    });
}

#if __NPU_ARCH__ == 3510
EXAMPLE(compare_pattern, "Compare")
{
    Bench b(gm);
    auto x = b.fill<float>(64, [](size_t i) { return i < 32 ? wide_prime(i) : 1; });
    auto y = b.fill<float>(64, [](size_t i) { return i < 32 ? wide_even(i) : 0; });
    auto dst = b.room<uint8_t>(8);
    uint64_t masks[2] = {858993459, 0};
    Compare(dst, x, y, CMPMODE::LE, masks, 1, {1, 1, 1, 1, 8, 8});
    expect(b.out(dst, 8), {51, 51, 51, 51, 0, 0, 0, 0});
}
#endif

EXAMPLE(compares_scalar, "Compares")
{
    Bench b(gm);
    auto x = b.fill<float>(256, ramp);
    auto count = b.room<uint8_t>(32), lanes = b.room<uint8_t>(32);
    Compares(count, x, 12.0f, CMPMODE::LT, 256);
    CompareScalar(lanes, x, 12.0f, CMPMODE::LT, 64, 4, {1, 1, 8, 8});
    for (auto &t : {count, lanes}) {
        expect_each(b.out(t, 32), 32, [](size_t i) { return i == 0 ? 255.0 : i == 1 ? 7.0 : 0.0; });
    }
}

EXAMPLE(compare_to_register, "Compare（结果存入寄存器）")
{
    Bench b(gm);
    auto x = b.fill<float>(64, [](size_t i) { return static_cast<double>(i % 4); }), y = b.fill<float>(64, [](size_t) { return 2; });
    auto bits = b.room<uint8_t>(128);
    auto dst = b.room<float>(128);
    auto p = b.fill<float>(128, ramp), q = b.fill<float>(128, [](size_t i) { return -ramp(i); });
    BinaryRepeatParams repeatParams = {1, 1, 1, 8, 8, 8};
    Compare(x, y, CMPMODE::LT, 64, repeatParams);
    PipeBarrier<PIPE_V>();
    GetCmpMask(bits);
    SetVectorMask<float>(64);
    Select<float, SELMODE::VSEL_CMPMASK_SPR>(dst, p, q, 2, {1, 1, 1, 8, 8, 8});
    ResetMask();
    expect(b.out(bits, 16), {0x33, 0x33, 0x33, 0x33, 0x33, 0x33, 0x33, 0x33, 0});
    expect_each(b.out(dst, 128), 128, [](size_t i) { return i % 4 < 2 ? ramp(i) : -ramp(i); });
}

EXAMPLE(select_register_scalar, "SetCmpMask(ISASI)")
{
    Bench b(gm);
    auto src = b.fill<float>(256, ramp);
    auto sel = b.fill<uint8_t>(32, [](size_t i) { return i % 2 == 0 ? 0x0f : 0xf0; });
    auto tmp = b.room<float>(32);
    auto dst = b.room<float>(256);
    SetVectorMask<uint32_t>(32);
    Duplicate<float, false>(tmp, static_cast<float>(1.0), MASK_PLACEHOLDER, 1, 1, 8);
    PipeBarrier<PIPE_V>();
    SetCmpMask(tmp);
    PipeBarrier<PIPE_V>();
    SetVectorMask<float>(64);
    Select(dst, sel, src, 4, {1, 1, 1, 8, 8, 8});
    ResetMask();
    expect_each(b.out(dst, 256), 256, [](size_t i) {
        bool low = i % 8 < 4, even = i / 8 % 2 == 0;
        return low == even ? ramp(i) : 1.0;
    });
}

// The bits of the Select page's rows; numbers by rule, for the rows are long.
EXAMPLE(select_tensors, "Select")
{
    Bench b(gm);
    auto mask = b.in<uint8_t>({60, 32, 10, 7, 42, 52, 38, 26, 19, 15, 18, 83, 41, 43, 91, 30, 45, 77, 80, 58, 34, 76, 44, 4, 64, 45, 48, 31, 30, 56, 43, 88});
    auto x = b.fill<float>(256, ramp), y = b.fill<float>(256, [](size_t i) { return -ramp(i); });
    auto dst = b.room<float>(256);
    Select(dst, mask, x, y, SELMODE::VSEL_TENSOR_TENSOR_MODE, 64, 4, {1, 1, 1, 8, 8, 8});
    auto g = b.out(dst, 256);
    expect(g, {-1, -2, 3, 4, 5, 6, -7, -8, -9, -10, -11, -12, -13, 14, -15, -16, -17, 18, -19, 20});
    const uint8_t bits[] = {60, 32, 10, 7, 42, 52, 38, 26, 19, 15, 18, 83, 41, 43, 91, 30, 45, 77, 80, 58, 34, 76, 44, 4, 64, 45, 48, 31, 30, 56, 43, 88};
    expect_each(g, 256, [&bits](size_t i) { return (bits[i / 8] >> (i % 8)) & 1 ? ramp(i) : -ramp(i); });
}

EXAMPLE(select_scalar, "Select")
{
    Bench b(gm);
    auto mask = b.in<uint8_t>({60, 32, 10, 7, 42, 52, 38, 26});
    auto x = b.fill<float>(64, ramp);
    auto dst = b.room<float>(64);
    Select(dst, mask, x, static_cast<float>(0), SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);
    auto g = b.out(dst, 64);
    expect(g, {0, 0, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 18, 0, 20});
}

EXAMPLE(select_same_bits, "Select")
{
    Bench b(gm);
    auto mask = b.in<uint8_t>({60, 32, 10, 7, 42, 52, 38, 26});
    auto x = b.fill<float>(256, ramp), y = b.fill<float>(256, [](size_t i) { return -ramp(i); });
    auto dst = b.room<float>(256);
    Select(dst, mask, x, y, SELMODE::VSEL_CMPMASK_SPR, 256);
    const uint8_t bits[] = {60, 32, 10, 7, 42, 52, 38, 26};
    expect_each(b.out(dst, 256), 256, [&bits](size_t i) { return (bits[i % 64 / 8] >> (i % 8)) & 1 ? ramp(i) : -ramp(i); });
}

EXAMPLE(select_some_lanes, "Select（灵活标量位置）")
{
    Bench b(gm);
    // 1..8 and 9..16, bits 0 0 0 0 1 1 1 1, the first four lanes take part.
    auto x = b.fill<float>(64, ramp), y = b.fill<float>(64, [](size_t i) { return ramp(i) + 8; });
    auto mask = b.fill<uint8_t>(8, [](size_t) { return 0xf0; });
    auto dst = b.fill<float>(64, [](size_t i) { return -ramp(i); });
    uint64_t lanes[2] = {0x0f, 0};
    Select(dst, mask, x, y, SELMODE::VSEL_TENSOR_TENSOR_MODE, lanes, 1, {1, 1, 1, 8, 8, 8});
    expect(b.out(dst, 64), {9, 10, 11, 12, -5, -6, -7, -8});
}

EXAMPLE(gather_backwards, "Gather")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return static_cast<double>(i); });
    auto offset = b.fill<uint32_t>(128, [](size_t i) { return 254 - 2 * static_cast<double>(i); });
    auto count = b.fill<half>(128, [](size_t) { return 0; }), lanes = b.fill<half>(128, [](size_t) { return 0; });
    Gather(count, src, offset, (uint32_t)0, 128);
    Gather(lanes, src, offset, (uint32_t)0, 128, 1, 8);
    for (auto &t : {count, lanes}) {
        expect_each(b.out(t, 128), 128, [](size_t i) { return 127 - static_cast<double>(i); });
    }
}

EXAMPLE(gather_base, "Gather")
{
    Bench b(gm);
    auto src = b.fill<float>(64, ramp);
    auto offset = b.fill<uint32_t>(32, [](size_t i) { return 4 * static_cast<double>(i); });
    auto dst = b.room<float>(32);
    Gather(dst, src, offset, 64, 32);
    expect_each(b.out(dst, 32), 32, [](size_t i) { return ramp(i + 16); });
}

// Source, offsets and result in one buffer: the source's tensor reaches over the others.
EXAMPLE(gather_in_one_buffer, "Gather")
{
    Bench b(gm);
    auto all = b.fill<float>(256, ramp);
    auto offset = all[64].ReinterpretCast<uint32_t>();
    CreateVecIndex(offset.ReinterpretCast<int32_t>(), 0, 64);
    PipeBarrier<PIPE_V>();
    Muls(offset.ReinterpretCast<int32_t>(), offset.ReinterpretCast<int32_t>(), 4, 64);
    PipeBarrier<PIPE_V>();
    Gather(all[128], all, offset, 0u, 64);
    expect_each(b.out(all[128], 64), 64, ramp);
}

EXAMPLE(gatherb_backwards, "Gatherb(ISASI)")
{
    Bench b(gm);
    auto src = b.fill<uint16_t>(128, [](size_t i) { return static_cast<double>(i); });
    auto offset = b.in<uint32_t>({224, 192, 160, 128, 96, 64, 32, 0});
    auto dst = b.room<uint16_t>(128);
    GatherRepeatParams params{1, 8};
    Gatherb<uint16_t>(dst, src, offset, 1, params);
    expect_each(b.out(dst, 128), 128, [](size_t i) { return static_cast<double>((7 - i / 16) * 16 + i % 16); });
}

#if __NPU_ARCH__ == 3510
EXAMPLE(scatter_backwards, "Scatter(ISASI)")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return static_cast<double>(i); });
    auto offset = b.fill<uint32_t>(128, [](size_t i) { return 254 - 2 * static_cast<double>(i); });
    auto dst = b.room<half>(128);
    Scatter(dst, src, offset, (uint32_t)0, 128);
    expect_each(b.out(dst, 128), 128, [](size_t i) { return 127 - static_cast<double>(i); });
}

EXAMPLE(interleave_two, "Interleave")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(512, ramp), y = b.fill<int16_t>(512, [](size_t i) { return ramp(i) + 512; });
    auto p = b.room<int16_t>(512), q = b.room<int16_t>(512);
    Interleave(p, q, x, y, 512);
    expect_each(b.out(p, 512), 512, [](size_t i) { return ramp(i / 2) + (i % 2 ? 512 : 0); });
    expect_each(b.out(q, 512), 512, [](size_t i) { return ramp(256 + i / 2) + (i % 2 ? 512 : 0); });
}

EXAMPLE(deinterleave, "DeInterleave")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(512, ramp), y = b.fill<int16_t>(512, [](size_t i) { return ramp(i) + 512; });
    auto p = b.room<int16_t>(512), q = b.room<int16_t>(512), r = b.room<int16_t>(256), s = b.room<int16_t>(256);
    DeInterleave(p, q, x, y, 512);
    DeInterleave(r, s, x, 512);
    expect_each(b.out(p, 512), 512, [](size_t i) { return 2 * static_cast<double>(i) + 1; });
    expect_each(b.out(q, 512), 512, [](size_t i) { return 2 * static_cast<double>(i) + 2; });
    expect_each(b.out(r, 256), 256, [](size_t i) { return 2 * static_cast<double>(i) + 1; });
    expect_each(b.out(s, 256), 256, [](size_t i) { return 2 * static_cast<double>(i) + 2; });
}

EXAMPLE(duplicate_tensor, "Duplicate")
{
    Bench b(gm);
    auto src = b.fill<half>(256, [](size_t i) { return i == 0 ? 18.0 : static_cast<double>(i); });
    auto dst = b.room<half>(256);
    Duplicate<half>(dst, src, 256);
    expect_each(b.out(dst, 256), 256, [](size_t) { return 18.0; });
}

EXAMPLE(copy_count, "Copy（UBToUB连续数据搬运）")
{
    Bench b(gm);
    auto src = b.fill<int8_t>(512, [](size_t i) { return static_cast<double>(i % 100); });
    auto dst = b.room<int8_t>(512);
    Copy(dst, src, 512);
    expect_each(b.out(dst, 512), 512, [](size_t i) { return static_cast<double>(i % 100); });
}
#endif

// Pattern 2, every second element, into the place of the source.
EXAMPLE(gather_mask_pattern, "GatherMask")
{
    Bench b(gm);
    auto src = b.fill<float>(256, ramp);
    uint64_t count = 0;
    GatherMask(src, src, (uint8_t)2, false, 0, {1, 4, 8, 0}, count);
    auto g = b.out(src, 128);
    expect_each(g, 128, [](size_t i) { return 2 * ramp(i); });
    if (ascend_twin::effects() && count != 128) {
        ascend_twin::fail(ascend_twin::Rule::Assert, "GatherMask", nullptr, ascend_twin::Site::here(), "count is %llu",
                          static_cast<unsigned long long>(count));
    }
}

// Bits 1001 1001 ... choose the first and the last of four; 70 elements of each of two repeats.
EXAMPLE(gather_mask_tensor, "GatherMask")
{
    Bench b(gm);
    auto src = b.fill<uint32_t>(256, ramp);
    auto pattern = b.fill<uint32_t>(8, [](size_t) { return 0x99999999u; });
    auto dst = b.room<uint32_t>(256);
    uint64_t count = 0;
    GatherMask(dst, src, pattern, true, 70, {1, 2, 8, 0}, count);
    auto want = [](size_t i) {
        size_t repeat = i / 35, k = i % 35;
        return ramp(repeat * 64 + k / 2 * 4 + (k % 2) * 3);
    };
    expect_each(b.out(dst, 70), 70, want);
    if (ascend_twin::effects() && count != 70) {
        ascend_twin::fail(ascend_twin::Rule::Assert, "GatherMask", nullptr, ascend_twin::Site::here(), "count is %llu",
                          static_cast<unsigned long long>(count));
    }
}

EXAMPLE(gather_mask_quarters, "GatherMask")
{
    Bench b(gm);
    auto src = b.fill<half>(128, ramp);
    for (uint8_t pattern = 3; pattern <= 6; pattern++) {
        auto dst = b.room<half>(128);
        uint64_t count = 0;
        GatherMask(dst, src, pattern, false, 0, {1, 1, 8, 0}, count);
        expect_each(b.out(dst, 32), 32, [pattern](size_t i) { return ramp(4 * i + pattern - 3u); });
    }
}

EXAMPLE(transpose_16, "Transpose")
{
    Bench b(gm);
    auto src = b.fill<half>(256, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<half>(256);
    Transpose<half>(dst, src);
    expect_each(b.out(dst, 256), 256, [](size_t i) { return static_cast<double>(i % 16 * 16 + i / 16); });
    // In place.
    Transpose<half>(src, src);
    expect_each(b.out(src, 256), 256, [](size_t i) { return static_cast<double>(i % 16 * 16 + i / 16); });
}

EXAMPLE(transpose_nchw, "Transpose")
{
    Bench b(gm);
    constexpr uint32_t n = 2, c = 3, h = 4, w = 8;
    auto src = b.fill<half>(n * c * h * w, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<half>(n * c * h * w), back = b.room<half>(n * c * h * w);
    auto tmp = b.room<uint8_t>((2 * c + 1) * 16 * 32);
    TransposeParamsExt params;
    params.nSize = n;
    params.cSize = c;
    params.hSize = h;
    params.wSize = w;
    params.transposeType = TransposeType::TRANSPOSE_NCHW2NHWC;
    Transpose(dst, src, tmp, params);
    PipeBarrier<PIPE_V>();
    params.transposeType = TransposeType::TRANSPOSE_NHWC2NCHW;
    Transpose(back, dst, tmp, params);
    expect_each(b.out(dst, n * c * h * w), n * c * h * w, [](size_t i) {
        size_t k = i % c, p = i / c % (h * w), m = i / c / (h * w);
        return static_cast<double>((m * c + k) * h * w + p);
    });
    expect_each(b.out(back, n * c * h * w), n * c * h * w, [](size_t i) { return static_cast<double>(i); });
}

EXAMPLE(trans_data_int8, "TransDataTo5HD")
{
    Bench b(gm);
    // Rows of 32 in four times: 0 .. 127.
    auto src = b.fill<int8_t>(512, [](size_t i) { return static_cast<double>(i % 128); });
    auto dst = b.fill<int8_t>(512, [](size_t) { return 0; });
    TransDataTo5HDParams params;
    params.dstHighHalf = true;
    params.srcHighHalf = true;
    params.repeatTimes = 1;
    params.dstRepStride = 0;
    params.srcRepStride = 0;
    LocalTensor<int8_t> to[16], from[16];
    for (uint32_t i = 0; i < 16; i++) {
        to[i] = dst[32 * i];
        from[i] = src[32 * i];
    }
    TransDataTo5HD<int8_t>(to, from, params);
    expect_each(b.out(dst, 512), 512, [](size_t i) {
        size_t row = i / 32, column = i % 32;
        return column < 16 ? 0.0 : static_cast<double>((column - 16) % 4 * 32 + 16 + row);
    });
}

EXAMPLE(trans_data_half, "TransDataTo5HD")
{
    Bench b(gm);
    auto src = b.fill<half>(256, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<half>(256);
    TransDataTo5HDParams params;
    uint64_t to[16], from[16];
    for (uint32_t i = 0; i < 16; i++) {
        to[i] = (uint64_t)(dst[16 * i].GetPhyAddr());
        from[i] = (uint64_t)(src[16 * i].GetPhyAddr());
    }
    TransDataTo5HD<half>(to, from, params);
    expect_each(b.out(dst, 256), 256, [](size_t i) { return static_cast<double>(i % 16 * 16 + i / 16); });
}

EXAMPLE(trans_data_int32, "TransDataTo5HD")
{
    Bench b(gm);
    auto src = b.fill<int32_t>(128, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<int32_t>(128);
    TransDataTo5HDParams params;
    uint64_t to[16], from[16];
    for (uint32_t i = 0; i < 16; i++) {
        to[i] = dst[8 * i].GetPhyAddr();
        from[i] = src[8 * i].GetPhyAddr();
    }
    TransDataTo5HD<int32_t>(to, from, params);
    auto g = b.out(dst, 128);
    // The last row: 7 15 23 ... 127.
    expect_each(g, 128, [](size_t i) { return static_cast<double>(i % 16 * 8 + i / 16); });
}

// NCHW to NC1HWC0: sixteen planes of H x W, repeats along the plane.
EXAMPLE(trans_data_nchw, "TransDataTo5HD")
{
    Bench b(gm);
    constexpr uint32_t hw = 64;
    auto src = b.fill<half>(16 * hw, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<half>(16 * hw);
    TransDataTo5HDParams params;
    params.repeatTimes = hw / 16;
    params.dstRepStride = 16;
    params.srcRepStride = 1;
    uint64_t to[16], from[16];
    for (uint32_t i = 0; i < 16; i++) {
        from[i] = src[i * hw].GetPhyAddr();
        to[i] = dst[i * 16].GetPhyAddr();
    }
    TransDataTo5HD<half>(to, from, params);
    expect_each(b.out(dst, 16 * hw), 16 * hw, [](size_t i) { return static_cast<double>(i % 16 * hw + i / 16); });
}

EXAMPLES_END
