// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the vector calls refuse, and what they must let pass. The pages are the rule, or "ok".

#include "example.h"

#include "vector.h"

using example::Bench;

namespace {

double one(size_t) { return 1; }

} // namespace

EXAMPLE(mask_too_wide, "!range")
{
    Bench b(gm);
    auto x = b.fill<float>(256, one);
    Add(x, x, x, 128, 2, {1, 1, 1, 8, 8, 8});
}

EXAMPLE(repeat_too_many, "!range")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    Add(x, x, x, 64, 256, {1, 1, 1, 0, 0, 0});
}

EXAMPLE(stride_too_wide, "!range")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    Add(x, x, x, 64, 1, {1, 1, 1, 8, 256, 8});
}

EXAMPLE(negative_count, "!range")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    Add(x, x, x, -64);
}

EXAMPLE(shift_too_far, "!range")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(64, one);
#if __NPU_ARCH__ == 2201
    ShiftLeft(x, x, static_cast<int16_t>(17), 64);
#else
    ShiftLeft(x, x, static_cast<int16_t>(-1), 64);
#endif
}

EXAMPLE(start_not_aligned, "!alignment")
{
    Bench b(gm);
    auto x = b.fill<float>(128, one);
    Adds(x, x[4], 1.0f, 64);
}

EXAMPLE(compare_count_not_aligned, "!alignment")
{
    Bench b(gm);
    auto x = b.fill<float>(128, one);
    auto dst = b.room<uint8_t>(32);
    Compare(dst, x, x, CMPMODE::EQ, 100);
}

EXAMPLE(reduce_result_aligned_to_elements, "ok")
{
    Bench b(gm);
    auto x = b.fill<float>(128, one);
    auto dst = b.room<float>(16), tmp = b.room<float>(16);
    ReduceSum(dst[3], x, tmp, 128);
    PipeBarrier<PIPE_V>();
    WholeReduceSum(dst[5], x, 64, 2, 1, 1, 8);
    auto g = b.out(dst[3].ReinterpretCast<float>(), 1);
    expect(g, {128});
}

EXAMPLE(reduce_pair_not_aligned, "!alignment")
{
    Bench b(gm);
    auto x = b.fill<float>(128, one);
    auto dst = b.room<float>(16);
    WholeReduceMax(dst[3], x, 64, 2, 1, 1, 8);
}

EXAMPLE(leaves_the_tensor, "!bounds")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    Adds(x, x, 1.0f, 65);
}

EXAMPLE(masked_lanes_stay_inside, "ok")
{
    Bench b(gm);
    auto x = b.fill<float>(40, one);
    Adds(x, x, 1.0f, 40, 1, {1, 1, 8, 8});
    expect_each(b.out(x, 40), 40, [](size_t) { return 2.0; });
}

EXAMPLE(gather_outside, "!bounds")
{
    Bench b(gm);
    auto src = b.fill<float>(64, one), dst = b.room<float>(64);
    auto offset = b.fill<uint32_t>(64, [](size_t i) { return 4.0 * static_cast<double>(i) + 4; });
    Gather(dst, src, offset, 0u, 64);
}

EXAMPLE(gather_between_elements, "!alignment")
{
    Bench b(gm);
    auto src = b.fill<float>(64, one), dst = b.room<float>(64);
    auto offset = b.fill<uint32_t>(64, [](size_t i) { return 2.0 * static_cast<double>(i); });
    Gather(dst, src, offset, 0u, 64);
}

EXAMPLE(merge_too_long, "!range")
{
    Bench b(gm);
    auto work = b.fill<float>(16384, one), dst = b.room<float>(8);
    uint16_t lengths[4] = {4096, 32, 0, 0};
    MrgSort(dst, MrgSortSrcList<float>(work, work, work, work), MrgSort4Info(lengths, false, 3, 1));
}

EXAMPLE(merge_valid_bits, "!range")
{
    Bench b(gm);
    auto work = b.fill<float>(128, one), dst = b.room<float>(8);
    uint16_t lengths[4] = {1, 1, 0, 0};
    MrgSort(dst, MrgSortSrcList<float>(work, work, work, work), MrgSort4Info(lengths, false, 5, 1));
}

EXAMPLE(sort_too_often, "!range")
{
    Bench b(gm);
    auto x = b.fill<float>(32, one), dst = b.room<float>(64);
    auto i = b.fill<uint32_t>(32, one);
    Sort32(dst, x, i, 256);
}

EXAMPLE(round_mode_of_pair, "!range")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    auto dst = b.room<bfloat16_t>(64);
    Cast(dst, x, RoundMode::CAST_NONE, 64);
}

EXAMPLE(select_mode, "!usage")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    auto mask = b.fill<uint8_t>(8, one);
    Select(x, mask, x, x, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);
}

EXAMPLE(deq_sign, "!quant")
{
    Bench b(gm);
    auto x = b.fill<int16_t>(128, one);
    auto dst = b.room<int8_t>(256);
    SetDeqScale(1.0f, static_cast<int16_t>(0), false);
    CastDequant<int8_t, int16_t, false, true>(dst, x, 128);
}

EXAMPLE(not_in_ub, "!wrong-core|bounds")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    LocalTensor<float> l1(TPosition::A1, 0, 64);
    Add(l1, x, x, 64);
}

EXAMPLE(source_never_written, "!read-before-write")
{
    Bench b(gm);
    auto x = b.room<float>(64), dst = b.room<float>(64);
    Adds(dst, x, 1.0f, 64);
}

EXAMPLE(accumulator_never_written, "!read-before-write")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one), dst = b.room<float>(64);
    MulAddDst(dst, x, x, 64);
}

EXAMPLE(masked_source_never_written, "ok")
{
    Bench b(gm);
    auto x = b.room<float>(64), dst = b.room<float>(64);
    Duplicate(x, 1.0f, 40);
    PipeBarrier<PIPE_V>();
    Adds(dst, x, 1.0f, 40, 1, {1, 1, 8, 8});
    expect_each(b.out(dst, 40), 40, [](size_t) { return 2.0; });
}

EXAMPLE(masked_result_is_not_written, "!undefined|read-before-write")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one), dst = b.room<float>(64);
    Adds(dst, x, 1.0f, 40, 1, {1, 1, 8, 8});
    auto g = b.out(dst, 64);
    (void)g;
}

EXAMPLE(pattern_result_is_not_written, "!undefined|read-before-write")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one), dst = b.room<float>(64);
    uint64_t mask[2] = {0x0123456789abcdef, 0};
    Adds(dst, x, 1.0f, mask, 1, {1, 1, 8, 8});
    auto g = b.out(dst, 64);
    (void)g;
}

// Blocks apart: the last one takes part with four of its elements, and nothing was written there.
EXAMPLE(last_part_of_gaps_is_read, "!read-before-write")
{
    Bench b(gm);
    auto x = b.room<half>(256), dst = b.room<half>(256);
    Duplicate(x, (half)1, 96, 1, 2, 16);
    PipeBarrier<PIPE_V>();
    Adds(dst, x, (half)1, 100, 1, {2, 2, 16, 16});
}

EXAMPLE(gaps_are_not_read, "ok")
{
    Bench b(gm);
    auto x = b.room<half>(256), dst = b.room<half>(256);
    Duplicate(x, (half)1, 96, 1, 2, 16);
    PipeBarrier<PIPE_V>();
    Adds(dst, x, (half)1, 96, 1, {2, 2, 16, 16});
    expect_each(b.out(dst, 16), 16, [](size_t) { return 2.0; });
}

// The older chip keeps what a reduction does on its way.
#if __NPU_ARCH__ == 2201
EXAMPLE(scratch_of_reduce_is_lost, "!undefined|read-before-write")
{
    Bench b(gm);
    auto x = b.fill<float>(256, one);
    auto tmp = b.fill<float>(64, one), dst = b.room<float>(8);
    ReduceMax(dst, x, tmp, 256);
    PipeBarrier<PIPE_V>();
    WholeReduceSum(dst, tmp, 64, 1, 1, 1, 8);
}

// Eight elements of the scratch are lost. They travel through Adds one by one, and the sum of the others is good.
EXAMPLE(undefined_elements_stay_where_they_are, "ok")
{
    Bench b(gm);
    auto x = b.fill<float>(256, one);
    auto tmp = b.fill<float>(64, one), dst = b.room<float>(64), sum = b.room<float>(8);
    ReduceMax(dst, x, tmp, 256);
    PipeBarrier<PIPE_V>();
    Adds(dst, tmp, 1.0f, 64);
    PipeBarrier<PIPE_V>();
    uint64_t mask[2] = {~0xffull, 0};
    WholeReduceSum(sum, dst, mask, 1, 1, 1, 8);
    expect(b.out(sum, 1), {112});
}

EXAMPLE(undefined_elements_are_not_summed, "!undefined")
{
    Bench b(gm);
    auto x = b.fill<float>(256, one);
    auto tmp = b.fill<float>(64, one), dst = b.room<float>(64), sum = b.room<float>(8);
    ReduceMax(dst, x, tmp, 256);
    PipeBarrier<PIPE_V>();
    Adds(dst, tmp, 1.0f, 64);
    PipeBarrier<PIPE_V>();
    WholeReduceSum(sum, dst, 64, 1, 1, 1, 8);
}

EXAMPLE(scratch_of_reduce_too_small, "!bounds")
{
    Bench b(gm);
    auto x = b.fill<float>(4096, one);
    auto tmp = b.room<float>(64), dst = b.room<float>(8);
    ReduceMax(dst, x, tmp, 4096);
}

EXAMPLE(compare_int_less, "!type")
{
    Bench b(gm);
    auto x = b.fill<int32_t>(64, one);
    auto dst = b.room<uint8_t>(8);
    Compare(dst, x, x, CMPMODE::LT, 64);
}
#else
EXAMPLE(nothing_is_an_error, "!range")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    Add(x, x, x, 64, 0, {1, 1, 1, 8, 8, 8});
}
#endif

// dav-3510 orders its vector instructions itself.
#if __NPU_ARCH__ == 2201
EXAMPLE(missing_barrier, "!hazard-raw")
#else
EXAMPLE(missing_barrier, "ok")
#endif
{
    Bench b(gm);
    auto x = b.fill<float>(64, one), y = b.room<float>(64), z = b.room<float>(64);
    Adds(y, x, 1.0f, 64);
    Adds(z, y, 1.0f, 64);
    expect_each(b.out(z, 64), 64, [](size_t) { return 3.0; });
}

EXAMPLE(other_blocks_need_no_barrier, "ok")
{
    Bench b(gm);
    auto x = b.fill<float>(256, one);
    // Even and odd blocks of the same tensor.
    Adds(x, x, 1.0f, 64, 2, {2, 2, 16, 16});
    Adds(x[8], x[8], 2.0f, 64, 2, {2, 2, 16, 16});
    expect_each(b.out(x, 256), 256, [](size_t i) { return i / 8 % 2 == 0 ? 2.0 : 3.0; });
}

EXAMPLE(partial_overlap, "!overlap")
{
    Bench b(gm);
    auto x = b.fill<float>(128, one);
    Adds(x[8], x, 1.0f, 64);
}

EXAMPLE(widening_in_place, "!overlap")
{
    Bench b(gm);
    auto x = b.fill<float>(128, one);
    Cast(x, x.ReinterpretCast<half>(), RoundMode::CAST_NONE, 128);
}

EXAMPLE(brcb_in_place, "!overlap")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    Brcb(x, x, 1, {1, 8});
}

EXAMPLE(merge_in_place, "!overlap")
{
    Bench b(gm);
    auto x = b.fill<float>(128, one);
    uint16_t lengths[4] = {32, 32, 0, 0};
    MrgSort(x, MrgSortSrcList<float>(x[0], x[64], x, x), MrgSort4Info(lengths, false, 3, 1));
}

EXAMPLE(mask_left, "!state-left")
{
    Bench b(gm);
    auto x = b.fill<float>(64, one);
    SetVectorMask<float>(32);
    Adds<float, false>(x, x, 1.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
    finish();
}

EXAMPLE(counter_left, "!state-left")
{
    SetMaskCount();
}

// Undefined elements travel through elementwise calls and are stopped where they decide.
EXAMPLE(undefined_stays_in_its_element, "ok")
{
    Bench b(gm);
    auto work = b.fill<float>(64, one), dst = b.room<float>(64), sorted = b.fill<float>(128, one), part = b.room<float>(128);
    uint16_t lengths[4] = {32, 32, 0, 0};
    // A suspended merge defines only what it wrote: 32 or more pairs of 64.
    MrgSort(part, MrgSortSrcList<float>(sorted[0], sorted[64], sorted, sorted), MrgSort4Info(lengths, true, 3, 1));
    PipeBarrier<PIPE_V>();
    Add(dst, work, part[64], 64);
    PipeBarrier<PIPE_V>();
    Adds(dst, work, 1.0f, 64);
    expect_each(b.out(dst, 64), 64, [](size_t) { return 2.0; });
}

EXAMPLE(undefined_decides, "!undefined")
{
    Bench b(gm);
    auto sorted = b.fill<float>(128, one), part = b.room<float>(128);
    auto bits = b.room<uint8_t>(32);
    uint16_t lengths[4] = {32, 32, 0, 0};
    MrgSort(part, MrgSortSrcList<float>(sorted[0], sorted[64], sorted, sorted), MrgSort4Info(lengths, true, 3, 1));
    PipeBarrier<PIPE_V>();
    Compare(bits, part[64], sorted, CMPMODE::EQ, 64);
}

EXAMPLES_END
