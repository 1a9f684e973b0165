//! Which of the servers of a service answers a call.
//!
//! A [`Balance`] makes a [`Pick`] for every set of servers that discovery yields, slowly, and may remember what is to
//! outlive the set; a call asks the pick, which never waits and takes no lock that anybody holds for long.

mod candidate;

use std::fmt;
use std::time::{Duration, Instant};

use polyrpc_wire::Status;

pub use self::candidate::{Candidate, Load};

/// A way to choose among servers.
pub trait Balance: fmt::Debug + Send + Sync + 'static {
    /// Makes the pick for a set of servers, which are known by their places in it from now on. The same
    /// [`Candidate`] means the same server as in the set before.
    fn over(&self, candidates: &[Candidate]) -> Box<dyn Pick>;
}

/// Chooses among the servers of one set.
pub trait Pick: Send + Sync {
    /// The place of the server that is to answer; `None` if there is none that may.
    ///
    /// It offers only servers that [`Asked::may_take`] the call.
    fn pick(&self, asked: &Asked<'_>) -> Option<usize>;

    /// An attempt on the server at this place begins.
    fn began(&self, _place: usize, _now: Instant) {}

    /// An attempt on the server at this place has ended. It is told of every attempt that [`began`](Self::began), of
    /// those too that were given up.
    fn ended(&self, _place: usize, _outcome: &Outcome<'_>) {}
}

/// The call that a server is sought for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The service.
    pub service: &'a str,
    /// The method.
    pub method: &'a str,
    /// What calls have in common that are to go to the same server: brpc's request code, or whatever the caller says;
    /// `None` if he says nothing.
    pub key: Option<u64>,
    /// The encoded request.
    pub request: &'a [u8],
    /// When the call looks for a server.
    pub now: Instant,
    /// The candidates that the pick was made for.
    pub candidates: &'a [Candidate],
    /// The places that were tried in vain already.
    pub tried: &'a [usize],
}

impl Asked<'_> {
    /// Whether the server at this place may have the call: it is thought to be well, and was not tried already.
    pub fn may_take(&self, place: usize) -> bool {
        self.candidates.get(place).is_some_and(|candidate| candidate.load().is_available(self.now))
            && !self.tried.contains(&place)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// From its beginning to its end.
    pub latency: Duration,
    /// When it ended.
    pub now: Instant,
    /// Why it failed, if it did.
    pub failure: Option<&'a Status>,
    /// How long the call was ready to wait.
    pub timeout: Option<Duration>,
    /// How many more attempts the call has, and how many it has had.
    pub attempts: (u32, u32),
}

impl Outcome<'_> {
    /// Whether the server is to blame: a refusal of the caller's own mistake says nothing against it, nor does a call
    /// that was given up.
    pub fn is_the_servers_failure(&self) -> bool {
        use polyrpc_wire::{Code, Fault, Scope};
        self.failure.is_some_and(|status| {
            status.scope() == Scope::Connection
                || (status.fault() != Fault::Caller && status.code() != Code::Cancelled)
        })
    }
}
