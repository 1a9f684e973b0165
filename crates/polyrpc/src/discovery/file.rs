use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use polyrpc_core::Status;

use super::line::Lines;
use super::polled::{self, PollResult, PollSource};
use super::remote::RemoteFile;
use super::{Discover, InstanceStream};
use crate::error::ClientResult as Result;
use crate::runtime::AbortOnDrop;

/// Reads servers from a file, one per line: brpc's `file://`.
///
/// ```text
/// # text after a number sign is a comment
/// 10.0.0.1:8000
/// 10.0.0.2:8000 3                  brpc's tag
/// quic@10.0.0.3:8001 weight=5 group=a
/// ```
///
/// The file need not exist yet. It is checked at this interval: every second for `file://` in URLs (brpc: 100 ms), at
/// most every 10 ms. A file that is being written is read once it stops changing; one that is replaced as a whole (by
/// `rename`, as `mv` does) is read at once. If it cannot be read, or lists no server, the previous result is kept.
/// Malformed lines are reported and skipped.
///
/// ```
/// use std::time::Duration;
///
/// let servers = polyrpc::discovery::file("/etc/orders/servers", Duration::from_secs(1));
/// let client = polyrpc::Client::builder("rpcx://orders").discover(servers);
/// ```
pub fn file(path: impl Into<PathBuf>, interval: Duration) -> impl Discover + Clone + fmt::Debug {
    File { source: Source::Path(path.into()), interval: interval.max(Duration::from_millis(10)) }
}

/// Reads servers from a [file](file()) on an HTTP server: brpc's `remotefile://`. `url` is `http://host:port/path`,
/// whose scheme is optional. The file is fetched at this interval: every 5 s for `remotefile://` in URLs, as in brpc,
/// at most every 100 ms.
///
/// # Errors
///
/// If the URL is invalid.
pub fn remote_file(url: &str, interval: Duration) -> Result<impl Discover + Clone + fmt::Debug + use<>> {
    let interval = interval.max(Duration::from_millis(100));
    Ok(File { source: Source::Http(url.parse()?), interval })
}

#[derive(Debug, Clone)]
struct File {
    source: Source,
    interval: Duration,
}

#[derive(Debug, Clone)]
enum Source {
    Path(PathBuf),
    Http(RemoteFile),
}

impl Discover for File {
    fn watch(&self) -> InstanceStream {
        match &self.source {
            Source::Path(path) => polled::sets(FileWatch {
                path: path.clone(),
                interval: self.interval,
                read: None,
                seen: None,
                failure: None,
            }),
            Source::Http(file) => file.watch(self.interval),
        }
    }
}

struct FileWatch {
    path: PathBuf,
    interval: Duration,
    /// Version that was read last.
    read: Option<FileVersion>,
    /// Version at the last check.
    seen: Option<FileVersion>,
    /// Why the last check failed, until one succeeds.
    failure: Option<crate::Error>,
}

/// Metadata that identifies a version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileVersion {
    modified: Option<SystemTime>,
    length: u64,
    /// Inode: another one after a file was renamed over it.
    inode: u64,
}

impl PollSource for FileWatch {
    async fn query(&mut self) -> Result<PollResult> {
        let result = self.check().await;
        self.failure = result.as_ref().err().cloned();
        result
    }

    /// A check costs the same after failures, so there is no backoff.
    fn pause(&self, _failures: u32) -> Duration {
        self.interval
    }
}

impl FileWatch {
    async fn check(&mut self) -> Result<PollResult> {
        let (path, read, seen) = (self.path.clone(), self.read.clone(), self.seen.clone());
        let checked = AbortOnDrop::from(tokio::task::spawn_blocking(move || {
            check_file(&path, read.as_ref(), seen.as_ref())
        }));
        let wrong = |error: io::Error| self.wrong(&error.to_string());
        let check = checked.await.map_err(|error| wrong(error.into()))?.map_err(wrong)?;
        let unchanged = PollResult { instances: None, again: self.interval, warning: None };
        let (stamp, text) = match check {
            FileCheck::Unchanged => return Ok(unchanged),
            FileCheck::Changing(stamp) => {
                self.seen = Some(stamp);
                // Another version that is still written is no recovery.
                return self.failure.take().map_or(Ok(unchanged), Err);
            }
            FileCheck::Read(stamp, text) => (stamp, text),
        };
        self.seen = Some(stamp.clone());
        let lines = Lines::read(&text);
        if self.read.is_some() && lines.is_cut {
            return Err(self.wrong("it ends in the middle of a line"));
        }
        if lines.instances.is_empty() {
            return Err(self.wrong("it names no server"));
        }
        self.read = Some(stamp);
        let warning = lines.warning(&self.path.display().to_string()).map(Into::into);
        Ok(PollResult { instances: Some(lines.instances), warning, ..unchanged })
    }

    fn wrong(&self, why: &str) -> crate::Error {
        Status::unavailable(format!("{}: {why}", self.path.display())).into()
    }
}

/// Result of comparing a file with the version that was read last.
enum FileCheck {
    /// The version that was read already.
    Unchanged,
    /// Another version, which may still be written.
    Changing(FileVersion),
    /// Another version, which has stopped changing.
    Read(FileVersion, String),
}

/// Checks a file; may block.
fn check_file(path: &Path, read: Option<&FileVersion>, seen: Option<&FileVersion>) -> io::Result<FileCheck> {
    let stamp = FileVersion::read(path)?;
    let Some(read) = read else {
        return read_whole(path, stamp);
    };
    if *read == stamp {
        return Ok(FileCheck::Unchanged);
    }
    let at_rest = read.inode != stamp.inode || seen == Some(&stamp);
    if at_rest { read_whole(path, stamp) } else { Ok(FileCheck::Changing(stamp)) }
}

fn read_whole(path: &Path, stamp: FileVersion) -> io::Result<FileCheck> {
    if stamp.length > MAX_FILE_SIZE {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {MAX_FILE_SIZE} bytes"),
        ));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_SIZE).read_to_end(&mut bytes)?;
    let after = FileVersion::read(path)?;
    if after != stamp {
        return Ok(FileCheck::Changing(after));
    }
    Ok(FileCheck::Read(stamp, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Enough for some hundred thousand servers.
const MAX_FILE_SIZE: u64 = 16 << 20;

impl FileVersion {
    fn read(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        // Opening a pipe would wait for a writer.
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        Ok(Self { modified: metadata.modified().ok(), length: metadata.len(), inode: inode(&metadata) })
    }
}

fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use crate::discovery::testing::{Directory, next_text};

    const SECOND: Duration = Duration::from_secs(1);

    fn replace(path: &Path, text: &str) {
        let temporary = path.with_extension("new");
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, path).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_file_is_read_again() {
        let directory = Directory::new();
        let path = directory.path("servers");
        let mut sets = file(&path, SECOND).watch();
        assert!(next_text(&mut sets).await.contains("No such file"));
        replace(&path, "# ours\na:1\nb:2 3\n");
        assert_eq!(next_text(&mut sets).await, "tcp@a:1 tcp@b:2?tag=3");
        replace(&path, "b:2 3\n");
        assert_eq!(next_text(&mut sets).await, "tcp@b:2?tag=3");
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_file_keeps_the_last_set() {
        let directory = Directory::new();
        let path = directory.path("servers");
        replace(&path, "a:1\n");
        let mut sets = file(&path, SECOND).watch();
        assert_eq!(next_text(&mut sets).await, "tcp@a:1");
        replace(&path, "");
        assert!(next_text(&mut sets).await.ends_with("it names no server"));
        replace(&path, "b:1\n10.0.");
        assert!(next_text(&mut sets).await.ends_with("it ends in the middle of a line"));
        fs::remove_file(&path).unwrap();
        assert!(next_text(&mut sets).await.contains("No such file"));
        fs::create_dir(&path).unwrap();
        assert!(next_text(&mut sets).await.ends_with("it is not a file"));
        fs::remove_dir(&path).unwrap();
        // The file now differs from the last reported set.
        replace(&path, "c:1\nnonsense\n\u{1}\n");
        assert_eq!(next_text(&mut sets).await, "tcp@c:1");
        assert!(next_text(&mut sets).await.contains("2 of its lines cannot be read; line 2: `nonsense`"));
    }

    #[tokio::test]
    async fn incomplete_file_is_ignored_until_it_settles() {
        let directory = Directory::new();
        let path = directory.path("servers");
        fs::write(&path, "a:1\n").unwrap();
        let FileCheck::Read(first, _) = check_file(&path, None, None).unwrap() else { panic!("it is new") };
        assert!(matches!(check_file(&path, Some(&first), Some(&first)).unwrap(), FileCheck::Unchanged));
        fs::write(&path, "a:1\nb:1").unwrap();
        let FileCheck::Changing(seen) = check_file(&path, Some(&first), Some(&first)).unwrap() else {
            panic!("it has just changed")
        };
        fs::write(&path, "a:1\nb:11\n").unwrap();
        let FileCheck::Changing(seen) = check_file(&path, Some(&first), Some(&seen)).unwrap() else {
            panic!("it has changed again")
        };
        let FileCheck::Read(_, text) = check_file(&path, Some(&first), Some(&seen)).unwrap() else {
            panic!("it is at rest")
        };
        assert_eq!(text, "a:1\nb:11\n");
    }

    #[tokio::test]
    async fn ten_thousand_lines_are_read() {
        let directory = Directory::new();
        let path = directory.path("servers");
        let text: String = (0..10_000).map(|n| format!("10.1.{}.{}:80 {n}\n", n / 250, n % 250)).collect();
        fs::write(&path, text).unwrap();
        assert_eq!(file(&path, SECOND).watch().next().await.unwrap().unwrap().len(), 10_000);
    }

    #[tokio::test]
    async fn endless_file_is_rejected() {
        let directory = Directory::new();
        let path = directory.path("servers");
        fs::File::create(&path).unwrap().set_len(MAX_FILE_SIZE + 1).unwrap();
        assert!(next_text(&mut file(&path, SECOND).watch()).await.contains("more than"));
    }
}
