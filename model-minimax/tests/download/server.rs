// SPDX-License-Identifier: MIT OR Apache-2.0

//! A hub on the loopback interface that behaves as a test says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: BTreeMap<String, String>,
}

impl Request {
    /// The byte that `Range` asks for first.
    pub(super) fn from(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }

    /// The name of the file, if it is one that is asked for.
    pub(super) fn file(&self) -> Option<&str> {
        self.path.split_once("/resolve/")?.1.split_once('/').map(|(_, file)| file)
    }
}

/// What is answered.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// Bytes after which the connection is cut.
    pub(super) cut: Option<usize>,
    /// Pause between pieces of 16 KiB.
    pub(super) pause: Duration,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), cut: None, pause: Duration::ZERO }
    }

    pub(super) fn body(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::status(200) }
    }

    pub(super) fn cut_after(self, bytes: usize) -> Self {
        Self { cut: Some(bytes), ..self }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

type Handler = dyn Fn(&Request, &Repository) -> Option<Reply> + Send + Sync;

/// What the hub has.
pub(super) struct Repository {
    pub(super) files: BTreeMap<&'static str, Vec<u8>>,
}

pub(super) const MODEL: &str = "MiniMaxAI/Tiny";
pub(super) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

impl Repository {
    /// A small file without a sum and three with one, the last in a folder.
    pub(super) fn new() -> Self {
        let noise = |seed: u32, len: usize| -> Vec<u8> {
            (0..len as u32).map(|i| ((i ^ seed).wrapping_mul(0x9E37_79B9) >> 24) as u8).collect()
        };
        let files = BTreeMap::from([
            ("config.json", b"{\"model_type\": \"tiny\"}".to_vec()),
            ("model-00001-of-00002.safetensors", noise(1, 300_000)),
            ("model-00002-of-00002.safetensors", noise(2, 200_001)),
            ("extra/notes #1.bin", noise(3, 1000)),
        ]);
        Self { files }
    }

    pub(super) fn listing(&self) -> serde_json::Value {
        let siblings: Vec<_> = (self.files.iter())
            .map(|(name, content)| {
                let mut sibling =
                    json!({ "rfilename": name, "size": content.len(), "blobId": hex(&content.len().to_le_bytes()) });
                if !name.ends_with(".json") {
                    sibling["lfs"] = json!({ "sha256": sha256(content), "size": content.len(), "pointerSize": 130 });
                }
                sibling
            })
            .collect();
        json!({ "id": MODEL, "sha": COMMIT, "siblings": siblings })
    }

    /// As a hub that does everything right.
    pub(super) fn answer(&self, request: &Request) -> Reply {
        if request.path == format!("/api/models/{MODEL}/revision/main?blobs=true") {
            return Reply::body(self.listing().to_string());
        }
        let file = request
            .path
            .strip_prefix(&format!("/{MODEL}/resolve/{COMMIT}/"))
            .map(|name| name.replace("%20", " ").replace("%23", "#"));
        let Some(content) = file.and_then(|name| self.files.get(name.as_str())) else { return Reply::status(404) };
        match request.from() {
            None => Reply::body(content.clone()),
            Some(from) if from >= content.len() => Reply::status(416),
            Some(from) => Reply {
                status: 206,
                headers: vec![("Content-Range", format!("bytes {from}-{}/{}", content.len() - 1, content.len()))],
                ..Reply::body(&content[from..])
            },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

pub(super) struct Server {
    scheme: &'static str,
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// `handler` sees each request first; what it answers with `None` is answered right.
    pub(super) fn start(handler: impl Fn(&Request, &Repository) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::start_with("http", handler, |stream, handler, log| serve(stream, handler, log))
    }

    /// The same over TLS, with `server.pem` and `server.key` of a folder.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn start_tls(
        folder: &std::path::Path,
        handler: impl Fn(&Request, &Repository) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let chain = vec![CertificateDer::from_pem_file(folder.join("server.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        Self::start_with("https", handler, move |stream, handler, log| {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).map_err(std::io::Error::other)?;
            serve(rustls::StreamOwned::new(connection, stream), handler, log)
        })
    }

    fn start_with(
        scheme: &'static str,
        handler: impl Fn(&Request, &Repository) -> Option<Reply> + Send + Sync + 'static,
        talk: impl Fn(TcpStream, &Handler, &Mutex<Vec<Request>>) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let shared = Arc::new((handler, talk));
        let (log, stopped) = (Arc::clone(&requests), Arc::clone(&stop));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (shared, log) = (Arc::clone(&shared), Arc::clone(&log));
                // A client that goes away is no failure of the server.
                std::thread::spawn(move || stream.and_then(|stream| (shared.1)(stream, &shared.0, &log)));
            }
        });
        Self { scheme, address, requests, stop }
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests for files: name and first byte.
    pub(super) fn files(&self) -> Vec<(String, Option<usize>)> {
        let requests = self.requests();
        requests.iter().filter_map(|request| Some((request.file()?.to_owned(), request.from()))).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listener; that it is gone already is all right.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the requests of one connection.
fn serve(stream: impl Read + Write, handler: &Handler, log: &Mutex<Vec<Request>>) -> std::io::Result<()> {
    let repository = Repository::new();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let request = Request { path, headers };
        log.lock().unwrap().push(request.clone());
        let reply = handler(&request, &repository).unwrap_or_else(|| repository.answer(&request));
        let Reply { status, mut headers, body, cut, pause } = reply;
        if !headers.iter().any(|(name, _)| *name == "Content-Length") {
            headers.push(("Content-Length", body.len().to_string()));
        }
        let mut head = format!("HTTP/1.1 {status} Status\r\n");
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        let stream = reader.get_mut();
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        for piece in body[..cut.unwrap_or(body.len()).min(body.len())].chunks(16 << 10) {
            stream.write_all(piece)?;
            stream.flush()?;
            std::thread::sleep(pause);
        }
        stream.flush()?;
        if cut.is_some() {
            // Dropping the stream closes the connection.
            return Ok(());
        }
    }
}
