//! The one place where threads are built, named, started and ended.

use std::io;
use std::thread;

use crate::contain::contain;
use crate::current;
use crate::idle::Searching;
use crate::park::Bed;
use crate::shared::{Shared, Starter};
use crate::sync::{Arc, lock};
use crate::ticker;
use crate::worker::Worker;

pub(super) const STARTER: Starter = Starter { worker: start_worker, ticker: start_ticker };

fn start_worker(shared: &Arc<Shared>, processor: usize) -> io::Result<()> {
    let config = &shared.config;
    let mut builder = thread::Builder::new().name(config.thread_name.clone());
    if let Some(size) = config.thread_stack_size {
        builder = builder.stack_size(size);
    }
    start(shared, builder, move |shared| {
        run_hook(shared.config.on_thread_start.as_deref());
        let bed = Bed::new();
        current::within(shared, |_| {
            let worker = Worker::new(shared, &bed, true);
            worker.hold(processor, Some(Searching::received()));
            worker.work(|| false);
        });
        run_hook(shared.config.on_thread_stop.as_deref());
        attend_if_last(shared);
    })
}

fn start_ticker(shared: &Arc<Shared>) -> io::Result<()> {
    let builder = thread::Builder::new().name("paceline-ticker".into());
    start(shared, builder, |shared| ticker::run(shared))
}

fn start(
    shared: &Arc<Shared>,
    builder: thread::Builder,
    body: impl FnOnce(&Arc<Shared>) + Send + 'static,
) -> io::Result<()> {
    // Held until the handle is in: whoever joins all threads joins this one.
    let mut threads = lock(&shared.threads);
    let (retired, alive) =
        std::mem::take(&mut *threads).into_iter().partition::<Vec<_>, _>(|t| t.is_finished());
    *threads = alive;
    let shared = shared.clone();
    threads.push(builder.spawn(move || body(&shared))?);
    drop(threads);
    for thread in retired {
        // A worker thread catches the panics of what it runs; there is nothing to report.
        let _ = thread.join();
    }
    Ok(())
}

fn run_hook(hook: Option<&(dyn Fn() + Send + Sync)>) {
    if let Some(hook) = hook {
        contain(hook);
    }
}

/// On a thread that has just left a worker loop or a `block_on`: if the runtime was dropped by
/// one of its own threads, the first that is out sees the end through.
pub(super) fn attend_if_last(shared: &Shared) {
    if shared.stop.is_closing() && !current::is_inside(shared) && shared.may_attend() {
        shared.attend(None);
    }
}

/// Waits for every thread, but for the one this runs on.
pub(super) fn join_all(shared: &Shared) {
    let threads = std::mem::take(&mut *lock(&shared.threads));
    for thread in threads {
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}
