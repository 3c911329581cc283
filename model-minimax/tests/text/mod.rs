// SPDX-License-Identifier: MIT OR Apache-2.0

mod chat;
mod clock;
mod golden;
mod m3;
mod template;
mod tokenizer;
