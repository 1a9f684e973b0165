//! Ready-made authenticators for [`Listen::authenticate`](crate::server::Listen::authenticate), and the credentials
//! that they accept, for [`client::Builder::credential`](crate::client::Builder::credential).
//!
//! A credential is sent in the field that each protocol has for it: `authentication_data` in baidu_std, `__AUTH` in
//! rpcx, the header `Authorization` in HTTP and gRPC. The format is that of the header in all of them.
//!
//! ```
//! # async fn serve() -> std::io::Result<()> {
//! use polyrpc::Server;
//! use polyrpc::layers::auth;
//! use polyrpc::server::Listen;
//!
//! let server = Server::new()
//!     .bind(Listen::on("127.0.0.1:0").authenticate(auth::users([("ada", "countess")])))
//!     .await?
//!     .start();
//! let client = polyrpc::Client::builder(&format!("rpcx://{}", server.address()))
//!     .credential(auth::user_password("ada", "countess"))
//!     .build();
//! # Ok(())
//! # }
//! ```
//!
//! An authenticator runs for every credential, on the connection's task: it must not block. Messages of rejections do
//! not contain the reason, and secrets are compared in constant time. An empty secret accepts no caller, and is logged:
//! it is probably a variable of the environment that is not set.

use std::collections::HashMap;
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use polyrpc_core::Status;

use crate::call::Peer;

/// Returns an authenticator for this token, bare or as `Bearer …`. An empty token accepts no caller.
pub fn token(
    token: impl Into<String>,
) -> impl Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync + 'static {
    tokens([token.into()])
}

/// Returns an authenticator for each of these tokens, bare or as `Bearer …`: for instance during a rotation. Empty
/// tokens are ignored.
pub fn tokens(
    tokens: impl IntoIterator<Item = impl Into<String>>,
) -> impl Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync + 'static {
    let tokens = tokens.into_iter().map(Into::into);
    let tokens: Vec<String> = tokens.filter(|token: &String| is_secret(token, "token")).collect();
    move |credential, _| {
        let credential = credential.ok_or_else(missing)?;
        let came = parse_bearer(credential).unwrap_or(credential);
        // All are compared: the time does not reveal which one matched.
        let known =
            tokens.iter().fold(false, |known, token| known | constant_time_eq(token.as_bytes(), came));
        if known { Ok(()) } else { Err(refused()) }
    }
}

/// Returns an authenticator for `Bearer …` tokens that `check` accepts: it may verify a signature, or look into data
/// that another task updates. Without a scheme the whole credential is the token. An empty token is rejected without
/// asking `check`, whose own secret may be empty by mistake.
pub fn bearer(
    check: impl Fn(&str, &Peer) -> Result<(), Status> + Send + Sync + 'static,
) -> impl Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync + 'static {
    move |credential, peer| {
        let credential = credential.ok_or_else(missing)?;
        let token = parse_bearer(credential).unwrap_or(credential);
        if token.is_empty() {
            return Err(missing());
        }
        check(std::str::from_utf8(token).map_err(|_| refused())?, peer)
    }
}

/// Returns an authenticator for these users with their passwords (`Basic …`, RFC 7617). Users with an empty password
/// are ignored; [`passwords`] can accept them.
pub fn users(
    users: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
) -> impl Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync + 'static {
    let users = users.into_iter().map(|(user, password)| (user.into(), password.into()));
    let users: HashMap<String, String> =
        users.filter(|(_, password): &(String, String)| is_secret(password, "password")).collect();
    passwords(move |user, password, _| {
        let (expected, known) = users.get(user).map_or(("", false), |expected| (expected, true));
        // An unknown user takes as long as a wrong password.
        if constant_time_eq(expected.as_bytes(), password.as_bytes()) & known {
            Ok(())
        } else {
            Err(refused())
        }
    })
}

/// Returns an authenticator for users with passwords (`Basic …`, RFC 7617) that `check` accepts.
pub fn passwords(
    check: impl Fn(&str, &str, &Peer) -> Result<(), Status> + Send + Sync + 'static,
) -> impl Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync + 'static {
    move |credential, peer| {
        let (user, password) = parse_basic(credential.ok_or_else(missing)?).ok_or_else(refused)?;
        check(&user, &password, peer)
    }
}

/// Returns the credential of a token: `Bearer …`.
pub fn bearer_token(token: &str) -> String {
    format!("Bearer {token}")
}

/// Returns the credential of a user with a password: `Basic …`. A user's name has no colon.
pub fn user_password(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Returns the token of a credential `Bearer …`; `None` if it has another form.
pub fn parse_bearer(credential: &[u8]) -> Option<&[u8]> {
    scheme(credential, "Bearer")
}

/// Returns the user and the password of a credential `Basic …`; `None` if it has another form.
pub fn parse_basic(credential: &[u8]) -> Option<(String, String)> {
    let encoded = scheme(credential, "Basic")?;
    let bytes = STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).ok()?;
    let decoded = String::from_utf8(bytes).ok()?;
    decoded.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

/// Compares two secrets in a time that depends on their lengths only.
///
/// ```
/// use polyrpc::layers::auth::constant_time_eq;
///
/// assert!(constant_time_eq(b"secret", b"secret") && !constant_time_eq(b"secret", b"secre"));
/// ```
pub fn constant_time_eq(ours: &[u8], theirs: &[u8]) -> bool {
    let differing = ours.iter().zip(theirs).fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
    (differing == 0) & (ours.len() == theirs.len())
}

/// Whether a secret of the program can prove anything: the empty one would accept a caller that sends nothing.
fn is_secret(secret: &str, kind: &str) -> bool {
    if secret.is_empty() {
        tracing::warn!("an empty {kind} of an authenticator is ignored: it accepts no caller");
    }
    !secret.is_empty()
}

/// Returns what follows the name of a scheme, which is case-insensitive (RFC 9110, section 11.1).
fn scheme<'a>(credential: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (scheme, rest) = credential.split_at_checked(name.len())?;
    let rest = rest.strip_prefix(b" ")?;
    scheme.eq_ignore_ascii_case(name.as_bytes()).then(|| rest.trim_ascii())
}

#[cold]
fn missing() -> Status {
    Status::unauthenticated("no credential")
}

#[cold]
fn refused() -> Status {
    Status::unauthenticated("invalid credential")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(check: &impl Fn(Option<&[u8]>, &Peer) -> Result<(), Status>, credential: &str) -> bool {
        check(Some(credential.as_bytes()), &Peer::InProcess).is_ok()
    }

    #[test]
    fn token_is_accepted_with_and_without_its_scheme() {
        let check = tokens(["first", "second"]);
        for good in ["first", "second", "Bearer first", "bearer second", "BEARER  first "] {
            assert!(accepts(&check, good), "{good}");
        }
        for bad in ["", "firs", "firstsecond", "Bearer", "Bearer ", "Basic first", "Bearer third"] {
            assert!(!accepts(&check, bad), "{bad}");
        }
        assert_eq!(check(None, &Peer::InProcess).unwrap_err().message(), "no credential");
    }

    /// `token(env::var("TOKEN").unwrap_or_default())` accepted callers that sent an empty credential.
    #[test]
    fn empty_token_of_the_program_accepts_no_caller() {
        let (unset, rotating) = (token(""), tokens(["", "second"]));
        for credential in ["", "Bearer ", "Bearer", "bearer   "] {
            assert!(!accepts(&unset, credential) && !accepts(&rotating, credential), "{credential:?}");
        }
        assert!(accepts(&rotating, "Bearer second"));
        let check = bearer(|token, _| if token.is_empty() { Ok(()) } else { Err(refused()) });
        assert!(!accepts(&check, "") && !accepts(&check, "Bearer "));
    }

    #[test]
    fn secrets_are_equal_or_not() {
        for (one, other) in [("abc", "abd"), ("abc", "ab"), ("ab", "abc"), ("", "a")] {
            assert!(!constant_time_eq(one.as_bytes(), other.as_bytes()), "{one} {other}");
            assert!(constant_time_eq(one.as_bytes(), one.as_bytes()), "{one}");
        }
    }

    #[test]
    fn bearer_token_is_checked_by_the_callback() {
        let check = bearer(|token, peer| match (token, peer) {
            ("good", Peer::InProcess) => Ok(()),
            _ => Err(Status::permission_denied("not you")),
        });
        assert!(accepts(&check, "Bearer good") && accepts(&check, "good"));
        let refusal = check(Some(b"Bearer bad"), &Peer::InProcess).unwrap_err();
        assert_eq!(refusal.message(), "not you");
        assert!(check(Some(b"\xff"), &Peer::InProcess).is_err());
    }

    #[test]
    fn users_are_authenticated_by_password() {
        let check = users([("ada", "count:ess"), ("bob", "x"), ("eve", "")]);
        for good in [user_password("ada", "count:ess"), user_password("bob", "x")] {
            assert!(accepts(&check, &good), "{good}");
        }
        // Without the padding, as some clients write it.
        assert!(accepts(&check, "basic Ym9iOng"));
        for bad in [
            user_password("ada", ""),
            // Her password is empty: probably a variable that is not set.
            user_password("eve", ""),
            user_password("mallory", ""),
            user_password("ada", "count"),
            "Basic %%%".into(),
            "Basic YWRh".into(),
            "ada:count:ess".into(),
        ] {
            assert!(!accepts(&check, &bad), "{bad}");
        }
    }
}
