//! Resource limits of `polyrpc serve`, per peer, per connection and in total.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use polyrpc::server::Limits;

use crate::failure::Failure;
use crate::terminal;

/// The limits that an operator sets; the others have the library's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Memory that the server may hold for all clients together, in bytes or with the unit KiB, MiB or GiB
    /// [default: a quarter of the memory available to the process, at most 1GiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Maximum size of a message, on the wire and decompressed
    #[arg(long, value_name = "SIZE", default_value_t = Size(Limits::default().message))]
    max_message: Size,
    /// Maximum number of open connections; further ones are closed at once
    #[arg(long, value_name = "N", default_value_t = Count(Limits::default().connections))]
    max_connections: Count,
    /// Close a connection that is idle for this long; in seconds, or with the unit ms, s, m or h
    #[arg(long, value_name = "TIME|off", default_value_t = Timeout(Limits::default().idle_timeout))]
    idle_timeout: Timeout,
    /// Time limit of one message from its first byte to its last
    #[arg(long, value_name = "TIME", default_value_t = Span(Limits::default().message_timeout))]
    message_timeout: Span,
    /// Time limit to detect the protocol, to do a TLS handshake and to send an HTTP head
    #[arg(long, value_name = "TIME", default_value_t = Span(Limits::default().header_timeout))]
    header_timeout: Span,
    /// How long a client may read nothing while output is pending
    #[arg(long, value_name = "TIME", default_value_t = Span(Limits::default().write_timeout))]
    write_timeout: Span,
    /// Drain a connection at this age, plus or minus a tenth
    #[arg(long, value_name = "TIME|off", default_value_t = Timeout(Limits::default().connection_age))]
    max_connection_age: Timeout,
}

impl LimitOptions {
    /// The server's limits.
    ///
    /// # Errors
    ///
    /// If a message of the maximum size does not fit into the memory budget.
    pub(crate) fn limits(&self) -> Result<Limits, Failure> {
        let defaults = Limits::default();
        let memory = self.memory.map_or(defaults.memory, |memory| memory.0);
        let message = self.max_message.0;
        if message > memory {
            let (message, memory) = (format_size(message), format_size(memory));
            return Err(Failure::new(format!("a message of {message} does not fit into {memory} of memory"))
                .with_hint("raise --memory or lower --max-message"));
        }
        // The received message, its decompressed form, and the start of its response.
        let needed = message.saturating_mul(2).saturating_add(RESPONSE_MEMORY);
        let memory_per_connection = defaults.memory_per_connection.max(needed).min(memory);
        Ok(Limits {
            memory,
            memory_per_peer: (memory / 2).max(memory_per_connection),
            memory_per_connection,
            message,
            decompressed: message,
            connections: self.max_connections.0,
            connections_per_peer: defaults.connections_per_peer.min(self.max_connections.0),
            idle_timeout: self.idle_timeout.0,
            message_timeout: self.message_timeout.0,
            header_timeout: self.header_timeout.0,
            write_timeout: self.write_timeout.0,
            connection_age: self.max_connection_age.0,
            ..defaults
        })
    }
}

/// Memory that a connection needs in addition to a message and its decompressed copy.
const RESPONSE_MEMORY: usize = 1 << 20;

/// A number of bytes: `4096`, `512KiB`, `64MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size(usize);

/// A size with its unit.
fn format_size(bytes: usize) -> String {
    let text = Size(bytes).to_string();
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{text} byte{}", if bytes == 1 { "" } else { "s" }),
        false => text,
    }
}

/// Units of sizes, the largest first.
const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a size: expected a number of bytes, or a number and KiB, MiB or GiB");
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let shift = match unit.trim() {
            "" | "B" => 0,
            unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?.1,
        };
        let number: usize = number.parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large"))?;
        if bytes == 0 { Err("a size is at least one byte".to_owned()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.into_iter().find(|(_, shift)| self.0 > 0 && self.0.is_multiple_of(1 << shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => self.0.fmt(f),
        }
    }
}

/// A maximum number, at least one: a server that rejects every connection is a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count(usize);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) => Err("expected at least 1".to_owned()),
            Ok(count) => Ok(Self(count)),
            Err(_) => Err(format!("`{text}` is not a number")),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time: `30` (seconds), `500ms`, `2m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a time: expected seconds, or a number and ms, s, m or h");
        let span = terminal::parse_duration(text).map_err(|_| wrong())?;
        if span.is_zero() { Err("a time is longer than zero".to_owned()) } else { Ok(Self(span)) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            _ if !millis.is_multiple_of(1000) => write!(f, "{millis}ms"),
            _ if millis.is_multiple_of(3_600_000) => write!(f, "{}h", millis / 3_600_000),
            _ if millis.is_multiple_of(60_000) => write!(f, "{}m", millis / 60_000),
            _ => write!(f, "{}s", millis / 1000),
        }
    }
}

/// A [`Span`], or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timeout(Option<Duration>);

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => text
                .parse()
                .map(|Span(span)| Self(Some(span)))
                .map_err(|why: String| format!("{why}, or `off`")),
        }
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => Span(span).fmt(f),
            None => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitOptions,
    }

    fn limits(arguments: &[&str]) -> Result<Limits, String> {
        let line =
            Line::try_parse_from([&["polyrpc"], arguments].concat()).map_err(|error| error.to_string())?;
        line.limits.limits().map_err(|failure| failure.to_string())
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("512KiB", 512 << 10),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("2GiB", 2 << 30),
            ("10B", 10),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in ["", "0", "-1", "1.5MiB", "MiB", "1MB", "1TiB", "99999999999999999999", "99999999999GiB"]
        {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_without_a_unit_are_seconds() {
        for (text, millis) in
            [("30", 30_000), ("1.5", 1500), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
        }
        for wrong in ["", "0", "-1", "off", "1d", "h", "infh", "nan", "s"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
        assert_eq!("off".parse(), Ok(Timeout(None)));
        assert_eq!("10m".parse(), Ok(Timeout(Some(Duration::from_secs(600)))));
        assert!("never".parse::<Timeout>().unwrap_err().contains("`off`"));
    }

    #[test]
    fn displayed_values_can_be_parsed_again() {
        for text in ["1", "1025", "3KiB", "160MiB", "1GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in ["10s", "2m", "90s", "1h", "1500ms", "off"] {
            assert_eq!(text.parse::<Timeout>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn default_limits_equal_those_of_the_library() {
        let (mut set, defaults) = (limits(&[]).unwrap(), Limits::default());
        assert!(set.memory_per_connection >= defaults.memory_per_connection.min(set.memory));
        set.memory_per_connection = defaults.memory_per_connection;
        set.memory_per_peer = defaults.memory_per_peer;
        assert_eq!(format!("{set:?}"), format!("{defaults:?}"));
    }

    #[test]
    fn each_option_sets_its_limit() {
        let arguments = "--memory 512MiB --max-message 1MiB --max-connections 100 --idle-timeout off \
            --message-timeout 30 --header-timeout 5s --write-timeout 15 --max-connection-age 1h";
        let set = limits(&arguments.split_whitespace().collect::<Vec<_>>()).unwrap();
        let seconds = Duration::from_secs;
        assert_eq!((set.memory, set.message, set.decompressed), (512 << 20, 1 << 20, 1 << 20));
        assert_eq!((set.connections, set.connections_per_peer), (100, 100));
        assert_eq!((set.idle_timeout, set.connection_age), (None, Some(seconds(3600))));
        assert_eq!(
            (set.message_timeout, set.header_timeout, set.write_timeout),
            (seconds(30), seconds(5), seconds(15))
        );
        assert!(set.memory_per_connection <= set.memory_per_peer && set.memory_per_peer <= set.memory);
    }

    #[test]
    fn connection_limit_is_at_least_one() {
        assert!(limits(&["--max-connections", "0"]).unwrap_err().contains("at least 1"));
        assert!(limits(&["--max-connections", "many"]).is_err());
        assert_eq!(limits(&["--max-connections", "1"]).unwrap().connections, 1);
    }

    #[test]
    fn message_limit_must_fit_into_the_memory_budget() {
        let failure = limits(&["--memory", "32MiB"]).unwrap_err();
        assert!(
            failure.contains("64MiB") && failure.contains("32MiB") && failure.contains("--max-message"),
            "{failure}"
        );
        let failure = limits(&["--memory", "1"]).unwrap_err();
        assert!(failure.contains("does not fit into 1 byte of memory"), "{failure}");
        let set = limits(&["--memory", "4GiB", "--max-message", "1GiB"]).unwrap();
        assert!(set.memory_per_connection > 2 << 30, "{set:?}");
        let set = limits(&["--memory", "64MiB"]).unwrap();
        assert_eq!((set.memory_per_connection, set.memory_per_peer), (64 << 20, 64 << 20));
    }
}
