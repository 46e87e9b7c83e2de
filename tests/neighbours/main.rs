//! With crates that know nothing of paceline. What all of these tests use is here; each file has one
//! kind of neighbour. Those that have examples of their own (hyper, TLS, WebSockets) are tested there.
#![cfg(not(paceline_loom))]

#[path = "../common/mod.rs"]
mod common;

mod channels;
mod combinators;
mod compat;
mod concurrency;
mod locks;
#[cfg(unix)]
mod system;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use futures::future::{JoinAll, join_all};
use paceline::net::{TcpListener, TcpStream};
use paceline::{Task, spawn};

/// As `common::on_each`, for a body that is a future.
#[track_caller]
fn each<F>(body: F)
where
    F: AsyncFn() + Send + Sync + 'static,
{
    common::on_each(move |runtime| runtime.block_on(body()));
}

/// Two ends of a connection.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    Ok((near, listener.accept().await?.0))
}

/// Lets other tasks run until it is true.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        paceline::yield_now().await;
    }
}

/// Spawns so many tasks at once, to be awaited together; each is told its number.
fn in_tasks<F>(count: usize, task: impl Fn(usize) -> F) -> JoinAll<Task<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    join_all((0..count).map(|i| spawn(task(i))))
}

/// How many are in a place at once.
#[derive(Clone, Default)]
struct Crowd(Arc<[AtomicUsize; 2]>);

impl Crowd {
    fn enter(&self) {
        let inside = self.0[0].fetch_add(1, SeqCst) + 1;
        self.0[1].fetch_max(inside, SeqCst);
    }

    fn leave(&self) {
        self.0[0].fetch_sub(1, SeqCst);
    }

    /// The most there were.
    fn most(&self) -> usize {
        assert_eq!(self.0[0].load(SeqCst), 0, "all have left");
        self.0[1].load(SeqCst)
    }
}

/// Waits until those are the threads of this process that are none of paceline's, of the test's or of
/// its harness; each names itself when it begins. The system keeps the first 15 letters.
#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods)] // the test's own thread waits, no task
#[track_caller]
fn expect_foreign_threads(test: &str, expected: &[&str]) {
    let main = std::process::id().to_string();
    let mut names = Vec::new();
    let mut as_expected = || {
        names = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .map(Result::unwrap)
            .filter(|task| task.file_name() != *main)
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
            .map(|name| name.trim_end().to_owned())
            .filter(|name| !name.starts_with("paceline-") && !test.starts_with(name))
            .collect();
        names.sort();
        names == expected
    };
    let limit = Instant::now() + Duration::from_secs(20);
    while !as_expected() && Instant::now() < limit {
        std::thread::yield_now();
    }
    assert_eq!(names, expected);
}
