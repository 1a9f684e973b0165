//! The table in the documentation.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use super::caller::CASES;

pub(crate) struct Table<const N: usize> {
    names: [&'static str; N],
    cells: Vec<(&'static str, usize, usize, String)>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(names: [&'static str; N]) -> Self {
        Self { names, cells: Vec::new() }
    }

    pub(crate) fn set(&mut self, case: &'static str, row: usize, column: usize, cell: String) {
        self.cells.push((case, row, column, cell));
    }

    /// Compares the table with a file, or writes the file.
    pub(crate) fn compare(&self, file: &Path) {
        self.expect_answers();
        let text = self.to_markdown();
        if env::var_os("UPDATE").is_some() {
            fs::write(file, &text).unwrap();
        }
        let known = fs::read_to_string(file).unwrap_or_default();
        assert_eq!(known, text, "{} differs; UPDATE=1 writes it", file.display());
    }

    /// Every call gets its result or a refusal in words, whatever the file says.
    fn expect_answers(&self) {
        let silent =
            |cell: &str| cell == "no answer" || cell.starts_with("wrong") || cell.ends_with("messages");
        let silent: Vec<_> = self.cells.iter().filter(|(.., cell)| silent(cell)).collect();
        assert!(silent.is_empty(), "{silent:?}");
    }

    fn to_markdown(&self) -> String {
        let mut out = String::from(INTRODUCTION);
        let mut notes: Vec<&str> = Vec::new();
        for case in CASES {
            let mut cases: Vec<_> = self.cells.iter().filter(|(name, ..)| *name == case).collect();
            cases.sort_by_key(|(_, row, column, _)| (*row, *column));
            // Writing to a string cannot fail.
            let _ = write!(out, "\n## {}\n\n| caller \\ server |", capital(case));
            self.names.iter().for_each(|name| out.push_str(&format!(" {name} |")));
            out.push_str("\n|---|");
            out.push_str(&"---|".repeat(N));
            for (row, name) in self.names.iter().enumerate() {
                let _ = write!(out, "\n| {name} |");
                for (.., cell) in cases.iter().filter(|(_, of, ..)| *of == row) {
                    let shown = match cell.contains(": ") {
                        true => format!("[{}]", number_of(&mut notes, cell)),
                        false => cell.clone(),
                    };
                    let _ = write!(out, " {shown} |");
                }
            }
            out.push('\n');
        }
        out.push_str("\n## Refusals\n\n");
        for (n, note) in notes.iter().enumerate() {
            let _ = writeln!(out, "{}. `{note}`", n + 1);
        }
        out
    }
}

fn number_of<'n>(notes: &mut Vec<&'n str>, note: &'n str) -> usize {
    match notes.iter().position(|known| *known == note) {
        Some(index) => index + 1,
        None => {
            notes.push(note);
            notes.len()
        }
    }
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

const INTRODUCTION: &str = "\
# What the gateway forwards

Results of calls through `polyrpc gateway` between every two families of protocols, with a `.proto`, a `.fbs` and the functions' types
of the same method. `crates/gateway/tests/matrix` writes and checks this page. A number refers to a refusal at the end of the page; a
dash means that the caller's protocol does not have the feature.
";
