//! Callers and their roles.

use std::fmt;

use polyrpc::fallback::HttpRequest;
use polyrpc::layers::auth::{constant_time_eq, parse_basic, parse_bearer};

use crate::clean::to_clean_string;
use crate::request::Caller;
use crate::role::Role;

/// Settings of a listener about its callers.
#[derive(Default)]
pub(super) struct Access {
    pub(super) tokens: Vec<(Role, String)>,
    /// The role of callers without a token; `None` if it depends on whether there are tokens.
    pub(super) anonymous: Option<Role>,
    /// The role of callers with a verified certificate.
    pub(super) certificates: Option<Role>,
    /// Whether anything can be changed.
    pub(super) writable: bool,
    /// Names of the listener in addition to addresses.
    pub(super) hosts: Vec<String>,
    /// Whether callers must use TLS.
    pub(super) tls: bool,
}

/// Why a caller has no role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DenialReason {
    /// There is no credential.
    Missing,
    /// The credential is wrong.
    Wrong,
}

/// Returns a caller that was not authenticated, for pages that need no role.
pub(super) fn anonymous() -> Caller {
    Caller { role: Role::Read, name: String::new(), no_browser: false }
}

/// Whether a request has a credential, valid or not.
pub(super) fn has_credential(request: &HttpRequest) -> bool {
    let has_certificate = || request.context.peer().tls().is_some_and(|tls| !tls.certificates().is_empty());
    request.headers.bytes("authorization").is_some() || has_certificate()
}

impl Access {
    /// Whether callers are authenticated in any way.
    pub(super) fn authenticates(&self) -> bool {
        !self.tokens.is_empty() || self.certificates.is_some()
    }

    /// Returns the caller of a request.
    ///
    /// # Errors
    ///
    /// If the caller has no role.
    pub(super) fn caller(&self, request: &HttpRequest) -> Result<Caller, DenialReason> {
        let field = |name| request.headers.get(name);
        let peer = request.context.peer();
        // It is logged, too: a name of the caller's choosing must not begin a line there.
        let from = |name: &str| to_clean_string(format_args!("{name} from {peer}"));
        let is_browser = ["origin", "cookie", "sec-fetch-site", "sec-fetch-mode"]
            .into_iter()
            .any(|name| request.headers.bytes(name).is_some());
        if let Some(credential) = field("authorization") {
            let (user, token, bearer) = parse_credential(credential).ok_or(DenialReason::Wrong)?;
            let role = self.role_of(&token).ok_or(DenialReason::Wrong)?;
            let role = self.limit_role(role);
            return Ok(Caller { role, name: from(&user), no_browser: bearer && !is_browser });
        }
        if let (Some(role), Some(tls)) = (self.certificates, peer.tls())
            && !tls.certificates().is_empty()
        {
            let name = tls.names().first().map_or("certificate", String::as_str);
            // A browser presents its certificate by itself.
            return Ok(Caller { role: self.limit_role(role), name: from(name), no_browser: false });
        }
        let is_local = peer.address().is_none_or(|address| address.ip().to_canonical().is_loopback());
        let anonymous = self.anonymous.or_else(|| (!self.authenticates()).then_some(Role::Read));
        match anonymous.filter(|_| is_local) {
            Some(role) => Ok(Caller { role, name: from("anonymous"), no_browser: false }),
            None => Err(DenialReason::Missing),
        }
    }

    /// Returns the role of a token. All tokens are compared, so that the time does not reveal which one matches.
    fn role_of(&self, token: &str) -> Option<Role> {
        let matching =
            self.tokens.iter().filter(|(_, known)| constant_time_eq(known.as_bytes(), token.as_bytes()));
        matching.map(|(role, _)| *role).max()
    }

    fn limit_role(&self, role: Role) -> Role {
        if self.writable { role } else { role.min(Role::Profile) }
    }
}

/// Returns the user's name and the token, and whether it is a bearer token, which no browser sends by itself.
fn parse_credential(credential: &str) -> Option<(String, String, bool)> {
    if let Some(token) = parse_bearer(credential.as_bytes()) {
        let token = std::str::from_utf8(token).ok()?;
        return Some(("token".to_owned(), token.to_owned(), true));
    }
    let (user, password) = parse_basic(credential.as_bytes())?;
    Some((user.chars().take(64).collect(), password, false))
}

/// Without the tokens.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("tokens", &self.tokens.len())
            .field("anonymous", &self.anonymous)
            .field("certificates", &self.certificates)
            .field("writable", &self.writable)
            .field("hosts", &self.hosts)
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_parsed() {
        let basic = polyrpc::layers::auth::user_password("ann", "a:b");
        assert_eq!(parse_credential(&basic), Some(("ann".into(), "a:b".into(), false)));
        assert_eq!(parse_credential("bearer  abc "), Some(("token".into(), "abc".into(), true)));
        for wrong in ["", "abc", "Digest x", "Basic ???", "Basic YWJj"] {
            assert_eq!(parse_credential(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tokens_are_not_shown() {
        let access = Access { tokens: vec![(Role::Read, "0123456789abcdef".into())], ..Access::default() };
        assert!(!format!("{access:?}").contains("0123"));
    }
}
