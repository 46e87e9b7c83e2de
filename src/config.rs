//! A runtime's settings, checked. What each means is said at [`Builder`](crate::Builder).

use std::fmt;
use std::io;
use std::time::Duration;

use crate::report::{Census, Wedge};
use crate::sync::Arc;

/// The most workers of one runtime.
pub(crate) const MAX_WORKERS: usize = 4096;
/// Names the default runtime's number of workers.
pub(crate) const WORKERS_VARIABLE: &str = "PACELINE_WORKERS";
/// Names how its workers wait.
pub(crate) const SPIN_VARIABLE: &str = "PACELINE_SPIN";
/// A longer window would be a busy loop.
pub(crate) const LONGEST_SPIN: Duration = Duration::from_millis(10);

/// When the ticker looks after the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ticker {
    /// Every half millisecond while polls run long, backing off while they are short: to 25 ms, or
    /// to 5 ms while nobody is idle who would see to sockets and timers. Not at all while nothing
    /// runs.
    #[default]
    Adaptive,
    /// At this interval while anything runs.
    Every(Duration),
    /// Never: no thread is started for it. What is in a worker's slot then waits until its poll
    /// returns; what comes into its queue wakes another worker at once.
    Off,
}

/// How long a worker that finds nothing to do looks on before it sleeps. No more workers do so than there
/// are CPUs that nobody of the runtime uses, none on a single CPU, and none while another worker sleeps where
/// sockets and timers wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Spin {
    /// As long as would have cost least lately: not at all while work comes rarely, and no longer than a
    /// sleep and a wake-up are worth.
    #[default]
    Adaptive,
    /// So long at most, each time; at most 10 ms.
    Fixed(Duration),
    /// Not at all.
    Off,
}

type Hook = Arc<dyn Fn() + Send + Sync>;
pub(crate) type WedgeHook = Arc<dyn Fn(&Wedge) + Send + Sync>;
pub(crate) type CensusHook = Arc<dyn Fn(&Census) + Send + Sync>;

/// The settings in force, as [`Handle::config`](crate::Handle::config) returns them.
#[derive(Clone)]
pub struct Config {
    pub(crate) worker_threads: usize,
    pub(crate) thread_name: String,
    pub(crate) thread_stack_size: Option<usize>,
    pub(crate) on_thread_start: Option<Hook>,
    pub(crate) on_thread_stop: Option<Hook>,
    pub(crate) wake_slot: bool,
    pub(crate) timeslice: Duration,
    pub(crate) ticker: Ticker,
    pub(crate) spin: Spin,
    pub(crate) wedge_after: Duration,
    pub(crate) on_wedge: Option<WedgeHook>,
    pub(crate) on_deadlock: Option<CensusHook>,
    pub(crate) cpus: usize,
}

impl Config {
    /// How many tasks may run at once.
    pub fn worker_threads(&self) -> usize {
        self.worker_threads
    }

    /// What the worker threads are called.
    pub fn thread_name(&self) -> &str {
        &self.thread_name
    }

    /// Their stack size in bytes; the standard library's default if it was not set.
    pub fn thread_stack_size(&self) -> Option<usize> {
        self.thread_stack_size
    }

    /// Whether a task that is woken by the running one runs next.
    pub fn wake_slot(&self) -> bool {
        self.wake_slot
    }

    /// How long tasks that wake one another may keep the others waiting.
    pub fn timeslice(&self) -> Duration {
        self.timeslice
    }

    /// When the ticker ticks.
    pub fn ticker(&self) -> Ticker {
        self.ticker
    }

    /// How long a worker that finds nothing to do spins before it sleeps. `Off` on a single CPU, whatever
    /// was asked for.
    pub fn spin(&self) -> Spin {
        self.spin
    }

    /// How long a poll may last before it counts as a wedge.
    pub fn wedge_after(&self) -> Duration {
        self.wedge_after
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("worker_threads", &self.worker_threads)
            .field("thread_name", &self.thread_name)
            .field("thread_stack_size", &self.thread_stack_size)
            .field("wake_slot", &self.wake_slot)
            .field("timeslice", &self.timeslice)
            .field("ticker", &self.ticker)
            .field("spin", &self.spin)
            .field("wedge_after", &self.wedge_after)
            .finish_non_exhaustive()
    }
}

/// An error that names the setting `what`, its `value`, and what is accepted.
pub(crate) fn refuse(what: &str, value: impl fmt::Debug, accepted: &str) -> io::Error {
    let message = format!("{what} is {value:?}, but must be {accepted}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The number of workers that the environment asks for, if it does.
pub(crate) fn workers_from(value: Option<std::ffi::OsString>) -> io::Result<Option<usize>> {
    let Some(value) = value else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.trim().parse().ok());
    match number {
        Some(workers @ 1..=MAX_WORKERS) => Ok(Some(workers)),
        _ => {
            let what = format!("the environment variable {WORKERS_VARIABLE}");
            Err(refuse(&what, value, &format!("a whole number from 1 to {MAX_WORKERS}, or unset")))
        }
    }
}

/// How the environment wants workers to wait, if it says so.
pub(crate) fn spin_from(value: Option<std::ffi::OsString>) -> io::Result<Option<Spin>> {
    let Some(value) = value else { return Ok(None) };
    let micros =
        |text: &str| text.strip_suffix("us")?.trim().parse().ok().map(Duration::from_micros);
    let spin = match value.to_str().map(str::trim) {
        Some("adaptive") => Some(Spin::Adaptive),
        Some("off") => Some(Spin::Off),
        Some(text) => micros(text).map(Spin::Fixed),
        None => None,
    };
    match spin.map(checked_spin) {
        Some(Ok(spin)) => Ok(Some(spin)),
        _ => {
            let what = format!("the environment variable {SPIN_VARIABLE}");
            let accepted = "`adaptive`, `off`, a time from `1us` to `10000us`, or unset";
            Err(refuse(&what, value, accepted))
        }
    }
}

/// The setting itself, if it is in range.
pub(crate) fn checked_spin(spin: Spin) -> io::Result<Spin> {
    match spin {
        Spin::Fixed(length) if length.is_zero() || length > LONGEST_SPIN => {
            let accepted = "longer than zero and at most 10 ms; `Spin::Off` switches it off";
            Err(refuse("spin", spin, accepted))
        }
        _ => Ok(spin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spin_variable_is_a_word_or_a_time_or_an_error_that_names_it() {
        let spin = |text: &str| spin_from(Some(text.into()));
        assert_eq!(spin_from(None).unwrap(), None);
        assert_eq!(spin("adaptive").unwrap(), Some(Spin::Adaptive));
        assert_eq!(spin(" off ").unwrap(), Some(Spin::Off));
        assert_eq!(spin("50us").unwrap(), Some(Spin::Fixed(Duration::from_micros(50))));
        assert_eq!(spin("10000us").unwrap(), Some(Spin::Fixed(LONGEST_SPIN)));
        for bad in ["", "on", "50", "50ms", "0us", "-1us", "10001us", "1.5us", "Adaptive"] {
            let error = spin(bad).unwrap_err().to_string();
            assert!(
                error.contains(SPIN_VARIABLE) && error.contains(&format!("{bad:?}")),
                "{error}"
            );
        }
    }

    #[test]
    fn the_variable_is_a_number_in_range_or_an_error_that_names_it() {
        assert_eq!(workers_from(None).unwrap(), None);
        assert_eq!(workers_from(Some("8".into())).unwrap(), Some(8));
        assert_eq!(workers_from(Some(" 4096 ".into())).unwrap(), Some(4096));
        for bad in ["0", "-1", "4097", "", "four", "1.5", "99999999999999999999"] {
            let error = workers_from(Some(bad.into())).unwrap_err().to_string();
            assert!(error.contains(WORKERS_VARIABLE) && error.contains("1 to 4096"), "{error}");
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
