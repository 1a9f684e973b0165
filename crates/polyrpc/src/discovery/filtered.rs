use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};

use super::{Discover, Instance, InstanceStream};

/// See [`Discover::filtered`].
pub(super) struct Filtered<D> {
    inner: D,
    keep: Arc<dyn Fn(&Instance) -> bool + Send + Sync>,
}

impl<D: Discover> Filtered<D> {
    pub(super) fn new(inner: D, keep: impl Fn(&Instance) -> bool + Send + Sync + 'static) -> Self {
        Self { inner, keep: Arc::new(keep) }
    }
}

impl<D: Discover> Discover for Filtered<D> {
    fn watch(&self) -> InstanceStream {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::List;
    use crate::discovery::testing::next_text;

    #[tokio::test]
    async fn rejected_instances_are_filtered_out() {
        let list: List = "a:1 group=x,b:1,c:1 group=y group=x".parse().unwrap();
        let filtered = list.clone().filtered(|one| one.attributes.groups().any(|group| group == "x"));
        let mut sets = filtered.watch();
        assert_eq!(next_text(&mut sets).await, "tcp@a:1?group=x tcp@c:1?group=y&group=x");
        list.update([Instance::tcp("d:1")]);
        assert_eq!(
            next_text(&mut sets).await,
            "tcp@d:1?state=inactive",
            "no usable server, but the set is known"
        );
        list.update([]);
        assert_eq!(next_text(&mut sets).await, "");
    }
}
