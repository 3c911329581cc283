// SPDX-License-Identifier: MIT OR Apache-2.0

//! AscendCL as it is: types, values, structs and one list of functions, under their own names.
//!
//! Everything here is written by hand from the published interface and checked against it: layouts by constant
//! assertions in every build, and names, arguments, values and layouts against a tree of genuine headers where there is
//! one. The checker reads this file as text; hence its three conventions: each function of `acl_functions!` stands on
//! one line as `fn name(argument: type, ..) -> type;`, each value is written `const NAME: Type = ..;`, and a comment
//! `acl: optional` on the line above marks what older versions lack, `acl: skip` what is no declaration.
//!
//! Numbers and layouts have been the same in all versions since 8.1; what changes is which functions exist. So one table
//! serves all versions, and every entry of it is an `Option`.
//!
//! A C enumeration is a newtype over its integer, never a Rust `enum`: the library may hand back a number that this
//! version does not know.

#![allow(non_camel_case_types, reason = "the names are AscendCL's, to be found by a search for them")]
#![allow(non_snake_case, reason = "the names are AscendCL's, to be found by a search for them")]

use core::ffi::c_char;
use core::ffi::c_void;
use core::fmt;

/// What nearly every function returns: zero, or one of the [codes](self::CODES).
pub type aclError = i32;
/// A context: what streams, events, memory and modules belong to.
pub type aclrtContext = *mut c_void;
/// A queue of tasks. Null is the default stream of the current context.
pub type aclrtStream = *mut c_void;
/// A mark in a stream.
pub type aclrtEvent = *mut c_void;
/// A captured graph ("model running instance").
pub type aclmdlRI = *mut c_void;
/// A group of captured tasks whose arguments can be changed later.
pub type aclrtTaskGrp = *mut c_void;
/// A loaded module.
pub type aclrtBinHandle = *mut c_void;
/// A kernel of a loaded module.
pub type aclrtFuncHandle = *mut c_void;
/// An argument block being built. It belongs to the thread.
pub type aclrtArgsHandle = *mut c_void;
/// One parameter of an argument block.
pub type aclrtParamHandle = *mut c_void;
/// A domain of ranges and marks.
pub type mstxDomainHandle_t = *mut c_void;

/// A function that a stream calls on the host.
// acl: skip
pub type aclrtHostFunc = Option<unsafe extern "C" fn(*mut c_void)>;
/// A function that a stream calls on the host, the older way; also the hook of a graph's destruction.
// acl: skip
pub type aclrtCallback = Option<unsafe extern "C" fn(*mut c_void)>;
/// A function that hears of exceptions on the device.
// acl: skip
pub type aclrtExceptionInfoCallback = Option<unsafe extern "C" fn(*mut aclrtExceptionInfo)>;

/// What happened on the device. Its content is the library's own.
#[repr(C)]
#[derive(Debug)]
pub struct aclrtExceptionInfo {
    _opaque: [u8; 0],
}

/// The configuration of a profiling session. Its content is the library's own.
#[repr(C)]
#[derive(Debug)]
pub struct aclprofConfig {
    _opaque: [u8; 0],
}

/// A list of hardware events to count. Always null here. Its content is the library's own.
#[repr(C)]
#[derive(Debug)]
pub struct aclprofAicoreEvents {
    _opaque: [u8; 0],
}

/// Gives every value of one enumeration its documentation, and the enumeration a `Debug` that knows the names.
macro_rules! values {
    ($type:ident { $($(#[$meta:meta])* pub const $name:ident: $of:ident = $value:expr;)+ }) => {
        $($(#[$meta])* #[doc = concat!("`", stringify!($name), "`")] pub const $name: $of = $value;)+

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $($name => f.write_str(stringify!($name)),)+
                    $type(other) => write!(f, concat!(stringify!($type), "({})"), other),
                }
            }
        }
    };
}

/// The same for flags and codes, which are plain integers.
macro_rules! flags {
    ($(pub const $name:ident: $of:ident = $value:expr;)+) => {
        $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: $of = $value;)+
    };
}

// --- Memory -------------------------------------------------------------------------------------------------------

/// Which pages an allocation takes. Values are not to be combined.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtMemMallocPolicy(pub u32);
values! { aclrtMemMallocPolicy {
    pub const ACL_MEM_MALLOC_HUGE_FIRST: aclrtMemMallocPolicy = aclrtMemMallocPolicy(0);
    pub const ACL_MEM_MALLOC_HUGE_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(1);
    pub const ACL_MEM_MALLOC_NORMAL_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(2);
    pub const ACL_MEM_MALLOC_HUGE_FIRST_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(3);
    pub const ACL_MEM_MALLOC_HUGE_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(4);
    pub const ACL_MEM_MALLOC_NORMAL_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(5);
    // acl: optional
    pub const ACL_MEM_MALLOC_HUGE1G_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(6);
    // acl: optional
    pub const ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(7);
    pub const ACL_MEM_TYPE_LOW_BAND_WIDTH: aclrtMemMallocPolicy = aclrtMemMallocPolicy(0x100);
    pub const ACL_MEM_TYPE_HIGH_BAND_WIDTH: aclrtMemMallocPolicy = aclrtMemMallocPolicy(0x1000);
    // acl: optional
    pub const ACL_MEM_ACCESS_USER_SPACE_READONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(0x100000);
} }

/// The direction of a copy. The library finds it from the pointers; the value is reserved.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtMemcpyKind(pub u32);
values! { aclrtMemcpyKind {
    pub const ACL_MEMCPY_HOST_TO_HOST: aclrtMemcpyKind = aclrtMemcpyKind(0);
    pub const ACL_MEMCPY_HOST_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(1);
    pub const ACL_MEMCPY_DEVICE_TO_HOST: aclrtMemcpyKind = aclrtMemcpyKind(2);
    pub const ACL_MEMCPY_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(3);
    // acl: optional
    pub const ACL_MEMCPY_DEFAULT: aclrtMemcpyKind = aclrtMemcpyKind(4);
    // acl: optional
    pub const ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(5);
    // acl: optional
    pub const ACL_MEMCPY_INNER_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(6);
    // acl: optional
    pub const ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(7);
} }

/// A kind of memory to ask about.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtMemAttr(pub u32);
values! { aclrtMemAttr {
    pub const ACL_DDR_MEM: aclrtMemAttr = aclrtMemAttr(0);
    pub const ACL_HBM_MEM: aclrtMemAttr = aclrtMemAttr(1);
    pub const ACL_DDR_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(2);
    pub const ACL_DDR_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(3);
    pub const ACL_HBM_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(4);
    pub const ACL_HBM_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(5);
    pub const ACL_DDR_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(6);
    pub const ACL_DDR_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(7);
    pub const ACL_HBM_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(8);
    pub const ACL_HBM_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(9);
    // acl: optional
    pub const ACL_HBM_MEM_HUGE1G: aclrtMemAttr = aclrtMemAttr(10);
    // acl: optional
    pub const ACL_HBM_MEM_P2P_HUGE1G: aclrtMemAttr = aclrtMemAttr(11);
} }

/// How existing host memory is made known to the device.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtHostRegisterType(pub u32);
values! { aclrtHostRegisterType {
    pub const ACL_HOST_REGISTER_MAPPED: aclrtHostRegisterType = aclrtHostRegisterType(0);
    // acl: optional
    pub const ACL_HOST_REGISTER_IOMEMORY: aclrtHostRegisterType = aclrtHostRegisterType(4);
    // acl: optional
    pub const ACL_HOST_REGISTER_READONLY: aclrtHostRegisterType = aclrtHostRegisterType(8);
} }

/// Where a pointer points.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtMemLocationType(pub u32);
values! { aclrtMemLocationType {
    pub const ACL_MEM_LOCATION_TYPE_HOST: aclrtMemLocationType = aclrtMemLocationType(0);
    pub const ACL_MEM_LOCATION_TYPE_DEVICE: aclrtMemLocationType = aclrtMemLocationType(1);
    // acl: optional
    pub const ACL_MEM_LOCATION_TYPE_UNREGISTERED: aclrtMemLocationType = aclrtMemLocationType(2);
    // acl: optional
    pub const ACL_MEM_LOCATION_TYPE_MANAGED: aclrtMemLocationType = aclrtMemLocationType(3);
} }

// --- Streams and events -------------------------------------------------------------------------------------------

flags! {
    pub const ACL_STREAM_FAST_LAUNCH: u32 = 0x1;
    pub const ACL_STREAM_FAST_SYNC: u32 = 0x2;
    pub const ACL_STREAM_PERSISTENT: u32 = 0x4;
    pub const ACL_STREAM_HUGE: u32 = 0x8;
    pub const ACL_STREAM_CPU_SCHEDULE: u32 = 0x10;
    // acl: optional
    pub const ACL_STREAM_DEVICE_USE_ONLY: u32 = 0x20;
    pub const ACL_CONTINUE_ON_FAILURE: u64 = 0;
    pub const ACL_STOP_ON_FAILURE: u64 = 1;
    pub const ACL_EVENT_SYNC: u32 = 0x1;
    pub const ACL_EVENT_CAPTURE_STREAM_PROGRESS: u32 = 0x2;
    pub const ACL_EVENT_TIME_LINE: u32 = 0x8;
    // acl: optional
    pub const ACL_EVENT_DEVICE_USE_ONLY: u32 = 0x10;
    // acl: optional
    pub const ACL_EVENT_EXTERNAL: u32 = 0x20;
    // acl: optional
    pub const ACL_EVENT_IPC: u32 = 0x40;
}

/// Whether the tasks of a stream are done.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtStreamStatus(pub u32);
values! { aclrtStreamStatus {
    pub const ACL_STREAM_STATUS_COMPLETE: aclrtStreamStatus = aclrtStreamStatus(0);
    pub const ACL_STREAM_STATUS_NOT_READY: aclrtStreamStatus = aclrtStreamStatus(1);
    pub const ACL_STREAM_STATUS_RESERVED: aclrtStreamStatus = aclrtStreamStatus(0xFFFF);
} }

/// Whether what was recorded before an event is done. The older query function uses the reverse numbers; it is not in
/// the list of functions.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtEventRecordedStatus(pub u32);
values! { aclrtEventRecordedStatus {
    pub const ACL_EVENT_RECORDED_STATUS_NOT_READY: aclrtEventRecordedStatus = aclrtEventRecordedStatus(0);
    pub const ACL_EVENT_RECORDED_STATUS_COMPLETE: aclrtEventRecordedStatus = aclrtEventRecordedStatus(1);
} }

/// A property of a stream that can be set.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtStreamAttr(pub u32);
values! { aclrtStreamAttr {
    // acl: optional
    pub const ACL_STREAM_ATTR_FAILURE_MODE: aclrtStreamAttr = aclrtStreamAttr(1);
    // acl: optional
    pub const ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: aclrtStreamAttr = aclrtStreamAttr(2);
    // acl: optional
    pub const ACL_STREAM_ATTR_USER_CUSTOM_TAG: aclrtStreamAttr = aclrtStreamAttr(3);
    // acl: optional
    pub const ACL_STREAM_ATTR_CACHE_OP_INFO: aclrtStreamAttr = aclrtStreamAttr(4);
    // acl: optional
    pub const ACL_STREAM_ATTR_PRIORITY: aclrtStreamAttr = aclrtStreamAttr(5);
} }

/// Whether an older callback holds its stream back.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtCallbackBlockType(pub u32);
values! { aclrtCallbackBlockType {
    pub const ACL_CALLBACK_NO_BLOCK: aclrtCallbackBlockType = aclrtCallbackBlockType(0);
    pub const ACL_CALLBACK_BLOCK: aclrtCallbackBlockType = aclrtCallbackBlockType(1);
} }

/// Whose last error is asked for.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtLastErrLevel(pub u32);
values! { aclrtLastErrLevel {
    pub const ACL_RT_THREAD_LEVEL: aclrtLastErrLevel = aclrtLastErrLevel(0);
} }

// --- Device facts -------------------------------------------------------------------------------------------------

/// A fact about a device.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtDevAttr(pub u32);
values! { aclrtDevAttr {
    pub const ACL_DEV_ATTR_AICPU_CORE_NUM: aclrtDevAttr = aclrtDevAttr(1);
    pub const ACL_DEV_ATTR_AICORE_CORE_NUM: aclrtDevAttr = aclrtDevAttr(101);
    // acl: optional
    pub const ACL_DEV_ATTR_CUBE_CORE_NUM: aclrtDevAttr = aclrtDevAttr(102);
    pub const ACL_DEV_ATTR_VECTOR_CORE_NUM: aclrtDevAttr = aclrtDevAttr(201);
    // acl: optional
    pub const ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE: aclrtDevAttr = aclrtDevAttr(204);
    // acl: optional
    pub const ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: aclrtDevAttr = aclrtDevAttr(301);
    // acl: optional
    pub const ACL_DEV_ATTR_L2_CACHE_SIZE: aclrtDevAttr = aclrtDevAttr(302);
    // acl: optional
    pub const ACL_DEV_ATTR_PHY_CHIP_ID: aclrtDevAttr = aclrtDevAttr(402);
    // acl: optional
    pub const ACL_DEV_ATTR_IS_VIRTUAL: aclrtDevAttr = aclrtDevAttr(501);
    // acl: optional
    pub const ACL_DEV_ATTR_NPU_ARCH: aclrtDevAttr = aclrtDevAttr(601);
} }

/// A fact about a device, the older way.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclDeviceInfo(pub i32);
values! { aclDeviceInfo {
    pub const ACL_DEVICE_INFO_UNDEFINED: aclDeviceInfo = aclDeviceInfo(-1);
    pub const ACL_DEVICE_INFO_AI_CORE_NUM: aclDeviceInfo = aclDeviceInfo(0);
    pub const ACL_DEVICE_INFO_VECTOR_CORE_NUM: aclDeviceInfo = aclDeviceInfo(1);
    pub const ACL_DEVICE_INFO_L2_SIZE: aclDeviceInfo = aclDeviceInfo(2);
} }

/// A package whose version can be asked for, the older way.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclCANNPackageName(pub u32);
values! { aclCANNPackageName {
    pub const ACL_PKG_NAME_CANN: aclCANNPackageName = aclCANNPackageName(0);
    pub const ACL_PKG_NAME_RUNTIME: aclCANNPackageName = aclCANNPackageName(1);
    pub const ACL_PKG_NAME_COMPILER: aclCANNPackageName = aclCANNPackageName(2);
    pub const ACL_PKG_NAME_HCCL: aclCANNPackageName = aclCANNPackageName(3);
    pub const ACL_PKG_NAME_TOOLKIT: aclCANNPackageName = aclCANNPackageName(4);
    pub const ACL_PKG_NAME_OPP: aclCANNPackageName = aclCANNPackageName(5);
    pub const ACL_PKG_NAME_OPP_KERNEL: aclCANNPackageName = aclCANNPackageName(6);
    pub const ACL_PKG_NAME_DRIVER: aclCANNPackageName = aclCANNPackageName(7);
} }

// --- Kernels ------------------------------------------------------------------------------------------------------

/// A property of one launch.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtLaunchKernelAttrId(pub u32);
values! { aclrtLaunchKernelAttrId {
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(1);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(2);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(3);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(4);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(5);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(6);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(7);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(8);
    // acl: optional
    pub const ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING: aclrtLaunchKernelAttrId = aclrtLaunchKernelAttrId(9);
} }

/// An option of loading a module.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtBinaryLoadOptionType(pub u32);
values! { aclrtBinaryLoadOptionType {
    pub const ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD: aclrtBinaryLoadOptionType = aclrtBinaryLoadOptionType(1);
    // acl: optional
    pub const ACL_RT_BINARY_LOAD_OPT_MAGIC: aclrtBinaryLoadOptionType = aclrtBinaryLoadOptionType(2);
    // acl: optional
    pub const ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE: aclrtBinaryLoadOptionType = aclrtBinaryLoadOptionType(3);
} }

flags! {
    pub const ACL_RT_BINARY_MAGIC_ELF_AICORE: u32 = 0x43554245;
    pub const ACL_RT_BINARY_MAGIC_ELF_VECTOR_CORE: u32 = 0x41415246;
    pub const ACL_RT_BINARY_MAGIC_ELF_CUBE_CORE: u32 = 0x41494343;
}

/// A fact about a kernel.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclrtFuncAttribute(pub u32);
values! { aclrtFuncAttribute {
    // acl: optional
    pub const ACL_FUNC_ATTR_KERNEL_TYPE: aclrtFuncAttribute = aclrtFuncAttribute(1);
    // acl: optional
    pub const ACL_FUNC_ATTR_KERNEL_RATIO: aclrtFuncAttribute = aclrtFuncAttribute(2);
    // acl: optional
    pub const ACL_FUNC_ATTR_KERNEL_SCHED_MODE: aclrtFuncAttribute = aclrtFuncAttribute(3);
} }

// --- Graphs -------------------------------------------------------------------------------------------------------

/// Which calls a capture forbids, and to whom.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclmdlRICaptureMode(pub u32);
values! { aclmdlRICaptureMode {
    pub const ACL_MODEL_RI_CAPTURE_MODE_GLOBAL: aclmdlRICaptureMode = aclmdlRICaptureMode(0);
    pub const ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL: aclmdlRICaptureMode = aclmdlRICaptureMode(1);
    pub const ACL_MODEL_RI_CAPTURE_MODE_RELAXED: aclmdlRICaptureMode = aclmdlRICaptureMode(2);
} }

/// Whether a stream is being captured.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclmdlRICaptureStatus(pub u32);
values! { aclmdlRICaptureStatus {
    pub const ACL_MODEL_RI_CAPTURE_STATUS_NONE: aclmdlRICaptureStatus = aclmdlRICaptureStatus(0);
    pub const ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE: aclmdlRICaptureStatus = aclmdlRICaptureStatus(1);
    pub const ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED: aclmdlRICaptureStatus = aclmdlRICaptureStatus(2);
} }

// --- Profiling ----------------------------------------------------------------------------------------------------

/// Which counters of the cores are read.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclprofAicoreMetrics(pub u32);
values! { aclprofAicoreMetrics {
    pub const ACL_AICORE_ARITHMETIC_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(0);
    pub const ACL_AICORE_PIPE_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(1);
    pub const ACL_AICORE_MEMORY_BANDWIDTH: aclprofAicoreMetrics = aclprofAicoreMetrics(2);
    pub const ACL_AICORE_L0B_AND_WIDTH: aclprofAicoreMetrics = aclprofAicoreMetrics(3);
    pub const ACL_AICORE_RESOURCE_CONFLICT_RATIO: aclprofAicoreMetrics = aclprofAicoreMetrics(4);
    pub const ACL_AICORE_MEMORY_UB: aclprofAicoreMetrics = aclprofAicoreMetrics(5);
    pub const ACL_AICORE_L2_CACHE: aclprofAicoreMetrics = aclprofAicoreMetrics(6);
    pub const ACL_AICORE_PIPE_EXECUTE_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(7);
    pub const ACL_AICORE_MEMORY_ACCESS: aclprofAicoreMetrics = aclprofAicoreMetrics(8);
    pub const ACL_AICORE_NONE: aclprofAicoreMetrics = aclprofAicoreMetrics(0xFF);
} }

/// A setting of the profiler that is a string.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct aclprofConfigType(pub u32);
values! { aclprofConfigType {
    pub const ACL_PROF_STORAGE_LIMIT: aclprofConfigType = aclprofConfigType(1);
    pub const ACL_PROF_SYS_HARDWARE_MEM_FREQ: aclprofConfigType = aclprofConfigType(3);
    pub const ACL_PROF_LLC_MODE: aclprofConfigType = aclprofConfigType(4);
    pub const ACL_PROF_SYS_IO_FREQ: aclprofConfigType = aclprofConfigType(5);
    pub const ACL_PROF_SYS_INTERCONNECTION_FREQ: aclprofConfigType = aclprofConfigType(6);
    pub const ACL_PROF_DVPP_FREQ: aclprofConfigType = aclprofConfigType(7);
    pub const ACL_PROF_HOST_SYS: aclprofConfigType = aclprofConfigType(8);
    pub const ACL_PROF_HOST_SYS_USAGE: aclprofConfigType = aclprofConfigType(9);
    pub const ACL_PROF_HOST_SYS_USAGE_FREQ: aclprofConfigType = aclprofConfigType(10);
} }

flags! {
    pub const ACL_PROF_ACL_API: u64 = 0x1;
    pub const ACL_PROF_TASK_TIME: u64 = 0x2;
    pub const ACL_PROF_AICORE_METRICS: u64 = 0x4;
    pub const ACL_PROF_AICPU: u64 = 0x8;
    pub const ACL_PROF_L2CACHE: u64 = 0x10;
    pub const ACL_PROF_HCCL_TRACE: u64 = 0x20;
    pub const ACL_PROF_TRAINING_TRACE: u64 = 0x40;
    pub const ACL_PROF_MSPROFTX: u64 = 0x80;
    pub const ACL_PROF_RUNTIME_API: u64 = 0x100;
    pub const ACL_PROF_TASK_TIME_L0: u64 = 0x800;
    pub const ACL_PROF_TASK_MEMORY: u64 = 0x1000;
    // acl: optional
    pub const ACL_PROF_OP_ATTR: u64 = 0x4000;
}

// --- Structs ------------------------------------------------------------------------------------------------------

/// Asserts size, alignment and the offset of each field, in every build for a 64-bit target.
macro_rules! layout {
    ($type:ident { size: $size:literal, align: $align:literal $(, $field:ident @ $offset:literal)* }) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = {
            assert!(size_of::<$type>() == $size, concat!("size of ", stringify!($type)));
            assert!(align_of::<$type>() == $align, concat!("alignment of ", stringify!($type)));
            $(assert!(
                core::mem::offset_of!($type, $field) == $offset,
                concat!("offset of ", stringify!($type), ".", stringify!($field))
            );)*
        };
    };
}

/// A time limit of two halves.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtTimeoutUs {
    /// The low half, in microseconds.
    pub timeoutLow: u32,
    /// The high half.
    pub timeoutHigh: u32,
}
layout! { aclrtTimeoutUs { size: 8, align: 4, timeoutLow @ 0, timeoutHigh @ 4 } }

/// The value of one property of a launch. Which arm holds is said by the id beside it.
#[repr(C)]
#[derive(Clone, Copy)]
pub union aclrtLaunchKernelAttrValue {
    /// Of `SCHEM_MODE`.
    pub schemMode: u8,
    /// Of `DYN_UBUF_SIZE`.
    pub dynUBufSize: u32,
    /// Of `BLOCKDIM_OFFSET`.
    pub blockDimOffset: u32,
    /// Of `DATA_DUMP`.
    pub isDataDump: u8,
    /// Of `TIMEOUT`, in seconds.
    pub timeout: u16,
    /// Of `TIMEOUT_US`.
    pub timeoutUs: aclrtTimeoutUs,
    /// Everything, which keeps the size.
    pub rsv: [u32; 4],
}
layout! { aclrtLaunchKernelAttrValue { size: 16, align: 4 } }

/// One property of a launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct aclrtLaunchKernelAttr {
    /// Which property.
    pub id: aclrtLaunchKernelAttrId,
    /// Its value.
    pub value: aclrtLaunchKernelAttrValue,
}
layout! { aclrtLaunchKernelAttr { size: 20, align: 4, id @ 0, value @ 4 } }

/// The properties of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtLaunchKernelCfg {
    /// The first of them.
    pub attrs: *mut aclrtLaunchKernelAttr,
    /// How many there are.
    pub numAttrs: usize,
}
layout! { aclrtLaunchKernelCfg { size: 16, align: 8, attrs @ 0, numAttrs @ 8 } }

/// The value of one option of loading a module. Which arm holds is said by the type beside it.
#[repr(C)]
#[derive(Clone, Copy)]
pub union aclrtBinaryLoadOptionValue {
    /// Of `LAZY_LOAD`.
    pub isLazyLoad: u32,
    /// Of `MAGIC`.
    pub magic: u32,
    /// Everything, which keeps the size.
    pub rsv: [u32; 4],
}
layout! { aclrtBinaryLoadOptionValue { size: 16, align: 4 } }

/// One option of loading a module.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct aclrtBinaryLoadOption {
    /// Which option.
    pub r#type: aclrtBinaryLoadOptionType,
    /// Its value.
    pub value: aclrtBinaryLoadOptionValue,
}
layout! { aclrtBinaryLoadOption { size: 20, align: 4, value @ 4 } }

/// The options of loading a module.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtBinaryLoadOptions {
    /// The first of them.
    pub options: *mut aclrtBinaryLoadOption,
    /// How many there are.
    pub numOpt: usize,
}
layout! { aclrtBinaryLoadOptions { size: 16, align: 8, options @ 0, numOpt @ 8 } }

/// Where a raw argument block holds the address of data that follows in the same block.
// acl: optional
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtPlaceHolderInfo {
    /// Offset of the address.
    pub addrOffset: u32,
    /// Offset of the data.
    pub dataOffset: u32,
}
layout! { aclrtPlaceHolderInfo { size: 8, align: 4, addrOffset @ 0, dataOffset @ 4 } }

/// Where memory lies.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtMemLocation {
    /// The device.
    pub id: u32,
    /// Device or host.
    pub r#type: aclrtMemLocationType,
}
layout! { aclrtMemLocation { size: 8, align: 4, id @ 0 } }

/// What is known of a pointer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtPtrAttributes {
    /// Where it points.
    pub location: aclrtMemLocation,
    /// The size of its pages.
    pub pageSize: u32,
    /// Keeps the size.
    pub rsv: [u32; 4],
}
layout! { aclrtPtrAttributes { size: 28, align: 4, location @ 0, pageSize @ 8, rsv @ 12 } }

/// The value of a property of a stream.
// acl: optional
#[repr(C)]
#[derive(Clone, Copy)]
pub union aclrtStreamAttrValue {
    /// Of `FAILURE_MODE`.
    pub failureMode: u64,
    /// Of `FLOAT_OVERFLOW_CHECK`.
    pub overflowSwitch: u32,
    /// Of `USER_CUSTOM_TAG`.
    pub userCustomTag: u32,
    /// Of `PRIORITY`.
    pub streamPriority: u32,
    /// Everything, which keeps the size.
    pub reserve: [u32; 4],
}
layout! { aclrtStreamAttrValue { size: 16, align: 8 } }

/// The version of a package, as text, the older way.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclCANNPackageVersion {
    /// All of it.
    pub version: [c_char; 128],
    /// First number.
    pub majorVersion: [c_char; 64],
    /// Second number.
    pub minorVersion: [c_char; 64],
    /// Third number.
    pub releaseVersion: [c_char; 64],
    /// Fourth number.
    pub patchVersion: [c_char; 64],
    /// Keeps the size.
    pub reserved: [c_char; 128],
}
layout! { aclCANNPackageVersion {
    size: 512, align: 1,
    version @ 0, majorVersion @ 128, minorVersion @ 192, releaseVersion @ 256, patchVersion @ 320, reserved @ 384
} }

macro_rules! debug_union {
    ($($type:ident),*) => {
        $(impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Which arm holds is known only by the id beside the union.
                f.write_str(stringify!($type))
            }
        })*
    };
}
debug_union!(aclrtLaunchKernelAttrValue, aclrtBinaryLoadOptionValue, aclrtStreamAttrValue);

impl fmt::Debug for aclrtLaunchKernelAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("aclrtLaunchKernelAttr").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for aclrtBinaryLoadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("aclrtBinaryLoadOption").field("type", &self.r#type).finish_non_exhaustive()
    }
}

// --- Codes --------------------------------------------------------------------------------------------------------

/// Gives the codes their documentation, and the list of them.
macro_rules! codes {
    ($(pub const $name:ident: $of:ident = $value:expr;)+) => {
        $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: $of = $value;)+

        /// Every code with its name, in ascending order.
        pub static CODES: &[(aclError, &str)] = &[$(($value, stringify!($name)),)+];
    };
}

codes! {
    pub const ACL_SUCCESS: aclError = 0;
    pub const ACL_ERROR_INVALID_PARAM: aclError = 100000;
    pub const ACL_ERROR_UNINITIALIZE: aclError = 100001;
    pub const ACL_ERROR_REPEAT_INITIALIZE: aclError = 100002;
    pub const ACL_ERROR_INVALID_FILE: aclError = 100003;
    pub const ACL_ERROR_WRITE_FILE: aclError = 100004;
    pub const ACL_ERROR_INVALID_FILE_SIZE: aclError = 100005;
    pub const ACL_ERROR_PARSE_FILE: aclError = 100006;
    pub const ACL_ERROR_FILE_MISSING_ATTR: aclError = 100007;
    pub const ACL_ERROR_FILE_ATTR_INVALID: aclError = 100008;
    pub const ACL_ERROR_INVALID_DUMP_CONFIG: aclError = 100009;
    pub const ACL_ERROR_INVALID_PROFILING_CONFIG: aclError = 100010;
    pub const ACL_ERROR_INVALID_MODEL_ID: aclError = 100011;
    pub const ACL_ERROR_DESERIALIZE_MODEL: aclError = 100012;
    pub const ACL_ERROR_PARSE_MODEL: aclError = 100013;
    pub const ACL_ERROR_READ_MODEL_FAILURE: aclError = 100014;
    pub const ACL_ERROR_MODEL_SIZE_INVALID: aclError = 100015;
    pub const ACL_ERROR_MODEL_MISSING_ATTR: aclError = 100016;
    pub const ACL_ERROR_MODEL_INPUT_NOT_MATCH: aclError = 100017;
    pub const ACL_ERROR_MODEL_OUTPUT_NOT_MATCH: aclError = 100018;
    pub const ACL_ERROR_MODEL_NOT_DYNAMIC: aclError = 100019;
    pub const ACL_ERROR_OP_TYPE_NOT_MATCH: aclError = 100020;
    pub const ACL_ERROR_OP_INPUT_NOT_MATCH: aclError = 100021;
    pub const ACL_ERROR_OP_OUTPUT_NOT_MATCH: aclError = 100022;
    pub const ACL_ERROR_OP_ATTR_NOT_MATCH: aclError = 100023;
    pub const ACL_ERROR_OP_NOT_FOUND: aclError = 100024;
    pub const ACL_ERROR_OP_LOAD_FAILED: aclError = 100025;
    pub const ACL_ERROR_UNSUPPORTED_DATA_TYPE: aclError = 100026;
    pub const ACL_ERROR_FORMAT_NOT_MATCH: aclError = 100027;
    pub const ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED: aclError = 100028;
    pub const ACL_ERROR_KERNEL_NOT_FOUND: aclError = 100029;
    pub const ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED: aclError = 100030;
    pub const ACL_ERROR_KERNEL_ALREADY_REGISTERED: aclError = 100031;
    pub const ACL_ERROR_INVALID_QUEUE_ID: aclError = 100032;
    pub const ACL_ERROR_REPEAT_SUBSCRIBE: aclError = 100033;
    pub const ACL_ERROR_STREAM_NOT_SUBSCRIBE: aclError = 100034;
    pub const ACL_ERROR_THREAD_NOT_SUBSCRIBE: aclError = 100035;
    pub const ACL_ERROR_WAIT_CALLBACK_TIMEOUT: aclError = 100036;
    pub const ACL_ERROR_REPEAT_FINALIZE: aclError = 100037;
    pub const ACL_ERROR_NOT_STATIC_AIPP: aclError = 100038;
    pub const ACL_ERROR_COMPILING_STUB_MODE: aclError = 100039;
    pub const ACL_ERROR_GROUP_NOT_SET: aclError = 100040;
    pub const ACL_ERROR_GROUP_NOT_CREATE: aclError = 100041;
    pub const ACL_ERROR_PROF_ALREADY_RUN: aclError = 100042;
    pub const ACL_ERROR_PROF_NOT_RUN: aclError = 100043;
    pub const ACL_ERROR_DUMP_ALREADY_RUN: aclError = 100044;
    pub const ACL_ERROR_DUMP_NOT_RUN: aclError = 100045;
    pub const ACL_ERROR_RT_PARAM_INVALID: aclError = 107000;
    pub const ACL_ERROR_RT_INVALID_DEVICEID: aclError = 107001;
    pub const ACL_ERROR_RT_CONTEXT_NULL: aclError = 107002;
    pub const ACL_ERROR_RT_STREAM_CONTEXT: aclError = 107003;
    pub const ACL_ERROR_RT_MODEL_CONTEXT: aclError = 107004;
    pub const ACL_ERROR_RT_STREAM_MODEL: aclError = 107005;
    pub const ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID: aclError = 107006;
    pub const ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL: aclError = 107007;
    pub const ACL_ERROR_RT_ADDR_UNALIGNED: aclError = 107008;
    pub const ACL_ERROR_RT_FILE_OPEN: aclError = 107009;
    pub const ACL_ERROR_RT_FILE_WRITE: aclError = 107010;
    pub const ACL_ERROR_RT_STREAM_SUBSCRIBE: aclError = 107011;
    pub const ACL_ERROR_RT_THREAD_SUBSCRIBE: aclError = 107012;
    pub const ACL_ERROR_RT_GROUP_NOT_SET: aclError = 107013;
    pub const ACL_ERROR_RT_GROUP_NOT_CREATE: aclError = 107014;
    pub const ACL_ERROR_RT_STREAM_NO_CB_REG: aclError = 107015;
    pub const ACL_ERROR_RT_INVALID_MEMORY_TYPE: aclError = 107016;
    pub const ACL_ERROR_RT_INVALID_HANDLE: aclError = 107017;
    pub const ACL_ERROR_RT_INVALID_MALLOC_TYPE: aclError = 107018;
    pub const ACL_ERROR_RT_WAIT_TIMEOUT: aclError = 107019;
    pub const ACL_ERROR_RT_TASK_TIMEOUT: aclError = 107020;
    pub const ACL_ERROR_RT_SYSPARAMOPT_NOT_SET: aclError = 107021;
    pub const ACL_ERROR_RT_DEVICE_TASK_ABORT: aclError = 107022;
    pub const ACL_ERROR_RT_STREAM_ABORT: aclError = 107023;
    pub const ACL_ERROR_RT_CAPTURE_DEPENDENCY: aclError = 107024;
    pub const ACL_ERROR_RT_STREAM_UNJOINED: aclError = 107025;
    pub const ACL_ERROR_RT_MODEL_CAPTURED: aclError = 107026;
    pub const ACL_ERROR_RT_STREAM_CAPTURED: aclError = 107027;
    pub const ACL_ERROR_RT_EVENT_CAPTURED: aclError = 107028;
    pub const ACL_ERROR_RT_STREAM_NOT_CAPTURED: aclError = 107029;
    pub const ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT: aclError = 107030;
    pub const ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT: aclError = 107031;
    pub const ACL_ERROR_STREAM_CAPTURE_CONFLICT: aclError = 107032;
    pub const ACL_ERROR_STREAM_TASK_GROUP_STATUS: aclError = 107033;
    pub const ACL_ERROR_STREAM_TASK_GROUP_INTR: aclError = 107034;
    // acl: optional
    pub const ACL_ERROR_RT_TASK_ABORT_STOP: aclError = 107035;
    // acl: optional
    pub const ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED: aclError = 107036;
    // acl: optional
    pub const ACL_ERROR_RT_MODEL_RUNNING: aclError = 107037;
    // acl: optional
    pub const ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD: aclError = 107038;
    // acl: optional
    pub const ACL_ERROR_RT_INSUFFICIENT_INPUT_ARRAY: aclError = 107039;
    // acl: optional
    pub const ACL_ERROR_RT_MODEL_UPDATE_FAILED: aclError = 107040;
    // acl: optional
    pub const ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC: aclError = 107041;
    // acl: optional
    pub const ACL_ERROR_RT_SYMBOL_NOT_FOUND: aclError = 107042;
    // acl: optional
    pub const ACL_ERROR_RT_INVALID_SYMBOL: aclError = 107043;
    // acl: optional
    pub const ACL_ERROR_RT_INVALID_DEVICE_FUNCTION: aclError = 107044;
    // acl: optional
    pub const ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING: aclError = 107045;
    pub const ACL_ERROR_PROF_REPEAT_SUBSCRIBE: aclError = 148046;
    pub const ACL_ERROR_PROF_API_CONFLICT: aclError = 148047;
    pub const ACL_ERROR_INVALID_MAX_OPQUEUE_NUM_CONFIG: aclError = 148048;
    pub const ACL_ERROR_INVALID_OPP_PATH: aclError = 148049;
    pub const ACL_ERROR_OP_UNSUPPORTED_DYNAMIC: aclError = 148050;
    pub const ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED: aclError = 148051;
    pub const ACL_ERROR_UNSUPPORTED_JPEG: aclError = 148052;
    pub const ACL_ERROR_INVALID_BUNDLE_MODEL_ID: aclError = 148053;
    pub const ACL_ERROR_BAD_ALLOC: aclError = 200000;
    pub const ACL_ERROR_API_NOT_SUPPORT: aclError = 200001;
    pub const ACL_ERROR_INVALID_DEVICE: aclError = 200002;
    pub const ACL_ERROR_MEMORY_ADDRESS_UNALIGNED: aclError = 200003;
    pub const ACL_ERROR_RESOURCE_NOT_MATCH: aclError = 200004;
    pub const ACL_ERROR_INVALID_RESOURCE_HANDLE: aclError = 200005;
    pub const ACL_ERROR_FEATURE_UNSUPPORTED: aclError = 200006;
    pub const ACL_ERROR_PROF_MODULES_UNSUPPORTED: aclError = 200007;
    pub const ACL_ERROR_RT_FEATURE_NOT_SUPPORT: aclError = 207000;
    pub const ACL_ERROR_RT_MEMORY_ALLOCATION: aclError = 207001;
    pub const ACL_ERROR_RT_MEMORY_FREE: aclError = 207002;
    pub const ACL_ERROR_RT_AICORE_OVER_FLOW: aclError = 207003;
    pub const ACL_ERROR_RT_NO_DEVICE: aclError = 207004;
    pub const ACL_ERROR_RT_RESOURCE_ALLOC_FAIL: aclError = 207005;
    pub const ACL_ERROR_RT_NO_PERMISSION: aclError = 207006;
    pub const ACL_ERROR_RT_NO_EVENT_RESOURCE: aclError = 207007;
    pub const ACL_ERROR_RT_NO_STREAM_RESOURCE: aclError = 207008;
    pub const ACL_ERROR_RT_NO_NOTIFY_RESOURCE: aclError = 207009;
    pub const ACL_ERROR_RT_NO_MODEL_RESOURCE: aclError = 207010;
    pub const ACL_ERROR_RT_NO_CDQ_RESOURCE: aclError = 207011;
    pub const ACL_ERROR_RT_OVER_LIMIT: aclError = 207012;
    pub const ACL_ERROR_RT_QUEUE_EMPTY: aclError = 207013;
    pub const ACL_ERROR_RT_QUEUE_FULL: aclError = 207014;
    pub const ACL_ERROR_RT_REPEATED_INIT: aclError = 207015;
    pub const ACL_ERROR_RT_AIVEC_OVER_FLOW: aclError = 207016;
    pub const ACL_ERROR_RT_OVER_FLOW: aclError = 207017;
    pub const ACL_ERROR_RT_DEVICE_OOM: aclError = 207018;
    // acl: optional
    pub const ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP: aclError = 207019;
    // acl: optional
    pub const ACL_ERROR_RT_TIMEOUT: aclError = 207020;
    // acl: optional
    pub const ACL_ERROR_RT_LINK_TYPE_NOT_SUPPORTED: aclError = 207021;
    pub const ACL_ERROR_STORAGE_OVER_LIMIT: aclError = 300000;
    pub const ACL_ERROR_INTERNAL_ERROR: aclError = 500000;
    pub const ACL_ERROR_FAILURE: aclError = 500001;
    pub const ACL_ERROR_GE_FAILURE: aclError = 500002;
    pub const ACL_ERROR_RT_FAILURE: aclError = 500003;
    pub const ACL_ERROR_DRV_FAILURE: aclError = 500004;
    pub const ACL_ERROR_PROFILING_FAILURE: aclError = 500005;
    pub const ACL_ERROR_RT_INTERNAL_ERROR: aclError = 507000;
    pub const ACL_ERROR_RT_TS_ERROR: aclError = 507001;
    pub const ACL_ERROR_RT_STREAM_TASK_FULL: aclError = 507002;
    pub const ACL_ERROR_RT_STREAM_TASK_EMPTY: aclError = 507003;
    pub const ACL_ERROR_RT_STREAM_NOT_COMPLETE: aclError = 507004;
    pub const ACL_ERROR_RT_END_OF_SEQUENCE: aclError = 507005;
    pub const ACL_ERROR_RT_EVENT_NOT_COMPLETE: aclError = 507006;
    pub const ACL_ERROR_RT_CONTEXT_RELEASE_ERROR: aclError = 507007;
    pub const ACL_ERROR_RT_SOC_VERSION: aclError = 507008;
    pub const ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT: aclError = 507009;
    pub const ACL_ERROR_RT_LOST_HEARTBEAT: aclError = 507010;
    pub const ACL_ERROR_RT_MODEL_EXECUTE: aclError = 507011;
    pub const ACL_ERROR_RT_REPORT_TIMEOUT: aclError = 507012;
    pub const ACL_ERROR_RT_SYS_DMA: aclError = 507013;
    pub const ACL_ERROR_RT_AICORE_TIMEOUT: aclError = 507014;
    pub const ACL_ERROR_RT_AICORE_EXCEPTION: aclError = 507015;
    pub const ACL_ERROR_RT_AICORE_TRAP_EXCEPTION: aclError = 507016;
    pub const ACL_ERROR_RT_AICPU_TIMEOUT: aclError = 507017;
    pub const ACL_ERROR_RT_AICPU_EXCEPTION: aclError = 507018;
    pub const ACL_ERROR_RT_AICPU_DATADUMP_RSP_ERR: aclError = 507019;
    pub const ACL_ERROR_RT_AICPU_MODEL_RSP_ERR: aclError = 507020;
    pub const ACL_ERROR_RT_PROFILING_ERROR: aclError = 507021;
    pub const ACL_ERROR_RT_IPC_ERROR: aclError = 507022;
    pub const ACL_ERROR_RT_MODEL_ABORT_NORMAL: aclError = 507023;
    pub const ACL_ERROR_RT_KERNEL_UNREGISTERING: aclError = 507024;
    pub const ACL_ERROR_RT_RINGBUFFER_NOT_INIT: aclError = 507025;
    pub const ACL_ERROR_RT_RINGBUFFER_NO_DATA: aclError = 507026;
    pub const ACL_ERROR_RT_KERNEL_LOOKUP: aclError = 507027;
    pub const ACL_ERROR_RT_KERNEL_DUPLICATE: aclError = 507028;
    pub const ACL_ERROR_RT_DEBUG_REGISTER_FAIL: aclError = 507029;
    pub const ACL_ERROR_RT_DEBUG_UNREGISTER_FAIL: aclError = 507030;
    pub const ACL_ERROR_RT_LABEL_CONTEXT: aclError = 507031;
    pub const ACL_ERROR_RT_PROGRAM_USE_OUT: aclError = 507032;
    pub const ACL_ERROR_RT_DEV_SETUP_ERROR: aclError = 507033;
    pub const ACL_ERROR_RT_VECTOR_CORE_TIMEOUT: aclError = 507034;
    pub const ACL_ERROR_RT_VECTOR_CORE_EXCEPTION: aclError = 507035;
    pub const ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION: aclError = 507036;
    pub const ACL_ERROR_RT_CDQ_BATCH_ABNORMAL: aclError = 507037;
    pub const ACL_ERROR_RT_DIE_MODE_CHANGE_ERROR: aclError = 507038;
    pub const ACL_ERROR_RT_DIE_SET_ERROR: aclError = 507039;
    pub const ACL_ERROR_RT_INVALID_DIEID: aclError = 507040;
    pub const ACL_ERROR_RT_DIE_MODE_NOT_SET: aclError = 507041;
    pub const ACL_ERROR_RT_AICORE_TRAP_READ_OVERFLOW: aclError = 507042;
    pub const ACL_ERROR_RT_AICORE_TRAP_WRITE_OVERFLOW: aclError = 507043;
    pub const ACL_ERROR_RT_VECTOR_CORE_TRAP_READ_OVERFLOW: aclError = 507044;
    pub const ACL_ERROR_RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW: aclError = 507045;
    pub const ACL_ERROR_RT_STREAM_SYNC_TIMEOUT: aclError = 507046;
    pub const ACL_ERROR_RT_EVENT_SYNC_TIMEOUT: aclError = 507047;
    pub const ACL_ERROR_RT_FFTS_PLUS_TIMEOUT: aclError = 507048;
    pub const ACL_ERROR_RT_FFTS_PLUS_EXCEPTION: aclError = 507049;
    pub const ACL_ERROR_RT_FFTS_PLUS_TRAP_EXCEPTION: aclError = 507050;
    pub const ACL_ERROR_RT_SEND_MSG: aclError = 507051;
    pub const ACL_ERROR_RT_COPY_DATA: aclError = 507052;
    pub const ACL_ERROR_RT_DEVICE_MEM_ERROR: aclError = 507053;
    pub const ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR: aclError = 507054;
    // acl: optional
    pub const ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR: aclError = 507055;
    // acl: optional
    pub const ACL_ERROR_RT_LINK_ERROR: aclError = 507056;
    // acl: optional
    pub const ACL_ERROR_RT_SUSPECT_REMOTE_ERROR: aclError = 507057;
    pub const ACL_ERROR_RT_DRV_INTERNAL_ERROR: aclError = 507899;
    pub const ACL_ERROR_RT_AICPU_INTERNAL_ERROR: aclError = 507900;
    pub const ACL_ERROR_RT_SOCKET_CLOSE: aclError = 507901;
    pub const ACL_ERROR_RT_AICPU_INFO_LOAD_RSP_ERR: aclError = 507902;
    pub const ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED: aclError = 507903;
    // acl: optional
    pub const ACL_ERROR_RT_COMM_OP_RETRY_FAIL: aclError = 507904;
    // acl: optional
    pub const ACL_ERROR_SNAPSHOT_LOCK_TIMEOUT: aclError = 507905;
    // acl: optional
    pub const ACL_ERROR_SNAPSHOT_LOCK_FAILED: aclError = 507906;
    // acl: optional
    pub const ACL_ERROR_SNAPSHOT_UNLOCK_FAILED: aclError = 507907;
    // acl: optional
    pub const ACL_ERROR_SNAPSHOT_BACKUP_FAILED: aclError = 507908;
    // acl: optional
    pub const ACL_ERROR_SNAPSHOT_RESTORE_FAILED: aclError = 507909;
    // acl: optional
    pub const ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED: aclError = 507910;
    // acl: optional
    pub const ACL_ERROR_HOST_MEMORY_NOT_REGISTERED: aclError = 507911;
    // acl: optional
    pub const ACL_ERROR_SNAPSHOT_CALLBACK_FAILED: aclError = 507912;
    // acl: optional
    pub const ACL_ERROR_SNAPSHOT_REGISTER_CALLBACK_FAILED: aclError = 507913;
    // acl: optional
    pub const ACL_ERROR_RT_L3_PORT_ERROR: aclError = 507914;
    // acl: optional
    pub const ACL_ERROR_RT_CCU_TIMEOUT: aclError = 507915;
    // acl: optional
    pub const ACL_ERROR_RT_CCU_EXCEPTION: aclError = 507916;
}

// --- Functions ----------------------------------------------------------------------------------------------------

/// Hands the list of all functions to the macro `$then`.
///
/// The list has one block per library: the name of the table's type, the name of its accessor, and the functions.
/// `required` functions must be there for the library to be of use; `optional` ones came later, or are needed by few.
/// Argument types are names of this module, so that a checker can expand the list where these names are the genuine
/// ones.
#[doc(hidden)]
#[macro_export]
macro_rules! acl_functions {
    ($then:ident) => {
        $then! {
            /// The functions of `libascendcl.so`.
            table AclTable acl {
                /// Initialises the library. The configuration may be null. A second call says 100002.
                required fn aclInit(config_path: *const c_char) -> aclError;
                /// Drops everything, whatever the count of initialisations. Not called by this crate.
                required fn aclFinalize() -> aclError;
                /// Drops one initialisation, and everything with the last.
                // acl: optional
                optional fn aclFinalizeReference(count: *mut u64) -> aclError;
                /// The last message of this thread, or null. Clears it; the text is good until the next call.
                required fn aclGetRecentErrMsg() -> *const c_char;
                /// The last code of this thread. Clears it.
                optional fn aclrtGetLastError(level: aclrtLastErrLevel) -> aclError;
                /// The last code of this thread.
                optional fn aclrtPeekAtLastError(level: aclrtLastErrLevel) -> aclError;
                /// The name of the chip of device 0, or null.
                required fn aclrtGetSocName() -> *const c_char;
                /// The version of a package: major * 10^7 + minor * 10^5 + patch * 10^3.
                // acl: optional
                optional fn aclsysGetVersionNum(package: *mut c_char, version: *mut i32) -> aclError;
                /// The version of a package as text.
                optional fn aclsysGetCANNVersion(package: aclCANNPackageName, version: *mut aclCANNPackageVersion) -> aclError;

                /// The number of devices this process may use.
                required fn aclrtGetDeviceCount(count: *mut u32) -> aclError;
                /// Makes the primary context of a device the current one of this thread. Counted.
                required fn aclrtSetDevice(device: i32) -> aclError;
                /// Undoes one `aclrtSetDevice`; the last one destroys the primary context.
                required fn aclrtResetDevice(device: i32) -> aclError;
                /// Destroys the primary context at once. Not called by this crate.
                optional fn aclrtResetDeviceForce(device: i32) -> aclError;
                /// The device of the current context.
                required fn aclrtGetDevice(device: *mut i32) -> aclError;
                /// One fact about a device.
                // acl: optional
                optional fn aclrtGetDeviceInfo(device: u32, attribute: aclrtDevAttr, value: *mut i64) -> aclError;
                /// One fact about a device, the older way.
                optional fn aclGetDeviceCapability(device: u32, info: aclDeviceInfo, value: *mut i64) -> aclError;
                /// Free and total memory of the device of the current context.
                required fn aclrtGetMemInfo(attribute: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError;
                /// Makes a context, and makes it the current one of this thread.
                required fn aclrtCreateContext(context: *mut aclrtContext, device: i32) -> aclError;
                /// Destroys a context made by `aclrtCreateContext`.
                required fn aclrtDestroyContext(context: aclrtContext) -> aclError;
                /// Makes a context, and its device, the current ones of this thread.
                required fn aclrtSetCurrentContext(context: aclrtContext) -> aclError;
                /// The current context of this thread.
                required fn aclrtGetCurrentContext(context: *mut aclrtContext) -> aclError;
                /// Waits for all streams of the current context.
                required fn aclrtSynchronizeDevice() -> aclError;
                /// The same with a limit in milliseconds; -1 is none.
                optional fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> aclError;
                /// Whether one device reaches the memory of another.
                optional fn aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> aclError;
                /// Lets the current device reach the memory of another.
                optional fn aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) -> aclError;

                /// Makes a stream in the current context. The priority is reserved and zero.
                required fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, priority: u32, flag: u32) -> aclError;
                /// Waits for the tasks of a stream and destroys it.
                required fn aclrtDestroyStream(stream: aclrtStream) -> aclError;
                /// Discards the tasks of a stream and destroys it.
                required fn aclrtDestroyStreamForce(stream: aclrtStream) -> aclError;
                /// Waits for the tasks of a stream, and returns their first error.
                required fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError;
                /// The same with a limit in milliseconds; -1 is none, 0 is refused.
                required fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32) -> aclError;
                /// Whether the tasks of a stream are done.
                required fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError;
                /// Lets a stream wait for an event.
                required fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError;
                /// The same with a limit in seconds; 0 is none.
                // acl: optional
                optional fn aclrtStreamWaitEventWithTimeout(stream: aclrtStream, event: aclrtEvent, timeout: i32) -> aclError;
                /// Says whether a stream goes on after a failed task. Once per stream; spreads over its context.
                required fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> aclError;
                /// Stops a stream. Those who wait for it get 107023.
                optional fn aclrtStreamAbort(stream: aclrtStream) -> aclError;
                /// The number of a stream in profiles and exception records.
                optional fn aclrtStreamGetId(stream: aclrtStream, id: *mut i32) -> aclError;
                /// How many more streams the device has.
                // acl: optional
                optional fn aclrtGetStreamAvailableNum(count: *mut u32) -> aclError;
                /// Sets a property of a stream.
                // acl: optional
                optional fn aclrtSetStreamAttribute(stream: aclrtStream, attribute: aclrtStreamAttr, value: *mut aclrtStreamAttrValue) -> aclError;
                /// The time limit of every kernel of the process, in microseconds; gives back the rounded one.
                // acl: optional
                optional fn aclrtSetOpExecuteTimeOutV2(timeout: u64, actual: *mut u64) -> aclError;

                /// Makes an event that can be recorded again and again.
                required fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
                /// Makes an event from the pool of ids.
                optional fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
                /// Destroys an event. What waits for it is not disturbed.
                required fn aclrtDestroyEvent(event: aclrtEvent) -> aclError;
                /// Puts an event into a stream of the same context.
                required fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
                /// Whether an event is done.
                required fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError;
                /// Waits for an event.
                required fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError;
                /// The same with a limit in milliseconds; -1 is none.
                required fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, timeout: i32) -> aclError;
                /// The milliseconds between two events with time stamps.
                required fn aclrtEventElapsedTime(ms: *mut f32, start: aclrtEvent, end: aclrtEvent) -> aclError;

                /// Allocates device memory.
                required fn aclrtMalloc(pointer: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
                /// Frees device memory at once, whoever still uses it.
                required fn aclrtFree(pointer: *mut c_void) -> aclError;
                /// Waits for the device, then frees.
                // acl: optional
                optional fn aclrtFreeWithDevSync(pointer: *mut c_void) -> aclError;
                /// Allocates pinned host memory.
                required fn aclrtMallocHost(pointer: *mut *mut c_void, size: usize) -> aclError;
                /// Frees pinned host memory.
                required fn aclrtFreeHost(pointer: *mut c_void) -> aclError;
                /// Pins host memory that exists.
                optional fn aclrtHostRegister(pointer: *mut c_void, size: u64, kind: aclrtHostRegisterType, device_pointer: *mut *mut c_void) -> aclError;
                /// Undoes `aclrtHostRegister`.
                optional fn aclrtHostUnregister(pointer: *mut c_void) -> aclError;
                /// What is known of a pointer.
                optional fn aclrtPointerGetAttributes(pointer: *const c_void, attributes: *mut aclrtPtrAttributes) -> aclError;
                /// Copies, and returns when it is done. Waits for no stream.
                required fn aclrtMemcpy(destination: *mut c_void, room: usize, source: *const c_void, count: usize, kind: aclrtMemcpyKind) -> aclError;
                /// Copies in a stream; from or to host memory that is not pinned, after a hidden wait.
                required fn aclrtMemcpyAsync(destination: *mut c_void, room: usize, source: *const c_void, count: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;
                /// Fills with a byte, and returns when it is done.
                required fn aclrtMemset(pointer: *mut c_void, room: usize, value: i32, count: usize) -> aclError;
                /// Fills with a byte in a stream.
                required fn aclrtMemsetAsync(pointer: *mut c_void, room: usize, value: i32, count: usize, stream: aclrtStream) -> aclError;
                /// Copies rows with pitches in a stream.
                optional fn aclrtMemcpy2dAsync(destination: *mut c_void, destination_pitch: usize, source: *const c_void, source_pitch: usize, width: usize, height: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;

                /// Loads a module from a file, for the device of the current context.
                required fn aclrtBinaryLoadFromFile(path: *const c_char, options: *mut aclrtBinaryLoadOptions, module: *mut aclrtBinHandle) -> aclError;
                /// Loads a module from memory.
                // acl: optional
                optional fn aclrtBinaryLoadFromData(data: *const c_void, length: usize, options: *const aclrtBinaryLoadOptions, module: *mut aclrtBinHandle) -> aclError;
                /// Unloads a module, under the context that loaded it.
                required fn aclrtBinaryUnLoad(module: aclrtBinHandle) -> aclError;
                /// A kernel of a module, by its plain name.
                required fn aclrtBinaryGetFunction(module: aclrtBinHandle, name: *const c_char, function: *mut aclrtFuncHandle) -> aclError;
                /// One fact about a kernel.
                // acl: optional
                optional fn aclrtGetFunctionAttribute(function: aclrtFuncHandle, attribute: aclrtFuncAttribute, value: *mut i64) -> aclError;
                /// The address of the counters by which cores wait for each other.
                // acl: optional
                optional fn aclrtGetHardwareSyncAddr(address: *mut *mut c_void) -> aclError;
                /// Whether a module for a chip runs here.
                // acl: optional
                optional fn aclrtCheckArchCompatibility(soc: *const c_char, can: *mut i32) -> aclError;
                /// Begins an argument block. The handle is the thread's, and the next call reuses it.
                required fn aclrtKernelArgsInit(function: aclrtFuncHandle, args: *mut aclrtArgsHandle) -> aclError;
                /// Appends a parameter by copying it.
                required fn aclrtKernelArgsAppend(args: aclrtArgsHandle, parameter: *mut c_void, size: usize, handle: *mut aclrtParamHandle) -> aclError;
                /// Appends the address of side data that comes with the block.
                required fn aclrtKernelArgsAppendPlaceHolder(args: aclrtArgsHandle, handle: *mut aclrtParamHandle) -> aclError;
                /// The host memory for the side data. Nothing may be appended afterwards.
                required fn aclrtKernelArgsGetPlaceHolderBuffer(args: aclrtArgsHandle, handle: aclrtParamHandle, size: usize, buffer: *mut *mut c_void) -> aclError;
                /// Rewrites one appended parameter.
                optional fn aclrtKernelArgsParaUpdate(args: aclrtArgsHandle, handle: aclrtParamHandle, parameter: *mut c_void, size: usize) -> aclError;
                /// Ends an argument block.
                required fn aclrtKernelArgsFinalize(args: aclrtArgsHandle) -> aclError;
                /// The size of a caller-owned handle.
                optional fn aclrtKernelArgsGetHandleMemSize(function: aclrtFuncHandle, size: *mut usize) -> aclError;
                /// The size of a caller-owned block.
                optional fn aclrtKernelArgsGetMemSize(function: aclrtFuncHandle, user_size: usize, size: *mut usize) -> aclError;
                /// Begins an argument block in memory of the caller.
                optional fn aclrtKernelArgsInitByUserMem(function: aclrtFuncHandle, args: aclrtArgsHandle, memory: *mut c_void, size: usize) -> aclError;
                /// Launches a kernel.
                required fn aclrtLaunchKernelWithConfig(function: aclrtFuncHandle, blocks: u32, stream: aclrtStream, config: *mut aclrtLaunchKernelCfg, args: aclrtArgsHandle, reserve: *mut c_void) -> aclError;
                /// Launches a kernel with a block made by the caller.
                // acl: optional
                optional fn aclrtLaunchKernelWithHostArgs(function: aclrtFuncHandle, blocks: u32, stream: aclrtStream, config: *mut aclrtLaunchKernelCfg, args: *mut c_void, size: usize, holders: *mut aclrtPlaceHolderInfo, holder_count: usize) -> aclError;

                /// Calls a function on the host, in the order of the stream.
                // acl: optional
                optional fn aclrtLaunchHostFunc(stream: aclrtStream, function: aclrtHostFunc, args: *mut c_void) -> aclError;
                /// The same, the older way.
                optional fn aclrtLaunchCallback(function: aclrtCallback, args: *mut c_void, block: aclrtCallbackBlockType, stream: aclrtStream) -> aclError;
                /// Says which thread runs the callbacks of a stream.
                optional fn aclrtSubscribeReport(thread: u64, stream: aclrtStream) -> aclError;
                /// Runs callbacks in this thread, with a limit in milliseconds.
                optional fn aclrtProcessReport(timeout: i32) -> aclError;
                /// Undoes `aclrtSubscribeReport`.
                optional fn aclrtUnSubscribeReport(thread: u64, stream: aclrtStream) -> aclError;
                /// Says who hears of exceptions on the device.
                optional fn aclrtSetExceptionInfoCallback(callback: aclrtExceptionInfoCallback) -> aclError;

                /// Begins to capture a stream.
                required fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError;
                /// Whether a stream is being captured, and into what.
                required fn aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus, graph: *mut aclmdlRI) -> aclError;
                /// Ends a capture.
                required fn aclmdlRICaptureEnd(stream: aclrtStream, graph: *mut aclmdlRI) -> aclError;
                /// Swaps the capture mode of this thread with the given one.
                required fn aclmdlRICaptureThreadExchangeMode(mode: *mut aclmdlRICaptureMode) -> aclError;
                /// Replays a graph in a stream.
                required fn aclmdlRIExecuteAsync(graph: aclmdlRI, stream: aclrtStream) -> aclError;
                /// Destroys a graph. Waits up to ten seconds for one that runs.
                required fn aclmdlRIDestroy(graph: aclmdlRI) -> aclError;
                /// Begins a group of tasks whose arguments can be changed later.
                optional fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> aclError;
                /// Ends such a group.
                optional fn aclmdlRICaptureTaskGrpEnd(stream: aclrtStream, group: *mut aclrtTaskGrp) -> aclError;
                /// Begins to submit a group again with other arguments.
                optional fn aclmdlRICaptureTaskUpdateBegin(stream: aclrtStream, group: aclrtTaskGrp) -> aclError;
                /// Ends that.
                optional fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> aclError;
                /// Writes a graph to a file.
                // acl: optional
                optional fn aclmdlRIDebugJsonPrint(graph: aclmdlRI, path: *const c_char, flags: u32) -> aclError;
                /// Says what is called when a graph is destroyed.
                // acl: optional
                optional fn aclmdlRIDestroyRegisterCallback(graph: aclmdlRI, function: aclrtCallback, args: *mut c_void) -> aclError;
            }

            /// The functions of `libmsprofiler.so`.
            table ProfTable prof {
                /// Begins profiling into a directory.
                required fn aclprofInit(path: *const c_char, length: usize) -> aclError;
                /// Makes the configuration of a session; null when it is wrong.
                required fn aclprofCreateConfig(devices: *mut u32, device_count: u32, metrics: aclprofAicoreMetrics, events: *const aclprofAicoreEvents, mask: u64) -> *mut aclprofConfig;
                /// Sets something that is a string, before the start.
                optional fn aclprofSetConfig(kind: aclprofConfigType, value: *const c_char, length: usize) -> aclError;
                /// Starts a session.
                required fn aclprofStart(config: *const aclprofConfig) -> aclError;
                /// Stops a session.
                required fn aclprofStop(config: *const aclprofConfig) -> aclError;
                /// Frees a configuration.
                required fn aclprofDestroyConfig(config: *const aclprofConfig) -> aclError;
                /// Ends profiling.
                required fn aclprofFinalize() -> aclError;
                /// Makes a stamp; null when no session runs.
                optional fn aclprofCreateStamp() -> *mut c_void;
                /// Gives a stamp its text.
                optional fn aclprofSetStampTraceMessage(stamp: *mut c_void, message: *const c_char, length: u32) -> aclError;
                /// Begins a range in this thread.
                optional fn aclprofPush(stamp: *mut c_void) -> aclError;
                /// Ends the last range of this thread.
                optional fn aclprofPop() -> aclError;
                /// Begins a range that any thread may end.
                optional fn aclprofRangeStart(stamp: *mut c_void, range: *mut u32) -> aclError;
                /// Ends a range.
                optional fn aclprofRangeStop(range: u32) -> aclError;
                /// Frees a stamp.
                optional fn aclprofDestroyStamp(stamp: *mut c_void);
                /// Puts a mark into a stream.
                optional fn aclprofMarkEx(message: *const c_char, length: usize, stream: aclrtStream) -> aclError;
            }

            /// The functions of `libms_tools_ext.so`.
            table TxTable tx {
                /// Makes a domain.
                // acl: optional
                required fn mstxDomainCreateA(name: *const c_char) -> mstxDomainHandle_t;
                /// Destroys a domain.
                // acl: optional
                optional fn mstxDomainDestroy(domain: mstxDomainHandle_t);
                /// Puts a mark into a stream, or into the host's time line when the stream is null.
                // acl: optional
                required fn mstxDomainMarkA(domain: mstxDomainHandle_t, message: *const c_char, stream: aclrtStream);
                /// Begins a range; zero when nothing records.
                // acl: optional
                required fn mstxDomainRangeStartA(domain: mstxDomainHandle_t, message: *const c_char, stream: aclrtStream) -> u64;
                /// Ends a range.
                // acl: optional
                required fn mstxDomainRangeEnd(domain: mstxDomainHandle_t, range: u64);
                /// The same as the above in the default domain.
                // acl: optional
                optional fn mstxMarkA(message: *const c_char, stream: aclrtStream);
                /// The same as the above in the default domain.
                // acl: optional
                optional fn mstxRangeStartA(message: *const c_char, stream: aclrtStream) -> u64;
                /// The same as the above in the default domain.
                // acl: optional
                optional fn mstxRangeEnd(range: u64);
            }
        }
    };
}

macro_rules! tables {
    ($($(#[$table_meta:meta])* table $table:ident $accessor:ident {
        $($(#[$meta:meta])* $need:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {
        $(
            $(#[$table_meta])*
            ///
            /// Each is there or not; [`Need`](crate::raw::Need) says which must be.
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $table {
                $($(#[$meta])* pub $name: Option<unsafe extern "C" fn($($type),*) $(-> $result)?>,)*
            }
        )*
    };
}
crate::acl_functions!(tables);
