//! All attacks. Each is a short function in the file of its family; [`siege`] and [`mod@line`] are what they are made of.

mod line;
mod siege;

mod bodies;
mod bombs;
mod calls;
mod credentials;
mod datagrams;
mod floods;
mod glue;
mod heads;
mod http;
mod json;
mod local;
mod loris;
mod resets;
mod shutdown;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use polyrpc::server::Limits;
use serde::{Deserialize, Serialize};

use crate::profile::Profile;

pub(crate) use self::siege::Siege;

/// What attackers do, and what must become of their connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack {
    /// The name by which it is chosen.
    pub(crate) name: &'static str,
    /// The row of the table of what was measured once, `flood` for the known ones of HTTP/2, `kin` for others of the
    /// same classes.
    pub(crate) row: &'static str,
    /// What the attackers do, in a few words.
    pub(crate) does: &'static str,
    pub(crate) end: End,
    pub(crate) run: fn(Siege) -> Running,
    pub(crate) form: Form,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = io::Result<Outcome>>>>;

/// In which runs an attack is made, and against what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In both forms.
    Always,
    /// Not in the short form.
    FullOnly,
    /// In both; the server is asked to shut down while the attackers are there, so it needs one of its own.
    Terminated,
    /// In both, without a server: it looks at the client, or at a server of its own.
    Alone,
}

/// What must become of the attackers' connections, or of their streams.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The server ends them within this limit.
    Within(fn(&Limits) -> Duration),
    /// They may stay, since this bounds what they hold.
    Held(&'static str),
    /// The attackers leave by themselves.
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

/// What came of an attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Bytes that the attackers sent.
    pub(crate) sent: u64,
    /// Connections that they made.
    pub(crate) connections: usize,
    /// Of those, how many the server had not ended when the attackers stopped waiting.
    pub(crate) open: usize,
    /// After how many milliseconds the server had ended the last of the others.
    pub(crate) released: Option<u64>,
    /// What else is worth a line.
    pub(crate) notes: Vec<String>,
    /// What should not have happened.
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
    run: fn(Siege) -> Running,
) -> Attack {
    Attack { name, row, does, end, run, form: Form::Always }
}

impl Attack {
    const fn only_in(self, form: Form) -> Self {
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
            &glue::ATTACKS,
            &floods::ATTACKS,
            &loris::ATTACKS,
            &calls::ATTACKS,
            &json::ATTACKS,
        ]
        .into_iter()
        .flatten()
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
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
