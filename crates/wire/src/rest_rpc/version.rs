use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use polyrpc_core::Format;
use polyrpc_core::protocol::Parameters;

/// A version of rest_rpc's wire format, named after the last tag that uses it.
///
/// The wire format does not identify its version, so that both ends must be configured alike.
///
/// ```
/// use polyrpc_wire::rest_rpc::Version;
///
/// assert_eq!("0.08".parse(), Ok(Version::V0_11));
/// assert_eq!("v0.08".parse(), Ok(Version::V0_11));
/// assert_eq!(Version::default().to_string(), "v0.21");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// v0.01 to v0.04, 2019: a header of 12 bytes.
    V0_04,
    /// v0.05 to v0.11, 2019 to 2022: a header of 13 bytes; subscriptions.
    V0_11,
    /// Between tags, from 2022-12-23 on: a magic byte, a header of 16 bytes.
    From20221223,
    /// Between tags, from 2023-02-16 on: functions are called by number; a header of 24 bytes.
    From20230216,
    /// v0.12 to v0.20, 2023 to 2025: a header of 20 bytes.
    V0_20,
    /// v0.21 and later: a header of 32 bytes, text and struct_pack in place of MessagePack.
    V0_21(ByteOrder),
}

/// Byte order of the numbers in a header of v0.21.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ByteOrder {
    /// Little-endian, as in every version.
    #[default]
    Little,
    /// Big-endian, as with the peer's option `enable_cross_ending` on both ends.
    Big,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_04,
        Self::V0_11,
        Self::From20221223,
        Self::From20230216,
        Self::V0_20,
        Self::V0_21(ByteOrder::Little),
        Self::V0_21(ByteOrder::Big),
    ];

    /// Returns the name for users: `v0.11`, `2022-12-23`, `v0.21-big-endian`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_04 => "v0.04",
            Self::V0_11 => "v0.11",
            Self::From20221223 => "2022-12-23",
            Self::From20230216 => "2023-02-16",
            Self::V0_20 => "v0.20",
            Self::V0_21(ByteOrder::Little) => "v0.21",
            Self::V0_21(ByteOrder::Big) => "v0.21-big-endian",
        }
    }

    /// Returns the version that the parameters of a URL select; the newest without any.
    ///
    /// # Errors
    ///
    /// If the version is unknown, or has no such byte order.
    pub fn selected_by(parameters: &Parameters) -> Result<Self, String> {
        let version = match parameters.value("version") {
            None => Self::default(),
            Some(version) => {
                version.parse().map_err(|error: UnknownVersion| format!("`version={version}`: {error}"))?
            }
        };
        match (version, parameters.has("byte_order", "big")) {
            (version, false) => Ok(version),
            (Self::V0_21(_), true) => Ok(Self::V0_21(ByteOrder::Big)),
            (_, true) => {
                Err("`byte_order=big` needs `version=0.21`: older headers are little-endian".to_owned())
            }
        }
    }

    /// Returns the parameters of a URL that select it, such as `version=0.21&byte_order=big`.
    ///
    /// ```
    /// use polyrpc_wire::rest_rpc::Version;
    ///
    /// let url = format!("rest-rpc://127.0.0.1:9000?{}", Version::V0_11.url_parameters());
    /// assert_eq!(url, "rest-rpc://127.0.0.1:9000?version=0.11");
    /// ```
    pub fn url_parameters(self) -> &'static str {
        match self {
            Self::V0_04 => "version=0.04",
            Self::V0_11 => "version=0.11",
            Self::From20221223 => "version=2022-12-23",
            Self::From20230216 => "version=2023-02-16",
            Self::V0_20 => "version=0.20",
            Self::V0_21(ByteOrder::Little) => "version=0.21",
            Self::V0_21(ByteOrder::Big) => "version=0.21&byte_order=big",
        }
    }

    /// Returns the encoding of arguments and results.
    pub fn format(self) -> Format {
        match self {
            Self::V0_21(_) => Format::RestRpc,
            _ => Format::MessagePackArray,
        }
    }

    /// Whether a server handles the next call of a connection only after it has answered the previous one.
    pub fn is_one_at_a_time(self) -> bool {
        matches!(self, Self::V0_04 | Self::V0_21(_))
    }

    /// Returns how long a client must wait before it uses a new connection. Up to v0.04 the server starts reading
    /// before it has registered the connection that it needs for responses: a call received in between is never
    /// answered, nor is any after it (rest_rpc v0.01 `rpc_server.h`, `do_accept`).
    pub fn settle_time(self) -> Option<Duration> {
        (self == Self::V0_04).then_some(SETTLING)
    }

    /// Whether the body of a call starts with the function's name; in later versions the header has its number.
    pub(super) fn calls_by_name(self) -> bool {
        matches!(self, Self::V0_04 | Self::V0_11 | Self::From20221223)
    }
}

/// Much more than the peer was observed to need.
const SETTLING: Duration = Duration::from_millis(30);

/// The newest version, little-endian like the peer's default.
impl Default for Version {
    fn default() -> Self {
        Self::V0_21(ByteOrder::Little)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(name: &str) -> Result<Self, UnknownVersion> {
        let tag = name.strip_prefix('v').unwrap_or(name);
        Ok(match tag {
            "0.01" | "0.02" | "0.03" | "0.04" => Self::V0_04,
            "0.05" | "0.06" | "0.07" | "0.08" | "0.09" | "0.10" | "0.11" => Self::V0_11,
            "0.12" | "0.20" => Self::V0_20,
            "0.21" => Self::V0_21(ByteOrder::Little),
            "0.21-big-endian" => Self::V0_21(ByteOrder::Big),
            _ if name == "2022-12-23" => Self::From20221223,
            _ if name == "2023-02-16" => Self::From20230216,
            _ => return Err(UnknownVersion),
        })
    }
}

/// The name is not that of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVersion;

impl fmt::Display for UnknownVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a release tag of rest_rpc, such as 0.11 or 0.21, or the date 2022-12-23 or 2023-02-16",
        )
    }
}

impl std::error::Error for UnknownVersion {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest_rpc::DESCRIPTOR;

    fn select(query: &str) -> Result<Version, String> {
        let parameters = Parameters::parse(query, "rest-rpc", DESCRIPTOR.parameters)?;
        Version::selected_by(&parameters)
    }

    #[test]
    fn url_selects_each_version() {
        for version in Version::ALL {
            assert_eq!(select(version.url_parameters()), Ok(version));
            assert_eq!(version.as_str().parse(), Ok(version));
        }
        assert_eq!(select(""), Ok(Version::default()));
        assert_eq!(select("byte_order=big"), Ok(Version::V0_21(ByteOrder::Big)));
        assert_eq!(select("byte_order=little&version=0.20"), Ok(Version::V0_20));
    }

    #[test]
    fn every_declared_value_selects_a_version() {
        let version = DESCRIPTOR.parameters[0];
        assert_eq!(version.name, "version");
        for value in version.values {
            assert!(select(&format!("version={value}")).is_ok(), "{value}");
        }
        assert_eq!(select(&format!("version={}", version.values[0])), Ok(Version::default()));
    }

    #[test]
    fn old_version_rejects_a_byte_order() {
        let error = select("version=0.20&byte_order=big").unwrap_err();
        assert_eq!(error, "`byte_order=big` needs `version=0.21`: older headers are little-endian");
    }
}
