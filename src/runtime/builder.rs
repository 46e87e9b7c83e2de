//! How a runtime is configured; each setting is checked when it is built.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use super::Runtime;
use crate::config::{Config, MAX_WORKERS, Ticker, WORKERS_VARIABLE, refuse, workers_from};
use crate::slice;
use crate::spin::Window;
use crate::sync::Arc;

/// Configures a [`Runtime`]. `PACELINE_WORKERS` concerns the default runtime only.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// let runtime = paceline::Builder::new()
///     .worker_threads(4)
///     .thread_name("render")
///     .timeslice(Duration::from_micros(200))
///     .build()?;
/// assert_eq!(runtime.handle().config().worker_threads(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    config: Config,
    worker_threads: Option<usize>,
}

/// Smaller stacks do not even start a thread everywhere.
const MIN_STACK: usize = 16 * 1024;

impl Builder {
    /// Default settings.
    #[allow(clippy::new_without_default)] // `Runtime::builder` is the other way in
    pub fn new() -> Self {
        Builder {
            worker_threads: None,
            config: Config {
                worker_threads: 1,
                thread_name: "paceline-worker".into(),
                thread_stack_size: None,
                on_thread_start: None,
                on_thread_stop: None,
                wake_slot: true,
                timeslice: slice::DEFAULT,
                ticker: Ticker::default(),
                spin: Window::for_cpus(1),
                cpus: 1,
            },
        }
    }

    /// Default settings, and what the environment says.
    pub(super) fn from_environment() -> io::Result<Self> {
        let worker_threads = workers_from(std::env::var_os(WORKERS_VARIABLE))?;
        Ok(Builder { worker_threads, ..Builder::new() })
    }

    /// How many tasks may run at once, from 1 to 4096; a worker per CPU by default, where the
    /// process's affinity and cgroup quota count. While its future waits, a thread in `block_on` may
    /// be one of them; the future itself is polled whether or not a worker's place is free.
    pub fn worker_threads(mut self, count: usize) -> Self {
        self.worker_threads = Some(count);
        self
    }

    /// What worker threads are called; "paceline-worker" by default. Without NUL characters.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.config.thread_name = name.into();
        self
    }

    /// The stack size of worker threads in bytes, at least 16 KiB.
    pub fn thread_stack_size(mut self, bytes: usize) -> Self {
        self.config.thread_stack_size = Some(bytes);
        self
    }

    /// Runs on every worker thread before it works. A panic in it is contained.
    pub fn on_thread_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.config.on_thread_start = Some(Arc::new(hook));
        self
    }

    /// Runs on every worker thread after its last task. A panic in it is contained.
    pub fn on_thread_stop(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.config.on_thread_stop = Some(Arc::new(hook));
        self
    }

    /// Whether a task that is woken by the running one runs next; on by default. Without it the
    /// task goes to the tail of the worker's queue.
    pub fn wake_slot(mut self, on: bool) -> Self {
        self.config.wake_slot = on;
        self
    }

    /// How long tasks that wake one another may keep the others on their worker waiting; 10 µs by
    /// default. Zero is allowed: the queue has its turn at every reading of the clock.
    pub fn timeslice(mut self, length: Duration) -> Self {
        self.config.timeslice = length;
        self
    }

    /// When the ticker looks after the workers: ends slices of long polls, and moves on what
    /// waits behind a poll that does not return. [`Ticker::Adaptive`] by default; an interval must
    /// be longer than zero.
    pub fn ticker(mut self, ticker: Ticker) -> Self {
        self.config.ticker = ticker;
        self
    }

    /// Makes the runtime. No thread is started until there is work for it.
    ///
    /// # Errors
    /// If a setting is out of range: the message names it, its value, and what is accepted.
    pub fn build(self) -> io::Result<Runtime> {
        let Builder { mut config, worker_threads } = self;
        config.cpus = cpus();
        config.worker_threads = match worker_threads {
            None => config.cpus.min(MAX_WORKERS),
            Some(count @ 1..=MAX_WORKERS) => count,
            Some(count) => {
                return Err(refuse("worker_threads", count, &format!("from 1 to {MAX_WORKERS}")));
            }
        };
        config.spin = Window::for_cpus(config.cpus);
        if config.thread_name.contains('\0') {
            return Err(refuse("thread_name", &config.thread_name, "free of NUL characters"));
        }
        if let Some(size) = config.thread_stack_size.filter(|&size| size < MIN_STACK) {
            return Err(refuse("thread_stack_size", size, &format!("at least {MIN_STACK} bytes")));
        }
        if config.ticker == Ticker::Every(Duration::ZERO) {
            let accepted = "longer than zero; `Ticker::Off` switches the ticker off";
            return Err(refuse("ticker", config.ticker, accepted));
        }
        Ok(Runtime::with(config))
    }
}

/// How many CPUs the process may use, asked once: the answer takes several system calls.
fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
