//! Configuration keys of the recording.

use std::path::PathBuf;

use polyrpc_record::path::Path;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::secret::Secret;
use super::units::{Share, Size, Span};

/// Records calls to a file, without credentials.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) file: PathBuf,
    /// Share of the calls that are recorded.
    #[serde(default)]
    pub(crate) share: Share,
    /// Every call that fails is recorded, whatever the share.
    #[serde(default)]
    pub(crate) failures: bool,
    /// Every call that takes at least this long is recorded, whatever the share.
    pub(crate) slower_than: Option<Span>,
    /// Maximum of recorded calls of a method per second.
    pub(crate) per_method: Option<u32>,
    /// Whether to record calls of routes without the key `record`.
    #[serde(default = "yes")]
    pub(crate) by_default: bool,
    /// Limits of the queue, of a file, of all files, and the minimum of free space.
    pub(crate) queue: Option<Size>,
    pub(crate) rotate_at: Option<Size>,
    pub(crate) total: Option<Size>,
    pub(crate) min_free: Option<Size>,
    /// Fields of messages to remove, and fields to replace by their HMAC.
    #[serde(default)]
    pub(crate) drop: Vec<Field>,
    #[serde(default)]
    pub(crate) hash: Vec<Field>,
    pub(crate) hash_key: Option<Secret>,
    /// Metadata to remove, in addition to credentials.
    #[serde(default)]
    pub(crate) drop_metadata: Vec<String>,
}

fn yes() -> bool {
    true
}

/// A field by its path: `user.password`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field(pub(crate) Path);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

impl Record {
    /// Whether fields of messages are removed or replaced. Messages that cannot be decoded then lose their bodies.
    pub(crate) fn has_rules(&self) -> bool {
        !(self.drop.is_empty() && self.hash.is_empty())
    }

    /// Errors that involve several keys. `chosen`: the values of `record` in the routes.
    pub(super) fn problems(&self, chosen: &[Option<bool>]) -> Vec<String> {
        let mut problems = Vec::new();
        let mut wrong = |is_wrong: bool, text: &str| {
            if is_wrong {
                problems.push(format!("[record]: {text}"));
            }
        };
        let records = |route: &Option<bool>| route.unwrap_or(self.by_default);
        wrong(
            !chosen.is_empty() && !chosen.iter().any(records),
            "nothing is recorded: no route has `record = true`",
        );
        let has_none = self.share.0 == 0.0 && !self.failures && self.slower_than.is_none();
        wrong(has_none, "nothing is recorded: `share` is 0, without `failures` and `slower_than`");
        wrong(self.per_method == Some(0), "nothing is recorded: `per_method` is 0");
        wrong(!self.hash.is_empty() && self.hash_key.is_none(), "`hash` needs a `hash_key`");
        wrong(self.hash.is_empty() && self.hash_key.is_some(), "`hash_key` is for `hash`, which is missing");
        let least = |size: Option<Size>| size.is_some_and(|size| size.0 < 1 << 20);
        wrong(least(self.rotate_at), "`rotate_at` is at least 1MiB");
        wrong(least(self.queue), "`queue` is at least 1MiB");
        let (file, total) = (self.rotate_at.map_or(ROTATE_AT, |size| size.0), self.total.map(|size| size.0));
        wrong(total.is_some_and(|total| total < file), "`total` is less than one file: see `rotate_at`");
        problems
    }
}

/// Default size of a file.
const ROTATE_AT: usize = 256 << 20;
