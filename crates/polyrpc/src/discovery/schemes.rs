//! Opens the discovery that a keyword in the scheme of a URL names: those of this crate, and those that others install.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use polyrpc_core::Status;

use super::host_list::HostList;
use super::{Discover, List, Registrar, file, remote_file};
use crate::error::ClientResult as Result;

/// Opens the discovery of a URL's keyword, as [`open`].
type OpenDiscover = fn(&str, &str) -> Result<Option<Box<dyn Discover>>>;

static INSTALLED: RwLock<Vec<OpenDiscover>> = RwLock::new(Vec::new());

/// Makes the registries of another crate available in clients' URLs, for the whole process. [`open`] tries them in the
/// order in which they were installed, after the keywords of this crate.
///
/// Programs call `polyrpc_discovery::install()` for the registries of that crate.
pub fn install(open: fn(&str, &str) -> Result<Option<Box<dyn Discover>>>) {
    INSTALLED.write().unwrap_or_else(PoisonError::into_inner).push(open);
}

fn open_installed(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    let installed = INSTALLED.read().unwrap_or_else(PoisonError::into_inner).clone();
    for open in installed {
        if let Some(discover) = open(word, rest)? {
            return Ok(Some(discover));
        }
    }
    Ok(None)
}

/// Returns how to add support for a well-known keyword that this program does not support.
#[cold]
pub(crate) fn how_to_add(word: &str) -> Option<Status> {
    let text = match word {
        "consul" | "etcd" | "kubernetes" | "nacos" | "redis" | "zookeeper" => format!(
            "the registry `{word}` is in the crate polyrpc-discovery: add it with its feature `{word}` and call \
             polyrpc_discovery::install() before the client is built"
        ),
        "dns" | "mdns" => format!("this program was built without `{word}` (polyrpc's feature `{word}`)"),
        _ => return None,
    };
    Some(Status::unimplemented(text))
}

/// Creates the discovery for a keyword of a URL and the rest of the URL: in `rpcx+list://a:1,b:2` the keyword is `list`
/// and the rest `a:1,b:2`. brpc has the same keywords as schemes of naming services. Returns `None` if the keyword is
/// unknown.
///
/// | keyword | rest | discovery |
/// |---|---|---|
/// | `list` | `host:port tag,host:port tag` | [`List`] |
/// | `dlist` | the same | [`host_list`](super::host_list()), resolved every 5 s |
/// | `file` | `/path` | [`file`](super::file()), checked every second |
/// | `remotefile` | `http://host:port/path?query` or `host:port/path?query` | [`remote_file`](super::remote_file), fetched every 5 s |
/// | `dns` | `host:port`, or `_service._tcp.domain` for SRV; optionally `server:port/` before it | [`Dns`](super::Dns) (feature `dns`) |
/// | `mdns` | a service's name | [`Mdns`](super::Mdns) (feature `mdns`) |
///
/// Crates that were [installed](install) have further keywords.
///
/// # Errors
///
/// If the rest is invalid for the keyword.
pub fn open(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    refuse_parameters(word, rest)?;
    Ok(Some(match word {
        "list" => Box::new(rest.parse::<List>()?),
        "dlist" => Box::new(rest.parse::<HostList>()?),
        "file" => Box::new(file(path(rest)?.to_owned(), Duration::from_secs(1))),
        "remotefile" => Box::new(remote_file(rest, Duration::from_secs(5))?),
        #[cfg(feature = "dns")]
        "dns" => Box::new(rest.parse::<super::Dns>()?),
        #[cfg(feature = "mdns")]
        "mdns" => Box::new(rest.parse::<super::Mdns>()?),
        _ => return open_installed(word, rest),
    }))
}

/// Creates the registry for a keyword of a URL. Of the keywords of [`open`] only `mdns` has one, whose rest is empty or
/// a domain; `None` for any other.
///
/// # Errors
///
/// If the rest is invalid for the keyword.
pub fn open_registry(word: &str, rest: &str) -> Result<Option<Box<dyn Registrar>>> {
    match (word, rest.trim_matches('/')) {
        #[cfg(feature = "mdns")]
        ("mdns", "") => Ok(Some(Box::new(super::Mdns::new("")))),
        #[cfg(feature = "mdns")]
        ("mdns", domain) => Ok(Some(Box::new(super::Mdns::new("").domain(domain)?))),
        _ => Ok(None),
    }
}

/// Rejects parameters of keywords that have none: otherwise they would become part of a path or a tag.
fn refuse_parameters(word: &str, rest: &str) -> Result<()> {
    match rest.split_once('?') {
        Some((_, query)) if ["list", "dlist", "file", "dns", "mdns"].contains(&word) => {
            let name = query.split(['=', '&']).next().unwrap_or_default();
            Err(Status::invalid_argument(format!("the parameter `{name}` is unknown: `{word}` has none"))
                .into())
        }
        _ => Ok(()),
    }
}

fn path(rest: &str) -> Result<&str> {
    match rest.is_empty() {
        true => Err(polyrpc_core::Status::invalid_argument("expected the path of a file").into()),
        false => Ok(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn url_scheme_opens_its_registry() {
        for (word, rest) in [
            ("list", "a:1 3,b:2"),
            ("dlist", "localhost:1"),
            ("file", "/etc/servers"),
            ("remotefile", "http://h/servers"),
            #[cfg(feature = "dns")]
            ("dns", "localhost:80"),
            #[cfg(feature = "mdns")]
            ("mdns", "Arith"),
        ] {
            assert!(open(word, rest).unwrap().is_some(), "{word}");
            assert!(open(word, "").is_err(), "{word}");
        }
        assert!(open("etcd", "127.0.0.1:2379/x").unwrap().is_none());
        assert!(open_registry("list", "a:1").unwrap().is_none());
    }

    #[test]
    fn keyword_without_parameters_rejects_them() {
        for (word, rest) in [
            ("list", "a:1 3?trnsport=ws"),
            ("dlist", "localhost:1?trnsport=ws&x"),
            ("file", "/etc/servers?trnsport"),
            ("dns", "localhost:80?trnsport=ws"),
            ("mdns", "Arith?trnsport=ws"),
        ] {
            let error = open(word, rest).err().expect(word);
            let expected = format!("the parameter `trnsport` is unknown: `{word}` has none");
            assert_eq!(error.message(), expected);
        }
        assert!(open("remotefile", "http://h/servers?x=1").unwrap().is_some());
    }

    #[tokio::test]
    async fn url_opens_an_installed_registry() {
        install(
            |word, rest| Ok((word == "towns").then(|| Box::new(List::new([rest.parse().unwrap()])) as _)),
        );
        assert!(crate::Client::new("rpcx+towns://a:1").is_ok());
        assert!(open("villages", "a:1").unwrap().is_none());
    }

    #[test]
    fn unsupported_registry_error_names_the_missing_feature() {
        let error = crate::Client::new("rpcx+nacos://127.0.0.1:8848/Arith").unwrap_err();
        assert_eq!(error.code(), polyrpc_core::Code::Unimplemented);
        for part in ["polyrpc-discovery", "feature `nacos`", "polyrpc_discovery::install()"] {
            assert!(error.message().contains(part), "{error}");
        }
    }
}
