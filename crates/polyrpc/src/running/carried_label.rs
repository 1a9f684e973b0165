use super::CallKey;
use super::cell::marked_call;
use super::label::always_run_labelled;
use super::registry::is_watched;

/// The label of the call that a thread polls, for the thread on which its method may block.
///
/// The stacks of that thread have the label. The thread is not marked, since a method that blocks there does not delay
/// a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CarriedLabel(Option<CallKey>);

impl CarriedLabel {
    /// Takes the label of the call that this thread polls, if it is watched.
    pub(crate) fn take() -> Self {
        Self(is_watched().then(marked_call).flatten())
    }

    /// Runs work of the call. The label is set even if labels are not wanted at the moment: the work may take long.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        match self.0 {
            Some(call) => always_run_labelled(call, work),
            None => work(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::cell::{current_polls, run_marked};
    use super::super::registry::watch_calls;
    use super::*;

    #[test]
    fn label_of_a_poll_is_carried_to_another_thread_without_its_mark() {
        let call = CallKey { metrics: u32::MAX, series: 5 };
        assert_eq!(CarriedLabel::take().0, None);
        let _watch = watch_calls();
        assert_eq!(CarriedLabel::take().0, None);
        let carried = run_marked(call, None, CarriedLabel::take);
        assert_eq!(carried.0, Some(call));
        let is_marked = move || current_polls().iter().any(|poll| poll.key() == call);
        assert!(run_marked(call, None, is_marked));
        assert!(!thread::spawn(move || carried.run(is_marked)).join().unwrap());
        assert_eq!(marked_call(), None);
    }
}
