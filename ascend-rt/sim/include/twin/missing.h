// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the API has and the twin has not: a use does not compile, and says so in one sentence. Calls take any arguments by
// an ellipsis, so that a kernel's own function of the same name is always the better match.

#ifndef ASCEND_TWIN_MISSING_H
#define ASCEND_TWIN_MISSING_H

#include "frame.h"

namespace ascend_twin {

template <class... T> constexpr bool kNever = false;
template <auto... V> constexpr bool kNeverValue = false;

} // namespace ascend_twin

#define ASCEND_TWIN_NOT_AVAILABLE(name) "ascend-sim: `" #name "` of the AscendC API is not available on the twin"

// A function, with template arguments of types, of values, and of up to four types before values.
#define ASCEND_TWIN_MISSING(name)                                                                                      \
    template <class... T> void name(...)                                                                               \
    {                                                                                                                  \
        static_assert(::ascend_twin::kNever<T...>, ASCEND_TWIN_NOT_AVAILABLE(name));                                   \
    }                                                                                                                  \
    template <auto V0, auto... V> void name(...)                                                                       \
    {                                                                                                                  \
        static_assert(::ascend_twin::kNeverValue<V0, V...>, ASCEND_TWIN_NOT_AVAILABLE(name));                          \
    }                                                                                                                  \
    template <class T0, auto V0, auto... V> void name(...)                                                             \
    {                                                                                                                  \
        static_assert(::ascend_twin::kNever<T0>, ASCEND_TWIN_NOT_AVAILABLE(name));                                     \
    }                                                                                                                  \
    template <class T0, class T1, auto V0, auto... V> void name(...)                                                   \
    {                                                                                                                  \
        static_assert(::ascend_twin::kNever<T0>, ASCEND_TWIN_NOT_AVAILABLE(name));                                     \
    }                                                                                                                  \
    template <class T0, class T1, class T2, auto V0, auto... V> void name(...)                                         \
    {                                                                                                                  \
        static_assert(::ascend_twin::kNever<T0>, ASCEND_TWIN_NOT_AVAILABLE(name));                                     \
    }                                                                                                                  \
    template <class T0, class T1, class T2, class T3, auto V0, auto... V> void name(...)                               \
    {                                                                                                                  \
        static_assert(::ascend_twin::kNever<T0>, ASCEND_TWIN_NOT_AVAILABLE(name));                                     \
    }
// A class whose template arguments are types.
#define ASCEND_TWIN_MISSING_CLASS(name)                                                                                \
    template <class... T> class name {                                                                                 \
        static_assert(::ascend_twin::kNever<T...>, ASCEND_TWIN_NOT_AVAILABLE(name));                                   \
    };
// A class without template arguments.
#define ASCEND_TWIN_MISSING_PLAIN(name)                                                                                \
    template <class... T> class twin_missing_##name {                                                                  \
        static_assert(::ascend_twin::kNever<T...>, ASCEND_TWIN_NOT_AVAILABLE(name));                                   \
    };                                                                                                                 \
    using name = twin_missing_##name<>;

namespace AscendC {

// The basic API.
ASCEND_TWIN_MISSING(BilinearInterpolation)
ASCEND_TWIN_MISSING(MrgSort4)
ASCEND_TWIN_MISSING(ProposalConcat)
ASCEND_TWIN_MISSING(ProposalExtract)
ASCEND_TWIN_MISSING(RpSort16)
ASCEND_TWIN_MISSING(VectorPadding)
ASCEND_TWIN_MISSING(NdDmaDci)
ASCEND_TWIN_MISSING(AtomicAdd)
ASCEND_TWIN_MISSING(AtomicCas)
ASCEND_TWIN_MISSING(AtomicExch)
ASCEND_TWIN_MISSING(AtomicMax)
ASCEND_TWIN_MISSING(AtomicMin)
ASCEND_TWIN_MISSING(GetStoreAtomicConfig)
ASCEND_TWIN_MISSING(SetStoreAtomicConfig)
ASCEND_TWIN_MISSING(AllocMutexID)
ASCEND_TWIN_MISSING(ReleaseMutexID)
ASCEND_TWIN_MISSING(IBSet)
ASCEND_TWIN_MISSING(IBWait)
ASCEND_TWIN_MISSING(InitDetermineComputeWorkspace)
ASCEND_TWIN_MISSING(NotifyNextBlock)
ASCEND_TWIN_MISSING(WaitPreBlock)
ASCEND_TWIN_MISSING(Async)
ASCEND_TWIN_MISSING(GetSsbufBaseAddr)
ASCEND_TWIN_MISSING(ReadGmByPassDCache)
ASCEND_TWIN_MISSING(WriteGmByPassDCache)
ASCEND_TWIN_MISSING(GetSpr)
ASCEND_TWIN_MISSING(ClearSpr)
ASCEND_TWIN_MISSING(GetSaturationFlag)
ASCEND_TWIN_MISSING(SetSaturationFlag)
ASCEND_TWIN_MISSING(Conv2D)
ASCEND_TWIN_MISSING(Gemm)
ASCEND_TWIN_MISSING(GetConv2dTiling)
ASCEND_TWIN_MISSING(GetGemmTiling)
ASCEND_TWIN_MISSING(MmadWithSparse)
ASCEND_TWIN_MISSING(LoadDataWithSparse)
ASCEND_TWIN_MISSING(LoadDataUnzip)
ASCEND_TWIN_MISSING(LoadUnzipIndex)
ASCEND_TWIN_MISSING(LoadImageToLocal)
ASCEND_TWIN_MISSING(SetAippFunctions)
ASCEND_TWIN_MISSING(SetFixPipeAddr)
ASCEND_TWIN_MISSING(SetFixPipeClipRelu)
ASCEND_TWIN_MISSING(BroadCastVecToMM)
ASCEND_TWIN_MISSING(CheckLocalMemoryIA)
ASCEND_TWIN_MISSING(CreateCubeResGroup)
ASCEND_TWIN_MISSING(GetKfcWorkspace)
ASCEND_TWIN_MISSING(MakeTensorTrait)
ASCEND_TWIN_MISSING(MakeShape)
ASCEND_TWIN_MISSING(MakeStride)
ASCEND_TWIN_MISSING(MakeLayout)
ASCEND_TWIN_MISSING(MakeCoord)
ASCEND_TWIN_MISSING(Crd2Idx)
ASCEND_TWIN_MISSING(MakeTensor)
ASCEND_TWIN_MISSING(MakeMemPtr)
ASCEND_TWIN_MISSING(MakeCopy)
ASCEND_TWIN_MISSING(MakeMmad)
ASCEND_TWIN_MISSING_CLASS(ListTensorDesc)
ASCEND_TWIN_MISSING_CLASS(TensorDesc)
ASCEND_TWIN_MISSING_CLASS(TensorTrait)
ASCEND_TWIN_MISSING_CLASS(Layout)
ASCEND_TWIN_MISSING_CLASS(Coord)
ASCEND_TWIN_MISSING_PLAIN(Mutex)
ASCEND_TWIN_MISSING_PLAIN(KfcWorkspace)
ASCEND_TWIN_MISSING_CLASS(CubeResGroupHandle)
template <TPosition pos, int32_t depth, auto mask = 0> class TSCM {
    static_assert(depth < -1, ASCEND_TWIN_NOT_AVAILABLE(TSCM));
};
template <auto pipeMode> class GroupBarrier {
    static_assert(::ascend_twin::kNeverValue<pipeMode>, ASCEND_TWIN_NOT_AVAILABLE(GroupBarrier));
};

// The high-level API.
ASCEND_TWIN_MISSING(Broadcast)
ASCEND_TWIN_MISSING(TransData)
ASCEND_TWIN_MISSING(Pad)
ASCEND_TWIN_MISSING(UnPad)
ASCEND_TWIN_MISSING(BatchNorm)
ASCEND_TWIN_MISSING(DeepNorm)
ASCEND_TWIN_MISSING(GroupNorm)
ASCEND_TWIN_MISSING(LayerNorm)
ASCEND_TWIN_MISSING(LayerNormGrad)
ASCEND_TWIN_MISSING(LayerNormGradBeta)
ASCEND_TWIN_MISSING(Normalize)
ASCEND_TWIN_MISSING(RmsNorm)
ASCEND_TWIN_MISSING(WelfordUpdate)
ASCEND_TWIN_MISSING(WelfordFinalize)
ASCEND_TWIN_MISSING(Mean)
ASCEND_TWIN_MISSING(ReduceAll)
ASCEND_TWIN_MISSING(ReduceAny)
ASCEND_TWIN_MISSING(ReduceMean)
ASCEND_TWIN_MISSING(ReduceProd)
ASCEND_TWIN_MISSING(ReduceXorSum)
ASCEND_TWIN_MISSING(Sum)
ASCEND_TWIN_MISSING(TopK)
ASCEND_TWIN_MISSING(Acos)
ASCEND_TWIN_MISSING(Acosh)
ASCEND_TWIN_MISSING(Asin)
ASCEND_TWIN_MISSING(Asinh)
ASCEND_TWIN_MISSING(Atan)
ASCEND_TWIN_MISSING(Atanh)
ASCEND_TWIN_MISSING(BitwiseAnd)
ASCEND_TWIN_MISSING(BitwiseNot)
ASCEND_TWIN_MISSING(BitwiseOr)
ASCEND_TWIN_MISSING(BitwiseXor)
ASCEND_TWIN_MISSING(Ceil)
ASCEND_TWIN_MISSING(Clamp)
ASCEND_TWIN_MISSING(ClampMax)
ASCEND_TWIN_MISSING(ClampMin)
ASCEND_TWIN_MISSING(Cos)
ASCEND_TWIN_MISSING(Cosh)
ASCEND_TWIN_MISSING(CumSum)
ASCEND_TWIN_MISSING(Digamma)
ASCEND_TWIN_MISSING(Erf)
ASCEND_TWIN_MISSING(Erfc)
ASCEND_TWIN_MISSING(Floor)
ASCEND_TWIN_MISSING(Fma)
ASCEND_TWIN_MISSING(Fmod)
ASCEND_TWIN_MISSING(Frac)
ASCEND_TWIN_MISSING(Hypot)
ASCEND_TWIN_MISSING(IsFinite)
ASCEND_TWIN_MISSING(IsInf)
ASCEND_TWIN_MISSING(IsNan)
ASCEND_TWIN_MISSING(Lgamma)
ASCEND_TWIN_MISSING(LogicalAnd)
ASCEND_TWIN_MISSING(LogicalAnds)
ASCEND_TWIN_MISSING(LogicalNot)
ASCEND_TWIN_MISSING(LogicalOr)
ASCEND_TWIN_MISSING(LogicalOrs)
ASCEND_TWIN_MISSING(LogicalXor)
ASCEND_TWIN_MISSING(Log)
ASCEND_TWIN_MISSING(Log2)
ASCEND_TWIN_MISSING(Log10)
ASCEND_TWIN_MISSING(Power)
ASCEND_TWIN_MISSING(Rint)
ASCEND_TWIN_MISSING(Round)
ASCEND_TWIN_MISSING(Sign)
ASCEND_TWIN_MISSING(Sin)
ASCEND_TWIN_MISSING(SinCos)
ASCEND_TWIN_MISSING(Sinh)
ASCEND_TWIN_MISSING(Tan)
ASCEND_TWIN_MISSING(Tanh)
ASCEND_TWIN_MISSING(Trunc)
ASCEND_TWIN_MISSING(Where)
ASCEND_TWIN_MISSING(Xor)
ASCEND_TWIN_MISSING(DropOut)
ASCEND_TWIN_MISSING(GeGLU)
ASCEND_TWIN_MISSING(Gelu)
ASCEND_TWIN_MISSING(FasterGelu)
ASCEND_TWIN_MISSING(FasterGeluV2)
ASCEND_TWIN_MISSING(LogSoftMax)
ASCEND_TWIN_MISSING(ReGlu)
ASCEND_TWIN_MISSING(Sigmoid)
ASCEND_TWIN_MISSING(Silu)
ASCEND_TWIN_MISSING(SwiGLU)
ASCEND_TWIN_MISSING(Swish)
ASCEND_TWIN_MISSING(SoftMax)
ASCEND_TWIN_MISSING(SimpleSoftMax)
ASCEND_TWIN_MISSING(SoftmaxFlash)
ASCEND_TWIN_MISSING(SoftmaxFlashV2)
ASCEND_TWIN_MISSING(SoftmaxFlashV3)
ASCEND_TWIN_MISSING(SoftmaxGrad)
ASCEND_TWIN_MISSING(SoftmaxGradFront)
ASCEND_TWIN_MISSING(AdjustSoftMaxRes)
ASCEND_TWIN_MISSING(AntiQuantize)
ASCEND_TWIN_MISSING(AscendAntiQuant)
ASCEND_TWIN_MISSING(AscendDequant)
ASCEND_TWIN_MISSING(AscendQuant)
ASCEND_TWIN_MISSING(Dequantize)
ASCEND_TWIN_MISSING(Quantize)
ASCEND_TWIN_MISSING(PhiloxRandom)
ASCEND_TWIN_MISSING(GetHcclContext)
ASCEND_TWIN_MISSING(SetHcclContext)
ASCEND_TWIN_MISSING_CLASS(Matmul)
ASCEND_TWIN_MISSING_CLASS(BatchMatmul)
template <auto serverType, auto... config> class Hccl {
    static_assert(::ascend_twin::kNeverValue<serverType>, ASCEND_TWIN_NOT_AVAILABLE(Hccl));
};

// Vector registers.
namespace Reg {
template <class T, class... Trait> class RegTensor {
    static_assert(::ascend_twin::kNever<T>, ASCEND_TWIN_NOT_AVAILABLE(Reg::RegTensor));
};
template <class... T> class twin_missing_mask {
    static_assert(::ascend_twin::kNever<T...>, ASCEND_TWIN_NOT_AVAILABLE(Reg::MaskReg));
};
using MaskReg = twin_missing_mask<>;
template <class... T> class twin_missing_unalign {
    static_assert(::ascend_twin::kNever<T...>, ASCEND_TWIN_NOT_AVAILABLE(Reg::UnalignReg));
};
using UnalignReg = twin_missing_unalign<>;
template <class... T> class twin_missing_addr {
    static_assert(::ascend_twin::kNever<T...>, ASCEND_TWIN_NOT_AVAILABLE(Reg::AddrReg));
};
using AddrReg = twin_missing_addr<>;
ASCEND_TWIN_MISSING(CreateMask)
ASCEND_TWIN_MISSING(UpdateMask)
ASCEND_TWIN_MISSING(CreateAddrReg)
ASCEND_TWIN_MISSING(LoadAlign)
ASCEND_TWIN_MISSING(LoadUnAlign)
ASCEND_TWIN_MISSING(LoadUnAlignPre)
ASCEND_TWIN_MISSING(StoreAlign)
ASCEND_TWIN_MISSING(StoreUnAlign)
ASCEND_TWIN_MISSING(StoreUnAlignPost)
ASCEND_TWIN_MISSING(LocalMemBar)
} // namespace Reg
namespace MicroAPI = Reg;

} // namespace AscendC

namespace matmul {
using AscendC::Matmul;
} // namespace matmul

#define REGIST_MATMUL_OBJ(...) static_assert(false, ASCEND_TWIN_NOT_AVAILABLE(REGIST_MATMUL_OBJ))
#define EXTERN_IMPL_BUFPOOL(...) static_assert(false, ASCEND_TWIN_NOT_AVAILABLE(EXTERN_IMPL_BUFPOOL))

#endif
