//! The executor that any number of threads may run; see the parent module.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::ptr;
use std::time::Duration;

use crate::executor::core::Core;
use crate::executor::runner::{self, Runner};
use crate::shared::Runnable;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicPtr, Ordering::*};
use crate::task::Task;

/// An executor without threads: its tasks run where somebody [`run`](Executor::run)s it.
///
/// For libraries and hosts that bring their own threads. Any number of threads may run it at once,
/// inside of any other executor; each `run` has a wake slot, a timeslice and a queue of its own, and
/// takes from the others' when it has nothing to do. Tasks may borrow what outlives the executor.
///
/// It has async-executor's names and promises: a program that was written for that crate compiles with
/// another `use`, but for its feature `static`. It has no reactor: [timers](crate::time) and [sockets](crate::net) that its tasks use
/// belong to the runtime whose thread polls them, else to the default one.
///
/// **Dropping it cancels every task:** all futures are dropped by the time that `drop` returns. The
/// output of a task that had finished can still be awaited.
///
/// # Examples
/// ```
/// use std::thread;
/// let executor = paceline::Executor::new();
/// let (stop, stopped) = async_channel::bounded::<()>(1);
/// let sum = thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| futures::executor::block_on(executor.run(stopped.recv())));
///     }
///     let tasks: Vec<_> = (1..=10).map(|i| executor.spawn(async move { i * i })).collect();
///     let sum = futures::executor::block_on(futures::future::join_all(tasks)).iter().sum::<i32>();
///     drop(stop);
///     sum
/// });
/// assert_eq!(sum, 385);
/// ```
pub struct Executor<'a> {
    /// In an `Arc`; null until it is needed.
    core: AtomicPtr<Core>,
    /// Invariant: a task may write what it borrows for `'a`.
    borrows: PhantomData<UnsafeCell<&'a ()>>,
}

// SAFETY: its tasks are `Send`, and a core is `Sync`.
unsafe impl Send for Executor<'_> {}
// SAFETY: as above.
unsafe impl Sync for Executor<'_> {}
impl UnwindSafe for Executor<'_> {}
impl RefUnwindSafe for Executor<'_> {}

impl<'a> Executor<'a> {
    /// An executor without tasks. Allocates nothing.
    ///
    /// # Examples
    /// ```
    /// static EXECUTOR: paceline::Executor<'static> = paceline::Executor::new();
    /// let task = EXECUTOR.spawn(async { 1 });
    /// assert_eq!(paceline::block_on(EXECUTOR.run(task)), 1);
    /// ```
    pub const fn new() -> Self {
        Executor { core: AtomicPtr::new(ptr::null_mut()), borrows: PhantomData }
    }

    #[inline]
    fn core(&self) -> &Core {
        // Acquire: pairs with the release in `make_core`.
        let core = self.core.load(Acquire);
        let core = if core.is_null() { self.make_core() } else { core };
        // SAFETY: it lives until `drop`.
        unsafe { &*core }
    }

    #[cold]
    fn make_core(&self) -> *const Core {
        let new = Arc::into_raw(Arc::new(Core::new())).cast_mut();
        match self.core.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Arc::from_raw(new) });
                other
            }
        }
    }

    /// Whether there is no task that has not finished.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::Executor::new();
    /// assert!(executor.is_empty());
    /// let task = executor.spawn(async {});
    /// assert!(!executor.is_empty());
    /// assert!(executor.try_tick() && executor.is_empty());
    /// # drop(task);
    /// ```
    pub fn is_empty(&self) -> bool {
        // Acquire: as in `core`.
        self.core.load(Acquire).is_null() || self.core().alive() == 0
    }

    /// Spawns a task, which runs when somebody [`run`](Executor::run)s or [`tick`](Executor::tick)s the
    /// executor. Dropping the [`Task`] cancels it.
    ///
    /// From one of its own tasks it goes to the tail of the queue of the `run` that polls that task.
    #[inline]
    #[track_caller]
    pub fn spawn<T: Send + 'a>(&self, future: impl Future<Output = T> + Send + 'a) -> Task<T> {
        // SAFETY: what it borrows lives for `'a`, longer than this executor, whose drop drops it.
        unsafe { self.core().spawn(Location::caller(), future) }
    }

    /// Spawns many tasks at once, for less than one by one, and adds them to `handles`.
    ///
    /// If the iterator panics, those that it gave before are spawned, and cancelled with their handles.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::Executor::new();
    /// let mut tasks = Vec::new();
    /// executor.spawn_many((0..100).map(|i| async move { i }), &mut tasks);
    /// let sum = executor.run(async {
    ///     let mut sum = 0;
    ///     for task in tasks {
    ///         sum += task.await;
    ///     }
    ///     sum
    /// });
    /// assert_eq!(paceline::block_on(sum), 4950);
    /// ```
    #[track_caller]
    pub fn spawn_many<T: Send + 'a, F: Future<Output = T> + Send + 'a>(
        &self,
        futures: impl IntoIterator<Item = F>,
        handles: &mut impl Extend<Task<F::Output>>,
    ) {
        /// As many as are made known at once: none waits for long.
        const BATCH: usize = 512;
        struct Batch<'e> {
            core: &'e Core,
            runnables: Vec<Runnable>,
        }
        impl Drop for Batch<'_> {
            fn drop(&mut self) {
                self.core.inject_many(self.runnables.drain(..));
            }
        }
        let at = Location::caller();
        let mut batch = Batch { core: self.core(), runnables: Vec::new() };
        handles.extend(futures.into_iter().map(|future| {
            let here = runner::here(batch.core);
            // SAFETY: as in `spawn`.
            let (runnable, task) = unsafe { batch.core.counted(here, at, future) };
            batch.runnables.push(runnable);
            if batch.runnables.len() == BATCH {
                batch.core.inject_many(batch.runnables.drain(..));
            }
            task
        }));
    }

    /// Runs one task that is scheduled, wherever it waits. False if there is none, or if another thread is
    /// just taking what there is.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::Executor::new();
    /// assert!(!executor.try_tick());
    /// executor.spawn(async {}).detach();
    /// assert!(executor.try_tick());
    /// ```
    pub fn try_tick(&self) -> bool {
        self.core().try_tick()
    }

    /// Runs one task, as soon as one is scheduled.
    ///
    /// # Cancel safety
    /// A tick that is dropped has run nothing, and keeps nobody else from it.
    pub async fn tick(&self) {
        self.core().tick().await;
    }

    /// Runs tasks until `future` is ready, and gives its output.
    ///
    /// It polls `future` when that was woken, and tasks in between; after 127 polls, or the first poll that
    /// ends 200 µs later, it gives way to the outer executor. With nothing to do it waits there, and costs nothing. Where others `run` the
    /// executor as well, tasks are shared; a task that talks with one that waits for its turn here is
    /// left here, unless a poll lasts.
    ///
    /// # Panics
    /// If `future` does. A task's panic goes to who awaits the task.
    ///
    /// # Cancel safety
    /// What it has not run yet is left to others, or for later, if it is dropped.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::Executor::new();
    /// let task = executor.spawn(async { 6 * 7 });
    /// let answer = futures::executor::block_on(executor.run(async { task.await }));
    /// assert_eq!(answer, 42);
    /// ```
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut runner = Runner::new(self.core());
        poll_fn(move |cx| runner.poll(cx, |cx| future.as_mut().poll(cx))).await
    }

    /// Runs what there is to run, for at most about `budget`: a host's turn of the loop. True if
    /// nothing is left to run; false if the budget was over first.
    ///
    /// It looks at the clock after every poll, so that it takes a poll too long at most; with a budget of
    /// zero it runs one task.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let executor = paceline::Executor::new();
    /// let task = executor.spawn(async { 1 });
    /// assert!(executor.run_until_stalled(Duration::from_millis(5)));
    /// assert!(task.is_finished());
    /// ```
    pub fn run_until_stalled(&self, budget: Duration) -> bool {
        runner::take_turn(self.core(), budget)
    }

    /// Sets whom to tell that there is something to run again: `callback` is called once after each
    /// [`run_until_stalled`](Executor::run_until_stalled) that returned true, as soon as a task is
    /// scheduled; and once after this, at once if one is already. On whichever thread that happens;
    /// it should only make the host's loop take its turn.
    ///
    /// Where `run`s sleep as well, one of them is called too, and whoever is first runs the task. After a
    /// turn that returned false nobody is told: take the next one soon. Turns are one thread's at a time. A
    /// panic in the callback goes to the panic hook only.
    ///
    /// # Examples
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// let executor = paceline::Executor::new();
    /// let (sender, wakes) = mpsc::channel();
    /// executor.on_ready(move || sender.send(()).unwrap());
    /// executor.spawn(async {}).detach();
    /// assert_eq!(wakes.recv(), Ok(())); // the host sleeps here
    /// assert!(executor.run_until_stalled(Duration::from_millis(5)));
    /// ```
    pub fn on_ready(&self, callback: impl Fn() + Send + Sync + 'static) {
        self.core().set_host(Arc::new(callback));
    }
}

impl Drop for Executor<'_> {
    fn drop(&mut self) {
        let core = *self.core.get_mut();
        if core.is_null() {
            return;
        }
        // SAFETY: from `make_core`, once.
        let core = unsafe { Arc::from_raw(core) };
        core.close();
    }
}

impl Default for Executor<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Executor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Acquire: as in `core`.
        if self.core.load(Acquire).is_null() {
            return f.write_str("Executor { tasks: 0 }");
        }
        let mut fields = f.debug_struct("Executor");
        self.core().describe(&mut fields);
        fields.finish()
    }
}

impl futures_task::Spawn for Executor<'_> {
    #[track_caller]
    fn spawn_obj(
        &self,
        future: futures_task::FutureObj<'static, ()>,
    ) -> Result<(), futures_task::SpawnError> {
        self.spawn(future).detach();
        Ok(())
    }
}
