// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiles the kernel: for the device where there is CANN, for the twin under the feature `sim`.

fn main() {
    #[cfg(feature = "npu")]
    ascend_build::kernel("grouped_gemm")
        .mix("grouped_gemm")
        .mix("grouped_gemm_combine")
        .mix("grouped_gemm_fp8")
        .mix("grouped_gemm_fp8_combine")
        .build();
}
