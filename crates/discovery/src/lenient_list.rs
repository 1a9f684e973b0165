//! Lists in which malformed elements do not affect the others.

use std::fmt;

use polyrpc::Status;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

/// Well-formed elements of a list; `null` is an empty list.
#[derive(Debug)]
pub(crate) struct LenientList<T> {
    /// Well-formed elements.
    pub(crate) items: Vec<T>,
    /// Total number of elements.
    pub(crate) all: usize,
}

impl<T> LenientList<T> {
    /// Whether there are elements, and none of them is well-formed.
    pub(crate) fn is_unusable(&self) -> bool {
        self.all > 0 && self.items.is_empty()
    }
}

/// Returns the warning about the elements that cannot be used.
pub(crate) fn warning(all: usize, used: usize, what: impl fmt::Display) -> Option<Status> {
    let wrong = all.checked_sub(used).filter(|wrong| *wrong > 0)?;
    Some(Status::invalid_argument(format!("{wrong} of the {all} {what} cannot be read")))
}

impl<T> Default for LenientList<T> {
    fn default() -> Self {
        Self { items: Vec::new(), all: 0 }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for LenientList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = Option::<Vec<serde_json::Value>>::deserialize(deserializer)?.unwrap_or_default();
        let all = values.len();
        let items = values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect();
        Ok(Self { items, all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_items_are_counted_and_skipped() {
        let list: LenientList<u8> = serde_json::from_str(r#"[1, "two", 300, 4, null]"#).unwrap();
        assert_eq!((list.items, list.all), (vec![1, 4], 5));
        assert!(serde_json::from_str::<LenientList<u8>>(r#"["x"]"#).unwrap().is_unusable());
        assert!(!serde_json::from_str::<LenientList<u8>>("null").unwrap().is_unusable());
        assert!(serde_json::from_str::<LenientList<u8>>("{}").is_err());
    }

    #[test]
    fn unreadable_items_are_reported() {
        assert_eq!(warning(5, 3, "keys").unwrap().message(), "2 of the 5 keys cannot be read");
        assert!(warning(5, 5, "keys").is_none() && warning(0, 0, "keys").is_none());
    }
}
