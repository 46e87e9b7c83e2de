//! Threads for what blocks: as many as there are jobs at once, and each waits for another for a while
//! before it ends. One pool for the process. Knows no runtime.

use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use parking::{Parker, Unparker};

use crate::fork::Origin;
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

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool { state: Mutex::default(), origin: Origin::here() })
}

/// Runs the job on a thread of the pool, which must not panic.
///
/// # Errors
/// If the pool has no thread and none can be started; then the job has been dropped.
///
/// # Panics
/// In a process that was forked from one that has used the pool.
#[track_caller]
pub(crate) fn run(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let pool = pool();
    pool.origin.check();
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
    // Another thread comes to the job in its time; without any, nobody would.
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
