//! brpc's lists of names with wildcards: `rpc_server*_count;iobuf_blo$k_*` (`bvar/variable.cpp`, `WildcardMatcher`).

/// A list of names: `*` stands for any characters, `$` for one, `,` and `;` separate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wildcards(Vec<String>);

impl Wildcards {
    pub(crate) fn parse(list: &str) -> Self {
        Self(list.split([',', ';']).filter(|name| !name.is_empty()).take(MOST).map(str::to_owned).collect())
    }

    /// Whether it is a list of no names, which stands for all.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a name is on the list, or the list is empty.
    pub(crate) fn accept(&self, name: &str) -> bool {
        self.is_empty() || self.0.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    }

    /// Returns the only name, if it has no wildcards.
    pub(crate) fn single(&self) -> Option<&str> {
        match &self.0[..] {
            [name] if !name.contains(['*', '$']) => Some(name),
            _ => None,
        }
    }
}

/// How many names a list may have; further ones are ignored.
const MOST: usize = 256;

/// Takes time proportional to the product of both lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Where to go on if the characters after the last `*` do not match.
    let mut retry = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, place));
                at += 1;
            }
            Some(b'$') => (at, place) = (at + 1, place + 1),
            Some(letter) if name.get(place) == Some(letter) => (at, place) = (at + 1, place + 1),
            _ => match retry {
                Some((after, from)) => {
                    (at, place) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_brpc() {
        let list = Wildcards::parse("rpc_server*_count;iobuf_blo$k_*,pid");
        for name in ["rpc_server_80_count", "rpc_server_count", "iobuf_block_memory", "iobuf_blork_", "pid"] {
            assert!(list.accept(name), "{name}");
        }
        for name in ["rpc_server_80_qps", "iobuf_blok_memory", "ppid", "pid2", ""] {
            assert!(!list.accept(name), "{name}");
        }
        assert!(Wildcards::parse("").accept("anything") && Wildcards::parse("*").accept("anything"));
        assert_eq!(Wildcards::parse("pid").single(), Some("pid"));
        assert_eq!((list.single(), Wildcards::parse("p*").single()), (None, None));
    }

    #[test]
    fn long_patterns_take_no_exponential_time() {
        let name = "a".repeat(5_000);
        let pattern = "*a".repeat(500) + "b";
        assert!(!Wildcards::parse(&pattern).accept(&name));
    }
}
