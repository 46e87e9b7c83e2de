//! What a task does about code that blocks: [`unblock`] moves it to a thread of the pool,
//! [`block_in_place`] lets another thread work meanwhile. Knows neither of them from inside; see
//! [`crate::pool`] and [`crate::worker`].

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use crate::contain::contain;
use crate::current;
use crate::pool;
use crate::processor::Lease;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::task::with_contained_waker;
use crate::worker;

/// A job that goes on while no task runs: as long as there is one, nothing is deadlocked.
pub(crate) struct Outstanding(Arc<Shared>);

impl Outstanding {
    pub(crate) fn begin(shared: Arc<Shared>) -> Self {
        shared.outside.job_begins();
        Outstanding(shared)
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.outside.job_ends();
        self.0.rouse_census();
    }
}

/// Runs `f`, which may block, on a thread made for that; the output is that of the future.
///
/// There are as many threads as there are jobs at once, up to 512; one that has had nothing to do for
/// 10 s ends. They are shared by all runtimes of the process, and no runtime waits for them.
///
/// # Panics
/// The future panics as `f` does. `unblock` itself panics if there is no thread and none can be started;
/// in a process that was forked from one that has called it.
///
/// # Cancel safety
/// Dropping the future drops `f`, unless it has begun: then it goes on, and its output is dropped.
///
/// # Examples
/// ```
/// let length = paceline::block_on(async {
///     paceline::unblock(|| std::fs::read("Cargo.toml").map(|bytes| bytes.len())).await
/// })?;
/// assert!(length > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn unblock<T, F>(f: F) -> Unblock<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match try_unblock(f) {
        Ok(unblock) => unblock,
        Err(error) => panic!("{error}"),
    }
}

/// As [`unblock`], where a thread that cannot be started is an error.
#[track_caller]
pub(crate) fn try_unblock<T, F>(f: F) -> io::Result<Unblock<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // It never waits, so it is never scheduled.
    let future = async move { catch_unwind(AssertUnwindSafe(f)) };
    let (runnable, task) = async_task::spawn(future, |_| unreachable!("a job is run once"));
    // Given up after the job's future has woken who awaits it.
    let outstanding = current::shared().map(Outstanding::begin);
    let job = move || {
        contain(|| {
            runnable.run();
        });
        drop(outstanding);
    };
    match pool::run(job) {
        Ok(()) => Ok(Unblock { task }),
        Err(error) => {
            let message = format!("no thread could be started for a job that blocks: {error}");
            Err(io::Error::new(error.kind(), message))
        }
    }
}

/// The future of [`unblock`].
#[must_use = "dropping it drops the job, unless that has begun; call `.detach()` to let it run"]
pub struct Unblock<T> {
    task: async_task::Task<thread::Result<T>>,
}

impl<T> Unblock<T> {
    /// Lets the job run on its own. Its output is dropped, a panic goes to the panic hook only.
    pub fn detach(self) {
        self.task.detach();
    }

    /// Whether the job has finished or panicked.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<T> Future for Unblock<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let outcome = with_contained_waker(cx, |cx| Pin::new(&mut self.task).poll(cx));
        outcome.map(|outcome| outcome.unwrap_or_else(|payload| resume_unwind(payload)))
    }
}

impl<T> fmt::Debug for Unblock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unblock").field("is_finished", &self.is_finished()).finish()
    }
}

/// Runs `f`, which may block, on the calling thread; where that is in the middle of a task's poll or a
/// `block_on`, another thread works in its place meanwhile.
///
/// Afterwards the thread goes on as a worker if there is a worker's place free; if not, it finishes the
/// poll beside the others. May be nested, and `f` may call `block_on`. Outside of a runtime it just calls
/// `f`. For a whole task that blocks, [`unblock`] costs less: this one may have to start a worker thread.
///
/// If no other thread can be had, `f` runs all the same, and the other tasks wait for it.
///
/// # Panics
/// If `f` does.
///
/// # Examples
/// ```
/// let answer = paceline::block_on(paceline::spawn(async {
///     paceline::block_in_place(|| paceline::block_on(async { 42 }))
/// }));
/// assert_eq!(answer, 42);
/// ```
pub fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
    /// Also if `f` panics.
    struct TakeBack {
        had_processor: bool,
        outstanding: Vec<Outstanding>,
    }
    impl Drop for TakeBack {
        fn drop(&mut self) {
            if self.had_processor {
                worker::take_back();
            }
            self.outstanding.clear();
        }
    }
    let outstanding = current::frames_of(|_| true).into_iter().map(Outstanding::begin).collect();
    // Where no thread can be had, the work waits in the injector.
    let give_up = |lease: Lease<'_>| drop(worker::give_up(lease));
    let had_processor = current::with_lease(|lease| lease.map(give_up)).is_some();
    current::give_up_outer(give_up);
    let _take_back = TakeBack { had_processor, outstanding };
    f()
}
