// SPDX-License-Identifier: MIT OR Apache-2.0

#ifndef ASCEND_TWIN_FRAME_H
#define ASCEND_TWIN_FRAME_H

#include "tensor.h"

#endif
