use std::collections::BTreeMap;

use super::profile::Profile;

/// A flame graph: rectangles above each other, as wide as they have samples.
#[derive(Debug)]
pub(crate) struct Flame {
    pub(crate) rects: Vec<Rect>,
    pub(crate) samples: u64,
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
    pub(crate) samples: u64,
    /// The share that it had in another profile, if the graph is a comparison.
    pub(crate) before: Option<f64>,
}

/// Narrower rectangles are left out.
const NARROWEST: f64 = 0.0008;

/// Maximum number of rectangles.
const MOST: usize = 4_000;

/// What is called by the same functions, with the samples of both profiles.
#[derive(Debug, Default)]
struct Node<'p> {
    samples: u64,
    before: u64,
    called: BTreeMap<&'p str, Self>,
}

/// Draws a profile: all of it, or what functions with this name call. Compared with another, if there is one.
pub(crate) fn flame(profile: &Profile, base: Option<&Profile>, focus: Option<&str>) -> Flame {
    let mut root = Node::default();
    add(&mut root, profile, focus, |node, count| node.samples += count);
    if let Some(base) = base {
        add(&mut root, base, focus, |node, count| node.before += count);
    }
    let totals = (root.samples, base.map(|_| root.before));
    let mut flame = Flame { rects: Vec::new(), samples: root.samples, depth: 0 };
    if root.samples > 0 {
        draw(&mut flame, "all", &root, 0, 0.0, totals);
    }
    flame
}

fn add<'p>(
    root: &mut Node<'p>,
    profile: &'p Profile,
    focus: Option<&str>,
    count: impl Fn(&mut Node<'p>, u64),
) {
    for stack in &profile.stacks {
        let names = stack.frames.iter().filter_map(|frame| profile.functions.get(frame.function));
        let mut names = names.map(|function| function.name.as_str()).peekable();
        if let Some(focus) = focus {
            while names.next_if(|name| *name != focus).is_some() {}
            if names.peek().is_none() {
                continue;
            }
        }
        count(root, stack.count);
        let mut node = &mut *root;
        for name in names {
            node = node.called.entry(name).or_default();
            count(node, stack.count);
        }
    }
}

/// Adds the rectangle of a node, and those of what it calls.
fn draw(flame: &mut Flame, name: &str, node: &Node<'_>, row: usize, start: f64, totals: (u64, Option<u64>)) {
    let (samples, before) = totals;
    let width = node.samples as f64 / samples as f64;
    if width < NARROWEST || flame.rects.len() >= MOST {
        return;
    }
    let share = |total: u64| if total > 0 { node.before as f64 / total as f64 } else { 0.0 };
    flame.depth = flame.depth.max(row + 1);
    flame.rects.push(Rect {
        name: name.to_owned(),
        row,
        start,
        width,
        samples: node.samples,
        before: before.map(share),
    });
    let mut start = start;
    for (name, called) in &node.called {
        draw(flame, name, called, row + 1, start, totals);
        start += called.samples as f64 / samples as f64;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::profile::{Frame, Function, Stack};
    use super::super::summary::{folded, functions};
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
            Stack { thread: "main".into(), frames: frames.collect(), count: *count }
        });
        Profile {
            id: 1,
            began: SystemTime::UNIX_EPOCH,
            took: Duration::from_secs(2),
            frequency: 99,
            missed: 0,
            stacks: stacks.collect(),
            functions,
            methods: BTreeMap::new(),
            looks: 0,
        }
    }

    fn shown(flame: &Flame) -> Vec<String> {
        let rect = |rect: &Rect| format!("{}@{} {:.2}+{:.2}", rect.name, rect.row, rect.start, rect.width);
        flame.rects.iter().map(rect).collect()
    }

    #[test]
    fn rectangles_are_as_wide_as_their_samples() {
        let profile = profile(&[("a;b", 1), ("a;c", 2), ("a", 1)]);
        let flame = flame(&profile, None, None);
        assert_eq!(shown(&flame), ["all@0 0.00+1.00", "a@1 0.00+1.00", "b@2 0.00+0.25", "c@2 0.25+0.50"]);
        assert_eq!((flame.samples, flame.depth), (4, 3));
        let focused = super::flame(&profile, None, Some("c"));
        assert_eq!(shown(&focused), ["all@0 0.00+1.00", "c@1 0.00+1.00"]);
        assert_eq!(super::flame(&profile, None, Some("x")).rects, []);
    }

    #[test]
    fn comparison_is_of_shares() {
        let (now, then) = (profile(&[("a;b", 3), ("a;c", 1)]), profile(&[("a;b", 10), ("a;c", 10)]));
        let flame = flame(&now, Some(&then), None);
        let of = |name: &str| flame.rects.iter().find(|rect| rect.name == name).unwrap();
        assert_eq!((of("b").width, of("b").before), (0.75, Some(0.5)));
        assert_eq!((of("c").width, of("c").before), (0.25, Some(0.5)));
    }

    #[test]
    fn functions_have_their_own_samples_and_those_of_what_they_call() {
        let profile = profile(&[("a;b", 1), ("a;c;a", 2)]);
        let shares: Vec<_> =
            functions(&profile).into_iter().map(|share| (share.name, share.own, share.total)).collect();
        assert_eq!(shares, [("a".to_owned(), 2, 3), ("b".to_owned(), 1, 1), ("c".to_owned(), 0, 2)]);
        assert_eq!(folded(&profile), "main;a;b 1\nmain;a;c;a 2\n");
    }
}
