// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The words of the kernel language that are no C++: on the host they mean little.

#ifndef ASCEND_TWIN_CONFIG_H
#define ASCEND_TWIN_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#define __aicore__
#define __global__
#define __host_aicore__
#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __fbuf__
#define __ssbuf__
#define __cube__
#define __vector__
#define __mix__(cube, vector)
#define __inout_pipe__(pipe)
#define __in_pipe__(pipe)
#define __out_pipe__(pipe)
#define __sync_noalias__
#define __sync_alias__
#define __check_sync_alias__

#ifndef GM_ADDR
#define GM_ADDR uint8_t *
#endif

// ASCEND_TWIN_CORE: 1 the kernel is built for vector cores alone, 2 for cube cores alone, 0 the core decides at run time.
#ifndef ASCEND_TWIN_CORE
#define ASCEND_TWIN_CORE 0
#endif

#endif
