// SPDX-License-Identifier: MIT OR Apache-2.0

#ifndef ASCEND_TWIN_VECTOR_H
#define ASCEND_TWIN_VECTOR_H

#include "tensor.h"

#endif
