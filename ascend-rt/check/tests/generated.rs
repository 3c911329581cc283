// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `ascend-build` generates, with the real types.

use ascend_rt::Arch;
use ascend_rt::kernel::Target;

mod full {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

mod empty {
    include!(concat!(env!("OUT_DIR"), "/empty.rs"));
}

include!(concat!(env!("OUT_DIR"), "/archs.rs"));

#[test]
fn blobs_are_those_of_the_runtime() {
    let twins = [Target::Twin(Arch::DAV_2201), Target::Twin(Arch::DAV_3510)];
    assert_eq!(full::BLOBS.len(), ARCHS.len() + twins.len());
    assert_eq!(full::BLOBS[ARCHS.len()..].iter().map(|blob| blob.target).collect::<Vec<_>>(), twins);
    assert!(full::BLOBS[ARCHS.len()..].iter().all(|blob| blob.bytes.as_ref() == b"twin"));
    for (blob, (number, name, _)) in full::BLOBS.iter().zip(ARCHS) {
        assert_eq!(blob.target, Target::Arch(Arch::from_number(*number)));
        assert_eq!(blob.bytes.as_ref(), name.as_bytes());
    }
    assert!(full::ORIGIN.starts_with("a test: ") && full::TWIN_ORIGIN.starts_with("another test: "));
    assert!(empty::BLOBS.is_empty());
    assert_eq!([empty::ORIGIN, empty::TWIN_ORIGIN], ["not built: a test", "not built: another test"]);
}

#[test]
fn both_know_the_same_chips() {
    for (number, name, socs) in ARCHS {
        let arch = Arch::from_number(*number);
        assert_eq!(arch.to_string(), *name);
        for soc in *socs {
            // The table has beginnings of names; these are whole ones.
            let whole = match *soc {
                "Ascend910_93" => "Ascend910_9391",
                "Ascend950PR" => "Ascend950PR_9599",
                "Ascend950DT" => "Ascend950DT_9591",
                "Ascend310P" => "Ascend310P3",
                whole => whole,
            };
            assert_eq!(Arch::of_soc(whole), Some(arch), "{whole}");
        }
    }
}
