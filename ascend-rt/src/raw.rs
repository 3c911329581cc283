// SPDX-License-Identifier: MIT OR Apache-2.0

//! The line between the safe layer and a backend: one call of AscendCL is one method.
//!
//! The line lies this low so that everything above it (binding, order of destruction, error classes, capture, pool) is
//! the same code on a card and on the emulator. The price is an indirect call per operation.

use crate::acl::LoadError;
use crate::sys::*;
use core::ffi::{c_char, c_void};
use core::fmt;

/// What a call returns that the backend does not have. No code of AscendCL is negative.
pub const NOT_AVAILABLE: aclError = i32::MIN;

/// Which library a call is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// `libascendcl.so`, or `libacl_rt.so` beside it.
    AscendCl,
    /// `libmsprofiler.so`.
    Profiler,
    /// `libms_tools_ext.so`.
    ToolsExtension,
}

impl Library {
    /// The file name.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::AscendCl => "libascendcl.so",
            Self::Profiler => "libmsprofiler.so",
            Self::ToolsExtension => "libms_tools_ext.so",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file())
    }
}

/// Whether a library is of use without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// The library is refused without it.
    Required,
    /// It came later than 8.1, or few need it.
    Optional,
}

/// What a method answers when the backend does not have the call.
pub(crate) trait Missing {
    /// The answer.
    fn missing() -> Self;
}

impl Missing for aclError {
    fn missing() -> Self {
        NOT_AVAILABLE
    }
}

impl<T> Missing for *const T {
    fn missing() -> Self {
        core::ptr::null()
    }
}

impl<T> Missing for *mut T {
    fn missing() -> Self {
        core::ptr::null_mut()
    }
}

impl Missing for u64 {
    fn missing() -> Self {
        0
    }
}

impl Missing for () {
    fn missing() -> Self {}
}

macro_rules! library {
    (acl) => {
        Library::AscendCl
    };
    (prof) => {
        Library::Profiler
    };
    (tx) => {
        Library::ToolsExtension
    };
}

macro_rules! need {
    (required) => {
        Need::Required
    };
    (optional) => {
        Need::Optional
    };
}

macro_rules! calls {
    ($($(#[$table_meta:meta])* table $table:ident $accessor:ident {
        $($(#[$meta:meta])* $need:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {
        /// A function of AscendCL, by its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types, reason = "the names are AscendCL's")]
        #[non_exhaustive]
        pub enum Call {
            $($($(#[$meta])* $name,)*)*
        }

        impl Call {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$name,)*)*];

            /// The name, as the library exports it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$name => stringify!($name),)*)*
                }
            }

            /// The library that exports it.
            #[must_use]
            pub const fn library(self) -> Library {
                match self {
                    $($(Self::$name => library!($accessor),)*)*
                }
            }

            /// Whether the library is refused without it.
            #[must_use]
            pub const fn need(self) -> Need {
                match self {
                    $($(Self::$name => need!($need),)*)*
                }
            }
        }
    };
}
crate::acl_functions!(calls);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! raw_trait {
    ($($(#[$table_meta:meta])* table $table:ident $accessor:ident {
        $($(#[$meta:meta])* $need:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {
        /// A backend: the functions of AscendCL under their own names.
        ///
        /// # Safety of the methods
        ///
        /// Each is `unsafe` with the contract of the function of its name, and no more: a pointer is valid for what the
        /// function reads or writes through it, memory that a queued task uses stays until the task is done, and a
        /// handle is one that the same backend gave out. (The emulator finds a stale or foreign handle and answers with
        /// a code; the library need not.)
        ///
        /// # Contract of an implementation
        ///
        /// No method panics or unwinds. What the backend does not have, [`has`](Self::has) says, and the method answers
        /// [`NOT_AVAILABLE`], null or zero: that is the default of every method.
        #[allow(non_snake_case, reason = "the names are AscendCL's")]
        #[allow(clippy::missing_safety_doc, reason = "the contract of all methods is in the documentation of the trait")]
        #[allow(clippy::too_many_arguments, reason = "the arguments are AscendCL's")]
        pub trait Raw: Send + Sync + fmt::Debug {
            /// Whether the backend has a call.
            fn has(&self, call: Call) -> bool;

            /// Opens a library that is only opened when it is needed. Without it, [`has`](Self::has) is false for the
            /// calls of that library.
            ///
            /// # Errors
            ///
            /// The library cannot be opened.
            fn load(&self, library: Library) -> Result<(), LoadError> {
                let _ = library;
                Ok(())
            }

            $($(
                $(#[$meta])*
                unsafe fn $name(&self $(, $arg: $type)*) $(-> $result)? {
                    let _ = ($($arg,)*);
                    Missing::missing()
                }
            )*)*
        }
    };
}
crate::acl_functions!(raw_trait);
