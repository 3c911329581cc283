// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The C interface between a kernel that was compiled for the twin and whoever runs it. A compiled kernel is a shared
// object with one exported function, `ascend_twin_image`. Mirrored in Rust by `src/abi.rs`; a test compares both.

#ifndef ASCEND_TWIN_ABI_H
#define ASCEND_TWIN_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASCEND_TWIN_ABI 1u

/* Which cores a block of the kernel takes. */
enum AscendTwinTask {
    ASCEND_TWIN_AIV_ONLY = 0, /* one vector core */
    ASCEND_TWIN_AIC_ONLY = 1, /* one cube core */
    ASCEND_TWIN_MIX_AIV_1_0 = 2, /* one vector core, cross-core synchronisation allowed */
    ASCEND_TWIN_MIX_AIC_1_0 = 3, /* one cube core, cross-core synchronisation allowed */
    ASCEND_TWIN_MIX_1_1 = 4, /* one cube core and one vector core */
    ASCEND_TWIN_MIX_1_2 = 5 /* one cube core and two vector cores */
};

/* What of a chip decides whether a kernel runs. Bytes; times are not the library's business. */
typedef struct AscendTwinChip {
    const char *name;
    uint32_t arch; /* 2201 or 3510 */
    uint32_t cube_cores;
    uint32_t vector_cores;
    uint32_t ub; /* usable by the kernel's buffers */
    uint32_t l1; /* usable */
    uint32_t l0a;
    uint32_t l0b;
    uint32_t l0c;
    uint32_t bt;
    uint32_t fb;
    uint32_t l0a_mx; /* 0 where there is none */
    uint32_t l0b_mx;
} AscendTwinChip;

enum AscendTwinMode {
    ASCEND_TWIN_FAST = 0, /* program order */
    ASCEND_TWIN_CHAOS = 1, /* any order that flags and barriers allow, drawn from the seed */
    /* Program order; only the record is made. Of the data there is only what the scalar unit may decide by: it reads GM, and
       copies of 32-bit and 64-bit whole numbers from GM to UB are carried out. Other GM need not exist. */
    ASCEND_TWIN_DRY = 2
};

enum AscendTwinRole {
    ASCEND_TWIN_BUFFER = 0, /* undefined bytes at the end of the launch are an error */
    ASCEND_TWIN_WORKSPACE = 1, /* undefined before the launch, of no interest after it */
    ASCEND_TWIN_ABSENT = 2 /* in dry mode only: addresses without memory; a read of the scalar unit there is an error */
};

/* Device memory that the launch may touch. Other addresses are out of bounds. */
typedef struct AscendTwinMemory {
    uint64_t address; /* host address of the first byte: what the kernel gets as GM_ADDR */
    uint64_t bytes;
    uint32_t role; /* AscendTwinRole */
    const char *name; /* of the parameter, for reports; may be null */
} AscendTwinMemory;

/* A synchronising call to leave out: all calls of `api` at this place of the source, or only the `nth` one of each core
   (counted from 1; 0 means all). For tests that a missing synchronisation is found. */
typedef struct AscendTwinMute {
    const char *api; /* "SetFlag", "EnQue", ... ; null: any */
    const char *file; /* end of the path */
    uint32_t line;
    uint32_t nth;
} AscendTwinMute;

typedef struct AscendTwinLaunch {
    uint32_t abi; /* ASCEND_TWIN_ABI */
    uint32_t kernel; /* index into the image's kernels */
    uint32_t blocks;
    uint32_t mode; /* AscendTwinMode */
    uint64_t seed;
    uint32_t record; /* not 0: keep the record of all instructions */
    uint32_t verbose; /* not 0: print every instruction as it runs */
    const AscendTwinChip *chip;
    const AscendTwinMemory *memory;
    size_t memories;
    const uint8_t *args; /* the argument block: the parameters as members of a C struct, addresses already host addresses */
    size_t args_bytes;
    const AscendTwinMute *mutes;
    size_t mute_count;
    void (*print)(void *user, const char *text, size_t bytes); /* printf and DumpTensor; null: standard output */
    void *user;
} AscendTwinLaunch;

/* A place in the kernel's source. */
typedef struct AscendTwinSite {
    const char *file;
    uint32_t line;
} AscendTwinSite;

/* Why a launch was stopped. */
typedef struct AscendTwinError {
    uint32_t rule; /* index into ascend_twin_rules */
    const char *rule_name; /* "hazard-raw", ... */
    const char *message; /* one sentence, with all that follows in words */
    const char *api; /* of the instruction; may be null */
    const char *tensor; /* name of the operand; may be null */
    const char *core; /* "AIC 3", "AIV 7" */
    const char *pipe; /* "MTE2" */
    AscendTwinSite site;
    const char *other_api; /* the other instruction of a hazard; may be null */
    AscendTwinSite other_site;
} AscendTwinError;

/* Kinds of records. */
enum AscendTwinRecordKind {
    ASCEND_TWIN_INSTRUCTION = 0,
    ASCEND_TWIN_SET_FLAG = 1, /* pipe sets, pipe2 waits, id */
    ASCEND_TWIN_WAIT_FLAG = 2, /* pipe set, pipe2 waits, id */
    ASCEND_TWIN_BARRIER = 3, /* of pipe; 0xff: of all */
    ASCEND_TWIN_CROSS_SET = 4, /* pipe, mode, id */
    ASCEND_TWIN_CROSS_WAIT = 5, /* pipe, mode, id */
    ASCEND_TWIN_SYNC_ALL = 6, /* mode 0: vector cores, 1: all cores */
    ASCEND_TWIN_SCALAR = 7 /* work of the scalar unit: a[0] = kind (AscendTwinScalar), a[1] = bytes or count */
};

enum AscendTwinScalar {
    ASCEND_TWIN_LOCAL_READ = 0, /* GetValue of on-chip memory */
    ASCEND_TWIN_LOCAL_WRITE = 1,
    ASCEND_TWIN_GM_HIT = 2, /* GetValue / SetValue of GM, line in the data cache */
    ASCEND_TWIN_GM_MISS = 3,
    ASCEND_TWIN_CACHE_CLEAN = 4,
    ASCEND_TWIN_CALL = 5 /* a call that has no instruction of its own; a[1] = cycles or 0 */
};

/* One call of one core, in program order. 80 bytes.
   What `a` holds, by family of the instruction:
     vector      a[0] repeats (256 B each), a[1] bytes of one element (of the wider side), a[2] elements in all, a[3] free to the call
     Mmad        a[0] m, a[1] n, a[2] k, a[3] 1: bias, 2: unitFlag set
     copies      a[0] bursts, a[1] bytes of a burst (local side), a[2] bytes in all, a[3] free
     LoadData    a[0] fractals of 512 B, a[1] 1: transposed, a[2] bytes in all, a[3] bytes of scales (MX)
     Fixpipe     a[0] m, a[1] n, a[2] bytes of one element that is written, a[3] 1: dual destination
   `dtype` is AscendTwinType of the operands that decide the rate. */
typedef struct AscendTwinRecord {
    uint8_t kind;
    uint8_t pipe; /* AscendTwinPipe */
    uint8_t pipe2; /* flags */
    uint8_t id; /* flags */
    uint8_t mode; /* cross-core flags */
    uint8_t dtype;
    uint8_t from; /* AscendTwinMem, copies and loads */
    uint8_t to;
    uint16_t api; /* index into the names */
    uint8_t l2; /* 0 normal, 1 the L2 cache is bypassed */
    uint8_t pad;
    uint32_t site; /* index into the sites */
    uint32_t a[4];
    /* The bytes of GM that it moves: n2 times n1 bursts. All 0 where it moves none. Negative pitches do not occur. */
    uint64_t gm_address;
    uint64_t gm_bytes; /* of one burst */
    uint64_t gm_pitch1;
    uint64_t gm_pitch2;
    uint32_t gm_n1;
    uint32_t gm_n2;
    uint8_t gm_write; /* 0 read, 1 write, 2 atomic */
    uint8_t pad2[7];
} AscendTwinRecord;

enum AscendTwinPipe {
    ASCEND_TWIN_S = 0,
    ASCEND_TWIN_V = 1,
    ASCEND_TWIN_M = 2,
    ASCEND_TWIN_MTE1 = 3,
    ASCEND_TWIN_MTE2 = 4,
    ASCEND_TWIN_MTE3 = 5,
    ASCEND_TWIN_FIX = 6,
    ASCEND_TWIN_ALL_PIPES = 255
};

enum AscendTwinMem {
    ASCEND_TWIN_GM = 0,
    ASCEND_TWIN_L1 = 1,
    ASCEND_TWIN_L0A = 2,
    ASCEND_TWIN_L0B = 3,
    ASCEND_TWIN_L0C = 4,
    ASCEND_TWIN_UB = 5,
    ASCEND_TWIN_BT = 6,
    ASCEND_TWIN_FB = 7,
    ASCEND_TWIN_L0A_MX = 8,
    ASCEND_TWIN_L0B_MX = 9
};

enum AscendTwinType {
    ASCEND_TWIN_NONE = 0,
    ASCEND_TWIN_F32 = 1,
    ASCEND_TWIN_F16 = 2,
    ASCEND_TWIN_BF16 = 3,
    ASCEND_TWIN_E4M3 = 4,
    ASCEND_TWIN_E5M2 = 5,
    ASCEND_TWIN_HIF8 = 6,
    ASCEND_TWIN_E2M1 = 7,
    ASCEND_TWIN_E1M2 = 8,
    ASCEND_TWIN_E8M0 = 9,
    ASCEND_TWIN_I4 = 10,
    ASCEND_TWIN_I8 = 11,
    ASCEND_TWIN_U8 = 12,
    ASCEND_TWIN_I16 = 13,
    ASCEND_TWIN_U16 = 14,
    ASCEND_TWIN_I32 = 15,
    ASCEND_TWIN_U32 = 16,
    ASCEND_TWIN_I64 = 17,
    ASCEND_TWIN_U64 = 18,
    ASCEND_TWIN_MX_E4M3 = 19, /* MmadMx */
    ASCEND_TWIN_MX_E5M2 = 20,
    ASCEND_TWIN_MX_E2M1 = 21,
    ASCEND_TWIN_MX_E1M2 = 22
};

/* The record of one core. */
typedef struct AscendTwinCoreRecord {
    uint32_t is_cube;
    uint32_t block; /* group of cores: index of the launched block */
    uint32_t sub_block; /* 0 or 1 on vector cores */
    const AscendTwinRecord *records;
    size_t count;
} AscendTwinCoreRecord;

/* A place where a synchronising call was made, for mutant tests. */
typedef struct AscendTwinSync {
    const char *api;
    AscendTwinSite site;
    uint64_t calls;
} AscendTwinSync;

/* What came of a launch; owned by the library until ascend_twin_free. Pointers live as long. */
typedef struct AscendTwinResult {
    const AscendTwinError *error; /* null: it ran to its end */
    uint64_t instructions; /* executed */
    const AscendTwinCoreRecord *cores;
    size_t core_count;
    const char *const *api_names;
    size_t api_count;
    const AscendTwinSite *sites;
    size_t site_count;
    const AscendTwinSync *syncs;
    size_t sync_count;
    uint32_t ub_used; /* highest byte that a tensor reached, over all cores */
    uint32_t l1_used;
    uint32_t l0a_used;
    uint32_t l0b_used;
    uint32_t l0c_used;
    uint32_t bt_used;
    uint32_t fb_used;
} AscendTwinResult;

typedef struct AscendTwinParameter {
    uint32_t offset; /* in the argument block */
    uint32_t bytes;
    uint32_t is_pointer;
} AscendTwinParameter;

typedef struct AscendTwinKernel {
    const char *name;
    uint32_t task; /* AscendTwinTask that it was built for */
    uint32_t args_bytes;
    const AscendTwinParameter *parameters;
    size_t parameter_count;
} AscendTwinKernel;

typedef struct AscendTwinImage {
    uint32_t abi;
    uint32_t arch;
    const AscendTwinKernel *kernels;
    size_t kernel_count;
    const char *const *rules; /* names of all rules */
    size_t rule_count;
    const AscendTwinResult *(*run)(const AscendTwinLaunch *launch); /* never null; one launch per thread at a time */
    void (*free_result)(const AscendTwinResult *result);
} AscendTwinImage;

/* The one exported symbol. */
const AscendTwinImage *ascend_twin_image(void);

#ifdef __cplusplus
}
#endif

#endif
