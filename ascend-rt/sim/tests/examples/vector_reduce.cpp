// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reductions and sorting.

#include "example.h"

#include "vector.h"

using example::Bench;

namespace {

double ramp(size_t i) { return static_cast<double>(i) + 1; }

void check(bool good, const char *what, ascend_twin::Site site = ascend_twin::Site::here())
{
    if (ascend_twin::effects() && !good) {
        ascend_twin::fail(ascend_twin::Rule::Assert, "check", nullptr, site, "%s", what);
    }
}

// Value and index of each of four repeats of 128: the greatest are 11 at 52, 12 at 100, ... 13 at 19.
double peaks(size_t i)
{
    return i == 52 ? 11 : i == 128 + 100 ? 12 : i == 256 + 7 ? 14 : i == 384 + 19 ? 13 : 1;
}

uint16_t bits_of(const GlobalTensor<half> &g, size_t i) { return g.GetPhyAddr()[i].bits; }

} // namespace

EXAMPLE(whole_reduce_max_order, "ReduceRepeat")
{
    Bench b(gm);
    auto src = b.fill<half>(512, peaks);
    auto value_index = b.fill<half>(16, [](size_t) { return 0; }), index_value = b.fill<half>(16, [](size_t) { return 0; }),
         value = b.fill<half>(16, [](size_t) { return 0; });
    auto index = b.fill<half>(16, [](size_t) { return 0; });
    ReduceRepeat<ReduceType::MAX, half>(value_index, src, 128, 4, 1, 1, 8);
    uint64_t mask[2] = {0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF};
    ReduceRepeat<ReduceType::MAX, half>(index_value, src, mask, 4, 1, 1, 8, ReduceOrder::ORDER_INDEX_VALUE);
    ReduceRepeat<ReduceType::MAX, half>(value, src, 128, 4, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE);
    WholeReduceMax<half>(index, src, 128, 4, 1, 1, 8, ReduceOrder::ORDER_ONLY_INDEX);
    auto vi = b.out(value_index, 8), iv = b.out(index_value, 8), v = b.out(value, 4), i = b.out(index, 8);
    expect(vi, {11.0, 3.09944e-06, 12.0, 5.96046e-06}, 1e-10);
    expect(v, {11, 12, 14, 13});
    const uint16_t at[] = {0x34, 0x64, 7, 0x13};
    const double want[] = {11, 12, 14, 13};
    for (size_t k = 0; k < 4; k++) {
        check(bits_of(vi, 2 * k + 1) == at[k], "index after value");
        check(bits_of(iv, 2 * k) == at[k], "index before value");
        check(bits_of(i, 2 * k) == at[k] && bits_of(i, 2 * k + 1) == 0, "index alone, 32 bits");
        check(static_cast<double>(static_cast<float>(iv.GetPhyAddr()[2 * k + 1])) == want[k], "value after index");
    }
}

EXAMPLE(whole_reduce_min, "ReduceRepeat")
{
    Bench b(gm);
    auto src = b.fill<half>(512, [](size_t i) { return i == 52 ? 1 : i == 228 ? 2 : i == 403 ? 3 : 9; });
    auto dst = b.room<half>(16);
    WholeReduceMin<half>(dst, src, 128, 4, 1, 1, 8);
    auto g = b.out(dst, 8);
    expect(g, {1.0, 3.09944e-06, 2.0, 5.96046e-06}, 1e-10);
    check(bits_of(g, 7) == 0x13 && bits_of(g, 5) == 0, "index");
}

EXAMPLE(whole_reduce_sum, "ReduceRepeat")
{
    Bench b(gm);
    auto src = b.fill<float>(512, ramp);
    auto dst = b.room<float>(8);
    WholeReduceSum(dst, src, 64, 8, 1, 1, 8);
    expect_each(b.out(dst, 8), 8, [](size_t i) { return 64.0 * 64 * static_cast<double>(i) + 64 * 65 / 2; });
}

// Rows of 40 elements in 48: what is behind the fortieth is not looked at, though nothing was ever written there.
EXAMPLE(whole_reduce_rows, "ReduceRepeat")
{
    Bench b(gm);
    auto rows = b.room<float>(4 * 48);
    for (uint32_t r = 0; r < 4; r++) {
        Duplicate(rows[48 * r], static_cast<float>(r + 1), 40);
    }
    PipeBarrier<PIPE_V>();
    auto sum = b.room<float>(8), most = b.room<float>(8);
    WholeReduceSum<float>(sum, rows, 40, 4, 1, 1, 6);
    WholeReduceMax<float>(most, rows, 40, 4, 1, 1, 6, ReduceOrder::ORDER_ONLY_VALUE);
    expect(b.out(sum, 4), {40, 80, 120, 160});
    expect(b.out(most, 4), {1, 2, 3, 4});
}

EXAMPLE(block_reduce_max, "ReduceDataBlock")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return i == 10 ? 2 : i == 16 + 13 ? 3 : i == 32 + 3 ? 4 : 1; });
    auto lanes = b.room<half>(16), bits = b.room<half>(16);
    ReduceDataBlock<ReduceType::MAX, half>(lanes, src, 128, 1, 1, 1, 8);
    uint64_t mask[2] = {UINT64_MAX, UINT64_MAX};
    BlockReduceMax<half>(bits, src, 1, mask, 1, 1, 8);
    expect(b.out(lanes, 8), {2, 3, 4, 1, 1, 1, 1, 1});
    expect(b.out(bits, 8), {2, 3, 4, 1, 1, 1, 1, 1});
}

EXAMPLE(block_reduce_min, "ReduceDataBlock")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return i == 11 ? 2 : i == 29 ? -3 : i == 127 ? 4 : 10; });
    auto dst = b.room<half>(16);
    BlockReduceMin<half>(dst, src, 1, 128, 1, 1, 8);
    expect(b.out(dst, 8), {2, -3, 10, 10, 10, 10, 10, 4});
}

EXAMPLE(block_reduce_sum, "ReduceDataBlock")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return static_cast<double>(i / 16) + 1; });
    auto dst = b.room<half>(16);
    BlockReduceSum<half>(dst, src, 1, 128, 1, 1, 8);
    expect(b.out(dst, 8), {16, 32, 48, 64, 80, 96, 112, 128});
}

// Only the first four blocks take part.
EXAMPLE(block_reduce_part, "ReduceDataBlock")
{
    Bench b(gm);
    auto src = b.fill<float>(64, ramp);
    auto dst = b.fill<float>(8, [](size_t) { return 77; });
    ReduceDataBlock<ReduceType::MAX, float>(dst, src, 32, 1, 1, 1, 8);
    auto g = b.out(dst, 8);
#if __NPU_ARCH__ == 3510
    const double none = -static_cast<double>(INFINITY);
#else
    const double none = 77;
#endif
    expect(g, {8.0, 16.0, 24.0, 32.0, none, none, none, none});
}

// 60000 + 60000 is saturated to 65504 before the second level of the tree.
EXAMPLE(block_reduce_saturated, "ReduceDataBlock")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return i == 0 || i == 1 ? 60000 : i == 2 ? -30000 : i == 3 ? 100 : 0; });
    auto saturated = b.room<half>(16), kept = b.room<half>(16);
    ascend_twin::state().ctrl &= ~(1ull << 48);
    BlockReduceSum<half>(saturated, src, 1, 128, 1, 1, 8);
    ascend_twin::state().ctrl |= 1ull << 48;
    BlockReduceSum<half>(kept, src, 1, 128, 1, 1, 8);
    // 65504 - 29904 (-29900 in half) in half.
    expect(b.out(saturated, 1), {35600.0}, 16);
    expect(b.out(kept, 1), {static_cast<double>(INFINITY)});
}

EXAMPLE(pair_reduce_sum, "ReducePairElem")
{
    Bench b(gm);
    auto src = b.in<half>({1, 1, 1, -1, 2, 2, -1, 2, 3, 3, 3, -1, 4, 4, -2, 4});
    auto dst = b.room<half>(64);
    ReducePairElem<ReduceType::SUM, half>(dst, src, 16, 1, 1, 1, 8);
    expect(b.out(dst, 8), {2, 0, 4, 1, 6, 2, 8, 2});
}

EXAMPLE(pair_reduce_old_name, "ReducePairElem")
{
    Bench b(gm);
    auto src = b.fill<float>(128, ramp);
    auto dst = b.room<float>(64);
    PairReduceSum<float>(dst, src, 2, 64, 1, 1, 8);
    expect_each(b.out(dst, 64), 64, [](size_t i) { return 4 * static_cast<double>(i) + 3; });
}

EXAMPLE(repeat_reduce_sum, "ReduceRepeat")
{
    Bench b(gm);
    auto src = b.fill<half>(256, [](size_t) { return 1; });
    auto dst = b.room<half>(16);
    RepeatReduceSum<half>(dst, src, 2, 128, 1, 1, 1, 8);
    expect(b.out(dst, 2), {128, 128});
}

EXAMPLE(reduce_sum_lanes, "ReduceSum")
{
    Bench b(gm);
    auto src = b.fill<half>(8320, [](size_t) { return 1; });
    auto tmp = b.room<half>(8320 / 128 + 15);
    auto dst = b.fill<half>(16, [](size_t) { return 0; });
    ReduceSum<half>(dst, src, tmp, 128, 65, 8);
    expect(b.out(dst, 16), {8320, 0, 0, 0});
}

EXAMPLE(reduce_sum_count, "ReduceSum")
{
    Bench b(gm);
    auto src = b.fill<half>(288, [](size_t) { return 1; });
    auto tmp = b.room<half>(16);
    auto dst = b.fill<half>(16, [](size_t) { return 0; });
    ReduceSum<half>(dst, src, tmp, 288);
    expect(b.out(dst, 16), {288, 0, 0, 0});
}

EXAMPLE(reduce_sum_register, "GetReduceRepeatSumSpr(ISASI)")
{
    Bench b(gm);
    auto src = b.fill<float>(128, ramp);
    auto tmp = b.room<float>(16), dst = b.room<float>(8);
    ReduceSum(dst, src, tmp, 128);
    float sum = GetReduceRepeatSumSpr<float>();
    check(sum == 8256.0f, "sum of 1 .. 128");
    check(GetAccVal<float>() == sum, "the older name");
}

// The greatest of 512 numbers at 114 (page: 0.9985 with index 114), the least at 353.
EXAMPLE(reduce_max_index, "ReduceMax")
{
    Bench b(gm);
    auto src = b.fill<half>(512, [](size_t i) { return i == 114 ? 0.9985 : 0.25 + static_cast<double>(i % 64) / 256; });
    auto tmp = b.room<half>(32), dst = b.room<half>(16);
    ReduceMax<half>(dst, src, tmp, 128, 4, 8, true);
    auto g = b.out(dst, 2);
    expect(g, {0.9985}, 3e-4);
    check(bits_of(g, 1) == 114, "index");
    // 6.8e-06 is what index 114 looks like as half.
    expect(g, {0.9985, 6.8e-06}, 3e-4);
}

EXAMPLE(reduce_max_count, "ReduceMax")
{
    Bench b(gm);
    auto src = b.fill<half>(288, [](size_t i) { return i == 232 ? 0.999 : i == 240 ? 0.999 : 0.5; });
    auto tmp = b.room<half>(64), dst = b.room<half>(16);
    ReduceMax<half>(dst, src, tmp, 288, true);
    auto g = b.out(dst, 2);
    expect(g, {0.999}, 3e-4);
    check(bits_of(g, 1) == 232, "the first of two");
}

EXAMPLE(reduce_min_index, "ReduceMin")
{
    Bench b(gm);
    auto src = b.fill<half>(512, [](size_t i) { return i == 353 ? 0.01034 : 0.5; });
    auto tmp = b.room<half>(32), dst = b.room<half>(16);
    ReduceMin<half>(dst, src, tmp, 128, 4, 8, true);
    auto g = b.out(dst, 2);
    expect(g, {0.01034, 2.104e-05}, 1e-5);
    check(bits_of(g, 1) == 353, "index");
}

EXAMPLE(reduce_min_count, "ReduceMin")
{
    Bench b(gm);
    auto src = b.fill<half>(288, [](size_t i) { return i == 72 ? 0.00393 : 0.5; });
    auto tmp = b.room<half>(64), dst = b.room<half>(16);
    ReduceMin<half>(dst, src, tmp, 288, true);
    auto g = b.out(dst, 2);
    expect(g, {0.00393, 4.3e-06}, 2e-6);
    check(bits_of(g, 1) == 72, "index");
}

// The space of the source serves as the intermediate buffer.
EXAMPLE(reduce_max_in_place, "ReduceMax")
{
    Bench b(gm);
    auto src = b.fill<float>(300, [](size_t i) { return static_cast<double>((i * 37) % 300); });
    auto dst = b.room<float>(8);
    ReduceMax<float>(dst, src, src, 300, false);
    expect(b.out(dst, 1), {299});
}

#if __NPU_ARCH__ == 2201
EXAMPLE(reduce_max_register, "GetReduceRepeatMaxMinSpr(ISASI)")
{
    Bench b(gm);
    auto src = b.fill<float>(64, [](size_t i) { return i == 9 ? 5 : 1; });
    auto dst = b.room<float>(8);
    ReduceRepeat<ReduceType::MAX>(dst, src, 64, 1, 1, 1, 8);
    float value = 0, index = 0;
    GetReduceRepeatMaxMinSpr<float>(value, index);
    check(value == 5.0f && __builtin_bit_cast(uint32_t, index) == 9, "value and index");
}

// One repeat after the other: (2^24 + 1) + 1 in F32 stays 2^24, where a tree would give 2^24 + 2.
EXAMPLE(reduce_sum_in_order, "ReduceSum")
{
    Bench b(gm);
    auto src = b.fill<float>(256, [](size_t i) { return i == 0 ? 16777216.0 : i == 128 || i == 192 ? 1.0 : 0.0; });
    auto tmp = b.room<float>(16), dst = b.room<float>(8), tree = b.room<float>(8);
    ReduceSum<float>(dst, src, tmp, 256);
    ReduceSum<float>(tree, src, tmp, 64, 4, 8);
    expect(b.out(dst, 1), {16777216.0});
    expect(b.out(tree, 1), {16777218.0});
}
#else
EXAMPLE(reduce_int, "ReduceRepeat")
{
    Bench b(gm);
    auto src = b.fill<int16_t>(256, [](size_t) { return 30000; });
    auto dst = b.room<int32_t>(8);
    ReduceRepeat<ReduceType::SUM>(dst, src, 128, 2, 1, 1, 8);
    expect(b.out(dst, 2), {3840000, 3840000});
    auto wide = b.fill<int64_t>(100, ramp);
    auto most = b.room<int64_t>(4), sum = b.room<int64_t>(4);
    ReduceMax<int64_t>(most, wide, wide, 100, true);
    ReduceSum<int64_t>(sum, wide, wide, 100);
    expect(b.out(most, 2), {100, 99});
    expect(b.out(sum, 1), {5050});
}
#endif

EXAMPLE(sort32_float, "Sort32")
{
    Bench b(gm);
    auto src = b.fill<float>(128, [](size_t i) { return static_cast<double>((i * 7) % 32); });
    auto index = b.fill<uint32_t>(128, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<float>(256);
    Sort32<float>(dst, src, index, 4);
    auto g = b.out(dst, 256);
    for (size_t r = 0; r < 4 && ascend_twin::effects(); r++) {
        for (size_t i = 0; i < 32; i++) {
            size_t score = 31 - i, at = r * 32 + score * 23 % 32; // 7 * 23 = 161 = 1 mod 32
            check(g.GetPhyAddr()[(r * 32 + i) * 2] == static_cast<float>(score), "score");
            check(__builtin_bit_cast(uint32_t, g.GetPhyAddr()[(r * 32 + i) * 2 + 1]) == at, "index");
        }
    }
}

EXAMPLE(sort32_half_ties, "Sort32")
{
    Bench b(gm);
    auto src = b.fill<half>(32, [](size_t i) { return i == 3 || i == 9 ? 2 : 1; });
    auto index = b.fill<uint32_t>(32, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<half>(128);
    Sort32<half>(dst, src, index, 1);
    auto g = b.out(dst, 128);
    const uint16_t *p = reinterpret_cast<const uint16_t *>(g.GetPhyAddr());
    const uint16_t first[] = {3, 9, 0, 1, 2, 4};
    for (size_t i = 0; i < 6 && ascend_twin::effects(); i++) {
        check(p[4 * i] == (i < 2 ? 0x4000 : 0x3c00), "score in the low two bytes");
        check(p[4 * i + 2] == first[i] && p[4 * i + 3] == 0, "index in the high four, equal scores in order");
    }
}

EXAMPLE(merge_four, "GetMrgSortResult")
{
    Bench b(gm);
    // 1 .. 128 in four lists of 32; the last list is used up first.
    auto src = b.fill<float>(128, ramp);
    auto index = b.fill<uint32_t>(128, [](size_t) { return 0; });
    auto work = b.room<float>(256), dst = b.room<float>(256), part = b.room<float>(256);
    Sort32<float>(work, src, index, 4);
    PipeBarrier<PIPE_V>();
    MrgSort4Info params;
    for (uint16_t &n : params.elementLengths) {
        n = 32;
    }
    params.ifExhaustedSuspension = false;
    params.validBit = 0b1111;
    params.repeatTimes = 1;
    MrgSortSrcList<float> list;
    list.src1 = work[0];
    list.src2 = work[64];
    list.src3 = work[128];
    list.src4 = work[192];
    MrgSort<float>(dst, list, params);
    expect_each(b.out(dst, 256), 256, [](size_t i) { return i % 2 == 0 ? 128 - static_cast<double>(i / 2) : 0; });
    uint16_t lengths[4] = {32, 32, 32, 32};
    MrgSort4Info suspend(lengths, true, 0b1111, 1);
    MrgSort(part, list, suspend);
    uint16_t n[4] = {9, 9, 9, 9};
    GetMrgSortResult(n[0], n[1], n[2], n[3]);
    check(n[0] == 0 && n[1] == 0 && n[2] == 0 && n[3] == 32, "what was taken of each list");
    expect_each(b.out(part, 64), 64, [](size_t i) { return i % 2 == 0 ? 128 - static_cast<double>(i / 2) : 0; });
}

EXAMPLE(merge_repeats, "MrgSort")
{
    Bench b(gm);
    auto src = b.fill<float>(256, [](size_t i) { return static_cast<double>((i * 101) % 256); });
    auto index = b.fill<uint32_t>(256, [](size_t i) { return static_cast<double>(i); });
    auto work = b.room<float>(512), dst = b.room<float>(512), all = b.room<float>(512);
    Sort32<float>(work, src, index, 8);
    PipeBarrier<PIPE_V>();
    uint16_t lengths[4] = {32, 32, 32, 32};
    MrgSort4Info params(lengths, false, 15, 2);
    MrgSortSrcList<float> list(work[0], work[64], work[128], work[192]);
    MrgSort<float>(dst, list, params);
    PipeBarrier<PIPE_V>();
    uint16_t two[4] = {128, 128, 0, 0};
    MrgSort<float>(all, MrgSortSrcList<float>(dst[0], dst[256], dst, dst), MrgSort4Info(two, false, 3, 1));
    auto g = b.out(all, 512);
    for (size_t i = 0; i < 256 && ascend_twin::effects(); i++) {
        float score = g.GetPhyAddr()[2 * i];
        uint32_t at = __builtin_bit_cast(uint32_t, g.GetPhyAddr()[2 * i + 1]);
        check(score == static_cast<float>(255 - i) && at * 101 % 256 == 255 - i, "sorted");
    }
}

EXAMPLE(full_sort, "Sort")
{
    Bench b(gm);
    auto src = b.fill<half>(128, [](size_t i) { return static_cast<double>((i * 37) % 128); });
    auto index = b.fill<uint32_t>(128, [](size_t i) { return static_cast<double>(i); });
    auto dst = b.room<half>(GetSortLen<half>(128)), tmp = b.room<half>(GetSortLen<half>(128));
    auto score = b.room<half>(128);
    auto order = b.room<uint32_t>(128);
    LocalTensor<half> concat;
    Concat(concat, src, tmp, 8);
    Sort<half, true>(dst, concat, index, tmp, 4);
    PipeBarrier<PIPE_V>();
    Extract(score, order, dst, 4);
    expect_each(b.out(score, 128), 128, [](size_t i) { return 127 - static_cast<double>(i); });
    auto g = b.out(order, 128);
    for (size_t i = 0; i < 128 && ascend_twin::effects(); i++) {
        check(g.GetPhyAddr()[i] * 37 % 128 == 127 - i, "index");
    }
}

// A top-k as kernels build it: sort, merge, take the scores apart with GatherMask.
EXAMPLE(top_k_with_gather_mask, "MrgSort")
{
    Bench b(gm);
    auto src = b.fill<float>(64, [](size_t i) { return static_cast<double>((i * 11) % 64); });
    auto index = b.fill<uint32_t>(64, [](size_t i) { return static_cast<double>(i); });
    auto work = b.room<float>(128), all = b.room<float>(128);
    auto score = b.room<float>(64);
    auto order = b.room<uint32_t>(64);
    Sort32(work, src, index, 2);
    PipeBarrier<PIPE_V>();
    uint16_t lengths[4] = {32, 32, 0, 0};
    MrgSort(all, MrgSortSrcList<float>(work[0], work[64], work, work), MrgSort4Info(lengths, false, 3, 1));
    PipeBarrier<PIPE_V>();
    uint64_t n = 0;
    GatherMask(score, all, (uint8_t)1, false, 0, {1, 2, 8, 0}, n);
    GatherMask(order, all.ReinterpretCast<uint32_t>(), (uint8_t)2, false, 0, {1, 2, 8, 0}, n);
    expect_each(b.out(score, 64), 64, [](size_t i) { return 63 - static_cast<double>(i); });
    auto g = b.out(order, 64);
    for (size_t i = 0; i < 64 && ascend_twin::effects(); i++) {
        check(g.GetPhyAddr()[i] * 11 % 64 == 63 - i, "index");
    }
}

EXAMPLES_END
