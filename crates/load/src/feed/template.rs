use std::fmt::Write;
use std::str::FromStr;

use serde_json::Value;

use super::records::Record;
use crate::schedule::random::{Stream, random_below, random_bits};

/// JSON with placeholders. Outside of a JSON string a placeholder stands for a value; inside, for text.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Placeholder { what: Placeholder, in_string: bool },
}

#[derive(Debug, Clone, PartialEq)]
enum Placeholder {
    /// Field of the record.
    Field(String),
    /// Number of the message, from 0.
    Seq,
    /// A random integer from the first to the second, both included.
    Random(i64, i64),
    /// A random UUID of version 4.
    Uuid,
    /// This number of random letters and digits.
    Text(usize),
}

impl Template {
    /// A template without placeholders, of any bytes that are UTF-8.
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// Whether a placeholder names a field of a record.
    pub fn needs_records(&self) -> bool {
        let is_field = |part: &Part| matches!(part, Part::Placeholder { what: Placeholder::Field(_), .. });
        self.parts.iter().any(is_field)
    }

    /// The message with this number.
    ///
    /// # Errors
    ///
    /// If a placeholder names a field that the records do not have.
    pub(super) fn fill(&self, number: u64, record: Option<Record<'_>>, seed: u64) -> Result<Vec<u8>, String> {
        let mut text = String::new();
        let placeholders = self.parts.len() as u64;
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                Part::Text(plain) => text += plain,
                Part::Placeholder { what, in_string } => {
                    let index = number * placeholders + at as u64;
                    insert(&mut text, what.value(number, index, record, seed)?, *in_string);
                }
            }
        }
        Ok(text.into_bytes())
    }
}

/// Inserts a value as JSON, or as text of a JSON string. A string that is a number in JSON, as all values of CSV are
/// strings, becomes that number.
fn insert(text: &mut String, value: Value, in_string: bool) {
    let json = match (in_string, value) {
        (false, Value::String(value)) => match serde_json::from_str::<Value>(&value) {
            Ok(Value::Number(_) | Value::Bool(_) | Value::Null) => value,
            _ => Value::String(value).to_string(),
        },
        (false, value) => value.to_string(),
        (true, Value::String(value)) => escape_json(&value),
        (true, value) => escape_json(&value.to_string()),
    };
    text.push_str(&json);
}

/// Text as it stands between the quotes of a JSON string.
fn escape_json(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

impl Placeholder {
    fn value(&self, number: u64, index: u64, record: Option<Record<'_>>, seed: u64) -> Result<Value, String> {
        Ok(match self {
            Self::Field(name) => match record {
                Some(record) => record.value(name)?,
                None => return Err(format!("`{{{{{name}}}}}` needs records: name their file with --feed")),
            },
            Self::Seq => number.into(),
            Self::Random(from, to) => {
                let drawn = random_below(seed, Stream::Template, index, from.abs_diff(*to).saturating_add(1));
                from.wrapping_add_unsigned(drawn).into()
            }
            Self::Uuid => {
                let half = |seed| random_bits(seed, Stream::Template, index);
                uuid(half(seed), half(!seed)).into()
            }
            Self::Text(length) => {
                let count = LETTERS.len() as u64;
                let letter = |at| LETTERS[random_below(seed ^ index, Stream::Template, at, count) as usize];
                (0..*length as u64).map(|at| char::from(letter(at))).collect::<String>().into()
            }
        })
    }
}

/// RFC 9562, section 5.4.
fn uuid(high: u64, low: u64) -> String {
    let high = high & !0xf000 | 0x4000;
    let low = low & !(3 << 62) | 2 << 62;
    let mut text = String::new();
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
    let (d, e) = (low >> 48, low & 0xffff_ffff_ffff);
    write!(text, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}").expect("a string takes any text");
    text
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut in_string = false;
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("{{") {
            // `{{}` is not JSON either: anything that is not a placeholder is an error, not text.
            let (name, left) = behind.split_once("}}").ok_or("a placeholder `{{` is not closed by `}}`")?;
            in_string = ends_in_string(before, in_string);
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Placeholder { what: name.trim().parse()?, in_string });
            rest = left;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self { parts })
    }
}

/// Whether JSON text ends within a string.
fn ends_in_string(text: &str, mut in_string: bool) -> bool {
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    in_string
}

impl FromStr for Placeholder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let wrong = || {
            format!(
                "`{{{{{text}}}}}` is not a placeholder: expected a field, seq, random FROM TO, uuid or text N"
            )
        };
        match words.as_slice() {
            ["seq"] => Ok(Self::Seq),
            ["uuid"] => Ok(Self::Uuid),
            ["random", from, to] => {
                let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
                if from > to { Err(wrong()) } else { Ok(Self::Random(from, to)) }
            }
            ["text", length] => {
                let length =
                    length.parse().ok().filter(|length| *length <= MAX_TEXT_LEN).ok_or_else(wrong)?;
                Ok(Self::Text(length))
            }
            [] => Err(wrong()),
            ["random" | "text", ..] => Err(wrong()),
            _ => Ok(Self::Field(text.to_owned())),
        }
    }
}

/// Maximum length of a random text.
const MAX_TEXT_LEN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Records, messages};
    use super::*;

    fn fill(template: &str, file: &str, text: &str) -> Result<Vec<Value>, String> {
        let template: Template = template.parse()?;
        let records = (!text.is_empty()).then(|| Records::parse(Path::new(file), text)).transpose()?;
        let made = messages(&template, records.as_ref(), 3, 1)?;
        made.iter()
            .map(|message| serde_json::from_slice(message).map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn fields_of_records_fill_a_template() {
        let template = r#"{"id":{{id}},"text":"{{name}}: \"{{id}}\"","raw":{{name}}}"#;
        let of_csv = fill(template, "x.csv", "id,name\n7,\"a \"\"b\"\"\"\n8,c\n").unwrap();
        assert_eq!(of_csv[0], serde_json::json!({"id": 7, "text": "a \"b\": \"7\"", "raw": "a \"b\""}));
        assert_eq!(of_csv.len(), 2);
        let of_lines =
            fill(template, "x.jsonl", "{\"id\":7,\"name\":\"a \\\"b\\\"\"}\n\n{\"name\":[1]}\n").unwrap();
        assert_eq!(of_lines[0], of_csv[0]);
        assert_eq!(of_lines[1], serde_json::json!({"id": null, "text": "[1]: \"null\"", "raw": [1]}));
    }

    #[test]
    fn generated_values_depend_on_the_seed() {
        let template = r#"{"n":{{seq}},"r":{{random -5 5}},"u":"{{uuid}}","t":"{{text 8}}"}"#;
        let made = fill(template, "", "").unwrap();
        assert_eq!(made, fill(template, "", "").unwrap());
        assert_eq!(made.len(), 3);
        for (number, message) in made.iter().enumerate() {
            assert_eq!(message["n"], number);
            assert!((-5..=5).contains(&message["r"].as_i64().unwrap()), "{message}");
            assert_eq!((message["u"].as_str().unwrap().len(), message["t"].as_str().unwrap().len()), (36, 8));
            assert_eq!(&message["u"].as_str().unwrap()[14..15], "4");
        }
        assert_ne!(made[0]["u"], made[1]["u"]);
    }

    #[test]
    fn template_without_placeholders_is_one_message() {
        assert_eq!(fill(r#"{"a":{"b":{}}}"#, "", "").unwrap().len(), 1);
    }

    #[test]
    fn mistakes_are_reported() {
        for (template, file, text, reason) in [
            (r#"{"a":{{b}}}"#, "x.csv", "a\n1\n", "no field `b`; there are a"),
            (r#"{"a":{{b}}}"#, "", "", "--feed"),
            (r#"{"a":{{random 5 1}}}"#, "", "", "not a placeholder"),
            (r#"{"a":{{b"#, "", "", "not closed"),
            ("{}", "x.csv", "a,b\n1\n", "row 2 has 1 fields"),
            ("{}", "x.csv", "a,a\n", "same name"),
            ("{}", "x.jsonl", "[1]\n", "line 1: it is not an object"),
            ("{}", "x.csv", "a\n", "no record"),
        ] {
            let refused = fill(template, file, text).unwrap_err();
            assert!(refused.contains(reason), "{template}: {refused}");
        }
    }
}
