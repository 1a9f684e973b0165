//! Methods called by hand.

use tokio::sync::Semaphore;

use crate::console::State;
use crate::pages;
use crate::reply::Reply;
use crate::request::{PageRequest, Verb};
use crate::respond;

/// The calls that are made by hand, of which there are few at a time.
#[derive(Debug)]
pub(super) struct Trials(Semaphore);

/// How many calls are made at a time.
const MOST: usize = 4;

impl Trials {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(MOST))
    }

    /// Answers a request, which may ask for a call.
    pub(super) async fn answer(&self, state: &State, request: &PageRequest) -> Reply {
        let page = match respond::admit(state, request) {
            Ok(page) => page,
            Err(refusal) => return refusal,
        };
        if page.name != "try" || request.verb != Verb::Post {
            return (page.answer)(state, request);
        }
        let Ok(_permit) = self.0.try_acquire() else {
            return pages::failure(request, 503, "Too many methods are tried.");
        };
        let (server, trial) = match pages::trial(state, request) {
            Ok(trial) => trial,
            Err(failure) => return failure,
        };
        let (author, target) = (request.caller.name.as_str(), trial.target.as_str());
        tracing::info!(author, target, protocol = trial.protocol, "a method is called by hand");
        let result = trial.make(&server).await;
        pages::trial_result(state, request, &server, &trial, result)
    }
}
