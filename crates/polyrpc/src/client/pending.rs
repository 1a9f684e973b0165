use std::task::Waker;
use std::time::Instant;

use polyrpc_wire::{CallId, Reply, Status};

/// The calls of one connection that wait for their replies.
///
/// A call's id is its place and how often the place was used, so that a late reply to a call that nobody
/// waits for any more never reaches another.
#[derive(Debug, Default)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    free: Vec<u32>,
    waiting: usize,
    /// No waiting call has an earlier deadline than this. It may be too early: calls that end leave it.
    earliest: Option<Instant>,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting { waker: Waker, deadline: Option<Instant> },
    Ended(Result<Reply, Status>),
}

/// Places a connection has for calls: the id's low bits. One more call is refused.
const PLACES: u32 = 20;

impl Pending {
    /// Takes on a call; `None` when there are too many.
    pub(super) fn insert(&mut self, waker: Waker, deadline: Option<Instant>) -> Option<CallId> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() >= 1 << PLACES => return None,
            None => {
                self.slots.push(Slot { generation: 0, state: State::Free });
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        let slot = &mut self.slots[place as usize];
        slot.state = State::Waiting { waker, deadline };
        self.waiting += 1;
        self.earliest = match (self.earliest, deadline) {
            (Some(earliest), Some(deadline)) => Some(earliest.min(deadline)),
            (earliest, deadline) => earliest.or(deadline),
        };
        Some(CallId(slot.generation << PLACES | u64::from(place)))
    }

    /// How many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// When the next call may have waited too long.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Ends a call; gives whom to wake, or nothing when nobody waits for it.
    pub(super) fn end(&mut self, id: CallId, result: Result<Reply, Status>) -> Option<Waker> {
        let slot = self.slot(id)?;
        let State::Waiting { .. } = slot.state else { return None };
        let State::Waiting { waker, .. } = std::mem::replace(&mut slot.state, State::Ended(result)) else {
            return None;
        };
        self.waiting -= 1;
        Some(waker)
    }

    /// Takes a call's result out, or notes whom to wake.
    pub(super) fn take(&mut self, id: CallId, waker: &Waker) -> Option<Result<Reply, Status>> {
        let slot = self.slot(id)?;
        match &mut slot.state {
            State::Waiting { waker: known, .. } => {
                known.clone_from(waker);
                None
            }
            State::Ended(_) => self.remove(id),
            State::Free => None,
        }
    }

    /// Forgets a call; gives its result if it has one. Returns whether it was still waiting.
    pub(super) fn forget(&mut self, id: CallId) -> bool {
        let was_waiting = matches!(self.slot(id), Some(Slot { state: State::Waiting { .. }, .. }));
        self.waiting -= usize::from(was_waiting);
        self.remove(id);
        was_waiting
    }

    /// Ends every call that has waited until `now`.
    pub(super) fn expire(&mut self, now: Instant, wakers: &mut Vec<Waker>) -> Vec<CallId> {
        let mut expired = Vec::new();
        self.earliest = None;
        for (place, slot) in self.slots.iter_mut().enumerate() {
            let State::Waiting { deadline: Some(deadline), .. } = slot.state else { continue };
            if deadline > now {
                self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
            } else if let State::Waiting { waker, .. } =
                std::mem::replace(&mut slot.state, State::Ended(Err(too_late())))
            {
                wakers.push(waker);
                self.waiting -= 1;
                expired.push(CallId(slot.generation << PLACES | place as u64));
            }
        }
        expired
    }

    /// Ends every call: the connection is gone.
    pub(super) fn end_all(&mut self, status: &Status, wakers: &mut Vec<Waker>) {
        for slot in &mut self.slots {
            if let State::Waiting { waker, .. } = &slot.state {
                wakers.push(waker.clone());
                slot.state = State::Ended(Err(status.clone()));
            }
        }
        self.waiting = 0;
    }

    fn slot(&mut self, id: CallId) -> Option<&mut Slot> {
        let place = id.0 & ((1 << PLACES) - 1);
        let slot = self.slots.get_mut(usize::try_from(place).ok()?)?;
        (slot.generation == id.0 >> PLACES).then_some(slot)
    }

    fn remove(&mut self, id: CallId) -> Option<Result<Reply, Status>> {
        let slot = self.slot(id)?;
        let state = std::mem::replace(&mut slot.state, State::Free);
        if let State::Free = state {
            return None;
        }
        slot.generation = (slot.generation + 1) & (u64::MAX >> PLACES);
        self.free.push((id.0 & ((1 << PLACES) - 1)) as u32);
        match state {
            State::Ended(result) => Some(result),
            State::Waiting { .. } | State::Free => None,
        }
    }
}

#[cold]
fn too_late() -> Status {
    Status::deadline_exceeded("no reply in time")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use polyrpc_wire::Format;

    use super::*;

    fn reply() -> Result<Reply, Status> {
        Ok(Reply::message(Format::Raw, Bytes::new()))
    }

    #[test]
    fn a_late_reply_never_reaches_another_call() {
        let mut pending = Pending::default();
        let first = pending.insert(Waker::noop().clone(), None).unwrap();
        assert!(pending.forget(first));
        let second = pending.insert(Waker::noop().clone(), None).unwrap();
        assert_ne!(first, second);
        assert!(pending.end(first, reply()).is_none());
        assert!(pending.take(second, Waker::noop()).is_none());
        assert!(pending.end(second, reply()).is_some());
        assert!(pending.take(second, Waker::noop()).is_some());
        assert_eq!(pending.waiting(), 0);
    }

    #[test]
    fn a_call_is_answered_once() {
        let mut pending = Pending::default();
        let id = pending.insert(Waker::noop().clone(), None).unwrap();
        assert!(pending.end(id, reply()).is_some());
        assert!(pending.end(id, reply()).is_none());
    }

    #[test]
    fn only_calls_past_their_deadline_expire() {
        let mut pending = Pending::default();
        let now = Instant::now();
        let soon = pending.insert(Waker::noop().clone(), Some(now)).unwrap();
        let later = pending.insert(Waker::noop().clone(), Some(now + Duration::from_secs(1))).unwrap();
        let never = pending.insert(Waker::noop().clone(), None).unwrap();
        assert_eq!(pending.earliest(), Some(now));
        let mut wakers = Vec::new();
        assert_eq!(pending.expire(now, &mut wakers), [soon]);
        assert_eq!((wakers.len(), pending.waiting()), (1, 2));
        assert_eq!(pending.earliest(), Some(now + Duration::from_secs(1)));
        assert!(pending.take(soon, Waker::noop()).unwrap().is_err());
        assert!(pending.take(later, Waker::noop()).is_none());
        assert!(pending.take(never, Waker::noop()).is_none());
    }

    #[test]
    fn when_the_connection_is_gone_every_waiting_call_ends() {
        let mut pending = Pending::default();
        let ids: Vec<_> = (0..3).map(|_| pending.insert(Waker::noop().clone(), None).unwrap()).collect();
        let mut wakers = Vec::new();
        pending.end_all(&Status::unavailable("gone"), &mut wakers);
        assert_eq!(wakers.len(), 3);
        for id in ids {
            assert!(pending.take(id, Waker::noop()).unwrap().is_err());
        }
    }
}
