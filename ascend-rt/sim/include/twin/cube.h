// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cube unit: loads into L0, Mmad, Fixpipe, and the state that they take over.

#ifndef ASCEND_TWIN_CUBE_H
#define ASCEND_TWIN_CUBE_H

#include "copy.h"

// How Fixpipe converts what it takes from L0C. V...: a parameter per column.
enum QuantMode_t {
    NoQuant,
    F322F16,
    F322BF16,
    DEQF16,
    VDEQF16,
    QF322B8_PRE,
    VQF322B8_PRE,
    REQ8,
    VREQ8,
    QF322FP8_PRE,
    VQF322FP8_PRE,
    QF322HIF8_PRE,
    VQF322HIF8_PRE,
    QF322HIF8_PRE_HYBRID,
    VQF322HIF8_PRE_HYBRID,
    QS322BF16_PRE,
    VQS322BF16_PRE,
    QF322F16_PRE,
    VQF322F16_PRE,
    QF322BF16_PRE,
    VQF322BF16_PRE,
    QF322F32_PRE,
    VQF322F32_PRE
};

namespace AscendC {

using ::QuantMode_t;

// ---- loads

struct LoadData2DParams {
    LoadData2DParams() {}
    LoadData2DParams(twin_given::U16 startIndexIn, twin_given::U8 repeatTimesIn, twin_given::U16 srcStrideIn, twin_given::U8 sidIn,
                     twin_given::U16 dstGapIn, bool ifTransposeIn, twin_given::U8 addrModeIn)
        : startIndex(startIndexIn), dstGap(dstGapIn), srcStride(srcStrideIn), ifTranspose(ifTransposeIn), repeatTimes(repeatTimesIn),
          sid(sidIn), addrMode(addrModeIn)
    {
    }

    twin_field::U16 startIndex{0}; // all in fractals of 512 B
    twin_field::U16 dstGap{0}; // end to start
    twin_field::U16 srcStride{0}; // start to start
    bool ifTranspose = false;
    twin_field::U8 repeatTimes{0};
    twin_field::U8 sid{0};
    twin_field::U8 addrMode{0}; // 1: the source goes down
};
using LoadData2dParams = LoadData2DParams;

struct LoadData2DParamsV2 {
    LoadData2DParamsV2() {}
    LoadData2DParamsV2(twin_given::U32 mStartPositionIn, twin_given::U32 kStartPositionIn, twin_given::U16 mStepIn,
                       twin_given::U16 kStepIn, twin_given::I32 srcStrideIn, twin_given::U16 dstStrideIn, bool ifTransposeIn,
                       twin_given::U8 sidIn)
        : mStartPosition(mStartPositionIn), kStartPosition(kStartPositionIn), mStep(mStepIn), kStep(kStepIn), srcStride(srcStrideIn),
          dstStride(dstStrideIn), ifTranspose(ifTransposeIn), sid(sidIn)
    {
    }

    twin_field::U32 mStartPosition{0}; // 16 rows
    twin_field::U32 kStartPosition{0}; // 32 B of columns
    twin_field::U16 mStep{0};
    twin_field::U16 kStep{0};
    twin_field::I32 srcStride{0}; // fractals, between neighbours along k
    twin_field::U16 dstStride{0};
    bool ifTranspose = false;
    twin_field::U8 sid{0};
};

struct LoadData2DMxParams {
    LoadData2DMxParams() {}
    LoadData2DMxParams(twin_given::U16 xStartPositionIn, twin_given::U16 yStartPositionIn, twin_given::U8 xStepIn,
                       twin_given::U8 yStepIn, twin_given::U16 srcStrideIn, twin_given::U16 dstStrideIn)
        : xStartPosition(xStartPositionIn), yStartPosition(yStartPositionIn), xStep(xStepIn), yStep(yStepIn), srcStride(srcStrideIn),
          dstStride(dstStrideIn)
    {
    }

    twin_field::U16 xStartPosition{0}; // along m, fractals of 32 B
    twin_field::U16 yStartPosition{0}; // along k
    twin_field::U8 xStep{0};
    twin_field::U8 yStep{0};
    twin_field::U16 srcStride{0}; // between neighbours along m
    twin_field::U16 dstStride{0};
};

struct LoadData2dTransposeParams {
    LoadData2dTransposeParams() {}
    LoadData2dTransposeParams(twin_given::U16 startIndexIn, twin_given::U8 repeatTimesIn, twin_given::U16 srcStrideIn,
                              twin_given::U16 dstGapIn, twin_given::U16 dstfracGapIn, twin_given::U8 addrModeIn = 0)
        : startIndex(startIndexIn), repeatTimes(repeatTimesIn), srcStride(srcStrideIn), dstGap(dstGapIn), dstFracGap(dstfracGapIn),
          addrMode(addrModeIn)
    {
    }

    twin_field::U16 startIndex{0}; // squares
    twin_field::U8 repeatTimes{0};
    twin_field::U16 srcStride{0}; // squares
    twin_field::U16 dstGap{0}; // fractals, end of the first to start of the next first
    twin_field::U16 dstFracGap{0}; // fractals, end to start, inside of a square
    twin_field::U8 addrMode{0};
};

struct LoadData2dTransposeParamsV2 {
    LoadData2dTransposeParamsV2() {}
    LoadData2dTransposeParamsV2(twin_given::U16 startIndexIn, twin_given::U8 repeatTimesIn, twin_given::U16 srcStrideIn,
                                twin_given::U16 dstGapIn, twin_given::U16 dstFracGapIn, twin_given::U16 srcFracGapIn,
                                twin_given::U8 addrModeIn = 0)
        : startIndex(startIndexIn), repeatTimes(repeatTimesIn), srcStride(srcStrideIn), dstGap(dstGapIn), dstFracGap(dstFracGapIn),
          srcFracGap(srcFracGapIn), addrMode(addrModeIn)
    {
    }

    twin_field::U16 startIndex{0}; // all in fractals
    twin_field::U8 repeatTimes{0};
    twin_field::U16 srcStride{0};
    twin_field::U16 dstGap{0};
    twin_field::U16 dstFracGap{0};
    twin_field::U16 srcFracGap{0};
    twin_field::U8 addrMode{0};
};

struct IsResetLoad3dConfig {
    constexpr IsResetLoad3dConfig(bool isSetFMatrixIn, bool isSetPaddingIn) : isSetFMatrix(isSetFMatrixIn), isSetPadding(isSetPaddingIn)
    {
    }
    bool isSetFMatrix = true;
    bool isSetPadding = true;
};
constexpr IsResetLoad3dConfig IS_RESER_LOAD3D_DEFAULT_CONFIG = {true, true};

template <class T> struct LoadData3DParamsV2 {
    LoadData3DParamsV2() { memset(static_cast<void *>(&padValue), 0, sizeof(T)); }
    template <class V>
    LoadData3DParamsV2(const uint8_t padListIn[4], twin_given::U16 l1HIn, twin_given::U16 l1WIn, twin_given::U16 channelSizeIn,
                       twin_given::U16 kExtensionIn, twin_given::U16 mExtensionIn, twin_given::U16 kStartPtIn,
                       twin_given::U16 mStartPtIn, twin_given::U8 strideWIn, twin_given::U8 strideHIn, twin_given::U8 filterWIn,
                       twin_given::U8 filterHIn, twin_given::U8 dilationFilterWIn, twin_given::U8 dilationFilterHIn,
                       bool enTransposeIn, bool enSmallKIn, V padValueIn, bool filterSizeWIn = false, bool filterSizeHIn = false,
                       bool fMatrixCtrlIn = false)
        : l1H(l1HIn), l1W(l1WIn), channelSize(channelSizeIn), kExtension(kExtensionIn), mExtension(mExtensionIn), kStartPt(kStartPtIn),
          mStartPt(mStartPtIn), strideW(strideWIn), strideH(strideHIn), filterW(filterWIn), filterH(filterHIn),
          dilationFilterW(dilationFilterWIn), dilationFilterH(dilationFilterHIn), enTranspose(enTransposeIn), enSmallK(enSmallKIn),
          padValue(static_cast<T>(padValueIn)), filterSizeW(filterSizeWIn), filterSizeH(filterSizeHIn), fMatrixCtrl(fMatrixCtrlIn)
    {
        memcpy(padList, padListIn, sizeof(padList));
    }

    uint8_t padList[4] = {0, 0, 0, 0}; // left, right, top, bottom
    twin_field::U16 l1H{0};
    twin_field::U16 l1W{0};
    twin_field::U16 channelSize{0};
    twin_field::U16 kExtension{0};
    twin_field::U16 mExtension{0};
    twin_field::U16 kStartPt{0};
    twin_field::U16 mStartPt{0};
    twin_field::U8 strideW{1};
    twin_field::U8 strideH{1};
    twin_field::U8 filterW{1};
    twin_field::U8 filterH{1};
    twin_field::U8 dilationFilterW{1};
    twin_field::U8 dilationFilterH{1};
    bool enTranspose = false;
    bool enSmallK = false;
    T padValue;
    bool filterSizeW = false;
    bool filterSizeH = false;
    bool fMatrixCtrl = false;
};

// The same in two words; the feature map comes from SetFmatrix, the padding from SetLoadDataPaddingValue.
struct LoadData3DParamsV2Pro {
    LoadData3DParamsV2Pro() {}
    LoadData3DParamsV2Pro(twin_given::U16 channelSizeIn, bool enTransposeIn, bool enSmallKIn, bool filterSizeWIn, bool filterSizeHIn,
                          bool fMatrixCtrlIn, uint64_t extConfigIn, uint64_t filterConfigIn)
        : channelSize(channelSizeIn), enTranspose(enTransposeIn), enSmallK(enSmallKIn), filterSizeW(filterSizeWIn),
          filterSizeH(filterSizeHIn), fMatrixCtrl(fMatrixCtrlIn), extConfig(extConfigIn), filterConfig(filterConfigIn)
    {
    }

    twin_field::U16 channelSize{0};
    bool enTranspose = false;
    bool enSmallK = false;
    bool filterSizeW = false;
    bool filterSizeH = false;
    bool fMatrixCtrl = false;
    uint64_t extConfig = 0; // 16 bits each: kExtension, mExtension, kStartPt, mStartPt
    uint64_t filterConfig = 0x10101010101; // 8 bits each: strides, filter, dilations, of w and h
};

struct LoadDataRepeatParam {
    LoadDataRepeatParam() {}
#if __NPU_ARCH__ == 3510
    LoadDataRepeatParam(twin_given::U16 repeatStrideIn, twin_given::U8 repeatTimeIn, twin_given::U8 repeatModeIn,
                        twin_given::U16 dstStrideIn)
        : repeatStride(repeatStrideIn), repeatTime(repeatTimeIn), repeatMode(repeatModeIn), dstStride(dstStrideIn)
    {
    }
#endif
    LoadDataRepeatParam(twin_given::U16 repeatStrideIn, twin_given::U8 repeatTimeIn, twin_given::U8 repeatModeIn)
        : repeatStride(repeatStrideIn), repeatTime(repeatTimeIn), repeatMode(repeatModeIn)
    {
    }

    twin_field::U16 repeatStride{0}; // 16 rows, or C0 columns
    twin_field::U8 repeatTime{1};
    twin_field::U8 repeatMode{0}; // 0: along m, 1: along k
#if __NPU_ARCH__ == 3510
    twin_field::U16 dstStride{0}; // fractals, between neighbours along k
#else
    twin_field::U8 reserved{0};
#endif
};
#if __NPU_ARCH__ == 3510
using LoadDataRepeatParamWithStride = LoadDataRepeatParam;
#endif

template <class T> struct InitConstValueParams {
    InitConstValueParams() { memset(static_cast<void *>(&initValue), 0, sizeof(T)); }
    template <class V>
    InitConstValueParams(twin_given::U16 repeatTimesIn, twin_given::U16 blockNumIn, twin_given::U16 dstGapIn, V initValueIn)
        : repeatTimes(repeatTimesIn), blockNum(blockNumIn), dstGap(dstGapIn), initValue(static_cast<T>(initValueIn))
    {
    }
    template <class V>
    InitConstValueParams(twin_given::U16 repeatTimesIn, V initValueIn) : repeatTimes(repeatTimesIn), initValue(static_cast<T>(initValueIn))
    {
    }

    twin_field::U16 repeatTimes{0};
    twin_field::U16 blockNum{0}; // 32 B in L1, 512 B in L0
    twin_field::U16 dstGap{0};
    T initValue;
};

enum class FmatrixMode : uint8_t { FMATRIX_LEFT = 0, FMATRIX_RIGHT = 1 };

// ---- Mmad

struct MmadParams {
    MmadParams() {}
    MmadParams(twin_given::U16 mIn, twin_given::U16 nIn, twin_given::U16 kIn, bool isBiasIn, int32_t fmOffsetIn, bool enSsparseIn,
               bool enWinogradAIn, bool enWinogradBIn)
        : m(mIn), n(nIn), k(kIn), isBias(isBiasIn), fmOffset(fmOffsetIn), enSsparse(enSsparseIn), enWinogradA(enWinogradAIn),
          enWinogradB(enWinogradBIn)
    {
    }
    MmadParams(twin_given::U16 mIn, twin_given::U16 nIn, twin_given::U16 kIn, twin_given::U8 unitFlagIn, bool cmatrixSourceIn,
               bool cmatrixInitValIn)
        : m(mIn), n(nIn), k(kIn), unitFlag(unitFlagIn), cmatrixSource(cmatrixSourceIn), cmatrixInitVal(cmatrixInitValIn)
    {
    }

    twin_field::U16 m{0};
    twin_field::U16 n{0};
    twin_field::U16 k{0};
    bool isBias = false;
    int32_t fmOffset = 0;
    bool enSsparse = false;
    bool enWinogradA = false;
    bool enWinogradB = false;
    twin_field::U8 unitFlag{0};
    bool kDirectionAlign = false;
    bool cmatrixSource = false;
    bool cmatrixInitVal = true;
#if __NPU_ARCH__ == 3510
    bool disableGemv = false;
#endif
};

enum class HF32Mode { ENABLE, DISABLE };
enum class HF32TransMode { NEAREST_ZERO, NEAREST_EVEN };

// ---- Fixpipe

enum class CO2Layout : uint8_t { NZ = 0, ROW_MAJOR, COLUMN_MAJOR };

struct FixpipeConfig {
    CO2Layout format;
    bool isToUB;
    constexpr FixpipeConfig(CO2Layout format_) : format(format_), isToUB(false) {}
    constexpr FixpipeConfig(CO2Layout format_, bool isToUB_) : format(format_), isToUB(isToUB_) {}
};
constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ};
constexpr FixpipeConfig CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR};
constexpr FixpipeConfig CFG_COLUMN_MAJOR = {CO2Layout::COLUMN_MAJOR};

struct FixpipeParamsV220 {
    FixpipeParamsV220() {}
    FixpipeParamsV220(twin_given::U16 nSizeIn, twin_given::U16 mSizeIn, twin_given::U16 srcStrideIn, twin_given::U32 dstStrideIn,
                      bool reluEnIn)
        : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn), reluEn(reluEnIn)
    {
    }
    FixpipeParamsV220(twin_given::U16 nSizeIn, twin_given::U16 mSizeIn, twin_given::U16 srcStrideIn, twin_given::U32 dstStrideIn,
                      bool reluEnIn, QuantMode_t quantPreIn, int64_t deqScalarIn, twin_given::U16 ndNumIn,
                      twin_given::U16 srcNdStrideIn, twin_given::U16 dstNdStrideIn, twin_given::U8 unitFlagIn,
                      bool isChannelSplitIn = false)
        : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn), quantPre(quantPreIn),
          deqScalar(static_cast<uint64_t>(deqScalarIn)), ndNum(ndNumIn), srcNdStride(srcNdStrideIn), dstNdStride(dstNdStrideIn),
          reluEn(reluEnIn), unitFlag(unitFlagIn), isChannelSplit(isChannelSplitIn)
    {
    }

    twin_field::U16 nSize{0};
    twin_field::U16 mSize{0};
    twin_field::U16 srcStride{0}; // rows of 16 elements
    twin_field::U32 dstStride{0}; // rows: elements, NZ: 32 B
    QuantMode_t quantPre = NoQuant;
    uint64_t deqScalar = 0;
    twin_field::U16 ndNum{1};
    twin_field::U16 srcNdStride{0}; // fractals
    twin_field::U16 dstNdStride{0}; // elements
    bool reluEn = false;
    twin_field::U8 unitFlag{0};
    bool isChannelSplit = false;
};

#if __NPU_ARCH__ == 3510
struct Nz2NdParams {
    Nz2NdParams() {}
    Nz2NdParams(twin_given::U16 ndNumIn, twin_given::U16 srcNdStrideIn, twin_given::U32 dstNdStrideIn)
        : ndNum(ndNumIn), srcNdStride(srcNdStrideIn), dstNdStride(dstNdStrideIn)
    {
    }
    twin_field::U16 ndNum{1};
    twin_field::U16 srcNdStride{0}; // rows of 16 elements
    twin_field::U32 dstNdStride{0}; // elements
};
struct Nz2DnParams {
    Nz2DnParams() {}
    Nz2DnParams(twin_given::U16 dnNumIn, twin_given::U16 srcNzMatrixStrideIn, twin_given::U32 dstDnMatrixStrideIn,
                twin_given::U16 srcNzC0StrideIn)
        : dnNum(dnNumIn), srcNzMatrixStride(srcNzMatrixStrideIn), dstDnMatrixStride(dstDnMatrixStrideIn), srcNzC0Stride(srcNzC0StrideIn)
    {
    }
    twin_field::U16 dnNum{1};
    twin_field::U16 srcNzMatrixStride{0}; // rows of 16 elements
    twin_field::U32 dstDnMatrixStride{0}; // elements
    twin_field::U16 srcNzC0Stride{0}; // rows of 16 elements, between neighbours along m
};

template <CO2Layout format> struct TransformParams {};
template <> struct TransformParams<CO2Layout::NZ> {
    using PARAMS = uint8_t;
};
template <> struct TransformParams<CO2Layout::ROW_MAJOR> {
    using PARAMS = Nz2NdParams;
};
template <> struct TransformParams<CO2Layout::COLUMN_MAJOR> {
    using PARAMS = Nz2DnParams;
};

enum class ReluMode { NO_RELU = 0, NORMAL_RELU = 1, SCALAR_RELU = 2, VECTOR_RELU = 3 };
enum class ClipReluMode { NOCLIP_RELU = 0, CLIP_RELU = 1 };

template <CO2Layout format = CO2Layout::ROW_MAJOR> struct FixpipeParamsArch3510 {
    FixpipeParamsArch3510() {}
    FixpipeParamsArch3510(twin_given::U16 nSizeIn, twin_given::U16 mSizeIn, twin_given::U16 srcStrideIn, twin_given::U32 dstStrideIn)
        : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn)
    {
    }

    ReluMode preReluMode = ReluMode::NO_RELU;
    ClipReluMode preClipReluMode = ClipReluMode::NOCLIP_RELU;
    uint64_t reluScalar = 0;
    uint64_t vectorRelu = 0;
    twin_field::U16 nSize{0};
    twin_field::U16 mSize{0};
    twin_field::U16 srcStride{0}; // rows of 16 elements
    twin_field::U32 dstStride{0}; // elements
    QuantMode_t quantPre = NoQuant;
    uint64_t deqScalar = 0;
    bool reluEn = false;
    twin_field::U8 unitFlag{0};
    twin_field::U8 dualDstCtl{0}; // 1: halves of m, 2: halves of n go to the two vector cores
    bool subBlockId = false;
    typename TransformParams<format>::PARAMS params{};
    bool isChannelSplit = false;
};
template <CO2Layout format = CO2Layout::ROW_MAJOR> struct FixpipeParamsC310 : FixpipeParamsArch3510<format> {
    FixpipeParamsC310() {}
    FixpipeParamsC310(twin_given::U16 nSizeIn, twin_given::U16 mSizeIn, twin_given::U16 srcStrideIn, twin_given::U32 dstStrideIn)
        : FixpipeParamsArch3510<format>(nSizeIn, mSizeIn, srcStrideIn, dstStrideIn)
    {
    }
};
#endif

// L0C moved by DataCopy.
struct DataCopyCO12DstParams {
    DataCopyCO12DstParams() {}
    DataCopyCO12DstParams(twin_given::U16 nSizeIn, twin_given::U16 mSizeIn, twin_given::U32 dstStrideIn, twin_given::U16 srcStrideIn,
                          QuantMode_t quantPreIn, twin_given::U8 reluPreIn, bool channelSplitIn, bool nz2ndEnIn)
        : nSize(nSizeIn), mSize(mSizeIn), dstStride(dstStrideIn), srcStride(srcStrideIn), quantPre(quantPreIn), reluPre(reluPreIn),
          channelSplit(channelSplitIn), nz2ndEn(nz2ndEnIn)
    {
    }

    twin_field::U8 sid{0};
    twin_field::U16 nSize{0};
    twin_field::U16 mSize{0};
    twin_field::U32 dstStride{0};
    twin_field::U16 srcStride{0};
    twin_field::U8 unitFlag{0};
    uint8_t clipReluPre = 0;
    uint8_t eltWiseOp = 0;
    QuantMode_t quantPre = NoQuant;
    twin_field::U8 reluPre{0};
    bool channelSplit = false;
    bool nz2ndEn = false;
};

} // namespace AscendC

namespace ascend_twin {

// Defined in lib/cube_load.cpp.
void load_2d(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2DParams &p, Site site);
void load_transposed(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2dTransposeParams &p, Site site);
#if __NPU_ARCH__ == 3510
void load_2d_v2(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2DParamsV2 &p, Site site);
void load_transposed(const Place &dst, const Place &src, Kind kind, const AscendC::LoadData2dTransposeParamsV2 &p, Site site);
void load_mx(const Place &dst, const Place &src, const Place &scales, Kind kind, Kind scale_kind, const AscendC::LoadData2DParamsV2 &p,
             const AscendC::LoadData2DMxParams &mx, Site site);
#endif
struct Load3D {
    const uint8_t *pad;
    Field<uint16_t> l1_h, l1_w, channels, k_extension, m_extension, k_start, m_start;
    Field<uint8_t> stride_w, stride_h, filter_w, filter_h, dilation_w, dilation_h;
    bool transpose, small_k, wide_filter, high_filter, right_matrix, set_matrix, set_padding;
    uint64_t pad_value;
};
void load_3d(const Place &dst, const Place &src, Kind kind, const Load3D &p, const char *api, Site site);
void set_fmatrix(Field<uint16_t> h, Field<uint16_t> w, const uint8_t pad[4], bool right, Site site);
void set_load_boundary(uint32_t value, Site site);
void set_load_padding(uint64_t bits, Site site);
void set_load_repeat(const AscendC::LoadDataRepeatParam &p, const char *api, Site site);
void fill_constant(const Place &dst, Kind kind, Field<uint16_t> repeats, Field<uint16_t> blocks, Field<uint16_t> gap, uint64_t value,
                   const char *api, Site site);

// Defined in lib/cube_mmad.cpp.
void mmad(const Place &c, const Place &a, const Place &b, const Place *bias, Kind ck, Kind ak, Kind bk, Kind bias_kind,
          const AscendC::MmadParams &p, bool mx, Site site);
void set_cube_mode(int bit, bool on, const char *api, Site site);

// Defined in lib/cube_fixpipe.cpp.
struct Fix {
    const char *api;
    AscendC::CO2Layout layout;
    Field<uint16_t> n, m, from_stride;
    Field<uint32_t> to_stride;
    bool to_stride_in_blocks; // NZ: of 32 B; else elements
    QuantMode_t quant;
    uint64_t scalar;
    bool table_in_state; // parameters per column lie where SetFixPipeConfig says
    bool relu;
    Field<uint8_t> unit_flag;
    Field<uint16_t> matrices;
    Field<uint32_t> from_matrix, to_matrix;
    uint32_t from_matrix_unit; // rows of 16 elements
    Field<uint16_t> from_row; // rows of 16 elements between neighbours along m
    bool channel_split;
    bool to_ub;
    Field<uint8_t> dual;
    bool sub_block;
};
void fixpipe(const Place &dst, const Place &src, const Place *table, Kind to, Kind from, const Fix &f, Site site);
void set_fixpipe_matrices(Field<uint16_t> n, Field<uint16_t> from, Field<uint32_t> to, Site site);
void set_fixpipe_scalar(uint64_t value, Site site);
void set_fixpipe_table(const Place &table, bool reset, Site site);

constexpr int kBitHf32 = 46, kBitHf32Round = 47, kBitRowMajor = 51;

} // namespace ascend_twin

namespace AscendC {

// ---- LoadData
template <class T>
void LoadData(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData2DParams &loadDataParams, ASCEND_TWIN_SITE)
{
    ascend_twin::load_2d(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), loadDataParams, site);
}
template <class T>
void LoadData(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const LoadData2DParams &loadDataParams, ASCEND_TWIN_SITE)
{
    ascend_twin::load_2d(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), loadDataParams, site);
}
#if __NPU_ARCH__ == 3510
template <class T>
void LoadData(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData2DParamsV2 &loadDataParams, ASCEND_TWIN_SITE)
{
    ascend_twin::load_2d_v2(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), loadDataParams, site);
}
template <class T>
void LoadData(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const LoadData2DParamsV2 &loadDataParams, ASCEND_TWIN_SITE)
{
    ascend_twin::load_2d_v2(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), loadDataParams, site);
}
// `dst` may be typed as the MX variant of the source's type.
template <class T, class U = T, class S>
void LoadData(const LocalTensor<U> &dst, const LocalTensor<T> &src, const LocalTensor<S> &srcMx, const LoadData2DParamsV2 &loadDataParams,
              const LoadData2DMxParams &loadMxDataParams, ASCEND_TWIN_SITE)
{
    ascend_twin::load_mx(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::place(srcMx), ascend_twin::kind<T>(),
                         ascend_twin::kind<S>(), loadDataParams, loadMxDataParams, site);
}
#endif

} // namespace AscendC

namespace ascend_twin {
template <class T> Load3D load_3d_params(const AscendC::LoadData3DParamsV2<T> &p, const AscendC::IsResetLoad3dConfig &config)
{
    return Load3D{p.padList,    p.l1H,         p.l1W,         p.channelSize,     p.kExtension,      p.mExtension,        p.kStartPt,
                  p.mStartPt,   p.strideW,     p.strideH,     p.filterW,         p.filterH,         p.dilationFilterW,   p.dilationFilterH,
                  p.enTranspose, p.enSmallK,   p.filterSizeW, p.filterSizeH,     p.fMatrixCtrl,     config.isSetFMatrix, config.isSetPadding,
                  bits_of(p.padValue)};
}
} // namespace ascend_twin

namespace AscendC {

template <class T, const IsResetLoad3dConfig &defaultConfig = IS_RESER_LOAD3D_DEFAULT_CONFIG, class U = T>
void LoadData(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData3DParamsV2<U> &loadDataParams, ASCEND_TWIN_SITE)
{
    static_assert(std::is_same<T, U>::value, "LoadData: the padding value has the type of the elements");
    ascend_twin::load_3d(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(),
                         ascend_twin::load_3d_params(loadDataParams, defaultConfig), "LoadData3D", site);
}
template <class T>
void LoadData(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData3DParamsV2Pro &loadDataParams, ASCEND_TWIN_SITE)
{
    const uint64_t e = loadDataParams.extConfig, f = loadDataParams.filterConfig;
    const uint8_t none[4] = {0, 0, 0, 0};
    LoadData3DParamsV2<uint8_t> p(none, 0, 0, loadDataParams.channelSize, e & 0xffff, e >> 16 & 0xffff, e >> 32 & 0xffff, e >> 48, f & 0xff,
                                  f >> 8 & 0xff, f >> 16 & 0xff, f >> 24 & 0xff, f >> 32 & 0xff, f >> 40 & 0xff,
                                  loadDataParams.enTranspose, loadDataParams.enSmallK, 0, loadDataParams.filterSizeW,
                                  loadDataParams.filterSizeH, loadDataParams.fMatrixCtrl);
    ascend_twin::load_3d(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(),
                         ascend_twin::load_3d_params(p, IsResetLoad3dConfig(false, false)), "LoadData3D", site);
}
#if __NPU_ARCH__ == 3510
template <class T, const IsResetLoad3dConfig &defaultConfig = IS_RESER_LOAD3D_DEFAULT_CONFIG, class U = T>
void LoadDataWithStride(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData3DParamsV2<U> &loadDataParams,
                        ASCEND_TWIN_SITE)
{
    static_assert(std::is_same<T, U>::value, "LoadDataWithStride: the padding value has the type of the elements");
    ascend_twin::load_3d(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(),
                         ascend_twin::load_3d_params(loadDataParams, defaultConfig), "LoadData3D", site);
}
inline void SetLoadDataRepeatWithStride(const LoadDataRepeatParamWithStride &repeatParams, ASCEND_TWIN_SITE)
{
    ascend_twin::set_load_repeat(repeatParams, "SetLoadDataRepeatWithStride", site);
}
#endif
template <class T>
void LoadDataWithTranspose(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData2dTransposeParams &loadDataParams,
                           ASCEND_TWIN_SITE)
{
    ascend_twin::load_transposed(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), loadDataParams, site);
}
#if __NPU_ARCH__ == 3510
template <class T>
void LoadDataWithTranspose(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData2dTransposeParamsV2 &loadDataParams,
                           ASCEND_TWIN_SITE)
{
    ascend_twin::load_transposed(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), loadDataParams, site);
}
#endif

inline void SetFmatrix(twin_given::U16 l1H, twin_given::U16 l1W, const uint8_t padList[4], const FmatrixMode &fmatrixMode,
                       ASCEND_TWIN_SITE)
{
    ascend_twin::set_fmatrix(l1H, l1W, padList, fmatrixMode == FmatrixMode::FMATRIX_RIGHT, site);
}
inline void SetLoadDataBoundary(uint32_t boundaryValue, ASCEND_TWIN_SITE) { ascend_twin::set_load_boundary(boundaryValue, site); }
template <class T> void SetLoadDataPaddingValue(const T padValue, ASCEND_TWIN_SITE)
{
    ascend_twin::set_load_padding(ascend_twin::bits_of(padValue), site);
}
inline void SetLoadDataRepeat(const LoadDataRepeatParam &repeatParams, ASCEND_TWIN_SITE)
{
    ascend_twin::set_load_repeat(repeatParams, "SetLoadDataRepeat", site);
}

template <class T, class U = T>
void Fill(const LocalTensor<T> &dst, const InitConstValueParams<U> &p, ASCEND_TWIN_SITE)
{
    static_assert(std::is_same<T, U>::value, "Fill: the value has the type of the elements");
    ascend_twin::fill_constant(ascend_twin::place(dst), ascend_twin::kind<T>(), p.repeatTimes, p.blockNum, p.dstGap,
                               ascend_twin::bits_of(p.initValue), "Fill", site);
}
template <class T, class U = T>
void InitConstValue(const LocalTensor<T> &dst, const InitConstValueParams<U> &p, ASCEND_TWIN_SITE)
{
    static_assert(std::is_same<T, U>::value, "InitConstValue: the value has the type of the elements");
    ascend_twin::fill_constant(ascend_twin::place(dst), ascend_twin::kind<T>(), p.repeatTimes, p.blockNum, p.dstGap,
                               ascend_twin::bits_of(p.initValue), "InitConstValue", site);
}

// ---- Mmad
template <class T, class U, class S>
void Mmad(const LocalTensor<T> &dst, const LocalTensor<U> &fm, const LocalTensor<S> &filter, const MmadParams &mmadParams, ASCEND_TWIN_SITE)
{
    ascend_twin::mmad(ascend_twin::place(dst), ascend_twin::place(fm), ascend_twin::place(filter), nullptr, ascend_twin::kind<T>(),
                      ascend_twin::kind<U>(), ascend_twin::kind<S>(), ascend_twin::Kind{0, 0}, mmadParams, false, site);
}
template <class T, class U, class S, class V>
void Mmad(const LocalTensor<T> &dst, const LocalTensor<U> &fm, const LocalTensor<S> &filter, const LocalTensor<V> &bias,
          const MmadParams &mmadParams, ASCEND_TWIN_SITE)
{
    const ascend_twin::Place p = ascend_twin::place(bias);
    ascend_twin::mmad(ascend_twin::place(dst), ascend_twin::place(fm), ascend_twin::place(filter), &p, ascend_twin::kind<T>(),
                      ascend_twin::kind<U>(), ascend_twin::kind<S>(), ascend_twin::kind<V>(), mmadParams, false, site);
}
#if __NPU_ARCH__ == 3510
template <class T, class U, class S>
void MmadMx(const LocalTensor<T> &dst, const LocalTensor<U> &fm, const LocalTensor<S> &filter, const MmadParams &mmadParams,
            ASCEND_TWIN_SITE)
{
    ascend_twin::mmad(ascend_twin::place(dst), ascend_twin::place(fm), ascend_twin::place(filter), nullptr, ascend_twin::kind<T>(),
                      ascend_twin::kind<U>(), ascend_twin::kind<S>(), ascend_twin::Kind{0, 0}, mmadParams, true, site);
}
template <class T, class U, class S, class V>
void MmadMx(const LocalTensor<T> &dst, const LocalTensor<U> &fm, const LocalTensor<S> &filter, const LocalTensor<V> &bias,
            const MmadParams &mmadParams, ASCEND_TWIN_SITE)
{
    const ascend_twin::Place p = ascend_twin::place(bias);
    ascend_twin::mmad(ascend_twin::place(dst), ascend_twin::place(fm), ascend_twin::place(filter), &p, ascend_twin::kind<T>(),
                      ascend_twin::kind<U>(), ascend_twin::kind<S>(), ascend_twin::kind<V>(), mmadParams, true, site);
}
#endif

inline void SetHF32Mode(bool hf32Mode, ASCEND_TWIN_SITE)
{
    ascend_twin::set_cube_mode(ascend_twin::kBitHf32, hf32Mode, "SetHF32Mode", site);
}
inline void SetHF32Mode(HF32Mode mode, ASCEND_TWIN_SITE) { SetHF32Mode(mode == HF32Mode::ENABLE, site); }
// True: ties toward zero.
inline void SetHF32TransMode(bool hf32TransMode, ASCEND_TWIN_SITE)
{
    ascend_twin::set_cube_mode(ascend_twin::kBitHf32Round, hf32TransMode, "SetHF32TransMode", site);
}
inline void SetHF32TransMode(HF32TransMode mode, ASCEND_TWIN_SITE) { SetHF32TransMode(mode == HF32TransMode::NEAREST_ZERO, site); }
// The order in which the cube unit makes its results; the values do not depend on it.
inline void SetMMLayoutTransform(bool mmLayoutMode, ASCEND_TWIN_SITE)
{
    ascend_twin::set_cube_mode(ascend_twin::kBitRowMajor, mmLayoutMode, "SetMMLayoutTransform", site);
}
inline void SetMMRowMajor(ASCEND_TWIN_SITE) { SetMMLayoutTransform(true, site); }
inline void SetMMColumnMajor(ASCEND_TWIN_SITE) { SetMMLayoutTransform(false, site); }

// ---- Fixpipe
} // namespace AscendC

namespace ascend_twin {

inline Fix fix_params(const AscendC::FixpipeParamsV220 &p, const AscendC::FixpipeConfig &config)
{
    Fix f{};
    f.api = "Fixpipe";
    f.layout = config.format;
    f.n = p.nSize;
    f.m = p.mSize;
    f.from_stride = p.srcStride;
    f.to_stride = p.dstStride;
    f.to_stride_in_blocks = config.format == AscendC::CO2Layout::NZ;
    f.quant = p.quantPre;
    f.scalar = p.deqScalar;
    f.relu = p.reluEn;
    f.unit_flag = p.unitFlag;
    f.matrices = p.ndNum;
    f.from_matrix = p.srcNdStride;
    f.to_matrix = p.dstNdStride;
    f.from_matrix_unit = 16;
    f.from_row = 1;
    f.channel_split = p.isChannelSplit;
    f.to_ub = config.isToUB;
    return f;
}

#if __NPU_ARCH__ == 3510
template <AscendC::CO2Layout layout> Fix fix_params(const AscendC::FixpipeParamsArch3510<layout> &p, const AscendC::FixpipeConfig &config)
{
    Fix f{};
    f.api = "Fixpipe";
    f.layout = layout;
    f.n = p.nSize;
    f.m = p.mSize;
    f.from_stride = p.srcStride;
    f.to_stride = p.dstStride;
    f.quant = p.quantPre;
    f.scalar = p.deqScalar;
    f.relu = p.reluEn || p.preReluMode == AscendC::ReluMode::NORMAL_RELU;
    f.unit_flag = p.unitFlag;
    f.matrices = 1;
    f.from_matrix_unit = 1;
    f.from_row = 1;
    if constexpr (layout == AscendC::CO2Layout::ROW_MAJOR) {
        f.matrices = p.params.ndNum;
        f.from_matrix = p.params.srcNdStride;
        f.to_matrix = p.params.dstNdStride;
    } else if constexpr (layout == AscendC::CO2Layout::COLUMN_MAJOR) {
        f.matrices = p.params.dnNum;
        f.from_matrix = p.params.srcNzMatrixStride;
        f.to_matrix = p.params.dstDnMatrixStride;
        f.from_row = p.params.srcNzC0Stride;
    }
    f.channel_split = p.isChannelSplit;
    f.to_ub = config.isToUB;
    f.dual = p.dualDstCtl;
    f.sub_block = p.subBlockId;
    return f;
}
#endif

Fix fix_params(const AscendC::DataCopyCO12DstParams &p, Site site);

} // namespace ascend_twin

namespace AscendC {

#define ASCEND_TWIN_FIXPIPE(PARAMS)                                                                                    \
    template <class T, class U, const FixpipeConfig &config = CFG_ROW_MAJOR>                                           \
    void Fixpipe(const LocalTensor<T> &dst, const LocalTensor<U> &src, const PARAMS &intriParams, ASCEND_TWIN_SITE)    \
    {                                                                                                                  \
        ascend_twin::fixpipe(ascend_twin::place(dst), ascend_twin::place(src), nullptr, ascend_twin::kind<T>(),        \
                             ascend_twin::kind<U>(), ascend_twin::fix_params(intriParams, config), site);              \
    }                                                                                                                  \
    template <class T, class U, const FixpipeConfig &config = CFG_ROW_MAJOR>                                           \
    void Fixpipe(const GlobalTensor<T> &dst, const LocalTensor<U> &src, const PARAMS &intriParams, ASCEND_TWIN_SITE)   \
    {                                                                                                                  \
        ascend_twin::fixpipe(ascend_twin::place(dst), ascend_twin::place(src), nullptr, ascend_twin::kind<T>(),        \
                             ascend_twin::kind<U>(), ascend_twin::fix_params(intriParams, config), site);              \
    }                                                                                                                  \
    template <class T, class U, const FixpipeConfig &config = CFG_ROW_MAJOR>                                           \
    void Fixpipe(const LocalTensor<T> &dst, const LocalTensor<U> &src, const LocalTensor<uint64_t> &cbufWorkspace,     \
                 const PARAMS &intriParams, ASCEND_TWIN_SITE)                                                          \
    {                                                                                                                  \
        const ascend_twin::Place table = ascend_twin::place(cbufWorkspace);                                            \
        ascend_twin::fixpipe(ascend_twin::place(dst), ascend_twin::place(src), &table, ascend_twin::kind<T>(),         \
                             ascend_twin::kind<U>(), ascend_twin::fix_params(intriParams, config), site);              \
    }                                                                                                                  \
    template <class T, class U, const FixpipeConfig &config = CFG_ROW_MAJOR>                                           \
    void Fixpipe(const GlobalTensor<T> &dst, const LocalTensor<U> &src, const LocalTensor<uint64_t> &cbufWorkspace,    \
                 const PARAMS &intriParams, ASCEND_TWIN_SITE)                                                          \
    {                                                                                                                  \
        const ascend_twin::Place table = ascend_twin::place(cbufWorkspace);                                            \
        ascend_twin::fixpipe(ascend_twin::place(dst), ascend_twin::place(src), &table, ascend_twin::kind<T>(),         \
                             ascend_twin::kind<U>(), ascend_twin::fix_params(intriParams, config), site);              \
    }
ASCEND_TWIN_FIXPIPE(FixpipeParamsV220)
#if __NPU_ARCH__ == 3510
ASCEND_TWIN_FIXPIPE(FixpipeParamsArch3510<config.format>)
#endif
#undef ASCEND_TWIN_FIXPIPE

template <class T, class U>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<U> &src, const DataCopyCO12DstParams &intriParams, ASCEND_TWIN_SITE)
{
    ascend_twin::fixpipe(ascend_twin::place(dst), ascend_twin::place(src), nullptr, ascend_twin::kind<T>(), ascend_twin::kind<U>(),
                         ascend_twin::fix_params(intriParams, site), site);
}
template <class T, class U>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<U> &src, const DataCopyCO12DstParams &intriParams, ASCEND_TWIN_SITE)
{
    ascend_twin::fixpipe(ascend_twin::place(dst), ascend_twin::place(src), nullptr, ascend_twin::kind<T>(), ascend_twin::kind<U>(),
                         ascend_twin::fix_params(intriParams, site), site);
}

#if __NPU_ARCH__ == 3510
inline void SetFixpipeNz2ndFlag(twin_given::U16 ndNum, twin_given::U16 srcNdStride, twin_given::U32 dstNdStride, ASCEND_TWIN_SITE)
#else
inline void SetFixpipeNz2ndFlag(twin_given::U16 ndNum, twin_given::U16 srcNdStride, twin_given::U16 dstNdStride, ASCEND_TWIN_SITE)
#endif
{
    ascend_twin::set_fixpipe_matrices(ndNum, srcNdStride, dstNdStride, site);
}
inline void SetFixpipePreQuantFlag(uint64_t config, ASCEND_TWIN_SITE) { ascend_twin::set_fixpipe_scalar(config, site); }
template <class T>
void SetFixPipeConfig(const LocalTensor<T> &, const LocalTensor<T> &quantPre, bool isUnitFlag = false, ASCEND_TWIN_SITE)
{
    ascend_twin::set_fixpipe_table(ascend_twin::place(quantPre), isUnitFlag, site);
}
template <class T, bool setRelu = false> void SetFixPipeConfig(const LocalTensor<T> &preData, bool isUnitFlag = false, ASCEND_TWIN_SITE)
{
    static_assert(!setRelu, "SetFixPipeConfig: only the quantisation table can be set");
    ascend_twin::set_fixpipe_table(ascend_twin::place(preData), isUnitFlag, site);
}

} // namespace AscendC

#endif
