//! A reference to a runtime, for those who do not own it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;

use super::{block_on, default_runtime};
use crate::config::Config;
use crate::current;
use crate::identity::TaskInfo;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::task::{Task, spawn_on};

/// A reference to a [`Runtime`](crate::Runtime). Cheap to clone; does not keep it running.
///
/// # Examples
/// ```
/// let runtime = paceline::Runtime::new()?;
/// let handle = runtime.handle().clone();
/// let thread = std::thread::spawn(move || handle.block_on(handle.spawn(async { 1 })));
/// assert_eq!(thread.join().unwrap(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl Handle {
    /// The runtime that this thread works for or has [entered](Handle::enter), else the default
    /// one, which this starts.
    ///
    /// # Panics
    /// If the default runtime cannot be built: see [`block_on`](crate::block_on).
    pub fn current() -> Handle {
        Handle::try_current().unwrap_or_else(|| default_runtime().handle().clone())
    }

    /// The runtime that this thread works for or has [entered](Handle::enter), if any.
    pub fn try_current() -> Option<Handle> {
        current::shared().map(|shared| Handle { shared })
    }

    /// Makes this the runtime of [`spawn`](crate::spawn) on this thread, until the guard is
    /// dropped. Guards may nest; drop them in reverse order.
    ///
    /// # Examples
    /// ```
    /// let runtime = paceline::Runtime::new()?;
    /// let _guard = runtime.handle().enter();
    /// let task = paceline::spawn(async { 1 }); // runs there
    /// assert_eq!(runtime.block_on(task), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn enter(&self) -> Enter<'_> {
        Enter { before: Some(current::enter(self.shared.clone())), of: PhantomData }
    }

    /// Spawns a task on this runtime. Dropping the [`Task`] cancels it.
    ///
    /// If the runtime has stopped, the task is a cancelled one.
    ///
    /// # Panics
    /// If no worker runs and no thread can be started; the task is cancelled then. In a process that
    /// was forked from the one in which the runtime was made.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_on(&self.shared, TaskInfo::at(Location::caller()), future)
    }

    /// As [`spawn`](Handle::spawn), of a task with a name, as [`spawn_named`](crate::spawn_named).
    #[track_caller]
    pub fn spawn_named<F>(&self, name: impl Into<Arc<str>>, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_on(
            &self.shared,
            TaskInfo { name: Some(name.into()), ..TaskInfo::at(Location::caller()) },
            future,
        )
    }

    /// Runs a future to its end on the calling thread.
    ///
    /// While the future waits, the thread is one of the runtime's workers, so that it and its
    /// tasks need not cross threads to talk; no more tasks run at once than the runtime has
    /// workers. When the future is ready, the thread leaves at the end of the poll it is in, and
    /// hands what it holds to another worker.
    ///
    /// So **a task that blocks may block this future**: it waits until that task's poll returns,
    /// even if other workers are free, and if the task waits for this future, both wait for ever.
    /// Where tasks block, make the program's main future a task too:
    /// `runtime.block_on(runtime.spawn(main_future))`.
    ///
    /// Called inside a task, a hook or another `block_on`, the thread only blocks, and another
    /// thread works in its place. If the runtime has stopped, the future is still run, without any
    /// task beside it.
    ///
    /// Of a [`LocalRuntime`](crate::LocalRuntime), on other threads than its own: the thread only blocks.
    ///
    /// # Panics
    /// If the future does. Inside a task, if no other thread can be started to work meanwhile. In a
    /// process that was forked from the one in which the runtime was made. On the own thread of a
    /// `LocalRuntime`, which has a `block_on` itself.
    ///
    /// # Examples
    /// ```
    /// let runtime = paceline::Runtime::new()?;
    /// assert_eq!(runtime.handle().block_on(async { 1 + 1 }), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let shared = &self.shared;
        assert!(
            !shared.is_local() || !shared.is_of_this_thread() || shared.stop.is_closing(),
            "`Handle::block_on` of a local runtime on its own thread would not run the local tasks: call \
             `LocalRuntime::block_on`"
        );
        block_on::block_on(shared, future)
    }

    /// What the runtime has counted so far.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.shared)
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("config", self.config()).finish_non_exhaustive()
    }
}

/// The guard of [`Handle::enter`].
#[derive(Debug)]
#[must_use = "the runtime is left when the guard is dropped"]
pub struct Enter<'a> {
    before: Option<current::Entered>,
    /// Not `Send`: it restores what this thread had.
    of: PhantomData<(&'a Handle, *const ())>,
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            current::leave(before);
        }
    }
}

impl futures_task::Spawn for Handle {
    #[track_caller]
    fn spawn_obj(
        &self,
        future: futures_task::FutureObj<'static, ()>,
    ) -> Result<(), futures_task::SpawnError> {
        self.status()?;
        self.spawn(future).detach();
        Ok(())
    }

    fn status(&self) -> Result<(), futures_task::SpawnError> {
        if self.shared.stop.is_closing() {
            return Err(futures_task::SpawnError::shutdown());
        }
        Ok(())
    }
}
