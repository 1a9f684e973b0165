use crate::discovery::Instance;

/// Instances of a resolution that one client may call.
#[derive(Debug, PartialEq)]
pub(super) struct FilteredInstances {
    /// Instances that it may call, sorted by address and without duplicates.
    pub(super) instances: Vec<Instance>,
    /// Whether some were excluded because of their attributes.
    pub(super) excluded: bool,
}

/// Filters out inactive instances and, if the client belongs to a group, instances of other groups (rpcx
/// `client/xclient.go`, `filterByStateAndGroup`). Duplicate entries are ignored; the first one wins.
pub(super) fn filter_instances(mut instances: Vec<Instance>, group: Option<&str>) -> FilteredInstances {
    let listed = instances.len();
    instances.retain(|instance| may_call(instance, group));
    let excluded = instances.len() < listed;
    // The sort is stable: among equal entries the first one stays first.
    instances.sort_by(|one, other| key(one).cmp(&key(other)));
    instances.dedup_by(|later, first| key(later) == key(first));
    FilteredInstances { instances, excluded }
}

/// Whether a client of this group, or without a group, may call the instance.
pub(in crate::client) fn may_call(instance: &Instance, group: Option<&str>) -> bool {
    let attributes = &instance.attributes;
    attributes.is_active() && group.is_none_or(|group| attributes.groups().any(|of| of == group))
}

impl FilteredInstances {
    /// Adds further instances, which are not in the set yet.
    pub(super) fn keep(&mut self, others: Vec<Instance>) {
        if !others.is_empty() {
            self.instances.extend(others);
            self.instances.sort_by(|one, other| key(one).cmp(&key(other)));
        }
    }
}

fn key(instance: &Instance) -> (crate::discovery::Network, &str) {
    (instance.network, &instance.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[(&str, &str)]) -> Vec<Instance> {
        let attributes = |text: &str| text.parse().unwrap_or_default();
        texts
            .iter()
            .map(|(address, text)| address.parse::<Instance>().unwrap().with(attributes(text)))
            .collect()
    }

    fn filtered_addresses(texts: &[(&str, &str)], group: Option<&str>) -> Vec<String> {
        filter_instances(set(texts), group).instances.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn order_of_the_registry_does_not_matter() {
        let one = filtered_addresses(&[("b:1", ""), ("unix@/a", ""), ("a:2", ""), ("a:1", "")], None);
        assert_eq!(one, ["tcp@a:1", "tcp@a:2", "tcp@b:1", "unix@/a"]);
    }

    #[test]
    fn duplicate_instances_keep_the_first_entry() {
        let twice = filter_instances(set(&[("a:1", "weight=2"), ("b:1", ""), ("a:1", "weight=3")]), None);
        assert_eq!(twice.instances.len(), 2);
        assert_eq!(twice.instances[0].attributes.weight(), 2);
        assert!(!twice.excluded);
    }

    #[test]
    fn inactive_instances_and_other_groups_are_filtered_out() {
        let all = [("a:1", "state=inactive"), ("b:1", "group=x&group=y"), ("c:1", "group=z"), ("d:1", "")];
        assert_eq!(filtered_addresses(&all, None), ["tcp@b:1", "tcp@c:1", "tcp@d:1"]);
        assert_eq!(filtered_addresses(&all, Some("y")), ["tcp@b:1"]);
        assert!(filter_instances(set(&all), Some("none")).excluded);
    }
}
