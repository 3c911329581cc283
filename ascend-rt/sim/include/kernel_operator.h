// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The kernel API, as kernels include it.

#ifndef ASCEND_TWIN_KERNEL_OPERATOR_H
#define ASCEND_TWIN_KERNEL_OPERATOR_H

#include "twin/config.h"
#include "twin/types.h"
#include "twin/tensor.h"
#include "twin/sync.h"
#include "twin/frame.h"
#include "twin/copy.h"
#include "twin/cube.h"
#include "twin/vector.h"
#include "twin/missing.h"

#endif
