use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use polyrpc::layers::{Metrics, is_stack_label};

use super::kind::ProfileKind;
use super::samples::Samples;
use super::symbols::Symbol;
use crate::stalls;

/// Samples of the process, with the names of functions.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) id: u64,
    pub(crate) kind: ProfileKind,
    pub(crate) began: SystemTime,
    pub(crate) took: Duration,
    pub(crate) frequency: u32,
    /// Samples that were lost.
    pub(crate) missed: u64,
    pub(crate) functions: Vec<Function>,
    pub(crate) stacks: Vec<Stack>,
    /// The methods whose handlers were being polled at regular times, and how often.
    pub(crate) methods: BTreeMap<String, u64>,
    /// How often the threads were checked.
    pub(crate) sampling_rounds: u64,
}

/// A function that was sampled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) file: String,
}

/// A stack, and how often it was sampled.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) thread: String,
    /// The method whose handler was being run.
    pub(crate) method: Option<String>,
    /// The outermost first.
    pub(crate) frames: Vec<Frame>,
    /// Where the frames of the method's handler begin; zero without a method.
    pub(crate) handler: usize,
    pub(crate) count: u64,
    /// The weight in graphs: the number of samples, the nanoseconds of waits, or bytes.
    pub(crate) weight: u64,
}

impl Stack {
    /// Returns the frames of the method's handler; all if there is no method.
    pub(crate) fn within_method(&self) -> &[Frame] {
        self.frames.get(self.handler..).unwrap_or_default()
    }
}

/// A function in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    /// Its index among the functions of the profile.
    pub(crate) function: usize,
    pub(crate) line: u32,
}

impl Profile {
    /// Resolves the addresses of samples, and the labels of these metrics' methods between them.
    pub(super) fn new(
        id: u64,
        kind: ProfileKind,
        began: SystemTime,
        frequency: u32,
        samples: Samples,
        metrics: &[Metrics],
    ) -> Self {
        let Samples { stacks, missed, methods, sampling_rounds, took } = samples;
        let mut functions = Functions::default();
        let stacks = stacks.into_iter().map(|stack| {
            let mut symbols = stack.symbols(kind);
            symbols.reverse();
            let names = || symbols.iter().map(|symbol| symbol.name.as_str());
            let call = || metrics.iter().find_map(|metrics| metrics.call_of_stack(names()));
            let call = kind.has_methods().then(call).flatten();
            let is_label = |symbol: &Symbol| is_stack_label(&symbol.name);
            // All frames of the label precede the handler.
            let labels = symbols.iter().filter(|symbol| is_label(symbol)).count();
            let handler = symbols.iter().rposition(is_label).map_or(0, |last| last + 1 - labels);
            let symbols = symbols.into_iter().filter(|symbol| !is_label(symbol));
            Stack {
                thread: stack.thread,
                handler: call.as_ref().map_or(0, |_| handler),
                method: call.map(|call| stalls::name(&call)),
                frames: symbols.map(|symbol| functions.frame(symbol)).collect(),
                count: stack.count,
                weight: stack.weight,
            }
        });
        let stacks = stacks.collect();
        let functions = functions.all;
        Self { id, kind, began, took, frequency, missed, functions, stacks, methods, sampling_rounds }
    }

    /// Returns the number of samples or waits.
    pub(crate) fn count(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.count).sum()
    }

    /// Returns the weight of all stacks.
    pub(crate) fn weight(&self) -> u64 {
        self.stacks.iter().fold(0, |sum, stack| sum.saturating_add(stack.weight))
    }

    /// Returns the weight of the stacks of each method's handler.
    pub(crate) fn weight_by_method(&self) -> BTreeMap<&str, u64> {
        let mut weights = BTreeMap::new();
        for stack in &self.stacks {
            if let Some(method) = &stack.method {
                *weights.entry(method.as_str()).or_default() += stack.weight;
            }
        }
        weights
    }

    /// Returns its approximate size in bytes.
    pub(super) fn footprint(&self) -> usize {
        let of_function = |function: &Function| 64 + function.name.len() + function.file.len();
        let of_stack = |stack: &Stack| {
            let names = stack.thread.len() + stack.method.as_ref().map_or(0, String::len);
            size_of::<Stack>() + names + stack.frames.len() * size_of::<Frame>()
        };
        self.functions.iter().map(of_function).sum::<usize>()
            + self.stacks.iter().map(of_stack).sum::<usize>()
    }
}

#[derive(Default)]
struct Functions {
    all: Vec<Function>,
    indices: HashMap<Function, usize>,
}

impl Functions {
    fn frame(&mut self, symbol: Symbol) -> Frame {
        let Symbol { name, file, line } = symbol;
        let function = Function { name, file };
        let index = match self.indices.get(&function) {
            Some(index) => *index,
            None => {
                self.all.push(function.clone());
                self.indices.insert(function, self.all.len() - 1);
                self.all.len() - 1
            }
        };
        Frame { function: index, line }
    }
}
