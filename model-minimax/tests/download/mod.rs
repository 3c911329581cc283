// SPDX-License-Identifier: MIT OR Apache-2.0

//! Downloads from a server on the loopback interface, which cuts, lies, refuses and redirects.

mod server;

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model_minimax::download::{DownloadError, DownloadOptions, Downloaded, Progress, Source, download};
use serde_json::json;

use crate::scratch::Scratch;
use server::{COMMIT, MODEL, Reply, Repository, Server};

const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";

fn source(server: &Server) -> Source {
    Source {
        endpoint: server.url(),
        model_id: MODEL.to_owned(),
        revision: "main".to_owned(),
        token: None,
        certificates: None,
    }
}

/// An address where nothing listens.
fn nobody() -> String {
    format!("http://{}:1", std::net::Ipv4Addr::LOCALHOST)
}

fn options() -> DownloadOptions {
    DownloadOptions { retries: 3, backoff: Duration::from_millis(1), ..DownloadOptions::default() }
}

fn fetch(server: &Server, dir: &Path) -> Result<Downloaded, DownloadError> {
    download(&source(server), dir, &options(), |_| ())
}

/// All files are there with their content, and nothing else but the state.
fn assert_whole(dir: &Path) {
    let files = Repository::new().files;
    for (name, content) in &files {
        assert!(fs::read(dir.join(name)).unwrap() == *content, "{name}");
    }
    let mut left: Vec<_> = fs::read_dir(dir.join(".download")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["lock", "state.json"]);
}

fn total() -> u64 {
    Repository::new().files.values().map(|content| content.len() as u64).sum()
}

#[test]
fn a_repository_becomes_a_folder_and_is_not_fetched_twice() {
    let server = Server::start(|_, _| None);
    let scratch = Scratch::new();
    let dir = scratch.path().join("a/model");
    let events = Mutex::new(Vec::new());
    let done = download(&source(&server), &dir, &options(), |event| events.lock().unwrap().push(event)).unwrap();
    assert_eq!(done, Downloaded { commit: COMMIT.to_owned(), files: 4, bytes: total(), fetched: total() });
    assert_whole(&dir);
    let events = events.into_inner().unwrap();
    assert_eq!(events[0], Progress::Plan { files: 4, bytes: total(), present: 0 });
    let finished = events.iter().filter(|event| matches!(event, Progress::Finished { .. })).count();
    let ends = events.iter().filter(|event| matches!(event, Progress::File { done, size, .. } if done == size)).count();
    assert!(finished == 4 && ends >= 4, "{events:?}");

    let done = fetch(&server, &dir).unwrap();
    assert_eq!((done.files, done.fetched), (4, 0));
    assert_eq!(server.files().len(), 4, "only the list is asked for again");
    // A file that was changed keeps its length: it is noticed where sums are computed, and fetched again.
    let mut content = fs::read(dir.join(FIRST)).unwrap();
    content[7] ^= 1;
    fs::write(dir.join(FIRST), &content).unwrap();
    let verify = DownloadOptions { verify: true, ..options() };
    assert_eq!(download(&source(&server), &dir, &verify, |_| ()).unwrap().fetched, content.len() as u64);
    assert_whole(&dir);
    // Without notes, what is there is read; only the file without a sum is fetched.
    fs::remove_file(dir.join(".download/state.json")).unwrap();
    assert_eq!(fetch(&server, &dir).unwrap().fetched, 22);
}

#[test]
fn patterns_choose_files() {
    let server = Server::start(|_, _| None);
    let scratch = Scratch::new();
    let fetch = |allow: &[&str], ignore: &[&str]| {
        let list = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let options = DownloadOptions { allow: list(allow), ignore: list(ignore), ..options() };
        download(&source(&server), scratch.path(), &options, |_| ())
    };
    assert_eq!(fetch(&["*.json", "model-*"], &["*00002-of*"]).unwrap().files, 2);
    assert!(scratch.path().join(FIRST).exists() && !scratch.path().join(SECOND).exists());
    let error = fetch(&["*.gguf"], &[]).unwrap_err().to_string();
    assert!(
        error.contains("no file of MiniMaxAI/Tiny passes the patterns; it has config.json, extra/notes"),
        "{error}"
    );
}

#[test]
fn a_cut_connection_is_resumed_where_it_was_cut() {
    // The first answer of each file ends early, the second too; the third is whole.
    let cuts = AtomicUsize::new(0);
    let server = Server::start(move |request, repository| {
        let cut = request.file() == Some(FIRST) && cuts.fetch_add(1, Ordering::Relaxed) < 2;
        cut.then(|| repository.answer(request).cut_after(100_000))
    });
    let scratch = Scratch::new();
    let done = fetch(&server, scratch.path()).unwrap();
    assert_eq!(done.fetched, total(), "no byte came twice");
    assert_whole(scratch.path());
    let asked: Vec<_> = server.files().into_iter().filter(|(file, _)| file == FIRST).map(|(_, from)| from).collect();
    assert_eq!(asked, [None, Some(100_000), Some(200_000)]);
}

#[test]
fn a_server_that_ignores_ranges_is_read_from_the_start() {
    let first = AtomicUsize::new(0);
    let server = Server::start(move |request, repository| {
        let content = repository.files.get(request.file()?)?;
        let cut = request.file() == Some(FIRST) && first.fetch_add(1, Ordering::Relaxed) == 0;
        Some(if cut { Reply::body(content.clone()).cut_after(70_000) } else { Reply::body(content.clone()) })
    });
    let scratch = Scratch::new();
    assert_eq!(fetch(&server, scratch.path()).unwrap().fetched, total() + 70_000);
    assert_whole(scratch.path());
    // One that ignores ranges and always cuts at the same place is given up, not asked for ever.
    let server = Server::start(|request, repository| {
        let content = repository.files.get(request.file()?)?.clone();
        (request.file() == Some(FIRST)).then(|| Reply::body(content).cut_after(70_000))
    });
    let other = Scratch::new();
    let error = fetch(&server, other.path()).unwrap_err().to_string();
    assert!(error.contains("cut after 70000 of 300000 bytes"), "{error}");
    assert_eq!(server.files().iter().filter(|(file, _)| file == FIRST).count(), 1 + 1 + 3);
}

#[test]
fn lies_about_length_and_place_are_noticed() {
    type Lie = fn(&Repository) -> Reply;
    let lies: [(Lie, &str); 4] = [
        // A short page of some proxy.
        (|_| Reply::body("Please log in"), "should have 300000 bytes, the server has 13"),
        // Announces what it does not send.
        (
            |r| Reply::body(&r.files[FIRST][..1000]).with("Content-Length", "300000").cut_after(1000),
            "cut after 1000 of 300000",
        ),
        // Sends more than there should be.
        (
            |r| {
                Reply { status: 206, ..Reply::body([&r.files[FIRST][..], b"more"].concat()) }
                    .with("Content-Range", "bytes 0-300003/300004")
            },
            "should have 300000 bytes, the server has 300004",
        ),
        // Another part than that asked for.
        (
            |r| {
                Reply { status: 206, ..Reply::body(&r.files[FIRST][5..]) }
                    .with("Content-Range", "bytes 5-299999/300000")
            },
            "sends bytes from 5 on, asked for were those from 0 on",
        ),
    ];
    for (lie, message) in lies {
        let server = Server::start(move |request, repository| (request.file() == Some(FIRST)).then(|| lie(repository)));
        let scratch = Scratch::new();
        let error = fetch(&server, scratch.path()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(!scratch.path().join(FIRST).exists());
        // A better server makes it whole.
        fetch(&Server::start(|_, _| None), scratch.path()).unwrap();
        assert_whole(scratch.path());
    }
}

#[test]
fn wrong_content_of_the_right_length_never_reaches_its_place() {
    let server = Server::start(|request, repository| {
        let mut content = repository.files.get(request.file()?)?.clone();
        content[3] ^= 0x10;
        (request.file() == Some(SECOND)).then(|| Reply::body(content))
    });
    let scratch = Scratch::new();
    let error = fetch(&server, scratch.path()).unwrap_err();
    let DownloadError::Checksum { path, expected, found } = &error else { panic!("{error}") };
    assert_eq!((path.as_str(), expected), (SECOND, &server::sha256(&Repository::new().files[SECOND])));
    assert_ne!(expected, found);
    assert!(!scratch.path().join(SECOND).exists());
    assert_eq!(server.files().iter().filter(|(file, _)| file == SECOND).count(), 2);
    // Damage of what was kept from an earlier run is repaired: the sum fails once, then it is fetched anew.
    let work = scratch.path().join(".download");
    let kept = format!("{}.{SECOND}.part", server::sha256(&Repository::new().files[SECOND]));
    fs::write(work.join(kept), vec![0; 150_000]).unwrap();
    let server = Server::start(|_, _| None);
    fetch(&server, scratch.path()).unwrap();
    assert_whole(scratch.path());
    let asked: Vec<_> = server.files().into_iter().filter(|(file, _)| file == SECOND).map(|(_, from)| from).collect();
    assert_eq!(asked, [Some(150_000), None]);
}

#[test]
fn refusals_say_what_to_do() {
    let scratch = Scratch::new();
    let answer = |status: u16| Server::start(move |_, _| Some(Reply::status(status)));
    let error = |server: &Server, token: Option<&str>| {
        let source = Source { token: token.map(str::to_owned), ..source(server) };
        download(&source, scratch.path(), &options(), |_| ()).unwrap_err()
    };
    let refused = answer(401);
    assert!(error(&refused, None).to_string().contains("answers 401: a token is needed (--token or HF_TOKEN)"));
    let message = error(&answer(403), Some("secret")).to_string();
    assert!(
        message.contains("answers 403: the token does not give access") && !message.contains("secret"),
        "{message}"
    );
    assert_eq!(refused.requests().len(), 1, "not asked again");
    assert!(matches!(error(&answer(404), None), DownloadError::NotFound { url } if url.contains(MODEL)));
    assert!(matches!(error(&answer(418), None), DownloadError::Status { status: 418, .. }));
    // Neither is the token of a source printed.
    let source = Source { token: Some("secret".to_owned()), ..source(&refused) };
    assert!(!format!("{source:?}").contains("secret"));

    let file_refused = Server::start(|request, _| (request.file() == Some(SECOND)).then(|| Reply::status(404)));
    let refused = fetch(&file_refused, scratch.path()).unwrap_err().to_string();
    assert!(refused.contains(&format!("/resolve/{COMMIT}/{SECOND} answers 404")), "{refused}");
    // A list that does not come is asked for again.
    let busy = answer(503);
    assert!(matches!(error(&busy, None), DownloadError::Status { status: 503, .. }));
    assert_eq!(busy.requests().len(), 1 + 3);
    let closed = Source { endpoint: nobody(), ..source };
    let error = download(&closed, scratch.path(), &options(), |_| ()).unwrap_err();
    assert!(matches!(error, DownloadError::Network { .. }), "{error}");
}

#[test]
fn busy_servers_are_asked_again_after_the_wait_that_they_ask_for() {
    let busy = AtomicUsize::new(0);
    let server = Server::start(move |request, _| {
        match busy.fetch_add(usize::from(request.file() == Some(FIRST)), Ordering::Relaxed) {
            _ if request.file() != Some(FIRST) => None,
            0 => Some(Reply::status(429).with("Retry-After", "0")),
            1 => Some(Reply::status(503)),
            _ => None,
        }
    });
    let scratch = Scratch::new();
    let waits = Mutex::new(Vec::new());
    let watch = |event| {
        if let Progress::Waiting { path, why, wait } = event {
            waits.lock().unwrap().push((path, why, wait));
        }
    };
    let options = DownloadOptions { parallel: NonZeroUsize::MIN, ..options() };
    download(&source(&server), scratch.path(), &options, watch).unwrap();
    assert_whole(scratch.path());
    let waits = waits.into_inner().unwrap();
    let [(path, why, wait), (_, later, _)] = waits.as_slice() else { panic!("{waits:?}") };
    assert_eq!((path.as_str(), *wait), (FIRST, Duration::ZERO));
    assert!(why.contains("answers 429: too many requests") && later.contains("answers 503"), "{waits:?}");
    // One that stays busy is given up.
    let server = Server::start(|request, _| request.file().map(|_| Reply::status(429).with("Retry-After", "0")));
    let other = Scratch::new();
    let error = download(&source(&server), other.path(), &options, |_| ()).unwrap_err();
    assert!(matches!(error, DownloadError::TooManyRequests { .. }));
    assert_eq!(server.files().len(), 1 + 3);
}

#[test]
fn redirects_are_followed_without_the_token() {
    let store = Server::start(|request, repository| {
        // Addresses of the store have no meaning but to it.
        let name = request.path.strip_prefix("/store?file=")?;
        let content = &repository.files[name.replace("%20", " ").replace("%23", "#").as_str()];
        Some(match request.from() {
            Some(from) => Reply { status: 206, ..Reply::body(&content[from..]) }
                .with("Content-Range", format!("bytes {from}-{}/{}", content.len() - 1, content.len())),
            None => Reply::body(content.clone()).cut_after(if name == FIRST { 1000 } else { usize::MAX }),
        })
    });
    // Another name of the same machine is another host.
    let address = store.url().replace("127.0.0.1", "localhost");
    let hub = Server::start(move |request, _| {
        let moved = format!("{address}/store?file={}", request.file()?);
        Some(Reply::status(302).with("Location", moved))
    });
    let scratch = Scratch::new();
    let source = Source { token: Some("secret".to_owned()), ..source(&hub) };
    download(&source, scratch.path(), &options(), |_| ()).unwrap();
    assert_whole(scratch.path());
    let has_token = |request: &server::Request| request.headers.contains_key("authorization");
    assert!(hub.requests().iter().all(|request| request.headers["authorization"] == "Bearer secret"));
    assert!(!store.requests().iter().any(has_token));
    // The range goes along.
    assert!(store.requests().iter().any(|request| request.from() == Some(1000)));
}

#[test]
fn lists_that_lead_out_of_the_folder_or_are_none_are_refused() {
    let scratch = Scratch::new();
    let file = |name: &str| json!({ "rfilename": name, "size": 1, "blobId": "ab" });
    let cases = [
        (json!("no"), "invalid type"),
        (json!({ "sha": "main", "siblings": [] }), "its commit is \"main\""),
        (json!({ "sha": COMMIT, "siblings": [file("../evil")] }), "names the file \"../evil\""),
        (json!({ "sha": COMMIT, "siblings": [file("/etc/evil")] }), "names the file \"/etc/evil\""),
        (json!({ "sha": COMMIT, "siblings": [file(".download/lock")] }), "names the file \".download/lock\""),
        (json!({ "sha": COMMIT, "siblings": [file("a"), file("a")] }), "names a twice"),
        (json!({ "sha": COMMIT, "siblings": [{ "rfilename": "a", "blobId": "ab" }] }), "gives no size for a"),
        (json!({ "sha": COMMIT, "siblings": [{ "rfilename": "a", "size": 1, "blobId": "../x" }] }), "the id of a is"),
    ];
    for (listing, message) in cases {
        let server = Server::start(move |_, _| Some(Reply::body(listing.to_string())));
        let error = fetch(&server, scratch.path()).unwrap_err().to_string();
        assert!(
            error.contains("/api/models/MiniMaxAI/Tiny/revision/main?blobs=true cannot be used: ")
                && error.contains(message),
            "{error}"
        );
    }
    let server = Server::start(|_, _| None);
    for id in ["Tiny", "a/b/c", "../x", "a/ b", "a/", "/b"] {
        let source = Source { model_id: id.to_owned(), ..source(&server) };
        let error = download(&source, scratch.path(), &options(), |_| ()).unwrap_err();
        assert!(matches!(error, DownloadError::BadModelId { .. }), "{id}");
    }
    let ftp = Source { endpoint: "ftp://huggingface.co".to_owned(), ..source(&server) };
    assert!(matches!(download(&ftp, scratch.path(), &options(), |_| ()), Err(DownloadError::BadEndpoint { .. })));
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn offline_nothing_is_asked_and_what_is_missing_is_named() {
    let server = Server::start(|_, _| None);
    let scratch = Scratch::new();
    let dir = scratch.path().join("model");
    let offline = |model_id: &str| {
        let source = Source { endpoint: nobody(), model_id: model_id.to_owned(), ..source(&server) };
        download(&source, &dir, &DownloadOptions { offline: true, ..options() }, |_| ())
    };
    assert!(offline(MODEL).unwrap_err().to_string().contains("no download into it has begun"));
    fetch(&server, &dir).unwrap();
    let done = offline(MODEL).unwrap();
    assert_eq!(done, Downloaded { commit: COMMIT.to_owned(), files: 4, bytes: total(), fetched: 0 });
    assert!(offline("MiniMaxAI/Other").unwrap_err().to_string().contains("was downloaded from MiniMaxAI/Tiny"));
    fs::remove_file(dir.join(SECOND)).unwrap();
    let error = offline(MODEL).unwrap_err().to_string();
    assert!(error.contains(&format!("1 files of 200001 bytes are not in place, such as {SECOND}")), "{error}");
}

/// The program, with nothing in its environment.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_model-minimax"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

#[test]
fn a_killed_download_goes_on_where_it_was() {
    let slow = AtomicUsize::new(0);
    let server = Server::start(move |request, repository| {
        let is_first = request.file() == Some(FIRST) && slow.fetch_add(1, Ordering::Relaxed) == 0;
        // 300 kB in 19 pieces: many seconds.
        is_first.then(|| Reply { pause: Duration::from_millis(500), ..repository.answer(request) })
    });
    let scratch = Scratch::new();
    let dir = scratch.path().join("model");
    let url = server.url();
    let arguments = ["download", "--model-id", MODEL, "--output-dir", dir.to_str().unwrap(), "--endpoint", &url];
    let mut child = program(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let part = dir.join(".download").join(format!("{}.{FIRST}.part", server::sha256(&Repository::new().files[FIRST])));
    let arrived = || fs::metadata(&part).map_or(0, |part| part.len());
    while arrived() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SIGKILL on Unix.
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    let kept = arrived();
    assert!((1..300_000).contains(&kept), "{kept}");
    assert!(!dir.join(FIRST).exists());

    let output = program(&arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_whole(&dir);
    let asked: Vec<_> = server.files().into_iter().filter(|(file, _)| file == FIRST).map(|(_, from)| from).collect();
    assert_eq!(asked, [None, Some(kept as usize)]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("export MODEL_PATH={}\n", dir.display()));
    assert!(stderr.contains(&format!("commit {COMMIT}: 4 files, {} bytes in place", total())), "{stderr}");
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn https_is_verified_with_the_certificates_given() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/download/tls");
    let server = Server::start_tls(&folder, |request, repository| {
        (request.file() == Some(FIRST) && request.from().is_none())
            .then(|| repository.answer(request).cut_after(150_000))
    });
    let scratch = Scratch::new();
    let with = |certificates: Option<&str>| {
        let source = Source { certificates: certificates.map(|name| folder.join(name)), ..source(&server) };
        download(&source, scratch.path(), &options(), |_| ())
    };
    assert!(server.url().starts_with("https://"));
    // The built-in roots do not know this one.
    let error = with(None).unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert_eq!(with(Some("ca.pem")).unwrap().files, 4);
    assert_whole(scratch.path());
    assert!(server.files().iter().any(|(file, from)| file == FIRST && from.is_some()));
    assert!(with(Some("absent.pem")).unwrap_err().to_string().contains("absent.pem: "));
    assert!(with(Some("server.key")).unwrap_err().to_string().contains("server.key: it holds none"));
}

#[test]
fn two_downloads_into_one_folder_are_refused() {
    let scratch = Scratch::new();
    let work = scratch.path().join(".download");
    fs::create_dir_all(&work).unwrap();
    let lock = fs::File::create(work.join("lock")).unwrap();
    lock.lock().unwrap();
    let error = fetch(&Server::start(|_, _| None), scratch.path()).unwrap_err();
    assert!(matches!(error, DownloadError::Busy { .. }), "{error}");
}

#[test]
fn the_program_reads_the_variables_of_the_hub() {
    let refused = Server::start(|_, _| Some(Reply::status(401)));
    let scratch = Scratch::new();
    let dir = scratch.path().to_str().unwrap();
    let run = |variables: &[(&str, &str)], more: &[&str]| {
        let arguments = [&["download", "--model-id", MODEL, "--output-dir", dir], more].concat();
        let output = program(&arguments).envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let url = refused.url();
    let token = scratch.write("token", "from-file\n");
    run(&[("HF_ENDPOINT", &url), ("HF_TOKEN", "from-variable")], &[]);
    run(&[("HF_ENDPOINT", &url), ("HF_TOKEN", "")], &[]);
    run(&[("HF_ENDPOINT", &url), ("HF_TOKEN_PATH", token.to_str().unwrap())], &[]);
    run(&[("HF_ENDPOINT", &url), ("HF_HOME", dir)], &["--token", "from-flag", "--revision", "refs/pr/1"]);
    run(&[("HF_ENDPOINT", &url), ("HF_HOME", dir)], &[]);
    let requests = refused.requests();
    let tokens: Vec<_> = requests.iter().map(|r| r.headers.get("authorization").map(String::as_str)).collect();
    let bearer = ["from-variable", "", "from-file", "from-flag", "from-file"].map(|token| format!("Bearer {token}"));
    let expected: Vec<_> = bearer.iter().map(|b| Some(b.as_str()).filter(|b| b.len() > 7)).collect();
    assert_eq!(tokens, expected);
    assert!(requests[3].path.ends_with("/revision/refs%2Fpr%2F1?blobs=true"), "{}", requests[3].path);
    let offline = run(&[("HF_HUB_OFFLINE", "1")], &[]);
    assert!(offline.contains("offline, and") && offline.contains("no download into it has begun"), "{offline}");
    let help = program(&["download", "--help"]).env("HF_TOKEN", "secret").output().unwrap();
    let knobs = program(&["list-knobs"]).env("HF_TOKEN", "secret").output().unwrap();
    for output in [help, knobs] {
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("HF_TOKEN") && !text.contains("secret"), "{text}");
    }
}
