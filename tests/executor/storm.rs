//! Seeded storms of spawns, wakes, cancels, panics and drops, while `run`s come and go. At the end of each,
//! every future that was made has finished, panicked or been cancelled, and been dropped.
//!
//! `PACELINE_STRESS_SEED` runs one seed, `PACELINE_STRESS_SEEDS` so many.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};
use std::thread;

use futures_lite::FutureExt;
use futures_lite::future::{block_on, or, yield_now};

use crate::common::{Random, silent_panic, watched};
use crate::either::{Puppet, yields};
use crate::{Ex, ex};

const SEEDS: u64 = if cfg!(debug_assertions) { 40 } else { 150 };
const PLACES: u64 = 32;

/// How many futures have come to which end.
#[derive(Default)]
struct Ends {
    made: AtomicU64,
    finished: AtomicU64,
    panicked: AtomicU64,
    cancelled: AtomicU64,
}

/// What the storm's tasks and threads share.
struct Storm {
    ex: Weak<Ex<'static>>,
    /// Where tasks wait to be woken by anybody.
    places: [Mutex<Option<Waker>>; PLACES as usize],
    /// Futures that may still be made.
    budget: AtomicI64,
    ends: Ends,
    over: AtomicBool,
}

/// One future; it counts its end.
struct Made {
    storm: Arc<Storm>,
    finished: bool,
}

impl Made {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let ends = &self.storm.ends;
        let end = match self.finished {
            true => &ends.finished,
            false if thread::panicking() => &ends.panicked,
            false => &ends.cancelled,
        };
        // A destructor that wakes.
        self.storm.wake(end.fetch_add(1, SeqCst));
    }
}

impl Storm {
    fn wake(&self, place: u64) {
        let waker = self.places[(place % PLACES) as usize].lock().unwrap().take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits until somebody wakes this place; who waited there before is woken.
    async fn wait(&self, place: u64) {
        let mut waiting = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut waiting, true) || self.over.load(SeqCst) {
                return Poll::Ready(());
            }
            let place = &self.places[(place % PLACES) as usize];
            let before = place.lock().unwrap().replace(cx.waker().clone());
            before.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await;
    }

    /// A future's life, if one may still be made.
    fn make(
        self: &Arc<Self>,
        random: &mut Random,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.budget.fetch_sub(1, SeqCst) <= 0 {
            return None;
        }
        self.ends.made.fetch_add(1, SeqCst);
        Some(live(Made { storm: self.clone(), finished: false }, random.fork()))
    }

    fn spawn(self: &Arc<Self>, random: &mut Random) -> Option<ex::Task<()>> {
        let ex = self.ex.upgrade()?;
        Some(ex.spawn(self.make(random)?))
    }
}

fn live(made: Made, mut random: Random) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let storm = made.storm.clone();
        for _ in 0..random.below(12) {
            match random.below(16) {
                0..=2 => yields(random.below(4) as usize).await,
                3 | 4 => storm.wait(random.below(PLACES)).await,
                5 | 6 => storm.wake(random.below(PLACES)),
                7 if random.below(8) == 0 => silent_panic(),
                8 if random.below(4) == 0 => drive(&storm, &mut random).await,
                9 => {
                    let mut many = Vec::new();
                    let futures = [storm.make(&mut random), storm.make(&mut random)];
                    let Some(ex) = storm.ex.upgrade() else { return };
                    ex.spawn_many(futures.into_iter().flatten(), &mut many);
                    many.into_iter().for_each(ex::Task::detach);
                }
                _ => beget(&storm, &mut random).await,
            }
        }
        made.finish();
    })
}

/// Makes another task, and does something with it.
async fn beget(storm: &Arc<Storm>, random: &mut Random) {
    let Some(task) = storm.spawn(random) else { return };
    match random.below(6) {
        0 => drop(task),
        1 => drop(AssertUnwindSafe(task.cancel()).catch_unwind().await),
        2 => drop(AssertUnwindSafe(task.fallible()).catch_unwind().await),
        3 => {
            let task = AssertUnwindSafe(task.fallible()).catch_unwind();
            or(async { drop(task.await) }, storm.wait(random.below(PLACES))).await;
        }
        _ => task.detach(),
    }
}

/// Drives the executor from inside one of its tasks, which holds it meanwhile.
async fn drive(storm: &Arc<Storm>, random: &mut Random) {
    let Some(ex) = storm.ex.upgrade() else { return };
    if storm.over.load(SeqCst) {
        return;
    }
    match random.below(4) {
        0 => _ = ex.try_tick(),
        1 => or(ex.tick(), yield_now()).await,
        2 => ex.run(yields(random.below(3) as usize)).await,
        _ => block_on(ex.run(yields(random.below(3) as usize))),
    }
}

/// Runs again and again, each time for a while; at times the run is dropped as it is, or with a panic.
fn run_again_and_again(storm: &Arc<Storm>, mut random: Random) {
    let Some(ex) = storm.ex.upgrade() else { return };
    while !storm.over.load(SeqCst) {
        match random.below(4) {
            0 => {
                let mut run = Puppet::new(ex.run(std::future::pending::<()>()));
                for _ in 0..random.below(4) {
                    assert!(run.poll().is_pending());
                }
            }
            1 => {
                let run = || block_on(ex.run(async { silent_panic() }));
                assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            }
            _ => block_on(ex.run(yields(random.below(100) as usize))),
        }
    }
}

/// Runs, asleep when there is nothing to do.
fn run_to_the_end(storm: &Arc<Storm>, stopped: async_channel::Receiver<()>, ticks: bool) {
    let Some(ex) = storm.ex.upgrade() else { return };
    let end = async { _ = stopped.recv().await };
    let tick_loop = async {
        loop {
            ex.tick().await;
            // A loop of ticks does not give way of itself.
            yield_now().await;
        }
    };
    match ticks {
        true => block_on(or(end, tick_loop)),
        false => block_on(ex.run(end)),
    }
}

/// Wakes, spawns and ticks until told to stop.
fn disturb(storm: &Arc<Storm>, mut random: Random, stop: &AtomicBool) {
    while !stop.load(SeqCst) {
        match random.below(8) {
            0 => drop(storm.spawn(&mut random)),
            1 => storm.spawn(&mut random).into_iter().for_each(ex::Task::detach),
            2 => _ = storm.ex.upgrade().is_some_and(|ex| ex.try_tick()),
            _ => storm.wake(random.below(PLACES)),
        }
    }
}

/// `cut_short`: the executor is dropped in the middle of it, else when all has come to its end.
fn storm(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first numbers of similar seeds are similar.
    (0..4).for_each(|_| _ = random.below(2));
    let (runs, ticks, cut_short) = (1 + random.below(4), random.below(3), random.below(2) == 0);
    let ex = Arc::new(Ex::new());
    let storm = Arc::new(Storm {
        ex: Arc::downgrade(&ex),
        places: [const { Mutex::new(None) }; PLACES as usize],
        budget: AtomicI64::new(3_000),
        ends: Ends::default(),
        over: AtomicBool::new(false),
    });
    let calm = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (storm, random, calm) = (&storm, random.fork(), &calm);
            scope.spawn(move || disturb(storm, random, calm));
        }
        thread::scope(|scope| {
            let (_stop, stopped) = async_channel::bounded::<()>(1);
            for thread in 0..runs + ticks {
                let (storm, stopped) = (&storm, stopped.clone());
                let random = random.fork();
                scope.spawn(move || match thread {
                    0 => run_again_and_again(storm, random),
                    _ => run_to_the_end(storm, stopped, thread >= runs),
                });
            }
            let left = if cut_short { 1_500 } else { 0 };
            while storm.budget.load(SeqCst) > left {
                storm.spawn(&mut random).into_iter().for_each(ex::Task::detach);
                thread::yield_now();
            }
            storm.over.store(true, SeqCst);
            while !cut_short && !ex.is_empty() {
                storm.wake(random.below(PLACES));
                thread::yield_now();
            }
        });
        // A task that drives its executor keeps it.
        while Arc::strong_count(&ex) > 1 {
            ex.try_tick();
        }
        // The wakes go on while the executor ends.
        storm.budget.store(0, SeqCst);
        // A disturber may hold it as well for a moment, and then it is the one that drops it.
        drop(ex);
        calm.store(true, SeqCst);
    });
    storm.places.iter().for_each(|place| drop(place.lock().unwrap().take()));
    assert!(storm.ex.upgrade().is_none());
    let Ends { made, finished, panicked, cancelled } = &storm.ends;
    let ended = [finished, panicked, cancelled].map(|count| count.load(SeqCst));
    assert_eq!(ended.iter().sum::<u64>(), made.load(SeqCst), "seed {seed}: {ended:?}");
    // No waker, no future, no queue holds it.
    assert_eq!(Arc::strong_count(&storm), 1, "seed {seed}");
}

#[test]
fn storms_lose_no_future() {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect(name));
    let seeds = match number("PACELINE_STRESS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PACELINE_STRESS_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        watched(&format!("seed {seed}"), move || storm(seed));
    }
}
