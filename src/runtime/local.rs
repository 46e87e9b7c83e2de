//! A runtime of one thread: [`LocalRuntime`]. Two schedulers side by side: a [`LocalExecutor`] for its own
//! tasks, and a scheduler without threads for the reactor, and for tasks that are spawned from elsewhere.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr;
use std::time::{Duration, Instant};

use super::Handle;
use super::block_on::block_on;
use crate::config::Config;
use crate::contain::contain;
use crate::current;
use crate::executor::LocalExecutor;
use crate::executor::attention::Attention;
use crate::metrics::Metrics;
use crate::park::Bed;
use crate::runtime::Runtime;
use crate::shared::{Shared, Starter};
use crate::sync::atomic::{Ordering::SeqCst, fence};
use crate::sync::{Arc, Mutex, lock};
use crate::task::Task;
use crate::worker::Worker;

/// A runtime of one thread, for futures that need not be `Send`: with timers and sockets, without any
/// thread of its own.
///
/// For servers with a thread per core, each with its own runtime and listener (`SO_REUSEPORT`, see
/// [`TcpListener::bind_reuse_port`](crate::net::TcpListener::bind_reuse_port)), and for hosts with a loop of
/// their own (see [`run_until_stalled`](LocalRuntime::run_until_stalled)). A wake from the same thread
/// touches nothing that other threads do.
///
/// On its thread, [`spawn_local`] means it. So does [`spawn`](crate::spawn), whose tasks are `Send`: they
/// run here too. Other threads reach it through its [`handle`](LocalRuntime::handle), and by waking its
/// tasks. Nothing runs while the thread is neither in [`block_on`](LocalRuntime::block_on) nor in a turn.
///
/// **Dropping it cancels every task**; all futures are dropped when it returns.
///
/// # Examples
/// ```
/// use std::{cell::Cell, rc::Rc, time::Duration};
/// let runtime = paceline::LocalRuntime::new()?;
/// let count = Rc::new(Cell::new(0));
/// runtime.block_on(async {
///     let tasks: Vec<_> = (1..=10)
///         .map(|i| {
///             let count = count.clone();
///             paceline::spawn_local(async move {
///                 paceline::time::sleep(Duration::from_millis(i % 3)).await;
///                 count.set(count.get() + i);
///             })
///         })
///         .collect();
///     for task in tasks {
///         task.await;
///     }
/// });
/// assert_eq!(count.get(), 55);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LocalRuntime {
    /// Left as it is in a forked process.
    executor: ManuallyDrop<Box<LocalExecutor<'static>>>,
    runtime: Runtime,
    host: Arc<Host>,
}

/// Who is told when there is something to do between two turns. In a turn it looks; it comes unasked after
/// one that has left something.
struct Host {
    attention: Attention,
    callback: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Host {
    /// Nobody is to be told.
    fn comes(&self) {
        let _ = self.attention.call();
    }

    fn tell(&self) {
        if self.attention.call() {
            let callback = lock(&self.callback).clone();
            callback.into_iter().for_each(|callback| contain(|| callback()));
        }
    }
}

/// How long a turn stays with one of the two schedulers, as long as both have something to do.
const SHARE: Duration = Duration::from_micros(200);

thread_local! {
    // No destructor: usable from the destructors of other thread-locals.
    static INSIDE: Cell<*const LocalExecutor<'static>> = const { Cell::new(ptr::null()) };
}

/// This thread is inside of a local runtime, until this is dropped.
struct Inside(*const LocalExecutor<'static>);

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.0));
    }
}

impl LocalRuntime {
    /// A local runtime with default settings.
    ///
    /// # Errors
    /// None with default settings, as of now.
    pub fn new() -> io::Result<Self> {
        super::Builder::new().build_local()
    }

    pub(super) fn with(config: Config) -> Self {
        let host = Arc::new(Host { attention: Attention::new(), callback: Mutex::new(None) });
        host.comes();
        let tell = {
            let host = host.clone();
            move || host.tell()
        };
        let starter = Starter::Host { thread: current::thread_id(), tell: Box::new(tell) };
        let executor = LocalExecutor::with(config.wake_slot, config.timeslice);
        let shared = Shared::new(config, starter);
        LocalRuntime {
            executor: ManuallyDrop::new(Box::new(executor)),
            runtime: Runtime { handle: Handle { shared } },
            host,
        }
    }

    fn enter(&self) -> Inside {
        Inside(INSIDE.with(|inside| inside.replace(&**self.executor)))
    }

    /// Runs a future to its end on this thread, and tasks meanwhile.
    ///
    /// Inside of another runtime's task, that one's work is done by other threads meanwhile.
    ///
    /// # Panics
    /// If the future does. Inside of one of its own tasks: nobody could do its work. In a process that was
    /// forked from the one in which the runtime was made.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _inside = self.enter();
        block_on(&self.handle().shared, self.executor.run(future))
    }

    /// Spawns a task, to the tail of the queue. Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.executor.spawn(future)
    }

    /// A handle for other threads, and for what wants a [`Handle`]: its tasks are `Send`, and run on this
    /// thread, when it is in [`block_on`](LocalRuntime::block_on) or a turn.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// As [`Handle::metrics`]: a poll of all tasks that [`spawn_local`] made counts as one, as far as they
    /// follow one another.
    pub fn metrics(&self) -> Metrics {
        self.runtime.metrics()
    }

    /// Runs what there is to run, and wakes who waited for timers and sockets that are ready, for at most
    /// about `budget`: a host's turn of the loop. True if nothing is left to do now; false if the budget was
    /// over first.
    ///
    /// After true, a host sleeps until one of these: the callback of [`on_ready`](LocalRuntime::on_ready)
    /// is called; the [descriptor](LocalRuntime::descriptor) can be read from; the
    /// [next deadline](LocalRuntime::next_deadline) has come. After false, and after a
    /// [`block_on`](LocalRuntime::block_on), it takes its next turn without being told.
    ///
    /// # Panics
    /// As [`block_on`](LocalRuntime::block_on).
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// let runtime = paceline::LocalRuntime::new()?;
    /// let task = runtime.spawn(paceline::time::sleep(Duration::from_millis(2)));
    /// while !task.is_finished() {
    ///     while !runtime.run_until_stalled(Duration::from_millis(5)) {}
    ///     if let Some(deadline) = runtime.next_deadline() {
    ///         std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
    ///     }
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run_until_stalled(&self, budget: Duration) -> bool {
        let shared = &self.handle().shared;
        shared.check_entry();
        let called_at = Location::caller();
        let _inside = self.enter();
        current::within(shared, |_| self.take_turn(budget, called_at))
    }

    fn take_turn(&self, budget: Duration, called_at: &'static Location<'static>) -> bool {
        struct Leave<'a>(Worker<'a>);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        let begun = Instant::now();
        let shared = &self.handle().shared;
        let bed = Bed::new(shared.reactor.clone());
        let worker = Leave(Worker::new(shared, &bed, None));
        worker.0.acquire();
        loop {
            self.host.attention.begin();
            worker.0.begin_main(called_at);
            let share = || budget.saturating_sub(begun.elapsed()).min(SHARE);
            let stalled = self.executor.run_until_stalled(share());
            let (since, share) = (Instant::now(), share());
            let found = worker.0.take_turn(|| since.elapsed() < share);
            if stalled && !found {
                // Looks into the injector once more, and tells if there is something.
                worker.0.leave();
                if self.host.attention.rest() {
                    return true;
                }
                worker.0.acquire();
            }
            if begun.elapsed() >= budget {
                drop(worker);
                self.host.comes();
                return false;
            }
        }
    }

    /// Sets whom to tell that there is something to do again: `callback` is called once after each
    /// [`run_until_stalled`](LocalRuntime::run_until_stalled) that returned true, when a task is woken or
    /// spawned, or a timer armed, between two turns; and after this, at once if a task waits already. On
    /// whichever thread that happens; it should only make the host's loop take its turn.
    pub fn on_ready(&self, callback: impl Fn() + Send + Sync + 'static) {
        let before = lock(&self.host.callback).replace(Arc::new(callback));
        drop(before);
        let shared = &self.handle().shared;
        if !current::is_inside(shared) {
            self.host.attention.lie_down();
        }
        let host = self.host.clone();
        self.executor.on_ready(move || host.tell());
        // Ordering H3: store-load; the host waits, then looks. Pairs with P1, of who pushes and then tells.
        fence(SeqCst);
        if !shared.injector.is_empty() {
            self.host.tell();
        }
    }

    /// When the next timer fires, if one is armed: the host is to take a turn then. It may be too early, if
    /// that timer was dropped.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.handle().shared.reactor.next_firing() {
            crate::reactor::timers::NEVER => None,
            nanos => crate::clock::moment(nanos),
        }
    }

    /// What the host is to wait for in its own loop: it can be read from when a socket of this runtime is
    /// ready, until a turn is taken. Not to be read from.
    ///
    /// # Errors
    /// If no poller can be made: too many descriptors are open.
    #[cfg(unix)]
    pub fn descriptor(&self) -> io::Result<std::os::fd::BorrowedFd<'_>> {
        self.handle().shared.reactor.descriptor()
    }
}

/// Spawns a task on the [`LocalRuntime`] that this thread is in, to the tail of its queue. Dropping the
/// [`Task`] cancels it.
///
/// # Panics
/// If the thread is in none: neither in its `block_on` nor in a turn.
///
/// # Examples
/// ```
/// use std::rc::Rc;
/// let runtime = paceline::LocalRuntime::new()?;
/// let length = runtime.block_on(async {
///     let text = Rc::new("not for other threads");
///     paceline::spawn_local(async move { text.len() }).await
/// });
/// assert_eq!(length, 21);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    let executor = INSIDE.with(Cell::get);
    assert!(
        !executor.is_null(),
        "`spawn_local` outside of a local runtime: call it inside of `LocalRuntime::block_on`, or use \
         `LocalRuntime::spawn`"
    );
    // SAFETY: `Inside` keeps it as long as a borrow of the runtime lasts.
    unsafe { &*executor }.spawn(future)
}

impl Drop for LocalRuntime {
    fn drop(&mut self) {
        let shared = &self.runtime.handle().shared;
        if shared.origin.is_elsewhere() {
            // Whoever was about to wake a task, or holds a lock, is in the parent.
            return;
        }
        self.host.comes();
        // It may hold a handle.
        let callback = lock(&self.host.callback).take();
        contain(|| drop(callback));
        let inside = self.enter();
        current::within(shared, |_| {
            if shared.close() {
                shared.attend(None);
            }
            // The last to go: destructors of the others may spawn some.
            self.executor.cancel_all();
        });
        drop(inside);
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.executor) };
    }
}

impl fmt::Debug for LocalRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRuntime").field("executor", &self.executor).finish_non_exhaustive()
    }
}

impl futures_task::LocalSpawn for LocalRuntime {
    #[track_caller]
    fn spawn_local_obj(
        &self,
        future: futures_task::LocalFutureObj<'static, ()>,
    ) -> Result<(), futures_task::SpawnError> {
        self.executor.spawn_local_obj(future)
    }
}

impl futures_task::Spawn for LocalRuntime {
    #[track_caller]
    fn spawn_obj(
        &self,
        future: futures_task::FutureObj<'static, ()>,
    ) -> Result<(), futures_task::SpawnError> {
        self.executor.spawn_obj(future)
    }
}
