use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use super::profile::{Profile, Stack};
use crate::clean::write_clean;

/// A function's share of a profile.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FunctionShare {
    pub(crate) name: String,
    pub(crate) file: String,
    /// Weight of the function itself, and with its callees.
    pub(crate) own: u64,
    pub(crate) total: u64,
}

/// Returns the functions of a profile by their own weight, the heaviest first.
pub(crate) fn functions(profile: &Profile) -> Vec<FunctionShare> {
    let mut shares: HashMap<usize, (u64, u64)> = HashMap::new();
    for Stack { frames, weight, .. } in &profile.stacks {
        let within: HashSet<usize> = frames.iter().map(|frame| frame.function).collect();
        for function in within {
            shares.entry(function).or_default().1 += weight;
        }
        if let Some(innermost) = frames.last() {
            shares.entry(innermost.function).or_default().0 += weight;
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

/// Returns the stacks as lines `thread;outermost;…;innermost weight`, as tools for flame graphs read them, without
/// the thread if it is unknown. With `by_method`, the method's name is followed by its handler.
pub(crate) fn format_folded(profile: &Profile, by_method: bool) -> String {
    let mut lines = BTreeMap::<String, u64>::new();
    for stack in &profile.stacks {
        let thread = Some(stack.thread.as_str()).filter(|thread| !thread.is_empty());
        let method = stack.method.as_deref().filter(|_| by_method);
        let frames = if by_method { stack.within_method() } else { &stack.frames };
        let functions = frames.iter().map(|frame| profile.functions.get(frame.function));
        let functions = functions.map(|function| function.map_or("", |function| &function.name));
        let names = thread.into_iter().chain(method).chain(functions);
        let line: Vec<_> = names.map(|name| name.replace(';', ":")).collect();
        *lines.entry(line.join(";")).or_default() += stack.weight;
    }
    let mut text = String::new();
    for (line, weight) in lines {
        // Writing to a string does not fail.
        let _ = write_clean(&mut text, line);
        let _ = writeln!(text, " {weight}");
    }
    text
}
