// SPDX-License-Identifier: MIT OR Apache-2.0

//! The profiler, ranges and marks, and the timeline that they write.

use crate::support::{ALL_EXECUTORS, Rig, acl};
use ascend_rt::host::{Executor, HostConfig};
use ascend_rt::sys::*;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ascend-rt-prof-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pieces(json: &str) -> Vec<serde_json::Value> {
    let json: serde_json::Value = serde_json::from_str(json).expect("valid JSON");
    let all = json["traceEvents"].as_array().expect("a list").clone();
    all.into_iter().filter(|piece| piece["ph"] != "M").collect()
}

#[test]
fn the_timeline_is_the_same_with_every_executor() {
    let traces: Vec<_> = ALL_EXECUTORS
        .into_iter()
        .map(|executor| {
            let rig = Rig::new(HostConfig::new().executor(executor).trace());
            let (a, b, event) = (rig.stream(), rig.stream(), rig.event());
            let (x, y) = (rig.malloc(8), rig.new_log());
            assert_eq!(rig.fill_async(x, 0, 8, a), 0);
            assert_eq!(acl!(rig, aclprofMarkEx(c"half way".as_ptr(), 8, a)), 0);
            assert_eq!(rig.record(event, a), 0);
            assert_eq!(rig.wait(b, event), 0);
            rig.log(y, 1, b);
            rig.launch("trap", 1, b, &[]);
            assert_eq!(rig.sync(b), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
            rig.begin(a, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
            rig.log(y, 2, a);
            let graph = rig.end(a);
            assert_eq!(rig.replay(graph, a), 0);
            assert_eq!(rig.sync(a), 0);
            rig.host.trace_json()
        })
        .collect();
    // Thread numbers of the process differ, nothing else does.
    let stable = |json: &str| {
        let all = pieces(json);
        all.into_iter().filter(|piece| piece["pid"] != 0).collect::<Vec<_>>()
    };
    for trace in &traces {
        assert_eq!(stable(trace), stable(&traces[0]));
    }
    let all = pieces(&traces[0]);
    let find = |name: &str| all.iter().find(|piece| piece["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((find("fill")["dur"].as_f64(), find("fill")["args"]["bytes"].as_u64()), (Some(10.0), Some(8)));
    assert_eq!(find("half way")["ph"], "i");
    let kernel = find("t::log");
    assert_eq!((kernel["dur"].as_f64(), kernel["args"]["blocks"].as_u64()), (Some(100.0), Some(1)));
    assert_eq!(find("t::trap")["args"]["error"], 507_016);
    assert_eq!(find("replay")["dur"].as_f64(), Some(100.0));
    assert_eq!(
        all.iter().filter(|piece| piece["name"] == "t::log").count(),
        2,
        "the captured one has a row of its own"
    );
    assert!(find("blocking copy")["pid"] == 0);
}

#[test]
fn a_session_writes_its_timeline_when_it_stops() {
    let folder = Folder::new("session");
    let path = folder.0.to_str().expect("UTF-8").to_owned();
    let rig = Rig::with(Executor::Lazy);
    let mut devices = [0u32];
    let create = |devices: &mut [u32]| {
        acl!(
            rig,
            aclprofCreateConfig(
                devices.as_mut_ptr(),
                devices.len() as u32,
                ACL_AICORE_NONE,
                null(),
                ACL_PROF_TASK_TIME
            )
        )
    };
    assert!(create(&mut [7]).is_null() && create(&mut []).is_null());
    let config = create(&mut devices);
    let (start, stop) = (|config| acl!(rig, aclprofStart(config)), |config| acl!(rig, aclprofStop(config)));
    rig.refused(start(config), ACL_ERROR_PROF_NOT_RUN, "not initialised");
    assert_eq!(acl!(rig, aclprofFinalize()), ACL_ERROR_PROF_NOT_RUN);
    let init = || acl!(rig, aclprofInit(path.as_ptr().cast(), path.len()));
    assert_eq!(init(), 0);
    assert_eq!(init(), ACL_ERROR_PROF_ALREADY_RUN);
    assert_eq!(acl!(rig, aclprofSetConfig(ACL_PROF_LLC_MODE, c"read".as_ptr(), 4)), 0);
    let long = [b'x'; 257];
    let code = acl!(rig, aclprofSetConfig(ACL_PROF_LLC_MODE, long.as_ptr().cast(), 257));
    assert_eq!(code, ACL_ERROR_INVALID_PARAM);
    assert_eq!(stop(config), ACL_ERROR_PROF_NOT_RUN);
    assert_eq!(start(config), 0);
    let second = create(&mut devices);
    assert_eq!(start(second), ACL_ERROR_PROF_ALREADY_RUN, "the same device twice");
    assert_eq!(acl!(rig, aclprofDestroyConfig(config)), ACL_ERROR_PROF_ALREADY_RUN, "it runs");
    let (stream, log) = (rig.stream(), rig.new_log());
    // Ranges: pushed and popped, started and stopped, of the tools extension.
    let stamp = acl!(rig, aclprofCreateStamp());
    assert!(!stamp.is_null());
    assert_eq!(acl!(rig, aclprofSetStampTraceMessage(stamp, c"decode".as_ptr(), 6)), 0);
    assert_eq!(acl!(rig, aclprofPush(stamp)), 0);
    let mut range = 0;
    assert_eq!(acl!(rig, aclprofRangeStart(stamp, &mut range)), 0);
    let domain = acl!(rig, mstxDomainCreateA(c"ascend-rt".as_ptr()));
    let tx = acl!(rig, mstxDomainRangeStartA(domain, c"layer 3".as_ptr(), null_mut()));
    assert_ne!(tx, 0);
    acl!(rig, mstxMarkA(c"on the host".as_ptr(), null_mut()));
    acl!(rig, mstxDomainMarkA(domain, c"in the stream".as_ptr(), stream));
    rig.log(log, 1, stream);
    assert_eq!(rig.sync(stream), 0);
    acl!(rig, mstxDomainRangeEnd(domain, tx));
    assert_eq!(acl!(rig, aclprofRangeStop(range)), 0);
    assert_eq!(acl!(rig, aclprofRangeStop(range)), ACL_ERROR_INVALID_PARAM);
    assert_eq!(acl!(rig, aclprofPop()), 0);
    assert_eq!(acl!(rig, aclprofPop()), ACL_ERROR_INVALID_PARAM);
    acl!(rig, aclprofDestroyStamp(stamp));
    assert_eq!(acl!(rig, aclprofPush(stamp)), ACL_ERROR_INVALID_PARAM);
    assert_eq!(stop(config), 0);
    // Nothing is recorded between sessions.
    rig.log(log, 2, stream);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(acl!(rig, mstxRangeStartA(c"off".as_ptr(), null_mut())), 0);
    acl!(rig, mstxRangeEnd(0));
    assert_eq!((start(second), stop(second)), (0, 0));
    assert_eq!((acl!(rig, aclprofDestroyConfig(config)), acl!(rig, aclprofDestroyConfig(config))), (0, 100_000));
    assert_eq!(acl!(rig, aclprofFinalize()), 0);
    for session in ["PROF_000001", "PROF_000002"] {
        let json = std::fs::read_to_string(folder.0.join(session).join("trace.json")).expect("written");
        let all = pieces(&json);
        let find = |name: &str| all.iter().filter(|piece| piece["name"] == name).count();
        for name in ["decode", "ascend-rt: layer 3", "on the host", "ascend-rt: in the stream", "t::log"] {
            assert_eq!(find(name), if name == "decode" { 2 } else { 1 }, "{session} {name}");
        }
        let decode = all.iter().find(|piece| piece["name"] == "decode").expect("counted");
        assert_eq!(decode["dur"].as_f64(), Some(100.0), "from before the launch to after the wait");
    }
}

#[test]
fn marks_are_short_and_can_be_captured() {
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).trace());
    let stream = rig.stream();
    let long = [b'x'; 128];
    let mark = |text: &[u8]| acl!(rig, aclprofMarkEx(text.as_ptr().cast(), text.len(), stream));
    assert_eq!((mark(&long[..127]), mark(&long)), (0, ACL_ERROR_INVALID_PARAM));
    rig.begin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
    assert_eq!(mark(b"inside"), 0);
    let graph = rig.end(stream);
    assert_eq!((rig.replay(graph, stream), rig.replay(graph, stream)), (0, 0));
    assert_eq!(rig.sync(stream), 0);
    let seen = pieces(&rig.host.trace_json()).iter().filter(|piece| piece["name"] == "inside").count();
    assert_eq!(seen, 2);
    rig.host.set_trace(false);
    assert_eq!(mark(b"off"), 0, "and no task");
}
