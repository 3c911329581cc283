// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A kernel for the driver's tests, with a machine of a few lines: what a real image would answer, without a simulator.
// Macros damage it in one way each.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twin/abi.h"

#ifndef FAKE_ABI
#define FAKE_ABI ASCEND_TWIN_ABI
#endif
#ifndef FAKE_ARCH
#define FAKE_ARCH 2201
#endif
#ifndef FAKE_TASK
#define FAKE_TASK ASCEND_TWIN_AIV_ONLY
#endif
#ifndef FAKE_NAME
#define FAKE_NAME "add"
#endif
#ifndef FAKE_OFFSET
#define FAKE_OFFSET 24
#endif
#ifndef FAKE_POINTER_BYTES
#define FAKE_POINTER_BYTES 8
#endif
#ifndef FAKE_ARGS_BYTES
#define FAKE_ARGS_BYTES 32
#endif

static const AscendTwinParameter add_parameters[] = {
    {0, FAKE_POINTER_BYTES, 1}, {8, 8, 1}, {16, 8, 1}, {FAKE_OFFSET, 4, 0}, {28, 4, 0},
};
static const AscendTwinParameter one_parameter[] = {{0, 8, 1}};
static const AscendTwinParameter tiled_parameters[] = {{0, 8, 1}, {8, 8, 1}, {16, 8, 1}};

static const AscendTwinKernel kernels[] = {
#ifdef FAKE_NO_NAME
    {NULL, FAKE_TASK, FAKE_ARGS_BYTES, add_parameters, 5},
#else
    {FAKE_NAME, FAKE_TASK, FAKE_ARGS_BYTES, add_parameters, 5},
#endif
    {"hang", ASCEND_TWIN_MIX_1_2, 8, one_parameter, 1},
    {"bare", ASCEND_TWIN_AIC_ONLY, 8, one_parameter, 1},
    {"tiled", ASCEND_TWIN_MIX_1_1, 24, tiled_parameters, 3},
    {"nothing", ASCEND_TWIN_AIV_ONLY, 0, NULL, 0},
};

static const char *const rules[] = {"bounds", "hazard-raw", "deadlock", "no-such-rule"};
static const char *const api_names[] = {"DataCopy", "Add"};
static const AscendTwinSite sites[] = {{"kernel/add.cpp", 20}, {"kernel/add.cpp", 21}};

typedef struct State {
    AscendTwinResult result;
    AscendTwinError error;
    AscendTwinRecord records[4];
    AscendTwinCoreRecord cores[2];
    AscendTwinSync syncs[3];
    char message[256];
} State;

static int live; // results that were not given back

static const AscendTwinMemory *memory_of(const AscendTwinLaunch *launch, uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; i < launch->memories; i++) {
        const AscendTwinMemory *m = &launch->memory[i];
        if (address >= m->address && address - m->address < m->bytes && bytes <= m->bytes - (address - m->address)) {
            return m;
        }
    }
    return NULL;
}

static const AscendTwinResult *stopped(State *s, const char *rule, const char *message)
{
    s->error.rule = 99;
    s->error.rule_name = rule;
    snprintf(s->message, sizeof s->message, "%s", message);
    s->error.message = s->message;
    s->error.api = "Add";
    s->error.tensor = "src0";
    s->error.core = "AIV 3";
    s->error.pipe = "V";
    s->error.site = sites[1];
    s->error.other_api = "DataCopy";
    s->error.other_site = sites[0];
    s->result.error = &s->error;
    return &s->result;
}

static int muted(const AscendTwinLaunch *launch, const char *api, uint32_t line)
{
    for (size_t i = 0; i < launch->mute_count; i++) {
        const AscendTwinMute *m = &launch->mutes[i];
        const char *file = "kernel/add.cpp";
        size_t n = m->file ? strlen(m->file) : 0;
        if ((!m->api || !strcmp(m->api, api)) && m->line == line && n <= strlen(file) &&
            (!m->file || !strcmp(file + strlen(file) - n, m->file))) {
            return 1;
        }
    }
    return 0;
}

static uint64_t pointer(const AscendTwinLaunch *launch, size_t offset)
{
    uint64_t address;
    memcpy(&address, launch->args + offset, 8);
    return address;
}

static const AscendTwinResult *add(const AscendTwinLaunch *launch, State *s)
{
    uint32_t n;
    float scale;
    memcpy(&n, launch->args + 24, 4);
    memcpy(&scale, launch->args + 28, 4);
    uint64_t x = pointer(launch, 0), y = pointer(launch, 8), z = pointer(launch, 16);
    uint64_t bytes = (uint64_t)n * 4;
    char text[160];
    if (launch->print) {
        int length = snprintf(text, sizeof text, "%u of %s on %s verbose %u seed %llu\n", launch->blocks,
                              kernels[launch->kernel].name, launch->chip->name, launch->verbose,
                              (unsigned long long)launch->seed);
        launch->print(launch->user, text, (size_t)length);
    }
    for (int i = 0; i < 3; i++) {
        uint64_t at = i == 0 ? x : i == 1 ? y : z;
        if (!memory_of(launch, at, bytes)) {
            snprintf(text, sizeof text, "%llu bytes of argument %d are out of bounds", (unsigned long long)bytes, i);
            return stopped(s, "bounds", text);
        }
    }
    s->syncs[0] = (AscendTwinSync){"SetFlag", {"kernel/add.cpp", 10}, 4};
    s->syncs[1] = (AscendTwinSync){"WaitFlag", {"kernel/add.cpp", 11}, 4};
    s->syncs[2] = (AscendTwinSync){"PipeBarrier", {"kernel/add.cpp", 12}, 1};
    s->result.syncs = s->syncs;
    s->result.sync_count = 3;
    if (muted(launch, "WaitFlag", 11)) {
        return stopped(s, "hazard-raw", "a read that nothing orders");
    }
    if (muted(launch, "SetFlag", 10) && launch->mode == ASCEND_TWIN_CHAOS && launch->seed >= 2) {
        return stopped(s, "deadlock", "the wait never ends");
    }
    if (launch->mode != ASCEND_TWIN_DRY) {
        for (uint32_t i = 0; i < n; i++) {
            float *to = (float *)z + i;
            *to = scale * (((const float *)x)[i] + ((const float *)y)[i]);
        }
        // The input, too: no caller may see it.
        if (n > 0) {
            *(float *)x = -1;
        }
        if (n > 0 && muted(launch, "PipeBarrier", 12)) {
            *(float *)z += 1;
        }
    }
    s->result.instructions = 3;
    s->result.ub_used = 96;
    if (launch->record) {
        s->records[0] = (AscendTwinRecord){.kind = ASCEND_TWIN_INSTRUCTION, .pipe = ASCEND_TWIN_MTE2, .api = 0, .site = 0,
                                           .gm_address = y + 4, .gm_bytes = bytes, .gm_n1 = 1, .gm_n2 = 1};
        s->records[1] = (AscendTwinRecord){.kind = ASCEND_TWIN_INSTRUCTION, .pipe = ASCEND_TWIN_V, .api = 1, .site = 1,
                                           .a = {1, 4, n, 0}};
#ifdef FAKE_BAD_RECORD
        s->records[1].api = 7;
#endif
        s->cores[0] = (AscendTwinCoreRecord){0, 0, 0, s->records, 2};
        s->cores[1] = (AscendTwinCoreRecord){1, 0, 0, NULL, 0};
        s->result.cores = s->cores;
        s->result.core_count = 2;
        s->result.api_names = api_names;
        s->result.api_count = 2;
        s->result.sites = sites;
        s->result.site_count = 2;
    }
#ifdef FAKE_BAD_LIST
    s->result.cores = NULL;
    s->result.core_count = 1;
#endif
    return &s->result;
}

// y[i] = x[i] + tiling.by, with a workspace that must be one.
static const AscendTwinResult *tiled(const AscendTwinLaunch *launch, State *s)
{
    uint64_t x = pointer(launch, 0), workspace = pointer(launch, 8), tiling = pointer(launch, 16);
    const AscendTwinMemory *data = memory_of(launch, x, 1), *scratch = memory_of(launch, workspace, 1);
    if (!data || !scratch || !memory_of(launch, tiling, 8)) {
        return stopped(s, "bounds", "an argument is not there");
    }
    char text[200];
    snprintf(text, sizeof text, "%s:%u:%llu %s:%u", data->name, data->role, (unsigned long long)data->bytes,
             scratch->name, scratch->role);
    int32_t by;
    memcpy(&by, (const void *)(tiling + 4), 4);
    for (uint64_t i = 0; i < data->bytes / 4; i++) {
        ((int32_t *)x)[i] += by;
    }
    if (by == 99) {
        return stopped(s, "assert", text);
    }
    s->result.instructions = 1;
    return &s->result;
}

static const AscendTwinResult *run(const AscendTwinLaunch *launch)
{
#ifdef FAKE_NULL_RESULT
    return NULL;
#endif
    State *s = calloc(1, sizeof *s);
    live++;
    if (launch->abi != ASCEND_TWIN_ABI) {
        return stopped(s, "launch", "another version");
    }
    switch (launch->kernel) {
    case 0: return add(launch, s);
    case 1: return stopped(s, "deadlock", "no core can go on:\n  AIC 0 waits for flag 3");
    case 2:
        memset(&s->error, 0, sizeof s->error);
        s->error.rule = 12;
        s->result.error = &s->error;
        return &s->result;
    case 3: return tiled(launch, s);
    default: return &s->result;
    }
}

static void free_result(const AscendTwinResult *result)
{
    live--;
    free((void *)result);
}

static const AscendTwinImage image = {
    FAKE_ABI, FAKE_ARCH,
#ifdef FAKE_NULL_KERNELS
    NULL,
#else
    kernels,
#endif
    5, rules, 4,
#ifdef FAKE_NULL_RUN
    NULL,
#else
    run,
#endif
    free_result,
};

#ifdef FAKE_MODULE
__attribute__((visibility("default"))) const char ascend_twin_module[] = FAKE_MODULE;
#endif

// For the tests: how many results the driver still holds.
__attribute__((visibility("default"))) int fake_live(void)
{
    return live;
}

#ifndef FAKE_NO_SYMBOL
__attribute__((visibility("default"))) const AscendTwinImage *ascend_twin_image(void)
{
#ifdef FAKE_NULL_TABLE
    return NULL;
#else
    return &image;
#endif
}
#endif
