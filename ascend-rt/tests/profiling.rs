// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions, ranges and marks.

use crate::common::*;
use ascend_rt::prof::{Metrics, Profiler, ProfilerConfig};
use ascend_rt::{CaptureMode, ErrorKind, Feature, Queue};

#[test]
fn a_session_writes_a_time_line() {
    let context = context();
    assert!(context.runtime().has(Feature::Profiler));
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    let folder = crate::open::folder().join("profile");
    let config = ProfilerConfig::new(&folder).metrics(Metrics::Memory).api();
    let session = Profiler::session(&context, &config).expect("session");
    {
        ascend_rt::range!(&context, "step");
        check_axpy(&stream, &kernels);
        stream.mark(c"here").expect("mark");
    }
    session.stop().expect("stop");
    let text: String = std::fs::read_dir(&folder)
        .expect("a folder")
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("trace.json")).ok())
        .collect();
    for name in ["axpy", "step", "here"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    serde_json::from_str::<serde_json::Value>(&text).expect("it is JSON");
}

#[test]
fn sessions_do_not_overlap_and_end_when_dropped() {
    let context = context();
    let folder = crate::open::folder().join("profile2");
    let config = ProfilerConfig::new(&folder);
    let session = Profiler::session(&context, &config).expect("session");
    let error = Profiler::session(&context, &config).expect_err("one at a time");
    assert_eq!(error.call(), "aclprofStart");
    drop(session);
    assert!(context.take_drop_error().is_none());
    let session = Profiler::session(&context, &config).expect("another one");
    session.stop().expect("stop");
    let other = ProfilerConfig::new(crate::open::folder().join("elsewhere"));
    let error = Profiler::session(&context, &other).expect_err("one folder per process");
    assert!(matches!(error.kind(), ErrorKind::Argument { argument: "folder", .. }), "{error}");
    assert!(!error.advice().is_empty() && error.name().is_some());
}

#[test]
fn a_session_does_not_start_during_a_capture() {
    let context = context();
    let mut stream = context.stream().expect("stream");
    let mut buffer = context.alloc::<u8>(8).expect("memory");
    let folder = crate::open::folder().join("profile3");
    let graph = stream
        .capture(CaptureMode::default(), |capture| {
            let error = Profiler::session(&context, &ProfilerConfig::new(&folder)).expect_err("not now");
            assert_eq!((error.kind(), error.code().0), (&ErrorKind::StreamCaptured, 107027));
            capture.fill(&mut buffer, 1)
        })
        .expect("the capture goes on");
    assert_eq!(graph.nodes(), 1);
}

#[test]
fn ranges_and_marks_reach_the_time_line_of_the_machine() {
    let context = context_of(config().trace()).0;
    let stream = context.stream().expect("stream");
    {
        ascend_rt::range!(&context, "decode");
        stream.mark(c"token").expect("mark");
    }
    stream.synchronize().expect("sync");
    let trace = context.runtime().host().expect("emulated").trace_json();
    assert!(trace.contains("decode") && trace.contains("token"), "{trace}");
}
