//! Output for users: colour, durations, byte counts.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use crate::failure::Failure;

/// Prints lines of text. Returns whether standard output is still open; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::system("write to standard output", &error)),
    }
}

/// Writes bytes as they are to standard output. A closed pipe is not an error.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system("write to standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Prints a line on standard error, [escaped](escape): it may contain what a peer has sent. A closed pipe is ignored;
/// `eprintln!` panics there.
pub(crate) fn print_error(text: impl Display) {
    // A failure would be reported on standard error too.
    let _ = writeln!(io::stderr().lock(), "{}", escape(&text.to_string()));
}

/// Escapes control characters other than line feeds and tabs, which a terminal would obey. The result is JSON if the
/// text is.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let is_safe = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_safe(c) {
            true => escaped.push(c),
            false => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    Cow::Owned(escaped)
}

/// Prints a failure on standard error, as text or as a line of JSON. Returns the exit code.
pub(crate) fn report(failure: &Failure, json: bool) -> ExitCode {
    match json {
        true => print_error(failure.to_json()),
        false => print_error(failure),
    }
    ExitCode::from(failure.exit_code())
}

/// Runs a future in a runtime on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
    Ok(runtime.block_on(future))
}

/// Whether output may be coloured: it is a terminal that is not `dumb`, and `NO_COLOR` is not set
/// (no-color.org).
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && wants_colour(env::var_os("NO_COLOR"), env::var_os("TERM"))
}

fn wants_colour(no_color: Option<OsString>, term: Option<OsString>) -> bool {
    no_color.is_none_or(|value| value.is_empty()) && term.is_none_or(|term| term != "dumb")
}

/// Colours text, if standard output is a terminal and `NO_COLOR` is not set (no-color.org).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Painter {
    on: bool,
}

impl Painter {
    pub(crate) fn for_stdout() -> Self {
        Self { on: is_coloured(&io::stdout()) }
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn red(self, text: impl Display) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn green(self, text: impl Display) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn cyan(self, text: impl Display) -> String {
        self.wrap("36", text)
    }

    fn wrap(self, code: &str, text: impl Display) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// A duration in readable units: `870 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub(crate) struct ShortDuration(pub(crate) Duration);

impl Display for ShortDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let text = match nanos {
            0..1_000 => format!("{nanos} ns"),
            1_000..1_000_000 => format!("{} µs", three_digits(nanos as f64 / 1e3)),
            1_000_000..1_000_000_000 => format!("{} ms", three_digits(nanos as f64 / 1e6)),
            _ => format!("{} s", three_digits(nanos as f64 / 1e9)),
        };
        f.pad(&text)
    }
}

fn three_digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A count with thousands separators: `93,412`.
pub(crate) fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 call`, `1,234 calls`.
pub(crate) fn pluralize(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", format_count(count), if count == 1 { "" } else { "s" })
}

/// A text cut to this many characters, ending in an ellipsis if it was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Parses `500ms`, `1s`, `1.5s`, `2m`, `1h`; a plain number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: expected seconds, or a number and ms, s, m or h");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed_with_their_unit() {
        for (text, shown) in [("870us", "870 µs"), ("1.5s", "1.50 s"), ("20ms", "20.0 ms"), ("2m", "120 s")]
        {
            assert_eq!(ShortDuration(parse_duration(text).unwrap()).to_string(), shown, "{text}");
        }
        assert_eq!(ShortDuration(Duration::from_nanos(999)).to_string(), "999 ns");
        assert_eq!(ShortDuration(Duration::from_nanos(9_996)).to_string(), "10.0 µs");
        assert_eq!(parse_duration("5"), parse_duration("5s"));
        assert_eq!(parse_duration("0.5"), parse_duration("500ms"));
        assert_eq!(parse_duration("1h"), parse_duration("60m"));
        for wrong in ["", "s", "-1", "five", "5 5", "-1s", "1d", "1e300s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn colours_are_left_out_if_disabled() {
        for (no_color, term, coloured) in [
            (None, Some("xterm"), true),
            (None, None, true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
        ] {
            let wants = wants_colour(no_color.map(OsString::from), term.map(OsString::from));
            assert_eq!(wants, coloured, "{no_color:?} {term:?}");
        }
    }

    #[test]
    fn control_characters_are_escaped_as_in_json() {
        assert_eq!(escape("\u{1b}]0;title\u{7}\u{9b}1m"), "\\u001b]0;title\\u0007\\u009b1m");
        assert!(matches!(escape("líne\n\tline"), Cow::Borrowed(_)));
        let json = serde_json::json!({ "text": "\u{9b}\u{7f}" });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escape(&json.to_string())).unwrap(), json);
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 1, 1_234].map(|count| pluralize(count, "call")), ["0 calls", "1 call", "1,234 calls"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(format_count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn long_text_is_cut_with_an_ellipsis() {
        assert_eq!(cut("héllo", 5), "héllo");
        assert_eq!(cut("héllo!", 5), "héll…");
    }
}
