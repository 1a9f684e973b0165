//! What stands behind a registry's word in a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use polyrpc::Status;
use polyrpc::discovery::{Attributes, redacted};

/// `host:port,host:port/path?name=value`.
pub(crate) struct RegistryUrl {
    /// The registry's servers.
    pub(crate) hosts: String,
    /// What of it is meant.
    pub(crate) path: Vec<String>,
    /// How it is to be asked.
    pub(crate) settings: Attributes,
}

impl RegistryUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let (place, settings) = text.split_once('?').unwrap_or((text, ""));
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let path = path.split('/').filter(|segment| !segment.is_empty()).map(|segment| {
            let segment = percent_decode_str(segment).decode_utf8();
            segment.map(Into::into).map_err(|_| {
                Status::invalid_argument(format!("the path of `{}` is no UTF-8", redacted(text)))
            })
        });
        Ok(Self {
            hosts: hosts.to_owned(),
            path: path.collect::<Result<_, _>>()?,
            settings: settings.parse().unwrap_or_default(),
        })
    }

    /// Who asks, if that stands before the servers, and the servers themselves: `user:password@a:1,b:2`.
    #[cfg(feature = "etcd")]
    pub(crate) fn user(&self) -> Result<(Option<(String, String)>, &str), Status> {
        let Some((user, hosts)) = self.hosts.rsplit_once('@') else {
            return Ok((None, &self.hosts));
        };
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let plain = |text| {
            let plain = percent_decode_str(text).decode_utf8();
            plain.map(Into::into).map_err(|_| Status::invalid_argument("user or password are no UTF-8"))
        };
        Ok((Some((plain(name)?, plain(password)?)), hosts))
    }

    /// The servers as a URL: whether they speak TLS is a setting.
    pub(crate) fn origins(&self) -> String {
        let scheme = if self.is_on("tls") { "https" } else { "http" };
        format!("{scheme}://{}", self.hosts)
    }

    /// Whether a setting is there, and not to say no.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.settings.value(name).is_some_and(|value| !matches!(value, "false" | "0" | "off"))
    }

    /// Refuses settings that mean nothing here, which are mistakes.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Status> {
        match self.settings.iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Status::invalid_argument(format!(
                "the setting `{name}` is unknown here: want {}",
                known.join(", ")
            ))),
        }
    }
}

/// A part of a path, as it is written in one.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A path, whose slashes stay.
pub(crate) fn path(text: &str) -> String {
    text.split('/').map(segment).collect::<Vec<_>>().join("/")
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_servers_a_path_and_settings() {
        let place = RegistryUrl::parse("a:1,b:2/base/sub%20dir//S?token=x&tls").unwrap();
        assert_eq!(place.hosts, "a:1,b:2");
        assert_eq!(place.path, ["base", "sub dir", "S"]);
        assert_eq!(place.origins(), "https://a:1,b:2");
        assert!(place.only(&["token", "tls"]).is_ok());
        assert!(place.only(&["tls"]).unwrap_err().message().contains("`token`"));
        let error = RegistryUrl::parse("me:hunter2@h/%ff?token=hunter2").err().unwrap();
        assert!(!error.message().contains("hunter2"), "{error}");
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn a_user_may_stand_before_the_servers() {
        let place = RegistryUrl::parse("root:p%40s%2Fs:x@a:1,b:2/base/S").unwrap();
        let (user, hosts) = place.user().unwrap();
        assert_eq!((user.unwrap(), hosts), (("root".into(), "p@s/s:x".into()), "a:1,b:2"));
        assert_eq!(RegistryUrl::parse("a:1").unwrap().user().unwrap(), (None, "a:1"));
        assert!(RegistryUrl::parse("%ff@a:1").unwrap().user().is_err());
    }

    #[test]
    fn what_is_part_of_a_path_cannot_be_taken_for_anything_else() {
        assert_eq!(path("base/a b/tcp@[::1]:1?x#y"), "base/a%20b/tcp%40%5B%3A%3A1%5D%3A1%3Fx%23y");
        assert_eq!(segment("a/b"), "a%2Fb");
    }
}
