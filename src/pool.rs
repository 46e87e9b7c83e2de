//! Threads for what blocks: as many as there are jobs at once, and each waits for another for a while
//! before it ends. One pool for the process. Knows no runtime.

use std::collections::VecDeque;
use std::io;
use std::ptr;
use std::thread;
use std::time::Duration;

use parking::{Parker, Unparker};

use crate::fork::Origin;
use crate::sync::atomic::{AtomicPtr, Ordering::*};
use crate::sync::{Mutex, lock};

/// So many jobs run at once; the others wait. As tokio's `max_blocking_threads`.
const MOST_THREADS: usize = 512;
/// How long a thread waits for a job before it ends. As tokio's `thread_keep_alive`.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    origin: Origin,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that sleep, each by its number; the last to fall asleep is woken first, so that those
    /// that are too many end.
    asleep: Vec<(u64, Unparker)>,
    threads: usize,
    next_number: u64,
}

/// This process's pool. A forked process has its own: the threads of the other are not in it, and the state
/// of the other may be locked for ever.
fn pool() -> &'static Pool {
    static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());
    // Ordering L1: acquire; pairs with the release of the exchange below.
    let current = POOL.load(Acquire);
    // SAFETY: null, or leaked below.
    match unsafe { current.as_ref() } {
        Some(pool) if !pool.origin.is_elsewhere() => return pool,
        _ => {}
    }
    let new = Box::into_raw(Box::new(Pool { state: Mutex::default(), origin: Origin::here() }));
    match POOL.compare_exchange(current, new, AcqRel, Acquire) {
        // SAFETY: leaked.
        Ok(_) => unsafe { &*new },
        Err(newer) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: leaked.
            unsafe { &*newer }
        }
    }
}

/// Runs the job on a thread of the pool, which must not panic.
///
/// # Errors
/// If the pool has no thread and none can be started; then the job has been dropped.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let pool = pool();
    let mut state = lock(&pool.state);
    state.jobs.push_back(Box::new(job));
    if let Some((_, sleeper)) = state.asleep.pop() {
        drop(state);
        sleeper.unpark();
        return Ok(());
    }
    if state.threads == MOST_THREADS {
        return Ok(());
    }
    state.threads += 1;
    state.next_number += 1;
    let number = state.next_number;
    drop(state);
    let thread = thread::Builder::new().name("paceline-blocking".into());
    let Err(error) = thread.spawn(move || pool.work(number)) else { return Ok(()) };
    let mut state = lock(&pool.state);
    state.threads -= 1;
    // Another thread comes to the job in its time; without any, nobody would. Whoever waits for one that
    // relied on the thread that was to be started here is told as well.
    let lost = if state.threads == 0 { std::mem::take(&mut state.jobs) } else { VecDeque::new() };
    drop(state);
    if lost.is_empty() { Ok(()) } else { Err(error) }
}

impl Pool {
    fn work(&self, number: u64) {
        let parker = Parker::new();
        let mut state = lock(&self.state);
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
            }
            state.asleep.push((number, parker.unparker()));
            drop(state);
            let woken = parker.park_timeout(KEEP_ALIVE);
            state = lock(&self.state);
            let place = state.asleep.iter().position(|(sleeper, _)| *sleeper == number);
            if let Some(place) = place {
                // Nobody has called; or the call was for an earlier sleep.
                state.asleep.remove(place);
                if !woken && state.jobs.is_empty() {
                    state.threads -= 1;
                    return;
                }
            }
        }
    }
}
