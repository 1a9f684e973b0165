//! Names of services and methods as parts of a path, which must mean the same for every server and proxy: some decode
//! or normalise a path before they look for the method.

use polyrpc_core::Status;

/// Checks that a name can be a single component of a path of HTTP/1.
pub(crate) fn check_name(name: &str) -> Result<(), Status> {
    match name.is_ascii() && is_component(name) {
        true => Ok(()),
        false => Err(unfit_name(name)),
    }
}

/// Checks the names of a path of HTTP/2, which carries letters beyond ASCII. A service may have several components; the
/// server splits the path at its last slash.
pub(crate) fn check_http2_names(service: &str, method: &str) -> Result<(), Status> {
    // Proxies merge slashes.
    let is_whole = |component: &str| !component.is_empty() && is_component(component);
    if !service.is_empty() && !service.split('/').all(is_whole) {
        return Err(unfit_name(service));
    }
    if !is_component(method) {
        return Err(unfit_name(method));
    }
    Ok(())
}

fn is_component(name: &str) -> bool {
    let is_clean = |byte: u8| (byte.is_ascii_graphic() || !byte.is_ascii()) && !b"/?#%\\;".contains(&byte);
    name.bytes().all(is_clean) && !matches!(name, "." | "..")
}

/// Returns the failure of a call whose name would be part of a path.
#[cold]
fn unfit_name(name: &str) -> Status {
    Status::invalid_argument(format!(
        "{name:?} cannot be part of a path: a name is not `.` or `..`, and has no slash, backslash, percent sign, \
         semicolon, question mark, number sign, blank or control character"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_a_proxy_may_change_is_rejected_in_every_version() {
        for name in [".", "..", "a?b", "a#b", "a%2fb", "a\\b", "a;b", "a b", "a\nb"] {
            assert!(check_name(name).is_err(), "{name:?}");
            assert!(
                check_http2_names(name, "M").is_err() && check_http2_names("S", name).is_err(),
                "{name:?}"
            );
        }
        for name in ["", "a.B", "...", "a:b@c,d"] {
            assert!(check_name(name).is_ok() && check_http2_names(name, name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn only_http2_has_letters_beyond_ascii_and_services_of_several_components() {
        assert!(check_name("é").is_err() && check_http2_names("é", "é").is_ok());
        assert!(check_name("a/b").is_err() && check_http2_names("a/b", "M").is_ok());
        for (service, method) in [("a//b", "M"), ("/a", "M"), ("a/", "M"), ("a/..", "M"), ("S", "a/b")] {
            assert!(check_http2_names(service, method).is_err(), "{service} {method}");
        }
    }
}
