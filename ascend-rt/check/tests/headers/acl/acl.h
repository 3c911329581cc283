// SPDX-License-Identifier: MIT OR Apache-2.0

// A few declarations of AscendCL, written for the test of the checker: enough for each kind of mistake, and nothing else
// of the interface. These are not the genuine headers, and no program can be built with them.
#ifndef ASCEND_RT_CHECK_ACL_H
#define ASCEND_RT_CHECK_ACL_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef void *aclrtStream;
typedef void *aclrtFuncHandle;
typedef void *aclrtArgsHandle;

#define ACL_STREAM_FAST_LAUNCH 0x1U
static const int ACL_ERROR_RT_STREAM_CAPTURED = 107027;

typedef enum aclrtMemMallocPolicy {
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEM_MALLOC_HUGE_ONLY,
    ACL_MEM_MALLOC_NORMAL_ONLY,
} aclrtMemMallocPolicy;

typedef enum aclrtMemcpyKind {
    ACL_MEMCPY_HOST_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_MEMCPY_DEVICE_TO_HOST,
} aclrtMemcpyKind;

typedef enum aclrtStreamStatus {
    ACL_STREAM_STATUS_COMPLETE = 0,
    ACL_STREAM_STATUS_NOT_READY = 1,
} aclrtStreamStatus;

typedef struct aclrtPlaceHolderInfo {
    uint32_t addrOffset;
    uint32_t dataOffset;
} aclrtPlaceHolderInfo;

typedef struct aclCANNPackageVersion {
    char version[128];
    char majorVersion[64];
    char minorVersion[64];
    char releaseVersion[64];
    char patchVersion[64];
    char reserved[128];
} aclCANNPackageVersion;

aclError aclInit(const char *path);
aclError aclFinalize();
const char *aclGetRecentErrMsg();
aclError aclrtSetDevice(int32_t device);
aclError aclrtMalloc(void **pointer, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMemcpyAsync(void *to, size_t capacity, const void *from, size_t count, aclrtMemcpyKind kind, aclrtStream stream);
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status);
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t milliseconds);
aclError aclrtEventElapsedTime(float *milliseconds, void *from, void *to);

#endif
