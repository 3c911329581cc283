// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reports about faults, and settings.

use std::ffi::OsString;
use std::path::Path;

use ascend_sim::{Args, Mode, Rule, RunError, Settings};

use crate::fake::{self, Folder};

fn fault(kernel: &str, mode: Mode) -> ascend_sim::Fault {
    let mut launch = fake::image().launch(kernel).unwrap().args(Args::new().null()).mode(mode).blocks(2);
    match launch.run() {
        Err(RunError::Fault(fault)) => *fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_report_names_everything() {
    let fault = fault("hang", Mode::Chaos(7));
    assert_eq!(fault.rule, Rule::Deadlock);
    assert!(fault.rule.hangs());
    assert_eq!(
        fault.to_string(),
        "error[deadlock]: no core can go on:\n  AIC 0 waits for flag 3\n  \
         --> kernel/add.cpp:21\n   \
         | Add on pipe V of core AIV 3 at operand `src0`\n  \
         ::: kernel/add.cpp:20\n   \
         | DataCopy\n   \
         = kernel `hang`, 2 blocks on Ascend910B2, in the order of seed 7 (ASCEND_SIM=chaos:7)"
    );
}

#[test]
fn the_lines_of_the_source_where_they_are_found() {
    let folder = Folder::new();
    let text: String = (1..30).map(|line| format!("    line{line}();\n")).collect();
    folder.file("kernel/add.cpp", text);
    let fault = fault("hang", Mode::Fast);
    assert_eq!(
        fault.report(folder.path()),
        "error[deadlock]: no core can go on:\n  AIC 0 waits for flag 3\n  \
         --> kernel/add.cpp:21\n   \
         |\n21 |     line21();\n   \
         | Add on pipe V of core AIV 3 at operand `src0`\n  \
         ::: kernel/add.cpp:20\n   \
         |\n20 |     line20();\n   \
         | DataCopy\n   \
         = kernel `hang`, 2 blocks on Ascend910B2, in program order"
    );
    // A file that is shorter than it was, or not there.
    folder.file("kernel/add.cpp", "one line\n");
    assert_eq!(fault.report(folder.path()), fault.to_string());
    assert_eq!(fault.report(&folder.path().join("nowhere")), fault.to_string());
}

#[test]
fn an_error_without_words_is_still_a_report() {
    let fault = fault("bare", Mode::Fast);
    assert_eq!(fault.rule, Rule::Other("rule-12".to_owned()));
    assert_eq!((fault.site.as_ref(), fault.api.as_ref(), fault.tensor.as_ref()), (None, None, None));
    assert_eq!(
        fault.to_string(),
        "error[rule-12]: no message\n  = kernel `bare`, 2 blocks on Ascend910B2, in program order"
    );
}

fn settings(variables: &[(&str, &str)]) -> Result<Settings, String> {
    let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
    Settings::from_variables(get).map_err(|error| error.to_string())
}

#[test]
fn the_environment() {
    assert_eq!(settings(&[]), Ok(Settings::default()));
    assert_eq!(settings(&[("ASCEND_SIM", ""), ("ASCEND_SIM_VERBOSE", "")]), Ok(Settings::default()));
    for (value, mode) in [
        ("fast", Mode::Fast),
        ("dry", Mode::Dry),
        ("chaos:0", Mode::Chaos(0)),
        ("chaos:18446744073709551615", Mode::Chaos(u64::MAX)),
    ] {
        let found = settings(&[("ASCEND_SIM", value)]).unwrap().mode;
        assert_eq!((found, found.to_string()), (mode, value.to_owned()));
    }
    let all = settings(&[("ASCEND_SIM_TRACE", "t.json"), ("ASCEND_SIM_VERBOSE", "1")]).unwrap();
    assert_eq!(all, Settings { trace: Some("t.json".into()), verbose: true, ..Settings::default() });
    let file = format!("swimlane-{}.json", std::process::id());
    let lanes = |value| settings(&[("COLLECT_SWIMLANE", value)]).unwrap().trace;
    assert_eq!(lanes("1"), Some(std::env::temp_dir().join("ascend-sim").join(&file)));
    assert_eq!((lanes("lanes"), lanes("0"), lanes("")), (Some(Path::new("lanes").join(&file)), None, None));
    let both = settings(&[("COLLECT_SWIMLANE", "1"), ("ASCEND_SIM_TRACE", "t.json")]).unwrap();
    assert_eq!(both.trace, Some("t.json".into()));
    for value in ["chaos", "chaos:", "chaos:-1", "chaos:18446744073709551616", "Fast", "slow"] {
        let message = settings(&[("ASCEND_SIM", value)]).unwrap_err();
        assert_eq!(
            message,
            format!("ASCEND_SIM={value:?}: expected fast, dry, or chaos:SEED with a whole number, as in chaos:7")
        );
    }
    let message = settings(&[("ASCEND_SIM_VERBOSE", "yes")]).unwrap_err();
    assert_eq!(message, "ASCEND_SIM_VERBOSE=\"yes\": expected 0 or 1");
}

#[test]
fn chips_by_name() {
    for (name, full, arch, cube) in [
        ("910b3", "Ascend910B3", 2201, 20),
        ("Ascend910B3", "Ascend910B3", 2201, 20),
        ("ASCEND910B4-1", "Ascend910B4-1", 2201, 20),
        ("a2", "Ascend910B2", 2201, 24),
        ("910_9391", "Ascend910_9391", 2201, 24),
        ("a3", "Ascend910_9391", 2201, 24),
        ("950pr", "Ascend950PR", 3510, 32),
    ] {
        let chip = ascend_sim::Chip::preset(name).unwrap();
        assert_eq!((chip.name.as_str(), chip.arch.number(), chip.cube_cores), (full, arch, cube), "{name}");
        assert_eq!(chip.vector_cores, 2 * cube);
    }
    for name in ["", "910", "910b9", "ascend", "Ascend310P3"] {
        let message = ascend_sim::Chip::preset(name).unwrap_err().to_string();
        assert!(message.contains("Ascend910B3"), "{message}");
    }
}
