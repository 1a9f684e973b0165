//! Comments of a `.proto` as doc comments.

/// Converts a comment to the lines of a doc comment, escaped so that rustdoc finds no test, no link and no tag in it.
pub(crate) fn lines(comment: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut block = Block::Prose;
    let mut after_blank = true;
    for line in comment.trim_end().lines().skip_while(|line| line.trim().is_empty()) {
        // Removes the blank between `//` and the text.
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        let fence = FENCES.into_iter().find(|fence| line.trim_start().starts_with(fence));
        let code = strip_code_indent(line);
        if block == Block::Indented && code.is_none() && !line.is_empty() {
            lines.push(CLOSE.to_owned());
            block = Block::Prose;
        }
        match (block, fence, code) {
            (Block::Prose, Some(fence), _) => {
                lines.push(OPEN.to_owned());
                block = Block::Fenced(fence);
            }
            (Block::Prose, None, Some(code)) if after_blank => {
                lines.extend([OPEN.to_owned(), pad(code)]);
                block = Block::Indented;
            }
            (Block::Prose, None, _) => lines.push(pad(&escape(line))),
            (Block::Fenced(open), _, _) if fence == Some(open) => {
                lines.push(CLOSE.to_owned());
                block = Block::Prose;
            }
            (Block::Fenced(_), _, _) => lines.push(pad(line)),
            (Block::Indented, _, _) => lines.push(pad(code.unwrap_or_default())),
        }
        after_blank = line.is_empty();
    }
    if block != Block::Prose {
        lines.push(CLOSE.to_owned());
    }
    lines
}

/// Block that a line belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Prose,
    /// Code between two fences of this kind.
    Fenced(&'static str),
    /// Indented code.
    Indented,
}

const FENCES: [&str; 2] = ["```", "~~~"];
/// rustdoc treats code that is not marked as text as a test.
const OPEN: &str = " ```text";
const CLOSE: &str = " ```";

/// Removes the indentation of code: in Markdown four columns, of which a tab fills those up to the next multiple of four.
fn strip_code_indent(line: &str) -> Option<&str> {
    let mut column = 0;
    for (at, c) in line.char_indices() {
        column = match c {
            ' ' => column + 1,
            '\t' => column + 4 - column % 4,
            _ => return None,
        };
        if column >= 4 {
            return line.get(at + 1..);
        }
    }
    None
}

/// Adds the blank between `///` and the text.
fn pad(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!(" {line}") }
}

/// Escapes links to items and tags; code and web links stay unchanged.
fn escape(line: &str) -> String {
    let brackets = !line.contains("](");
    let tags = !line.contains("<http");
    let mut escaped = String::new();
    let mut in_code = false;
    for c in line.chars() {
        in_code ^= c == '`';
        if !in_code && (brackets && matches!(c, '[' | ']') || tags && c == '<') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_keeps_its_lines_and_escapes_links_and_tags() {
        let comment = " Echoes [it] to <you>.\n\n See `[x]` and [here](https://example.org).\n";
        let want = [r" Echoes \[it\] to \<you>.", "", " See `[x]` and [here](https://example.org)."];
        assert_eq!(lines(comment), want);
    }

    #[test]
    fn code_blocks_become_text_blocks() {
        let comment = " One:\n\n     a\n\n     b\n Two:\n ```rust\n c [d]\n ```\n end";
        let want = [" One:", "", OPEN, " a", "", " b", CLOSE, " Two:", OPEN, " c [d]", CLOSE, " end"];
        assert_eq!(lines(comment), want);
    }

    #[test]
    fn code_that_is_indented_with_tabs_becomes_a_text_block() {
        let comment = " One:\n\n\ta[0]\n\t\tb\n  \tc\n Two:\n\td";
        let want = [" One:", "", OPEN, " a[0]", " \tb", " c", CLOSE, " Two:", " \td"];
        assert_eq!(lines(comment), want);
    }

    #[test]
    fn unclosed_code_block_is_closed() {
        assert_eq!(lines(" ~~~\n a\n ```\n"), [OPEN, " a", " ```", CLOSE]);
        assert_eq!(lines("     a"), [OPEN, " a", CLOSE]);
    }

    #[test]
    fn empty_comment_yields_no_lines() {
        assert!(lines("").is_empty());
        assert!(lines("\n \n").is_empty());
    }
}
