//! A request for a page, decoded.

use percent_encoding::percent_decode_str;

use crate::own_page::Menu;
use crate::role::Role;

/// A request for a page.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest {
    pub(crate) verb: Verb,
    /// The decoded segments of the path.
    path: Vec<String>,
    /// The decoded parameters of the query, and of a form that was sent.
    parameters: Vec<(String, String)>,
    pub(crate) format: PageFormat,
    /// Whether the caller reads gzip.
    pub(crate) takes_gzip: bool,
    pub(crate) caller: Caller,
    pub(crate) menu: Menu,
}

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `GET` or `HEAD`.
    Get,
    /// `POST`.
    Post,
}

/// Output format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFormat {
    /// As brpc writes it for curl.
    Text,
    Json,
    Html,
    /// The part of the HTML page below its heading.
    Part,
}

/// Caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// For the record of changes.
    pub(crate) name: String,
    /// Whether the caller has proven that the request was not caused by a web page.
    pub(crate) no_browser: bool,
}

/// The parts of a request that decide the output format of a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Accepts<'a> {
    pub(crate) accept: Option<&'a str>,
    pub(crate) user_agent: Option<&'a str>,
    pub(crate) encodings: Option<&'a str>,
}

impl PageRequest {
    /// Decodes a request: its target, and a form that was sent as its body.
    pub(crate) fn parse(verb: Verb, target: &str, body: &str, accepts: Accepts<'_>, caller: Caller) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.split('/').filter(|segment| !segment.is_empty()).map(percent_decode).collect();
        let pairs = query.split('&').chain(body.split('&')).filter(|pair| !pair.is_empty());
        let parameters = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(&name.replace('+', " ")), percent_decode(&value.replace('+', " ")))
        });
        let takes_gzip = accepts.encodings.is_some_and(takes_gzip);
        let parameters = parameters.collect();
        let menu = Menu::default();
        let mut request = Self { verb, path, parameters, format: PageFormat::Text, takes_gzip, caller, menu };
        request.format = request.chosen_format(accepts);
        request
    }

    /// Returns the request for the part of another page that a page shows again and again.
    pub(crate) fn part(&self, target: &str) -> Self {
        let request = Self::parse(Verb::Get, target, "", Accepts::default(), self.caller.clone());
        Self { format: PageFormat::Part, ..request }
    }

    /// Returns the segment of the path with this index, if there is one.
    pub(crate) fn segment(&self, at: usize) -> Option<&str> {
        self.path.get(at).map(String::as_str)
    }

    /// Returns the path's segments after the first, joined: `NAME` of `/flags/NAME`.
    pub(crate) fn rest(&self) -> String {
        self.path.get(1..).unwrap_or_default().join("/")
    }

    /// Returns the value of a parameter; empty if it has none.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let named = |(known, _): &&(String, String)| known == name;
        self.parameters.iter().find(named).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter that is a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.parameter(name)?.parse().ok()
    }

    /// brpc writes HTML for clients with a `User-Agent` other than curl's (`builtin/common.cpp`, `UseHTML`).
    fn chosen_format(&self, accepts: Accepts<'_>) -> PageFormat {
        match self.parameter("format") {
            Some("json") => return PageFormat::Json,
            Some("html") => return PageFormat::Html,
            Some("text") => return PageFormat::Text,
            _ => {}
        }
        match self.parameter("console") {
            Some("0") => return PageFormat::Html,
            Some(_) => return PageFormat::Text,
            None => {}
        }
        let wants = |kind| accepts.accept.is_some_and(|accept| accept.contains(kind));
        match accepts.user_agent {
            _ if wants("application/json") && !wants("text/html") => PageFormat::Json,
            Some(agent) if !agent.contains("curl/") && !agent.is_empty() => PageFormat::Html,
            _ => PageFormat::Text,
        }
    }
}

/// Whether a list of encodings has gzip, with a weight other than zero.
fn takes_gzip(encodings: &str) -> bool {
    encodings.split(',').any(|encoding| {
        let (name, weight) = encoding.split_once(';').unwrap_or((encoding, ""));
        let is_refused = weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
pub(crate) fn get(target: &str) -> PageRequest {
    let caller = Caller { role: Role::Read, name: "test".into(), no_browser: true };
    PageRequest::parse(Verb::Get, target, "", Accepts::default(), caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_parameters_are_decoded_once() {
        let request = get("//vars/a%2Fb%252e/c?x=1+2%2b&y&x=9");
        assert_eq!((request.segment(0), request.segment(1)), (Some("vars"), Some("a/b%2e")));
        assert_eq!(request.rest(), "a/b%2e/c");
        assert_eq!((request.parameter("x"), request.parameter("y")), (Some("1 2+"), Some("")));
        assert_eq!((request.parameter("z"), request.number("x")), (None, None));
    }

    #[test]
    fn gzip_is_taken_if_it_is_listed_and_not_refused() {
        for (encodings, want) in [
            ("gzip", true),
            ("br;q=1.0, GZIP ;q=0.5", true),
            ("deflate", false),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzipped", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(encodings), want, "{encodings}");
        }
    }

    #[test]
    fn format_is_text_as_in_brpc_unless_another_is_wanted() {
        let form = |target: &str, accept, user_agent| {
            let caller = get("/").caller;
            let accepts = Accepts { accept, user_agent, encodings: None };
            PageRequest::parse(Verb::Get, target, "", accepts, caller).format
        };
        let browser = Some("Mozilla/5.0");
        assert_eq!(form("/status", None, None), PageFormat::Text);
        assert_eq!(form("/status", Some("*/*"), Some("curl/8.5.0")), PageFormat::Text);
        assert_eq!(form("/status", Some("text/html,*/*"), browser), PageFormat::Html);
        assert_eq!(form("/status", Some("application/json"), browser), PageFormat::Json);
        assert_eq!(form("/status?console=1", None, browser), PageFormat::Text);
        assert_eq!(form("/status?console=0", None, None), PageFormat::Html);
        assert_eq!(form("/status?format=json&console=1", None, browser), PageFormat::Json);
    }
}
