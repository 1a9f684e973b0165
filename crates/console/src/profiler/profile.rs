use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use super::sampler::Samples;
use super::symbols::{self, Symbol};

/// Samples of the process, with the names of functions.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) id: u64,
    pub(crate) began: SystemTime,
    pub(crate) took: Duration,
    pub(crate) frequency: u32,
    /// Samples that were lost.
    pub(crate) missed: u64,
    pub(crate) functions: Vec<Function>,
    pub(crate) stacks: Vec<Stack>,
    /// The methods whose handlers were being polled at regular times, and how often.
    pub(crate) methods: BTreeMap<String, u64>,
    /// How often threads were looked at.
    pub(crate) looks: u64,
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
    /// The outermost first.
    pub(crate) frames: Vec<Frame>,
    pub(crate) count: u64,
}

/// A function in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    /// Its place among the functions of the profile.
    pub(crate) function: usize,
    pub(crate) line: u32,
}

impl Profile {
    /// Resolves the addresses of samples.
    pub(super) fn of(id: u64, began: SystemTime, frequency: u32, samples: Samples) -> Self {
        let Samples { stacks, missed, methods, looks, took } = samples;
        let mut functions = Functions::default();
        let stacks = stacks.into_iter().map(|stack| {
            let innermost = stack.addresses.iter().enumerate();
            // All but the innermost are addresses to return to: one past the call.
            let symbols = innermost
                .flat_map(|(at, address)| symbols::at(address - usize::from(at > 0 && *address > 0)));
            let mut frames: Vec<_> = symbols.map(|symbol| functions.frame(symbol)).collect();
            frames.reverse();
            Stack { thread: stack.thread, frames, count: stack.count }
        });
        let stacks = stacks.collect();
        let functions = functions.all;
        Self { id, began, took, frequency, missed, functions, stacks, methods, looks }
    }

    /// Returns the number of samples.
    pub(crate) fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.count).sum()
    }

    /// Returns about how many bytes it takes.
    pub(super) fn footprint(&self) -> usize {
        let of_function = |function: &Function| 64 + function.name.len() + function.file.len();
        let of_stack = |stack: &Stack| 64 + stack.thread.len() + stack.frames.len() * size_of::<Frame>();
        self.functions.iter().map(of_function).sum::<usize>()
            + self.stacks.iter().map(of_stack).sum::<usize>()
    }
}

#[derive(Default)]
struct Functions {
    all: Vec<Function>,
    places: HashMap<Function, usize>,
}

impl Functions {
    fn frame(&mut self, symbol: Symbol) -> Frame {
        let Symbol { name, file, line } = symbol;
        let function = Function { name, file };
        let place = match self.places.get(&function) {
            Some(place) => *place,
            None => {
                self.all.push(function.clone());
                self.places.insert(function, self.all.len() - 1);
                self.all.len() - 1
            }
        };
        Frame { function: place, line }
    }
}
