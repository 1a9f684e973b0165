use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use polyrpc_core::Format;

/// A generation of rest_rpc's wire format, by the last tag that speaks it.
///
/// Nothing on the wire says which it is, so both ends must be told the same.
///
/// ```
/// use polyrpc_wire::rest_rpc::Generation;
///
/// assert_eq!("v0.08".parse(), Ok(Generation::V0_11));
/// assert_eq!(Generation::default().to_string(), "v0.21");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
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

/// How the numbers of a header of v0.21 are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ByteOrder {
    /// As every generation writes them.
    #[default]
    Little,
    /// As with the peer's option `enable_cross_ending` on both ends.
    Big,
}

impl Generation {
    /// Every generation, the oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_04,
        Self::V0_11,
        Self::From20221223,
        Self::From20230216,
        Self::V0_20,
        Self::V0_21(ByteOrder::Little),
        Self::V0_21(ByteOrder::Big),
    ];

    /// The name in URLs and on the command line: `v0.11`, `2022-12-23`, `v0.21-big-endian`.
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

    /// The generation that the words of a URL name, the last of them; the newest if there are none.
    ///
    /// # Errors
    ///
    /// If a word names none.
    pub fn named<W: AsRef<str>>(words: &[W]) -> Result<Self, String> {
        words.iter().map(AsRef::as_ref).try_fold(Self::default(), |_, word| {
            word.parse().map_err(|error: UnknownGeneration| format!("`+{word}`: {error}"))
        })
    }

    /// How arguments and results are written.
    pub fn format(self) -> Format {
        match self {
            Self::V0_21(_) => Format::RestRpc,
            _ => Format::MessagePackArray,
        }
    }

    /// Whether a server looks at the next call of a connection only when it has answered the last.
    pub fn is_one_at_a_time(self) -> bool {
        matches!(self, Self::V0_04 | Self::V0_21(_))
    }

    /// How long a client leaves a connection alone once it is made. Up to v0.04 the server begins to read before it has
    /// entered the connection where it looks it up to answer: a call that comes in between is never answered, nor is
    /// any after it (rest_rpc v0.01 `rpc_server.h`, `do_accept`).
    pub fn settle_time(self) -> Option<Duration> {
        (self == Self::V0_04).then_some(SETTLING)
    }

    /// Whether the body of a call begins with the function's name; later the header has its number.
    pub(super) fn calls_by_name(self) -> bool {
        matches!(self, Self::V0_04 | Self::V0_11 | Self::From20221223)
    }
}

/// What the peer was seen to need, and much more.
const SETTLING: Duration = Duration::from_millis(30);

/// The newest, little-endian as the peer's default is.
impl Default for Generation {
    fn default() -> Self {
        Self::V0_21(ByteOrder::Little)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Generation {
    type Err = UnknownGeneration;

    fn from_str(name: &str) -> Result<Self, UnknownGeneration> {
        Ok(match name {
            "v0.01" | "v0.02" | "v0.03" | "v0.04" => Self::V0_04,
            "v0.05" | "v0.06" | "v0.07" | "v0.08" | "v0.09" | "v0.10" | "v0.11" => Self::V0_11,
            "2022-12-23" => Self::From20221223,
            "2023-02-16" => Self::From20230216,
            "v0.12" | "v0.20" => Self::V0_20,
            "v0.21" => Self::V0_21(ByteOrder::Little),
            "v0.21-big-endian" => Self::V0_21(ByteOrder::Big),
            _ => return Err(UnknownGeneration),
        })
    }
}

/// The name is of no generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownGeneration;

impl fmt::Display for UnknownGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("want a tag of rest_rpc such as v0.11 or v0.21, or the day 2022-12-23 or 2023-02-16")
    }
}

impl std::error::Error for UnknownGeneration {}
