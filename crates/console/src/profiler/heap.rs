use super::samples::Samples;

/// Takes the samples of jemalloc for memory in use.
///
/// # Errors
///
/// If jemalloc does not sample, or has only just started.
#[cfg(all(feature = "jemalloc", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn sample() -> Result<Samples, String> {
    use std::time::Instant;

    use super::samples::RawStack;

    let began = Instant::now();
    let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else {
        return Err(
            "jemalloc does not sample: start the program with _RJEM_MALLOC_CONF=prof:true,prof_active:false"
                .to_owned(),
        );
    };
    let mut control = control.blocking_lock();
    if !control.activated() {
        control.activate().map_err(|error| format!("jemalloc cannot sample: {error}"))?;
        return Err("jemalloc samples what is allocated from now on: ask again later".to_owned());
    }
    let profile = control.dump_profile().map_err(|error| format!("jemalloc has no profile: {error}"))?;
    let stack = |(stack, _): (jemalloc_pprof::WeightedStack, Option<usize>)| RawStack {
        // The outermost come first.
        addresses: stack.addrs.into_iter().rev().collect(),
        thread: String::new(),
        count: 1,
        weight: stack.weight.max(0.0) as u64,
        location: None,
    };
    let stacks = profile.stacks.into_iter().map(stack).collect();
    Ok(Samples { stacks, took: began.elapsed(), ..Samples::default() })
}

#[cfg(not(all(
    feature = "jemalloc",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
pub(super) fn sample() -> Result<Samples, String> {
    Err("this program was built without the feature `jemalloc` of polyrpc-console, which knows its allocations".to_owned())
}
