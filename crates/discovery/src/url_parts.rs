//! Part of a registry's URL after its scheme.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use polyrpc::Status;
use polyrpc::discovery::{Attributes, redacted};

/// `host:port,host:port/path?name=value`.
pub(crate) struct UrlParts {
    /// Servers of the registry.
    pub(crate) hosts: String,
    /// Path in the registry.
    pub(crate) path: Vec<String>,
    /// Query parameters.
    pub(crate) settings: Attributes,
}

impl UrlParts {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let (hosts_and_path, settings) = text.split_once('?').unwrap_or((text, ""));
        let (hosts, path) = hosts_and_path.split_once('/').unwrap_or((hosts_and_path, ""));
        let path = path.split('/').filter(|segment| !segment.is_empty()).map(|segment| {
            let segment = percent_decode_str(segment).decode_utf8();
            segment.map(Into::into).map_err(|_| {
                Status::invalid_argument(format!("the path of `{}` is not UTF-8", redacted(text)))
            })
        });
        Ok(Self {
            hosts: hosts.to_owned(),
            path: path.collect::<Result<_, _>>()?,
            settings: settings.parse().unwrap_or_default(),
        })
    }

    /// Splits the user from the servers, if there is one: `user:password@a:1,b:2`.
    #[cfg(feature = "etcd")]
    pub(crate) fn user(&self) -> Result<(Option<(String, String)>, &str), Status> {
        let Some((user, hosts)) = self.hosts.rsplit_once('@') else {
            return Ok((None, &self.hosts));
        };
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let plain = |text| {
            let plain = percent_decode_str(text).decode_utf8();
            plain.map(Into::into).map_err(|_| Status::invalid_argument("user or password are not UTF-8"))
        };
        Ok((Some((plain(name)?, plain(password)?)), hosts))
    }

    /// Servers as URLs: TLS is a parameter.
    pub(crate) fn origins(&self) -> Result<String, Status> {
        let scheme = if self.is_on("tls", false)? { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.hosts))
    }

    /// Whether a parameter is on; `absent` if the URL does not have it. A name without a value is on.
    pub(crate) fn is_on(&self, name: &str, absent: bool) -> Result<bool, Status> {
        match self.settings.value(name) {
            None => Ok(absent),
            Some("" | "true" | "1" | "on") => Ok(true),
            Some("false" | "0" | "off") => Ok(false),
            Some(_) => Err(Status::invalid_argument(format!(
                "the parameter `{name}` is true, 1 or on, or else false, 0 or off"
            ))),
        }
    }

    /// Rejects parameters that are unknown or occur twice.
    ///
    /// The parameters of transport and protocol have already been removed from the URL.
    pub(crate) fn check_parameters(&self, known: &[&str]) -> Result<(), Status> {
        for (name, _) in self.settings.iter() {
            if !known.contains(&name) {
                let registry = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Status::invalid_argument(format!(
                    "the parameter `{name}` is unknown: the registry has {registry}"
                )));
            }
            if self.settings.values(name).count() > 1 {
                return Err(Status::invalid_argument(format!("the parameter `{name}` occurs twice")));
            }
        }
        Ok(())
    }
}

/// Escapes a segment of a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Escapes a path, except for its slashes.
pub(crate) fn path(text: &str) -> String {
    text.split('/').map(segment).collect::<Vec<_>>().join("/")
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_split_into_servers_path_and_settings() {
        let url = UrlParts::parse("a:1,b:2/base/sub%20dir//S?token=x&tls").unwrap();
        assert_eq!(url.hosts, "a:1,b:2");
        assert_eq!(url.path, ["base", "sub dir", "S"]);
        assert_eq!(url.origins().unwrap(), "https://a:1,b:2");
        assert!(url.check_parameters(&["token", "tls"]).is_ok());
        let error = url.check_parameters(&["dc", "tls"]).unwrap_err();
        assert_eq!(error.message(), "the parameter `token` is unknown: the registry has dc, tls");
        let error = url.check_parameters(&[]).unwrap_err();
        assert!(error.message().ends_with("the registry has none"), "{error}");
        let twice = UrlParts::parse("a:1/S?token=x&token=y").unwrap();
        let error = twice.check_parameters(&["token"]).unwrap_err();
        assert_eq!(error.message(), "the parameter `token` occurs twice");
        let error = UrlParts::parse("me:hunter2@h/%ff?token=hunter2").err().unwrap();
        assert!(!error.message().contains("hunter2"), "{error}");
    }

    #[test]
    fn switches_are_on_or_off_and_nothing_else() {
        let is_on = |text: &str| UrlParts::parse(&format!("h:1{text}")).unwrap().is_on("tls", true);
        for on in ["", "?tls", "?tls=", "?tls=true", "?tls=1", "?tls=on"] {
            assert!(is_on(on).unwrap(), "{on}");
        }
        for off in ["?tls=false", "?tls=0", "?tls=off"] {
            assert!(!is_on(off).unwrap(), "{off}");
        }
        for wrong in ["?tls=no", "?tls=flase", "?tls=2"] {
            assert!(is_on(wrong).unwrap_err().message().contains("`tls`"), "{wrong}");
        }
        assert!(!UrlParts::parse("h:1").unwrap().is_on("tls", false).unwrap());
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn user_and_password_may_precede_the_servers() {
        let url = UrlParts::parse("root:p%40s%2Fs:x@a:1,b:2/base/S").unwrap();
        let (user, hosts) = url.user().unwrap();
        assert_eq!((user.unwrap(), hosts), (("root".into(), "p@s/s:x".into()), "a:1,b:2"));
        assert_eq!(UrlParts::parse("a:1").unwrap().user().unwrap(), (None, "a:1"));
        assert!(UrlParts::parse("%ff@a:1").unwrap().user().is_err());
    }

    #[test]
    fn path_segments_are_percent_encoded() {
        assert_eq!(path("base/a b/tcp@[::1]:1?x#y"), "base/a%20b/tcp%40%5B%3A%3A1%5D%3A1%3Fx%23y");
        assert_eq!(segment("a/b"), "a%2Fb");
    }
}
