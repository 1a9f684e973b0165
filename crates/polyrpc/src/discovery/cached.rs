use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyrpc_core::Status;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout, timeout_at};

use super::{Discover, Instance, InstanceStream};
use crate::error::ClientResult as Result;
use crate::runtime::AbortOnDrop;

/// Discovery whose result is kept in a file: see [`Discover::cached`].
#[derive(Debug)]
pub(super) struct Cached<D> {
    inner: D,
    path: PathBuf,
    min_servers: usize,
    initial_timeout: Duration,
}

impl<D: Discover> Cached<D> {
    pub(super) fn new(inner: D, path: PathBuf, initial_timeout: Duration, min_servers: usize) -> Self {
        Self { inner, path, min_servers, initial_timeout }
    }
}

impl<D: Discover> Discover for Cached<D> {
    fn watch(&self) -> InstanceStream {
        let caching = CachedWatch {
            inner: self.inner.watch(),
            path: self.path.clone().into(),
            min_servers: self.min_servers,
            first: Some(self.initial_timeout),
            kept: Arc::default(),
            retry: None,
            has_yielded: false,
            queued: VecDeque::new(),
        };
        stream::unfold(caching, |mut caching| async move { Some((caching.next().await?, caching)) }).boxed()
    }
}

struct CachedWatch {
    inner: InstanceStream,
    path: Arc<Path>,
    min_servers: usize,
    /// Timeout of the first item; `None` once that wait is over.
    first: Option<Duration>,
    /// Servers from the file, or to be written to it.
    kept: Arc<Vec<Instance>>,
    /// Time of the next attempt to write `kept`; `None` if it is in the file.
    retry: Option<Instant>,
    has_yielded: bool,
    queued: VecDeque<Result<Vec<Instance>>>,
}

impl CachedWatch {
    async fn next(&mut self) -> Option<Result<Vec<Instance>>> {
        if let Some(limit) = self.first {
            self.load().await;
            let came = timeout(limit, self.inner.next()).await;
            self.first = None;
            match came {
                Ok(item) => self.handle_result(item?).await,
                Err(_) => self.fall_back(),
            }
        }
        while self.queued.is_empty() {
            // A disk that was full once must not leave an old file for as long as the servers do not change.
            let item = match self.retry {
                None => self.inner.next().await,
                Some(at) => match timeout_at(at, self.inner.next()).await {
                    Ok(item) => item,
                    Err(_) => {
                        // The first failure was reported.
                        let _ = self.save().await;
                        continue;
                    }
                },
            };
            self.handle_result(item?).await;
        }
        let item = self.queued.pop_front();
        self.has_yielded |= matches!(item, Some(Ok(_)));
        item
    }

    async fn handle_result(&mut self, item: Result<Vec<Instance>>) {
        match item {
            Ok(found) if found.len() > self.min_servers => {
                self.queued.push_back(Ok(found.clone()));
                self.keep(found).await;
            }
            Ok(found) if found.len() < self.kept.len() => self.fall_back(),
            Ok(found) => self.queued.push_back(Ok(found)),
            Err(error) => {
                if !self.has_yielded {
                    self.fall_back();
                }
                self.queued.push_back(Err(error));
            }
        }
    }

    /// Returns the servers from the file, if there are any.
    fn fall_back(&mut self) {
        if !self.kept.is_empty() {
            self.queued.push_back(Ok((*self.kept).clone()));
        }
    }

    async fn load(&mut self) {
        let path = self.path.clone();
        match AbortOnDrop::from(tokio::task::spawn_blocking(move || read(&path))).await {
            Ok(Ok(kept)) => self.kept = kept.into(),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(Err(error)) => self.report_cache_error(&error),
            Err(error) => self.report_cache_error(&error.into()),
        }
    }

    async fn keep(&mut self, found: Vec<Instance>) {
        if *self.kept == found {
            return;
        }
        self.kept = found.into();
        if let Err(error) = self.save().await {
            self.report_cache_error(&error);
        }
    }

    async fn save(&mut self) -> io::Result<()> {
        self.retry = Some(Instant::now() + RETRY);
        let (path, kept) = (self.path.clone(), self.kept.clone());
        AbortOnDrop::from(tokio::task::spawn_blocking(move || write(&path, &kept))).await??;
        self.retry = None;
        Ok(())
    }

    fn report_cache_error(&mut self, error: &io::Error) {
        let text = format!("the cache {}: {error}", self.path.display());
        self.queued.push_back(Err(Status::unavailable(text).into()));
    }
}

/// Time between attempts to write the file.
const RETRY: Duration = Duration::from_secs(10);

/// Entry in rpcx's format (`client/discovery.go`, `KVPair`).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

impl From<&Instance> for Pair {
    fn from(instance: &Instance) -> Self {
        Self { key: instance.to_string(), value: instance.attributes.to_string() }
    }
}

impl Pair {
    /// Returns the instance, unless the key is malformed.
    fn instance(self) -> Option<Instance> {
        let Ok(attributes) = self.value.parse();
        Some(self.key.parse::<Instance>().ok()?.with(attributes))
    }
}

/// Reads the file; blocks.
fn read(path: &Path) -> io::Result<Vec<Instance>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_SIZE).read_to_end(&mut text)?;
    let pairs: Vec<Pair> = serde_json::from_slice(&text)?;
    Ok(pairs.into_iter().filter_map(Pair::instance).collect())
}

/// Enough for more than a hundred thousand servers.
const MAX_FILE_SIZE: u64 = 64 << 20;

/// Replaces a file atomically, so that a partial one is never read; blocks.
fn write(path: &Path, instances: &[Instance]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let pairs: Vec<_> = instances.iter().map(Pair::from).collect();
    // Another client may be writing the same file.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{:08x}", getrandom::u32().map_err(io::Error::other)?));
    let text = serde_json::to_vec(&pairs)?;
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The disk may be full, and each failure would leave another temporary file.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::List;
    use crate::discovery::testing::{Directory, next_text};

    /// Caches with the usual settings.
    fn cached(inner: impl Discover, path: impl Into<PathBuf>) -> impl Discover {
        inner.cached(path, Duration::from_secs(3), 0)
    }

    /// Returns these items, then never another one.
    struct StaticSets(&'static [Result<&'static str, &'static str>]);

    impl Discover for StaticSets {
        fn watch(&self) -> InstanceStream {
            let items = stream::iter(self.0).map(|item| match item {
                Ok("") => Ok(Vec::new()),
                Ok(text) => Ok(crate::discovery::list::servers(text)?),
                Err(text) => Err(Status::unavailable(*text).into()),
            });
            items.chain(stream::pending()).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cached_set_is_used_while_the_registry_is_down() {
        let directory = Directory::new();
        let path = directory.path("deep/cache.json");
        let list: List = "a:1 weight=3,b:1".parse().unwrap();
        assert_eq!(next_text(&mut cached(list, &path).watch()).await, "tcp@a:1?weight=3 tcp@b:1");
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            r#"[{"Key":"tcp@a:1","Value":"weight=3"},{"Key":"tcp@b:1","Value":""}]"#
        );

        // The registry fails, is silent, or has lost its data.
        for says in [StaticSets(&[Err("down"), Ok("c:1")]), StaticSets(&[]), StaticSets(&[Ok(""), Ok("c:1")])]
        {
            let mut sets = cached(says, &path).watch();
            assert_eq!(next_text(&mut sets).await, "tcp@a:1?weight=3 tcp@b:1");
        }
        let mut sets = cached(StaticSets(&[Err("down"), Err("still"), Ok("c:1"), Ok("")]), &path).watch();
        for expected in ["tcp@a:1?weight=3 tcp@b:1", "down", "still", "tcp@c:1", "tcp@c:1"] {
            assert_eq!(next_text(&mut sets).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn set_with_too_few_servers_is_not_adopted() {
        let directory = Directory::new();
        let path = directory.path("cache.json");
        let mut sets = StaticSets(&[Ok("a:1"), Ok("a:1,b:1"), Ok("c:1")])
            .cached(&path, Duration::from_secs(3), 1)
            .watch();
        for expected in ["tcp@a:1", "tcp@a:1 tcp@b:1", "tcp@a:1 tcp@b:1"] {
            assert_eq!(next_text(&mut sets).await, expected);
        }
    }

    #[test]
    fn failed_cache_write_leaves_no_file_behind() {
        let directory = Directory::new();
        let path = directory.path("cache.json");
        // A file cannot replace a directory.
        fs::create_dir_all(path.join("below")).unwrap();
        write(&path, &["a:1".parse().unwrap()]).unwrap_err();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    /// It was written only when the set changed again.
    #[tokio::test(start_paused = true)]
    async fn failed_cache_write_is_tried_again() {
        let directory = Directory::new();
        let path = directory.path("cache.json");
        // A file cannot replace a directory.
        fs::create_dir_all(path.join("below")).unwrap();
        let mut sets = cached(StaticSets(&[Ok("a:1")]), &path).watch();
        assert!(next_text(&mut sets).await.starts_with("the cache "), "it cannot be read");
        assert_eq!(next_text(&mut sets).await, "tcp@a:1");
        assert!(next_text(&mut sets).await.starts_with("the cache "), "it cannot be written");
        // Later failures are not reported.
        assert!(timeout(RETRY * 5 / 2, sets.next()).await.is_err());
        fs::remove_dir_all(&path).unwrap();
        assert!(timeout(RETRY * 5 / 2, sets.next()).await.is_err());
        assert_eq!(read(&path).unwrap(), ["a:1".parse::<Instance>().unwrap()]);
    }

    #[tokio::test(start_paused = true)]
    async fn unusable_cache_is_reported_and_discovery_continues() {
        let directory = Directory::new();
        let path = directory.path("cache.json");
        for broken in ["", "{}", "[{\"Key\":1}]", "[[[["] {
            fs::write(&path, broken).unwrap();
            let mut sets = cached(StaticSets(&[Ok("a:1")]), &path).watch();
            assert!(next_text(&mut sets).await.contains("cache.json"), "{broken}");
            assert_eq!(next_text(&mut sets).await, "tcp@a:1");
        }
        fs::write(&path, r#"[{"Key":"nonsense","Value":"%"},{"Key":"tcp@a:1","Value":"%zz&weight=2"}]"#)
            .unwrap();
        assert_eq!(next_text(&mut cached(StaticSets(&[]), &path).watch()).await, "tcp@a:1?weight=2");

        let nowhere = directory.path("cache.json/below.json");
        let mut sets = cached(StaticSets(&[Ok("a:1")]), nowhere).watch();
        assert!(next_text(&mut sets).await.starts_with("the cache "), "it cannot be read");
        assert_eq!(next_text(&mut sets).await, "tcp@a:1");
        assert!(next_text(&mut sets).await.starts_with("the cache "), "it cannot be written");
    }
}
