// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Small kernels, each with one of the frequent bugs (bugNN_...), and the same without it (okNN_...). All take
// `in` (4096 floats, defined), `out` (4096 floats, zero at the start) and `work` (workspace of 64 KB).
//
// What the twin says about each; "result" means that the launch ends and its numbers are wrong: no rule can know what was
// meant. Numbers 21 and 23 cost time and nothing else; 22 does, too. They are found in the text (`ascend_sim::lint`).
//
//    1 missing_flag                    hazard-raw
//    1 missing_barrier                 hazard-raw (2201; 3510 orders vector instructions by itself)
//    1 l1_without_flag                 hazard-raw
//    2 set_without_wait                flag-unmatched
//    2 wait_without_set                deadlock
//    2 cross_flag_left                 cross-flag
//    3 reuse_before_read               hazard-war
//    3 reuse_of_l0                     hazard-war
//    4 tail_over_read                  bounds
//    4 tail_unaligned                  alignment
//    4 tail_over_neighbour             hazard-waw (2 blocks)
//    5 pitch_over_16_bit               range (2201; 3510 has 64 bits)
//    5 repeat_over_255                 range
//    5 mmad_k_over_4095                range
//    6 ub_over_capacity                capacity
//    6 ub_over_capacity_by_hand        capacity
//    7 l0a_layout                      result
//    8 sums_start_again                result
//    8 sums_never_start                undefined or read-before-write
//    9 gap_as_stride                   read-before-write (2201; 3510 ignores the gap)
//   10 quant_not_set                   quant
//   11 counter_mode_left               state-left
//   11 mask_left                       state-left
//   12 atomic_left                     state-left
//   12 zero_without_sync               hazard-waw (4 blocks)
//   12 not_zeroed                      undefined
//   13 scalar_without_flag             hazard-raw
//   13 scalar_after_vector             hazard-raw
//   14 stale_cache                     stale-cache
//   14 line_of_an_earlier_launch       stale-cache (in other orders than that of the program)
//   14 cache_not_cleaned               dirty-cache
//   15 blocks_beyond_cores             blocks (more blocks than vector cores)
//   16 index_counts_twice              bounds
//   17 compare_unaligned               alignment or range
//   18 max_over_dummies                undefined
//   19 exp_of_masked_row               result
//   20 one_row                         gemv
//   22 pipe_in_object                  (text)
//   24 id_of_a_queue                   flag-id
//   24 id_of_the_system                flag-id
//
// And what a queue can be used for wrongly (queue...): rule `queue`.

#include "kernel_operator.h"

using namespace AscendC;

namespace {

__aicore__ inline GlobalTensor<float> Floats(GM_ADDR p, uint64_t count)
{
    GlobalTensor<float> t;
    t.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(p), count);
    return t;
}

__aicore__ inline LocalTensor<float> Ub(uint32_t addr, uint32_t count)
{
    return LocalTensor<float>(TPosition::VECCALC, addr, count);
}

// in -> UB -> + 1 -> out, with or without some of its events.
__aicore__ inline void AddOne(GM_ADDR in, GM_ADDR out, bool filled)
{
    LocalTensor<float> a = Ub(0, 256), b = Ub(1024, 256);
    DataCopy(a, Floats(in, 4096), 256);
    if (filled) {
        SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    }
    Adds(b, a, 1.0f, 256);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096), b, 256);
}

} // namespace

// --- 1 ---

extern "C" __global__ __aicore__ void bug01_missing_flag(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AddOne(in, out, false);
}
extern "C" __global__ __aicore__ void ok01_missing_flag(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AddOne(in, out, true);
}

namespace {
__aicore__ inline void TwoSteps(GM_ADDR in, GM_ADDR out, bool barrier)
{
    LocalTensor<float> a = Ub(0, 256), b = Ub(1024, 256), c = Ub(2048, 256);
    DataCopy(a, Floats(in, 4096), 256);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    Adds(b, a, 1.0f, 256);
    if (barrier) {
        PipeBarrier<PIPE_V>();
    }
    Muls(c, b, 2.0f, 256);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096), c, 256);
}
} // namespace

extern "C" __global__ __aicore__ void bug01_missing_barrier(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TwoSteps(in, out, false);
}
extern "C" __global__ __aicore__ void ok01_missing_barrier(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TwoSteps(in, out, true);
}

// --- one product on a cube core, [32, 48] x [48, 32], with places to go wrong ---

namespace {

struct Product {
    bool l1Filled = true; // MTE2_MTE1
    bool l0Free = true; // M_MTE1
    bool initLater = false; // the second step of K starts the sums again
    bool neverInit = false; // no step of K starts them
    bool quant = true; // F322BF16 for BF16 out
    bool gap = false; // the gap of L0A taken for a stride
    uint32_t kOfMmad = 16;
};

constexpr uint32_t kRows = 32, kK = 48, kColumns = 32;

// One step of K: [32, 16], two fractals below each other.
__aicore__ inline void LoadLeft(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t k, const Product &what)
{
    LoadData2DParams p;
    p.repeatTimes = 2;
    p.srcStride = 1;
    p.dstGap = what.gap ? 1 : 0;
    LoadData(to, from[k / 16 * kRows * 16], p);
}

__aicore__ inline void Multiply(GM_ADDR in, GM_ADDR out, const Product &what)
{
    LocalTensor<bfloat16_t> l1a(TPosition::A1, 0, kRows * kK), l1b(TPosition::B1, 4096, kK * kColumns);
    LocalTensor<bfloat16_t> l0a(TPosition::A2, 0, kRows * kK), l0b(TPosition::B2, 0, kK * kColumns);
    LocalTensor<float> l0c(TPosition::CO1, 0, kRows * kColumns);
    GlobalTensor<bfloat16_t> a, b;
    a.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(in), kRows * kK);
    b.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(in) + kRows * kK, kK * kColumns);
    Nd2NzParams nz;
    nz.ndNum = 1;
    nz.nValue = kRows;
    nz.dValue = kK;
    nz.srcNdMatrixStride = 0;
    nz.srcDValue = kK;
    nz.dstNzC0Stride = kRows;
    nz.dstNzNStride = 1;
    nz.dstNzMatrixStride = 0;
    DataCopy(l1a, a, nz);
    nz.nValue = kK;
    nz.dValue = kColumns;
    nz.srcDValue = kColumns;
    nz.dstNzC0Stride = kK;
    DataCopy(l1b, b, nz);
    if (what.l1Filled) {
        SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    }
    SetFlag<HardEvent::M_MTE1>(EVENT_ID0);
    for (uint32_t k = 0; k < kK; k += 16) {
        if (what.l0Free) {
            WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
        }
        LoadLeft(l0a, l1a, k, what);
        LoadData2DParams p;
        p.repeatTimes = kColumns / 16;
        p.srcStride = kK / 16;
        p.ifTranspose = true;
        LoadData(l0b, l1b[k / 16 * 256], p);
        SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
        WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
        MmadParams m;
        m.m = kRows;
        m.n = kColumns;
        m.k = what.kOfMmad;
        m.cmatrixInitVal = what.initLater || (k == 0 && !what.neverInit);
        Mmad(l0c, l0a, l0b, m);
        PipeBarrier<PIPE_M>();
        if (what.l0Free) {
            SetFlag<HardEvent::M_MTE1>(EVENT_ID0);
        }
    }
    WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
    SetFlag<HardEvent::M_FIX>(EVENT_ID0);
    WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
    GlobalTensor<bfloat16_t> c;
    c.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(out), kRows * kColumns);
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> f;
    f.params.ndNum = 1;
    f.params.srcNdStride = 0;
    f.params.dstNdStride = 0;
#else
    FixpipeParamsV220 f;
    f.ndNum = 1;
    f.srcNdStride = 0;
    f.dstNdStride = 0;
#endif
    f.nSize = kColumns;
    f.mSize = kRows;
    f.srcStride = kRows;
    f.dstStride = kColumns;
    f.quantPre = what.quant ? QuantMode_t::F322BF16 : QuantMode_t::NoQuant;
    Fixpipe<bfloat16_t, float, CFG_ROW_MAJOR>(c, l0c, f);
}

} // namespace

extern "C" __global__ __aicore__ void ok_product(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Multiply(in, out, Product());
}
extern "C" __global__ __aicore__ void bug01_l1_without_flag(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Product p;
    p.l1Filled = false;
    Multiply(in, out, p);
}

// --- 2 ---

extern "C" __global__ __aicore__ void bug02_set_without_wait(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AddOne(in, out, true);
    SetFlag<HardEvent::MTE3_V>(EVENT_ID1);
}
extern "C" __global__ __aicore__ void bug02_wait_without_set(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    WaitFlag<HardEvent::MTE3_V>(EVENT_ID1);
    AddOne(in, out, true);
}
extern "C" __global__ __aicore__ void bug02_cross_flag_left(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    if ASCEND_IS_AIC {
        CrossCoreSetFlag<2, PIPE_FIX>(3);
        CrossCoreSetFlag<2, PIPE_FIX>(3);
    }
    if ASCEND_IS_AIV {
        CrossCoreWaitFlag<2, PIPE_MTE2>(3);
    }
}

// --- 3 ---

namespace {
__aicore__ inline void OneBuffer(GM_ADDR in, GM_ADDR out, bool back)
{
    LocalTensor<float> a = Ub(0, 256), b = Ub(1024, 256);
    SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
    SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
    for (uint32_t i = 0; i < 3; i++) {
        if (back) {
            WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
        }
        DataCopy(a, Floats(in, 4096)[i * 256], 256);
        SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
        Adds(b, a, 1.0f, 256);
        if (back) {
            SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
        }
        SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
        DataCopy(Floats(out, 4096)[i * 256], b, 256);
        SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
    }
    WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
    WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
}
} // namespace

extern "C" __global__ __aicore__ void bug03_reuse_before_read(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    OneBuffer(in, out, false);
}
extern "C" __global__ __aicore__ void ok03_reuse_before_read(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    OneBuffer(in, out, true);
}

extern "C" __global__ __aicore__ void bug03_reuse_of_l0(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Product p;
    p.l0Free = false;
    Multiply(in, out, p);
}

// --- 4 ---

extern "C" __global__ __aicore__ void bug04_tail_over_read(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    // 4091 elements, rounded up to whole blocks of 32 bytes.
    DataCopy(Ub(0, 4096), Floats(in, 4091), 4096);
}
extern "C" __global__ __aicore__ void bug04_tail_unaligned(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    DataCopy(Ub(0, 4096), Floats(in, 4091), 4091);
}

namespace {
__aicore__ inline void Tail(GM_ADDR in, GM_ADDR out, bool pad)
{
    // Two cores, 100 elements each: 12.5 blocks of 32 bytes.
    constexpr uint32_t n = 100, whole = 104;
    uint32_t first = static_cast<uint32_t>(GetBlockIdx()) * n;
    LocalTensor<float> a = Ub(0, whole);
    DataCopyExtParams copy;
    copy.blockCount = 1;
    copy.blockLen = n * sizeof(float);
    copy.srcStride = 0;
    copy.dstStride = 0;
    copy.rsv = 0;
    DataCopyPadExtParams<float> fill{true, 0, whole - n, 0};
    DataCopyPad(a, Floats(in, 4096)[first], copy, fill);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    if (pad) {
        DataCopyPad(Floats(out, 4096)[first], a, copy);
    } else {
        DataCopy(Floats(out, 4096)[first], a, whole);
    }
}
} // namespace

extern "C" __global__ __aicore__ void bug04_tail_over_neighbour(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Tail(in, out, false);
}
extern "C" __global__ __aicore__ void ok04_tail_over_neighbour(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Tail(in, out, true);
}

// --- 5 ---

extern "C" __global__ __aicore__ void bug05_pitch_over_16_bit(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    uint32_t pitch = 65536;
    Nd2NzParams p;
    p.ndNum = 1;
    p.nValue = 1;
    p.dValue = 16;
    p.srcNdMatrixStride = 0;
    p.srcDValue = pitch;
    p.dstNzC0Stride = 16;
    p.dstNzNStride = 1;
    p.dstNzMatrixStride = 0;
    GlobalTensor<bfloat16_t> a;
    a.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(in), 8192);
    DataCopy(LocalTensor<bfloat16_t>(TPosition::A1, 0, 256), a, p);
}
extern "C" __global__ __aicore__ void bug05_repeat_over_255(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    uint32_t repeat = 256;
    Duplicate(Ub(0, 64 * 256), 1.0f, 64, repeat, 1, 8);
}
extern "C" __global__ __aicore__ void bug05_mmad_k_over_4095(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Product p;
    p.kOfMmad = 4096;
    Multiply(in, out, p);
}

// --- 6 ---

extern "C" __global__ __aicore__ void bug06_ub_over_capacity(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> x;
    TQue<TPosition::VECOUT, 1> y;
    TBuf<TPosition::VECCALC> tmp;
    pipe.InitBuffer(x, 2, 48 * 1024);
    pipe.InitBuffer(y, 2, 40 * 1024);
    pipe.InitBuffer(tmp, 96 * 1024);
}
extern "C" __global__ __aicore__ void bug06_ub_over_capacity_by_hand(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    LocalMemAllocator<Hardware::UB> ub;
    LocalTensor<float> a = ub.Alloc<float>(32 * 1024);
    LocalTensor<float> b = ub.Alloc<float>(32 * 1024);
    Add(b, a, a, 8);
}

// --- 7, 8, 9, 10 ---

namespace {
// The first rows of [32, 32] times [32, 32]. 2201 wants the fractals of L0A row by row, 3510 column by column.
__aicore__ inline void Square(GM_ADDR in, GM_ADDR out, bool rowByRow, uint32_t rows)
{
    LocalTensor<bfloat16_t> l1(TPosition::A1, 0, 2048), l0a(TPosition::A2, 0, 1024), l0b(TPosition::B2, 0, 1024);
    LocalTensor<float> l0c(TPosition::CO1, 0, 1024);
    GlobalTensor<bfloat16_t> a, c;
    a.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(in), 2048);
    c.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(out), 1024);
    Nd2NzParams nz;
    nz.ndNum = 1;
    nz.nValue = 64;
    nz.dValue = 32;
    nz.srcNdMatrixStride = 0;
    nz.srcDValue = 32;
    nz.dstNzC0Stride = 64;
    nz.dstNzNStride = 1;
    nz.dstNzMatrixStride = 0;
    DataCopy(l1, a, nz);
    SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    for (uint32_t i = 0; i < 2; i++) {
        LoadData2DParams p;
        p.repeatTimes = 2;
        p.srcStride = rowByRow ? 4 : 1; // along k, or along m
        LoadData(l0a[i * 512], l1[i * (rowByRow ? 256 : 1024)], p);
        LoadData2DParams q;
        q.repeatTimes = 2;
        q.srcStride = 4;
        q.ifTranspose = true;
        LoadData(l0b[i * 512], l1[(2 + i) * 256], q);
    }
    SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
    WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
    MmadParams m;
    m.m = rows;
    m.n = 32;
    m.k = 32;
    m.cmatrixInitVal = true;
    Mmad(l0c, l0a, l0b, m);
    SetFlag<HardEvent::M_FIX>(EVENT_ID0);
    WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> f;
    f.params.ndNum = 1;
#else
    FixpipeParamsV220 f;
    f.ndNum = 1;
#endif
    f.nSize = 32;
    f.mSize = rows;
    f.srcStride = rows <= 16 ? 16 : 32;
    f.dstStride = 32;
    f.quantPre = QuantMode_t::F322BF16;
    Fixpipe<bfloat16_t, float, CFG_ROW_MAJOR>(c, l0c, f);
}
} // namespace

extern "C" __global__ __aicore__ void bug07_l0a_layout(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Square(in, out, __NPU_ARCH__ == 3510, 32);
}
extern "C" __global__ __aicore__ void ok07_l0a_layout(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Square(in, out, __NPU_ARCH__ != 3510, 32);
}
extern "C" __global__ __aicore__ void bug08_sums_start_again(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Product p;
    p.initLater = true;
    Multiply(in, out, p);
}
extern "C" __global__ __aicore__ void bug08_sums_never_start(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Product p;
    p.neverInit = true;
    Multiply(in, out, p);
}
extern "C" __global__ __aicore__ void bug09_gap_as_stride(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Product p;
    p.gap = true;
    Multiply(in, out, p);
}
extern "C" __global__ __aicore__ void bug10_quant_not_set(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Product p;
    p.quant = false;
    Multiply(in, out, p);
}

// --- 11 ---

namespace {
__aicore__ inline void Counted(GM_ADDR in, GM_ADDR out, bool reset)
{
    LocalTensor<float> a = Ub(0, 256), b = Ub(1024, 256);
    DataCopy(a, Floats(in, 4096), 256);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    SetMaskCount();
    SetVectorMask<float, MaskMode::COUNTER>(0, 256);
    Adds<float, false>(b, a, 1.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
    if (reset) {
        SetMaskNorm();
        ResetMask();
    }
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096), b, 256);
}
} // namespace

extern "C" __global__ __aicore__ void bug11_counter_mode_left(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Counted(in, out, false);
}
extern "C" __global__ __aicore__ void ok11_counter_mode_left(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Counted(in, out, true);
}
extern "C" __global__ __aicore__ void bug11_mask_left(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    SetMaskNorm();
    SetVectorMask<float, MaskMode::NORMAL>(0, 0xff);
    Duplicate<float, false>(Ub(0, 64), 1.0f, MASK_PLACEHOLDER, 1, 1, 8);
}

// --- 12 ---

namespace {
__aicore__ inline void AddTo(GM_ADDR in, GM_ADDR to)
{
    LocalTensor<float> a = Ub(0, 256);
    DataCopy(a, Floats(in, 4096), 256);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    SetAtomicAdd<float>();
    DataCopy(Floats(to, 4096), a, 256);
}
// The first core zeroes, all add.
__aicore__ inline void ZeroAndAdd(GM_ADDR in, GM_ADDR out, bool sync)
{
    LocalTensor<float> zero = Ub(4096, 256);
    if (GetBlockIdx() == 0) {
        Duplicate(zero, 0.0f, 256);
        SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
        DataCopy(Floats(out, 4096), zero, 256);
    }
    if (sync) {
        SyncAll();
    }
    AddTo(in, out);
    SetAtomicNone();
}
} // namespace

extern "C" __global__ __aicore__ void bug12_atomic_left(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AddTo(in, out);
}
extern "C" __global__ __aicore__ void ok12_atomic_left(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AddTo(in, out);
    SetAtomicNone();
}
extern "C" __global__ __aicore__ void bug12_zero_without_sync(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    ZeroAndAdd(in, out, false);
}
extern "C" __global__ __aicore__ void ok12_zero_without_sync(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    ZeroAndAdd(in, out, true);
}
extern "C" __global__ __aicore__ void bug12_not_zeroed(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AddTo(in, work);
    SetAtomicNone();
    LocalTensor<float> a = Ub(2048, 256), b = Ub(4096, 256);
    SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
    WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
    DataCopy(a, Floats(work, 4096), 256);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    Adds(b, a, 1.0f, 256);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096), b, 256);
}

// --- 13 ---

namespace {
__aicore__ inline void ReadOne(GM_ADDR in, GM_ADDR out, bool flag)
{
    LocalTensor<float> a = Ub(0, 256), b = Ub(1024, 256);
    DataCopy(a, Floats(in, 4096), 256);
    if (flag) {
        SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
    }
    float v = a.GetValue(5);
    Duplicate(b, v, 256);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096), b, 256);
}
__aicore__ inline void ReadResult(GM_ADDR out, bool flag)
{
    LocalTensor<float> a = Ub(0, 256);
    Duplicate(a, 3.0f, 256);
    if (flag) {
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
    }
    Floats(out, 4096).SetValue(0, a.GetValue(7));
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(Floats(out, 4096));
}
} // namespace

extern "C" __global__ __aicore__ void bug13_scalar_without_flag(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadOne(in, out, false);
}
extern "C" __global__ __aicore__ void ok13_scalar_without_flag(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadOne(in, out, true);
}
extern "C" __global__ __aicore__ void bug13_scalar_after_vector(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadResult(out, false);
}
extern "C" __global__ __aicore__ void ok13_scalar_after_vector(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadResult(out, true);
}

// --- 14 ---

namespace {
__aicore__ inline void ReadTwice(GM_ADDR in, GM_ADDR out, bool enter, bool clean)
{
    GlobalTensor<float> o = Floats(out, 4096);
    if (enter) {
        DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(o);
    }
    LocalTensor<float> a = Ub(0, 256), b = Ub(1024, 256);
    float before = o.GetValue(3);
    DataCopy(a, Floats(in, 4096), 256);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
    DataCopy(o, a, 256);
    SetFlag<HardEvent::MTE3_S>(EVENT_ID0);
    WaitFlag<HardEvent::MTE3_S>(EVENT_ID0);
    if (clean) {
        DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(o);
    }
    float after = o.GetValue(3);
    Duplicate(b, after - before, 256);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(o[256], b, 256);
}
} // namespace

extern "C" __global__ __aicore__ void bug14_stale_cache(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadTwice(in, out, true, false);
}
extern "C" __global__ __aicore__ void ok14_stale_cache(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadTwice(in, out, true, true);
}
extern "C" __global__ __aicore__ void bug14_line_of_an_earlier_launch(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadTwice(in, out, false, true);
}
extern "C" __global__ __aicore__ void ok14_line_of_an_earlier_launch(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    ReadTwice(in, out, true, true);
}
extern "C" __global__ __aicore__ void bug14_cache_not_cleaned(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Floats(out, 4096).SetValue(0, 1.0f);
}

// --- 15, 16 ---

extern "C" __global__ __aicore__ void bug15_blocks_beyond_cores(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    SyncAll();
}

namespace {
// Two cores, 2048 elements each.
__aicore__ inline void HalfEach(GM_ADDR in, GM_ADDR out, int64_t index)
{
    LocalTensor<float> a = Ub(0, 2048);
    DataCopy(a, Floats(in, 4096)[static_cast<uint64_t>(index) * 2048], 2048);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096)[static_cast<uint64_t>(index) * 2048], a, 2048);
}
} // namespace

extern "C" __global__ __aicore__ void bug16_index_counts_twice(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    if ASCEND_IS_AIV {
        HalfEach(in, out, GetBlockIdx() * 2 + GetSubBlockIdx());
    }
}
extern "C" __global__ __aicore__ void ok16_index_counts_twice(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    if ASCEND_IS_AIV {
        HalfEach(in, out, GetBlockIdx());
    }
}

// --- 17, 18, 19 ---

namespace {
__aicore__ inline void Bigger(GM_ADDR in, GM_ADDR out, uint32_t count)
{
    LocalTensor<float> a = Ub(0, 128), b = Ub(1024, 128), r = Ub(4096, 128);
    LocalTensor<uint8_t> bits(TPosition::VECCALC, 2048, 32);
    DataCopy(a, Floats(in, 4096), 128);
    DataCopy(b, Floats(in, 4096)[128], 128);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    Compare(bits, a, b, CMPMODE::GT, count);
    PipeBarrier<PIPE_V>();
    Select(r, bits, a, b, SELMODE::VSEL_TENSOR_TENSOR_MODE, 128);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096), r, 128);
}
// The largest of 100 elements, of `count` that are looked at.
__aicore__ inline void Largest(GM_ADDR in, GM_ADDR out, int32_t count)
{
    LocalTensor<float> a = Ub(0, 128), r = Ub(1024, 64), tmp = Ub(2048, 128);
    DataCopyExtParams copy;
    copy.blockCount = 1;
    copy.blockLen = 100 * sizeof(float);
    copy.srcStride = 0;
    copy.dstStride = 0;
    copy.rsv = 0;
    DataCopyPadExtParams<float> pad{false, 0, 0, 0};
    DataCopyPad(a, Floats(in, 4096), copy, pad);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    ReduceMax(r, a, tmp, count, false);
    SetFlag<HardEvent::V_S>(EVENT_ID0);
    WaitFlag<HardEvent::V_S>(EVENT_ID0);
    Floats(out, 4096).SetValue(0, r.GetValue(0));
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(Floats(out, 4096));
}
// exp(x - m) of a row of which every element is masked, and so its maximum.
__aicore__ inline void MaskedRow(GM_ADDR out, bool clamp)
{
    LocalTensor<float> a = Ub(0, 64), m = Ub(1024, 64);
    Duplicate(a, -__builtin_inff(), 64);
    Duplicate(m, clamp ? 0.0f : -__builtin_inff(), 64);
    PipeBarrier<PIPE_V>();
    Sub(a, a, m, 64);
    PipeBarrier<PIPE_V>();
    Exp(a, a, 64);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(Floats(out, 4096), a, 64);
}
} // namespace

extern "C" __global__ __aicore__ void bug17_compare_unaligned(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Bigger(in, out, 100);
}
extern "C" __global__ __aicore__ void ok17_compare_unaligned(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Bigger(in, out, 128);
}
extern "C" __global__ __aicore__ void bug18_max_over_dummies(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Largest(in, out, 104);
}
extern "C" __global__ __aicore__ void ok18_max_over_dummies(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Largest(in, out, 100);
}
extern "C" __global__ __aicore__ void bug19_exp_of_masked_row(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    MaskedRow(out, false);
}
extern "C" __global__ __aicore__ void ok19_exp_of_masked_row(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    MaskedRow(out, true);
}

// --- 20 ---

extern "C" __global__ __aicore__ void bug20_one_row(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Square(in, out, __NPU_ARCH__ != 3510, 1);
}

// --- 22 ---

namespace {
class WithPipe {
public:
    __aicore__ inline void Process(GM_ADDR in, GM_ADDR out)
    {
        pipe_.InitBuffer(queue_, 1, 1024);
        LocalTensor<float> a = queue_.AllocTensor<float>();
        DataCopy(a, Floats(in, 4096), 256);
        queue_.EnQue(a);
        a = queue_.DeQue<float>();
        DataCopy(Floats(out, 4096), a, 256);
        queue_.FreeTensor(a);
    }

private:
    TPipe pipe_;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue_;
};
} // namespace

extern "C" __global__ __aicore__ void bug22_pipe_in_object(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    WithPipe op;
    op.Process(in, out);
}

// --- 24 ---

namespace {
__aicore__ inline void QueueAndHand(GM_ADDR in, GM_ADDR out, bool fetch)
{
    TPipe pipe;
    TQue<TPosition::VECIN, 1> x;
    TBuf<TPosition::VECCALC> buffer;
    TQue<TPosition::VECOUT, 1> y;
    pipe.InitBuffer(x, 2, 1024);
    pipe.InitBuffer(buffer, 1024);
    pipe.InitBuffer(y, 2, 1024);
    LocalTensor<float> b = buffer.Get<float>();
    int32_t id = 0;
    if (fetch) {
        id = GetTPipePtr()->FetchEventID(HardEvent::MTE2_V);
    }
    DataCopy(b, Floats(in, 4096), 256);
    SetFlag<HardEvent::MTE2_V>(id);
    for (uint32_t i = 0; i < 3; i++) {
        LocalTensor<float> a = x.AllocTensor<float>();
        DataCopy(a, Floats(in, 4096)[i * 256], 256);
        x.EnQue(a);
        a = x.DeQue<float>();
        if (i == 0) {
            WaitFlag<HardEvent::MTE2_V>(id);
        }
        LocalTensor<float> c = y.AllocTensor<float>();
        Add(c, a, b, 256);
        y.EnQue(c);
        x.FreeTensor(a);
        c = y.DeQue<float>();
        DataCopy(Floats(out, 4096)[i * 256], c, 256);
        y.FreeTensor(c);
    }
}
} // namespace

extern "C" __global__ __aicore__ void bug24_id_of_a_queue(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    QueueAndHand(in, out, false);
}
extern "C" __global__ __aicore__ void ok24_id_of_a_queue(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    QueueAndHand(in, out, true);
}
extern "C" __global__ __aicore__ void bug24_id_of_the_system(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID7);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID7);
}

// --- queues ---

extern "C" __global__ __aicore__ void queue_deeper_than_it_is(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 2, 1024);
    LocalTensor<float> a = q.AllocTensor<float>(), b = q.AllocTensor<float>();
    q.EnQue(a);
    q.EnQue(b);
}
extern "C" __global__ __aicore__ void queue_without_a_free_buffer(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 1024);
    LocalTensor<float> a = q.AllocTensor<float>();
    LocalTensor<float> b = q.AllocTensor<float>();
    (void)a;
    (void)b;
}
extern "C" __global__ __aicore__ void queue_freed_twice(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 1024);
    LocalTensor<float> a = q.AllocTensor<float>();
    q.FreeTensor(a);
    q.FreeTensor(a);
}
extern "C" __global__ __aicore__ void queue_of_another(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> p, q;
    pipe.InitBuffer(p, 1, 1024);
    pipe.InitBuffer(q, 1, 1024);
    LocalTensor<float> a = p.AllocTensor<float>();
    q.EnQue(a);
}
extern "C" __global__ __aicore__ void queue_of_none(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    TBuf<> b;
    pipe.InitBuffer(q, 1, 1024);
    pipe.InitBuffer(b, 1024);
    LocalTensor<float> a = b.Get<float>();
    q.FreeTensor(a);
}
extern "C" __global__ __aicore__ void queue_empty(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 1024);
    LocalTensor<float> a = q.DeQue<float>();
    (void)a;
}
extern "C" __global__ __aicore__ void queue_leak(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 1024);
    LocalTensor<float> a = q.AllocTensor<float>();
    (void)a;
}
extern "C" __global__ __aicore__ void queue_left_full(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 1024);
    LocalTensor<float> a = q.AllocTensor<float>();
    DataCopy(a, Floats(in, 4096), 256);
    q.EnQue(a);
}
extern "C" __global__ __aicore__ void queue_used_after_free(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    TBuf<> b;
    pipe.InitBuffer(q, 1, 1024);
    pipe.InitBuffer(b, 1024);
    LocalTensor<float> a = q.AllocTensor<float>();
    DataCopy(a, Floats(in, 4096), 256);
    q.EnQue(a);
    a = q.DeQue<float>();
    q.FreeTensor(a);
    Adds(b.Get<float>(), a, 1.0f, 256);
}
extern "C" __global__ __aicore__ void queue_never_initialised(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    LocalTensor<float> a = q.AllocTensor<float>();
    (void)a;
}
extern "C" __global__ __aicore__ void queue_nine_buffers(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> p, q;
    pipe.InitBuffer(p, 5, 1024);
    pipe.InitBuffer(q, 4, 1024);
}
extern "C" __global__ __aicore__ void queue_two_pipes(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe a;
    TPipe b;
}
extern "C" __global__ __aicore__ void queue_after_reset(GM_ADDR in, GM_ADDR out, GM_ADDR work)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 1024);
    pipe.Reset();
    LocalTensor<float> a = q.AllocTensor<float>();
    (void)a;
}
