/// Lines of the keys of a table that has one key a line.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyLines(Vec<(String, usize)>);

impl KeyLines {
    /// The keys of the table whose header is at a line, from 1; those before any header at line 0.
    pub(super) fn from_table(text: &str, header: usize) -> Self {
        let lines =
            text.lines().zip(1..).skip(header).take_while(|(line, _)| !line.trim_start().starts_with('['));
        let keys = lines.filter_map(|(line, number)| {
            let (key, _) = line.split_once('=')?;
            let key = key.trim().trim_matches(['"', '\'']);
            let is_key =
                |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
            // `tls.cert = "…"` is a part of `tls`.
            let first = key.split('.').next().unwrap_or(key);
            (is_key(key) && !first.is_empty()).then(|| (first.to_owned(), number))
        });
        Self(keys.collect())
    }

    pub(super) fn line(&self, key: &str) -> Option<usize> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, line)| *line)
    }
}

/// Where a table or one of its keys is: `limits`, `limits.memory`, `name`. The line of the table if the key has none, and 0
/// if the text has no such table.
pub(super) fn line_of_key(text: &str, path: &str) -> usize {
    let (table, key) = match path.split_once('.') {
        Some((table, key)) => (table, Some(key)),
        None => (path, None),
    };
    let header = format!("[{table}]");
    let header_index =
        text.lines().position(|line| line.split('#').next().unwrap_or_default().trim() == header);
    match (header_index, key) {
        (Some(header_index), Some(key)) => {
            KeyLines::from_table(text, header_index + 1).line(key).unwrap_or(header_index + 1)
        }
        (Some(header_index), None) => header_index + 1,
        // A key before all tables, or an inline table.
        (None, _) => KeyLines::from_table(text, 0).line(table).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::span::line_of;
    use super::*;

    #[test]
    fn lines_of_keys_are_those_of_their_table() {
        let text = "name = \"a\"\nadmin = { listen = \"x\" }\n[limits] # of all\n# memory = 1\n  memory = \"1GiB\"\n\
                    [[listen]]\naddress = \"b\"\ntls.cert = \"c\"\n[schema]\nproto = [\n  \"x=y\",\n]\nfbs = []\n";
        for (path, line) in [
            ("name", 1),
            ("admin.listen", 2),
            ("limits", 3),
            ("limits.memory", 5),
            ("limits.calls", 3),
            ("schema.proto", 10),
            ("schema.fbs", 13),
            ("record.file", 0),
        ] {
            assert_eq!(line_of_key(text, path), line, "{path}");
        }
        let listen = KeyLines::from_table(text, line_of(text, text.find("[[listen").unwrap()));
        assert_eq!(["address", "tls", "memory"].map(|key| listen.line(key)), [Some(7), Some(8), None]);
    }
}
