//! "Did you mean": the known name that is nearest to an unknown one.

/// Returns the name that a user most likely meant, if one is near enough: at most a third of its letters differ.
/// Case is ignored.
pub fn closest<'n>(wanted: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = wanted.to_lowercase();
    let most = (wanted.chars().count() / 3).max(1);
    let distances = known.into_iter().filter_map(|name| {
        // Long names are of no use here, and would take long to compare.
        let near = name.len() <= MAX_COMPARED_LEN && wanted.len() <= MAX_COMPARED_LEN;
        let distance = if near { distance(&wanted, &name.to_lowercase()) } else { usize::MAX };
        (distance <= most).then_some((distance, name))
    });
    distances.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Returns the hint for an unknown name: the nearest one, or else all of them after `all`.
pub fn hint(wanted: &str, known: &[&str], all: &str) -> String {
    match closest(wanted, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => list(known, all),
    }
}

/// Returns `all` followed by the names, unless there are too many to read.
pub fn list(known: &[&str], all: &str) -> String {
    match known.get(..MAX_SHOWN_NAMES) {
        _ if known.is_empty() => format!("{all} none"),
        Some(first) if known.len() > MAX_SHOWN_NAMES => {
            format!("{all} {}, and {} more", first.join(", "), known.len() - MAX_SHOWN_NAMES)
        }
        _ => format!("{all} {}", known.join(", ")),
    }
}

/// Number of letters to insert, remove, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Length in bytes of the names that are compared.
const MAX_COMPARED_LEN: usize = 200;

/// Maximum number of names in a hint.
const MAX_SHOWN_NAMES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typo_is_corrected_and_another_word_is_not() {
        let names = ["message", "opcode", "request_id"];
        for (wanted, meant) in [
            ("mesage", Some("message")),
            ("MESSAGE", Some("message")),
            ("opcdoe", Some("opcode")),
            ("requestId", Some("request_id")),
            ("text", None),
            ("", None),
        ] {
            assert_eq!(closest(wanted, names), meant, "{wanted}");
        }
        assert_eq!(hint("nope", &[], "it has"), "it has none");
        assert_eq!(hint("nope", &names, "it has"), "it has message, opcode, request_id");
    }

    #[test]
    fn swapped_neighbours_count_as_one_edit() {
        for (a, b, steps) in [("ab", "ba", 1), ("abc", "abc", 0), ("", "abc", 3), ("kitten", "sitting", 3)] {
            assert_eq!(distance(a, b), steps, "{a} {b}");
        }
    }
}
