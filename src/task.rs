//! From a future to a runnable and a [`Task`]: the seam to async-task. Where panics are caught.
//! Knows of scheduling only whom to hand a new runnable, and what a [`Scheduler`] is asked.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::ptr::{self, NonNull};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use async_task::{ScheduleInfo, WithInfo};

use crate::contain::contain;
use crate::current;
use crate::executor::LocalHandle;
use crate::identity::{Identity, TaskInfo};
use crate::joiner::Joiner;
use crate::processor::Lease;
use crate::registry::Place;
use crate::shared::{Meta, Runnable, Shared};
use crate::sync::Arc;

/// A spawned task: a future of its output.
///
/// **Dropping a `Task` cancels it** (tokio's `JoinHandle` detaches): call [`detach`](Task::detach)
/// to let it run on its own. A cancelled task's future is dropped by a worker soon afterwards;
/// [`cancel`](Task::cancel) waits for that.
///
/// # Panics
/// Awaiting a `Task` panics with the task's own panic if it panicked, and with a message that says
/// so if its runtime was dropped before it finished. [`join`](Task::join) gives a `Result`
/// instead, [`fallible`](Task::fallible) an `Option`.
///
/// # Cancel safety
/// Polling it in a `select!` by `&mut` loses nothing; dropping it cancels the task.
///
/// # Examples
/// ```
/// let sum = paceline::block_on(async {
///     let task = paceline::spawn(async { 1 + 2 });
///     task.await
/// });
/// assert_eq!(sum, 3);
/// ```
#[must_use = "dropping a task cancels it; call `.detach()` to let it run on its own"]
pub struct Task<T>(Kind<T>);

enum Kind<T> {
    Shared {
        inner: async_task::FallibleTask<Outcome<T>, Meta>,
        /// In the allocation that `inner` keeps.
        meta: NonNull<Meta>,
    },
    /// Of a [`LocalExecutor`](crate::LocalExecutor).
    Local(LocalHandle<T>),
}

const _: () = assert!(size_of::<Task<u8>>() == 2 * size_of::<usize>());

// SAFETY: `meta` is `Sync` and stays where it is; the rest is what the handles make of it.
unsafe impl<T: Send> Send for Task<T> {}
// SAFETY: as above; through a shared reference nothing but `is_finished` can be called.
unsafe impl<T> Sync for Task<T> {}
impl<T> UnwindSafe for Task<T> {}
impl<T> RefUnwindSafe for Task<T> {}

impl<T> Task<T> {
    /// Lets the task run on its own. Its output is dropped, a panic goes to the panic hook only.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// paceline::spawn(async move { sender.send(1).unwrap() }).detach();
    /// assert_eq!(receiver.recv(), Ok(1));
    /// ```
    pub fn detach(self) {
        match self.0 {
            Kind::Shared { inner, meta } => {
                // SAFETY: `inner` keeps the allocation.
                unsafe { meta.as_ref() }.joiner.detach();
                inner.detach();
            }
            Kind::Local(handle) => handle.detach(),
        }
    }

    pub(crate) fn local(handle: LocalHandle<T>) -> Self {
        Task(Kind::Local(handle))
    }

    /// Cancels the task and waits until its future is dropped. The output, if it had finished.
    ///
    /// # Panics
    /// With the task's own panic, if it had panicked.
    ///
    /// # Cancel safety
    /// The task is cancelled even if this future is dropped.
    ///
    /// # Examples
    /// ```
    /// paceline::block_on(async {
    ///     let task = paceline::spawn(std::future::pending::<()>());
    ///     assert_eq!(task.cancel().await, None);
    /// });
    /// ```
    pub async fn cancel(self) -> Option<T> {
        let result = match self.0 {
            Kind::Shared { inner, .. } => {
                let mut cancelled = pin!(inner.cancel());
                poll_fn(|cx| with_contained_waker(cx, |cx| cancelled.as_mut().poll(cx)))
                    .await
                    .map(Outcome::into_result)
            }
            Kind::Local(mut handle) => {
                handle.cancel();
                poll_fn(|cx| handle.poll_join(cx)).await
            }
        };
        result.map(|result| result.unwrap_or_else(|payload| resume_unwind(payload)))
    }

    /// Whether the task has finished, panicked, or been cancelled.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Shared { inner, .. } => inner.is_finished(),
            Kind::Local(handle) => handle.is_finished(),
        }
    }

    /// A future of `Some` output, or of `None` if the task was cancelled.
    ///
    /// # Panics
    /// With the task's own panic.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the task.
    ///
    /// # Examples
    /// ```
    /// let runtime = paceline::Runtime::new()?;
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// drop(runtime);
    /// assert_eq!(paceline::block_on(task.fallible()), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fallible(self) -> FallibleTask<T> {
        FallibleTask { task: self }
    }

    /// A future of the output, or of why there is none.
    ///
    /// # Errors
    /// If the task panicked, or was cancelled because its runtime was dropped.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the task.
    ///
    /// # Examples
    /// ```
    /// let result = paceline::block_on(async {
    ///     paceline::spawn(async { if true { panic!("out of cheese") } }).join().await
    /// });
    /// let error = result.unwrap_err();
    /// assert!(error.is_panic());
    /// assert_eq!(error.to_string(), "task panicked: out of cheese");
    /// ```
    pub async fn join(mut self) -> Result<T, JoinError> {
        poll_fn(|cx| self.poll_join(cx)).await
    }

    #[inline]
    fn poll_join(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let ended = match &mut self.0 {
            Kind::Local(handle) => handle.poll_join(cx),
            Kind::Shared { inner, meta } => {
                // SAFETY: `inner` keeps the allocation.
                Self::poll_shared(inner, unsafe { &meta.as_ref().joiner }, cx)
            }
        };
        ended.map(|result| match result {
            None => Err(JoinError(Failure::Cancelled)),
            Some(result) => result.map_err(|payload| JoinError(Failure::Panicked(payload.into()))),
        })
    }

    fn poll_shared(
        mut inner: &mut async_task::FallibleTask<Outcome<T>, Meta>,
        joiner: &Joiner<Waker>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<thread::Result<T>>> {
        // SAFETY: this is the task's one handle, borrowed mutably.
        let waits = !inner.is_finished() && unsafe { joiner.wait(|old| renew(old, cx.waker())) };
        if waits {
            return Poll::Pending;
        }
        // The task has ended; or it is ending on another thread, and async-task tells when it has.
        let ended = match Pin::new(&mut inner).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => with_contained_waker(cx, |cx| Pin::new(&mut inner).poll(cx)),
            ready => ready,
        };
        ended.map(|outcome| outcome.map(Outcome::into_result))
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.poll_join(cx).map(|result| match result {
            Ok(output) => output,
            Err(JoinError(Failure::Cancelled)) => panic!(
                "the awaited task was cancelled, since its runtime stopped before it finished or \
                 was spawned; or its output had been taken by an earlier poll. (`join` and \
                 `fallible` do not panic here.)"
            ),
            Err(error) => resume_unwind(error.into_panic()),
        })
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("is_finished", &self.is_finished()).finish()
    }
}

/// A task whose cancellation is no panic: a future of `Some` output, or of `None` if it was cancelled.
/// What [`Task::fallible`] returns.
///
/// **Dropping it cancels the task.**
///
/// # Panics
/// Awaiting it panics with the task's own panic if it panicked.
///
/// # Cancel safety
/// Polling it in a `select!` by `&mut` loses nothing; dropping it cancels the task.
#[must_use = "dropping a task cancels it; call `.detach()` to let it run on its own"]
pub struct FallibleTask<T> {
    task: Task<T>,
}

impl<T> FallibleTask<T> {
    /// As [`Task::detach`].
    pub fn detach(self) {
        self.task.detach();
    }

    /// As [`Task::cancel`].
    ///
    /// # Panics
    /// With the task's own panic, if it had panicked.
    pub async fn cancel(self) -> Option<T> {
        self.task.cancel().await
    }

    /// As [`Task::is_finished`].
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<T> Future for FallibleTask<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.task.poll_join(cx).map(|result| match result {
            Ok(output) => Some(output),
            Err(JoinError(Failure::Cancelled)) => None,
            Err(error) => resume_unwind(error.into_panic()),
        })
    }
}

impl<T> fmt::Debug for FallibleTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallibleTask").field("is_finished", &self.is_finished()).finish()
    }
}

/// Why a task has no output.
pub struct JoinError(Failure);

enum Failure {
    Cancelled,
    /// The lock is never contended; it makes the error `Sync`, as errors should be.
    Panicked(std::sync::Mutex<Box<dyn Any + Send>>),
}

impl JoinError {
    /// The task was cancelled, since its runtime was dropped.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Failure::Cancelled)
    }

    /// The task panicked.
    pub fn is_panic(&self) -> bool {
        !self.is_cancelled()
    }

    /// What the task panicked with, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// If the task was cancelled instead.
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.0 {
            Failure::Panicked(payload) => payload.into_inner().unwrap_or_else(|p| p.into_inner()),
            Failure::Cancelled => panic!("the task was cancelled, it did not panic"),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure::Panicked(payload) = &self.0 else {
            return f.write_str("task was cancelled");
        };
        let payload = payload.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let message = payload.downcast_ref::<&str>().copied();
        match message.or_else(|| payload.downcast_ref::<String>().map(String::as_str)) {
            Some(message) => write!(f, "task panicked: {message}"),
            None => f.write_str("task panicked"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}

/// What a future ended with. Its destructor, if nobody took it, panics into nobody's face.
pub(crate) struct Outcome<T>(pub(crate) Option<thread::Result<T>>);

impl<T> Outcome<T> {
    pub(crate) fn of(f: impl FnOnce() -> T) -> Self {
        Outcome(Some(catch_unwind(AssertUnwindSafe(f))))
    }

    pub(crate) fn into_result(mut self) -> thread::Result<T> {
        self.0.take().expect("taken only here, by value")
    }
}

impl<T> Drop for Outcome<T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            contain(|| drop(self.0.take()));
        }
    }
}

/// The waker to leave instead of `old`.
#[inline]
pub(crate) fn renew(old: Option<Waker>, new: &Waker) -> Waker {
    old.filter(|old| old.will_wake(new)).unwrap_or_else(|| new.clone())
}

/// Lets `poll` register a waker whose `wake` cannot panic: async-task would abort.
pub(crate) fn with_contained_waker<R>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
) -> Poll<R> {
    struct Contained(ManuallyDrop<Waker>);
    impl Wake for Contained {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }
        fn wake_by_ref(self: &Arc<Self>) {
            contain(|| self.0.wake_by_ref());
        }
    }
    impl Drop for Contained {
        fn drop(&mut self) {
            // SAFETY: dropped here, once.
            contain(|| unsafe { ManuallyDrop::drop(&mut self.0) });
        }
    }
    let waker = Waker::from(Arc::new(Contained(ManuallyDrop::new(cx.waker().clone()))));
    poll(&mut Context::from_waker(&waker))
}

/// What a task asks of the scheduler that it belongs to.
pub(crate) trait Scheduler: Sync {
    /// The task is to run (again); called by async-task.
    fn schedule(runnable: Runnable, info: ScheduleInfo);

    /// Whether no task is polled any more.
    fn is_closing(&self) -> bool;

    /// A task waits for the first time. None if nobody will wake it: the end has begun.
    fn register(&self, waker: &Waker, who: Identity) -> Option<Place>;

    /// The waker is to be dropped by the caller.
    fn unregister(&self, place: Place) -> Waker;

    /// Who is gone.
    fn forget(&self, who: Identity);

    /// A counted future has gone. The scheduler may have gone as well when this returns.
    ///
    /// # Safety
    /// It was counted, and is alive; `this` is not used any more on its behalf.
    unsafe fn leave(this: *const Self);
}

/// The future that async-task holds: the user's, counted and, once it waits, registered.
struct Tracked<F, S: Scheduler> {
    /// In the same allocation.
    meta: NonNull<Meta>,
    place: Option<Place>,
    future: ManuallyDrop<F>,
    of: PhantomData<*const S>,
}

// SAFETY: `Meta` and `S` are `Sync`; the rest is what `F` makes of it.
unsafe impl<F: Send, S: Scheduler> Send for Tracked<F, S> {}

impl<F: Future, S: Scheduler> Future for Tracked<F, S> {
    type Output = Outcome<F::Output>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: a counted future keeps its scheduler alive; one that is not is never polled.
        let scheduler = unsafe { &*self.scheduler() };
        if scheduler.is_closing() {
            // Not polled any more. If the end's wake found the task scheduled, it happened before
            // this poll, and so did `closing`; if it comes during a poll, there is one more. Either
            // way the task is scheduled once more, and dropped.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // SAFETY: nothing is moved out; `future` is pinned as `self` is, until it is dropped.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut *this.future) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => {
                if this.place.is_none() {
                    this.register(scheduler, cx.waker());
                }
                Poll::Pending
            }
            Ok(Poll::Ready(output)) => {
                this.finish();
                Poll::Ready(Outcome(Some(Ok(output))))
            }
            Err(payload) => {
                this.finish();
                Poll::Ready(Outcome(Some(Err(payload))))
            }
        }
    }
}

impl<F, S: Scheduler> Tracked<F, S> {
    /// Null if the task was born cancelled.
    #[inline]
    fn scheduler(&self) -> *const S {
        self.meta().scheduler.cast()
    }

    #[inline]
    fn meta(&self) -> &Meta {
        // SAFETY: async-task keeps the metadata as long as the future, in one allocation.
        unsafe { self.meta.as_ref() }
    }

    #[cold]
    fn register(&mut self, scheduler: &S, waker: &Waker) {
        self.place = scheduler.register(waker, self.meta().identity);
        if self.place.is_none() {
            // The end has begun and nobody will wake this task: have it scheduled, and dropped.
            waker.wake_by_ref();
        }
    }

    /// Wakes who awaits the task. It may still be ending when they look: see `poll_join`.
    #[inline]
    fn finish(&self) {
        if let Some(waker) = self.meta().joiner.finish() {
            contain(|| waker.wake());
        }
    }
}

impl<F, S: Scheduler> Drop for Tracked<F, S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped here, once.
        contain(|| unsafe { ManuallyDrop::drop(&mut self.future) });
        self.finish();
        let this = self.scheduler();
        if this.is_null() {
            return;
        }
        // SAFETY: still counted, so the scheduler is alive.
        let scheduler = unsafe { &*this };
        if let Some(place) = self.place {
            drop(scheduler.unregister(place));
        }
        scheduler.forget(self.meta().identity);
        // SAFETY: counted until this call, and not touched after it.
        unsafe { S::leave(this) };
    }
}

/// A task of the scheduler's; the caller has counted it, unless `scheduler` is null.
///
/// # Safety
/// What the future borrows outlives the future: the scheduler's end drops it in time.
#[inline]
pub(crate) unsafe fn build<S: Scheduler, F>(
    scheduler: *const S,
    identity: Identity,
    future: F,
) -> (Runnable, Task<F::Output>)
where
    F: Future + Send,
    F::Output: Send,
{
    let track = |meta: &Meta| Tracked {
        meta: NonNull::from(meta),
        place: None,
        future: ManuallyDrop::new(future),
        of: PhantomData::<*const S>,
    };
    let builder = async_task::Builder::new().metadata(Meta {
        scheduler: scheduler.cast(),
        identity,
        joiner: Joiner::new(),
    });
    // SAFETY: future and output are `Send`; the caller answers for what the future borrows, and the
    // output is no older than the handle; the schedule function borrows nothing.
    let (runnable, task) = unsafe { builder.spawn_unchecked(track, WithInfo(S::schedule)) };
    let meta = NonNull::from(task.metadata());
    (runnable, Task(Kind::Shared { inner: task.fallible(), meta }))
}

/// Spawns from a worker: to the tail of its own queue.
#[inline]
pub(crate) fn spawn_here<F>(lease: Lease<'_>, info: TaskInfo, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    lease.processor.open.share.add();
    let identity = lease.shared.names.identify(info);
    // SAFETY: the future borrows nothing.
    let (runnable, task) = unsafe { build::<Shared, _>(lease.shared, identity, future) };
    lease.push(runnable);
    task
}

/// Spawns from anywhere. A scheduler that is closed gives a cancelled task.
///
/// # Panics
/// If no worker runs and no thread can be started; the task is cancelled then.
#[track_caller]
pub(crate) fn spawn_on<F>(shared: &Shared, info: TaskInfo, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if let Some(lease) = current::lease(shared) {
        return spawn_here(lease, info, future);
    }
    shared.origin.check();
    let counted = shared.stop.tally.enter();
    let (scheduler, identity) = match counted {
        true => (ptr::from_ref(shared), shared.names.identify(info)),
        false => (ptr::null(), Identity::NOBODY),
    };
    // SAFETY: the future borrows nothing.
    let (runnable, task) = unsafe { build(scheduler, identity, future) };
    if !counted || shared.stop.is_closing() {
        drop(runnable);
    } else if let Err(error) = shared.inject(runnable) {
        assert!(
            !shared.idle.is_all_idle(),
            "paceline could not start a worker thread, so this task is cancelled: {error}"
        );
    }
    task
}
