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

/// Handles of threads that have ended, kept to be joined in the end.
const SPARE_HANDLES: usize = 64;

pub(super) const STARTER: Starter = Starter::Threads { worker: start_worker, ticker: start_ticker };

fn start_worker(shared: &Arc<Shared>, processor: usize) -> io::Result<()> {
    let config = &shared.config;
    let mut builder = thread::Builder::new().name(config.thread_name.clone());
    if let Some(size) = config.thread_stack_size {
        builder = builder.stack_size(size);
    }
    start(shared, builder, move |shared| {
        let bed = Bed::new(shared.reactor.clone());
        // The hooks run inside as well: a runtime that is dropped there is dropped on its own thread.
        current::within(shared, |_| {
            run_hook(shared.config.on_thread_start.as_deref());
            let worker = Worker::new(shared, &bed, None);
            worker.hold(processor, Some(Searching::received()));
            worker.work();
            run_hook(shared.config.on_thread_stop.as_deref());
        });
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
    if threads.len() >= SPARE_HANDLES + 2 * shared.processors.own() {
        // Surplus threads have come and gone. They have done their work and are not waited for:
        // this may run in a thread-local's destructor of one of them.
        threads.retain(|thread| !thread.is_finished());
    }
    let shared = shared.clone();
    threads.push(builder.spawn(move || body(&shared)).map_err(explain)?);
    Ok(())
}

/// Says how to mend it.
fn explain(error: io::Error) -> io::Error {
    let message = format!(
        "{error}. Raise the limit on threads or memory (`ulimit -u`, `ulimit -v`, a container's pids \
         limit), or lower `thread_stack_size`"
    );
    io::Error::new(error.kind(), message)
}

fn run_hook(hook: Option<&(dyn Fn() + Send + Sync)>) {
    if let Some(hook) = hook {
        contain(hook);
    }
}

/// The runtime was dropped on one of its own threads: a new one sees the end through.
pub(super) fn attend_elsewhere(shared: &Arc<Shared>) {
    let attendant = shared.clone();
    let builder = thread::Builder::new().name("paceline-stop".into());
    let started = builder.spawn(move || {
        attendant.attend(None);
        join_all(&attendant);
    });
    if started.is_err() {
        // No thread to be had: whoever schedules something sees to its end.
        shared.abandon();
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
