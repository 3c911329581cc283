// SPDX-License-Identifier: MIT OR Apache-2.0

//! What host and kernel agree on, and what a plan refuses. Needs no device.

use gmm_finalize_routing::ascend_rt::Arch;
use gmm_finalize_routing::npu::{FinalizeTiling, Options, Split};
use gmm_finalize_routing::{Dims, Dtype, Error};
use op_testkit::{fields_of, tiling};

#[test]
fn kernel_and_host_lay_the_tiling_out_alike() {
    let host = fields_of!(FinalizeTiling {
        products: u64,
        x: u64,
        ring: u64,
        ranges: u64,
        decisions: u64,
        x_tail: u64,
        w_tail: u64,
        ring_pitch: u32,
        rows: u32,
        k: u32,
        n: u32,
        pitch: u32,
        experts: u32,
        batch: u32,
        e5m2: u32,
        transposed: u32,
        counts: u32,
        scale_per_expert: u32,
        has_logit: u32,
        shared_offset: u32,
        shared_rows: u32,
        atomic: u32,
        window: u32,
        stream: u32,
        clean: u32,
        shared_weight: f32,
        wide: u32,
    });
    assert_eq!(tiling::fields(include_str!("../kernel/tiling.h"), "FinalizeTiling").unwrap(), host);
}

#[test]
fn regions_of_the_workspace_do_not_overlap() {
    let options = Options { scale_per_expert: true, ..Options::new(Dtype::E4M3, true) };
    for arch in [Arch::DAV_2201, Arch::DAV_3510] {
        for (k, n) in [(32, 1), (224, 65), (7168, 4096)] {
            let dims = Dims { experts: 3, k, n };
            let split = Split::new(&dims, 37, &options, arch, 20).unwrap();
            let t = split.tiling;
            let pitch = n.next_multiple_of(16);
            let mut sizes = vec![(t.products, 37 * pitch * 4)];
            if arch == Arch::DAV_2201 {
                sizes.extend([(t.x, 37 * k * 2), (t.ring, 20 * t.ring_pitch as usize)]);
                sizes.extend([(t.ranges, 40 * 128), (t.decisions, 20 * 64)]);
            } else if k % 64 != 0 {
                sizes.extend([(t.x_tail, 37 * 2), (t.w_tail, 3 * n * 2)]);
            }
            let mut end = 0;
            for (begin, bytes) in sizes {
                assert!(begin as usize >= end && begin % 512 == 0, "{arch} {k} {n}: {t:?}");
                end = begin as usize + bytes;
            }
            assert!(end <= split.workspace, "{arch} {k} {n}");
        }
    }
}

#[test]
fn what_the_kernel_cannot_address_is_refused() {
    let split = |dims: Dims, arch| Split::new(&dims, 4, &Options::new(Dtype::E4M3, true), arch, 20);
    let many = |arch| Split::new(&Dims { experts: 1, k: 32, n: 4 }, 65536, &Options::new(Dtype::E4M3, true), arch, 20);
    let error = many(Arch::DAV_2201).unwrap_err();
    assert_eq!(error.to_string(), "`rows` is 65536, expected at most 65535 on a device");
    assert!(many(Arch::DAV_3510).is_ok());
    let error = split(Dims { experts: 1 << 17, k: 32, n: 4 }, Arch::DAV_3510).unwrap_err();
    assert_eq!(error.to_string(), "`dims.experts` is 131072, expected at most 65536 on a device");
    assert!(matches!(split(Dims { experts: 1, k: 33, n: 4 }, Arch::DAV_2201), Err(Error::ScaleGroups { k: 33 })));
    assert!(matches!(split(Dims { experts: 1, k: 32, n: 4 }, Arch::DAV_1001), Err(Error::Architecture { .. })));
    let wide = Options { window: 8193, ..Options::new(Dtype::E4M3, true) };
    let error = Split::new(&Dims { experts: 1, k: 32, n: 4 }, 4, &wide, Arch::DAV_2201, 20).unwrap_err();
    assert_eq!(error.to_string(), "`options.window` is 8193, expected at most 8192 on a device");
}
