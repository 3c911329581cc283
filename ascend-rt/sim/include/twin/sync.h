// SPDX-License-Identifier: MIT OR Apache-2.0

#ifndef ASCEND_TWIN_SYNC_H
#define ASCEND_TWIN_SYNC_H

#include "tensor.h"

#endif
