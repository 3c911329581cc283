// SPDX-License-Identifier: MIT OR Apache-2.0

#ifndef ASCEND_TWIN_COPY_H
#define ASCEND_TWIN_COPY_H

#include "tensor.h"

#endif
