use std::collections::HashMap;

/// Returns a name for each target, in their order. A target's name does not depend on the others, unless two would have
/// the same name.
///
/// Clients accept different characters and lengths; all accept up to 64 letters, digits, `_` and `-`.
pub(super) fn from_targets(targets: &[String]) -> Vec<String> {
    let plain: Vec<_> = targets.iter().map(|target| from_target(target)).collect();
    let mut owners: HashMap<&str, &str> = HashMap::new();
    let mut shared = Vec::new();
    for (name, target) in plain.iter().zip(targets) {
        if owners.insert(name, target).is_some_and(|other| other != target) {
            shared.push(name.clone());
        }
    }
    let unique = |(name, target): (&String, &String)| match shared.contains(name) {
        true => with_hash(name, target),
        false => name.clone(),
    };
    plain.iter().zip(targets).map(unique).collect()
}

fn from_target(target: &str) -> String {
    let name: String = target.chars().map(|letter| if is_allowed(letter) { letter } else { '_' }).collect();
    if name.is_empty() {
        return with_hash("method", target);
    }
    if name.len() > MAX_NAME_LEN { with_hash(&name, target) } else { name }
}

fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

/// The end of a name, which is more specific than its beginning, and a hash of the target.
fn with_hash(name: &str, target: &str) -> String {
    let from = name.len().saturating_sub(MAX_NAME_LEN - HASH - 1);
    format!("{}_{:08x}", name.get(from..).unwrap_or_default(), fnv(target))
}

/// FNV-1a, which is the same in every process.
fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

const MAX_NAME_LEN: usize = 64;

/// Digits of a hash.
const HASH: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(targets: &[&str]) -> Vec<String> {
        from_targets(&targets.iter().map(|target| (*target).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_valid_and_unique() {
        assert_eq!(names(&["example.EchoService/Echo", "add"]), ["example_EchoService_Echo", "add"]);
        let long = format!("a.very.long.package.{}/Method", "x".repeat(60));
        for targets in [&["a.b/C", "a_b/C", "a/b_C"][..], &[&long], &["größe", "gr__e"], &["", "/"]] {
            let names = names(targets);
            for (n, name) in names.iter().enumerate() {
                assert!((1..=64).contains(&name.len()) && name.chars().all(is_allowed), "{name}");
                assert!(!names[..n].contains(name), "{names:?}");
            }
        }
        assert!(names(&[&long])[0].contains("_Method_"), "the end remains");
    }

    #[test]
    fn name_does_not_depend_on_other_methods_unless_they_collide() {
        assert_eq!(names(&["a.S/M"]), names(&["a.S/M", "b.S/M"])[..1]);
        assert_ne!(names(&["a.S/M"])[0], names(&["a.S/M", "a_S/M"])[0]);
    }
}
