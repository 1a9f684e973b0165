use std::fmt;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};

use super::{Discover, Instance, Sets};

/// Instances of another discovery that a function accepts: rpcx's `SetFilter`.
///
/// ```
/// # use polyrpc::discovery::{Filtered, List};
/// let list: List = "10.0.0.1:8000 zone=a,10.0.0.2:8000 zone=b".parse()?;
/// let near = Filtered::new(list, |instance| instance.attributes.value("zone") == Some("a"));
/// # Ok::<(), polyrpc::Status>(())
/// ```
#[derive(Clone)]
pub struct Filtered<D> {
    inner: D,
    keep: Arc<dyn Fn(&Instance) -> bool + Send + Sync>,
}

impl<D: Discover> Filtered<D> {
    /// Keeps the instances of `inner` that `keep` accepts. If it accepts none of them, all are reported as inactive:
    /// the filter is intended, but a client that received an empty set would assume that the registry has lost its
    /// data. `keep` must not block.
    pub fn new(inner: D, keep: impl Fn(&Instance) -> bool + Send + Sync + 'static) -> Self {
        Self { inner, keep: Arc::new(keep) }
    }
}

impl<D: Discover> Discover for Filtered<D> {
    fn watch(&self) -> Sets {
        let keep = self.keep.clone();
        let sets = self.inner.watch().map_ok(move |instances| {
            let (kept, mut others): (Vec<_>, Vec<_>) =
                instances.into_iter().partition(|instance| keep(instance));
            if !kept.is_empty() {
                return kept;
            }
            others.iter_mut().for_each(|instance| instance.attributes.set("state", "inactive"));
            others
        });
        sets.boxed()
    }
}

impl<D: fmt::Debug> fmt::Debug for Filtered<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filtered").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::List;
    use crate::discovery::testing::told;

    #[tokio::test]
    async fn rejected_instances_are_filtered_out() {
        let list: List = "a:1 group=x,b:1,c:1 group=y group=x".parse().unwrap();
        let filtered = Filtered::new(list.clone(), |one| one.attributes.groups().any(|group| group == "x"));
        let mut sets = filtered.watch();
        assert_eq!(told(&mut sets).await, "tcp@a:1?group=x tcp@c:1?group=y&group=x");
        list.update([Instance::tcp("d:1")]);
        assert_eq!(told(&mut sets).await, "tcp@d:1?state=inactive", "no usable server, but the set is known");
        list.update([]);
        assert_eq!(told(&mut sets).await, "");
    }
}
