//! A runtime's settings, checked. What each means is said at [`Builder`](crate::Builder).

use std::fmt;
use std::io;
use std::time::Duration;

use crate::spin::Window;
use crate::sync::Arc;

/// The most workers of one runtime.
pub(crate) const MAX_WORKERS: usize = 4096;
/// Names the default runtime's number of workers.
pub(crate) const WORKERS_VARIABLE: &str = "PACELINE_WORKERS";

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

type Hook = Arc<dyn Fn() + Send + Sync>;

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
    pub(crate) spin: Window,
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

    /// How long a worker that finds nothing to do spins before it sleeps.
    pub fn spin(&self) -> Duration {
        self.spin.length()
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
            .field("spin", &self.spin())
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

#[cfg(test)]
mod tests {
    use super::*;

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
