//! Default memory budget for all peers.

use std::fs;

/// Returns the default budget for all peers: a quarter of the memory that the process may use, at most 1 GiB.
pub(super) fn default_budget() -> usize {
    (available_memory() / 4).min(MAX_BUDGET)
}

const MAX_BUDGET: usize = 1 << 30;

/// Returns the memory that the process may use: the machine's, or the limit of its cgroup if that is less.
fn available_memory() -> usize {
    [total_memory(), cgroup_memory_limit()].into_iter().flatten().min().unwrap_or(MAX_BUDGET * 4)
}

fn total_memory() -> Option<usize> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the lowest limit of the process's cgroup and its ancestors.
fn cgroup_memory_limit() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(cgroup_limit).min()
}

/// Returns the limit of a line of `/proc/self/cgroup`: `0::/path` of version 2, `5:memory:/path` of version 1.
fn cgroup_limit(line: &str) -> Option<usize> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    // Within a container the path is often that of the host, and the root is the container's own group.
    let mut limits = Vec::new();
    for ancestor in std::path::Path::new(path).ancestors() {
        let group = format!("{root}/{}/{file}", ancestor.display().to_string().trim_matches('/'));
        limits.extend(fs::read_to_string(group).ok().and_then(|limit| limit.trim().parse::<usize>().ok()));
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_budget_is_a_quarter_of_memory_up_to_one_gibibyte() {
        let budget = default_budget();
        assert!(budget > 0 && budget <= MAX_BUDGET, "{budget}");
        assert_eq!(budget, (available_memory() / 4).min(MAX_BUDGET));
    }

    #[test]
    fn cgroup_without_a_limit_has_none() {
        assert_eq!(cgroup_limit("12:cpu,cpuacct:/a/b"), None);
        assert_eq!(cgroup_limit("0::/no/such/group/anywhere").filter(|limit| *limit == 0), None);
    }
}
