//! All attacks. Each is a short function in the file of its family, built from [`mod@context`] and [`mod@connection`].

mod connection;
mod context;

mod bodies;
mod bombs;
mod calls;
mod credentials;
mod datagrams;
mod floods;
mod heads;
mod http;
mod json;
mod kept;
mod local;
mod loris;
mod protocol_changes;
mod resets;
mod shutdown;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use polyrpc::server::Limits;
use serde::{Deserialize, Serialize};

use crate::profile::Profile;

pub(crate) use self::context::AttackContext;

/// An attack, and the required outcome of its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack {
    /// The name that selects it.
    pub(crate) name: &'static str,
    /// Row of the table of past measurements, `flood` for the known HTTP/2 floods, `kin` for others of the
    /// same classes.
    pub(crate) row: &'static str,
    /// Short description.
    pub(crate) does: &'static str,
    pub(crate) end: End,
    pub(crate) run: fn(AttackContext) -> Running,
    pub(crate) form: Form,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = io::Result<Outcome>>>>;

/// The runs that include an attack, and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In both forms.
    Always,
    /// Not in the short form.
    FullOnly,
    /// In both; the server is shut down during the attack, so it needs its own.
    Terminated,
    /// In both, without a server: it tests the client, or starts its own server.
    Alone,
}

/// Required outcome of the attackers' connections or streams.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The server closes them within this limit.
    Within(fn(&Limits) -> Duration),
    /// They may stay, since this limits what they hold.
    Held(&'static str),
    /// The attackers disconnect by themselves.
    Brief,
}

impl End {
    /// The limit within which the server must end them.
    pub(crate) fn limit(self, profile: Profile) -> Option<Duration> {
        match self {
            Self::Within(limit) => Some(limit(&profile.limits())),
            Self::Held(_) | Self::Brief => None,
        }
    }
}

/// Outcome of an attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Bytes sent by the attackers.
    pub(crate) sent: u64,
    /// Number of their connections.
    pub(crate) connections: usize,
    /// Number of them that the server had not closed when the attackers stopped waiting.
    pub(crate) open: usize,
    /// Milliseconds until the server had closed the last of the others.
    pub(crate) released: Option<u64>,
    /// Further notes.
    pub(crate) notes: Vec<String>,
    /// Failures.
    pub(crate) failures: Vec<String>,
}

impl Outcome {
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// A failure if `should` does not hold.
    pub(crate) fn check(mut self, should: bool, failure: impl Into<String>) -> Self {
        if !should {
            self.failures.push(failure.into());
        }
        self
    }
}

const fn attack(
    name: &'static str,
    row: &'static str,
    does: &'static str,
    end: End,
    run: fn(AttackContext) -> Running,
) -> Attack {
    Attack { name, row, does, end, run, form: Form::Always }
}

impl Attack {
    const fn with_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        [
            &heads::ATTACKS[..],
            &bombs::ATTACKS,
            &bodies::ATTACKS,
            &credentials::ATTACKS,
            &resets::ATTACKS,
            &datagrams::ATTACKS,
            &local::ATTACKS,
            &http::ATTACKS,
            &shutdown::ATTACKS,
            &protocol_changes::ATTACKS,
            &floods::ATTACKS,
            &loris::ATTACKS,
            &calls::ATTACKS,
            &json::ATTACKS,
            &kept::ATTACKS,
        ]
        .into_iter()
        .flatten()
    }

    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|attack| attack.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_names_are_unique() {
        let mut names: Vec<_> = Attack::all().map(|attack| attack.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
