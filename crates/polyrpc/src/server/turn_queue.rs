//! A queue for connections with so much work that others must be polled in between.
//!
//! Few connections have a turn at a time: a thousand flooding connections delay a quiet one no longer than a few do.
//! A connection of modest demand never waits behind the whole flood: slots are given alternately to a modest connection
//! and to one that floods.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::available_parallelism;

use crate::contention::{Mutex, MutexGuard};

/// A connection that can take turns.
pub(super) trait TakeTurns {
    /// Returns its state in the queue. Called, as [`set_turn`](Self::set_turn), only under the queue's lock.
    fn turn(&self) -> Turn;

    fn set_turn(&self, turn: Turn);

    /// Wakes it for its turn, once the others of its thread were polled.
    fn wake_for_turn(self: &Arc<Self>);
}

/// The connections of a server whose budget is used up, or that wait for their first turn. Few of them have a turn at a
/// time, the others wait in order of arrival among those of the same demand.
#[derive(Debug)]
pub(super) struct TurnQueue<C> {
    /// Maximum number of simultaneous turns.
    slots: usize,
    state: Mutex<QueueState<C>>,
    /// Whether any connection waits.
    is_crowded: AtomicBool,
}

#[derive(Debug)]
struct QueueState<C> {
    /// Number of slots in use.
    taken: usize,
    modest: VecDeque<Arc<C>>,
    heavy: VecDeque<Arc<C>>,
    /// The last slot was given to a modest connection.
    was_modest: bool,
    /// Number of entries of connections that have left while they waited.
    departed: usize,
}

impl<C: TakeTurns> QueueState<C> {
    fn is_empty(&self) -> bool {
        self.modest.is_empty() && self.heavy.is_empty()
    }

    /// Removes the next connection that still waits, alternately from each queue.
    fn pop(&mut self) -> Option<Arc<C>> {
        for queue in [&mut self.modest, &mut self.heavy] {
            while queue.pop_front_if(|next| next.turn() != Turn::Waiting).is_some() {
                self.departed = self.departed.saturating_sub(1);
            }
        }
        self.was_modest = !self.modest.is_empty() && (!self.was_modest || self.heavy.is_empty());
        match self.was_modest {
            true => self.modest.pop_front(),
            false => self.heavy.pop_front(),
        }
    }

    /// Counts a connection that has left while it waited. Once they are the majority, all of them are removed, since each
    /// keeps the memory of its connection.
    fn record_departed(&mut self) {
        self.departed += 1;
        if self.departed >= MIN_DEPARTED_TO_COMPACT
            && self.departed > (self.modest.len() + self.heavy.len()) / 2
        {
            for queue in [&mut self.modest, &mut self.heavy] {
                queue.retain(|next| next.turn() == Turn::Waiting);
            }
            self.departed = 0;
        }
    }
}

/// Minimum number of entries of departed connections before the queues are compacted.
const MIN_DEPARTED_TO_COMPACT: usize = 64;

/// Expected work of a waiting connection, from its previous turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// It has done nothing in its turn yet, or usually stays within its budget.
    Modest,
    /// It often uses its budget up.
    Heavy,
}

/// State of a connection in the queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Not queued: its budget is not used up.
    #[default]
    None,
    /// Waiting.
    Waiting,
    /// It has a slot: it has a turn, or is woken for one as soon as the others of its thread have been polled.
    Granted,
}

impl<C> Default for TurnQueue<C> {
    fn default() -> Self {
        // Twice as many as can run at the same time: one has its turn while the next is woken.
        let slots = 2 * available_parallelism().map_or(1, NonZero::get);
        let turns = QueueState {
            taken: 0,
            modest: VecDeque::new(),
            heavy: VecDeque::new(),
            was_modest: false,
            departed: 0,
        };
        Self { slots, state: Mutex::new(turns), is_crowded: AtomicBool::new(false) }
    }
}

impl<C: TakeTurns> TurnQueue<C> {
    /// Returns whether any connection waits for its turn.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Queues a connection for its next turn, for which it is woken.
    pub(super) fn enqueue(&self, connection: &Arc<C>, demand: Demand) {
        let mut turns = self.lock();
        let has_slot = connection.turn() == Turn::Granted;
        if turns.is_empty() && (has_slot || turns.taken < self.slots) {
            turns.taken += usize::from(!has_slot);
            connection.set_turn(Turn::Granted);
            drop(turns);
            return connection.wake_for_turn();
        }
        connection.set_turn(Turn::Waiting);
        match demand {
            Demand::Modest => turns.modest.push_back(connection.clone()),
            Demand::Heavy => turns.heavy.push_back(connection.clone()),
        }
        match has_slot {
            true => self.grant_slot(turns),
            false => self.is_crowded.store(true, Ordering::Relaxed),
        }
    }

    /// Releases a slot. A waiting connection is removed.
    pub(super) fn leave(&self, connection: &C) {
        let mut turns = self.lock();
        let turn = connection.turn();
        connection.set_turn(Turn::None);
        match turn {
            Turn::None => {}
            Turn::Waiting => turns.record_departed(),
            Turn::Granted => self.grant_slot(turns),
        }
    }

    /// Gives a free slot to the next waiting connection.
    fn grant_slot(&self, mut turns: MutexGuard<'_, QueueState<C>>) {
        let next = turns.pop();
        match &next {
            Some(next) => next.set_turn(Turn::Granted),
            None => turns.taken -= 1,
        }
        self.is_crowded.store(!turns.is_empty(), Ordering::Relaxed);
        drop(turns);
        if let Some(next) = next {
            next.wake_for_turn();
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::Demand::{Heavy, Modest};
    use super::*;

    /// A connection that counts its turns.
    #[derive(Debug, Default)]
    struct Flooder {
        turn: Mutex<Turn>,
        turns: AtomicUsize,
    }

    impl TakeTurns for Flooder {
        fn turn(&self) -> Turn {
            *self.turn.lock().unwrap()
        }

        fn set_turn(&self, turn: Turn) {
            *self.turn.lock().unwrap() = turn;
        }

        fn wake_for_turn(self: &Arc<Self>) {
            self.turns.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn queue(slots: usize) -> TurnQueue<Flooder> {
        TurnQueue { slots, ..TurnQueue::default() }
    }

    fn flooders(number: usize) -> Vec<Arc<Flooder>> {
        (0..number).map(|_| Arc::default()).collect()
    }

    fn turns(flooders: &[Arc<Flooder>]) -> Vec<usize> {
        flooders.iter().map(|flooder| flooder.turns.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn number_of_woken_connections_is_limited() {
        let (queue, flooders) = (queue(2), flooders(4));
        flooders.iter().for_each(|flooder| queue.enqueue(flooder, Heavy));
        assert_eq!(turns(&flooders), [1, 1, 0, 0]);
        assert!(queue.is_crowded());
    }

    #[test]
    fn flooding_connection_queues_behind_the_others() {
        let (queue, flooders) = (queue(1), flooders(3));
        flooders.iter().for_each(|flooder| queue.enqueue(flooder, Heavy));
        for round in 1..=5 {
            assert_eq!(turns(&flooders), [round, round - 1, round - 1]);
            queue.enqueue(&flooders[0], Heavy);
            assert_eq!(turns(&flooders), [round, round, round - 1]);
            queue.enqueue(&flooders[1], Heavy);
            assert_eq!(turns(&flooders), [round, round, round]);
            queue.enqueue(&flooders[2], Heavy);
        }
    }

    #[test]
    fn modest_connection_waits_behind_one_that_floods() {
        let (queue, flooders, new) = (queue(1), flooders(5), flooders(3));
        flooders.iter().for_each(|flooder| queue.enqueue(flooder, Heavy));
        new.iter().for_each(|new| queue.enqueue(new, Modest));
        let mut next = flooders[0].clone();
        for (of_new, of_flooders) in [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4), (3, 5)] {
            queue.leave(&next);
            let count = |connections: &[Arc<Flooder>]| turns(connections).iter().sum::<usize>();
            assert_eq!((count(&new), count(&flooders)), (of_new, of_flooders));
            let mut all = new.iter().chain(&flooders);
            next = all.find(|connection| connection.turn() == Turn::Granted).unwrap().clone();
        }
        queue.leave(&next);
        assert!(!queue.is_crowded() && queue.lock().taken == 0);
    }

    #[test]
    fn connections_that_have_left_cost_the_others_no_turn() {
        let (queue, flooders, departed, new) = (queue(1), flooders(3), flooders(3), flooders(1));
        flooders.iter().for_each(|flooder| queue.enqueue(flooder, Heavy));
        departed.iter().chain(&new).for_each(|modest| queue.enqueue(modest, Modest));
        departed.iter().for_each(|departed| queue.leave(departed));
        queue.leave(&flooders[0]);
        assert_eq!((turns(&new), turns(&departed), turns(&flooders)), (vec![1], vec![0; 3], vec![1, 0, 0]));
    }

    #[test]
    fn connections_that_leave_while_they_wait_are_not_kept() {
        let (queue, flooders) = (queue(1), flooders(3));
        flooders.iter().for_each(|flooder| queue.enqueue(flooder, Heavy));
        for demand in [Modest, Heavy].repeat(500) {
            let gone = Arc::<Flooder>::default();
            queue.enqueue(&gone, demand);
            queue.leave(&gone);
        }
        let waiting = |turns: &QueueState<Flooder>| turns.modest.len() + turns.heavy.len();
        assert!(waiting(&queue.lock()) < 3 + MIN_DEPARTED_TO_COMPACT);
        queue.leave(&flooders[0]);
        queue.leave(&flooders[1]);
        assert_eq!(turns(&flooders), [1, 1, 1]);
    }

    #[test]
    fn lone_flooding_connection_keeps_its_slot() {
        let (queue, flooders) = (queue(1), flooders(1));
        (0..10).for_each(|_| queue.enqueue(&flooders[0], Heavy));
        assert_eq!(turns(&flooders), [10]);
        assert!(!queue.is_crowded());
    }

    #[test]
    fn leaving_connection_hands_its_slot_to_the_next() {
        let (queue, flooders) = (queue(1), flooders(2));
        flooders.iter().for_each(|flooder| queue.enqueue(flooder, Heavy));
        queue.leave(&flooders[0]);
        assert_eq!(turns(&flooders), [1, 1]);
        assert!(!queue.is_crowded());
        queue.leave(&flooders[1]);
        assert_eq!(queue.lock().taken, 0);
        queue.enqueue(&flooders[0], Heavy);
        assert_eq!(turns(&flooders), [2, 1]);
    }

    #[test]
    fn closed_waiting_connection_is_skipped() {
        let (queue, flooders) = (queue(1), flooders(3));
        flooders.iter().for_each(|flooder| queue.enqueue(flooder, Heavy));
        queue.leave(&flooders[1]);
        queue.leave(&flooders[0]);
        assert_eq!(turns(&flooders), [1, 0, 1]);
    }

    #[test]
    fn leaving_without_a_slot_changes_nothing() {
        let (queue, flooders) = (queue(1), flooders(2));
        queue.leave(&flooders[1]);
        queue.enqueue(&flooders[0], Heavy);
        queue.leave(&flooders[1]);
        assert_eq!((queue.lock().taken, turns(&flooders)), (1, vec![1, 0]));
    }
}
