//! Compares the documented tables of URL parameters with the descriptors, and checks the URLs of the guide.

use std::fs;
use std::path::Path;

use polyrpc::client::url_parameters;
use polyrpc::{Client, Code, Protocol};
use polyrpc_core::protocol::Parameter;

/// A row of the table: a parameter that means the same in the URLs of several schemes.
struct Row {
    parameter: Parameter,
    schemes: Vec<&'static str>,
    /// The schemes that accept each value.
    values: Vec<(&'static str, Vec<&'static str>)>,
}

impl Row {
    fn new(parameter: Parameter) -> Self {
        Self { parameter, schemes: Vec::new(), values: Vec::new() }
    }

    fn add(&mut self, values: &[&'static str], schemes: &[&'static str]) {
        self.schemes.extend(schemes);
        for value in values {
            match self.values.iter_mut().find(|(known, _)| known == value) {
                Some((_, all)) => all.extend(schemes),
                None => self.values.push((value, schemes.to_vec())),
            }
        }
    }

    fn text(&self) -> String {
        let Parameter { name, values, summary, .. } = self.parameter;
        let code =
            |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let value = |(value, schemes): &(&str, Vec<&str>)| match *schemes == self.schemes {
            true => code(&[*value]),
            false => format!("{} (only {})", code(&[*value]), code(schemes)),
        };
        let (values, default) = match values.first() {
            Some(default) => {
                (self.values.iter().map(value).collect::<Vec<_>>().join(", "), code(&[*default]))
            }
            None => ("text".to_owned(), "none".to_owned()),
        };
        format!("| `{name}` | {values} | {default} | {} | {summary} |", code(&self.schemes))
    }
}

/// Rows of the table, in the order of the protocols; those of the same name follow each other.
fn rows() -> Vec<String> {
    let mut rows: Vec<Row> = Vec::new();
    for protocol in Protocol::ALL {
        let descriptor = protocol.descriptor();
        for parameter in url_parameters(descriptor) {
            let schemes = descriptor.schemes.iter().map(|scheme| scheme.name);
            let schemes: Vec<_> = schemes.filter(|scheme| parameter.belongs_to(scheme)).collect();
            let is_same = |row: &Row| {
                let Parameter { name, summary, .. } = row.parameter;
                (name, summary) == (parameter.name, parameter.summary)
            };
            let index = rows.iter().position(is_same).unwrap_or_else(|| {
                let last = rows.iter().rposition(|row| row.parameter.name == parameter.name);
                let index = last.map_or(rows.len(), |last| last + 1);
                rows.insert(index, Row::new(parameter));
                index
            });
            rows[index].add(parameter.values, &schemes);
        }
    }
    rows.iter().map(Row::text).collect()
}

fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn documented_parameter_tables_match_the_descriptors() {
    for file in ["docs/guides/urls.md", "crates/polyrpc/src/client/mod.rs"] {
        let text = text(file);
        let lines = text.lines().map(|line| line.trim_start().trim_start_matches("/// "));
        let head = "| parameter | values | default | URLs of | selects |";
        let table: Vec<_> =
            lines.skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|')).collect();
        assert_eq!(table, rows(), "{file}");
    }
}

/// Cells of the guide's table with this head.
fn cells(head: &str) -> Vec<(String, String)> {
    let text = text("docs/guides/urls.md");
    let rows = text.lines().skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<_> = rows
        .map(|row| {
            let row = row.replace("\\|", "\u{1}");
            let mut cells = row.split('|').skip(1).map(|cell| cell.trim().replace('\u{1}', "|"));
            (cells.next().unwrap().trim_matches('`').to_owned(), cells.next().unwrap())
        })
        .collect();
    assert!(rows.len() > 4, "{head}");
    rows
}

#[tokio::test]
async fn urls_of_the_guide_are_accepted_and_its_errors_match() {
    for (url, _) in cells("| URL | calls |") {
        if let Err(error) = Client::new(&url) {
            // The URL needs another build: registries are in another crate, TLS and KCP are features.
            assert_eq!(error.code(), Code::Unimplemented, "{url}: {error}");
        }
    }
    for (url, why) in cells("| URL | error |") {
        let error = Client::new(&url).expect_err(&url);
        assert!(error.message().ends_with(&why), "{url}: {error}");
    }
}
