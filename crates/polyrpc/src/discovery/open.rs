use super::{Discover, File, List, Names, Registrar, RemoteFile};
use crate::error::ClientResult as Result;

/// Creates the discovery for a keyword of a URL, if this crate has it: in `rpcx+list://a:1,b:2` the keyword is `list`
/// and the rest `a:1,b:2`. In brpc these are the schemes of naming services.
///
/// | keyword | rest | discovery |
/// |---|---|---|
/// | `list` | `host:port tag,host:port tag` | [`List`] |
/// | `dlist` | the same | [`Names`], resolved every 5 s |
/// | `file` | `/path` | [`File`] |
/// | `remotefile` | `http://host:port/path` or `host:port/path` | [`RemoteFile`] |
/// | `dns` | `host:port`, or `_service._tcp.domain` for SRV; optionally `server:port/` before it | [`Dns`](super::Dns) (feature `dns`) |
/// | `mdns` | a service's name | [`Mdns`](super::Mdns) (feature `mdns`) |
///
/// # Errors
///
/// If the rest is invalid for the keyword.
pub fn open(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    Ok(Some(match word {
        "list" => Box::new(rest.parse::<List>()?),
        "dlist" => Box::new(rest.parse::<Names>()?),
        "file" => Box::new(File::new(path(rest)?)),
        "remotefile" => Box::new(rest.parse::<RemoteFile>()?),
        #[cfg(feature = "dns")]
        "dns" => Box::new(rest.parse::<super::Dns>()?),
        #[cfg(feature = "mdns")]
        "mdns" => Box::new(rest.parse::<super::Mdns>()?),
        _ => return Ok(None),
    }))
}

/// Creates the registry for a keyword of a URL, if this crate has it: of the keywords of [`open`] only `mdns`,
/// optionally followed by a domain.
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

fn path(rest: &str) -> Result<&str> {
    match rest.is_empty() {
        true => Err(polyrpc_core::Status::invalid_argument("want the path of a file").into()),
        false => Ok(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn words_of_urls_open_what_they_name() {
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
}
