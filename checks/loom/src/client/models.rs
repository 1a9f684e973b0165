use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use loom::sync::Mutex;
use loom::thread;
use polyrpc_core::{CallId, Format, Reply, Status};

use super::cluster::retry_budget::{RetryBudget, RetryTokens};
use super::connection::pending::PendingCalls;

/// A call, the reader that receives the reply to it, and another caller who takes its slot: no reply reaches the wrong one,
/// and the slots are all free in the end.
#[test]
fn late_reply_never_reaches_the_next_call_of_its_slot() {
    loom::model(|| {
        let pending = Arc::new(Mutex::new(PendingCalls::default()));
        let first = pending.lock().unwrap().insert(Waker::noop().clone(), None).unwrap();
        let reader = {
            let pending = pending.clone();
            thread::spawn(move || finish(&pending, first, "first"))
        };
        let other = {
            let pending = pending.clone();
            thread::spawn(move || {
                let second = pending.lock().unwrap().insert(Waker::noop().clone(), None).unwrap();
                assert_ne!(second, first);
                finish(&pending, second, "second");
                assert_eq!(take(&pending, second).as_deref(), Some("second"));
            })
        };
        // The first caller loses its patience, or finds its own reply.
        if let Some(text) = take(&pending, first) {
            assert_eq!(text, "first");
        } else {
            pending.lock().unwrap().forget(first);
        }
        reader.join().unwrap();
        other.join().unwrap();
        let pending = pending.lock().unwrap();
        assert_eq!(pending.waiting(), 0);
    });
}

/// The connection ends while a call is made: the call ends with it, or was never registered before.
#[test]
fn call_that_races_with_the_end_of_its_connection_ends() {
    loom::model(|| {
        let shared = Arc::new(Mutex::new((PendingCalls::default(), false)));
        let ending = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut shared = shared.lock().unwrap();
                shared.1 = true;
                shared.0.end_all(&Status::unavailable("the connection broke"), &mut Vec::new());
            })
        };
        let id = {
            let mut shared = shared.lock().unwrap();
            // As a connection does: under the same lock as its end.
            (!shared.1).then(|| shared.0.insert(Waker::noop().clone(), None).unwrap())
        };
        ending.join().unwrap();
        let mut shared = shared.lock().unwrap();
        if let Some(id) = id {
            assert!(shared.0.take(id, Waker::noop()).expect("it has ended").is_err());
        }
        assert_eq!(shared.0.waiting(), 0);
    });
}

fn finish(pending: &Mutex<PendingCalls>, id: CallId, text: &'static str) {
    let reply = Reply::message(Format::Raw, Bytes::from_static(text.as_bytes()));
    pending.lock().unwrap().finish(id, Ok(reply), &mut Vec::new());
}

fn take(pending: &Mutex<PendingCalls>, id: CallId) -> Option<String> {
    let taken = pending.lock().unwrap().take(id, Waker::noop())?;
    Some(String::from_utf8(taken.unwrap().result.unwrap().to_vec()).unwrap())
}

/// Of two attempts that race for the last of the budget, one is made.
#[test]
fn last_retry_of_the_budget_is_withdrawn_once() {
    loom::model(|| {
        let tokens =
            Arc::new(RetryTokens::new(&RetryBudget { ratio: 0.0, initial_tokens: 1, max_tokens: 1 }));
        let other = {
            let tokens = tokens.clone();
            thread::spawn(move || tokens.withdraw(|| 1))
        };
        let own = tokens.withdraw(|| 1);
        assert!(own ^ other.join().unwrap());
        assert!(!tokens.withdraw(|| 1));
    });
}

/// A race between a deposit and withdrawals makes at most one attempt more than was paid for.
#[test]
fn deposits_that_race_with_withdrawals_create_at_most_one_attempt() {
    loom::model(|| {
        let tokens =
            Arc::new(RetryTokens::new(&RetryBudget { ratio: 1.0, initial_tokens: 1, max_tokens: 1 }));
        let other = {
            let tokens = tokens.clone();
            thread::spawn(move || {
                tokens.deposit();
                usize::from(tokens.withdraw(|| 0))
            })
        };
        let own = usize::from(tokens.withdraw(|| 0));
        let made = own + other.join().unwrap() + usize::from(tokens.withdraw(|| 0));
        assert!((1..=3).contains(&made), "{made} attempts");
    });
}
