// SPDX-License-Identifier: MIT OR Apache-2.0

//! The backend on a card: AscendCL's libraries, opened at run time.
//!
//! The three libraries are opened separately. `libascendcl.so` is needed; the profiler and the tools extension are
//! opened when they are first of use, and their absence is a reason in [`Audit`](crate::Audit), not an error.
//! None of them is ever closed: they have threads and exit handlers of their own.

mod load;

use crate::raw::{Call, Library, Missing, Need, Raw};
use crate::sys::*;
use core::ffi::{c_char, c_void};
use core::fmt;
use load::Opened;
use once_cell::sync::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use load::{LoadError, LoadReason};

/// AscendCL's functions behind the trait of a backend.
pub struct AclRaw {
    /// The table, and where it came from.
    acl: (AclTable, Opened),
    prof: OnceCell<(ProfTable, Opened)>,
    tx: OnceCell<(TxTable, Opened)>,
    /// Why a library could not be opened when it was last tried.
    refused: Mutex<Vec<(Library, LoadError)>>,
    initialised: OnceCell<()>,
}

macro_rules! read_tables {
    ($($(#[$table_meta:meta])* table $table:ident $accessor:ident {
        $($(#[$meta:meta])* $need:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {
        $(
            impl $table {
                /// Looks all functions up in a library. Those that it needs and lacks are the error.
                fn read(opened: &Opened) -> Result<Self, Vec<Call>> {
                    let mut lacking = Vec::new();
                    // SAFETY: the name is that of a function of AscendCL, whose type in every version is the one that
                    // the list gives it (the checker of declarations compares them with the genuine headers).
                    let table = Self { $($name: unsafe { opened.symbol(concat!(stringify!($name), "\0")) },)* };
                    $(
                        if table.$name.is_none() && Call::$name.need() == Need::Required {
                            lacking.push(Call::$name);
                        }
                    )*
                    if lacking.is_empty() { Ok(table) } else { Err(lacking) }
                }

                /// Whether a function of this library is there.
                fn has(&self, call: Call) -> bool {
                    match call {
                        $(Call::$name => self.$name.is_some(),)*
                        _ => false,
                    }
                }
            }
        )*
    };
}
crate::acl_functions!(read_tables);

impl AclRaw {
    /// The libraries of this machine, opened at the first call that succeeds and then the same for all.
    ///
    /// The search goes: `ASCEND_RT_LIB`, the folders of `LD_LIBRARY_PATH`, the system's own search, `lib64` under
    /// `ASCEND_HOME_PATH` and `ASCEND_TOOLKIT_HOME`, and the folders in which CANN is installed by default.
    ///
    /// # Errors
    ///
    /// Every place that was tried, with the reason.
    pub fn shared() -> Result<Arc<Self>, LoadError> {
        static SHARED: OnceCell<Arc<AclRaw>> = OnceCell::new();
        SHARED.get_or_try_init(|| Self::from_opened(load::search(Library::AscendCl, None)).map(Arc::new)).cloned()
    }

    /// The library in one file.
    ///
    /// # Errors
    ///
    /// The file is a stub for linking, a folder, no library, does not open, or lacks functions.
    pub fn open(path: &Path) -> Result<Arc<Self>, LoadError> {
        Self::from_opened(load::file(path)).map(Arc::new)
    }

    fn from_opened(opened: Result<Opened, LoadError>) -> Result<Self, LoadError> {
        let opened = opened?;
        let table = AclTable::read(&opened).map_err(|calls| LoadError::lacking(&opened, calls))?;
        Ok(Self {
            acl: (table, opened),
            prof: OnceCell::new(),
            tx: OnceCell::new(),
            refused: Mutex::new(Vec::new()),
            initialised: OnceCell::new(),
        })
    }

    /// Initialises AscendCL once.
    pub(crate) fn initialise(&self) -> Result<(), aclError> {
        self.initialised
            .get_or_try_init(|| {
                // SAFETY: a null configuration is allowed.
                match unsafe { self.aclInit(core::ptr::null()) } {
                    ACL_SUCCESS | ACL_ERROR_REPEAT_INITIALIZE => Ok(()),
                    code => Err(code),
                }
            })
            .copied()
    }

    /// The file of a library, if it is open.
    #[must_use]
    pub fn path(&self, library: Library) -> Option<PathBuf> {
        match library {
            Library::AscendCl => Some(&self.acl.1),
            Library::Profiler => self.prof.get().map(|(_, opened)| opened),
            Library::ToolsExtension => self.tx.get().map(|(_, opened)| opened),
        }
        .map(|opened| opened.path.clone())
    }

    /// Why a library is not open, if it was tried.
    #[must_use]
    pub fn refused(&self, library: Library) -> Option<LoadError> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().find(|(which, _)| *which == library).map(|(_, error)| error.clone())
    }

    fn acl(&self) -> Option<&AclTable> {
        Some(&self.acl.0)
    }

    fn prof(&self) -> Option<&ProfTable> {
        self.prof.get().map(|(table, _)| table)
    }

    fn tx(&self) -> Option<&TxTable> {
        self.tx.get().map(|(table, _)| table)
    }

    fn load_side<T>(
        &self,
        library: Library,
        cell: &OnceCell<(T, Opened)>,
        read: impl Fn(&Opened) -> Result<T, Vec<Call>>,
    ) -> Result<(), LoadError> {
        let loaded = cell.get_or_try_init(|| {
            let opened = load::search(library, self.acl.1.path.parent())?;
            match read(&opened) {
                Ok(table) => Ok((table, opened)),
                Err(calls) => Err(LoadError::lacking(&opened, calls)),
            }
        });
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|(which, _)| *which != library);
        match loaded {
            Ok(_) => Ok(()),
            Err(error) => {
                refused.push((library, error.clone()));
                Err(error)
            }
        }
    }
}

impl fmt::Debug for AclRaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AclRaw")
            .field("path", &self.acl.1.path)
            .field("initialised", &self.initialised.get().is_some())
            .finish_non_exhaustive()
    }
}

macro_rules! forward {
    ($($(#[$table_meta:meta])* table $table:ident $accessor:ident {
        $($(#[$meta:meta])* $need:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {
        #[allow(non_snake_case, reason = "the names are AscendCL's")]
        impl Raw for AclRaw {
            fn has(&self, call: Call) -> bool {
                match call.library() {
                    Library::AscendCl => self.acl().is_some_and(|table| table.has(call)),
                    Library::Profiler => self.prof().is_some_and(|table| table.has(call)),
                    Library::ToolsExtension => self.tx().is_some_and(|table| table.has(call)),
                }
            }

            fn load(&self, library: Library) -> Result<(), LoadError> {
                match library {
                    Library::AscendCl => Ok(()),
                    Library::Profiler => self.load_side(library, &self.prof, ProfTable::read),
                    Library::ToolsExtension => self.load_side(library, &self.tx, TxTable::read),
                }
            }

            $($(
                unsafe fn $name(&self $(, $arg: $type)*) $(-> $result)? {
                    match self.$accessor().and_then(|table| table.$name) {
                        // SAFETY: the caller keeps to the contract of the function, which is the contract of this
                        // method; the pointer comes from a library that stays open.
                        Some(function) => unsafe { function($($arg),*) },
                        None => Missing::missing(),
                    }
                }
            )*)*
        }
    };
}
crate::acl_functions!(forward);
