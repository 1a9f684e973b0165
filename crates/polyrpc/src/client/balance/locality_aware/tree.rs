use std::sync::atomic::{AtomicI64, Ordering};

/// Weights in a complete binary tree. Finding the server of a random number takes a logarithmic number of steps.
///
/// The tree is read while it is changed: a search may run out of the tree or meet another server's weight, in which
/// case the next draw corrects it.
pub(super) struct Tree {
    nodes: Box<[Node]>,
    total: AtomicI64,
}

#[derive(Default)]
struct Node {
    weight: AtomicI64,
    /// Sum of the weights in the left branch.
    left: AtomicI64,
}

impl Tree {
    pub(super) fn new(weights: impl ExactSizeIterator<Item = i64>) -> Self {
        let nodes = (0..weights.len()).map(|_| Node::default()).collect();
        let tree = Self { nodes, total: AtomicI64::new(0) };
        weights.enumerate().for_each(|(index, weight)| tree.set(index, weight));
        tree
    }

    pub(super) fn total(&self) -> i64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(super) fn weight(&self, index: usize) -> i64 {
        self.nodes.get(index).map_or(0, |node| node.weight.load(Ordering::Relaxed))
    }

    /// Sets the weight of the server with this index.
    pub(super) fn set(&self, index: usize, weight: i64) {
        let Some(node) = self.nodes.get(index) else { return };
        let more = weight - node.weight.swap(weight, Ordering::Relaxed);
        if more != 0 {
            self.add(index, more);
        }
    }

    /// Propagates a change of a weight to the ancestors.
    fn add(&self, mut index: usize, more: i64) {
        self.total.fetch_add(more, Ordering::Relaxed);
        while index > 0 {
            let above = (index - 1) / 2;
            if index == 2 * above + 1 {
                self.nodes[above].left.fetch_add(more, Ordering::Relaxed);
            }
            index = above;
        }
    }

    /// Finds the index of the server that a random number falls on, and the offset within its weight.
    pub(super) fn find(&self, mut offset: i64) -> Option<(usize, i64)> {
        let mut index = 0;
        loop {
            let node = self.nodes.get(index)?;
            let left = node.left.load(Ordering::Relaxed);
            if offset < left {
                index = 2 * index + 1;
                continue;
            }
            offset -= left;
            let weight = node.weight.load(Ordering::Relaxed);
            if offset < weight {
                return Some((index, offset));
            }
            offset -= weight;
            index = 2 * index + 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_pick_servers_by_weight() {
        let weights = [3, 0, 2, 5, 1, 4, 0, 7, 1, 1];
        let tree = Tree::new(weights.into_iter());
        assert_eq!(tree.total(), 24);
        let mut hits = [0; 10];
        for point in 0..24 {
            let (index, offset) = tree.find(point).unwrap();
            assert!((0..weights[index]).contains(&offset));
            hits[index] += 1;
        }
        assert_eq!(hits, weights);
        assert_eq!(tree.find(24), None);
    }

    #[test]
    fn weight_updates_change_the_picks() {
        let tree = Tree::new([1, 1, 1].into_iter());
        tree.set(1, 5);
        tree.set(0, 0);
        assert_eq!((tree.total(), tree.weight(1)), (6, 5));
        let hits = |index| (0..6).filter(|&point| tree.find(point).unwrap().0 == index).count();
        assert_eq!([hits(0), hits(1), hits(2)], [0, 5, 1]);
    }

    #[test]
    fn empty_tree_picks_nothing() {
        assert_eq!(Tree::new([].into_iter()).find(0), None);
    }
}
