// SPDX-License-Identifier: MIT OR Apache-2.0

//! The declarations against genuine headers, by rustc. Nearly all of it happens while this compiles: each assertion is a
//! constant. The test says whether there was something to compare with.

#[allow(unused_imports, reason = "nothing is compared where there are no headers")]
use ascend_rt::sys;

use crate::report::{Status, report};

#[allow(warnings, clippy::all, missing_docs, reason = "made by bindgen")]
mod real {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

include!(concat!(env!("OUT_DIR"), "/identity.rs"));

/// The list of functions, in a place where the names of types are the genuine ones.
#[allow(unused_imports, reason = "nothing is compared where there are no headers")]
mod functions {
    use super::real::{self, *};
    use core::ffi::{c_char, c_void};

    /// A required function must be there. One that came later, or that another library has, is compared if it is there.
    macro_rules! identity {
        ($($(#[$table_meta:meta])* table $table:ident $accessor:ident {
            $($(#[$meta:meta])* $need:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
        })*) => {
            $($(one! { $accessor $need $name ($($type),*) ($($result)?) })*)*
        };
    }
    macro_rules! one {
        (tx $need:ident $($item:tt)*) => { one! { @when_present $($item)* } };
        ($accessor:ident required $($item:tt)*) => { one! { @when_required $($item)* } };
        ($accessor:ident optional $($item:tt)*) => { one! { @when_present $($item)* } };
        (@$when:ident $name:ident ($($type:ty),*) ()) => {
            $when! { $name const _: unsafe extern "C" fn($($type),*) = real::$name; }
        };
        (@$when:ident $name:ident ($($type:ty),*) ($result:ty)) => {
            $when! { $name const _: unsafe extern "C" fn($($type),*) -> $result = real::$name; }
        };
    }
    ascend_rt::acl_functions!(identity);
}

#[test]
fn the_declarations_are_the_genuine_ones() {
    if let Some(missing) = MISSING {
        panic!("cannot check: {missing}");
    }
    assert!(ABSENT.is_empty(), "not in the headers: {ABSENT:?}");
    let [functions, values, types, layouts] = COUNTS;
    println!("{functions} genuine functions; ours: {values} values, {types} types, {layouts} layouts are the same");
    assert!(functions > 100 && values > 150 && types > 25 && layouts > 8, "{COUNTS:?}");
    report("ffi:rustc", &Status::Ok);
}
