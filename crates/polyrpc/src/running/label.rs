//! Labels of calls within stacks, for profilers, which only see the addresses of functions.
//!
//! While [labels](label_stacks) are enabled, a handler is polled through functions whose names are the digits of the
//! method's number. A stack that is sampled then has them among its frames. A blocking method is called through them on
//! its own thread.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::CallKey;
use super::registry::watch_calls;

/// Number of active [`label_stacks`].
static ACTIVE_LABEL_GUARDS: AtomicUsize = AtomicUsize::new(0);

/// Labels stacks until it is dropped: see [`label_stacks`].
#[derive(Debug)]
struct StackLabels<W> {
    /// Labels are those of watched calls.
    _watch: W,
}

/// Labels the stacks of handlers of servers' calls with their methods until the result is dropped, so that
/// [`Metrics::call_of_stack`](crate::layers::Metrics::call_of_stack) finds them in the samples of a profiler. Calls
/// that were already in flight are labelled if they were [watched](watch_calls).
///
/// While enabled, each poll goes through 5 to 19 more functions. Blocking methods run on separate threads, not within a
/// poll: their stacks are labelled whenever calls are watched, so that a method that started earlier has its label too.
#[must_use = "stacks are labelled for as long as the result exists"]
pub fn label_stacks() -> impl fmt::Debug + Send + Sync + 'static {
    ACTIVE_LABEL_GUARDS.fetch_add(1, Ordering::Relaxed);
    StackLabels { _watch: watch_calls() }
}

impl<W> Drop for StackLabels<W> {
    fn drop(&mut self) {
        ACTIVE_LABEL_GUARDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Finds the label of the innermost call of a stack by the names of its functions, demangled, the outermost first.
pub(crate) fn find_label<'n>(functions: impl IntoIterator<Item = &'n str>) -> Option<CallKey> {
    let mut found = None;
    // The parts of the number being read, with the number of digits of each.
    let (mut parts, mut part) = ([(0_u32, 0_u32); 2], 2);
    for digit in functions.into_iter().filter_map(digit) {
        match digit {
            BEGIN => (parts, part) = ([(0, 0); 2], 0),
            NEXT => part = if part == 0 { 1 } else { 2 },
            END => {
                // A number without its end mark may lack digits, and so denote another method.
                if let ([(metrics, 1..), (series, 1..)], 1) = (parts, part) {
                    found = Some(CallKey { metrics, series });
                }
                part = 2;
            }
            digit => match parts.get_mut(part) {
                Some((number, digits)) if *digits < 8 => {
                    *number |= u32::from(digit) << (4 * *digits);
                    *digits += 1;
                }
                _ => part = 2,
            },
        }
    }
    found
}

/// Whether a function of a stack, by its demangled name, is part of a [label](label_stacks) rather than of the program.
pub fn is_stack_label(function: &str) -> bool {
    function.strip_prefix(concat!(module_path!(), "::")).is_some()
}

/// Whether labels are enabled.
#[inline]
pub(super) fn are_wanted() -> bool {
    ACTIVE_LABEL_GUARDS.load(Ordering::Relaxed) > 0
}

/// Runs work of a call, through the digits of its number if labels are enabled.
#[inline]
pub(super) fn run_labelled<T>(call: CallKey, work: impl FnOnce() -> T) -> T {
    if are_wanted() { always_run_labelled(call, work) } else { work() }
}

/// Runs work of a call through the digits of its number.
#[cold]
pub(super) fn always_run_labelled<T>(call: CallKey, work: impl FnOnce() -> T) -> T {
    let (mut work, mut done) = (Some(work), None);
    run_through_digits(call, &mut || {
        if let Some(work) = work.take() {
            done = Some(work());
        }
    });
    done.expect("the last digit is followed by the work")
}

fn run_through_digits(call: CallKey, work: &mut dyn FnMut()) {
    let mut digits = [0; 19];
    let mut length = 0;
    let mut add = |digit| {
        if let Some(slot) = digits.get_mut(length) {
            *slot = digit;
            length += 1;
        }
    };
    for (mark, mut number) in [(BEGIN, call.metrics), (NEXT, call.series)] {
        add(mark);
        loop {
            add((number & 15) as u8);
            number >>= 4;
            if number == 0 {
                break;
            }
        }
    }
    add(END);
    step(digits.get(..length).unwrap_or_default(), work);
}

/// Calls the function of the first digit, which calls this with the rest.
fn step(digits: &[u8], work: &mut dyn FnMut()) {
    match digits.split_first() {
        Some((digit, rest)) => match DIGITS.get(usize::from(*digit)) {
            Some((_, function)) => function(rest, work),
            None => step(rest, work),
        },
        None => work(),
    }
}

/// The start mark of a number, the separator of its parts, and the end mark.
const BEGIN: u8 = 16;
const NEXT: u8 = 17;
const END: u8 = 18;

type Digit = fn(&[u8], &mut dyn FnMut());

macro_rules! digits {
    ($($name:ident = $value:literal)*) => {
        $(
            #[inline(never)]
            fn $name(rest: &[u8], work: &mut dyn FnMut()) {
                step(rest, work);
                // The work after the call keeps the frame; the value keeps this function from being merged with the
                // others.
                black_box($value);
            }
        )*

        /// The functions, by the digits that they stand for, with their names.
        const DIGITS: [(&str, Digit); 19] = [$((concat!(module_path!(), "::", stringify!($name)), $name)),*];
    };
}

digits! {
    digit_0 = 0
    digit_1 = 1
    digit_2 = 2
    digit_3 = 3
    digit_4 = 4
    digit_5 = 5
    digit_6 = 6
    digit_7 = 7
    digit_8 = 8
    digit_9 = 9
    digit_a = 10
    digit_b = 11
    digit_c = 12
    digit_d = 13
    digit_e = 14
    digit_f = 15
    begin = 16
    next = 17
    end = 18
}

/// Returns the digit that a function stands for.
fn digit(function: &str) -> Option<u8> {
    let index = DIGITS.iter().position(|(name, _)| *name == function)?;
    u8::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    /// Returns the names of the functions through which a poll of this call is made.
    fn names(call: CallKey) -> Vec<String> {
        let mut names = Vec::new();
        let mut number = |mark: u8, number: u32| {
            let digits = format!("{number:x}");
            let digits = digits.chars().rev().map(|digit| format!("digit_{digit}"));
            let mark = if mark == BEGIN { "begin" } else { "next" };
            names.extend([mark.to_owned()].into_iter().chain(digits));
        };
        number(BEGIN, call.metrics);
        number(NEXT, call.series);
        names.push("end".to_owned());
        names.iter().map(|name| format!("polyrpc::running::label::{name}")).collect()
    }

    fn find(names: &[String]) -> Option<CallKey> {
        find_label(names.iter().map(String::as_str))
    }

    #[test]
    fn label_is_found_among_other_functions() {
        for (metrics, series) in [(0, 0), (1, 15), (0x1f, 0x40a), (u32::MAX, u32::MAX)] {
            let call = CallKey { metrics, series };
            let mut stack = names(call);
            stack.insert(3, "polyrpc::running::label::step".into());
            stack.insert(0, "main".into());
            stack.push("handler".into());
            assert_eq!(find(&stack), Some(call));
        }
        let (outer, inner) = (CallKey { metrics: 1, series: 2 }, CallKey { metrics: 0, series: 300 });
        assert_eq!(find(&[names(outer), names(inner)].concat()), Some(inner));
    }

    #[test]
    fn stacks_without_a_whole_label_have_none() {
        let whole = names(CallKey { metrics: 3, series: 0x21 });
        for start in 1..whole.len() {
            assert_eq!(find(&whole[start..]), None, "{start}");
        }
        // A stack that was sampled on the way into the label, or out of it.
        for end in 0..whole.len() {
            assert_eq!(find(&whole[..end]), None, "{end}");
        }
        let outer = names(CallKey { metrics: 1, series: 2 });
        assert_eq!(find(&[&outer[..], &whole[..whole.len() - 1]].concat()), find(&outer));
        assert_eq!(find(&["main".into(), "polyrpc::running::label::other".into()]), None);
        assert!(is_stack_label(&whole[0]) && !is_stack_label("polyrpc::running::labels"));
    }

    #[test]
    fn poll_is_made_once_with_and_without_labels() {
        let call = CallKey { metrics: 7, series: 1 << 20 };
        let mut polls = 0;
        let mut poll = || {
            polls += 1;
            Poll::Ready(polls)
        };
        assert_eq!(run_labelled(call, &mut poll), Poll::Ready(1));
        let labels = label_stacks();
        assert_eq!(run_labelled(call, &mut poll), Poll::Ready(2));
        drop(labels);
        assert_eq!(run_labelled(call, || Poll::<()>::Pending), Poll::Pending);
        assert_eq!(always_run_labelled(call, || 5), 5);
    }
}
