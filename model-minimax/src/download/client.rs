// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests to the hub.

use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, Body};

use super::{DownloadError, Entry, Source};

/// A connection that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest list of files.
const MAX_LISTING: u64 = 64 << 20;
/// No wait that a server asks for is longer.
const MAX_WAIT: u64 = 300;

pub(super) struct Client {
    agent: Agent,
    source: Source,
}

/// A request that failed.
pub(super) enum Failure {
    /// Another attempt may do, after the wait that the server asks for.
    Again(DownloadError, Option<Duration>),
    /// It would fail again.
    Final(DownloadError),
}

impl Failure {
    pub(super) fn into_error(self) -> DownloadError {
        match self {
            Self::Again(error, _) | Self::Final(error) => error,
        }
    }
}

/// What is read of a repository's description.
#[derive(Deserialize)]
struct Description {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Client {
    pub(super) fn new(source: &Source) -> Result<Self, DownloadError> {
        let mut source = source.clone();
        source.endpoint.truncate(source.endpoint.trim_end_matches('/').len());
        let https = source.endpoint.starts_with("https://");
        if !https && !source.endpoint.starts_with("http://") {
            return Err(DownloadError::BadEndpoint { found: source.endpoint });
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("model-minimax/", env!("CARGO_PKG_VERSION")))
            // A token is for the hub: the store that it redirects to has its own signatures in the address.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(SILENCE))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE));
        match tls(&source) {
            Ok(tls) => config = config.tls_config(tls),
            Err(error) if https => return Err(error),
            // A plain endpoint needs none unless it redirects to one that does, which then fails.
            Err(_) => (),
        }
        Ok(Self { agent: config.build().new_agent(), source })
    }

    /// The commit of the revision, and its files.
    pub(super) fn list(&self) -> Result<(String, Vec<Entry>), Failure> {
        let Source { endpoint, model_id, revision, .. } = &self.source;
        let url = format!("{endpoint}/api/models/{model_id}/revision/{}?blobs=true", encode(revision, false));
        let mut response = self.get(&url, 0)?;
        let bad = |what: String| Failure::Final(DownloadError::Listing { url: url.clone(), what });
        let body = response.body_mut().with_config().limit(MAX_LISTING).read_to_vec();
        let cut = |error: ureq::Error| DownloadError::Network { url: url.clone(), what: error.to_string() };
        let body = body.map_err(|error| Failure::Again(cut(error), None))?;
        let Description { sha, siblings } = serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
        if !is_hex(&sha) {
            return Err(bad(format!("its commit is {sha:?}")));
        }
        let mut entries = Vec::with_capacity(siblings.len());
        let mut paths = BTreeSet::new();
        for Sibling { rfilename: path, size, blob_id, lfs } in siblings {
            let plain = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
            if path.is_empty() || !plain || path.contains('\\') || path.starts_with(super::WORK) {
                return Err(bad(format!("it names the file {path:?}, which is not below the folder")));
            }
            let (size, sha256) = match (size, lfs) {
                (_, Some(Lfs { sha256, size })) => (size, Some(sha256.to_ascii_lowercase())),
                (Some(size), None) => (size, None),
                (None, None) => return Err(bad(format!("it gives no size for {path}"))),
            };
            let id = sha256.clone().or(blob_id).ok_or_else(|| bad(format!("it gives no id for {path}")))?;
            if !is_hex(&id) {
                return Err(bad(format!("the id of {path} is {id:?}")));
            }
            if !paths.insert(path.clone()) {
                return Err(bad(format!("it names {path} twice")));
            }
            entries.push(Entry { path, size, sha256, id });
        }
        Ok((sha, entries))
    }

    /// Address of a file of a commit.
    pub(super) fn file_url(&self, commit: &str, path: &str) -> String {
        let Source { endpoint, model_id, .. } = &self.source;
        format!("{endpoint}/{model_id}/resolve/{commit}/{}", encode(path, true))
    }

    /// The response to a request for `url` from byte `from` on; its status is 200, 206 or 416.
    pub(super) fn get(&self, url: &str, from: u64) -> Result<Response<Body>, Failure> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.source.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        let url = || url.to_owned();
        let response = request.call().map_err(|error| match error {
            ureq::Error::TooManyRedirects | ureq::Error::BadUri(_) | ureq::Error::Rustls(_) | ureq::Error::Tls(_) => {
                Failure::Final(DownloadError::Network { url: url(), what: error.to_string() })
            }
            _ => Failure::Again(DownloadError::Network { url: url(), what: error.to_string() }, None),
        })?;
        let status = response.status();
        match status.as_u16() {
            200 | 206 | 416 => Ok(response),
            401 | 403 => {
                let token = self.source.token.is_some();
                Err(Failure::Final(DownloadError::Unauthorized { url: url(), status: status.as_u16(), token }))
            }
            404 => Err(Failure::Final(DownloadError::NotFound { url: url() })),
            429 => {
                let wait = header(&response, "retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
                let wait = wait.map(|seconds| Duration::from_secs(seconds.min(MAX_WAIT)));
                Err(Failure::Again(DownloadError::TooManyRequests { url: url() }, wait))
            }
            code if code == 408 || status.is_server_error() => {
                Err(Failure::Again(DownloadError::Status { url: url(), status: code }, None))
            }
            status => Err(Failure::Final(DownloadError::Status { url: url(), status })),
        }
    }
}

/// A header as text.
pub(super) fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Whether only the asked-for part is in the body.
pub(super) fn is_partial(response: &Response<Body>) -> bool {
    response.status() == StatusCode::PARTIAL_CONTENT
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Percent-encodes what may not stand in the path of an address.
fn encode(text: &str, keep_slashes: bool) -> String {
    let mut out = String::new();
    for &byte in text.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if keep_slashes => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn tls(source: &Source) -> Result<TlsConfig, DownloadError> {
    let roots = match &source.certificates {
        None => RootCerts::WebPki,
        Some(path) => {
            let bad = |what: String| DownloadError::Certificates { path: path.clone(), what };
            let pem = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
            let mut certificates = Vec::new();
            for item in parse_pem(&pem) {
                if let PemItem::Certificate(certificate) = item.map_err(|error| bad(error.to_string()))? {
                    certificates.push(certificate);
                }
            }
            if certificates.is_empty() {
                return Err(bad("it holds none".to_owned()));
            }
            RootCerts::from(certificates.into_iter())
        }
    };
    provider(TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(roots))
}

/// The cryptography is Rust and inline assembly, so that a build needs no C compiler. It exists for two architectures and for
/// processors with the instructions that it is made of.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn provider(builder: ureq::tls::TlsConfigBuilder) -> Result<TlsConfig, DownloadError> {
    macro_rules! missing {
        ($detected:ident: $($feature:tt),*) => {
            [$(($feature, std::arch::$detected!($feature))),*].into_iter().filter(|(_, there)| !there).map(|(name, _)| name)
        };
    }
    #[cfg(target_arch = "x86_64")]
    let missing = missing!(is_x86_feature_detected: "aes", "ssse3", "avx", "avx2", "adx", "bmi1", "bmi2", "pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let missing = missing!(is_aarch64_feature_detected: "aes", "sha2", "pmull", "neon");
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() {
        return Err(DownloadError::NoTls(format!("this CPU lacks {}", missing.join(", "))));
    }
    Ok(builder.unversioned_rustls_crypto_provider(Arc::new(rustls_graviola::default_provider())).build())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn provider(_builder: ureq::tls::TlsConfigBuilder) -> Result<TlsConfig, DownloadError> {
    Err(DownloadError::NoTls(format!("not built for {}", std::env::consts::ARCH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_encoded() {
        assert_eq!(encode("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(encode("a b/ü#?.json", true), "a%20b/%C3%BC%23%3F.json");
    }
}
