//! Seeded storms of spawns, wakes, cancels, panics and drops, from workers and foreign threads.
//! At the end of each, every future that was made has been dropped.
//!
//! `PACELINE_STRESS_SEED` runs one seed, `PACELINE_STRESS_SEEDS` so many.

#![allow(clippy::disallowed_methods)] // foreign threads are plain ones here

mod common;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::thread;

use common::watched;
use parking_lot::Mutex;

use paceline::{Builder, Handle, Task, Ticker, yield_if_due, yield_now};

const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 200 };

/// xorshift64: a seed gives one sequence of decisions.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn fork(&mut self) -> Self {
        Random(self.below(u64::MAX).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
}

/// What the storm's tasks and threads share.
struct Storm {
    /// Where tasks wait to be woken by anybody.
    places: Vec<Mutex<Option<Waker>>>,
    /// Futures that may still be made.
    budget: AtomicI64,
    made: AtomicU64,
    dropped: AtomicU64,
    over: AtomicBool,
}

struct Made(Arc<Storm>);

impl Drop for Made {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
        // A destructor that wakes.
        self.0.wake(self.0.dropped.load(SeqCst));
    }
}

impl Storm {
    fn wake(&self, place: u64) {
        let waker = self.places[place as usize % self.places.len()].lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits until somebody wakes this place; who waited there before is woken.
    async fn wait(&self, place: u64) {
        let mut waiting = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut waiting, true) || self.over.load(SeqCst) {
                return Poll::Ready(());
            }
            let place = &self.places[place as usize % self.places.len()];
            let before = place.lock().replace(cx.waker().clone());
            before.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await;
    }
}

fn make(storm: &Arc<Storm>, handle: &Handle, random: &mut Random) -> Option<Task<()>> {
    if storm.budget.fetch_sub(1, SeqCst) <= 0 {
        return None;
    }
    storm.made.fetch_add(1, SeqCst);
    let made = Made(storm.clone());
    let (random, inner) = (random.fork(), handle.clone());
    Some(handle.spawn(live(made, inner, random)))
}

/// The life of one task.
fn live(
    made: Made,
    handle: Handle,
    mut random: Random,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let storm = made.0.clone();
        for _ in 0..random.below(12) {
            match random.below(11) {
                0 => yield_now().await,
                1 => yield_if_due().await,
                2 => storm.wait(random.below(64)).await,
                3 | 4 => storm.wake(random.below(64)),
                5 => drop(make(&storm, &handle, &mut random)),
                6 => {
                    if let Some(task) = make(&storm, &handle, &mut random) {
                        task.cancel().await;
                    }
                }
                7 => {
                    if let Some(task) = make(&storm, &handle, &mut random) {
                        let _ = task.join().await;
                    }
                }
                8 if random.below(8) == 0 => panic!("storm"),
                9 if random.below(16) == 0 => {
                    if let Some(task) = make(&storm, &handle, &mut random) {
                        let _ = handle.block_on(task.join());
                    }
                }
                _ => {
                    if let Some(task) = make(&storm, &handle, &mut random) {
                        task.detach();
                    }
                }
            }
        }
    })
}

/// Wakes and spawns until the storm is over.
fn disturb(storm: &Arc<Storm>, handle: &Handle, mut random: Random) {
    while !storm.over.load(SeqCst) {
        match random.below(8) {
            0 => drop(make(storm, handle, &mut random)),
            1 => make(storm, handle, &mut random).into_iter().for_each(Task::detach),
            place => storm.wake(random.below(64) + place),
        }
    }
}

fn storm(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first numbers of similar seeds are similar.
    (0..4).for_each(|_| _ = random.below(2));
    let runtime = Builder::new()
        .worker_threads([1, 2, 4, 16][random.below(4) as usize])
        .wake_slot(random.below(4) > 0)
        .ticker([Ticker::Adaptive, Ticker::Off][random.below(2) as usize])
        .build()
        .unwrap();
    let storm = Arc::new(Storm {
        places: (0..64).map(|_| Mutex::default()).collect(),
        budget: AtomicI64::new(3_000),
        made: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    // Half of the storms are let blow out, the others are cut short by the drop.
    let cut_short = random.below(2) == 0;
    thread::scope(|scope| {
        for _ in 0..2 {
            let (random, storm, handle) = (random.fork(), &storm, runtime.handle().clone());
            scope.spawn(move || disturb(storm, &handle, random));
        }
        let handle = runtime.handle().clone();
        runtime.block_on(async {
            while storm.budget.load(SeqCst) > if cut_short { 1_500 } else { 0 } {
                make(&storm, &handle, &mut random).into_iter().for_each(Task::detach);
                yield_now().await;
            }
            while !cut_short && handle.metrics().live_tasks > 0 {
                yield_now().await;
            }
        });
        drop(runtime);
        storm.over.store(true, SeqCst);
    });
    // Wakers that are left hold memory only.
    storm.places.iter().for_each(|place| drop(place.lock().take()));
    let (made, dropped) = (storm.made.load(SeqCst), storm.dropped.load(SeqCst));
    assert_eq!(made, dropped, "seed {seed}: futures made and dropped");
    assert_eq!(Arc::strong_count(&storm), 1, "seed {seed}");
}

#[test]
fn storms_lose_no_future() {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect(name));
    let seeds = match number("PACELINE_STRESS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PACELINE_STRESS_SEEDS").unwrap_or(SEEDS),
    };
    std::panic::set_hook(Box::new(|panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"storm") {
            eprintln!("{panic}");
        }
    }));
    for seed in seeds {
        watched(&format!("seed {seed}"), move || storm(seed));
    }
}
