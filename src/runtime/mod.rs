//! A scheduler with threads: [`Runtime`], its [`Handle`], its [`Builder`], the default one.

mod block_on;
mod builder;
mod handle;
mod local;
mod threads;

use std::future::Future;
use std::io;
use std::panic::Location;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use builder::Builder;
pub use handle::{Enter, Handle};
pub use local::{LocalRuntime, spawn_local};

use crate::current;
use crate::identity::TaskInfo;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::task::{Task, spawn_here, spawn_on};

/// An executor with worker threads and a ticker, which start when there is work for them.
///
/// **Dropping it stops it at once:** running polls are let finish, then every task's future is
/// dropped and every thread joined before `drop` returns. It waits without a limit for polls to
/// return, those of threads in `block_on` included; [`shutdown_timeout`](Runtime::shutdown_timeout)
/// does not. Dropped on one of its own threads (in
/// async code that it runs) it does not wait: another thread sees the end through.
///
/// # Examples
/// ```
/// let runtime = paceline::Runtime::builder().worker_threads(2).build()?;
/// let answer = runtime.block_on(async { paceline::spawn(async { 42 }).await });
/// assert_eq!(answer, 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
}

impl Runtime {
    /// A runtime with default settings: a worker per CPU. The environment is not looked at.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> io::Result<Self> {
        Builder::new().build()
    }

    /// Starts to configure a runtime.
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn with(config: crate::config::Config) -> Self {
        Runtime { handle: Handle { shared: Shared::new(config, threads::STARTER) } }
    }

    /// As [`Handle::block_on`].
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// As [`Handle::spawn`].
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// As [`Handle::spawn_named`].
    #[track_caller]
    pub fn spawn_named<F>(&self, name: impl Into<Arc<str>>, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn_named(name, future)
    }

    /// A handle to this runtime, which does not keep it running.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// As [`Handle::metrics`].
    pub fn metrics(&self) -> Metrics {
        self.handle.metrics()
    }

    /// Stops as `drop` does, but waits at most `timeout`: for a poll that does not return, say.
    ///
    /// True if the end was reached. If not, every task that is not in a poll has been dropped,
    /// and the threads that are stuck see to the rest when they come back. A task that is woken
    /// only then is dropped by whoever wakes it. On one of the runtime's own threads: false at
    /// once, and another thread sees the end through.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let runtime = paceline::Runtime::new()?;
    /// runtime.spawn(std::future::pending::<()>()).detach();
    /// assert!(runtime.shutdown_timeout(Duration::from_secs(10_000)), "at once");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(self, timeout: Duration) -> bool {
        let over = self.stop(Instant::now().checked_add(timeout));
        // `drop` finds the runtime closed, and somebody attending to it.
        drop(self);
        over
    }

    /// Whether all is over.
    fn stop(&self, deadline: Option<Instant>) -> bool {
        let shared = &self.handle.shared;
        if shared.origin.is_elsewhere() {
            // Its threads are in the parent, and so is who holds its locks: it is left as it is.
            return false;
        }
        if !shared.close() {
            return shared.stop.tally.is_over();
        }
        if current::is_inside(shared) {
            // This thread is in the middle of a poll that the end has to wait for.
            threads::attend_elsewhere(shared);
            return false;
        }
        let over = shared.attend(deadline);
        if over {
            threads::join_all(shared);
        }
        over
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop(None);
    }
}

impl futures_task::Spawn for Runtime {
    #[track_caller]
    fn spawn_obj(
        &self,
        future: futures_task::FutureObj<'static, ()>,
    ) -> Result<(), futures_task::SpawnError> {
        self.handle.spawn_obj(future)
    }

    fn status(&self) -> Result<(), futures_task::SpawnError> {
        self.handle.status()
    }
}

/// The default runtime, started at first use and never stopped.
///
/// # Panics
/// If `PACELINE_WORKERS` or `PACELINE_SPIN` is malformed; the message says what is accepted.
pub(crate) fn default_runtime() -> &'static Runtime {
    static DEFAULT: OnceLock<Runtime> = OnceLock::new();
    DEFAULT.get_or_init(|| {
        Builder::from_environment()
            .and_then(Builder::build)
            .unwrap_or_else(|error| panic!("paceline cannot start its default runtime: {error}"))
    })
}

/// Runs a future to its end on the calling thread, on the default runtime.
///
/// The runtime has a worker per CPU, or as many as `PACELINE_WORKERS` says. It starts at first
/// use, its threads when there is work for them; it is never dropped. While the future waits, the
/// calling thread is one of the workers; see [`Handle::block_on`] for what that means where tasks
/// block.
///
/// # Panics
/// If the future does; if `PACELINE_WORKERS` or `PACELINE_SPIN` is malformed.
///
/// # Examples
/// ```
/// let answer = paceline::block_on(async { 6 * 7 });
/// assert_eq!(answer, 42);
/// ```
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    default_runtime().block_on(future)
}

/// Spawns a task on the runtime that this thread works for or has
/// [entered](Handle::enter), else on the default one.
///
/// From a worker it goes to the tail of the worker's own queue. Dropping the [`Task`] cancels it.
///
/// # Panics
/// If no worker runs and no thread can be started (the task is cancelled then); if
/// `PACELINE_WORKERS` or `PACELINE_SPIN` is malformed.
///
/// # Examples
/// ```
/// paceline::block_on(async {
///     let tasks: Vec<_> = (0..10).map(|i| paceline::spawn(async move { i * i })).collect();
///     let mut sum = 0;
///     for task in tasks {
///         sum += task.await;
///     }
///     assert_eq!(sum, 285);
/// });
/// ```
#[inline]
#[track_caller]
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_as(TaskInfo::at(Location::caller()), future)
}

/// As [`spawn`], of a task with a name: reports of wedged workers and of deadlocks give it, beside the
/// place where the task was spawned. A name costs a lock when the task is spawned and when it ends.
///
/// # Panics
/// As [`spawn`].
///
/// # Examples
/// ```
/// let answer = paceline::block_on(async {
///     paceline::spawn_named("deep thought", async { 42 }).await
/// });
/// assert_eq!(answer, 42);
/// ```
#[track_caller]
pub fn spawn_named<F>(name: impl Into<Arc<str>>, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_as(TaskInfo { name: Some(name.into()), spawned_at: Location::caller() }, future)
}

/// As [`spawn`], of a task that is known as `info` says.
#[inline]
pub(crate) fn spawn_as<F>(info: TaskInfo, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    current::with_lease(|lease| match lease.filter(|_| !current::is_overridden()) {
        Some(lease) => spawn_here(lease, info, future),
        None => match current::shared() {
            Some(shared) => spawn_on(&shared, info, future),
            None => spawn_on(&default_runtime().handle.shared, info, future),
        },
    })
}
