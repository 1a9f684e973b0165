use std::sync::Arc;
use std::time::Duration;

use crate::profiler::{FREQUENCY, HIGHEST_FREQUENCY, MAX_SECONDS, Profile, ProfileKind, SECONDS, profiler};
use crate::request::{PageFormat, PageRequest};

/// Parameters of a request for a profile.
#[derive(Debug)]
pub(crate) struct ProfileQuery {
    pub(crate) kind: ProfileKind,
    pub(crate) source: Source,
    pub(crate) display: Display,
    /// The profile to compare with.
    pub(crate) base: Option<Arc<Profile>>,
    /// The function whose part of the graph is shown.
    pub(crate) focus: Option<String>,
    /// The method whose handlers are shown.
    pub(crate) method: Option<String>,
    /// Whether stacks are grouped by method.
    pub(crate) by_method: bool,
}

/// The requested profile.
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

/// Returns the kind of the requested profile, by brpc's path or that of Go's tools; `None` if no profile is requested.
pub(crate) fn kind(request: &PageRequest) -> Option<ProfileKind> {
    match [0, 1, 2, 3].map(|at| request.segment(at)) {
        [Some("hotspots"), None | Some("cpu"), None, None]
        | [Some("pprof"), Some("profile"), None, None]
        | [Some("debug"), Some("pprof"), Some("profile"), None] => Some(ProfileKind::Cpu),
        [Some("hotspots" | "pprof"), Some("contention"), None, None]
        | [Some("debug"), Some("pprof"), Some("mutex"), None] => Some(ProfileKind::Contention),
        [Some("hotspots" | "pprof"), Some("heap"), None, None]
        | [Some("debug"), Some("pprof"), Some("heap"), None] => Some(ProfileKind::Heap),
        _ => None,
    }
}

/// Reads a request for a profile.
///
/// # Errors
///
/// The status of the answer, and the reason for the rejection.
pub(crate) fn query(request: &PageRequest, kind: ProfileKind) -> Result<ProfileQuery, (u16, &'static str)> {
    const WRONG: (u16, &str) = (
        400,
        "A parameter is invalid: seconds is 1 to 60, hz is 1 to 499, view and base are numbers of profiles, display_type \
         is text, collapsed or pprof, by is method; a profile of the heap takes no seconds, and has no methods.",
    );
    const GONE: (u16, &str) = (404, "There is no profile of that number and kind: 32 are kept.");
    let given = |name| request.parameter(name).filter(|value| !value.is_empty());
    let number = |name, usual: u64, max: u64| match given(name) {
        None => Ok(usual),
        Some(text) => text.parse().ok().filter(|number| (1..=max).contains(number)).ok_or(WRONG),
    };
    let kept_profile = |name| match given(name) {
        None => Ok(None),
        Some(text) => {
            let id = text.parse().map_err(|_| WRONG)?;
            profiler().get(id).filter(|profile| profile.kind == kind).map(Some).ok_or(GONE)
        }
    };
    let is_pprof = request.segment(0) != Some("hotspots");
    let display = match given("display_type") {
        None | Some("flame" | "text") if !is_pprof => Display::Page,
        Some("collapsed") => Display::Folded,
        None | Some("pprof") => Display::Pprof,
        Some(_) => return Err(WRONG),
    };
    let duration = Duration::from_secs(number("seconds", SECONDS, MAX_SECONDS)?);
    let frequency = number("hz", FREQUENCY.into(), HIGHEST_FREQUENCY.into())?;
    let frequency = u32::try_from(frequency).unwrap_or(FREQUENCY);
    // What is in use is known at once.
    let starts = match kind {
        ProfileKind::Heap if given("seconds").is_some() => return Err(WRONG),
        ProfileKind::Heap => given("take"),
        ProfileKind::Cpu | ProfileKind::Contention => given("seconds"),
    };
    let is_form = request.format == PageFormat::Html && starts.is_none() && display == Display::Page;
    let source = match kept_profile("view")? {
        Some(profile) => Source::Kept(profile),
        None if is_form => Source::None,
        None => Source::New { duration, frequency },
    };
    let by_method = match given("by") {
        None => false,
        Some("method") => true,
        Some(_) => return Err(WRONG),
    };
    let (focus, method) = (given("focus").map(str::to_owned), given("method").map(str::to_owned));
    if (by_method || method.is_some()) && !kind.has_methods() {
        return Err(WRONG);
    }
    Ok(ProfileQuery { kind, source, display, base: kept_profile("base")?, focus, method, by_method })
}
