//! The runtimes under comparison, behind the few calls that every workload makes.
#![allow(clippy::disallowed_methods)] // async-executor's threads are for its user to start

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::settings;

/// One runtime with its settings.
pub trait Arm: Send + Sync + Sized + 'static {
    const NAME: &'static str;

    fn new(workers: usize) -> Self;

    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// Runs the future in a task and waits for it.
    fn in_task<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        self.block_on(async { Self::spawn(future).await })
    }

    /// Spawns from inside the runtime. Panics on await if the task panicked.
    fn spawn<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static;

    /// Spawns from inside the runtime and lets the task go.
    fn launch(future: impl Future<Output = ()> + Send + 'static);

    /// Spawns from any thread and lets the task go.
    fn launch_from_outside(&self, future: impl Future<Output = ()> + Send + 'static);

    /// Spawns a task that panics, and waits until that is known.
    fn spawn_panicking() -> impl Future<Output = ()> + Send + 'static;

    /// Gives how often the workers have gone to sleep so far, where that is counted.
    fn parks(&self) -> Option<Parks> {
        None
    }
}

/// A count that goes on while the runtime does.
pub type Parks = Box<dyn Fn() -> u64>;

/// paceline, with its wake slot or without.
pub struct WithSlot<const SLOT: bool>(paceline::Runtime);

pub type Paceline = WithSlot<true>;
pub type SlotOff = WithSlot<false>;

impl<const SLOT: bool> WithSlot<SLOT> {
    /// With what else the builder says.
    pub fn built(builder: paceline::Builder) -> Self {
        WithSlot(builder.wake_slot(SLOT).build().unwrap())
    }

    pub fn handle(&self) -> &paceline::Handle {
        self.0.handle()
    }
}

impl<const SLOT: bool> Arm for WithSlot<SLOT> {
    const NAME: &'static str = if SLOT { "paceline" } else { "slot-off" };

    fn new(workers: usize) -> Self {
        Self::built(settings::get().builder().worker_threads(workers))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        paceline::spawn(future)
    }

    fn launch(future: impl Future<Output = ()> + Send + 'static) {
        paceline::spawn(future).detach();
    }

    fn launch_from_outside(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(future).detach();
    }

    fn spawn_panicking() -> impl Future<Output = ()> + Send + 'static {
        let task = paceline::spawn(async { panic!("as planned") });
        async {
            assert!(task.join().await.is_err_and(|error: paceline::JoinError| error.is_panic()));
        }
    }

    /// A thread in `block_on` counts.
    fn parks(&self) -> Option<Parks> {
        let handle = self.handle().clone();
        Some(Box::new(move || handle.metrics().total().parks))
    }
}

pub struct Tokio(tokio::runtime::Runtime);

impl Arm for Tokio {
    const NAME: &'static str = "tokio";

    fn new(workers: usize) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Tokio(builder.worker_threads(workers).enable_all().build().unwrap())
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let task = tokio::spawn(future);
        async { task.await.unwrap() }
    }

    fn launch(future: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(future));
    }

    fn launch_from_outside(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(future));
    }

    fn spawn_panicking() -> impl Future<Output = ()> + Send + 'static {
        let task = tokio::spawn(async { panic!("as planned") });
        async {
            let outcome: Result<(), _> = task.await;
            assert!(outcome.is_err_and(|error| error.is_panic()));
        }
    }

    /// A thread in `block_on` does not count.
    fn parks(&self) -> Option<Parks> {
        let metrics = self.0.metrics();
        let all = move || (0..metrics.num_workers()).map(|n| metrics.worker_park_count(n)).sum();
        Some(Box::new(all))
    }
}

/// smol: one async-executor for the process; its threads, and who blocks, drive async-io's reactor
/// when they have nothing else to do.
pub struct Smol {
    stop: Vec<async_channel::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

fn executor() -> &'static async_executor::Executor<'static> {
    static EXECUTOR: OnceLock<async_executor::Executor<'static>> = OnceLock::new();
    EXECUTOR.get_or_init(async_executor::Executor::new)
}

impl Arm for Smol {
    const NAME: &'static str = "smol";

    fn new(workers: usize) -> Self {
        let (mut stop, mut threads) = (Vec::new(), Vec::new());
        let (ready, running) = mpsc::channel();
        for _ in 0..workers {
            let (sender, receiver) = async_channel::bounded::<()>(1);
            let ready = ready.clone();
            stop.push(sender);
            threads.push(std::thread::spawn(move || {
                ready.send(()).unwrap();
                let _ = async_io::block_on(executor().run(receiver.recv()));
            }));
        }
        (0..workers).for_each(|_| running.recv().unwrap());
        Smol { stop, threads }
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        async_io::block_on(future)
    }

    fn spawn<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        executor().spawn(future)
    }

    fn launch(future: impl Future<Output = ()> + Send + 'static) {
        executor().spawn(future).detach();
    }

    fn launch_from_outside(&self, future: impl Future<Output = ()> + Send + 'static) {
        Smol::launch(future);
    }

    fn spawn_panicking() -> impl Future<Output = ()> + Send + 'static {
        let task = executor().spawn(async { panic!("as planned") });
        async {
            use futures::FutureExt;
            let outcome: Result<(), _> = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            assert!(outcome.is_err());
        }
    }
}

impl Drop for Smol {
    fn drop(&mut self) {
        self.stop.clear();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}
