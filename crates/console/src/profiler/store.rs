use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use polyrpc::layers::Metrics;
use tokio::sync::watch;

use super::kind::ProfileKind;
use super::profile::Profile;
use super::{contention, heap, sampler};

/// Returns the profiler of the process.
pub(crate) fn profiler() -> &'static Profiler {
    static PROFILER: LazyLock<Profiler> = LazyLock::new(Profiler::default);
    &PROFILER
}

/// Makes profiles, one at a time, and keeps the last ones.
#[derive(Debug, Default)]
pub(crate) struct Profiler(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Option<(ProfileKind, watch::Receiver<Progress>)>,
    /// The latest first.
    kept: VecDeque<Arc<Profile>>,
    made: u64,
}

/// Facts about a profile.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    Running,
    Made(Arc<Profile>),
    Failed(String),
}

/// Maximum number of profiles that are kept, and of their bytes.
const MAX_PROFILES: usize = 32;
const MAX_KEPT_BYTES: usize = 16 << 20;

impl Profiler {
    /// Starts a profile, or joins the one of its kind that is being made. One of another kind has to end first.
    pub(crate) fn start(
        &'static self,
        kind: ProfileKind,
        duration: Duration,
        frequency: u32,
        metrics: Vec<Metrics>,
    ) -> watch::Receiver<Progress> {
        let mut state = self.state();
        // A profile whose thread panicked has ended too.
        let failed = |why: String| watch::channel(Progress::Failed(why)).1;
        match state.running.as_ref().filter(|(_, running)| running.has_changed().is_ok()) {
            Some((running, progress)) if *running == kind => return progress.clone(),
            Some((running, _)) => {
                return failed(format!("a profile of another kind is being made: {}", running.name()));
            }
            None => {}
        }
        let (done, progress) = watch::channel(Progress::Running);
        let make = move || done.send_replace(self.make(kind, duration, frequency, &metrics));
        match thread::Builder::new().name("polyrpc-profile".into()).spawn(make) {
            Ok(_) => state.running = Some((kind, progress.clone())),
            Err(error) => return failed(format!("cannot start a thread: {error}")),
        }
        progress
    }

    fn make(&self, kind: ProfileKind, duration: Duration, frequency: u32, metrics: &[Metrics]) -> Progress {
        let began = SystemTime::now();
        let samples = match kind {
            ProfileKind::Cpu => sampler::sample(duration, frequency, metrics),
            ProfileKind::Contention => Ok(contention::sample(duration)),
            ProfileKind::Heap => heap::sample(),
        };
        let frequency = if kind == ProfileKind::Cpu { frequency } else { 0 };
        let id = self.state().made + 1;
        let made =
            samples.map(|samples| Arc::new(Profile::new(id, kind, began, frequency, samples, metrics)));
        let mut state = self.state();
        state.running = None;
        match made {
            Ok(profile) => {
                state.made = id;
                state.keep(profile.clone());
                Progress::Made(profile)
            }
            Err(why) => Progress::Failed(why),
        }
    }

    /// Returns the profiles that are kept, the latest first.
    pub(crate) fn profiles(&self) -> Vec<Arc<Profile>> {
        self.state().kept.iter().cloned().collect()
    }

    /// Returns a profile by its number.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Profile>> {
        self.state().kept.iter().find(|profile| profile.id == id).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, profile: Arc<Profile>) {
        self.kept.push_front(profile);
        let bytes =
            |kept: &VecDeque<Arc<Profile>>| kept.iter().map(|profile| profile.footprint()).sum::<usize>();
        while self.kept.len() > MAX_PROFILES || self.kept.len() > 1 && bytes(&self.kept) > MAX_KEPT_BYTES {
            self.kept.pop_back();
        }
    }
}
