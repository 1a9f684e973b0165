use futures_util::stream::{self, SelectAll};
use futures_util::{FutureExt, StreamExt};

use super::line::Servers;
use super::{Discover, Instance, InstanceStream};
use crate::error::ClientResult as Result;

/// See [`Discover::merged`].
pub(super) struct Merged([Box<dyn Discover>; 2]);

impl Merged {
    pub(super) fn new(one: impl Discover, other: impl Discover) -> Self {
        Self([Box::new(one), Box::new(other)])
    }
}

impl Discover for Merged {
    /// The first set is returned as soon as one discovery has a result; it includes the results that are available at
    /// the same time.
    fn watch(&self) -> InstanceStream {
        let streams = self
            .0
            .iter()
            .zip(0..)
            .map(|(discover, index): (_, usize)| discover.watch().map(move |set| (index, set)).boxed());
        let merging = MergedWatch {
            streams: stream::select_all(streams),
            found: vec![Vec::new(); self.0.len()],
            next: None,
        };
        stream::unfold(merging, |mut merging| async move { Some((merging.next().await?, merging)) }).boxed()
    }
}

type Item = (usize, Result<Vec<Instance>>);

struct MergedWatch {
    streams: SelectAll<stream::BoxStream<'static, Item>>,
    /// Last result of each discovery.
    found: Vec<Vec<Instance>>,
    /// Item that was already taken from `streams`.
    next: Option<Item>,
}

impl MergedWatch {
    async fn next(&mut self) -> Option<Result<Vec<Instance>>> {
        let mut item = match self.next.take() {
            Some(item) => item,
            None => self.streams.next().await?,
        };
        loop {
            match item {
                (_, Err(error)) => return Some(Err(error)),
                (index, Ok(instances)) => self.found.get_mut(index)?.clone_from(&instances),
            }
            // Results that are available already are included in the same set.
            match self.streams.next().now_or_never().flatten() {
                None => return Some(Ok(self.all())),
                Some(failed @ (_, Err(_))) => {
                    self.next = Some(failed);
                    return Some(Ok(self.all()));
                }
                Some(more) => item = more,
            }
        }
    }

    fn all(&self) -> Vec<Instance> {
        self.found.iter().flatten().cloned().collect::<Servers>().into_vec()
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_core::Status;

    use super::*;
    use crate::discovery::List;
    use crate::discovery::testing::next_text;

    struct Failing;

    impl Discover for Failing {
        fn watch(&self) -> InstanceStream {
            stream::once(async { Err(Status::unavailable("no registry").into()) }).boxed()
        }
    }

    #[tokio::test]
    async fn merged_sources_yield_one_set() {
        let one: List = "a:1 weight=1,b:1".parse().unwrap();
        let other: List = "c:1,a:1 weight=9".parse().unwrap();
        let mut sets = one.clone().merged(Failing).merged(other.clone()).watch();
        let mut all = vec![next_text(&mut sets).await, next_text(&mut sets).await];
        if all.iter().all(|item| !item.contains("tcp@c:1")) {
            all.push(next_text(&mut sets).await);
        }
        assert!(all.contains(&"no registry".to_owned()), "{all:?}");
        assert!(all.contains(&"tcp@a:1?weight=1 tcp@b:1 tcp@c:1".to_owned()), "{all:?}");
        one.update([]);
        assert_eq!(next_text(&mut sets).await, "tcp@c:1 tcp@a:1?weight=9");
        drop((one, other));
        assert_eq!(next_text(&mut sets).await, "the end");
    }
}
