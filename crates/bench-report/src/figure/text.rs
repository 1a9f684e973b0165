//! Sizes of text, which SVG alone does not know.

/// Estimated width of a text of 11 units height in sans-serif. Rather too wide than too narrow.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(letter).sum()
}

fn letter(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | '(' | ')' | '[' | ']' => 3.8,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 9.8,
        'A'..='Z' => 7.9,
        ' '..='~' => 6.7,
        // Scripts whose letters are as wide as they are high.
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{ff00}'..='\u{ff60}' => 11.5,
        _ => 7.5,
    }
}

/// The beginning of a text that fits into `available` units, with an ellipsis if it is cut.
pub(super) fn fit(text: &str, available: f64) -> String {
    if width(text) <= available {
        return text.to_owned();
    }
    let mut used = letter('…');
    let mut cut: String = text
        .chars()
        .take_while(|c| {
            used += letter(*c);
            used <= available
        })
        .collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_to_its_width() {
        assert_eq!(fit("p99", 100.0), "p99");
        let cut = fit("grpc://a-very-long-host.example:50051/a.Service/Method", 100.0);
        assert!(cut.ends_with('…') && width(&cut) <= 100.0, "{cut}");
        let cut = fit("延迟延迟延迟延迟延迟延迟", 60.0);
        assert!(cut.chars().count() == 5 && width(&cut) <= 60.0, "{cut}");
    }
}
