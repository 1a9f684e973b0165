//! Paths of fields: `user.email`, `items.*.price`.

use std::fmt;
use std::str::FromStr;

/// Path of a field within a message: names joined by dots, as the message declares them. `*` stands for any one name or
/// key, `**` for any number of them. Elements of a list have the path of the list, unless a part is their position, as
/// in `items.0.price`; `items.*.price` matches as well.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Name(String),
    Any,
    AnyNumber,
}

/// One step from a message to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A field, or the key of a map.
    Name(&'a str),
    /// An element of a list.
    Index(usize),
    /// A field that a path may omit, since ProtoJSON does: those of `google.protobuf.Struct`, and the value of an
    /// `Any`.
    Optional(&'a str),
}

impl Step<'_> {
    fn can_be_omitted(&self) -> bool {
        matches!(self, Self::Index(_) | Self::Optional(_))
    }
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) | Self::Optional(name) => f.write_str(name),
            Self::Index(index) => index.fmt(f),
        }
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| match part {
            // Paths in another notation would match nothing.
            wrong if wrong.is_empty() || wrong == "$" || wrong.contains(['/', '[', ']']) => Err(format!(
                "`{text}` is not a path: write names joined by dots, as in user.email or items.0.price"
            )),
            "*" => Ok(Part::Any),
            "**" => Ok(Part::AnyNumber),
            name => Ok(Part::Name(name.to_owned())),
        };
        text.split('.').map(part).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(".")?;
            }
            f.write_str(match part {
                Part::Name(name) => name,
                Part::Any => "*",
                Part::AnyNumber => "**",
            })?;
        }
        Ok(())
    }
}

impl Path {
    /// Whether a part of it can be the position of an element.
    pub(crate) fn has_position(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Name(name) if name.parse::<usize>().is_ok()))
    }

    /// Whether these steps lead to a field of this path.
    pub fn matches(&self, steps: &[Step<'_>]) -> bool {
        matches(&self.0, steps, &mut { MAX_COMPARISONS })
    }

    /// Whether these steps may lead further, to a field of this path.
    pub(crate) fn reaches_below(&self, steps: &[Step<'_>]) -> bool {
        reaches_below(&self.0, steps, &mut { MAX_COMPARISONS })
    }
}

fn matches(parts: &[Part], steps: &[Step<'_>], budget: &mut u32) -> bool {
    let Some(left) = budget.checked_sub(1) else { return false };
    *budget = left;
    let Some((part, parts_left)) = parts.split_first() else {
        return steps.iter().all(Step::can_be_omitted);
    };
    if let Part::AnyNumber = part {
        return (0..=steps.len())
            .any(|skipped| matches(parts_left, steps.get(skipped..).unwrap_or_default(), budget));
    }
    let Some((step, steps_left)) = steps.split_first() else { return false };
    agrees(part, *step) && matches(parts_left, steps_left, budget)
        || step.can_be_omitted() && matches(parts, steps_left, budget)
}

fn reaches_below(parts: &[Part], steps: &[Step<'_>], budget: &mut u32) -> bool {
    // If the budget is used up, the rule may apply, and the value is removed.
    let Some(left) = budget.checked_sub(1) else { return true };
    *budget = left;
    let Some((part, parts_left)) = parts.split_first() else { return false };
    // It can stand for all that follows.
    if let Part::AnyNumber = part {
        return true;
    }
    let Some((step, steps_left)) = steps.split_first() else { return true };
    agrees(part, *step) && reaches_below(parts_left, steps_left, budget)
        || step.can_be_omitted() && reaches_below(parts, steps_left, budget)
}

fn agrees(part: &Part, step: Step<'_>) -> bool {
    match (part, step) {
        (Part::Any, _) => true,
        (Part::Name(name), Step::Name(step) | Step::Optional(step)) => is_same_name(name, step),
        (Part::Name(name), Step::Index(index)) => name.parse() == Ok(index),
        (Part::AnyNumber, _) => false,
    }
}

/// Several `**` would make the comparison slow.
const MAX_COMPARISONS: u32 = 10_000;

/// Whether two names are equal apart from spelling: `user_name` and `userName`, as in protobuf's JSON.
pub(crate) fn is_same_name(one: &str, other: &str) -> bool {
    let letters = |name: &str| {
        let kept = name.chars().filter(|c| *c != '_');
        kept.flat_map(char::to_lowercase).collect::<String>()
    };
    one == other || letters(one) == letters(other)
}

#[cfg(test)]
mod tests {
    use super::Step::{Index, Name, Optional};
    use super::*;

    #[test]
    fn path_matches_names_lists_and_any_names() {
        let is = |path: &str, steps: &[Step<'_>]| path.parse::<Path>().unwrap().matches(steps);
        assert!(is("user.email", &[Name("user"), Name("email")]));
        assert!(is("user_name", &[Name("userName")]));
        assert!(!is("user", &[Name("user"), Name("email")]));
        assert!(!is("user.email", &[Name("user")]));
        assert!(is("items.price", &[Name("items"), Index(3), Name("price")]));
        assert!(is("items.*.price", &[Name("items"), Index(3), Name("price")]));
        assert!(is("items.3.price", &[Name("items"), Index(3), Name("price")]));
        assert!(!is("items.2.price", &[Name("items"), Index(3), Name("price")]));
        assert!(is("tags", &[Name("tags"), Index(0)]));
        assert!(is("**.id", &[Name("id")]) && is("**.id", &[Name("a"), Index(0), Name("id")]));
        assert!(is("*", &[Name("a")]) && !is("*", &[Name("a"), Name("b")]));
        for wrong in ["a..b", "", "$.a", "$", "/a/b", "a[0]", "][", "a.b/c"] {
            assert!(wrong.parse::<Path>().is_err(), "{wrong}");
        }
        assert_eq!("a.*.**.b".parse::<Path>().unwrap().to_string(), "a.*.**.b");
    }

    #[test]
    fn optional_step_may_be_in_the_path_or_not() {
        let steps = [Name("meta"), Optional("fields"), Name("x"), Optional("string_value")];
        for (path, fits) in [
            ("meta.x", true),
            ("meta.fields.x", true),
            ("meta.x.string_value", true),
            ("**.x", true),
            ("meta.y", false),
            ("meta.values.x", false),
            ("meta.x.y", false),
        ] {
            assert_eq!(path.parse::<Path>().unwrap().matches(&steps), fits, "{path}");
        }
    }

    #[test]
    fn path_reaches_below_its_own_parents_only() {
        let steps = [Name("detail"), Index(1), Optional("value")];
        for (path, reaches) in [
            ("**.password", true),
            ("detail.password", true),
            ("detail.1.password", true),
            ("detail.value.password", true),
            ("*.a.b", true),
            ("detail", false),
            ("user.password", false),
            ("detail.2.value.password", true),
        ] {
            assert_eq!(path.parse::<Path>().unwrap().reaches_below(&steps), reaches, "{path}");
        }
    }

    #[test]
    fn path_of_many_stars_ends() {
        let path: Path = ["**"; 30].join(".").parse().unwrap();
        path.matches(&[Name("a"); 60]);
    }
}
