//! The way of a request to its page: checks, the page, and the fields that every answer has.

use polyrpc::fallback::HttpResponse;

use crate::console::State;
use crate::pages::{self, Page};
use crate::reply::Reply;
use crate::request::{PageRequest, Verb};
use crate::role::Role;

/// Answers a request of a known caller.
pub(crate) fn answer(state: &State, request: &PageRequest) -> Reply {
    admit(state, request).map_or_else(|refusal| refusal, |page| (page.answer)(state, request))
}

/// Answers with a page that the program added, if the request is for one.
pub(crate) fn own(state: &State, request: &PageRequest) -> Option<Reply> {
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
/// The answer to one that may not.
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

/// Whether the caller means a change: web pages make browsers send requests without their users' knowledge, but read no
/// form of ours, and send no bearer token.
fn is_intended(state: &State, request: &PageRequest, role: Role) -> bool {
    let has_token = request.parameter("token").is_some_and(|token| equal(token, state.form_token(role)));
    request.caller.no_browser || request.verb == Verb::Post && has_token
}

/// Compares secrets in a time that does not depend on where they differ.
pub(crate) fn equal(one: &str, other: &str) -> bool {
    let differences =
        one.bytes().zip(other.bytes()).fold(0, |differences, (one, other)| differences | (one ^ other));
    one.len() == other.len() && differences == 0
}

/// Turns a page into a response.
pub(crate) fn response(reply: Reply) -> HttpResponse {
    let Reply { status, content_type, body, fields } = reply;
    let length = body.len();
    let mut response = with_common_fields(HttpResponse::new(status, body));
    if status != 204 {
        response.fields.append("content-type", content_type);
        response.fields.append("content-length", length.to_string());
    }
    for (name, value) in fields {
        response.fields.append(name, value);
    }
    response
}

/// Adds the fields that every answer has.
pub(crate) fn with_common_fields(mut response: HttpResponse) -> HttpResponse {
    for (name, value) in COMMON {
        response.fields.append(name, value);
    }
    response
}

/// No script but ours, no frame, nothing of another origin; nothing is kept. With `no-referrer` the browser would not even tell us
/// the origin of our own forms.
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

    #[test]
    fn secrets_are_equal_or_not() {
        assert!(equal("abc", "abc") && equal("", ""));
        assert!(!equal("abc", "abd") && !equal("abc", "ab") && !equal("ab", "abc") && !equal("", "a"));
    }
}
