//! The executors under comparison. To add one with async-executor's API: `executor_arms!` with its names
//! and its crate, here, and its types in `shared_arms!` and `local_arms!`.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_lite::future::block_on;

/// An executor that threads share.
pub trait Shared: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    type Task<T: Send + 'static>: Future<Output = T> + Send + 'static;

    fn new() -> Self;

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self::Task<T>;

    fn spawn_many<F: Future<Output: Send> + Send + 'static>(
        &self,
        futures: impl Iterator<Item = F>,
        tasks: &mut Vec<Self::Task<F::Output>>,
    );

    fn detach<T: Send + 'static>(task: Self::Task<T>);

    fn run<T>(&self, main: impl Future<Output = T>) -> impl Future<Output = T>;
}

/// An executor of one thread. Clones are handles, which its tasks hold.
pub trait Local: Clone + Sized + 'static {
    const NAME: &'static str;
    type Task<T: 'static>: Future<Output = T> + 'static;

    fn new() -> Self;

    fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Self::Task<T>;

    fn detach<T: 'static>(task: Self::Task<T>);

    /// Runs the tasks until `main` is done.
    fn block_on<T>(&self, main: impl Future<Output = T>) -> T;
}

macro_rules! executor_arms {
    ($shared:ident, $local:ident, $name:literal, $crate_name:ident) => {
        pub struct $shared($crate_name::Executor<'static>);

        impl Shared for $shared {
            const NAME: &'static str = $name;
            type Task<T: Send + 'static> = $crate_name::Task<T>;

            fn new() -> Self {
                $shared($crate_name::Executor::new())
            }

            fn spawn<T: Send + 'static>(
                &self,
                future: impl Future<Output = T> + Send + 'static,
            ) -> Self::Task<T> {
                self.0.spawn(future)
            }

            fn spawn_many<F: Future<Output: Send> + Send + 'static>(
                &self,
                futures: impl Iterator<Item = F>,
                tasks: &mut Vec<Self::Task<F::Output>>,
            ) {
                self.0.spawn_many(futures, tasks);
            }

            fn detach<T: Send + 'static>(task: Self::Task<T>) {
                task.detach();
            }

            fn run<T>(&self, main: impl Future<Output = T>) -> impl Future<Output = T> {
                self.0.run(main)
            }
        }

        #[derive(Clone)]
        pub struct $local(Rc<$crate_name::LocalExecutor<'static>>);

        impl Local for $local {
            const NAME: &'static str = $name;
            type Task<T: 'static> = $crate_name::Task<T>;

            fn new() -> Self {
                $local(Rc::new($crate_name::LocalExecutor::new()))
            }

            fn spawn<T: 'static>(
                &self,
                future: impl Future<Output = T> + 'static,
            ) -> Self::Task<T> {
                self.0.spawn(future)
            }

            fn detach<T: 'static>(task: Self::Task<T>) {
                task.detach();
            }

            fn block_on<T>(&self, main: impl Future<Output = T>) -> T {
                block_on(self.0.run(main))
            }
        }
    };
}

executor_arms!(Paceline, PacelineLocal, "paceline", paceline);
executor_arms!(AsyncExecutor, AsyncLocal, "async-executor", async_executor);

/// In the order of the table's lines.
macro_rules! shared_arms {
    ($start:ident!($($arguments:tt)*)) => {
        &[$start!(Paceline, $($arguments)*), $start!(AsyncExecutor, $($arguments)*)]
    };
}

macro_rules! local_arms {
    ($start:ident!($($arguments:tt)*)) => {
        &[
            $start!(PacelineLocal, $($arguments)*),
            $start!(AsyncLocal, $($arguments)*),
            $start!(TokioLocal, $($arguments)*),
        ]
    };
}

/// tokio's `LocalSet` on its runtime of one thread.
#[derive(Clone)]
pub struct TokioLocal(Rc<(tokio::runtime::Runtime, tokio::task::LocalSet)>);

/// A task of tokio's, without its errors.
pub struct Joined<T>(tokio::task::JoinHandle<T>);

impl<T> Future for Joined<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(cx).map(|output| output.unwrap())
    }
}

impl Local for TokioLocal {
    const NAME: &'static str = "tokio";
    type Task<T: 'static> = Joined<T>;

    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        TokioLocal(Rc::new((runtime, tokio::task::LocalSet::new())))
    }

    fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Self::Task<T> {
        Joined(self.0.1.spawn_local(future))
    }

    fn detach<T: 'static>(task: Self::Task<T>) {
        drop(task);
    }

    fn block_on<T>(&self, main: impl Future<Output = T>) -> T {
        let (runtime, set) = &*self.0;
        set.block_on(runtime, main)
    }
}
