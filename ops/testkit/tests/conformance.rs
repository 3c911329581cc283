// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;

use op_testkit::compare::{Comparison, Tolerance};
use op_testkit::conformance::{Failure, NotBuilt, Outcome, Problem, Skip, Status, Subject, evaluate, run};
use serde_json::{Value, json};

/// Square `input`.
struct Square {
    name: &'static str,
    input: f32,
}

impl Problem for Square {
    type Output = f32;

    fn name(&self) -> &str {
        self.name
    }

    fn check(&self, output: &f32, tolerance: Tolerance) -> Result<(), String> {
        Comparison::new(&[*output], &[self.input * self.input], &[1]).check(tolerance)
    }
}

fn problems() -> Vec<Square> {
    [("one", 1.0), ("two", 2.0), ("large", 1e30)].map(|(name, input)| Square { name, input }).into()
}

/// Squares with an offset, within its own tolerance, and refuses or panics where told to.
#[derive(Default)]
struct Backend {
    offset: f32,
    tolerance: Tolerance,
    skips: Vec<Skip>,
    refuses: Option<&'static str>,
    panics: Option<&'static str>,
}

impl Subject<Square> for Backend {
    fn tolerance(&self, _: &Square) -> Tolerance {
        self.tolerance
    }

    fn skips(&self) -> &[Skip] {
        &self.skips
    }

    fn run(&self, problem: &Square) -> Result<f32, String> {
        assert_ne!(Some(problem.name), self.panics, "told to panic");
        if Some(problem.name) == self.refuses {
            return Err("input: expected less than 1e30".into());
        }
        Ok(problem.input * problem.input + self.offset)
    }
}

fn outcome(backend: Backend) -> Outcome {
    evaluate("square", "cpu", "scalar", Ok(backend), problems())
}

const LARGE: Skip = Skip { problem: "large", reason: "overflows\nin F32" };

#[test]
fn all_problems_pass() {
    let outcome = outcome(Backend::default());
    assert_eq!((outcome.status(), &outcome.passed[..]), (Status::Ok, &["one", "two", "large"].map(String::from)[..]));
    let line = "conformance: op=square backend=cpu level=scalar status=ok passed=3 failed=0 skipped=0 reason=";
    assert_eq!(outcome.line(), line);
}

#[test]
fn a_wrong_result_fails_unless_the_tolerance_of_the_backend_admits_it() {
    let wrong = outcome(Backend { offset: 0.25, ..Backend::default() });
    assert_eq!((wrong.status(), &wrong.passed[..]), (Status::Failed, &["large".to_string()][..]));
    let failed: Vec<&str> = wrong.failures.iter().map(|failure| &failure.problem[..]).collect();
    assert_eq!(failed, ["one", "two"]);
    assert!(wrong.failures[0].message.contains("worst absolute difference 2.500e-1"));
    let line = "conformance: op=square backend=cpu level=scalar status=failed passed=1 failed=2 skipped=0 reason=failed one, two";
    assert_eq!(wrong.line(), line);

    let loose = Backend { offset: 0.25, tolerance: Tolerance::abs(0.25), ..Backend::default() };
    assert_eq!(outcome(loose).status(), Status::Ok);
}

#[test]
fn errors_and_panics_fail_their_problem_only() {
    let outcome = outcome(Backend { refuses: Some("large"), panics: Some("one"), ..Backend::default() });
    assert_eq!(outcome.passed, ["two"]);
    let [one, large] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
    assert_eq!(one.problem, "one");
    assert!(one.message.starts_with("panicked: ") && one.message.contains("told to panic"), "{}", one.message);
    let refused = Failure { problem: "large".into(), message: "input: expected less than 1e30".into() };
    assert_eq!(*large, refused);
}

#[test]
fn skipped_problems_are_not_run_and_listed_with_their_reason() {
    let outcome = outcome(Backend { panics: Some("large"), skips: vec![LARGE], ..Backend::default() });
    assert_eq!((outcome.status(), &outcome.skips[..]), (Status::Ok, &[LARGE][..]));
    let line = "conformance: op=square backend=cpu level=scalar status=ok passed=2 failed=0 skipped=1 \
                reason=skipped large (overflows in F32)";
    assert_eq!(outcome.line(), line);
}

#[test]
fn faults_of_the_suite_are_failures() {
    let skips = vec![Skip { problem: "three", reason: "gone" }, Skip { problem: "one", reason: " " }];
    let outcome = outcome(Backend { skips, ..Backend::default() });
    let messages: Vec<&str> = outcome.failures.iter().map(|failure| &failure.message[..]).collect();
    assert_eq!(messages, ["`three` names no problem of the suite", "`one` gives no reason"]);

    let empty = evaluate("square", "cpu", "scalar", Ok(Backend::default()), []);
    assert_eq!((empty.status(), &empty.failures[0].message[..]), (Status::Failed, "no problems"));

    let twice = problems().into_iter().chain(problems().into_iter().take(1));
    let twice = evaluate("square", "cpu", "scalar", Ok(Backend::default()), twice);
    assert_eq!((twice.status(), &twice.failures[0].message[..]), (Status::Failed, "two problems `one`"));
}

#[test]
fn not_built_is_listed() {
    let outcome = evaluate("square", "npu", "0", Err::<Backend, _>(NotBuilt("no CANN\nfound".into())), problems());
    assert_eq!(outcome.status(), Status::NotBuilt);
    let line =
        "conformance: op=square backend=npu level=0 status=not-built passed=0 failed=0 skipped=0 reason=no CANN found";
    assert_eq!(outcome.line(), line);
}

#[test]
fn the_file_has_everything() {
    let folder = crate::scratch("conformance").join("made");
    let mut outcome = outcome(Backend { refuses: Some("two"), skips: vec![LARGE], ..Backend::default() });
    outcome.backend = "sim:dav-2201".into();
    let path = outcome.write(&folder).unwrap();
    assert_eq!(path, folder.join("square.sim_dav-2201.scalar.json"));
    let written: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let expected = json!({
        "op": "square",
        "backend": "sim:dav-2201",
        "level": "scalar",
        "status": "failed",
        "passed": 1,
        "failed": 1,
        "skipped": 1,
        "reason": "failed two",
        "skips": [{"problem": "large", "reason": "overflows\nin F32"}],
        "failures": [{"problem": "two", "message": "input: expected less than 1e30"}],
    });
    assert_eq!(written, expected);
}

/// The inner run, told by the variable, is an ordinary conformance test that fails; the outer one
/// looks at what it left.
#[test]
fn a_run_prints_writes_and_fails_as_an_ordinary_test() {
    let failing = || Backend { refuses: Some("two"), ..Backend::default() };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("op-testkit/conformance-run");
    if std::env::var_os("CONFORMANCE_DIR").is_some_and(|inner| folder == Path::new(&inner)) {
        run("square", "npu", "0", Err::<Backend, _>(NotBuilt("no CANN found".into())), problems());
        run("square", "cpu", "scalar", Ok(failing()), problems());
        return;
    }
    let folder = crate::scratch("conformance-run");
    let test = "conformance::a_run_prints_writes_and_fails_as_an_ordinary_test";
    let inner = crate::rerun_with(test, "CONFORMANCE_DIR", folder.to_str().expect("the folder is UTF-8"));
    assert!(!inner.status.success(), "a failed problem fails the test");
    let printed = String::from_utf8_lossy(&inner.stdout);
    let lines: Vec<&str> =
        printed.lines().filter_map(|line| line.split_once("conformance: op=")).map(|l| l.1).collect();
    let ours = "square backend=cpu level=scalar status=failed passed=2 failed=1 skipped=0 reason=failed two";
    let absent = "square backend=npu level=0 status=not-built passed=0 failed=0 skipped=0 reason=no CANN found";
    assert_eq!(lines, [absent, ours]);
    let panic = String::from_utf8_lossy(&inner.stderr);
    assert!(panic.contains("two: input: expected less than 1e30"), "{panic}");

    let status = |file: &str| -> Value {
        let bytes = std::fs::read(folder.join(file)).expect("the file was written");
        serde_json::from_slice::<Value>(&bytes).expect("JSON")["status"].clone()
    };
    assert_eq!((status("square.cpu.scalar.json"), status("square.npu.0.json")), (json!("failed"), json!("not-built")));
}
