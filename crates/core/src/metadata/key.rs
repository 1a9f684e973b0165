use std::borrow::Cow;
use std::sync::Arc;

/// The key of an entry.
#[derive(Clone)]
pub(super) enum Key {
    Static(&'static str),
    Owned(String),
    /// A part of the keys of a whole message, from `start` to `end`.
    Shared {
        keys: Arc<String>,
        start: u32,
        end: u32,
    },
}

// As large as a `Cow`: the tag lies in the string's capacity.
const _: () = assert!(size_of::<Key>() == size_of::<Cow<'static, str>>());

impl Key {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Static(key) => key,
            Self::Owned(key) => key,
            Self::Shared { keys, start, end } => keys.get(*start as usize..*end as usize).unwrap_or_default(),
        }
    }
}

impl From<Cow<'static, str>> for Key {
    fn from(key: Cow<'static, str>) -> Self {
        match key {
            Cow::Borrowed(key) => Self::Static(key),
            Cow::Owned(key) => Self::Owned(key),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}
