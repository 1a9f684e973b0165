//! Parameters of URLs: `version` in `rest-rpc://host:port?version=0.21`.

use std::fmt::{self, Write};

/// Parameter of a protocol's URLs, as declared in [`Descriptor::parameters`](super::Descriptor::parameters).
///
/// ```
/// use polyrpc_core::protocol::Parameter;
///
/// const CODEC: Parameter = Parameter::new("codec", &["gob", "json"], "encoding of headers and bodies");
/// assert_eq!(CODEC.to_string(), "codec=gob|json");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// In lower case, with `_` between words: `byte_order`. `transport` and `http_path` belong to the transport.
    pub name: &'static str,
    /// Allowed values, the default first. If empty, any text is allowed, and there is no default.
    pub values: &'static [&'static str],
    /// Schemes that have it, as spelled in [`Scheme::name`](super::Scheme::name); if empty, all of the protocol.
    pub schemes: &'static [&'static str],
    /// What it selects, for help texts, such as "byte order of the header".
    pub summary: &'static str,
}

impl Parameter {
    /// Creates a parameter of all schemes of a protocol.
    pub const fn new(name: &'static str, values: &'static [&'static str], summary: &'static str) -> Self {
        Self { name, values, schemes: &[], summary }
    }

    /// Whether URLs with this scheme have it.
    pub fn belongs_to(&self, scheme: &str) -> bool {
        self.schemes.is_empty() || self.schemes.contains(&scheme)
    }

    fn allows(&self, value: &str) -> bool {
        if self.values.is_empty() { !value.is_empty() } else { self.values.contains(&value) }
    }
}

/// Writes name and allowed values: `byte_order=little|big`.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.values {
            [] => f.write_str("=…"),
            values => write!(f, "={}", values.join("|")),
        }
    }
}

/// Parameters of a URL, checked against their declarations. Each name occurs at most once.
///
/// ```
/// use polyrpc_core::protocol::{Parameter, Parameters};
///
/// const CODEC: Parameter = Parameter::new("codec", &["gob", "json"], "encoding of headers and bodies");
///
/// let parameters = Parameters::parse("codec=json", "net-rpc", &[CODEC])?;
/// assert_eq!(parameters.value("codec"), Some("json"));
/// assert!(Parameters::parse("codec=xml", "net-rpc", &[CODEC]).is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(&'static str, String)>);

impl Parameters {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Parses the query of a URL, the part behind `?`. Values may contain percent-encoded bytes.
    ///
    /// # Errors
    ///
    /// If a parameter is not declared for this scheme, occurs twice, or has a value that is not allowed.
    pub fn parse(query: &str, scheme: &str, declared: &[Parameter]) -> Result<Self, String> {
        let mut parameters = Self::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let known = declared.iter().find(|known| known.name == name && known.belongs_to(scheme));
            let known = known.ok_or_else(|| unknown(name, scheme, declared))?;
            if parameters.value(name).is_some() {
                return Err(format!("the parameter `{name}` occurs twice"));
            }
            let value = percent_decode(value).filter(|value| known.allows(value));
            parameters.0.push((known.name, value.ok_or_else(|| bad_value(pair, known))?));
        }
        Ok(parameters)
    }

    /// Returns the value of a parameter; `None` if the URL does not have it.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether a parameter has this value.
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.value(name) == Some(value)
    }

    /// Removes a parameter and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(index).1)
    }

    /// Iterates over names and values, in the order of the URL.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes the query of a URL, which [`parse`](Parameters::parse) reads.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            let ampersand = if index == 0 { "" } else { "&" };
            write!(f, "{ampersand}{name}=")?;
            for byte in value.bytes() {
                match byte {
                    b'%' | b'&' | b'#' | b'+' => write!(f, "%{byte:02X}")?,
                    0x21..=0x7e => f.write_char(byte.into())?,
                    _ => write!(f, "%{byte:02X}")?,
                }
            }
        }
        Ok(())
    }
}

/// Decodes percent-encoded bytes; `None` if an escape is incomplete or the result is not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Omits the value, which may be a secret.
#[cold]
fn unknown(name: &str, scheme: &str, declared: &[Parameter]) -> String {
    let others: Vec<_> = declared.iter().filter(|known| known.name == name).collect();
    if !others.is_empty() {
        let others: Vec<_> =
            others.iter().flat_map(|known| known.schemes).map(|other| format!("{other}://")).collect();
        return format!("the parameter `{name}` belongs to {}, not to {scheme}://", others.join(" and "));
    }
    let known: Vec<_> = declared.iter().filter(|known| known.belongs_to(scheme)).collect();
    let known: Vec<_> = known.iter().map(ToString::to_string).collect();
    match known.is_empty() {
        true => format!("the parameter `{name}` is unknown: {scheme}:// has none"),
        false => format!("the parameter `{name}` is unknown: {scheme}:// has {}", known.join(", ")),
    }
}

#[cold]
fn bad_value(pair: &str, known: &Parameter) -> String {
    match known.values {
        [] => format!("the parameter `{}` needs a value in percent-encoded UTF-8", known.name),
        values => format!("invalid parameter `{pair}`: expected {}", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Parameter] = &[
        Parameter::new("codec", &["gob", "json"], "encoding"),
        Parameter::new("tenant", &[], "name of the tenant"),
        Parameter {
            schemes: &["b", "c"],
            ..Parameter::new("http_version", &["1.1", "2"], "version of HTTP")
        },
    ];

    fn parse(query: &str) -> Result<Vec<(&'static str, String)>, String> {
        Parameters::parse(query, "a", DECLARED).map(|parameters| parameters.0)
    }

    #[test]
    fn declared_parameters_are_accepted_in_any_order() {
        for (query, parameters) in [
            ("", &[][..]),
            ("&", &[]),
            ("codec=json", &[("codec", "json")]),
            ("tenant=a%20b%26&codec=gob", &[("tenant", "a b&"), ("codec", "gob")]),
            ("tenant=a=b?c+d", &[("tenant", "a=b?c+d")]),
            ("tenant=%C3%BC", &[("tenant", "ü")]),
        ] {
            let expected: Vec<_> =
                parameters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            assert_eq!(parse(query), Ok(expected), "{query}");
        }
    }

    #[test]
    fn rejected_parameter_error_lists_the_allowed_ones() {
        for (query, error) in [
            ("x=hunter2", "the parameter `x` is unknown: a:// has codec=gob|json, tenant=…"),
            ("Codec=json", "the parameter `Codec` is unknown: a:// has codec=gob|json, tenant=…"),
            ("codec=json&codec=json", "the parameter `codec` occurs twice"),
            ("codec=xml", "invalid parameter `codec=xml`: expected gob, json"),
            ("codec", "invalid parameter `codec`: expected gob, json"),
            ("codec=", "invalid parameter `codec=`: expected gob, json"),
            ("tenant=", "the parameter `tenant` needs a value in percent-encoded UTF-8"),
            ("tenant=%4", "the parameter `tenant` needs a value in percent-encoded UTF-8"),
            ("tenant=%+1", "the parameter `tenant` needs a value in percent-encoded UTF-8"),
            ("tenant=%ff", "the parameter `tenant` needs a value in percent-encoded UTF-8"),
            ("http_version=2", "the parameter `http_version` belongs to b:// and c://, not to a://"),
        ] {
            assert_eq!(parse(query), Err(error.to_owned()), "{query}");
        }
        let none = Parameters::parse("x", "a", &[]);
        assert_eq!(none, Err("the parameter `x` is unknown: a:// has none".to_owned()));
        assert!(Parameters::parse("http_version=2", "b", DECLARED).is_ok());
    }

    #[test]
    fn parameters_round_trip_through_text() {
        for value in ["a", "a b", "100%", "a&b=c#d", "1+1", "/calls?x=1", "ü", "\u{7f}"] {
            let parameters = Parameters(vec![("codec", "json".into()), ("tenant", value.into())]);
            let written = parameters.to_string();
            assert!(written.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'), "{written}");
            assert_eq!(Parameters::parse(&written, "a", DECLARED), Ok(parameters), "{written}");
        }
    }

    #[test]
    fn removed_parameter_is_gone() {
        let mut parameters = Parameters::parse("codec=json&tenant=x", "a", DECLARED).unwrap();
        assert_eq!(parameters.remove("codec"), Some("json".to_owned()));
        assert_eq!(parameters.remove("codec"), None);
        assert_eq!(parameters.to_string(), "tenant=x");
    }
}
