// SPDX-License-Identifier: MIT OR Apache-2.0

#ifndef ASCEND_TWIN_MISSING_H
#define ASCEND_TWIN_MISSING_H

#include "tensor.h"

#endif
