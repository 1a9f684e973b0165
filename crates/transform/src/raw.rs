//! Opaque bytes.

use std::fmt::Write;

/// Prints text unchanged; other bytes as hexadecimal next to their printable characters.
pub fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => {
            text.to_owned()
        }
        _ => dump(bytes),
    }
}

fn dump(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 5);
    for (n, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = line
            .iter()
            .map(|&byte| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '.' })
            .collect();
        let end = if n == 0 { "" } else { "\n" };
        // Writing to a String cannot fail.
        let _ = write!(out, "{end}{:08x}  {:<47}  {text}", n * 16, hex.join(" "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_printed_as_text_and_bytes_as_hexadecimal() {
        assert_eq!(readable("héllo\n".as_bytes()), "héllo\n");
        let shown = format!("00000000  {:<47}  raw..", "72 61 77 00 01");
        assert_eq!(readable(b"raw\0\x01"), shown);
        assert_eq!(readable(&[0; 17]).lines().count(), 2);
    }
}
