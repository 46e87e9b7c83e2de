//! What a worker and its thieves do with a queue.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;

use super::local::{ChaseLev, Concurrent, Local, Locked, Ours, St3, WorkQueue};
use super::{Item, Patience, Polled, Row, sum_to};
use crate::measure::{Sample, measured};

/// How often the owner alone pushes, and pops.
const ALONE: usize = 400_000;
/// How many items there are beside thieves, and how many of them the owner pushes at a time.
const SHARED: usize = 64_000;
const BURST: usize = 64;
/// What is done for each, if anything.
const WORK: usize = 100;

macro_rules! row {
    ($name:literal, $body:ident $arguments:tt, $($queue:ty),*) => {
        Row { name: $name, arms: &[$((<$queue>::NAME, || $body::<$queue> $arguments)),*] }
    };
    ($name:literal, $body:ident $arguments:tt) => {
        row!($name, $body $arguments,
             Ours, ChaseLev, St3, WorkQueue, Concurrent<false>, Concurrent<true>, Locked)
    };
}

pub const ROWS: &[Row] = &[
    row!("push_pop", batches(1)),
    row!("batches_16", batches(16)),
    row!("batches_200", batches(200)),
    row!("batches_4000", batches(4_000), Ours, ChaseLev, WorkQueue, Concurrent<false>, Locked),
    row!("circle_200", circle(200)),
    row!("thieves_1", beside_thieves(1, 0)),
    row!("thieves_1_work", beside_thieves(1, WORK)),
    row!("thieves_3", beside_thieves(3, 0)),
    row!("thieves_3_work", beside_thieves(3, WORK)),
];

/// So many are pushed, then popped.
fn batches<L: Local>(n: usize) -> Sample {
    let queue = &mut L::team(1).remove(0);
    measured((ALONE / n * n) as u64, || {
        let mut polled = Polled::with(0);
        for _ in 0..ALONE / n {
            (1..=n).for_each(|number| queue.push(Item::new(number)));
            while let Some(item) = queue.pop() {
                polled.poll(&item);
            }
        }
        assert_eq!(polled.sum, ALONE / n * sum_to(n));
    })
}

/// What is popped goes to the tail again, as tasks that yield do; an op is both.
fn circle<L: Local>(n: usize) -> Sample {
    let queue = &mut L::team(1).remove(0);
    (1..=n).for_each(|number| queue.push(Item::new(number)));
    measured(ALONE as u64, || {
        let mut polled = Polled::with(0);
        for _ in 0..ALONE {
            let item = queue.pop().expect("it is one of many");
            polled.poll(&item);
            queue.push(item);
        }
        assert_eq!(polled.sum, ALONE / n * sum_to(n));
    })
}

/// The owner pushes bursts, and pops what is left to it; everybody works on what it gets.
fn beside_thieves<L: Local>(thief_count: usize, work: usize) -> Sample {
    let (start, done) = (&Barrier::new(thief_count + 1), &AtomicBool::new(false));
    let mut team = L::team(thief_count + 1).into_iter();
    let mut owner = team.next().expect("the first of them");
    thread::scope(|scope| {
        let thieves: Vec<_> = team
            .map(|thief| {
                scope.spawn(move || {
                    start.wait();
                    rob(thief, work, done)
                })
            })
            .collect();
        let mut polled = Polled::with(work);
        start.wait();
        let sample = measured(SHARED as u64, || {
            for burst in 0..SHARED / BURST {
                let first = burst * BURST + 1;
                (first..first + BURST).for_each(|number| owner.push(Item::new(number)));
                while let Some(item) = owner.pop() {
                    polled.poll(&item);
                }
            }
            done.store(true, Release);
            polled.sum += thieves.into_iter().map(|thief| thief.join().unwrap()).sum::<usize>();
        });
        assert_eq!(polled.sum, sum_to(SHARED));
        sample
    })
}

/// The sum of what was stolen.
fn rob<L: Local>(mut thief: L, work: usize, done: &AtomicBool) -> usize {
    let (mut polled, mut patience) = (Polled::with(work), Patience::default());
    loop {
        let over = done.load(Acquire);
        let Some(item) = thief.steal() else {
            if over {
                return polled.sum;
            }
            patience.wait();
            continue;
        };
        patience.found();
        polled.poll(&item);
        while let Some(item) = thief.pop() {
            polled.poll(&item);
        }
    }
}
