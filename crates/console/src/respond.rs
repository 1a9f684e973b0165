//! Answers a request: checks, the page, and the header fields of every answer.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use polyrpc::fallback::HttpResponse;
use polyrpc::layers::auth::constant_time_eq;

use crate::console::State;
use crate::pages::{self, Page};
use crate::reply::Reply;
use crate::request::{PageRequest, Verb};
use crate::role::Role;

/// Answers a request of a known caller.
pub(crate) fn answer(state: &State, request: &PageRequest) -> Reply {
    admit(state, request)
        .map_or_else(|refusal| refusal, |page| compress(state, request, (page.answer)(state, request)))
}

/// Compresses a reply with gzip, if its caller reads that and it is long.
///
/// A page with the token of forms is not compressed: if it also repeats a parameter, its length would reveal, guess by
/// guess, how much of the token the parameter matches (BREACH).
pub(crate) fn compress(state: &State, request: &PageRequest, reply: Reply) -> Reply {
    const SHORT: usize = 1024;
    let has_token =
        || [Role::Write, Role::Call].iter().any(|role| reply.body.contains(state.form_token(*role)));
    let is_packed = request.takes_gzip && reply.body.len() >= SHORT && !has_token();
    Reply { is_packed, ..reply }
}

/// Answers with a page that the program added, if the request is for one.
pub(crate) fn answer_own_page(state: &State, request: &PageRequest) -> Option<Reply> {
    let name = request.segment(0).unwrap_or_default();
    let is_free = pages::find(request).is_none();
    let page = state.own_pages().into_iter().find(|page| page.name == name && is_free)?;
    Some(match request.verb {
        Verb::Get => pages::own_answer(&page, request),
        Verb::Post => pages::failure(request, 405, "This page is only read.").with("allow", "GET, HEAD"),
    })
}

/// Returns the page of a request, if its caller may have it.
///
/// # Errors
///
/// The answer to a caller that may not have it.
pub(crate) fn admit(state: &State, request: &PageRequest) -> Result<&'static Page, Reply> {
    let Some(page) = pages::find(request) else {
        return Err(pages::missing(request));
    };
    if request.verb == Verb::Post && !page.changes {
        return Err(pages::failure(request, 405, "This page is only read.").with("allow", "GET, HEAD"));
    }
    let role = pages::role(page, request);
    if request.caller.role < role {
        return Err(pages::failure(request, 403, "The caller's role does not suffice."));
    }
    if pages::is_change(page, request) && !is_intended(state, request, role) {
        let why = "A change needs the token of a form, or a bearer token and no browser.";
        return Err(pages::failure(request, 403, why));
    }
    Ok(page)
}

/// Whether the caller intends a change: web pages can make browsers send requests without their users' knowledge, but
/// they cannot read our forms or send a bearer token.
fn is_intended(state: &State, request: &PageRequest, role: Role) -> bool {
    let has_token = request
        .parameter("token")
        .is_some_and(|token| constant_time_eq(token.as_bytes(), state.form_token(role).as_bytes()));
    request.caller.no_browser || request.verb == Verb::Post && has_token
}

/// Turns a page into a response.
pub(crate) fn response(reply: Reply) -> HttpResponse {
    let Reply { status, content_type, body, is_packed, fields } = reply;
    let (body, is_packed) = match is_packed.then(|| gzip(body.as_bytes())).flatten() {
        Some(packed) => (packed, true),
        None => (Bytes::from(body), false),
    };
    let length = body.len();
    let mut response = with_common_fields(HttpResponse::new(status, body));
    if is_packed {
        response.headers.append("content-encoding", "gzip");
    }
    if status != 204 {
        response.headers.append("content-type", content_type);
        response.headers.append("content-length", length.to_string());
    }
    for (name, value) in fields {
        response.headers.append(name, value);
    }
    response
}

fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    Some(encoder.finish().ok()?.into())
}

/// Adds the fields that every answer has.
pub(crate) fn with_common_fields(mut response: HttpResponse) -> HttpResponse {
    for (name, value) in COMMON {
        response.headers.append(name, value);
    }
    response
}

/// No scripts except ours, no frames, nothing from another origin, no caching. With `no-referrer` the browser would
/// omit even the origin of our own forms.
const COMMON: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Console;
    use crate::request::{Accepts, Caller};

    /// Every page, the role for reading it, and the role for changes there, if changes are possible.
    const TABLE: [(&str, Role, Option<Role>); 32] = [
        ("", Role::Read, None),
        ("index", Role::Read, None),
        ("status", Role::Read, None),
        ("vars", Role::Read, None),
        ("metrics", Role::Read, None),
        ("brpc_metrics", Role::Read, None),
        ("connections", Role::Read, Some(Role::Write)),
        ("sockets", Role::Read, Some(Role::Write)),
        ("channels", Role::Read, None),
        ("rpcz", Role::Read, Some(Role::Write)),
        ("try", Role::Call, Some(Role::Call)),
        ("flags", Role::Read, Some(Role::Write)),
        ("tap", Role::Read, None),
        ("tasks", Role::Read, None),
        ("bthreads", Role::Read, None),
        ("hotspots", Role::Profile, None),
        ("pprof", Role::Profile, None),
        ("debug", Role::Profile, None),
        ("fleet", Role::Read, Some(Role::Write)),
        ("list", Role::Read, None),
        ("protobufs", Role::Read, None),
        ("threads", Role::Read, None),
        ("memory", Role::Read, None),
        ("vlog", Role::Read, Some(Role::Write)),
        ("ids", Role::Read, None),
        ("version", Role::Read, None),
        ("console", Role::Read, None),
        ("health", Role::Read, None),
        ("readyz", Role::Read, None),
        ("livez", Role::Read, None),
        ("favicon.ico", Role::Read, None),
        ("robots.txt", Role::Read, None),
    ];

    const ROLES: [Role; 4] = [Role::Read, Role::Call, Role::Profile, Role::Write];

    /// Returns the status with which a request is rejected; 200 if it is not.
    fn status_for(state: &State, verb: Verb, target: &str, role: Role, no_browser: bool) -> u16 {
        let caller = Caller { role, name: "test".into(), no_browser };
        let request = PageRequest::parse(verb, target, "", Accepts::default(), caller);
        admit(state, &request).map_or_else(|refusal| refusal.status, |_| 200)
    }

    #[test]
    fn each_role_may_what_the_table_says_on_each_page() {
        let names: Vec<_> = pages::PAGES.iter().map(|page| page.name).collect();
        assert_eq!(names, TABLE.map(|(name, ..)| name), "a page has no row");
        let console = Console::new();
        let state = console.state();
        for (name, reads, changes) in TABLE {
            for role in ROLES {
                let cell = |verb, end: &str| status_for(state, verb, &format!("/{name}{end}"), role, true);
                let want = |needed| if role >= needed { 200 } else { 403 };
                assert_eq!(cell(Verb::Get, ""), want(reads), "GET /{name} as {role}");
                assert_eq!(cell(Verb::Post, ""), changes.map_or(405, want), "POST /{name} as {role}");
                // On pages with changes a GET with it is a change; elsewhere it is an ordinary parameter.
                let changing = want(changes.unwrap_or(reads));
                assert_eq!(cell(Verb::Get, "?setvalue=1"), changing, "GET /{name}?setvalue as {role}");
                assert_eq!(cell(Verb::Get, "?undo=1"), changing, "GET /{name}?undo as {role}");
                // Without an intention nothing is changed.
                let unmeant = status_for(state, Verb::Post, &format!("/{name}"), role, false);
                assert_eq!(
                    unmeant,
                    if changes.is_some() { 403 } else { 405 },
                    "unmeant POST /{name} as {role}"
                );
            }
        }
        for role in ROLES {
            let switching = if role == Role::Write { 200 } else { 403 };
            assert_eq!(status_for(state, Verb::Get, "/rpcz/disable", role, true), switching, "{role}");
            assert_eq!(status_for(state, Verb::Get, "/nothing", role, true), 404);
        }
    }
}
