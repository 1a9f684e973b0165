//! Turns of the connections that do so much that others have to be looked at in between.
//!
//! Few of them have a turn at a time: a thousand connections that flood delay a quiet one no longer than a few do.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// What takes turns: a connection.
pub(super) trait TakeTurns {
    /// Where it stands in the queue. Called, as [`set_turn`](Self::set_turn), under the queue's lock only.
    fn turn(&self) -> Turn;

    fn set_turn(&self, turn: Turn);

    /// Wakes it for its turn, once the others of its thread were looked at.
    fn wake_for_turn(self: &Arc<Self>);
}

/// The connections of a server whose budget is used up. Few of them have a turn at a time, the others wait in the order in
/// which they came.
#[derive(Debug)]
pub(super) struct TurnQueue<C> {
    /// How many may have a turn at a time.
    places: usize,
    state: Mutex<Turns<C>>,
    /// Some wait.
    is_crowded: AtomicBool,
}

#[derive(Debug)]
struct Turns<C> {
    /// How many have a place.
    taken: usize,
    waiting: VecDeque<Arc<C>>,
}

/// Where a connection stands in the queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nowhere: its budget lasts.
    #[default]
    None,
    /// It waits.
    Waiting,
    /// It has a place: it has a turn, or will be woken for one as soon as the others of its thread were looked at.
    Placed,
}

impl<C> Default for TurnQueue<C> {
    fn default() -> Self {
        // Twice as many as can work at the same time: one has its turn while the next is woken.
        let places = 2 * available_parallelism().map_or(1, NonZero::get);
        let turns = Turns { taken: 0, waiting: VecDeque::new() };
        Self { places, state: Mutex::new(turns), is_crowded: AtomicBool::new(false) }
    }
}

impl<C: TakeTurns> TurnQueue<C> {
    /// Whether any connection waits for its turn.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Waits for the next turn: the connection is woken for it.
    pub(super) fn wait(&self, connection: &Arc<C>) {
        let mut turns = self.lock();
        let has_place = connection.turn() == Turn::Placed;
        if turns.waiting.is_empty() && (has_place || turns.taken < self.places) {
            turns.taken += usize::from(!has_place);
            connection.set_turn(Turn::Placed);
            drop(turns);
            return connection.wake_for_turn();
        }
        connection.set_turn(Turn::Waiting);
        turns.waiting.push_back(connection.clone());
        match has_place {
            true => self.give_place(turns),
            false => self.is_crowded.store(true, Ordering::Relaxed),
        }
    }

    /// Gives a place up. A connection that waits is forgotten.
    pub(super) fn leave(&self, connection: &C) {
        let turns = self.lock();
        let turn = connection.turn();
        connection.set_turn(Turn::None);
        if turn == Turn::Placed {
            self.give_place(turns);
        }
    }

    /// Gives a place that is free to the first that waits.
    fn give_place(&self, mut turns: MutexGuard<'_, Turns<C>>) {
        // Those that have left meanwhile are passed over.
        let next = std::iter::from_fn(|| turns.waiting.pop_front()).find(|next| next.turn() == Turn::Waiting);
        match &next {
            Some(next) => next.set_turn(Turn::Placed),
            None => turns.taken -= 1,
        }
        self.is_crowded.store(!turns.waiting.is_empty(), Ordering::Relaxed);
        drop(turns);
        if let Some(next) = next {
            next.wake_for_turn();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Turns<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
