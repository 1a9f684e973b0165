use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use super::profile::{Profile, Stack};
use crate::clean::write_clean;

/// How much of a profile a function has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FunctionShare {
    pub(crate) name: String,
    pub(crate) file: String,
    /// Samples within the function itself, and within it and what it calls.
    pub(crate) own: u64,
    pub(crate) total: u64,
}

/// Returns the functions of a profile, those with most samples of their own first.
pub(crate) fn functions(profile: &Profile) -> Vec<FunctionShare> {
    let mut shares: HashMap<usize, (u64, u64)> = HashMap::new();
    for Stack { frames, count, .. } in &profile.stacks {
        let within: HashSet<usize> = frames.iter().map(|frame| frame.function).collect();
        for function in within {
            shares.entry(function).or_default().1 += count;
        }
        if let Some(innermost) = frames.last() {
            shares.entry(innermost.function).or_default().0 += count;
        }
    }
    let share = |(function, (own, total)): (usize, (u64, u64))| {
        let function = profile.functions.get(function)?;
        Some(FunctionShare { name: function.name.clone(), file: function.file.clone(), own, total })
    };
    let mut shares: Vec<_> = shares.into_iter().filter_map(share).collect();
    shares.sort_by(|one, other| (other.own, other.total, &one.name).cmp(&(one.own, one.total, &other.name)));
    shares
}

/// Returns the stacks as lines `thread;outermost;…;innermost count`, as tools for flame graphs read them.
pub(crate) fn folded(profile: &Profile) -> String {
    let mut lines = BTreeMap::<String, u64>::new();
    for stack in &profile.stacks {
        let mut line = stack.thread.clone();
        for frame in &stack.frames {
            let name = profile.functions.get(frame.function).map_or("", |function| &function.name);
            line.push(';');
            line.push_str(&name.replace(';', ":"));
        }
        *lines.entry(line).or_default() += stack.count;
    }
    let mut text = String::new();
    for (line, count) in lines {
        // Writing to a string does not fail.
        let _ = write_clean(&mut text, line);
        let _ = writeln!(text, " {count}");
    }
    text
}
