// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening a backend: what is found, what is refused, and why.

use ascend_rt::acl::{AclRaw, LoadReason};
use ascend_rt::host::HostConfig;
use ascend_rt::raw::{Call, Need};
use ascend_rt::{Backend, Choice, ErrorKind, Feature, Runtime};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A folder of this process that goes away with it.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("ascend-rt-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    })
}

fn compiler() -> Option<&'static str> {
    static COMPILER: OnceLock<Option<&'static str>> = OnceLock::new();
    *COMPILER.get_or_init(|| {
        let found = ["cc", "gcc", "clang"]
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()));
        if found.is_none() {
            eprintln!("no C compiler: what needs a library of one's own is not tested");
        }
        found
    })
}

/// The functions that `tests/fake/acl.c` has itself.
fn written() -> Vec<&'static str> {
    let source = include_str!("fake/acl.c");
    Call::ALL.iter().map(|call| call.name()).filter(|name| source.contains(&format!("{name}("))).collect()
}

/// A library of one's own: the written functions, and the required calls that pass `keep` as ones that succeed.
pub(crate) fn library(name: &str, flags: &[&str], keep: impl Fn(Call) -> bool) -> Option<PathBuf> {
    let compiler = compiler()?;
    let path = folder().join(name);
    std::fs::create_dir_all(path.parent()?).ok()?;
    let mut source = include_str!("fake/acl.c").to_owned();
    let written = written();
    for call in Call::ALL.iter().copied().filter(|&call| keep(call) && !written.contains(&call.name())) {
        source += &format!("int {}(void) {{ return 0; }}\n", call.name());
    }
    let text = path.with_extension("c");
    std::fs::write(&text, source).ok()?;
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-w"])
        .args(flags)
        .arg(&text)
        .arg("-o")
        .arg(&path)
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(path)
}

/// The calls that AscendCL's own library must have.
pub(crate) fn needed(call: Call) -> bool {
    call.library().file() == "libascendcl.so" && call.need() == Need::Required
}

/// A whole library, made once.
pub(crate) fn whole() -> Option<&'static Path> {
    static WHOLE: OnceLock<Option<PathBuf>> = OnceLock::new();
    WHOLE.get_or_init(|| library("whole/libascendcl.so", &[], needed)).as_deref()
}

fn reason(path: &Path) -> LoadReason {
    let error = AclRaw::open(path).expect_err("refused");
    assert_eq!(error.tried().len(), 1, "{error}");
    assert_eq!(error.tried()[0].0, path);
    assert!(error.to_string().contains("libascendcl.so"), "{error}");
    // Through the runtime it is an error like all others.
    let error = Runtime::open(Choice::AclAt(path.to_owned())).expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Library(_)), "{error}");
    assert!(error.name().is_some() && !error.advice().is_empty() && error.call() == "dlopen", "{error}");
    match AclRaw::open(path).expect_err("refused").tried() {
        [(_, reason)] => reason.clone(),
        _ => unreachable!("there is one"),
    }
}

#[test]
fn what_is_no_library_is_refused_by_what_it_is() {
    let folder = folder();
    assert_eq!(reason(&folder.join("nothing/libascendcl.so")), LoadReason::NotFound);
    assert_eq!(reason(folder), LoadReason::Directory);
    let text = folder.join("text.so");
    std::fs::write(&text, "INPUT(libother.so)\n").expect("a file");
    assert_eq!(reason(&text), LoadReason::NotALibrary);
    let empty = folder.join("empty.so");
    std::fs::write(&empty, "").expect("a file");
    assert_eq!(reason(&empty), LoadReason::NotALibrary);
    let broken = folder.join("broken.so");
    std::fs::write(&broken, b"\x7fELF and nothing more").expect("a file");
    assert!(matches!(reason(&broken), LoadReason::Refused(text) if !text.is_empty()));
}

#[test]
fn link_stubs_are_refused_before_they_are_opened() {
    let folder = folder();
    for place in ["lib64/stub", "devlib/linux/x86_64"] {
        let path = folder.join(place).join("libascendcl.so");
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, b"\x7fELF").expect("a file");
        assert_eq!(reason(&path), LoadReason::Stub);
        let error = Runtime::open(Choice::AclAt(path)).expect_err("refused");
        assert_eq!(error.name(), Some("ACL_ERROR_COMPILING_STUB_MODE"));
    }
    // A link that leads to one is one.
    #[cfg(unix)]
    {
        let link = folder.join("link.so");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(folder.join("lib64/stub/libascendcl.so"), &link).expect("a link");
        assert_eq!(reason(&link), LoadReason::Stub);
    }
}

#[test]
fn a_library_that_lacks_functions_is_refused_with_their_names() {
    let without = [Call::aclrtRecordEvent, Call::aclmdlRIExecuteAsync];
    let Some(path) = library("lacking/libascendcl.so", &[], |call| needed(call) && !without.contains(&call)) else {
        return;
    };
    assert_eq!(reason(&path), LoadReason::MissingSymbols(without.to_vec()));
    let Some(path) = library("noinit/libascendcl.so", &["-DFAKE_WITHOUT_INIT"], needed) else { return };
    assert_eq!(reason(&path), LoadReason::MissingSymbols(vec![Call::aclInit]));
    let error = AclRaw::open(&path).expect_err("refused");
    assert!(error.to_string().contains("lacks aclInit, expected CANN 8.1"), "{error}");
}

#[test]
fn a_library_of_another_program_is_refused() {
    let Some(compiler) = compiler() else { return };
    let folder = folder();
    let text = folder.join("three.c");
    std::fs::write(&text, "int aclInit(void) { return 0; } int aclFinalize(void) { return 0; } int other;")
        .expect("a file");
    let path = folder.join("three.so");
    let status = Command::new(compiler).args(["-shared", "-fPIC"]).arg(&text).arg("-o").arg(&path).status();
    assert!(status.expect("a compiler").success());
    let LoadReason::MissingSymbols(calls) = reason(&path) else { panic!("another reason") };
    assert_eq!(calls[0], Call::aclGetRecentErrMsg, "the first that is needed and not there");
    assert!(calls.iter().all(|call| call.need() == Need::Required));
}

#[test]
fn a_whole_library_opens_and_tells_what_it_lacks() {
    let Some(path) = whole() else { return };
    let runtime = Runtime::open(Choice::AclAt(path.to_owned())).expect("open");
    assert_eq!(runtime.backend(), Backend::Acl);
    assert_eq!(runtime.why_host(), None);
    assert_eq!(runtime.device_count().expect("count"), 2);
    assert_eq!(runtime.version().as_deref(), Some("8.1.RC1"));
    for feature in [Feature::LoadFromMemory, Feature::HostFunctions, Feature::StreamBudget, Feature::Ranges] {
        assert!(!runtime.has(feature), "{feature:?}");
    }
    let audit = runtime.audit();
    assert_eq!(audit.libraries[0].path.as_deref(), Some(path));
    assert!(audit.libraries[0].missing.iter().all(|call| call.need() == Need::Optional));
    assert!(audit.libraries[0].missing.contains(&Call::aclrtBinaryLoadFromData));
    assert!(audit.libraries[1].refused.is_some(), "there is no profiler beside it");
    let text = audit.to_string();
    assert!(text.contains("8.1.RC1") && text.contains("aclrtLaunchHostFunc"), "{text}");
    // Initialising a second time is no error.
    Runtime::open(Choice::AclAt(path.to_owned())).expect("open again");
}

#[test]
fn an_optional_call_that_is_not_there_is_an_error_of_its_name() {
    let Some(path) = whole() else { return };
    let runtime = Runtime::open(Choice::AclAt(path.to_owned())).expect("open");
    let stream = runtime.device(1).expect("device").isolated().expect("context").stream().expect("stream");
    let error = stream.host_func(|| ()).expect_err("not there");
    let kind = ErrorKind::MissingSymbol { symbol: "aclrtLaunchHostFunc", library: "libascendcl.so" };
    assert_eq!(error.kind(), &kind);
    assert_eq!(error.name(), Some("ACL_ERROR_API_NOT_SUPPORT"));
    let error = runtime.device(2).expect_err("there are two");
    assert_eq!(error.name(), Some("ACL_ERROR_RT_INVALID_DEVICEID"));
}

#[test]
fn facts_of_an_older_library_come_from_older_calls_and_from_the_table() {
    use ascend_rt::{Arch, Source};
    let Some(path) = whole() else { return };
    let runtime = Runtime::open(Choice::AclAt(path.to_owned())).expect("open");
    let facts = runtime.device(0).expect("device").facts();
    assert_eq!(facts.soc.as_deref(), Some("Ascend910B3"));
    let arch = facts.arch.expect("arch");
    assert_eq!((arch.value, arch.source), (Arch::DAV_2201, Source::SocName));
    let cores = facts.cube_cores.expect("cores");
    assert_eq!((cores.value, cores.source), (20, Source::Capability));
    let memory = facts.memory.expect("memory");
    assert_eq!((memory.value, memory.source), (1 << 31, Source::MemoryInfo));
    let ub = facts.ub.expect("buffer");
    assert_eq!((ub.value, ub.source), (192 << 10, Source::ChipTable));
}

#[test]
fn no_device_is_a_number_and_not_an_error() {
    let Some(path) = library("nodevice/libascendcl.so", &["-DFAKE_NO_DEVICE"], needed) else { return };
    let runtime = Runtime::open(Choice::AclAt(path)).expect("open");
    assert_eq!(runtime.device_count().expect("count"), 0);
    assert!(runtime.device(0).is_err());
    let runtime = Runtime::open(Choice::Host(HostConfig::new().no_device())).expect("open");
    assert_eq!(runtime.device_count().expect("count"), 0);
}

/// Runs one test of this binary in a process of its own, with other variables.
fn child(variables: &[(&str, &Path)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "open::child_reports", "--nocapture"]).env("ASCEND_RT_TEST_CHILD", "1");
    for name in ["ASCEND_RT_LIB", "ASCEND_RT_BACKEND", "LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let output = command.output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Not a test by itself: what a child says about the runtime that it gets.
#[test]
fn child_reports() {
    if std::env::var_os("ASCEND_RT_TEST_CHILD").is_none() {
        return;
    }
    match Runtime::open(Choice::Auto) {
        Ok(runtime) => println!("auto {} because {:?}", runtime.backend(), runtime.why_host()),
        Err(error) => println!("auto failed: {error}"),
    }
    match Runtime::open(Choice::Acl) {
        Ok(runtime) => println!("acl {}", runtime.audit()),
        Err(error) => println!("acl failed: {error}"),
    }
    let runtime = Runtime::open(Choice::Host(HostConfig::new())).expect("the emulator is always there");
    println!("host {} because {:?}", runtime.backend(), runtime.why_host());
}

#[test]
fn without_a_library_auto_emulates_and_says_why() {
    if Path::new("/usr/local/Ascend").exists() {
        return;
    }
    let text = child(&[]);
    assert!(text.contains("auto host because Some(\"cannot open libascendcl.so: not found in"), "{text}");
    assert!(text.contains("acl failed: dlopen: cannot open"), "{text}");
    assert!(text.contains("host host because None"), "{text}");
}

#[test]
fn the_variable_chooses_only_where_nothing_else_does() {
    let text = child(&[("ASCEND_RT_BACKEND", Path::new("host"))]);
    assert!(text.contains("auto host because Some(\"ASCEND_RT_BACKEND is `host`\")"), "{text}");
    let text = child(&[("ASCEND_RT_BACKEND", Path::new("gpu"))]);
    assert!(text.contains("ASCEND_RT_BACKEND is `gpu`, expected `auto`, `acl` or `host`"), "{text}");
    assert!(text.contains("host host because None"), "{text}");
    if !Path::new("/usr/local/Ascend").exists() {
        let text = child(&[("ASCEND_RT_BACKEND", Path::new("acl"))]);
        assert!(text.contains("auto failed: dlopen: cannot open libascendcl.so"), "{text}");
    }
}

#[test]
fn auto_takes_a_card_where_the_library_is_found() {
    let Some(path) = whole() else { return };
    let text = child(&[("ASCEND_RT_LIB", path)]);
    assert!(text.contains("auto acl because None"), "{text}");
    let text = child(&[("LD_LIBRARY_PATH", path.parent().expect("a folder"))]);
    assert!(text.contains("auto acl because None"), "{text}");
    assert!(text.contains("whole/libascendcl.so"), "{text}");
    let text = child(&[("ASCEND_RT_LIB", path.parent().expect("a folder"))]);
    assert!(text.contains("auto host") && text.contains("a folder, expected a file"), "{text}");
}

#[test]
fn auto_emulates_where_the_library_is_of_no_use() {
    let Some(path) = library("nodevice2/libascendcl.so", &["-DFAKE_NO_DEVICE"], needed) else { return };
    let text = child(&[("ASCEND_RT_LIB", &path)]);
    assert!(text.contains("auto host because Some(\"AscendCL sees no device\")"), "{text}");
}

#[test]
fn the_second_name_of_the_library_and_the_root_of_a_toolkit_are_found() {
    if Path::new("/usr/local/Ascend").exists() {
        return;
    }
    let Some(path) = library("second/libacl_rt.so", &[], needed) else { return };
    let text = child(&[("LD_LIBRARY_PATH", path.parent().expect("a folder"))]);
    assert!(text.contains("auto acl because None") && text.contains("second/libacl_rt.so"), "{text}");
    let Some(path) = library("root/lib64/libascendcl.so", &[], needed) else { return };
    let root = path.ancestors().nth(2).expect("a root");
    for variable in ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"] {
        let text = child(&[(variable, root)]);
        assert!(text.contains("auto acl because None") && text.contains("root/lib64/libascendcl.so"), "{text}");
    }
}

#[test]
fn a_stub_in_the_search_path_is_passed_over() {
    let Some(path) = library("searched/stub/libascendcl.so", &[], needed) else { return };
    let text = child(&[("LD_LIBRARY_PATH", path.parent().expect("a folder"))]);
    if !Path::new("/usr/local/Ascend").exists() {
        assert!(text.contains("auto host") && text.contains("a stub for linking"), "{text}");
    }
    assert!(!text.contains("auto acl because None\nacl backend acl\nlibascendcl.so: /tmp"), "{text}");
}
