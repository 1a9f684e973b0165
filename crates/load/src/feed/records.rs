use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::csv;

/// Records of a file: each has values by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Records {
    /// Position of each field.
    names: HashMap<String, usize>,
    rows: Vec<Vec<Value>>,
}

/// One record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'r> {
    names: &'r HashMap<String, usize>,
    row: &'r [Value],
}

impl Records {
    /// Reads a file: JSON Lines if its name ends in `.jsonl`, `.ndjson` or `.json`, otherwise CSV with a header.
    ///
    /// # Errors
    ///
    /// If the text is malformed or has no record.
    pub fn parse(name: &Path, text: &str) -> Result<Self, String> {
        let extension = name.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let records = match extension {
            "jsonl" | "ndjson" | "json" => Self::from_json_lines(text),
            _ => Self::from_csv(text),
        }?;
        match records.rows.len() {
            0 => Err("there is no record".to_owned()),
            rows if rows > MAX_RECORDS => {
                Err(format!("there are {rows} records; at most {MAX_RECORDS} are read"))
            }
            _ => Ok(records),
        }
    }

    fn from_csv(text: &str) -> Result<Self, String> {
        let mut rows = csv::rows(text)?.into_iter();
        let header = rows.next().unwrap_or_default();
        let names: HashMap<_, _> = header.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect();
        if names.len() < header.len() {
            return Err("two columns have the same name".to_owned());
        }
        let row = |(number, row): (usize, Vec<String>)| match row.len() == header.len() {
            true => Ok(row.into_iter().map(Value::String).collect()),
            false => {
                Err(format!("row {} has {} fields, the header has {}", number + 2, row.len(), header.len()))
            }
        };
        let rows = rows.enumerate().map(row).collect::<Result<_, _>>()?;
        Ok(Self { names, rows })
    }

    fn from_json_lines(text: &str) -> Result<Self, String> {
        let mut names = HashMap::new();
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |error: &dyn std::fmt::Display| format!("line {}: {error}", number + 1);
            let Value::Object(object) = serde_json::from_str(line).map_err(|error| wrong(&error))? else {
                return Err(wrong(&"it is not an object"));
            };
            let mut row = Vec::new();
            for (name, value) in object {
                let count = names.len();
                let at = *names.entry(name).or_insert(count);
                if row.len() <= at {
                    row.resize(at + 1, Value::Null);
                }
                row[at] = value;
            }
            rows.push(row);
        }
        Ok(Self { names, rows })
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A record, from 0.
    pub(super) fn get(&self, number: usize) -> Record<'_> {
        Record { names: &self.names, row: &self.rows[number] }
    }
}

impl Record<'_> {
    /// The value of a field; null if only other records have it.
    pub(super) fn value(&self, name: &str) -> Result<Value, String> {
        match self.names.get(name) {
            Some(at) => Ok(self.row.get(*at).cloned().unwrap_or_default()),
            None => {
                let mut names: Vec<_> = self.names.keys().map(String::as_str).collect();
                names.sort_unstable();
                Err(format!("the records have no field `{name}`; there are {}", names.join(", ")))
            }
        }
    }
}

/// Maximum number of records.
const MAX_RECORDS: usize = 1_000_000;
