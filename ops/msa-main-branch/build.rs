// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiles the kernel: for the device where there is CANN, for the twin under the feature `sim`.

fn main() {
    #[cfg(feature = "npu")]
    ascend_build::kernel("msa_main_branch").mix("msa_main_branch").build();
}
