use std::collections::BTreeMap;

use super::profile::Profile;

/// A flame graph: stacked rectangles, whose width is their weight.
#[derive(Debug)]
pub(crate) struct Flame {
    pub(crate) rects: Vec<Rect>,
    pub(crate) weight: u64,
    /// How many rows there are.
    pub(crate) depth: usize,
}

/// A function within its callers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rect {
    pub(crate) name: String,
    pub(crate) row: usize,
    /// Where it begins, and how wide it is, of 1.
    pub(crate) start: f64,
    pub(crate) width: f64,
    pub(crate) weight: u64,
    /// The share that it had in another profile, if the graph is a comparison: of the weight of that profile, or, if
    /// weights are compared, of the weight of this one, and then maybe more than 1.
    pub(crate) before: Option<f64>,
}

/// Narrower rectangles are omitted.
const MIN_WIDTH: f64 = 0.0008;

/// Maximum number of rectangles.
const MAX_RECTANGLES: usize = 4_000;

/// A node of the call tree, with its weights in both profiles.
#[derive(Debug, Default)]
struct Node<'p> {
    weight: u64,
    before: u64,
    called: BTreeMap<&'p str, Self>,
}

/// The part of a profile to draw.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scope<'s> {
    /// Only callees of functions with this name.
    pub(crate) focus: Option<&'s str>,
    /// Only the handlers of the method with this name, without their callers.
    pub(crate) method: Option<&'s str>,
    /// Whether the stacks of each method begin with its name, and continue with its handler.
    pub(crate) by_method: bool,
}

/// The row of stacks that are within no handler, behind those of methods.
const NO_METHOD: &str = "(no method)";

/// Draws a profile, or a part of it. Compared with another, if there is one.
pub(crate) fn flame(profile: &Profile, base: Option<&Profile>, scope: Scope<'_>) -> Flame {
    let mut root = Node::default();
    add(&mut root, profile, scope, |node, weight| node.weight += weight);
    if let Some(base) = base {
        add(&mut root, base, scope, |node, weight| node.before += weight);
    }
    let base_weight = if profile.kind.compares_weights() { root.weight } else { root.before };
    let totals = (root.weight, base.map(|_| base_weight));
    let mut flame = Flame { rects: Vec::new(), weight: root.weight, depth: 0 };
    if root.weight > 0 {
        draw(&mut flame, "all", &root, 0, 0.0, totals);
    }
    flame
}

fn add<'p>(root: &mut Node<'p>, profile: &'p Profile, scope: Scope<'_>, weigh: impl Fn(&mut Node<'p>, u64)) {
    let is_wanted = |method: Option<&str>| scope.method.is_none() || scope.method == method;
    for stack in profile.stacks.iter().filter(|stack| is_wanted(stack.method.as_deref())) {
        let is_within = scope.by_method || scope.method.is_some();
        let frames = if is_within { stack.within_method() } else { &stack.frames };
        let names = frames.iter().filter_map(|frame| profile.functions.get(frame.function));
        let mut names = names.map(|function| function.name.as_str()).peekable();
        if let Some(focus) = scope.focus {
            while names.next_if(|name| *name != focus).is_some() {}
            if names.peek().is_none() {
                continue;
            }
        }
        weigh(root, stack.weight);
        let mut node = &mut *root;
        let method = scope.by_method.then(|| stack.method.as_deref().unwrap_or(NO_METHOD));
        for name in method.into_iter().chain(names) {
            node = node.called.entry(name).or_default();
            weigh(node, stack.weight);
        }
    }
}

/// Adds the rectangle of a node, and those of what it calls.
fn draw(flame: &mut Flame, name: &str, node: &Node<'_>, row: usize, start: f64, totals: (u64, Option<u64>)) {
    let (weight, before) = totals;
    let width = node.weight as f64 / weight as f64;
    if width < MIN_WIDTH || flame.rects.len() >= MAX_RECTANGLES {
        return;
    }
    let share = |total: u64| if total > 0 { node.before as f64 / total as f64 } else { 0.0 };
    flame.depth = flame.depth.max(row + 1);
    flame.rects.push(Rect {
        name: name.to_owned(),
        row,
        start,
        width,
        weight: node.weight,
        before: before.map(share),
    });
    let mut start = start;
    let named = node.called.iter().filter(|(name, _)| **name != NO_METHOD);
    for (name, called) in named.chain(node.called.get_key_value(NO_METHOD)) {
        draw(flame, name, called, row + 1, start, totals);
        start += called.weight as f64 / weight as f64;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::kind::ProfileKind;
    use super::super::profile::{Frame, Function, Stack};
    use super::super::summary::{format_folded, functions};
    use super::*;

    /// Returns a profile of stacks `a;b 3`.
    pub(in crate::profiler) fn profile(stacks: &[(&str, u64)]) -> Profile {
        let mut functions = Vec::<Function>::new();
        let stacks = stacks.iter().map(|(names, count)| {
            let frames = names.split(';').map(|name| {
                let known = functions.iter().position(|function| function.name == name);
                let function = known.unwrap_or_else(|| {
                    functions.push(Function { name: name.to_owned(), file: format!("{name}.rs") });
                    functions.len() - 1
                });
                Frame { function, line: 7 }
            });
            let frames = frames.collect();
            Stack { thread: "main".into(), method: None, frames, handler: 0, count: *count, weight: *count }
        });
        Profile {
            id: 1,
            kind: ProfileKind::Cpu,
            began: SystemTime::UNIX_EPOCH,
            took: Duration::from_secs(2),
            frequency: 99,
            missed: 0,
            stacks: stacks.collect(),
            functions,
            methods: BTreeMap::new(),
            sampling_rounds: 0,
        }
    }

    fn format_rects(flame: &Flame) -> Vec<String> {
        let rect = |rect: &Rect| format!("{}@{} {:.2}+{:.2}", rect.name, rect.row, rect.start, rect.width);
        flame.rects.iter().map(rect).collect()
    }

    #[test]
    fn rectangles_are_as_wide_as_their_samples() {
        let profile = profile(&[("a;b", 1), ("a;c", 2), ("a", 1)]);
        let flame = flame(&profile, None, Scope::default());
        let want = ["all@0 0.00+1.00", "a@1 0.00+1.00", "b@2 0.00+0.25", "c@2 0.25+0.50"];
        assert_eq!(format_rects(&flame), want);
        assert_eq!((flame.weight, flame.depth), (4, 3));
        let focused = super::flame(&profile, None, Scope { focus: Some("c"), ..Scope::default() });
        assert_eq!(format_rects(&focused), ["all@0 0.00+1.00", "c@1 0.00+1.00"]);
        let nothing = Scope { focus: Some("x"), ..Scope::default() };
        assert_eq!(super::flame(&profile, None, nothing).rects, []);
    }

    #[test]
    fn stacks_are_grouped_and_chosen_by_method() {
        let mut profile = profile(&[("a;b", 1), ("a;c", 2), ("a", 1)]);
        (profile.stacks[1].method, profile.stacks[1].handler) = (Some("Shop/Grind".into()), 1);
        let grouped = flame(&profile, None, Scope { by_method: true, ..Scope::default() });
        let want = [
            "all@0 0.00+1.00",
            "Shop/Grind@1 0.00+0.50",
            "c@2 0.00+0.50",
            "(no method)@1 0.50+0.50",
            "a@2 0.50+0.50",
            "b@3 0.50+0.25",
        ];
        assert_eq!(format_rects(&grouped), want);
        let chosen = flame(&profile, None, Scope { method: Some("Shop/Grind"), ..Scope::default() });
        assert_eq!(format_rects(&chosen), ["all@0 0.00+1.00", "c@1 0.00+1.00"]);
        let whole = flame(&profile, None, Scope::default());
        assert_eq!(format_rects(&whole)[1], "a@1 0.00+1.00");
        assert_eq!(format_folded(&profile, true), "main;Shop/Grind;c 2\nmain;a 1\nmain;a;b 1\n");
        assert_eq!(profile.weight_by_method(), BTreeMap::from([("Shop/Grind", 2)]));
    }

    #[test]
    fn comparison_is_of_shares() {
        let (now, then) = (profile(&[("a;b", 3), ("a;c", 1)]), profile(&[("a;b", 10), ("a;c", 10)]));
        let flame = flame(&now, Some(&then), Scope::default());
        let rect = |name: &str| flame.rects.iter().find(|rect| rect.name == name).unwrap();
        assert_eq!((rect("b").width, rect("b").before), (0.75, Some(0.5)));
        assert_eq!((rect("c").width, rect("c").before), (0.25, Some(0.5)));
    }

    #[test]
    fn comparison_of_the_heap_is_of_bytes() {
        let [mut now, mut then] = [profile(&[("a;b", 1_000)]), profile(&[("a;b", 100)])];
        (now.kind, then.kind) = (ProfileKind::Heap, ProfileKind::Heap);
        let before = |now: &Profile, then: &Profile| {
            flame(now, Some(then), Scope::default()).rects.iter().map(|rect| rect.before).collect::<Vec<_>>()
        };
        assert_eq!(before(&now, &then), [Some(0.1); 3]);
        assert_eq!(before(&then, &now), [Some(10.0); 3]);
    }

    #[test]
    fn functions_have_their_own_samples_and_those_of_what_they_call() {
        let profile = profile(&[("a;b", 1), ("a;c;a", 2)]);
        let shares: Vec<_> =
            functions(&profile).into_iter().map(|share| (share.name, share.own, share.total)).collect();
        assert_eq!(shares, [("a".to_owned(), 2, 3), ("b".to_owned(), 1, 1), ("c".to_owned(), 0, 2)]);
        assert_eq!(format_folded(&profile, false), "main;a;b 1\nmain;a;c;a 2\n");
    }
}
