//! Workloads beside a load that keeps every worker busy. What they measure is the work that is done
//! beside it; what they watch is how long the load's tasks wait for their turns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures_lite::future::block_on;

use super::{Countdown, countdown, workers, yield_now};
use crate::common::arms::Arm;
use crate::common::measure::{Histogram, Sample, measured};

/// Computes for that long.
fn compute(length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {}
}

pub fn compute_10us() {
    compute(Duration::from_micros(10));
}

/// Tasks that go on until they are told to end.
pub struct Load {
    shared: Arc<Shared>,
    ended: oneshot::Receiver<()>,
}

struct Shared {
    ends: AtomicBool,
    turns: AtomicU64,
    waits: Mutex<Histogram>,
    left: Countdown,
}

/// What the load's tasks have had.
pub struct Turns {
    pub count: u64,
    pub waits: Histogram,
}

impl Shared {
    /// One of the tasks ends.
    fn note(&self, turns: u64, waits: &Histogram) {
        self.turns.fetch_add(turns, Relaxed);
        self.waits.lock().unwrap().merge(waits);
        self.left.one_less();
    }
}

impl Load {
    fn new(tasks: usize) -> Self {
        let (left, ended) = countdown(tasks);
        let (ends, turns) = (AtomicBool::new(false), AtomicU64::new(0));
        let waits = Mutex::new(Histogram::new());
        Load { shared: Arc::new(Shared { ends, turns, waits, left }), ended }
    }

    /// Tasks that work and yield in turns; they wait from a yield to the next poll.
    pub fn yielding<A: Arm>(arm: &A, tasks: usize, work: fn()) -> Self {
        let load = Load::new(tasks);
        for _ in 0..tasks {
            let shared = load.shared.clone();
            arm.launch_from_outside(async move {
                let (mut turns, mut waits) = (0, Histogram::new());
                while !shared.ends.load(Relaxed) {
                    let before = Instant::now();
                    yield_now().await;
                    waits.add(before.elapsed());
                    turns += 1;
                    work();
                }
                shared.note(turns, &waits);
            });
        }
        load
    }

    /// Chains of tasks that work and spawn the next; these wait from there to their first poll.
    fn chained<A: Arm>(arm: &A, chains: usize, work: fn()) -> Self {
        struct Link {
            shared: Arc<Shared>,
            turns: u64,
            waits: Histogram,
            work: fn(),
        }
        fn go_on<A: Arm>(mut link: Link) {
            let before = Instant::now();
            A::launch(async move {
                link.waits.add(before.elapsed());
                link.turns += 1;
                (link.work)();
                match link.shared.ends.load(Relaxed) {
                    true => link.shared.note(link.turns, &link.waits),
                    false => go_on::<A>(link),
                }
            });
        }
        let load = Load::new(chains);
        for _ in 0..chains {
            let link =
                Link { shared: load.shared.clone(), turns: 0, waits: Histogram::new(), work };
            arm.launch_from_outside(async { go_on::<A>(link) });
        }
        load
    }

    /// Waits for the tasks to end.
    pub fn end(self) -> Turns {
        self.shared.ends.store(true, Relaxed);
        block_on(self.ended).unwrap();
        let waits = std::mem::replace(&mut *self.shared.waits.lock().unwrap(), Histogram::new());
        Turns { count: self.shared.turns.load(Relaxed), waits }
    }
}

/// This thread spawns 10,000 no-ops and waits until all have run.
fn spawn_remote_beside<A: Arm>(arm: &A, load: Load) -> Sample {
    const TASKS: usize = 10_000;
    let mut sample = measured(TASKS as u64, || {
        let (left, done) = countdown(TASKS);
        for _ in 0..TASKS {
            let left = left.clone();
            arm.launch_from_outside(async move { left.one_less() });
        }
        block_on(done).unwrap();
    });
    sample.watched = Some(load.end().waits.watched("wait"));
    sample
}

/// Beside 8 tasks that yield and compute for 10 µs.
pub fn spawn_remote_busy<A: Arm>(arm: &A) -> Sample {
    spawn_remote_beside(arm, Load::yielding(arm, 8, compute_10us))
}

/// Beside 4 chains of tasks that each compute for 10 µs and spawn the next.
pub fn spawn_remote_chains<A: Arm>(arm: &A) -> Sample {
    spawn_remote_beside(arm, Load::chained(arm, 4, compute_10us))
}

/// A task spawns 10,000 that compute for 1 µs, beside two for each worker that yield and compute for
/// 10 µs.
pub fn spawn_storm_busy<A: Arm>(arm: &A) -> Sample {
    const TASKS: usize = 10_000;
    let load = Load::yielding(arm, 2 * workers(), compute_10us);
    let mut sample = measured(TASKS as u64, || {
        arm.in_task(async {
            let (left, done) = countdown(TASKS);
            for _ in 0..TASKS {
                let left = left.clone();
                A::launch(async move {
                    compute(Duration::from_micros(1));
                    left.one_less();
                });
            }
            done.await.unwrap();
        });
    });
    sample.watched = Some(load.end().waits.watched("wait"));
    sample
}
