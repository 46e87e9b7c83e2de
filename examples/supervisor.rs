//! Keeps a worker alive that now and then panics, until it does nothing else:
//! `cargo run --release --example supervisor`.
//!
//! The jobs are outside of the worker, so that none is lost with it: the one at which it panicked is
//! still the next. One of them succeeds when it is tried again. Another one never does, and after three
//! more restarts the worker is given up. The panics' own messages go to stderr.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline::supervise::Supervisor;
use paceline::time::sleep;

/// What the worker has not finished yet, by number.
#[derive(Clone)]
struct Jobs(Arc<Mutex<VecDeque<u32>>>);

impl Jobs {
    fn next(&self) -> Option<u32> {
        self.with(|jobs| jobs.front().copied())
    }

    fn finish(&self) {
        self.with(VecDeque::pop_front);
    }

    /// Locked for a moment only: no job is done meanwhile, so that no panic finds it so.
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<u32>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn main() {
    let jobs = Jobs(Arc::new(Mutex::new((1..=7).collect())));
    let (todo, mut worker) = (jobs.clone(), 0);
    let supervised = Supervisor::new("worker")
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
        .intensity(4, Duration::from_secs(60))
        .spawn(move || {
            worker += 1;
            work(worker, todo.clone())
        });
    match paceline::block_on(supervised) {
        Ok(finished) => say(&format!("the last worker finished {finished} jobs")),
        Err(gave_up) => say(&gave_up.to_string()),
    }
    say(&format!("jobs left: {:?}", jobs.with(|jobs| jobs.clone())));
}

/// The child: does one job after the other. How many it has done.
async fn work(worker: u32, jobs: Jobs) -> u32 {
    say(&format!("worker {worker} starts"));
    let mut finished = 0;
    while let Some(job) = jobs.next() {
        sleep(Duration::from_millis(30)).await;
        assert!(job != 3 || worker > 1, "job 3 went wrong this time");
        assert!(job != 6, "job 6 makes no sense");
        say(&format!("worker {worker} has finished job {job}"));
        jobs.finish();
        finished += 1;
    }
    finished
}

/// Not `println!`, which panics if the reader has gone.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "supervisor: {text}");
}
