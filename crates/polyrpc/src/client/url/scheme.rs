//! The part of a URL before `://`: protocol, transport security, registry.

use polyrpc_wire::Protocol;

/// Parsed scheme, such as `rpcx+tls+etcd`.
#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) protocol: Protocol,
    /// Name of the scheme, as spelled in the protocol's descriptor.
    pub(super) name: &'static str,
    pub(super) tls: bool,
    /// Words after the protocol other than `tls`, in lower case.
    words: Vec<String>,
    tls_is_last: bool,
}

impl Scheme {
    pub(super) fn parse(text: &str, known: &[Protocol]) -> Result<Self, String> {
        let mut words = text.split('+');
        let name = words.next().unwrap_or_default();
        let named = known.iter().find_map(|protocol| Some((*protocol, protocol.descriptor().scheme(name)?)));
        let (protocol, (name, tls)) =
            named.ok_or_else(|| format!("unknown protocol `{name}`: expected {}", schemes(known)))?;
        let mut scheme = Self { protocol, name, tls, words: Vec::new(), tls_is_last: false };
        for word in words.map(str::to_ascii_lowercase) {
            scheme.tls_is_last = word == "tls";
            match &*word {
                "tls" if scheme.tls => return Err(format!("`{text}` requests TLS twice")),
                "tls" => scheme.tls = true,
                _ => scheme.words.push(word),
            }
        }
        Ok(scheme)
    }

    /// Returns the word that may name a registry.
    ///
    /// # Errors
    ///
    /// If there are other words, which are invalid.
    pub(super) fn registry(&self) -> Result<Option<&str>, String> {
        match self.words.as_slice() {
            [] => Ok(None),
            [word] if self.tls_is_last => {
                let name = self.name;
                Err(format!("`+tls` must precede the registry: {name}+tls+{word}://"))
            }
            [word] => Ok(Some(word)),
            _ => Err(self.unknown_words()),
        }
    }

    /// Returns the error for words after the protocol that do not name a registry.
    #[cold]
    pub(super) fn unknown_words(&self) -> String {
        let words = self.words.join("+");
        match self.words.len() {
            1 => format!("`+{words}` is neither `+tls` nor a registry: expected {REGISTRIES}"),
            _ => format!("`+{words}`: a URL has at most one registry"),
        }
    }
}

const REGISTRIES: &str =
    "consul, dlist, dns, etcd, file, kubernetes, list, mdns, nacos, redis, remotefile or zookeeper";

/// Returns the schemes of these protocols, for an error message.
#[cold]
fn schemes(known: &[Protocol]) -> String {
    let schemes = known.iter().flat_map(|protocol| protocol.descriptor().schemes);
    schemes.map(|scheme| scheme.name).collect::<Vec<_>>().join(", ")
}
