//! How a runtime is configured; each setting is checked when it is built.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use super::{LocalRuntime, Runtime};
use crate::config::{
    Config, MAX_WORKERS, SPIN_VARIABLE, Spin, Ticker, WORKERS_VARIABLE, checked_spin, refuse,
    spin_from, workers_from,
};
use crate::report::{Census, Wedge};
use crate::slice;
use crate::sync::Arc;

/// Configures a [`Runtime`]. `PACELINE_WORKERS` and `PACELINE_SPIN` concern the default runtime only.
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

/// Far beyond a good poll (tens of microseconds), and soon enough for who waits.
const WEDGE_AFTER: Duration = Duration::from_millis(50);
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
                spin: Spin::default(),
                wedge_after: WEDGE_AFTER,
                on_wedge: None,
                on_deadlock: None,
                cpus: 1,
            },
        }
    }

    /// Default settings, and what the environment says.
    pub(super) fn from_environment() -> io::Result<Self> {
        let worker_threads = workers_from(std::env::var_os(WORKERS_VARIABLE))?;
        let mut builder = Builder { worker_threads, ..Builder::new() };
        builder.config.spin = spin_from(std::env::var_os(SPIN_VARIABLE))?.unwrap_or_default();
        Ok(builder)
    }

    /// How many tasks may run at once, but for those on workers that are stuck (see
    /// [`wedge_after`](Builder::wedge_after)), from 1 to 4096; a worker per CPU by default, where the
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

    /// How long a worker that finds nothing to do looks on before it sleeps. [`Spin::Adaptive`] by default.
    pub fn spin(mut self, spin: Spin) -> Self {
        self.config.spin = spin;
        self
    }

    /// From when on a poll counts as a wedge: it is counted, reported to the hook of
    /// [`on_wedge`](Builder::on_wedge), and made up for by one more worker if work waits. 50 ms by
    /// default; longer than zero. The time in which the thread waited for a CPU does not count, where the
    /// system tells it. A thread that blocks is made up for sooner, after a tick or two.
    pub fn wedge_after(mut self, length: Duration) -> Self {
        self.config.wedge_after = length;
        self
    }

    /// Is told of every wedge, within [`wedge_after`](Builder::wedge_after) and a tick, and again when the
    /// poll is over. Runs on the ticker's thread, which looks after nobody meanwhile: it should only
    /// write down or pass on. A panic in it is contained.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let runtime = paceline::Builder::new().on_wedge(|wedge| eprintln!("{wedge}")).build()?;
    /// let hog = runtime.spawn_named("hog", async { std::thread::sleep(Duration::from_millis(100)) });
    /// runtime.block_on(hog);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_wedge(mut self, hook: impl Fn(&Wedge) + Send + Sync + 'static) -> Self {
        self.config.on_wedge = Some(Arc::new(hook));
        self
    }

    /// Is told if nothing can happen any more although a `block_on` waits: no task can run, no timer is
    /// armed, no descriptor is waited for, no job of [`unblock`](crate::unblock) or
    /// [`block_in_place`](crate::block_in_place) goes on. Once, until a task or a `block_on`'s future runs again. Runs on the
    /// ticker's thread. **If it panics, the `block_on` that waits longest panics so.**
    ///
    /// What only a thread outside of the runtime would wake is taken for a deadlock: set no hook where
    /// tasks wait for such threads, or for another reactor. And a task that has waited for a descriptor by a
    /// poll function, and does no more, counts as waiting for it.
    ///
    /// # Examples
    /// ```should_panic
    /// let runtime = paceline::Builder::new().on_deadlock(|census| panic!("{census}")).build()?;
    /// runtime.block_on(std::future::pending::<()>());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_deadlock(mut self, hook: impl Fn(&Census) + Send + Sync + 'static) -> Self {
        self.config.on_deadlock = Some(Arc::new(hook));
        self
    }

    /// Makes the runtime. No thread is started until there is work for it.
    ///
    /// # Errors
    /// If a setting is out of range: the message names it, its value, and what is accepted.
    pub fn build(self) -> io::Result<Runtime> {
        Ok(Runtime::with(self.checked()?))
    }

    /// Makes a runtime of one thread, whichever calls its [`block_on`](LocalRuntime::block_on). It starts
    /// no thread, not even a ticker: what concerns threads has no effect.
    ///
    /// # Errors
    /// As [`build`](Builder::build). If `worker_threads` is set to other than 1, or a hook that a ticker
    /// would call.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let runtime = paceline::Builder::new().timeslice(Duration::from_micros(50)).build_local()?;
    /// assert_eq!(runtime.block_on(async { 1 + 2 }), 3);
    /// assert!(paceline::Builder::new().worker_threads(2).build_local().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn build_local(mut self) -> io::Result<LocalRuntime> {
        let hooks = [
            ("on_wedge", self.config.on_wedge.is_some()),
            ("on_deadlock", self.config.on_deadlock.is_some()),
        ];
        if let Some((hook, _)) = hooks.into_iter().find(|(_, is_set)| *is_set) {
            let accepted =
                "unset where the runtime is a local one: the ticker calls it, which that has not";
            return Err(refuse(hook, format_args!("set"), accepted));
        }
        self.config.ticker = Ticker::Off;
        match self.worker_threads.replace(1) {
            None | Some(1) => Ok(LocalRuntime::with(self.checked()?)),
            Some(count) => {
                Err(refuse("worker_threads", count, "1 where the runtime is a local one"))
            }
        }
    }

    fn checked(self) -> io::Result<Config> {
        let Builder { mut config, worker_threads } = self;
        config.cpus = cpus();
        config.worker_threads = match worker_threads {
            None => config.cpus.min(MAX_WORKERS),
            Some(count @ 1..=MAX_WORKERS) => count,
            Some(count) => {
                return Err(refuse("worker_threads", count, &format!("from 1 to {MAX_WORKERS}")));
            }
        };
        config.spin = checked_spin(config.spin)?;
        if config.cpus == 1 {
            // It would only keep the thread that it waits for from running.
            config.spin = Spin::Off;
        }
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
        if config.wedge_after.is_zero() {
            return Err(refuse("wedge_after", config.wedge_after, "longer than zero"));
        }
        if config.ticker == Ticker::Off {
            let hooks = [
                ("on_wedge", config.on_wedge.is_some()),
                ("on_deadlock", config.on_deadlock.is_some()),
            ];
            if let Some((hook, _)) = hooks.into_iter().find(|(_, is_set)| *is_set) {
                let accepted = format!("on where `{hook}` is set: the ticker calls it");
                return Err(refuse("ticker", config.ticker, &accepted));
            }
        }
        Ok(config)
    }
}

/// How many CPUs the process may use, asked once: the answer takes several system calls.
fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
