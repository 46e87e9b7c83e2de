//! The executor for one thread: who runs its tasks, in which order, and who is told that there are some.

use std::cell::{OnceCell, UnsafeCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_task::{FutureObj, LocalFutureObj, LocalSpawn, Spawn, SpawnError};

use crate::executor::home::{Home, Listed};
use crate::executor::local_task::{self, Main};
use crate::executor::signal::Signal;
use crate::slice;
use crate::sync::Arc;
use crate::task::Task;

/// An executor for one thread, whose futures need not be `Send`; without a thread of its own, to run
/// inside any other executor.
///
/// A task that is woken by the running task runs next, on what is left of its timeslice; all others go to
/// the queue's tail. Nothing is atomic in a spawn, a wake or a poll on the executor's own thread.
///
/// Tasks may be woken, and their handles awaited, cancelled and dropped, on every thread. Their futures
/// are polled and dropped on this one.
///
/// Dropping the executor cancels its tasks: all futures are dropped when it returns.
///
/// # Examples
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// let executor = paceline::LocalExecutor::new();
/// let total = Rc::new(Cell::new(0));
/// let task = executor.spawn({
///     let total = total.clone();
///     async move { total.set(total.get() + 1) }
/// });
/// paceline::block_on(executor.run(task));
/// assert_eq!(total.get(), 1);
/// ```
pub struct LocalExecutor<'a> {
    /// Made when it is first needed.
    home: OnceCell<Arc<Home>>,
    /// Of one thread; and invariant, since it takes futures and drops them.
    marker: PhantomData<(Rc<()>, UnsafeCell<&'a ()>)>,
}

impl UnwindSafe for LocalExecutor<'_> {}
impl RefUnwindSafe for LocalExecutor<'_> {}

impl Default for LocalExecutor<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Says where the tasks that wait were spawned.
impl fmt::Debug for LocalExecutor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Waited<'a>(Option<&'a Home>);
        impl fmt::Debug for Waited<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let waited = self.0.into_iter().flat_map(Home::waited);
                let places = waited.map(|task| task.spawned_at().to_string());
                f.debug_list().entries(places).finish()
            }
        }
        f.debug_struct("LocalExecutor")
            .field("is_empty", &self.is_empty())
            .field("waited", &Waited(self.home.get().map(|home| &**home)))
            .finish()
    }
}

impl<'a> LocalExecutor<'a> {
    /// An executor without tasks.
    ///
    /// # Examples
    /// ```
    /// thread_local! {
    ///     static EXECUTOR: paceline::LocalExecutor<'static> = const { paceline::LocalExecutor::new() };
    /// }
    /// assert!(EXECUTOR.with(|executor| executor.is_empty()));
    /// ```
    pub const fn new() -> Self {
        LocalExecutor { home: OnceCell::new(), marker: PhantomData }
    }

    /// With or without a wake slot, and with slices of that length.
    pub(crate) fn with(wake_slot: bool, timeslice: Duration) -> Self {
        let home = OnceCell::from(Home::new(wake_slot, timeslice));
        LocalExecutor { home, marker: PhantomData }
    }

    /// As `drop`, which then finds no task.
    pub(crate) fn cancel_all(&self) {
        if let Some(home) = self.home.get() {
            home.close();
        }
    }

    #[inline]
    fn home(&self) -> &Arc<Home> {
        self.home.get_or_init(|| Home::new(true, slice::DEFAULT))
    }

    /// Whether there are no unfinished tasks.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::LocalExecutor::new();
    /// executor.spawn(async {}).detach();
    /// assert!(!executor.is_empty());
    /// assert!(executor.try_tick());
    /// assert!(executor.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.home.get().is_none_or(|home| home.is_empty())
    }

    /// Spawns a task: it goes to the tail of the queue.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::LocalExecutor::new();
    /// let task = executor.spawn(async { 1 + 2 });
    /// assert_eq!(paceline::block_on(executor.run(task)), 3);
    /// ```
    #[track_caller]
    #[inline]
    pub fn spawn<T: 'a>(&self, future: impl Future<Output = T> + 'a) -> Task<T> {
        self.spawn_at(Location::caller(), future)
    }

    #[inline]
    fn spawn_at<T: 'a>(
        &self,
        spawned_at: &'static Location<'static>,
        future: impl Future<Output = T> + 'a,
    ) -> Task<T> {
        let home = self.home();
        // SAFETY: `home` is this thread's, and `drop` keeps it until all tasks have ended and no claim
        // is under way; it drops the future before `'a` is over.
        let (task, handle) = unsafe { local_task::make(Arc::as_ptr(home), spawned_at, future) };
        home.spawn(task);
        Task::local(handle)
    }

    /// Spawns a task for each future.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::LocalExecutor::new();
    /// let mut tasks = Vec::new();
    /// executor.spawn_many((0..3).map(std::future::ready), &mut tasks);
    /// let total = paceline::block_on(executor.run(async {
    ///     let mut total = 0;
    ///     for task in tasks {
    ///         total += task.await;
    ///     }
    ///     total
    /// }));
    /// assert_eq!(total, 3);
    /// ```
    #[track_caller]
    pub fn spawn_many<T: 'a, F: Future<Output = T> + 'a>(
        &self,
        futures: impl IntoIterator<Item = F>,
        handles: &mut impl Extend<Task<F::Output>>,
    ) {
        let spawned_at = Location::caller();
        handles.extend(futures.into_iter().map(|future| self.spawn_at(spawned_at, future)));
    }

    /// Polls one task, if one is to be polled. False if not.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::LocalExecutor::new();
    /// assert!(!executor.try_tick());
    /// executor.spawn(async {}).detach();
    /// assert!(executor.try_tick());
    /// ```
    pub fn try_tick(&self) -> bool {
        let Some(home) = self.home.get() else { return false };
        let _turn = Turn::begin(home);
        tick(home)
    }

    /// Polls one task; waits until there is one to be polled.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::LocalExecutor::new();
    /// executor.spawn(async {}).detach();
    /// paceline::block_on(executor.tick());
    /// assert!(executor.is_empty());
    /// ```
    pub async fn tick(&self) {
        if self.try_tick() {
            return;
        }
        let mut run = Run::new(self.home());
        poll_fn(|cx| run.poll_tick(cx)).await
    }

    /// Runs tasks until `future` is ready. There may be several at once, on the one thread.
    ///
    /// `future` is polled when it is woken, in turn with the tasks. After 127 polls, or when 200 µs are
    /// over, the executor around this one has its turn. While polls are short the clock is read after 64
    /// of them: where they suddenly take long, that turn comes up to 64 of those late, 66 after a rest,
    /// and so may the next; from then on it comes with the first that ends beyond the 200 µs, after two
    /// at the least.
    ///
    /// # Cancel safety
    /// Nothing but `future` is lost if it is dropped.
    ///
    /// # Examples
    /// ```
    /// let executor = paceline::LocalExecutor::new();
    /// let task = executor.spawn(async { 1 + 2 });
    /// let result = paceline::block_on(executor.run(async { task.await * 2 }));
    /// assert_eq!(result, 6);
    /// ```
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        // Gone after the future, whose destructor may wake tasks.
        let mut run = Run::new(self.home());
        // SAFETY: `home` is this thread's. The run borrows the executor, and so its end comes before that of
        // `home`; one that was leaked is never touched again.
        run.main = Some(unsafe { Main::new(run.home, run.signal.clone()) });
        let mut future = pin!(future);
        poll_fn(|cx| run.poll(future.as_mut(), cx)).await
    }

    /// Runs tasks for as long as `budget`, at least one if there is one. True if nothing is left to run;
    /// then the callback of [`on_ready`](Self::on_ready) is called when there is again.
    ///
    /// For a host that has a loop of its own, such as that of a window system.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let executor = paceline::LocalExecutor::new();
    /// let mut tasks = Vec::new();
    /// executor.spawn_many([std::future::ready(1), std::future::ready(2)], &mut tasks);
    /// assert!(!executor.run_until_stalled(Duration::ZERO));
    /// assert!(executor.run_until_stalled(Duration::from_secs(1)));
    /// ```
    pub fn run_until_stalled(&self, budget: Duration) -> bool {
        let home = self.home();
        home.disarm();
        let _turn = Turn::begin(home);
        let begun = Instant::now();
        loop {
            if tick(home) {
                if begun.elapsed() >= budget && home.has_work() {
                    return false;
                }
            } else if home.arm() {
                return true;
            }
        }
    }

    /// Has `callback` called, once, when there is something to run: at once if there is already; then
    /// after every [`run_until_stalled`](Self::run_until_stalled) that has returned true. It replaces the
    /// one before.
    ///
    /// It is called by whoever wakes a task, on its thread, and should do no more than to have a host
    /// come round to `run_until_stalled`. Where a [`run`](Self::run) waits as well, it is called too,
    /// and whoever is first runs the task. A panic in it goes to the panic hook only.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let executor = paceline::LocalExecutor::new();
    /// let (sender, events) = mpsc::channel();
    /// executor.on_ready(move || sender.send(()).unwrap());
    /// executor.spawn(async {}).detach();
    /// assert_eq!(events.try_recv(), Ok(()));
    /// assert!(executor.run_until_stalled(Duration::from_millis(1)));
    /// ```
    pub fn on_ready(&self, callback: impl Fn() + Send + Sync + 'static) {
        let home = self.home();
        home.set_host(std::sync::Arc::new(callback));
        if !home.arm() {
            home.call_host();
        }
    }
}

impl Drop for LocalExecutor<'_> {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

impl LocalSpawn for LocalExecutor<'_> {
    #[track_caller]
    fn spawn_local_obj(&self, future: LocalFutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.spawn(future).detach();
        Ok(())
    }
}

impl Spawn for LocalExecutor<'_> {
    #[track_caller]
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.spawn(future).detach();
        Ok(())
    }
}

/// A time in which somebody looks for work.
struct Turn<'a>(&'a Home);

impl<'a> Turn<'a> {
    fn begin(home: &'a Home) -> Self {
        home.wake_up();
        Turn(home)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

/// One task, and a look up if it is time.
#[inline]
fn tick(home: &Home) -> bool {
    let ran = home.run_one();
    if home.is_due() {
        home.look_up();
    }
    ran
}

/// A `run` or a `tick`.
struct Run<'a> {
    home: &'a Arc<Home>,
    signal: Arc<Signal>,
    /// A `tick` has none.
    main: Option<Main>,
    /// The executor around this one has had its turn.
    gave_way: bool,
}

impl<'a> Run<'a> {
    fn new(home: &'a Arc<Home>) -> Self {
        Run { home, signal: Arc::new(Signal::new()), main: None, gave_way: false }
    }

    #[inline]
    fn wake_up(&self) {
        self.home.wake_up();
        self.main.iter().for_each(Main::begin);
    }

    #[inline]
    fn fall_asleep(&self) {
        self.home.fall_asleep();
        self.main.iter().for_each(Main::pause);
    }

    #[inline]
    fn begin(&mut self) {
        self.signal.begin();
        self.wake_up();
        if std::mem::take(&mut self.gave_way) {
            // The time since is not that of polls.
            self.home.look_up();
        }
    }

    fn poll<F: Future>(&mut self, mut main: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let home = self.home;
        self.begin();
        loop {
            let mut found = false;
            if let Some(waker) = self.main.as_ref().and_then(Main::take_woken) {
                found = true;
                let poll = main.as_mut().poll(&mut Context::from_waker(&waker));
                home.count_poll();
                if poll.is_ready() {
                    return poll;
                }
            }
            found |= home.run_one();
            if home.is_due() {
                if found {
                    return self.give_way(cx);
                }
                home.look_up();
            }
            if !found && self.rest(cx) {
                return Poll::Pending;
            }
        }
    }

    fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.begin();
        loop {
            if tick(self.home) {
                return Poll::Ready(());
            }
            if self.rest(cx) {
                return Poll::Pending;
            }
        }
    }

    /// To be polled again at once, when the executor around this one has had its turn.
    #[cold]
    fn give_way<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.gave_way = true;
        // What is left is another's, if one sleeps: this one may not be polled for long.
        self.home.give_way();
        self.main.iter().for_each(Main::pause);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// There was nothing to do. False if there is by now.
    #[cold]
    fn rest(&self, cx: &mut Context<'_>) -> bool {
        if self.signal.is_called() {
            self.signal.begin();
            return false;
        }
        // From here on whoever wakes a task calls.
        self.fall_asleep();
        let rests = !self.main.as_ref().is_some_and(Main::is_woken)
            && self.home.list(Listed::Run(self.signal.clone()))
            && self.signal.rest(cx.waker());
        if !rests {
            self.wake_up();
        }
        rests
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.home.unlist(&Listed::Run(self.signal.clone()));
        self.signal.retire();
        // Whoever called this one is answered by another.
        self.home.pass_on();
    }
}
