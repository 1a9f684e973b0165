//! Comma-separated values as in RFC 4180: quotes, doubled quotes, line breaks within quotes.

/// The rows of a text. Lines end in LF or CRLF; empty lines are skipped.
///
/// # Errors
///
/// If a quote is not closed, or text follows a closing quote.
pub(super) fn rows(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut rows = Vec::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    while !rest.is_empty() {
        let (row, left) = row(rest).map_err(|error| format!("row {}: {error}", rows.len() + 1))?;
        if row.len() > 1 || row.iter().any(|field| !field.is_empty()) {
            rows.push(row);
        }
        rest = left;
    }
    Ok(rows)
}

/// The first row, and the text after it.
fn row(mut rest: &str) -> Result<(Vec<String>, &str), String> {
    let mut fields = Vec::new();
    loop {
        let (field, left) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find([',', '\n']).unwrap_or(rest.len());
                (rest[..end].trim_end_matches('\r').to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        match left.strip_prefix(',') {
            Some(next) => rest = next,
            None => {
                let left = left.strip_prefix('\r').unwrap_or(left);
                return match left.strip_prefix('\n') {
                    Some(next) => Ok((fields, next)),
                    None if left.is_empty() => Ok((fields, left)),
                    None => Err("text follows a closing quote".to_owned()),
                };
            }
        }
    }
}

fn quoted_field(mut rest: &str) -> Result<(String, &str), String> {
    let mut field = String::new();
    loop {
        let (part, left) = rest.split_once('"').ok_or("a quote is not closed")?;
        field += part;
        match left.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Ok((field, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_commas_and_line_breaks_are_read() {
        let text = "\u{feff}id,name\r\n1,\"a, \"\"b\"\"\nc\"\n\n2,\n";
        let expected = [vec!["id", "name"], vec!["1", "a, \"b\"\nc"], vec!["2", ""]];
        assert_eq!(rows(text).unwrap(), expected);
        assert_eq!(rows("").unwrap().len(), 0);
        assert_eq!(rows("a\n\"x\"y").unwrap_err(), "row 2: text follows a closing quote");
        assert_eq!(rows("\"x").unwrap_err(), "row 1: a quote is not closed");
    }
}
