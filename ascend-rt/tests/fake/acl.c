// SPDX-License-Identifier: MIT OR Apache-2.0

// A library with the functions that AscendCL's has, for tests of the code that opens and calls it. Everything is done at
// once, device memory is host memory, and a kernel does nothing. The functions that need no more than to succeed are
// made by the test from the list of calls; it defines FAKE_<name> for those that this file has itself.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;

static _Thread_local handle current;
static _Thread_local const char *message;
static int initialised;
static int primary, made;

#if !defined(FAKE_WITHOUT_INIT)
int aclInit(const char *config) {
    (void)config;
    return initialised++ ? 100002 : 0;
}
#endif

const char *aclGetRecentErrMsg(void) {
    const char *text = message;
    message = 0;
    return text;
}

const char *aclrtGetSocName(void) { return "Ascend910B3"; }

int aclrtGetDeviceCount(uint32_t *count) {
#if defined(FAKE_NO_DEVICE)
    *count = 0;
#else
    *count = 2;
#endif
    return 0;
}

int aclsysGetCANNVersion(int name, char *version) {
    memset(version, 0, 512);
    strcpy(version, name == 1 ? "8.1.RC1" : "?");
    return 0;
}

int aclrtSetDevice(int32_t device) {
    if (device < 0 || device > 1) {
        message = "EE1001: no such device\n";
        return 107001;
    }
    primary++;
    current = (handle)(intptr_t)(0x1000 + device);
    return 0;
}

int aclrtResetDevice(int32_t device) {
    (void)device;
    primary--;
    return 0;
}

int aclrtGetCurrentContext(handle *context) {
    if (!current) {
        message = "EE1002: no context\n";
        return 107002;
    }
    *context = current;
    return 0;
}

int aclrtSetCurrentContext(handle context) {
    current = context;
    return 0;
}

int aclrtCreateContext(handle *context, int32_t device) {
    (void)device;
    made++;
    *context = current = malloc(1);
    return 0;
}

int aclrtDestroyContext(handle context) {
    made--;
    if (current == context) current = 0;
    free(context);
    return 0;
}

int aclrtGetMemInfo(int kind, size_t *left, size_t *total) {
    (void)kind;
    *left = (size_t)1 << 30;
    *total = (size_t)1 << 31;
    return 0;
}

int aclGetDeviceCapability(uint32_t device, int info, int64_t *value) {
    (void)device;
    *value = info == 0 ? 20 : info == 1 ? 40 : 201326592;
    return 0;
}

static int give(handle *out) {
    *out = malloc(64);
    return 0;
}

int aclrtCreateStreamWithConfig(handle *stream, uint32_t priority, uint32_t flag) { (void)priority, (void)flag; return give(stream); }
int aclrtDestroyStream(handle stream) { free(stream); return 0; }
int aclrtDestroyStreamForce(handle stream) { free(stream); return 0; }
int aclrtStreamQuery(handle stream, uint32_t *status) { (void)stream; *status = 0; return 0; }
int aclrtCreateEventExWithFlag(handle *event, uint32_t flag) { (void)flag; return give(event); }
int aclrtDestroyEvent(handle event) { free(event); return 0; }
int aclrtQueryEventStatus(handle event, uint32_t *status) { (void)event; *status = 1; return 0; }
int aclrtEventElapsedTime(float *ms, handle a, handle b) { (void)a, (void)b; *ms = 1.5f; return 0; }

static int room(void **pointer, size_t size) {
    if (size > (size_t)1 << 30) {
        message = "EE1003: out of memory\n";
        return 207001;
    }
    *pointer = aligned_alloc(64, (size + 63) / 64 * 64);
    return *pointer ? 0 : 207001;
}

int aclrtMalloc(void **pointer, size_t size, int policy) { (void)policy; return room(pointer, size); }
int aclrtMallocHost(void **pointer, size_t size) { return room(pointer, size); }
int aclrtFree(void *pointer) { free(pointer); return 0; }
int aclrtFreeHost(void *pointer) { free(pointer); return 0; }

int aclrtMemcpy(void *to, size_t space, const void *from, size_t count, int kind) {
    (void)kind;
    if (count > space) return 107000;
    memcpy(to, from, count);
    return 0;
}

int aclrtMemcpyAsync(void *to, size_t space, const void *from, size_t count, int kind, handle stream) {
    (void)stream;
    return aclrtMemcpy(to, space, from, count, kind);
}

int aclrtMemset(void *to, size_t space, int32_t value, size_t count) {
    if (count > space) return 107000;
    memset(to, value, count);
    return 0;
}

int aclrtMemsetAsync(void *to, size_t space, int32_t value, size_t count, handle stream) {
    (void)stream;
    return aclrtMemset(to, space, value, count);
}

int aclrtBinaryLoadFromFile(const char *path, void *options, handle *module) {
    (void)options;
    return path[0] == '/' ? give(module) : 107000;
}
int aclrtBinaryUnLoad(handle module) { free(module); return 0; }

int aclrtBinaryGetFunction(handle module, const char *name, handle *function) {
    (void)module;
    static char functions[2];
    if (strcmp(name, "missing") == 0) return 507027;
    *function = functions;
    return 0;
}

static _Thread_local char block[65536];
int aclrtKernelArgsInit(handle function, handle *args) { (void)function; *args = block; return 0; }
int aclrtKernelArgsGetPlaceHolderBuffer(handle args, handle holder, size_t size, void **buffer) {
    (void)args, (void)holder, (void)size;
    *buffer = block;
    return 0;
}

#if defined(FAKE_CALLBACKS)
#include <unistd.h>
int aclrtSubscribeReport(uint64_t thread, handle stream) { (void)stream; return thread ? 0 : 107000; }
int aclrtUnSubscribeReport(uint64_t thread, handle stream) { (void)stream; return thread ? 0 : 107000; }
int aclrtProcessReport(int32_t timeout) { (void)timeout; usleep(1000); return 507012; }
int aclrtLaunchCallback(void (*function)(void *), void *argument, int block, handle stream) {
    (void)stream;
    if (block != 1) return 107000;
    function(argument);
    return 0;
}
#endif

int aclmdlRICaptureGetInfo(handle stream, uint32_t *status, handle *graph) {
    (void)stream;
    *status = 0;
    *graph = 0;
    return 0;
}
int aclmdlRICaptureEnd(handle stream, handle *graph) { (void)stream; return give(graph); }
int aclmdlRIDestroy(handle graph) { free(graph); return 0; }
