//! Time in nanoseconds since the start of the program's measurement, and alarms with the precision of the kernel's
//! timers: those of tokio have a resolution of a millisecond.

use std::task::{Context, Poll};
use std::time::Instant;

/// Source of the time: the machine's clock, or a test's.
pub(crate) trait Clock: Clone {
    /// Nanoseconds since the origin.
    fn now(&self) -> u64;
}

/// Wakes a task at a time of its clock.
pub(crate) trait Alarm {
    /// Ready at this time or later. A new time replaces the last one.
    fn poll_at(&mut self, at: u64, cx: &mut Context<'_>) -> Poll<()>;
}

/// The machine's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wall {
    origin: Instant,
}

impl Wall {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds from the origin until this instant; 0 if it was earlier.
    pub(crate) fn nanos_at(self, then: Instant) -> u64 {
        then.saturating_duration_since(self.origin).as_nanos() as u64
    }

    pub(crate) fn instant(self, at: u64) -> Instant {
        self.origin + std::time::Duration::from_nanos(at)
    }
}

impl Clock for Wall {
    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

#[cfg(target_os = "linux")]
pub(crate) use self::timerfd::WallAlarm;

#[cfg(target_os = "linux")]
mod timerfd {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::task::{Context, Poll};

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
        timerfd_create, timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{Alarm, Clock, Wall};

    /// A timer of the kernel. It is armed for an absolute time and never read: every expiry is a new edge for epoll.
    #[derive(Debug)]
    pub(crate) struct WallAlarm {
        timer: AsyncFd<OwnedFd>,
        clock: Wall,
        /// The kernel's time at the origin of the clock.
        origin: u64,
        armed: u64,
    }

    impl WallAlarm {
        /// Creates an alarm in the current runtime.
        pub(crate) fn new(clock: Wall) -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let now = clock_gettime(ClockId::Monotonic);
            let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
            let origin = now - clock.now();
            #[expect(
                deprecated,
                reason = "its replacement is unsafe for the sake of types that close their file early"
            )]
            let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
            Ok(Self { timer, clock, origin, armed: 0 })
        }

        fn arm(&mut self, at: u64) {
            let time = self.origin + at;
            let value =
                Timespec { tv_sec: (time / 1_000_000_000) as i64, tv_nsec: (time % 1_000_000_000) as _ };
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let once = Itimerspec { it_interval: none, it_value: value };
            timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &once)
                .expect("an open timer takes any time after the origin");
            self.armed = at;
        }
    }

    impl Alarm for WallAlarm {
        fn poll_at(&mut self, at: u64, cx: &mut Context<'_>) -> Poll<()> {
            if self.armed != at {
                self.arm(at);
            }
            loop {
                match self.timer.poll_read_ready(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                }
                if self.clock.now() >= at {
                    return Poll::Ready(());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use self::sleep::WallAlarm;

#[cfg(not(target_os = "linux"))]
mod sleep {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::time::{Sleep, sleep_until};

    use super::{Alarm, Wall};

    /// A timer of tokio, with its resolution of a millisecond.
    #[derive(Debug)]
    pub(crate) struct WallAlarm {
        clock: Wall,
        sleep: Pin<Box<Sleep>>,
    }

    impl WallAlarm {
        /// Creates an alarm in the current runtime.
        pub(crate) fn new(clock: Wall) -> io::Result<Self> {
            Ok(Self { clock, sleep: Box::pin(sleep_until(clock.instant(0).into())) })
        }
    }

    impl Alarm for WallAlarm {
        fn poll_at(&mut self, at: u64, cx: &mut Context<'_>) -> Poll<()> {
            let at = self.clock.instant(at).into();
            if self.sleep.deadline() != at {
                self.sleep.as_mut().reset(at);
            }
            self.sleep.as_mut().poll(cx)
        }
    }
}
