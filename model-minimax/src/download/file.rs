// SPDX-License-Identifier: MIT OR Apache-2.0

//! One file: what has arrived of it, the rest, its sum, its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::client::{Client, Failure, header, is_partial};
use super::{DownloadError, DownloadOptions, Entry, Progress, at};

/// Bytes read at a time.
const CHUNK: usize = 1 << 18;
/// Attempts at a content that has the right length and the wrong sum.
const WRONG_SUMS: u32 = 2;
/// A sleeping thread looks so often whether the others have failed.
const NAP: Duration = Duration::from_millis(50);

/// A file to be fetched.
pub(super) struct Job<'a, P> {
    pub(super) client: &'a Client,
    pub(super) dir: &'a Path,
    pub(super) work: &'a Path,
    pub(super) commit: &'a str,
    pub(super) entry: &'a Entry,
    pub(super) number: usize,
    pub(super) options: &'a DownloadOptions,
    /// Set when another file has failed.
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a P,
}

/// Where a file's content is kept until it is whole. The name is that of the content, so another revision of the file does not
/// go on with the wrong bytes.
fn part_path(work: &Path, entry: &Entry) -> PathBuf {
    work.join(format!("{}.{}.part", entry.id, entry.path.replace('/', "+")))
}

/// Bytes of the file that have arrived.
pub(super) fn kept(work: &Path, entry: &Entry) -> u64 {
    fs::metadata(part_path(work, entry)).map_or(0, |part| part.len()).min(entry.size)
}

/// The sum of a file, in hexadecimal.
pub(super) fn sha256(path: &Path) -> Result<String, DownloadError> {
    let mut file = File::open(path).map_err(at(path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(at(path))? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

impl<P: Fn(Progress)> Job<'_, P> {
    /// Fetches what is missing and puts the file in its place; returns the bytes that came over the network.
    pub(super) fn fetch(&self) -> Result<u64, DownloadError> {
        let Entry { path, size, sha256: expected, .. } = self.entry;
        let part = part_path(self.work, self.entry);
        let (mut fetched, mut in_vain, mut wrong_sums) = (0, 0, 0);
        // The most that was there after an attempt: a server that always begins anew must not be asked for ever.
        let mut most = kept(self.work, self.entry);
        loop {
            match self.rest(&part, &mut fetched) {
                Ok(()) => match expected {
                    Some(expected) => {
                        let found = sha256(&part)?;
                        if found == *expected {
                            break;
                        }
                        fs::remove_file(&part).map_err(at(&part))?;
                        wrong_sums += 1;
                        if wrong_sums == WRONG_SUMS {
                            let (path, expected) = (path.clone(), expected.clone());
                            return Err(DownloadError::Checksum { path, expected, found });
                        }
                    }
                    None => break,
                },
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(error, wait)) => {
                    let now = kept(self.work, self.entry);
                    in_vain = if now > most { 0 } else { in_vain + 1 };
                    most = most.max(now);
                    if in_vain > self.options.retries || self.stop.load(Ordering::Relaxed) {
                        return Err(error);
                    }
                    let wait = wait.unwrap_or_else(|| self.options.backoff_after(in_vain.saturating_sub(1)));
                    (self.progress)(Progress::Waiting { path: path.clone(), why: error.to_string(), wait });
                    self.sleep(wait);
                }
            }
        }
        let place = self.dir.join(path);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(at(parent))?;
        }
        fs::rename(&part, &place).map_err(at(&place))?;
        (self.progress)(Progress::File { number: self.number, path: path.clone(), done: *size, size: *size });
        Ok(fetched)
    }

    fn sleep(&self, mut wait: Duration) {
        while !wait.is_zero() && !self.stop.load(Ordering::Relaxed) {
            let nap = wait.min(NAP);
            std::thread::sleep(nap);
            wait -= nap;
        }
    }

    /// Brings the kept part to its full length by one request, or says why not.
    fn rest(&self, part: &Path, fetched: &mut u64) -> Result<(), Failure> {
        let Entry { path, size, .. } = self.entry;
        let io = |error| Failure::Final(at(part)(error));
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(part).map_err(io)?;
        let mut have = file.seek(SeekFrom::End(0)).map_err(io)?;
        if have > *size {
            have = restart(&mut file).map_err(io)?;
        }
        let report =
            |done| (self.progress)(Progress::File { number: self.number, path: path.clone(), done, size: *size });
        report(have);
        if have == *size {
            return Ok(());
        }

        let url = self.client.file_url(self.commit, path);
        let mut response = self.client.get(&url, have)?;
        let again = |what: String| Failure::Again(DownloadError::Network { url: url.clone(), what }, None);
        let wrong_length =
            |found| Failure::Again(DownloadError::Length { path: path.clone(), expected: *size, found }, None);
        if response.status() == 416 {
            // The server's file ends before ours; what is kept is of another file.
            restart(&mut file).map_err(io)?;
            return Err(again("has no bytes after those that are here".to_owned()));
        }
        if is_partial(&response) {
            let range = header(&response, "content-range").and_then(parse_range);
            match range {
                Some((start, _)) if start != have => {
                    restart(&mut file).map_err(io)?;
                    return Err(again(format!("sends bytes from {start} on, asked for were those from {have} on")));
                }
                Some((_, Some(total))) if total != *size => return Err(wrong_length(total)),
                Some(_) => (),
                None => return Err(again("sends a part without saying which".to_owned())),
            }
        } else {
            // The server does not resume.
            have = restart(&mut file).map_err(io)?;
            let length = header(&response, "content-length").and_then(|length| length.parse().ok());
            if let Some(length) = length.filter(|length| length != size) {
                return Err(wrong_length(length));
            }
        }

        let mut body = response.body_mut().as_reader();
        let mut buffer = vec![0; CHUNK];
        while have < *size {
            let read = match body.read(&mut buffer) {
                Ok(0) => return Err(again(format!("ends after {have} of {size} bytes"))),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(again(format!("cut after {have} of {size} bytes: {error}"))),
            };
            if read as u64 > size - have {
                restart(&mut file).map_err(io)?;
                return Err(wrong_length(have + read as u64));
            }
            file.write_all(&buffer[..read]).map_err(io)?;
            have += read as u64;
            *fetched += read as u64;
            report(have);
            if self.stop.load(Ordering::Relaxed) {
                return Err(again("another file has failed".to_owned()));
            }
        }
        // On the disk before the name says that it is whole.
        file.sync_all().map_err(io)
    }
}

/// Forgets what was kept.
fn restart(file: &mut File) -> io::Result<u64> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))
}

/// First byte and length of the whole file of a `Content-Range`.
fn parse_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-')?.0.trim().parse().ok()?;
    match total.trim() {
        "*" => Some((start, None)),
        total => Some((start, Some(total.parse().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        assert_eq!(parse_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_range("bytes 0-0/*"), Some((0, None)));
        for bad in ["", "bytes */10", "5-9/10", "bytes 5-9", "bytes x-9/10", "bytes 5-9/x"] {
            assert_eq!(parse_range(bad), None, "{bad}");
        }
    }
}
