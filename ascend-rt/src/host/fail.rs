// SPDX-License-Identifier: MIT OR Apache-2.0

//! What calls of the emulator answer inside, before it becomes a code.

use std::borrow::Cow;

use crate::sys::aclError;

/// A refusal: the code, and the sentence that `aclGetRecentErrMsg` hands out.
#[derive(Clone, Debug)]
pub(super) struct Fail {
    pub(super) code: aclError,
    pub(super) text: Cow<'static, str>,
}

impl Fail {
    pub(super) fn new(code: aclError, text: impl Into<Cow<'static, str>>) -> Fail {
        Fail { code, text: text.into() }
    }
}

pub(super) type Answer<T = ()> = Result<T, Fail>;
