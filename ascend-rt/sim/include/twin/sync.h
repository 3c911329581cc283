// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Synchronisation within a core and between cores, what a core is, and the small calls of the scalar unit.

#ifndef ASCEND_TWIN_SYNC_H
#define ASCEND_TWIN_SYNC_H

#include <tuple>
#include <utility>

#include "tensor.h"

enum event_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

// In the order of AscendTwinTask.
enum KernelMetaType {
    KERNEL_TYPE_AIV_ONLY,
    KERNEL_TYPE_AIC_ONLY,
    KERNEL_TYPE_MIX_AIV_1_0,
    KERNEL_TYPE_MIX_AIC_1_0,
    KERNEL_TYPE_MIX_AIC_1_1,
    KERNEL_TYPE_MIX_AIC_1_2,
    KERNEL_TYPE_AICORE,
    KERNEL_TYPE_VECTORCORE,
    KERNEL_TYPE_MIX_AICORE,
    KERNEL_TYPE_MIX_VECTOR_CORE,
    KERNEL_TYPE_MAX
};

namespace AscendC {

using TEventID = int8_t;

enum class HardEvent : uint8_t {
    MTE2_MTE1,
    MTE1_MTE2,
    MTE1_M,
    M_MTE1,
    MTE2_V,
    V_MTE2,
    MTE3_V,
    V_MTE3,
    M_V,
    V_M,
    V_V,
    MTE3_MTE1,
    MTE1_MTE3,
    MTE1_V,
    MTE2_M,
    M_MTE2,
    V_MTE1,
    M_FIX,
    FIX_M,
    MTE3_MTE2,
    MTE2_MTE3,
    S_V,
    V_S,
    S_MTE2,
    MTE2_S,
    S_MTE3,
    MTE3_S,
    MTE2_FIX,
    FIX_MTE2,
    FIX_S,
    M_S,
    FIX_MTE3,
    MTE1_FIX,
    FIX_MTE1,
    FIX_FIX,
    MAX
};

enum class MemoryT : uint8_t { L1 = 0, L0A, L0B, L0C, UB, BIAS };
enum class MemDsbT : uint8_t { ALL = 0, DDR, UB, SEQ };
enum class CacheLine : uint64_t { SINGLE_CACHE_LINE = 0, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL = 0, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };

constexpr int32_t MIX = 0;
constexpr int32_t AIC = 1;
constexpr int32_t AIV = 2;

struct SyncAllConfig {
    pipe_t triggerPipe;
    pipe_t waitPipe;
};
constexpr SyncAllConfig DEFAULT_SYNC_ALL_CONFIG = {PIPE_ALL, PIPE_ALL};

} // namespace AscendC

namespace ascend_twin {

struct Ends {
    Pipe from;
    Pipe to;
};

// The pipes of an event: it is set by `from` and waited for by `to`.
constexpr Ends ends_of(AscendC::HardEvent e)
{
    constexpr Ends table[] = {
        {Pipe::MTE2, Pipe::MTE1}, {Pipe::MTE1, Pipe::MTE2}, {Pipe::MTE1, Pipe::M},    {Pipe::M, Pipe::MTE1},
        {Pipe::MTE2, Pipe::V},    {Pipe::V, Pipe::MTE2},    {Pipe::MTE3, Pipe::V},    {Pipe::V, Pipe::MTE3},
        {Pipe::M, Pipe::V},       {Pipe::V, Pipe::M},       {Pipe::V, Pipe::V},       {Pipe::MTE3, Pipe::MTE1},
        {Pipe::MTE1, Pipe::MTE3}, {Pipe::MTE1, Pipe::V},    {Pipe::MTE2, Pipe::M},    {Pipe::M, Pipe::MTE2},
        {Pipe::V, Pipe::MTE1},    {Pipe::M, Pipe::FIX},     {Pipe::FIX, Pipe::M},     {Pipe::MTE3, Pipe::MTE2},
        {Pipe::MTE2, Pipe::MTE3}, {Pipe::S, Pipe::V},       {Pipe::V, Pipe::S},       {Pipe::S, Pipe::MTE2},
        {Pipe::MTE2, Pipe::S},    {Pipe::S, Pipe::MTE3},    {Pipe::MTE3, Pipe::S},    {Pipe::MTE2, Pipe::FIX},
        {Pipe::FIX, Pipe::MTE2},  {Pipe::FIX, Pipe::S},     {Pipe::M, Pipe::S},       {Pipe::FIX, Pipe::MTE3},
        {Pipe::MTE1, Pipe::FIX},  {Pipe::FIX, Pipe::MTE1},  {Pipe::FIX, Pipe::FIX},   {Pipe::All, Pipe::All}};
    static_assert(sizeof(table) / sizeof(table[0]) == static_cast<size_t>(AscendC::HardEvent::MAX) + 1, "an event has no pipes");
    return table[static_cast<uint8_t>(e)];
}

// The parts that need no template are in lib/frame.cpp.
void hard_set(AscendC::HardEvent event, int32_t id, Site site);
void hard_wait(AscendC::HardEvent event, int32_t id, Site site);
void cross_core(bool set, int mode, Pipe pipe, uint16_t id, Site site);
void soft_sync_all(uint64_t gm_elements, uint32_t ub_elements, int32_t cores, Site site);
void task_declared(int task, Site site);
int64_t block_idx();
int64_t sub_block_num();
int64_t task_ratio();
uint32_t runtime_ub();
void tiling_copy(void *to, const void *from, size_t bytes, Site site);
void print_format(const char *format, ...);
[[noreturn]] void assertion_failed(const char *text, Site site, const char *format, ...);
[[noreturn]] void trapped(Site site);
uint8_t *sys_workspace(bool set, uint8_t *value);

// Arguments of printf as the host's printf takes them.
template <class T> auto printable(const T &v)
{
    if constexpr (std::is_arithmetic<T>::value || std::is_pointer<T>::value) {
        return v;
    } else if constexpr (std::is_enum<T>::value) {
        return static_cast<std::underlying_type_t<T>>(v);
    } else if constexpr (std::is_array<T>::value) {
        return static_cast<const std::remove_extent_t<T> *>(v);
    } else {
        return static_cast<double>(static_cast<float>(v));
    }
}

// `g_coreType` where the core decides at run time.
struct CoreTypeNow {
    operator int32_t() const { return is_cube() ? AscendC::AIC : AscendC::AIV; }
};

} // namespace ascend_twin

// Which of the two kinds of core runs.
#if ASCEND_TWIN_CORE == 0
#define ASCEND_IS_AIC (::ascend_twin::is_cube())
#define ASCEND_IS_AIV (!::ascend_twin::is_cube())
#define ASCEND_IS_NOT_AIC (!::ascend_twin::is_cube())
#define ASCEND_IS_NOT_AIV (::ascend_twin::is_cube())
#else
#define ASCEND_IS_AIC constexpr(ASCEND_TWIN_CORE == 2)
#define ASCEND_IS_AIV constexpr(ASCEND_TWIN_CORE == 1)
#define ASCEND_IS_NOT_AIC constexpr(ASCEND_TWIN_CORE != 2)
#define ASCEND_IS_NOT_AIV constexpr(ASCEND_TWIN_CORE != 1)
#endif

#define KERNEL_TASK_TYPE_DEFAULT(value) ::ascend_twin::task_declared(value, ::ascend_twin::Site::here())
// The task type of one tiling key: only one of them is launched, and which is the driver's business.
#define KERNEL_TASK_TYPE(key, value) static_cast<void>(value)

namespace AscendC {

#if ASCEND_TWIN_CORE == 0
constexpr ascend_twin::CoreTypeNow g_coreType{};
#else
constexpr int32_t g_coreType = ASCEND_TWIN_CORE == 2 ? AIC : AIV;
#endif

// --- within a core ---

template <HardEvent event> void SetFlag(int32_t eventID, ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(event != HardEvent::MAX, "HardEvent::MAX is no event");
    ascend_twin::hard_set(event, eventID, site);
}
template <HardEvent event> void WaitFlag(int32_t eventID, ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(event != HardEvent::MAX, "HardEvent::MAX is no event");
    ascend_twin::hard_wait(event, eventID, site);
}
template <pipe_t pipe> void PipeBarrier(ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(pipe != PIPE_S, "PipeBarrier does not take PIPE_S: the scalar unit is in order by itself");
    ascend_twin::pipe_barrier(ascend_twin::pipe_of(pipe), "PipeBarrier", site);
}
template <MemDsbT arg0> void DataSyncBarrier(ascend_twin::Site site = ascend_twin::Site::here())
{
    // Orders the scalar unit's own accesses; they take effect at once here.
    ascend_twin::scalar_call(1, "DataSyncBarrier", site);
}

template <pipe_t src, pipe_t dst> class TQueSync {
public:
    void SetFlag(TEventID id, ascend_twin::Site site = ascend_twin::Site::here())
    {
        ascend_twin::set_flag(ascend_twin::pipe_of(src), ascend_twin::pipe_of(dst), id, ascend_twin::Owner::Hand, "SetFlag", site);
    }
    void WaitFlag(TEventID id, ascend_twin::Site site = ascend_twin::Site::here())
    {
        ascend_twin::wait_flag(ascend_twin::pipe_of(src), ascend_twin::pipe_of(dst), id, ascend_twin::Owner::Hand, "WaitFlag",
                               site);
    }
};

// --- between cores ---

template <uint8_t modeId, pipe_t pipe>
void CrossCoreSetFlag(uint16_t flagId, ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(modeId <= 2 || (modeId == 4 && __NPU_ARCH__ == 3510), "this chip has no such mode of CrossCoreSetFlag");
    static_assert(pipe != PIPE_ALL, "CrossCoreSetFlag does not take PIPE_ALL");
    static_assert(pipe != PIPE_S || modeId == 4, "CrossCoreSetFlag takes PIPE_S in mode 4 only");
    ascend_twin::cross_core(true, modeId, ascend_twin::pipe_of(pipe), flagId, site);
}
// On 2201 the mode and the pipe make no difference: all pipes wait.
template <uint8_t modeId = 0, pipe_t pipe = PIPE_S>
void CrossCoreWaitFlag(uint16_t flagId, ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(modeId <= 2 || (modeId == 4 && __NPU_ARCH__ == 3510), "this chip has no such mode of CrossCoreWaitFlag");
    static_assert(pipe != PIPE_ALL, "CrossCoreWaitFlag does not take PIPE_ALL");
    ascend_twin::cross_core(false, modeId, ascend_twin::pipe_of(pipe), flagId, site);
}
template <bool isAIVOnly = true, const SyncAllConfig &config = DEFAULT_SYNC_ALL_CONFIG>
void SyncAll(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::sync_all(!isAIVOnly, "SyncAll", site);
}
template <bool isAIVOnly = true>
void SyncAll(const GlobalTensor<int32_t> &gmWorkspace, const LocalTensor<int32_t> &ubWorkspace, const int32_t usedCores = 0,
             ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(isAIVOnly, "SyncAll with a workspace is for vector cores only");
    ascend_twin::soft_sync_all(gmWorkspace.GetSize(), ubWorkspace.GetSize(), usedCores, site);
}

// Marks for the fusion of several kernels into one; alone, a kernel has no neighbours.
template <pipe_t AIV_PIPE = PIPE_MTE3, pipe_t AIC_PIPE = PIPE_FIX, bool FORCE = false>
void SetNextTaskStart(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::scalar_call(1, "SetNextTaskStart", site);
}
template <bool FORCE = false> void WaitPreTaskEnd(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::scalar_call(1, "WaitPreTaskEnd", site);
}

// --- caches ---

template <class T, CacheLine entireType, DcciDst dcciDst>
void DataCacheCleanAndInvalid(const GlobalTensor<T> &dst, ascend_twin::Site site = ascend_twin::Site::here())
{
    if constexpr (dcciDst != DcciDst::CACHELINE_UB) {
        ascend_twin::cache_clean(dst.twin_addr(), entireType == CacheLine::ENTIRE_DATA_CACHE, true, "DataCacheCleanAndInvalid",
                                 site);
    } else {
        ascend_twin::scalar_call(1, "DataCacheCleanAndInvalid", site);
    }
}
template <class T, CacheLine entireType>
void DataCacheCleanAndInvalid(const GlobalTensor<T> &dst, ascend_twin::Site site = ascend_twin::Site::here())
{
    DataCacheCleanAndInvalid<T, entireType, DcciDst::CACHELINE_ALL>(dst, site);
}
// On-chip memory is not cached.
template <class T, CacheLine entireType, DcciDst dcciDst>
void DataCacheCleanAndInvalid(const LocalTensor<T> &, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::scalar_call(1, "DataCacheCleanAndInvalid", site);
}
template <class T>
void DataCachePreload(const GlobalTensor<uint64_t> &, const T, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::scalar_call(1, "DataCachePreload", site);
}
inline void ICachePreLoad(const int64_t, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::scalar_call(1, "ICachePreLoad", site);
}
inline int64_t GetICachePreloadStatus() { return 0; }

// --- what runs ---

inline int64_t GetBlockIdx() { return ascend_twin::block_idx(); }
inline int64_t GetBlockNum() { return ascend_twin::block_count(); }
inline int64_t GetSubBlockIdx() { return ascend_twin::is_cube() ? 0 : ascend_twin::sub_block(); }
inline int64_t GetSubBlockNum() { return ascend_twin::sub_block_num(); }
inline int64_t GetTaskRatio() { return ascend_twin::task_ratio(); }
inline int64_t GetTaskRation() { return ascend_twin::task_ratio(); }
inline constexpr int16_t GetDataBlockSizeInBytes() { return 32; }
inline constexpr uint32_t GetVecLen() { return 256; }
inline constexpr uint32_t GetUBSizeInBytes() { return __NPU_ARCH__ == 3510 ? 253952 : 196608; }
inline uint32_t GetRuntimeUBSize() { return ascend_twin::runtime_ub(); }
inline void GetArchVersion(uint32_t &coreVersion) { coreVersion = __NPU_ARCH__ == 3510 ? 0x310 : 0x220; }
inline int64_t GetSystemCycle() { return static_cast<int64_t>(ascend_twin::cycle()); }
inline int64_t GetProgramCounter(ascend_twin::Site site = ascend_twin::Site::here()) { return site.line; }

inline void SetSysWorkspace(GM_ADDR workspace) { ascend_twin::sys_workspace(true, workspace); }
inline __gm__ uint8_t *GetSysWorkSpacePtr() { return ascend_twin::sys_workspace(false, nullptr); }
// A launch without the op project reserves nothing: all of the workspace is the kernel's.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }

// Bits of the control register. The twin knows bit 48: infinities and NaN are kept.
template <int8_t startBit, int8_t endBit> int64_t GetCtrlSpr()
{
    static_assert(startBit == 48 && endBit == 48, "ascend-sim: of the control register only bit 48 is available on the twin");
    return static_cast<int64_t>(ascend_twin::state().ctrl >> 48 & 1);
}
template <int8_t startBit, int8_t endBit>
void SetCtrlSpr(int64_t value, ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(startBit == 48 && endBit == 48, "ascend-sim: of the control register only bit 48 is available on the twin");
    uint64_t &ctrl = ascend_twin::state().ctrl;
    ctrl = (ctrl & ~(1ull << 48)) | static_cast<uint64_t>(value & 1) << 48;
    ascend_twin::scalar_call(1, "SetCtrlSpr", site);
}
// The register's own default saturates, unlike what the runtime sets.
template <int8_t startBit, int8_t endBit> void ResetCtrlSpr(ascend_twin::Site site = ascend_twin::Site::here())
{
    SetCtrlSpr<startBit, endBit>(0, site);
}

// --- words to the outside ---

template <class... A> void printf(const char *format, const A &...args)
{
    ascend_twin::print_format(format, ascend_twin::printable(args)...);
}
template <class... A> void PRINTF(const char *format, const A &...args)
{
    ascend_twin::print_format(format, ascend_twin::printable(args)...);
}
inline void Trap(ascend_twin::Site site = ascend_twin::Site::here()) { ascend_twin::trapped(site); }

template <class T>
void DumpTensor(const LocalTensor<T> &tensor, uint32_t desc, uint32_t dumpSize,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::dump(tensor.twin_mem(), tensor.twin_addr(), ascend_twin::TypeOf<T>::value, ascend_twin::ElementBits<T>::value,
                      dumpSize, desc, nullptr, tensor.twin_buffer(), "DumpTensor", site);
}
template <class T>
void DumpTensor(const GlobalTensor<T> &tensor, uint32_t desc, uint32_t dumpSize,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::dump(ascend_twin::Mem::GM, tensor.twin_addr(), ascend_twin::TypeOf<T>::value, ascend_twin::ElementBits<T>::value,
                      dumpSize, desc, nullptr, tensor.twin_buffer(), "DumpTensor", site);
}
template <class T>
void DumpTensor(const LocalTensor<T> &tensor, uint32_t desc, uint32_t dumpSize, const ShapeInfo &shapeInfo,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::dump(tensor.twin_mem(), tensor.twin_addr(), ascend_twin::TypeOf<T>::value, ascend_twin::ElementBits<T>::value,
                      dumpSize, desc, &shapeInfo, tensor.twin_buffer(), "DumpTensor", site);
}
template <class T>
void DumpTensor(const GlobalTensor<T> &tensor, uint32_t desc, uint32_t dumpSize, const ShapeInfo &shapeInfo,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::dump(ascend_twin::Mem::GM, tensor.twin_addr(), ascend_twin::TypeOf<T>::value, ascend_twin::ElementBits<T>::value,
                      dumpSize, desc, &shapeInfo, tensor.twin_buffer(), "DumpTensor", site);
}
template <class T>
void DumpAccChkPoint(const LocalTensor<T> &tensor, uint32_t index, uint32_t countOff, uint32_t dumpSize,
                     ascend_twin::Site site = ascend_twin::Site::here())
{
    DumpTensor(tensor[countOff], index, dumpSize, site);
}
template <class T>
void DumpAccChkPoint(const GlobalTensor<T> &tensor, uint32_t index, uint32_t countOff, uint32_t dumpSize,
                     ascend_twin::Site site = ascend_twin::Site::here())
{
    DumpTensor(tensor[countOff], index, dumpSize, site);
}
inline void PrintTimeStamp(uint32_t descId)
{
    ascend_twin::print_format("descId is %u, rsv is 0, timeStamp is %llu, pcPtr is 0, entry is 0.\n", descId,
                              static_cast<unsigned long long>(ascend_twin::cycle()));
}
template <pipe_t pipe, uint16_t index> void MarkStamp() {}
template <pipe_t pipe> void MarkStamp(uint16_t) {}
inline void MetricsProfStart() {}
inline void MetricsProfStop() {}

// --- the scalar unit ---

inline constexpr int32_t CeilDivision(int32_t num1, int32_t num2)
{
    return num2 == 0 ? 0 : (num1 + num2 - 1) / num2;
}
inline constexpr uint32_t AlignUp(uint32_t a, uint32_t b) { return b == 0 ? a : (a + b - 1) / b * b; }

// How many bits of the value are `countValue`.
template <int countValue> int64_t GetBitCount(uint64_t valueIn)
{
    static_assert(countValue == 0 || countValue == 1, "a bit is 0 or 1");
    int ones = __builtin_popcountll(valueIn);
    return countValue == 1 ? ones : 64 - ones;
}
template <int countValue> int64_t ScalarGetCountOfValue(uint64_t valueIn) { return GetBitCount<countValue>(valueIn); }
inline int64_t CountLeadingZero(uint64_t valueIn) { return valueIn == 0 ? 64 : __builtin_clzll(valueIn); }
inline int64_t ScalarCountLeadingZero(uint64_t valueIn) { return CountLeadingZero(valueIn); }
// Bits after the sign bit, from the top, that equal it. -1 for 0 and -1, where all do.
inline int64_t CountBitsCntSameAsSignBit(int64_t valueIn)
{
    if (valueIn == 0 || valueIn == -1) {
        return -1;
    }
    return __builtin_clzll(static_cast<uint64_t>(valueIn < 0 ? ~valueIn : valueIn)) - 1;
}
// Index of the lowest bit that is `countValue`, -1 if there is none.
template <int countValue> int64_t GetSFFValue(uint64_t valueIn)
{
    static_assert(countValue == 0 || countValue == 1, "a bit is 0 or 1");
    uint64_t v = countValue == 1 ? valueIn : ~valueIn;
    return v == 0 ? -1 : __builtin_ctzll(v);
}
template <int countValue> int64_t ScalarGetSFFValue(uint64_t valueIn) { return GetSFFValue<countValue>(valueIn); }
template <int count = 1> void Nop(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::scalar_call(count, "Nop", site);
}

} // namespace AscendC

#define ASCEND_TWIN_ASSERT(expr, ...)                                                                                  \
    ((expr) ? static_cast<void>(0) : ::ascend_twin::assertion_failed(#expr, ::ascend_twin::Site::here(), "" __VA_ARGS__))
#define ascendc_assert(...) ASCEND_TWIN_ASSERT(__VA_ARGS__, "")
#ifdef assert
#undef assert
#endif
#define assert(...) ASCEND_TWIN_ASSERT(__VA_ARGS__, "")

// --- tiling ---

#define REGISTER_TILING_DEFAULT(TILING_STRUCT) using ascend_twin_default_tiling = TILING_STRUCT
#define REGISTER_TILING_FOR_TILINGKEY(EXPRESSION, TILING_STRUCT) static_assert(sizeof(TILING_STRUCT) > 0, EXPRESSION)
#define REGISTER_NONE_TILING static_assert(true, "")
#define GET_TILING_DATA(tiling_data, tiling_arg) GET_TILING_DATA_WITH_STRUCT(ascend_twin_default_tiling, tiling_data, tiling_arg)
#define GET_TILING_DATA_WITH_STRUCT(struct_name, tiling_data, tiling_arg)                                              \
    struct_name tiling_data;                                                                                           \
    ::ascend_twin::tiling_copy(&tiling_data, tiling_arg, sizeof(tiling_data), ::ascend_twin::Site::here())
#define GET_TILING_DATA_MEMBER(struct_name, mem_name, tiling_data, tiling_arg)                                         \
    decltype(struct_name::mem_name) tiling_data;                                                                       \
    ::ascend_twin::tiling_copy(&tiling_data, reinterpret_cast<const uint8_t *>(tiling_arg) + offsetof(struct_name, mem_name), \
                               sizeof(tiling_data), ::ascend_twin::Site::here())
#define GET_TILING_DATA_PTR_WITH_STRUCT(tiling_struct, dst_ptr, tiling_ptr)                                            \
    const __gm__ tiling_struct *dst_ptr = reinterpret_cast<const __gm__ tiling_struct *>(tiling_ptr)
#define COPY_TILING_WITH_STRUCT(tiling_struct, src_ptr, dst_ptr)                                                       \
    tiling_struct dst_ptr##_copy = *(src_ptr);                                                                         \
    const tiling_struct *dst_ptr = &dst_ptr##_copy
#define COPY_TILING_WITH_ARRAY(arr_type, arr_count, src_ptr, dst_ptr)                                                  \
    arr_type dst_ptr##_copy[arr_count];                                                                                \
    for (uint32_t dst_ptr##_i = 0; dst_ptr##_i < (arr_count); dst_ptr##_i++) {                                         \
        dst_ptr##_copy[dst_ptr##_i] = (src_ptr)[dst_ptr##_i];                                                          \
    }                                                                                                                  \
    const arr_type(*dst_ptr)[arr_count] = &dst_ptr##_copy
// The tiling key that the kernel is compiled for, as the op project does it.
#define TILING_KEY_IS(key) ((key) == (TILING_KEY_VAR))
#define TILING_KEY_LIST(...) static_assert(true, "")

// --- the part of the standard library that kernels may use ---

namespace AscendC {
namespace Std {

using std::add_const;
using std::add_const_t;
using std::add_cv;
using std::add_cv_t;
using std::add_lvalue_reference;
using std::add_lvalue_reference_t;
using std::add_pointer;
using std::add_pointer_t;
using std::add_rvalue_reference;
using std::add_rvalue_reference_t;
using std::add_volatile;
using std::add_volatile_t;
using std::bool_constant;
using std::conditional;
using std::conditional_t;
using std::decay;
using std::decay_t;
using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::forward;
using std::get;
using std::ignore;
using std::index_sequence;
using std::index_sequence_for;
using std::integer_sequence;
using std::integral_constant;
using std::is_array;
using std::is_base_of;
using std::is_base_of_v;
using std::is_const;
using std::is_convertible;
using std::is_convertible_v;
using std::is_floating_point;
using std::is_floating_point_v;
using std::is_integral;
using std::is_integral_v;
using std::is_pointer;
using std::is_pointer_v;
using std::is_reference;
using std::is_same;
using std::is_same_v;
using std::is_void;
using std::make_index_sequence;
using std::make_integer_sequence;
using std::make_tuple;
using std::move;
using std::remove_const;
using std::remove_const_t;
using std::remove_cv;
using std::remove_cv_t;
using std::remove_pointer;
using std::remove_pointer_t;
using std::remove_reference;
using std::remove_reference_t;
using std::remove_volatile;
using std::remove_volatile_t;
using std::tie;
using std::true_type;
using std::tuple;
using std::tuple_element;
using std::tuple_element_t;
using std::tuple_size;
using std::tuple_size_v;

template <class T> struct remove_cvref {
    using type = std::remove_cv_t<std::remove_reference_t<T>>;
};
template <class T> using remove_cvref_t = typename remove_cvref<T>::type;
template <class T> struct is_tuple : std::false_type {
};
template <class... A> struct is_tuple<std::tuple<A...>> : std::true_type {
};
template <class T> constexpr bool is_tuple_v = is_tuple<T>::value;

template <class T, class U> constexpr T min(const T a, const U b) { return static_cast<T>(b) < a ? static_cast<T>(b) : a; }
template <class T, class U> constexpr T max(const T a, const U b) { return a < static_cast<T>(b) ? static_cast<T>(b) : a; }
template <class T> constexpr T abs(const T a) { return a < T(0) ? static_cast<T>(-a) : a; }
template <class T, class U> constexpr T ceil_division(const T a, const U b) { return static_cast<T>((a + b - 1) / b); }
template <class T, class U> constexpr T ceil_align(const T a, const U b) { return static_cast<T>((a + b - 1) / b * b); }
inline float sqrt(const float a) { return __builtin_sqrtf(a); }

} // namespace Std
} // namespace AscendC

#endif
