use std::collections::{HashMap, hash_map};

use polyrpc_core::Status;

use super::{Attributes, Instance, Network};

/// Parses a server in the format of brpc's lists: an address, then blanks and its tag (brpc `naming_service_filter.h`,
/// `details/naming_service_thread.cpp`). A text with a `=` is parsed as attributes instead: `weight=5&group=a`, or
/// `weight=5 group=a`.
pub(super) fn server(text: &str) -> Result<Instance, Status> {
    let text = text.trim();
    let (address, suffix) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let instance: Instance = match address.strip_prefix("unix:") {
        Some(path) => format!("unix@{}", path.strip_prefix("//").unwrap_or(path)).parse()?,
        None => address.parse()?,
    };
    Ok(instance.with(attributes(suffix.trim_start())))
}

fn attributes(suffix: &str) -> Attributes {
    if suffix.is_empty() {
        return Attributes::new();
    }
    if !suffix.contains('=') {
        return Attributes::new().with("tag", suffix);
    }
    let pairs: Vec<_> = suffix.split_whitespace().collect();
    let Ok(attributes) = pairs.join("&").parse();
    attributes
}

/// Ordered set of servers without duplicates.
///
/// In brpc the same address with two tags is two servers. Here it is one server with both tags, so that it has one
/// connection pool and one health state, and may still be in several partitions.
#[derive(Debug, Default)]
pub(super) struct Servers {
    all: Vec<Instance>,
    indices: HashMap<(Network, String), usize>,
}

impl Servers {
    /// Adds a server. A duplicate only adds its tag to the first one.
    pub(super) fn add(&mut self, instance: Instance) {
        match self.indices.entry((instance.network, instance.address.clone())) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(self.all.len());
                self.all.push(instance);
            }
            hash_map::Entry::Occupied(occupied) => {
                if let Some(known) = self.all.get_mut(*occupied.get()) {
                    add_tags(&mut known.attributes, &instance.attributes);
                }
            }
        }
    }

    pub(super) fn into_vec(self) -> Vec<Instance> {
        self.all
    }
}

impl FromIterator<Instance> for Servers {
    fn from_iter<I: IntoIterator<Item = Instance>>(instances: I) -> Self {
        let mut servers = Self::default();
        instances.into_iter().for_each(|instance| servers.add(instance));
        servers
    }
}

fn add_tags(known: &mut Attributes, more: &Attributes) {
    for tag in more.values("tag") {
        if known.values("tag").all(|known| known != tag) {
            known.append("tag", tag);
        }
    }
}

/// Contents of a file of servers: one per line, with comments after `#` (brpc `policy/file_naming_service.cpp`).
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) instances: Vec<Instance>,
    /// Number of malformed lines.
    pub(super) unreadable: usize,
    /// Number of the first malformed line, and the reason.
    pub(super) first: Option<(usize, Status)>,
    /// Whether the text ends within a malformed line: it is probably still being written.
    pub(super) is_cut: bool,
}

impl Lines {
    pub(super) fn read(text: &str) -> Self {
        let mut servers = Servers::default();
        let (mut unreadable, mut first, mut last) = (0, None, 0);
        let mut count = 0;
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            count = number;
            let suffix = line.split('#').next().unwrap_or_default().trim();
            if suffix.is_empty() {
                continue;
            }
            match server(suffix) {
                Ok(instance) => servers.add(instance),
                Err(error) => {
                    (unreadable, last) = (unreadable + 1, number);
                    first.get_or_insert((number, error));
                }
            }
        }
        let is_cut = unreadable > 0 && last == count && !text.ends_with('\n');
        Self { instances: servers.into_vec(), unreadable, first, is_cut }
    }

    /// Returns the warning about malformed lines.
    pub(super) fn warning(&self, source: &str) -> Option<Status> {
        let (line, why) = self.first.as_ref()?;
        let text = format!(
            "{source}: {} of its lines cannot be read; line {line}: {}",
            self.unreadable,
            why.message()
        );
        Some(Status::invalid_argument(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_or_attributes_may_follow_an_address() {
        for (text, instance, suffix) in [
            ("a:1", "tcp@a:1", ""),
            ("  a:1 \t 3 ", "tcp@a:1", "tag=3"),
            ("a:1 0/3 x", "tcp@a:1", "tag=0%2F3+x"),
            ("quic@[::1]:1 weight=5&group=a", "quic@[::1]:1", "group=a&weight=5"),
            ("a:1 weight=5  group=a group=b", "tcp@a:1", "group=a&group=b&weight=5"),
            ("unix:/run/x tag=1", "unix@/run/x", "tag=1"),
            ("unix:///run/x", "unix@/run/x", ""),
        ] {
            let read = server(text).unwrap();
            assert_eq!((&*read.to_string(), &*read.attributes.to_string()), (instance, suffix), "{text}");
        }
        for wrong in ["", "a", "a:0", ":1", "a:1:x", "ftp@a:1", "unix:"] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn duplicate_servers_are_merged_with_all_tags() {
        let lines = Lines::read("a:1 0/2\nb:1\na:1 1/2\na:1 0/2\nb:1 weight=7\ntcp@a:1\n");
        let all: Vec<_> = lines.instances.iter().map(|one| format!("{one} {}", one.attributes)).collect();
        assert_eq!(all, ["tcp@a:1 tag=0%2F2&tag=1%2F2", "tcp@b:1 "]);
    }

    #[test]
    fn malformed_lines_are_counted_and_skipped() {
        let lines = Lines::read("\u{feff}# servers\r\na:1 # the first\r\n\r\nnonsense\r\nb:2 3\r\nb:x\r\n");
        assert_eq!(lines.instances.len(), 2);
        assert!(!lines.is_cut);
        let warning = lines.warning("servers.txt").unwrap();
        assert_eq!(
            warning.message(),
            "servers.txt: 2 of its lines cannot be read; line 4: `nonsense` is not an instance: expected network@host:port"
        );
    }

    #[test]
    fn text_without_a_final_newline_is_detected_as_truncated() {
        assert!(Lines::read("a:1\n10.0").is_cut);
        assert!(!Lines::read("a:1\n10.0\n").is_cut);
        assert!(!Lines::read("x\na:1").is_cut);
        assert!(!Lines::read("").is_cut);
    }
}
