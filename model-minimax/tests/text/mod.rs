// SPDX-License-Identifier: MIT OR Apache-2.0

mod clock;
mod golden;
mod template;
mod tokenizer;
