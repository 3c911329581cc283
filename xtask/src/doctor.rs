// SPDX-License-Identifier: MIT OR Apache-2.0

//! What this machine has and lacks for each device, why, and what to do about it.
//!
//! Nothing is loaded into this program: libraries are looked at as files, and programs are asked for their version.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::system::{System, is_program};

/// How long a program may take to say its version.
const LIMIT: Duration = Duration::from_secs(20);
/// Machine numbers of hosts, as the header of an ELF file has them.
const MACHINES: [(&str, u16); 2] = [("x86_64", 62), ("aarch64", 183)];
/// The vendor's number on the PCI bus, and the class of accelerators.
const PCI_VENDOR: &str = "0x19e5";
const PCI_CLASS: &str = "0x1200";
/// What marks folders of libraries that are for linking only.
const STUBS: [&str; 2] = ["stub", "devlib"];

const SECTIONS: [(&str, &str); 4] = [
    ("tools", "compilers and programs on PATH"),
    ("card", "accelerators on the PCI bus, driver, device nodes and their rights"),
    ("CANN", "roots, versions, bisheng, what each variable names"),
    ("libraries", "those that ascend-rt opens, what they need, link stubs; genuine headers, libclang"),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Found,
    Missing,
    /// There, or asked for, but of no use as it is.
    Broken,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Found => "found",
            Self::Missing => "missing",
            Self::Broken => "BROKEN",
        })
    }
}

/// One thing that was looked for.
#[derive(Debug)]
struct Finding {
    what: String,
    state: State,
    detail: String,
    /// What to do; empty where there is nothing to do.
    next: String,
}

/// All that was looked for.
#[derive(Debug, Default)]
pub(crate) struct Report {
    sections: Vec<(&'static str, Vec<Finding>)>,
    devices: Vec<(&'static str, String)>,
}

impl Report {
    /// Whether something does not work that is there. What is only missing is a normal state.
    pub(crate) fn is_broken(&self) -> bool {
        self.findings().any(|finding| finding.state == State::Broken)
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|(_, findings)| findings)
    }

    fn state(&self, what: &str) -> Option<State> {
        self.findings().find(|finding| finding.what == what).map(|finding| finding.state)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings().map(|finding| finding.what.chars().count()).max().unwrap_or(0);
        for (name, findings) in &self.sections {
            writeln!(f, "{name}")?;
            for Finding { what, state, detail, next } in findings {
                writeln!(f, "  {state:<7}  {what:<width$}  {detail}")?;
                if !next.is_empty() {
                    writeln!(f, "           {:width$}  -> {next}", "")?;
                }
            }
        }
        writeln!(f, "devices")?;
        for (device, text) in &self.devices {
            writeln!(f, "  {device:<7}  {text}")?;
        }
        let count = |state| self.findings().filter(|finding| finding.state == state).count();
        writeln!(
            f,
            "\ndoctor: {} found, {} missing, {} broken",
            count(State::Found),
            count(State::Missing),
            count(State::Broken)
        )
    }
}

/// Prints what [`examine`] looks at.
pub(crate) fn describe() {
    for (name, what) in SECTIONS {
        println!("  {name:<10} {what}");
    }
}

/// Looks at everything.
pub(crate) fn examine(system: &System) -> Report {
    let mut report = Report::default();
    for (name, _) in SECTIONS {
        let findings = match name {
            "tools" => tools(system),
            "card" => card(system),
            "CANN" => cann(system),
            _ => libraries(system),
        };
        report.sections.push((name, findings));
    }
    report.devices = devices(&report);
    report
}

fn found(what: impl Into<String>, detail: impl Into<String>) -> Finding {
    Finding { what: what.into(), state: State::Found, detail: detail.into(), next: String::new() }
}

fn missing(what: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding { what: what.into(), state: State::Missing, detail: detail.into(), next: next.into() }
}

fn broken(what: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding { what: what.into(), state: State::Broken, detail: detail.into(), next: next.into() }
}

// --- Tools --------------------------------------------------------------------------------------------------------

fn tools(system: &System) -> Vec<Finding> {
    let mut list = vec![
        program(system, "rust", &["rustc"], "", "needed for everything: install Rust 1.95 or later"),
        program(system, "C compiler", &["cc", "gcc", "clang"], "CC", "makes `bindgen --check` exact about layouts"),
    ];
    list.push(cpp(system));
    for (name, next) in [
        ("cmake", "needed only to build device code with CANN 8.1 to 8.3: install CMake 3.16 or later"),
        ("python3", "needed for `cargo xtask bindgen --check`, and by CANN 8.1 to 8.3: install Python 3"),
        ("valgrind", "needed only to check the emulator's memory accesses: install valgrind"),
        ("git", "needed for `cargo xtask tidy`: install git"),
    ] {
        list.push(program(system, name, &[name], "", next));
    }
    list
}

/// The first of these programs, or the one that the variable names, with what it says of itself.
fn program(system: &System, what: &str, names: &[&str], variable: &str, next: &str) -> Finding {
    let named = system.variable(variable);
    let path = match &named {
        Some(name) if name.contains('/') => Some(PathBuf::from(name)).filter(|path| is_program(path)),
        Some(name) => system.program(name),
        None => names.iter().find_map(|name| system.program(name)),
    };
    match (path, named) {
        (Some(path), _) => match system.run(&path, &["--version"], "", LIMIT) {
            Ok(ran) if ran.success => found(what, format!("{}: {}", path.display(), ran.first_line())),
            Ok(ran) => broken(what, format!("{} --version fails: {}", path.display(), ran.first_line()), next),
            Err(why) => broken(what, format!("{} does not run: {why}", path.display()), next),
        },
        (None, Some(name)) => broken(what, format!("{variable}={name} is no program"), format!("unset it; {next}")),
        (None, None) => missing(what, format!("no {} on PATH", names.join(", ")), next),
    }
}

/// The compiler of the twin must know C++17, so it is made to compile some.
fn cpp(system: &System) -> Finding {
    const WHAT: &str = "C++ compiler";
    const SOURCE: &str = "#include <optional>\nint f() { if (std::optional<int> x = 1; x) return *x; return 0; }\n";
    let next = "needed for the device `sim`: install g++ 8 or later, or clang 7 or later";
    let version = program(system, WHAT, &["c++", "g++", "clang++"], "CXX", next);
    let Some((path, _)) = version.detail.split_once(": ").filter(|_| version.state == State::Found) else {
        return version;
    };
    let args = ["-std=c++17", "-fsyntax-only", "-x", "c++", "-"];
    match system.run(Path::new(path), &args, SOURCE, LIMIT) {
        Ok(ran) if ran.success => found(WHAT, format!("{}; compiles C++17", version.detail)),
        Ok(ran) => broken(WHAT, format!("{path} does not compile C++17: {}", ran.first_line()), next),
        Err(why) => broken(WHAT, format!("{path} does not run: {why}"), next),
    }
}

// --- Card ---------------------------------------------------------------------------------------------------------

fn card(system: &System) -> Vec<Finding> {
    let mut list = Vec::new();
    let cards = pci(&system.place("/sys/bus/pci/devices"));
    let driver = driver(system);
    let has_driver = driver.state == State::Found;
    list.push(match cards.as_slice() {
        [] => missing(
            "accelerator",
            "none on the PCI bus",
            "cpu and sim need none; a virtual machine must pass it through",
        ),
        _ => found("accelerator", cards.join(", ")),
    });
    list.push(match driver {
        driver if !cards.is_empty() && !has_driver => Finding { state: State::Broken, ..driver },
        driver => driver,
    });

    let nodes = nodes(&system.place("/dev"));
    let to_driver =
        if has_driver { "the driver made none: `npu-smi info` says more" } else { "they come with the driver" };
    list.push(if nodes.is_empty() {
        missing("device nodes", "no /dev/davinci<n>", format!("{to_driver}; a container must be given them"))
    } else {
        let named: Vec<String> = nodes.iter().map(|path| path.display().to_string()).collect();
        found("device nodes", named.join(", "))
    });
    if !nodes.is_empty() {
        let managers = ["davinci_manager", "devmm_svm", "hisi_hdc"].map(|name| system.place("/dev").join(name));
        for node in nodes.iter().chain(&managers) {
            if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(node) {
                let next = match error.kind() {
                    std::io::ErrorKind::NotFound => "a container must be given it too",
                    std::io::ErrorKind::PermissionDenied => "join the group that owns it (HwHiAiUser, as installed)",
                    _ => "another process may hold it; `npu-smi info` says more",
                };
                list.push(broken(node.display().to_string(), error.to_string(), next));
            }
        }
    }
    if let Some(visible) = system.variable("ASCEND_RT_VISIBLE_DEVICES") {
        list.push(found(
            "ASCEND_RT_VISIBLE_DEVICES",
            format!("{visible}: other devices are hidden, and these renumbered"),
        ));
    }
    list.push(match [system.program("npu-smi"), Some(system.place("/usr/local/sbin/npu-smi"))] {
        [Some(path), _] => found("npu-smi", path.display().to_string()),
        [None, Some(path)] if is_program(&path) => found("npu-smi", path.display().to_string()),
        _ => missing("npu-smi", "not on PATH", "comes with the driver; nothing here needs it"),
    });
    list
}

/// Accelerators of the vendor: place on the bus and number of the device.
fn pci(folder: &Path) -> Vec<String> {
    let mut cards = Vec::new();
    for path in entries(folder) {
        let read = |name: &str| text(&path.join(name)).unwrap_or_default().trim().to_owned();
        if read("vendor") == PCI_VENDOR && read("class").starts_with(PCI_CLASS) {
            let place = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            cards.push(format!("{place} (device {})", read("device")));
        }
    }
    cards
}

fn driver(system: &System) -> Finding {
    let what = "driver";
    // Where it is, is noted at installation.
    let noted = text(&system.place("/etc/ascend_install.info")).unwrap_or_default();
    let noted = noted.lines().find_map(|line| line.strip_prefix("Driver_Install_Path_Param="));
    let root = noted.map_or_else(|| system.place("/usr/local/Ascend"), |path| system.place(path.trim())).join("driver");
    let version = text(&root.join("version.info")).unwrap_or_default();
    let version = version.lines().find_map(|line| line.trim().strip_prefix("Version=").map(str::to_owned));
    let hal = ["lib64/driver", "lib64/common", "lib64"].map(|folder| root.join(folder).join("libascend_hal.so"));
    match (root.is_dir(), version, hal.iter().find(|path| path.is_file())) {
        (false, _, _) => missing(
            what,
            format!("{} is not there", root.display()),
            "only a card needs it: install driver and firmware; a container must be given the folder",
        ),
        (true, version, Some(hal)) => {
            let version = version.unwrap_or_else(|| "of unknown version (no version.info)".to_owned());
            found(what, format!("{version}, {}", hal.display()))
        }
        (true, _, None) => broken(
            what,
            format!("{} has no libascend_hal.so", root.display()),
            "the usual gap in containers: give them the driver's lib64 as well",
        ),
    }
}

/// `davinci0`, `davinci1` and so on, in order.
fn nodes(folder: &Path) -> Vec<PathBuf> {
    let number = |path: &Path| path.file_name()?.to_str()?.strip_prefix("davinci")?.parse::<u32>().ok();
    let mut nodes: Vec<PathBuf> = entries(folder).into_iter().filter(|path| number(path).is_some()).collect();
    nodes.sort_by_key(|path| number(path));
    nodes
}

// --- CANN ---------------------------------------------------------------------------------------------------------

fn cann(system: &System) -> Vec<Finding> {
    let mut list = Vec::new();
    let mut any = false;
    for (root, variable) in system.cann() {
        let what = variable.map_or_else(|| "CANN".to_owned(), str::to_owned);
        let finding = cann_root(system, what, &root);
        any |= finding.state == State::Found;
        match (finding.state, variable) {
            // A default place that is empty tells nothing.
            (State::Missing, None) => {}
            // Who names a place means it.
            (State::Missing, Some(_)) => list.push(Finding { state: State::Broken, ..finding }),
            _ => list.push(finding),
        }
    }
    if !any {
        let places: Vec<String> = system.cann().iter().map(|(root, _)| root.display().to_string()).collect();
        let next = "only device code needs it: install the toolkit and source its set_env.sh; without it everything else builds";
        list.insert(0, missing("toolkit", format!("none in {}", places.join(", ")), next));
    }
    if let [Some(a), Some(b)] = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].map(|name| system.path(name)) {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if real(&a) != real(&b) {
            let detail = format!("ASCEND_HOME_PATH is {}, ASCEND_TOOLKIT_HOME is {}", a.display(), b.display());
            list.push(broken("variables", detail, "two versions are mixed: source one set_env.sh in a new shell"));
        }
    }
    list
}

fn cann_root(system: &System, what: String, root: &Path) -> Finding {
    let shown = root.display();
    if !root.is_dir() {
        return missing(
            what,
            format!("{shown} is not there"),
            "unset the variable, or source set_env.sh of a CANN that is there",
        );
    }
    let host = std::env::consts::ARCH;
    let version = version(root, host);
    let named = match &version {
        Some(version) => format!("CANN {version} in {shown}"),
        None => format!("{shown} (no file tells its version)"),
    };
    let of_host = format!("{host}-linux/ccec_compiler/bin");
    let folders = [of_host.as_str(), "compiler/ccec_compiler/bin", "tools/ccec_compiler/bin", "bin"];
    let compilers = folders.map(|folder| root.join(folder).join("bisheng"));
    let Some(bisheng) = compilers.iter().find(|path| is_program(path)) else {
        let next = format!("device code needs the toolkit (not the runtime alone), made for {host}");
        return missing(what, format!("{named}; no bisheng in it"), next);
    };
    let next = "device code is not built while it does not run; is the toolkit made for this system?";
    match system.run(bisheng, &["--version"], "", LIMIT) {
        Ok(ran) if ran.success => {
            let by = match version.as_deref().and_then(number) {
                Some(number) if number < (8, 1) => {
                    return broken(what, format!("{named} is older than 8.1"), "install CANN 8.1 or later");
                }
                Some(number) if number < (8, 5) => "device code through its CMake files",
                _ => "device code by architecture",
            };
            found(what, format!("{named}; bisheng runs ({}); {by}", ran.first_line()))
        }
        Ok(ran) => broken(what, format!("{named}; {} fails: {}", bisheng.display(), ran.first_line()), next),
        Err(why) => broken(what, format!("{named}; {} does not run: {why}", bisheng.display()), next),
    }
}

fn version(root: &Path, host: &str) -> Option<String> {
    let files = [
        format!("{host}-linux/ascend_toolkit_install.info"),
        "ascend_toolkit_install.info".into(),
        "version.info".into(),
    ];
    let of_line = |line: &str| line.trim().strip_prefix("version=").map(|version| version.trim_matches('"').to_owned());
    let noted = files.iter().find_map(|file| text(&root.join(file))?.lines().find_map(of_line));
    noted.filter(|version| number(version).is_some()).or_else(|| {
        let name = std::fs::canonicalize(root).ok()?.file_name()?.to_str()?.to_owned();
        let version = name.strip_prefix("cann-").unwrap_or(&name).to_owned();
        number(&version).map(|_| version)
    })
}

/// The leading two numbers of a version.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let digits = |part: &str| part[..part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len())].parse().ok();
    Some((digits(parts.next()?)?, digits(parts.next()?)?))
}

// --- Libraries ----------------------------------------------------------------------------------------------------

fn libraries(system: &System) -> Vec<Finding> {
    let mut list = Vec::new();
    if let Some(path) = system.path("ASCEND_RT_LIB") {
        let next = "it must be the library itself; unset it to let the usual places be searched";
        list.push(match inspect(&path) {
            Ok(()) => found("ASCEND_RT_LIB", format!("{}{}", path.display(), needs(system, &path).1)),
            Err(why) => broken("ASCEND_RT_LIB", format!("{}: {why}", path.display()), next),
        });
    }
    let mut folders = system.paths("LD_LIBRARY_PATH");
    folders.extend(system.cann().into_iter().map(|(root, _)| root.join("lib64")));
    let hal = ["driver", "common"].map(|name| system.place("/usr/local/Ascend/driver/lib64").join(name));
    folders.extend(hal);
    for (names, next) in [
        (["libascendcl.so", "libacl_rt.so"].as_slice(), "needed for the device `npu`: source CANN's set_env.sh"),
        (&["libmsprofiler.so"], "needed only for profiling: comes with CANN"),
        (&["libms_tools_ext.so"], "needed only for ranges in profiles: comes with CANN"),
        (&["libascend_hal.so"], "needed by libascendcl.so: comes with the driver, not with CANN"),
    ] {
        list.push(library(system, names, &folders, next));
    }
    let stubs: Vec<String> = system
        .paths("LD_LIBRARY_PATH")
        .iter()
        .filter(|folder| is_stub(folder) && folder.join("libascendcl.so").exists())
        .map(|folder| folder.display().to_string())
        .collect();
    if !stubs.is_empty() {
        let next = "stubs are for linking; a program that opens one gets functions that do nothing: take them out";
        list.push(broken("LD_LIBRARY_PATH", format!("has folders of link stubs: {}", stubs.join(", ")), next));
    }
    list.push(headers(system));
    list.push(libclang(system));
    list
}

/// The first of these names in the first folder that has one.
fn library(system: &System, names: &[&str], folders: &[PathBuf], next: &str) -> Finding {
    let what = names[0];
    let mut refused = None;
    for path in names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))) {
        if !path.exists() {
            continue;
        }
        match inspect(&path) {
            Ok(()) => {
                let (complete, text) = needs(system, &path);
                let detail = format!("{}{text}", path.display());
                return if complete {
                    found(what, detail)
                } else {
                    broken(
                        what,
                        detail,
                        "put the folders of these into LD_LIBRARY_PATH: source set_env.sh; the driver's lib64",
                    )
                };
            }
            Err(why) => refused = refused.or(Some(format!("{}: {why}", path.display()))),
        }
    }
    match refused {
        Some(why) => broken(what, why, next),
        None => missing(what, "not in LD_LIBRARY_PATH, nor beside CANN or the driver".to_owned(), next),
    }
}

fn is_stub(path: &Path) -> bool {
    path.components().any(|part| STUBS.iter().any(|stub| part.as_os_str() == *stub))
}

/// Whether a file can be a library of this host, by its place and its first bytes.
fn inspect(path: &Path) -> Result<(), String> {
    let real = std::fs::canonicalize(path).map_err(|error| error.to_string())?;
    if is_stub(path) || is_stub(&real) {
        return Err("a link stub, which does nothing when it is called".to_owned());
    }
    if real.is_dir() {
        return Err("a folder, expected a file".to_owned());
    }
    let mut head = [0; 20];
    let read = std::fs::File::open(&real).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
    if head[..4] != *b"\x7fELF" {
        return Err(match read {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => error.to_string(),
            _ => "not an ELF file".to_owned(),
        });
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let host = MACHINES.iter().find(|(name, _)| *name == std::env::consts::ARCH);
    match host {
        Some((name, number)) if machine != *number => {
            let other = MACHINES.iter().find(|(_, number)| *number == machine);
            let other = other.map_or_else(|| format!("machine {machine}"), |(name, _)| (*name).to_owned());
            Err(format!("made for {other}, this host is {name}"))
        }
        _ => Ok(()),
    }
}

/// Whether all libraries that this one needs are found, and a remark. The loader is asked, which runs none of their
/// code.
fn needs(system: &System, path: &Path) -> (bool, String) {
    let Some(ldd) = system.program("ldd") else { return (true, " (no ldd to tell what it needs)".to_owned()) };
    match system.run(&ldd, &[&path.display().to_string()], "", LIMIT) {
        Ok(ran) if ran.success => {
            let gone: Vec<&str> = ran
                .text
                .lines()
                .filter(|line| line.contains("not found"))
                .filter_map(|line| line.split_whitespace().next())
                .collect();
            match gone.as_slice() {
                [] => (true, String::new()),
                gone => (false, format!(" needs {}, not found", gone.join(", "))),
            }
        }
        Ok(ran) => (false, format!(" cannot be loaded: {}", ran.first_line())),
        Err(why) => (true, format!(" (ldd does not answer: {why})")),
    }
}

fn headers(system: &System) -> Finding {
    let what = "genuine headers";
    let named = system.paths("ACL_INCLUDE");
    let next = "needed only for `cargo xtask bindgen --check`: let ACL_INCLUDE name a folder with acl/acl.h";
    if let Some(wrong) = named.iter().find(|folder| !folder.join("acl/acl.h").is_file()) {
        return broken(what, format!("ACL_INCLUDE names {}, which has no acl/acl.h", wrong.display()), next);
    }
    let of_cann = || system.cann().iter().find_map(|(root, _)| System::headers(root));
    match named.first().cloned().or_else(of_cann) {
        Some(folder) => found(what, folder.display().to_string()),
        None => missing(what, "ACL_INCLUDE is not set, and there is no CANN with acl/acl.h", next),
    }
}

fn libclang(system: &System) -> Finding {
    let what = "libclang";
    let next = "needed only for `cargo xtask bindgen --check --identity`: install libclang, or let LIBCLANG_PATH name its folder";
    let is_it = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // `libclang-cpp` is another library.
        let versioned =
            name.strip_prefix("libclang-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        (name.starts_with("libclang.so") || versioned) && name.contains(".so") && path.is_file()
    };
    if let Some(path) = system.path("LIBCLANG_PATH") {
        let file = if path.is_dir() {
            entries(&path).into_iter().find(|path| is_it(path))
        } else {
            Some(path.clone()).filter(|path| is_it(path))
        };
        return match file {
            Some(file) => found(what, file.display().to_string()),
            None => broken(what, format!("LIBCLANG_PATH={} has none", path.display()), next),
        };
    }
    let mut folders = Vec::new();
    if let Some(config) = system.program("llvm-config") {
        folders.extend(system.run(&config, &["--libdir"], "", LIMIT).ok().map(|ran| PathBuf::from(ran.first_line())));
    }
    folders.extend(
        entries(&system.place("/usr/lib"))
            .into_iter()
            .filter(|path| path.to_string_lossy().contains("llvm-"))
            .map(|path| path.join("lib")),
    );
    let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    folders.extend([triplet.as_str(), "/usr/lib64", "/usr/local/lib", "/usr/lib"].map(|place| system.place(place)));
    match folders.iter().flat_map(|folder| entries(folder)).find(|path| is_it(path)) {
        Some(file) => found(what, file.display().to_string()),
        None => missing(what, format!("not in {} places", folders.len()), next),
    }
}

// --- Devices ------------------------------------------------------------------------------------------------------

fn devices(report: &Report) -> Vec<(&'static str, String)> {
    let lacks = |what: &&str| report.state(what) != Some(State::Found);
    let mut list = vec![("cpu", "ready".to_owned())];
    let sim = if lacks(&"C++ compiler") { "needs a C++17 compiler; " } else { "a C++17 compiler is there; " };
    list.push(("sim", format!("{sim}this version has no AscendC kernels yet")));
    let needed = ["driver", "device nodes", "libascendcl.so", "libascend_hal.so"];
    let gaps: Vec<&str> = needed.into_iter().filter(lacks).collect();
    let npu = if gaps.is_empty() {
        "what it needs is there; whether a card works is seen only by running on it".to_owned()
    } else {
        format!("not ready: {}", gaps.join(", "))
    };
    list.push(("npu", npu));
    list
}

/// A text file, whatever bytes are in it.
fn text(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What a folder has, sorted; nothing if it is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::system::testing::Folder;

    /// A machine that is a folder: its programs are in `bin`.
    struct Machine {
        folder: Folder,
        variables: Vec<(&'static str, String)>,
    }

    impl Machine {
        fn new() -> Self {
            let folder = Folder::new();
            let at = |name: &str| folder.path().join(name).display().to_string();
            let variables = vec![("PATH", at("bin")), ("ASCEND_RT_SYSROOT", at("")), ("HOME", at("me"))];
            Self { folder, variables }
        }

        fn at(&self, name: &str) -> String {
            self.folder.path().join(name).display().to_string()
        }

        fn set(&mut self, name: &'static str, value: impl Into<String>) {
            self.variables.retain(|(other, _)| *other != name);
            self.variables.push((name, value.into()));
        }

        fn report(&self) -> Report {
            examine(&System::of(self.variables.iter().cloned()))
        }

        /// A file that begins like a library for this machine.
        fn library(&self, name: &str, machine: u16) {
            let mut head = b"\x7fELF\x02\x01\x01".to_vec();
            head.resize(18, 0);
            head.extend(machine.to_le_bytes());
            self.folder.file(name, head);
        }

        fn cann(&self, root: &str, version: &str) {
            let host = std::env::consts::ARCH;
            self.folder.program(&format!("{root}/{host}-linux/ccec_compiler/bin/bisheng"), "echo bisheng 15");
            self.folder
                .file(&format!("{root}/{host}-linux/ascend_toolkit_install.info"), format!("version={version}\n"));
        }

        fn driver(&self) {
            self.folder.file("usr/local/Ascend/driver/version.info", "Version=25.0.rc1\n");
            self.library("usr/local/Ascend/driver/lib64/driver/libascend_hal.so", of_host());
        }

        fn card(&self) {
            for (file, text) in [("vendor", "0x19e5\n"), ("class", "0x120000\n"), ("device", "0xd802\n")] {
                self.folder.file(&format!("sys/bus/pci/devices/0000:c1:00.0/{file}"), text);
            }
            for node in ["davinci0", "davinci10", "davinci2", "davinci_manager", "devmm_svm", "hisi_hdc"] {
                self.folder.file(&format!("dev/{node}"), "");
            }
        }
    }

    fn of_host() -> u16 {
        MACHINES.iter().find(|(name, _)| *name == std::env::consts::ARCH).map_or(0, |(_, number)| *number)
    }

    fn line<'a>(report: &'a Report, what: &str) -> &'a Finding {
        report.findings().find(|finding| finding.what == what).unwrap_or_else(|| panic!("no {what} in\n{report}"))
    }

    #[test]
    fn an_empty_machine_lacks_all_and_nothing_is_broken() {
        let report = Machine::new().report();
        assert!(!report.is_broken(), "{report}");
        assert!(report.findings().all(|finding| finding.state == State::Missing), "{report}");
        assert!(report.findings().all(|finding| !finding.next.is_empty()), "each says what to do\n{report}");
        let text = report.to_string();
        assert!(
            text.contains("npu      not ready: driver, device nodes, libascendcl.so, libascend_hal.so\n"),
            "{text}"
        );
        assert!(text.ends_with(" 0 broken\n"), "{text}");
    }

    #[test]
    fn no_variables_at_all() {
        assert!(examine(&System::of([("ASCEND_RT_SYSROOT", "/nowhere")])).to_string().contains("doctor: 0 found"));
    }

    #[test]
    fn a_machine_with_a_card() {
        let mut machine = Machine::new();
        machine.card();
        machine.driver();
        machine.cann("usr/local/Ascend/cann", "9.1.0");
        machine.library("usr/local/Ascend/cann/lib64/libascendcl.so", of_host());
        machine.set("ASCEND_RT_VISIBLE_DEVICES", "2");
        let report = machine.report();
        assert!(!report.is_broken(), "{report}");
        assert_eq!(line(&report, "accelerator").detail, "0000:c1:00.0 (device 0xd802)");
        let nodes = &line(&report, "device nodes").detail;
        assert_eq!(
            *nodes,
            ["davinci0", "davinci2", "davinci10"].map(|node| machine.at(&format!("dev/{node}"))).join(", ")
        );
        assert!(line(&report, "driver").detail.starts_with("25.0.rc1, "));
        assert!(line(&report, "CANN").detail.ends_with("bisheng runs (bisheng 15); device code by architecture"));
        assert!(line(&report, "ASCEND_RT_VISIBLE_DEVICES").detail.starts_with("2: "));
        assert!(report.to_string().contains("npu      what it needs is there"), "{report}");
        assert_eq!(report.state("libmsprofiler.so"), Some(State::Missing));
    }

    #[test]
    fn a_card_without_driver_and_nodes_without_rights() {
        let machine = Machine::new();
        machine.card();
        let report = machine.report();
        assert_eq!(line(&report, "driver").state, State::Broken);
        std::fs::remove_file(machine.at("dev/hisi_hdc")).unwrap();
        let report = machine.report();
        assert!(line(&report, &machine.at("dev/hisi_hdc")).next.contains("container"), "{report}");
        std::fs::create_dir_all(machine.at("usr/local/Ascend/driver")).unwrap();
        let report = machine.report();
        assert!(line(&report, "driver").detail.ends_with("has no libascend_hal.so"), "{report}");
        // Where it is installed may be noted elsewhere.
        machine.folder.file("etc/ascend_install.info", "UserName=x\nDriver_Install_Path_Param=/opt/Ascend\n");
        machine.library("opt/Ascend/driver/lib64/libascend_hal.so", of_host());
        assert!(line(&machine.report(), "driver").detail.starts_with("of unknown version"));
    }

    #[test]
    fn roots_of_cann() {
        let mut machine = Machine::new();
        machine.set("ASCEND_HOME_PATH", machine.at("gone"));
        let report = machine.report();
        assert!(report.is_broken());
        assert!(line(&report, "ASCEND_HOME_PATH").detail.ends_with("gone is not there"), "{report}");
        assert_eq!(line(&report, "toolkit").state, State::Missing);

        machine.cann("cann", "8.2.RC1");
        machine.set("ASCEND_HOME_PATH", machine.at("cann"));
        let report = machine.report();
        assert!(line(&report, "ASCEND_HOME_PATH").detail.ends_with("device code through its CMake files"), "{report}");
        assert!(!report.is_broken() && report.state("toolkit").is_none(), "{report}");

        machine.cann("other", "8.0.RC3");
        machine.set("ASCEND_TOOLKIT_HOME", machine.at("other"));
        let report = machine.report();
        assert!(line(&report, "ASCEND_TOOLKIT_HOME").detail.ends_with("is older than 8.1"), "{report}");
        assert!(line(&report, "variables").next.contains("two versions are mixed"), "{report}");

        let bisheng = format!("cann/{}-linux/ccec_compiler/bin/bisheng", std::env::consts::ARCH);
        machine.folder.program(&bisheng, "echo 'libtinfo.so.5: cannot open' >&2; exit 127");
        let report = machine.report();
        assert!(line(&report, "ASCEND_HOME_PATH").detail.ends_with("fails: libtinfo.so.5: cannot open"), "{report}");
        std::fs::remove_file(machine.at(&bisheng)).unwrap();
        assert!(line(&machine.report(), "ASCEND_HOME_PATH").detail.ends_with("no bisheng in it"));
    }

    #[test]
    fn libraries_that_are_of_no_use() {
        let mut machine = Machine::new();
        machine.set("LD_LIBRARY_PATH", format!("{}:{}", machine.at("cann/lib64/stub"), machine.at("lib")));
        machine.library("cann/lib64/stub/libascendcl.so", of_host());
        let report = machine.report();
        assert!(line(&report, "libascendcl.so").detail.contains("a link stub"), "{report}");
        assert_eq!(line(&report, "LD_LIBRARY_PATH").state, State::Broken);

        // One that follows the stub is taken.
        machine.library("lib/libascendcl.so", of_host());
        assert_eq!(line(&machine.report(), "libascendcl.so").state, State::Found);

        machine.library("lib/libmsprofiler.so", 243);
        machine.folder.file("lib/libms_tools_ext.so", "text");
        std::fs::create_dir_all(machine.at("lib/libascend_hal.so")).unwrap();
        let report = machine.report();
        for (what, part) in [
            ("libmsprofiler.so", "made for machine 243"),
            ("libms_tools_ext.so", "not an ELF file"),
            ("libascend_hal.so", "a folder"),
        ] {
            let finding = line(&report, what);
            assert!(finding.state == State::Broken && finding.detail.contains(part), "{report}");
        }
        machine
            .folder
            .program("bin/ldd", "echo '\tlibascend_hal.so => not found'; echo '\tlibc.so.6 => /lib/libc.so.6'");
        let report = machine.report();
        let finding = line(&report, "libascendcl.so");
        assert!(
            finding.state == State::Broken && finding.detail.ends_with(" needs libascend_hal.so, not found"),
            "{report}"
        );

        machine.set("ASCEND_RT_LIB", machine.at("lib/gone.so"));
        assert_eq!(line(&machine.report(), "ASCEND_RT_LIB").state, State::Broken);
    }

    #[test]
    fn tools_that_do_not_work() {
        let mut machine = Machine::new();
        machine.folder.program("bin/cmake", "echo cmake version 3.25");
        machine.folder.program("bin/python3", "exit 1");
        machine.folder.program(
            "bin/g++",
            "[ \"$1\" = --version ] && { echo g++ 4; exit 0; }; echo 'unknown option -std=c++17'; exit 1",
        );
        machine.set("CC", "clang-99");
        let report = machine.report();
        assert_eq!(line(&report, "cmake").detail, format!("{}: cmake version 3.25", machine.at("bin/cmake")));
        assert!(line(&report, "python3").detail.contains("--version fails"), "{report}");
        assert!(line(&report, "C++ compiler").detail.contains("does not compile C++17: unknown option"), "{report}");
        assert_eq!(line(&report, "C compiler").detail, "CC=clang-99 is no program");
        machine.folder.program("bin/g++", "echo g++ 12");
        assert!(line(&machine.report(), "C++ compiler").detail.ends_with("compiles C++17"));
    }

    #[test]
    fn headers_and_libclang() {
        let mut machine = Machine::new();
        machine.folder.file("usr/lib/llvm-14/lib/libclang.so.1", "");
        machine.folder.file("include/acl/acl.h", "");
        machine.set("ACL_INCLUDE", machine.at("include"));
        machine.folder.file("usr/lib/llvm-14/lib/libclang-cpp.so.14", "");
        let report = machine.report();
        assert_eq!(line(&report, "libclang").detail, machine.at("usr/lib/llvm-14/lib/libclang.so.1"));
        assert_eq!(line(&report, "genuine headers").detail, machine.at("include"));
        machine.set("ACL_INCLUDE", machine.at("nowhere"));
        machine.set("LIBCLANG_PATH", machine.at("nowhere"));
        let report = machine.report();
        assert_eq!(line(&report, "libclang").state, State::Broken);
        assert_eq!(line(&report, "genuine headers").state, State::Broken);
    }

    #[test]
    fn whatever_lies_there_is_answered() {
        let mut machine = Machine::new();
        machine.card();
        for file in
            ["usr/local/Ascend/driver/version.info", "etc/ascend_install.info", "usr/local/Ascend/cann/version.info"]
        {
            machine.folder.file(file, b"Version=\xff\xfe\nversion=\xff.\n\0");
        }
        std::fs::create_dir_all(machine.at("bin/git")).unwrap();
        machine.folder.file("usr/local/Ascend/ascend-toolkit/latest", "a file");
        std::os::unix::fs::symlink("loop", machine.at("loop")).unwrap();
        machine.set("LD_LIBRARY_PATH", format!("{}::/dev/null", machine.at("loop")));
        machine.set("ASCEND_HOME_PATH", machine.at("loop"));
        machine.set("LIBCLANG_PATH", machine.at("loop"));
        machine.set("CXX", "/");
        let report = machine.report();
        assert!(report.is_broken() && !report.to_string().is_empty());
    }
}
