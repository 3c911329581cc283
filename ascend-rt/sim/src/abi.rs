// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C interface of a compiled kernel, `include/twin/abi.h`, in Rust. Names are those of the header without their prefix.

use core::ffi::{c_char, c_void};

/// Version of the interface.
pub const ABI: u32 = 1;

/// Name of the one symbol that an image exports.
pub const IMAGE_SYMBOL: &[u8] = b"ascend_twin_image\0";

/// `AscendTwinChip`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Chip {
    pub name: *const c_char,
    pub arch: u32,
    pub cube_cores: u32,
    pub vector_cores: u32,
    pub ub: u32,
    pub l1: u32,
    pub l0a: u32,
    pub l0b: u32,
    pub l0c: u32,
    pub bt: u32,
    pub fb: u32,
    pub l0a_mx: u32,
    pub l0b_mx: u32,
}

/// `AscendTwinMemory`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Memory {
    pub address: u64,
    pub bytes: u64,
    pub role: u32,
    pub name: *const c_char,
}

/// `AscendTwinMute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Mute {
    pub api: *const c_char,
    pub file: *const c_char,
    pub line: u32,
    pub nth: u32,
}

/// `AscendTwinLaunch`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Launch {
    pub abi: u32,
    pub kernel: u32,
    pub blocks: u32,
    pub mode: u32,
    pub seed: u64,
    pub record: u32,
    pub verbose: u32,
    pub chip: *const Chip,
    pub memory: *const Memory,
    pub memories: usize,
    pub args: *const u8,
    pub args_bytes: usize,
    pub mutes: *const Mute,
    pub mute_count: usize,
    pub print: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>,
    pub user: *mut c_void,
}

/// `AscendTwinSite`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Site {
    pub file: *const c_char,
    pub line: u32,
}

/// `AscendTwinError`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Error {
    pub rule: u32,
    pub rule_name: *const c_char,
    pub message: *const c_char,
    pub api: *const c_char,
    pub tensor: *const c_char,
    pub core: *const c_char,
    pub pipe: *const c_char,
    pub site: Site,
    pub other_api: *const c_char,
    pub other_site: Site,
}

/// `AscendTwinRecord`: one call of one core. 80 bytes; the header says what `a` holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Record {
    pub kind: u8,
    pub pipe: u8,
    pub pipe2: u8,
    pub id: u8,
    pub mode: u8,
    pub dtype: u8,
    pub from: u8,
    pub to: u8,
    pub api: u16,
    pub l2: u8,
    pub pad: u8,
    pub site: u32,
    pub a: [u32; 4],
    pub gm_address: u64,
    pub gm_bytes: u64,
    pub gm_pitch1: u64,
    pub gm_pitch2: u64,
    pub gm_n1: u32,
    pub gm_n2: u32,
    pub gm_write: u8,
    pub pad2: [u8; 7],
}

/// `AscendTwinCoreRecord`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct CoreRecord {
    pub is_cube: u32,
    pub block: u32,
    pub sub_block: u32,
    pub records: *const Record,
    pub count: usize,
}

/// `AscendTwinSync`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Sync {
    pub api: *const c_char,
    pub site: Site,
    pub calls: u64,
}

/// `AscendTwinResult`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Outcome {
    pub error: *const Error,
    pub instructions: u64,
    pub cores: *const CoreRecord,
    pub core_count: usize,
    pub api_names: *const *const c_char,
    pub api_count: usize,
    pub sites: *const Site,
    pub site_count: usize,
    pub syncs: *const Sync,
    pub sync_count: usize,
    pub ub_used: u32,
    pub l1_used: u32,
    pub l0a_used: u32,
    pub l0b_used: u32,
    pub l0c_used: u32,
    pub bt_used: u32,
    pub fb_used: u32,
}

/// `AscendTwinParameter`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Parameter {
    pub offset: u32,
    pub bytes: u32,
    pub is_pointer: u32,
}

/// `AscendTwinKernel`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Kernel {
    pub name: *const c_char,
    pub task: u32,
    pub args_bytes: u32,
    pub parameters: *const Parameter,
    pub parameter_count: usize,
}

/// `AscendTwinImage`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of the header, which says what they mean")]
pub struct Image {
    pub abi: u32,
    pub arch: u32,
    pub kernels: *const Kernel,
    pub kernel_count: usize,
    pub rules: *const *const c_char,
    pub rule_count: usize,
    pub run: unsafe extern "C" fn(*const Launch) -> *const Outcome,
    pub free_result: unsafe extern "C" fn(*const Outcome),
}

/// Type of [`IMAGE_SYMBOL`].
pub type ImageFn = unsafe extern "C" fn() -> *const Image;
