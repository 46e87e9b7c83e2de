//! What a task does about code that blocks: [`unblock`] moves it to a thread of the pool,
//! [`block_in_place`] lets another thread work meanwhile. Knows neither of them from inside; see
//! [`crate::pool`] and [`crate::worker`].

use std::fmt;
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::FallibleTask;

use crate::contain::contain;
use crate::current;
use crate::identity::Identity;
use crate::pool;
use crate::processor::Lease;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::task::{Outcome, with_contained_waker};
use crate::worker;

/// A job that goes on while no task runs: as long as there is one, nothing is deadlocked.
struct Outstanding(Arc<Shared>);

impl Outstanding {
    fn begin(shared: Arc<Shared>) -> Self {
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

/// What a panic in its destructor does not get out of: async-task would abort.
struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    fn new(value: T) -> Self {
        Contained(ManuallyDrop::new(value))
    }

    fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once; `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        // SAFETY: dropped here, once.
        contain(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// Runs `f`, which may block, on a thread made for that; the output is that of the future.
///
/// There are as many threads as there are jobs at once, up to 512; one that has had nothing to do for
/// 10 s ends. They are shared by all runtimes of the process and by lookups of host names, and no runtime
/// waits for them. In `f`, [`spawn`](crate::spawn) means the runtime that `unblock` was called on.
///
/// # Panics
/// The future panics as `f` does. `unblock` itself panics if there is no thread and none can be started.
///
/// # Cancel safety
/// Dropping the future has `f` dropped soon, unless it has begun: then it goes on, and its output is dropped.
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
    let (shared, f) = (current::shared(), Contained::new(f));
    let entered = shared.clone();
    let future = async move {
        let before = entered.map(current::enter);
        let outcome = Outcome::of(f.into_inner());
        before.into_iter().for_each(current::leave);
        outcome
    };
    // It never waits, so it is never scheduled.
    let (runnable, task) = async_task::spawn(future, |_| unreachable!("a job is run once"));
    // Given up after the job's future has woken who awaits it.
    let outstanding = shared.map(Outstanding::begin);
    let job = move || {
        contain(|| {
            runnable.run();
            drop(outstanding);
        });
    };
    match pool::run(job) {
        Ok(()) => Ok(Unblock { task: task.fallible(), outstanding: None }),
        Err(error) => {
            let message = format!("{NO_THREAD}: {error}. {MORE_THREADS}");
            Err(io::Error::new(error.kind(), message))
        }
    }
}

const NO_THREAD: &str = "no thread could be started for a job that blocks";
/// How to mend it.
const MORE_THREADS: &str =
    "Raise the limit on threads or memory (`ulimit -u`, `ulimit -v`, a container's pids limit)";

/// The future of [`unblock`].
#[must_use = "dropping it drops the job, unless that has begun; call `.detach()` to let it run"]
pub struct Unblock<T> {
    task: FallibleTask<Outcome<T>>,
    /// For the scheduler that awaits it, be it made elsewhere.
    outstanding: Option<Outstanding>,
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
        let this = &mut *self;
        match with_contained_waker(cx, |cx| Pin::new(&mut this.task).poll(cx)) {
            Poll::Ready(outcome) => {
                this.outstanding = None;
                let Some(outcome) = outcome else {
                    panic!(
                        "{NO_THREAD}, or its output had been taken by an earlier poll. {MORE_THREADS}"
                    )
                };
                Poll::Ready(outcome.into_result().unwrap_or_else(|payload| resume_unwind(payload)))
            }
            Poll::Pending => {
                if this.outstanding.is_none() {
                    this.outstanding = current::innermost().map(Outstanding::begin);
                }
                Poll::Pending
            }
        }
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
    struct TakeBack(Option<Identity>);
    impl Drop for TakeBack {
        fn drop(&mut self) {
            if let Some(polled) = self.0 {
                worker::take_back(polled);
            }
        }
    }
    if current::innermost().is_none_or(|shared| shared.origin.is_elsewhere()) {
        return f();
    }
    // Where no thread can be had, the work waits in the injector.
    let give_up = |lease: Lease<'_>| drop(worker::give_up(lease));
    let polled = current::with_lease(|lease| {
        lease.map(|lease| {
            current::set_adrift(true);
            let polled = lease.processor.open.polled();
            give_up(lease);
            polled
        })
    });
    current::give_up_outer(give_up);
    let _take_back = TakeBack(polled);
    f()
}
