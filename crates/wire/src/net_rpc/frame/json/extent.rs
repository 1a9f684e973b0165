//! Incremental search for the end of a JSON object.

/// Progress of the search. Each byte is scanned once, however many pieces the object arrives in. Only brackets and
/// strings are recognised: validation is left to the parser.
#[derive(Debug, Default)]
pub(super) struct Extent {
    at: usize,
    open: usize,
    deepest: usize,
    state: State,
}

/// Whether a byte of JSON belongs to a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Plain,
    /// Inside a string.
    String,
    /// After a backslash inside a string.
    Escape,
}

impl State {
    /// Returns the state after this byte.
    #[inline]
    pub(super) fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Plain, b'"') | (Self::Escape, _) => Self::String,
            (Self::String, b'"') => Self::Plain,
            (Self::String, b'\\') => Self::Escape,
            (state, _) => state,
        }
    }
}

impl Extent {
    /// Returns the end of the object at the start of `bytes`, and its nesting depth; `None` if more bytes are needed.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<(usize, usize)> {
        for byte in bytes.get(self.at..)? {
            self.at += 1;
            self.state = self.state.after(*byte);
            if let State::Plain = self.state {
                self.count(*byte);
                if self.open == 0 {
                    let end = (self.at, self.deepest);
                    *self = Self::default();
                    return Some(end);
                }
            }
        }
        None
    }

    fn count(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => {
                self.open += 1;
                self.deepest = self.deepest.max(self.open);
            }
            b'}' | b']' => self.open = self.open.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_ends_at_its_last_bracket_for_any_split() {
        for (object, depth) in
            [(r#"{}"#, 1), (r#"{"a":{"b":[[1,2],{}]},"c":"}]{["}"#, 4), (r#"{"a\"}":"\\","b":"\\\"}"}"#, 1)]
        {
            let followed = format!("{object}{{\"next\":1}}");
            let bytes = followed.as_bytes();
            assert_eq!(Extent::default().end(bytes), Some((object.len(), depth)), "{object}");
            let mut extent = Extent::default();
            for end in 0..object.len() {
                assert_eq!(extent.end(&bytes[..end]), None, "{object}");
            }
            assert_eq!(extent.end(&bytes[..object.len()]), Some((object.len(), depth)), "{object}");
        }
    }
}
