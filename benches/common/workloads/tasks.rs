//! Workloads of the scheduler: spawns, yields, lifecycles.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use futures::channel::oneshot;

use super::{Countdown, countdown, primes, workers, yield_now};
use crate::common::arms::Arm;
use crate::common::measure::{Histogram, Sample, measured};

async fn spawn_all<A: Arm>(count: usize) {
    let (left, done) = countdown(count);
    for _ in 0..count {
        let left = left.clone();
        A::launch(async move { left.one_less() });
    }
    done.await.unwrap();
}

/// `block_on` spawns empty tasks.
pub fn spawn_many<A: Arm>(arm: &A) -> Sample {
    measured(10_000, || arm.block_on(spawn_all::<A>(10_000)))
}

/// A task on a worker spawns empty tasks.
pub fn spawn_inside<A: Arm>(arm: &A) -> Sample {
    measured(10_000, || arm.in_task(spawn_all::<A>(10_000)))
}

/// A foreign thread spawns empty tasks while every worker is held up.
pub fn spawn_outside<A: Arm>(arm: &A) -> Sample {
    const SPAWNS: usize = 10_000;
    let (held, is_held) = mpsc::channel();
    let gates: Vec<_> = (0..workers())
        .map(|_| {
            let (held, (gate, opened)) = (held.clone(), mpsc::channel::<()>());
            arm.launch_from_outside(async move {
                held.send(()).unwrap();
                assert!(opened.recv().is_err(), "opened by being dropped");
            });
            gate
        })
        .collect();
    gates.iter().for_each(|_| is_held.recv().unwrap());
    let (left, done) = countdown(SPAWNS);
    measured(SPAWNS as u64, || {
        for _ in 0..SPAWNS {
            let left = left.clone();
            arm.launch_from_outside(async move { left.one_less() });
        }
        drop(gates);
        futures_lite::future::block_on(done).unwrap();
    })
}

/// A task spawns a task, and so on.
pub fn chained_spawn<A: Arm>(arm: &A) -> Sample {
    const DEPTH: usize = 1_000;
    const CHAINS: usize = 10;
    fn link<A: Arm>(depth: usize, done: oneshot::Sender<()>) {
        A::launch(async move {
            match depth {
                0 => done.send(()).unwrap(),
                _ => link::<A>(depth - 1, done),
            }
        });
    }
    measured((CHAINS * DEPTH) as u64, || {
        arm.block_on(async {
            for _ in 0..CHAINS {
                let (done, end) = oneshot::channel();
                link::<A>(DEPTH, done);
                end.await.unwrap();
            }
        });
    })
}

/// A task spawns two, and so on: 2^14 leaves; an operation is a spawn.
pub fn spawn_recursive<A: Arm>(arm: &A) -> Sample {
    const DEPTH: u32 = 14;
    fn branch<A: Arm>(depth: u32, leaves: Countdown) {
        A::launch(async move {
            if depth == 0 {
                return leaves.one_less();
            }
            branch::<A>(depth - 1, leaves.clone());
            branch::<A>(depth - 1, leaves);
        });
    }
    measured((2 << DEPTH) - 1, || {
        arm.block_on(async {
            let (leaves, done) = countdown(1 << DEPTH);
            branch::<A>(DEPTH, leaves);
            done.await.unwrap();
        });
    })
}

async fn spawn_and_await<A: Arm>(count: usize) {
    for _ in 0..count {
        A::spawn(async {}).await;
    }
}

/// A worker task spawns a task and awaits it, again and again.
pub fn spawn_await<A: Arm>(arm: &A) -> Sample {
    measured(10_000, || arm.in_task(spawn_and_await::<A>(10_000)))
}

/// The same from the future of `block_on`.
pub fn spawn_await_main<A: Arm>(arm: &A) -> Sample {
    measured(1_000, || arm.block_on(spawn_and_await::<A>(1_000)))
}

fn yields<A: Arm>(arm: &A, tasks: usize, each: usize) -> Sample {
    measured((tasks * each) as u64, || {
        arm.block_on(async {
            let (left, done) = countdown(tasks);
            for _ in 0..tasks {
                let left = left.clone();
                A::launch(async move {
                    for _ in 0..each {
                        yield_now().await;
                    }
                    left.one_less();
                });
            }
            done.await.unwrap();
        });
    })
}

/// 200 tasks yield 1,000 times each.
pub fn yield_200<A: Arm>(arm: &A) -> Sample {
    yields(arm, 200, 1_000)
}

/// One task yields 100,000 times.
pub fn yield_1<A: Arm>(arm: &A) -> Sample {
    yields(arm, 1, 100_000)
}

/// 1,000 tasks, each with a child, that exchange two oneshots.
pub fn ping_pong<A: Arm>(arm: &A) -> Sample {
    const PAIRS: usize = 1_000;
    measured(PAIRS as u64, || {
        arm.block_on(async {
            let (left, done) = countdown(PAIRS);
            for _ in 0..PAIRS {
                let left = left.clone();
                A::launch(async move {
                    let (ping, pinged) = oneshot::channel();
                    let (pong, ponged) = oneshot::channel();
                    A::launch(async move {
                        pinged.await.unwrap();
                        pong.send(()).unwrap();
                    });
                    ping.send(()).unwrap();
                    ponged.await.unwrap();
                    left.one_less();
                });
            }
            done.await.unwrap();
        });
    })
}

/// Watched is how long one takes.
fn cycles(cycle: impl Fn()) -> Sample {
    const CYCLES: u64 = 50;
    let mut took = Histogram::new();
    let mut sample = measured(CYCLES, || {
        for _ in 0..CYCLES {
            let start = Instant::now();
            cycle();
            took.add(start.elapsed());
        }
    });
    sample.watched = Some(took.watched("cycle"));
    sample
}

/// `block_on` of a future that is ready.
pub fn block_on_ready<A: Arm>(arm: &A) -> Sample {
    const CALLS: u64 = 10_000;
    measured(CALLS, || (0..CALLS).for_each(|_| arm.block_on(async {})))
}

/// A runtime is made, runs nothing, and is dropped.
pub fn lifecycle<A: Arm, const WORKERS: usize>() -> Sample {
    cycles(|| A::new(WORKERS).block_on(async {}))
}

/// The same with one task per worker.
pub fn lifecycle_with_work<A: Arm>() -> Sample {
    cycles(|| {
        A::new(workers()).block_on(async {
            let tasks: Vec<_> = (0..workers()).map(|_| A::spawn(async {})).collect();
            for task in tasks {
                task.await;
            }
        });
    })
}

/// The primes below 200,000, counted in 64 tasks.
pub fn fan_out_compute<A: Arm>(arm: &A) -> Sample {
    const BELOW: u64 = 200_000;
    const PARTS: u64 = 64;
    let found = Arc::new(AtomicU64::new(0));
    let sample = measured(PARTS, || {
        arm.block_on(async {
            let (left, done) = countdown(PARTS as usize);
            for part in 0..PARTS {
                let (left, found) = (left.clone(), found.clone());
                A::launch(async move {
                    found.fetch_add(
                        primes(BELOW * part / PARTS..BELOW * (part + 1) / PARTS),
                        Relaxed,
                    );
                    left.one_less();
                });
            }
            done.await.unwrap();
        });
    });
    assert_eq!(found.load(Relaxed), 17_984);
    sample
}

/// 1,000 tasks that panic, each joined.
pub fn catch_panics<A: Arm>(arm: &A) -> Sample {
    const TASKS: usize = 1_000;
    measured(TASKS as u64, || {
        arm.block_on(async {
            let tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> =
                (0..TASKS).map(|_| Box::pin(A::spawn_panicking()) as _).collect();
            for task in tasks {
                task.await;
            }
        });
    })
}
