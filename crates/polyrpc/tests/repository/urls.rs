//! Compares the documented tables of URL parameters with the descriptors, and checks the URLs of the guide.

use std::fs;
use std::path::Path;

use polyrpc::client::url_parameters;
use polyrpc::{Client, Code, Protocol};
use polyrpc_core::protocol::Parameter;

/// Rows of the table, in the order of the protocols.
fn rows() -> Vec<String> {
    let mut known: Vec<(Parameter, Vec<&str>)> = Vec::new();
    for protocol in Protocol::ALL {
        let descriptor = protocol.descriptor();
        for parameter in url_parameters(descriptor) {
            let schemes = descriptor.schemes.iter().map(|scheme| scheme.name);
            let schemes: Vec<_> = schemes.filter(|scheme| parameter.belongs_to(scheme)).collect();
            match known.iter_mut().find(|(other, _)| *other == parameter) {
                Some((_, all)) => all.extend(schemes),
                None => known.push((parameter, schemes)),
            }
        }
    }
    let code = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let row = |(parameter, schemes): &(Parameter, Vec<&str>)| {
        let Parameter { name, values, summary, .. } = parameter;
        let (values, default) = match values.first() {
            Some(default) => (code(values), format!("`{default}`")),
            None => ("text".to_owned(), "none".to_owned()),
        };
        format!("| `{name}` | {values} | {default} | {} | {summary} |", code(schemes))
    };
    known.iter().map(row).collect()
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
