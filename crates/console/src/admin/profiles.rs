//! CPU profiles, made for those who ask, one at a time.

use std::sync::Arc;

use bytes::Bytes;
use polyrpc::fallback::HttpResponse;

use crate::console::State;
use crate::pages::{self, ProfileDisplay, ProfileSource};
use crate::profiler::{self, Profile, Progress, profiler};
use crate::reply::{Reply, TEXT};
use crate::request::{PageRequest, Verb};
use crate::respond;

/// Whether a request is for a profile: by brpc's path, or by those of Go's tools.
pub(super) fn is_profile(request: &PageRequest) -> bool {
    let path = [request.segment(0), request.segment(1), request.segment(2), request.segment(3)];
    let is_known = matches!(
        path,
        [Some("hotspots"), None | Some("cpu"), None, None]
            | [Some("pprof"), Some("profile"), None, None]
            | [Some("debug"), Some("pprof"), Some("profile"), None]
    );
    is_known && request.verb == Verb::Get
}

/// Answers a request for a profile.
pub(super) async fn answer(state: &State, request: &PageRequest) -> HttpResponse {
    // The caller's role.
    if let Err(refusal) = respond::admit(state, request) {
        return respond::response(refusal);
    }
    let query = match pages::profile_query(request) {
        Ok(query) => query,
        Err((status, why)) => return respond::response(pages::failure(request, status, why)),
    };
    let profile = match &query.source {
        ProfileSource::None => return respond::response(pages::shown_profile(request, &query, None)),
        ProfileSource::Kept(profile) => profile.clone(),
        ProfileSource::New { duration, frequency } => {
            let author = request.caller.name.as_str();
            tracing::info!(author, ?duration, frequency, "the process is profiled");
            match made(profiler().start(*duration, *frequency, state.metrics())).await {
                Ok(profile) => profile,
                Err(why) => return respond::response(Reply::new(503, TEXT, why + "\n")),
            }
        }
    };
    match query.display {
        ProfileDisplay::Page => respond::response(pages::shown_profile(request, &query, Some(&profile))),
        ProfileDisplay::Folded => respond::response(Reply::new(200, TEXT, profiler::folded(&profile))),
        ProfileDisplay::Pprof => pprof(&profile),
    }
}

/// Waits for a profile.
async fn made(mut progress: tokio::sync::watch::Receiver<Progress>) -> Result<Arc<Profile>, String> {
    let done = progress.wait_for(|progress| !matches!(progress, Progress::Running)).await;
    match done.as_deref() {
        Ok(Progress::Made(profile)) => Ok(profile.clone()),
        Ok(Progress::Failed(why)) => Err(why.clone()),
        Ok(Progress::Running) | Err(_) => Err("the profile was not finished".to_owned()),
    }
}

/// Returns a profile in the format of `go tool pprof`.
fn pprof(profile: &Profile) -> HttpResponse {
    let body = Bytes::from(profiler::encoded(profile));
    let length = body.len().to_string();
    let mut response = respond::with_common_fields(HttpResponse::new(200, body));
    response.fields.append("content-type", "application/octet-stream");
    response.fields.append("content-length", length);
    response.fields.append("content-disposition", format!("attachment; filename=\"cpu-{}.pb\"", profile.id));
    response
}
