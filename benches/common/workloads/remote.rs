//! Workloads of tasks that foreign threads spawn.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use futures_lite::future::block_on;

use super::countdown;
use crate::common::arms::Arm;
use crate::common::measure::{Histogram, Sample, measured};

/// So many threads spawn 12,800 no-ops at once, which all run; watched is how long a thread takes to
/// spawn its share.
pub fn spawn_remote<A: Arm, const THREADS: usize>(arm: &A) -> Sample {
    spawn_from(arm, THREADS)
}

fn spawn_from<A: Arm>(arm: &A, threads: usize) -> Sample {
    const TASKS: usize = 12_800;
    let (left, done) = countdown(TASKS);
    let barrier = Barrier::new(threads + 1);
    let spawner = || {
        // Once they are there, and once they are to begin.
        for _ in 0..2 {
            barrier.wait();
        }
        let start = Instant::now();
        for _ in 0..TASKS / threads {
            let left = left.clone();
            arm.launch_from_outside(async move { left.one_less() });
        }
        start.elapsed()
    };
    let mut took = Histogram::new();
    let mut sample = thread::scope(|scope| {
        let spawners: Vec<_> = (0..threads).map(|_| scope.spawn(spawner)).collect();
        barrier.wait();
        let sample = measured(TASKS as u64, || {
            barrier.wait();
            block_on(done).unwrap();
        });
        spawners.into_iter().for_each(|spawner| took.add(spawner.join().unwrap()));
        sample
    });
    sample.watched = Some(took.watched("spawns"));
    sample
}

/// Runs of so many no-ops, one run after the other: this thread spawns them, and waits until all have
/// run. An operation is a task; watched is how long a run takes.
pub fn burst<A: Arm, const RUN: usize>(arm: &A) -> Sample {
    bursts(arm, RUN)
}

fn bursts<A: Arm>(arm: &A, run: usize) -> Sample {
    let runs = (4_096 / run).clamp(64, 512);
    let mut took = Histogram::new();
    let mut sample = measured((runs * run) as u64, || {
        for _ in 0..runs {
            let start = Instant::now();
            let (left, done) = countdown(run);
            for _ in 0..run {
                let left = left.clone();
                arm.launch_from_outside(async move { left.one_less() });
            }
            block_on(done).unwrap();
            took.add(start.elapsed());
        }
    });
    sample.watched = Some(took.watched("run"));
    sample
}
