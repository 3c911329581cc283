// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of `ascend-rt` that need more than the crate itself. All of them are tests of this crate:
//!
//! * what `ascend-build` generates compiles against the types of the runtime, and both know the same architectures;
//! * the checker of declarations (`xtask/tools/acl_ffi_check.py`) finds mistakes that are planted in a copy of them;
//! * with `ACL_INCLUDE`, that checker on the declarations and the genuine headers that the variable names;
//! * with the feature `check-ffi` and `ACL_INCLUDE`, the same by rustc: bindgen reads the genuine headers into the build
//!   folder, and every function, value, type and layout of `ascend_rt::sys` must be the same as there.
//!
//! What cannot run is listed with its reason in the table of `cargo xtask test`. With `check-ffi` it is a failure,
//! because then somebody asked for it. Where clang lacks its own headers (`stddef.h`), `BINDGEN_EXTRA_CLANG_ARGS` may
//! name a folder of those of another compiler.

#![forbid(unsafe_code)]
