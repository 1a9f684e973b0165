//! Helpers for the tests of this module.

use std::fs;
use std::path::PathBuf;

use futures_util::StreamExt;

use super::InstanceStream;

/// Temporary directory, which is removed when it is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        let random = getrandom::u64().expect("the system has random numbers");
        let path = std::env::temp_dir().join(format!("polyrpc-{random:016x}"));
        fs::create_dir(&path).expect("the name is new");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Formats the next item: `tcp@a:1 tcp@b:2?weight=3`, or an error's message.
pub(crate) async fn next_text(sets: &mut InstanceStream) -> String {
    match sets.next().await {
        None => "the end".to_owned(),
        Some(Err(error)) => error.message().to_owned(),
        Some(Ok(set)) => {
            let words: Vec<_> = set
                .iter()
                .map(|one| match one.attributes.is_empty() {
                    true => one.to_string(),
                    false => format!("{one}?{}", one.attributes),
                })
                .collect();
            words.join(" ")
        }
    }
}
