//! `Executor`. What it has in common with `LocalExecutor` is in `either`; in the other files threads
//! run it.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

#[path = "../common/mod.rs"]
mod common;

mod either;
mod fair;
mod nested;
mod panics;
mod runs;
mod storm;
mod threads;
mod traits;

use std::thread;

use futures_lite::future::{block_on, or};
use paceline as ex;

type Ex<'a> = ex::Executor<'a>;
/// What several tasks of one executor can hold.
type Shared<T> = std::sync::Arc<T>;
/// A future that one of them can hold.
type Held = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a thread drives an executor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Drive {
    Run,
    TickLoop,
}

impl Drive {
    const ALL: [Drive; 2] = [Drive::Run, Drive::TickLoop];
}

/// Does `body` while so many threads drive the executor; they have ended when it returns.
fn driven<R>(ex: &Ex<'_>, how: Drive, threads: usize, body: impl FnOnce() -> R) -> R {
    let (stop, stopped) = async_channel::bounded::<()>(1);
    thread::scope(|scope| {
        for _ in 0..threads {
            let stopped = stopped.clone();
            scope.spawn(move || {
                let end = async { _ = stopped.recv().await };
                let ticks = async {
                    loop {
                        ex.tick().await;
                    }
                };
                match how {
                    Drive::Run => block_on(ex.run(end)),
                    Drive::TickLoop => block_on(or(end, ticks)),
                }
            });
        }
        // Dropped here, also if `body` panics.
        let _stop = stop;
        body()
    })
}
