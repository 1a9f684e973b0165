//! How many files, and so connections, this process and its children may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, as Go's runtime does for its programs: thousands of callers
/// with a connection each need more than the usual 1,024.
pub(super) fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If the system refuses, the first connection over the limit says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many connections a process may open, less some descriptors for everything else.
pub(super) fn max_connections() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| {
        limit.saturating_sub(OTHER_DESCRIPTORS).max(1).try_into().unwrap_or(usize::MAX)
    })
}

/// Libraries, standard streams, the listener, epoll and timers.
const OTHER_DESCRIPTORS: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_bounded_by_the_limit_of_open_files() {
        raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        let max = max_connections();
        assert!(max > 0 && current.is_none_or(|limit| (max as u64) < limit.max(2)), "{max} of {current:?}");
    }
}
