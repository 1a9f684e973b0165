use std::sync::Arc;
use std::time::Duration;

use crate::profiler::{FREQUENCY, HIGHEST_FREQUENCY, MOST_SECONDS, Profile, SECONDS, profiler};
use crate::request::{Form, PageRequest};

/// What a request for a profile wants.
#[derive(Debug)]
pub(crate) struct ProfileQuery {
    pub(crate) source: Source,
    pub(crate) display: Display,
    /// The profile to compare with.
    pub(crate) base: Option<Arc<Profile>>,
    /// The function whose part of the graph is shown.
    pub(crate) focus: Option<String>,
}

/// Which profile is wanted.
#[derive(Debug)]
pub(crate) enum Source {
    /// A new one.
    New {
        duration: Duration,
        frequency: u32,
    },
    Kept(Arc<Profile>),
    /// None yet: only the form.
    None,
}

/// How a profile is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Display {
    /// In the form of the request.
    Page,
    /// Lines of stacks.
    Folded,
    /// The format of `go tool pprof`.
    Pprof,
}

/// Reads a request.
///
/// # Errors
///
/// The status of the answer, and why it is refused.
pub(crate) fn query(request: &PageRequest) -> Result<ProfileQuery, (u16, &'static str)> {
    const WRONG: (u16, &str) = (
        400,
        "A parameter is invalid: seconds is 1 to 60, hz is 1 to 499, view and base are numbers of profiles, display_type \
         is text, collapsed or pprof.",
    );
    const GONE: (u16, &str) = (404, "There is no profile of that number: 32 are kept.");
    let given = |name| request.parameter(name).filter(|value| !value.is_empty());
    let number = |name, usual: u64, most: u64| match given(name) {
        None => Ok(usual),
        Some(text) => text.parse().ok().filter(|number| (1..=most).contains(number)).ok_or(WRONG),
    };
    let kept = |name| match given(name) {
        None => Ok(None),
        Some(text) => {
            let id = text.parse().map_err(|_| WRONG)?;
            profiler().get(id).map(Some).ok_or(GONE)
        }
    };
    let is_pprof = request.segment(0) != Some("hotspots");
    let display = match given("display_type") {
        None | Some("flame" | "text") if !is_pprof => Display::Page,
        Some("collapsed") => Display::Folded,
        None | Some("pprof") => Display::Pprof,
        Some(_) => return Err(WRONG),
    };
    let duration = Duration::from_secs(number("seconds", SECONDS, MOST_SECONDS)?);
    let frequency = number("hz", FREQUENCY.into(), HIGHEST_FREQUENCY.into())?;
    let frequency = u32::try_from(frequency).unwrap_or(FREQUENCY);
    let is_form = request.form == Form::Html && given("seconds").is_none() && display == Display::Page;
    let source = match kept("view")? {
        Some(profile) => Source::Kept(profile),
        None if is_form => Source::None,
        None => Source::New { duration, frequency },
    };
    Ok(ProfileQuery { source, display, base: kept("base")?, focus: given("focus").map(str::to_owned) })
}
