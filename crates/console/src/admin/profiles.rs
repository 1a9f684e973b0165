//! Profiles on request, one at a time.

use std::sync::Arc;

use bytes::Bytes;
use polyrpc::fallback::HttpResponse;

use crate::console::State;
use crate::pages::{self, ProfileDisplay, ProfileSource};
use crate::profiler::{self, Profile, ProfileKind, Progress, profiler};
use crate::reply::{Reply, TEXT};
use crate::request::{PageRequest, Verb};
use crate::respond;

/// Returns the kind of the requested profile, if a profile is requested.
pub(super) fn kind(request: &PageRequest) -> Option<ProfileKind> {
    pages::profile_kind(request).filter(|_| request.verb == Verb::Get)
}

/// Answers a request for a profile.
pub(super) async fn answer(state: &State, request: &PageRequest, kind: ProfileKind) -> HttpResponse {
    // The caller's role.
    if let Err(refusal) = respond::admit(state, request) {
        return respond::response(refusal);
    }
    let query = match pages::profile_query(request, kind) {
        Ok(query) => query,
        Err((status, why)) => return respond::response(pages::failure(request, status, why)),
    };
    let profile = match &query.source {
        ProfileSource::None => return respond::response(pages::answer_profile(request, &query, None)),
        ProfileSource::Kept(profile) => profile.clone(),
        ProfileSource::New { duration, frequency } => {
            let author = request.caller.name.as_str();
            tracing::info!(author, ?kind, ?duration, frequency, "the process is profiled");
            match wait_for_profile(profiler().start(kind, *duration, *frequency, state.metrics())).await {
                Ok(profile) => profile,
                Err(why) => return respond::response(Reply::new(503, TEXT, why + "\n")),
            }
        }
    };
    match query.display {
        ProfileDisplay::Page => {
            let reply = pages::answer_profile(request, &query, Some(&profile));
            respond::response(respond::compress(state, request, reply))
        }
        ProfileDisplay::Folded => {
            respond::response(Reply::new(200, TEXT, profiler::format_folded(&profile, query.by_method)))
        }
        ProfileDisplay::Pprof => pprof(&profile),
    }
}

/// Waits for a profile.
async fn wait_for_profile(
    mut progress: tokio::sync::watch::Receiver<Progress>,
) -> Result<Arc<Profile>, String> {
    let done = progress.wait_for(|progress| !matches!(progress, Progress::Running)).await;
    match done.as_deref() {
        Ok(Progress::Made(profile)) => Ok(profile.clone()),
        Ok(Progress::Failed(why)) => Err(why.clone()),
        Ok(Progress::Running) | Err(_) => Err("the profile was not finished".to_owned()),
    }
}

/// Returns a profile in the format of `go tool pprof`.
fn pprof(profile: &Profile) -> HttpResponse {
    let body = Bytes::from(profiler::encode_pprof(profile));
    let length = body.len().to_string();
    let mut response = respond::with_common_fields(HttpResponse::new(200, body));
    response.headers.append("content-type", "application/octet-stream");
    response.headers.append("content-length", length);
    response.headers.append(
        "content-disposition",
        format!("attachment; filename=\"{}-{}.pb\"", profile.kind.name(), profile.id),
    );
    response
}
