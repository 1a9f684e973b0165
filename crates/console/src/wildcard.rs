//! brpc's lists of names with wildcards: `rpc_server*_count;iobuf_blo$k_*` (`bvar/variable.cpp`, `WildcardMatcher`).

/// A list of names: `*` stands for any characters, `$` for one, `,` and `;` separate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wildcards(Vec<String>);

impl Wildcards {
    /// Parses a list.
    ///
    /// # Errors
    ///
    /// The status and the text of the answer to a request whose list would take too long to match.
    pub(crate) fn parse(list: &str) -> Result<Self, (u16, &'static str)> {
        let names: Vec<_> =
            list.split([',', ';']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let wild = names.iter().filter(|name| is_wild(name)).map(String::len).sum::<usize>();
        if names.len() > MAX_NAMES || wild > MAX_WILD { Err((400, TOO_LONG)) } else { Ok(Self(names)) }
    }

    /// Whether the list is empty, which stands for all names.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a name is on the list, or the list is empty.
    pub(crate) fn accepts(&self, name: &str) -> bool {
        self.is_empty() || self.0.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    }

    /// Returns the only name, if it has no wildcards.
    pub(crate) fn single(&self) -> Option<&str> {
        match &self.0[..] {
            [name] if !is_wild(name) => Some(name),
            _ => None,
        }
    }
}

fn is_wild(name: &str) -> bool {
    name.contains(['*', '$'])
}

/// Maximum number of names in a list, and maximum total length of those with wildcards: each is compared with every
/// name.
const MAX_NAMES: usize = 256;
const MAX_WILD: usize = 1_024;

const TOO_LONG: &str =
    "The list is too long: it has at most 256 names, and those with wildcards at most 1,024 letters.";

/// Takes time proportional to the product of both lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut name_index) = (0, 0);
    // Where to continue if the characters after the last `*` do not match.
    let mut retry = None;
    while name_index < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, name_index));
                at += 1;
            }
            Some(b'$') => (at, name_index) = (at + 1, name_index + 1),
            Some(letter) if name.get(name_index) == Some(letter) => {
                (at, name_index) = (at + 1, name_index + 1)
            }
            _ => match retry {
                Some((after, from)) => {
                    (at, name_index) = (after, from + 1);
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
        let parsed = |list: &str| Wildcards::parse(list).unwrap();
        let list = parsed("rpc_server*_count;iobuf_blo$k_*,pid");
        for name in ["rpc_server_80_count", "rpc_server_count", "iobuf_block_memory", "iobuf_blork_", "pid"] {
            assert!(list.accepts(name), "{name}");
        }
        for name in ["rpc_server_80_qps", "iobuf_blok_memory", "ppid", "pid2", ""] {
            assert!(!list.accepts(name), "{name}");
        }
        assert!(parsed("").accepts("anything") && parsed("*").accepts("anything"));
        assert_eq!(parsed("pid").single(), Some("pid"));
        assert_eq!((list.single(), parsed("p*").single()), (None, None));
    }

    #[test]
    fn long_patterns_take_no_exponential_time() {
        let name = "a".repeat(5_000);
        let pattern = "*a".repeat(500) + "b";
        assert!(!Wildcards::parse(&pattern).unwrap().accepts(&name));
    }

    #[test]
    fn lists_that_take_long_to_look_for_are_refused() {
        for (list, is_refused) in [
            ("name,".repeat(256), false),
            ("name,".repeat(257), true),
            ("a*b;".repeat(255), false),
            ("*a".repeat(600), true),
        ] {
            assert_eq!(Wildcards::parse(&list).is_err(), is_refused, "{list}");
        }
    }
}
