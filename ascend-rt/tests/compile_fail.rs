// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mistakes that the compiler finds. The texts beside the programs are those of the compiler that the workspace asks for.

#[test]
fn mistakes_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
