// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Element types of the kernel language as classes of the host.

#ifndef ASCEND_TWIN_TYPES_H
#define ASCEND_TWIN_TYPES_H

#include "config.h"
#include "machine.h"

// IEEE half precision.
struct half {
    uint16_t bits;
};

struct bfloat16_t {
    uint16_t bits;
};

namespace ascend_twin {

template <class T> struct TypeOf {
    static constexpr uint8_t value = ASCEND_TWIN_NONE;
};
#define ASCEND_TWIN_TYPE_OF(T, V)                                                                                      \
    template <> struct TypeOf<T> {                                                                                     \
        static constexpr uint8_t value = V;                                                                            \
    };
ASCEND_TWIN_TYPE_OF(float, ASCEND_TWIN_F32)
ASCEND_TWIN_TYPE_OF(half, ASCEND_TWIN_F16)
ASCEND_TWIN_TYPE_OF(bfloat16_t, ASCEND_TWIN_BF16)
ASCEND_TWIN_TYPE_OF(int8_t, ASCEND_TWIN_I8)
ASCEND_TWIN_TYPE_OF(uint8_t, ASCEND_TWIN_U8)
ASCEND_TWIN_TYPE_OF(int16_t, ASCEND_TWIN_I16)
ASCEND_TWIN_TYPE_OF(uint16_t, ASCEND_TWIN_U16)
ASCEND_TWIN_TYPE_OF(int32_t, ASCEND_TWIN_I32)
ASCEND_TWIN_TYPE_OF(uint32_t, ASCEND_TWIN_U32)
ASCEND_TWIN_TYPE_OF(int64_t, ASCEND_TWIN_I64)
ASCEND_TWIN_TYPE_OF(uint64_t, ASCEND_TWIN_U64)

} // namespace ascend_twin

#endif
