// SPDX-License-Identifier: MIT OR Apache-2.0

//! Codes, their names and classes.

use ascend_rt::error::{AclError, Class};
use ascend_rt::sys::CODES;
use std::collections::HashSet;

#[test]
fn every_code_has_its_name_and_no_two_share_one() {
    assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0), "ascending, for the search");
    let names: HashSet<&str> = CODES.iter().map(|&(_, name)| name).collect();
    assert_eq!(names.len(), CODES.len());
    for &(code, name) in CODES {
        let error = AclError(code);
        assert_eq!(error.name(), Some(name));
        assert_eq!(error.to_string(), format!("{name} ({code})"));
        assert_ne!(error.class(), Class::Unknown, "{error}");
    }
}

#[test]
fn an_unknown_code_is_a_number() {
    for code in [1, -1, 107999, 599999, i32::MAX, i32::MIN] {
        let error = AclError(code);
        assert_eq!((error.name(), error.to_string()), (None, code.to_string()));
    }
    assert_eq!(AclError(12345).class(), Class::Unknown);
    // A later version's code is still of its range.
    assert_eq!(AclError(107999).class(), Class::Usage);
    assert_eq!(AclError(507999).class(), Class::Internal);
}

#[test]
fn codes_are_of_the_class_that_the_contract_says() {
    use Class::*;
    for (codes, class) in [
        (&[0, 100002, 100037][..], Ok),
        (&[100000, 100001, 107000, 107001, 107006, 107007, 107017, 207002, 507910, 507911], Usage),
        (&[107002, 107003, 107004, 107005], Context),
        (&[107019, 107020, 507012, 507046, 507047], Timeout),
        (&[107022, 107023], Aborted),
        (
            &[
                107024, 107025, 107026, 107027, 107028, 107029, 107030, 107031, 107032, 107033, 107034, 107036, 107038,
                107041, 107045, 507903,
            ],
            Capture,
        ),
        (&[107037, 507002], Busy),
        (&[107042, 107043, 107044, 507027], Kernel),
        (&[200000], HostOutOfMemory),
        (&[200001, 200006, 207000, 507008], Unsupported),
        (&[207001, 207018], OutOfMemory),
        (&[207003, 207016, 207017], Numeric),
        (&[207004, 207006, 507033], Device),
        (&[207005, 207007, 207008, 207009, 207010], Resource),
        (&[500000, 500001, 500002, 500003, 500005, 507000, 507001], Internal),
        (&[507010, 507053, 507054, 507055, 507056, 507057], DeviceFatal),
        (
            &[
                507011, 507013, 507014, 507015, 507016, 507017, 507018, 507034, 507035, 507036, 507042, 507043, 507044,
                507045, 507048, 507049, 507050,
            ],
            Exec,
        ),
        (&[507899, 507900, 507901], Driver),
    ] {
        for &code in codes {
            assert_eq!(AclError(code).class(), class, "{}", AclError(code));
            assert!(AclError(code).name().is_some(), "{code}");
        }
    }
    // What public reports took for memory is not of its class.
    for code in [207005, 207008, 107020, 107027] {
        assert_ne!(AclError(code).class(), OutOfMemory, "{}", AclError(code));
    }
}

#[test]
fn advice_is_one_sentence_without_a_stop() {
    for &(code, name) in CODES {
        let advice = AclError(code).advice();
        assert!(!advice.ends_with('.') && !advice.contains('\n'), "{name}: {advice}");
    }
    for code in [107002, 107003, 107027, 107030, 207001, 207005, 507011, 507014, 507015, 507899] {
        assert!(!AclError(code).advice().is_empty(), "{code}");
    }
}
