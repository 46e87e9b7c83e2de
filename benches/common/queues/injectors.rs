//! What producers and consumers do with an injector.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Barrier, Mutex};
use std::thread;

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::SegQueue;

use super::outside::Injector;
use super::{Item, Patience, Polled, Row, sum_to, work};
use crate::injector;
use crate::measure::{Sample, measured};

/// How many items pass; as many threads divide them as there are producers.
const ITEMS: usize = 64_000;
/// What a producer does for each, and a consumer.
const WORK: usize = 200;

macro_rules! row {
    ($name:literal, $body:ident $arguments:tt, $($queue:ty),*) => {
        Row { name: $name, arms: &[$((<$queue as Injector>::NAME, || $body::<$queue> $arguments)),*] }
    };
    ($name:literal, $body:ident $arguments:tt) => {
        row!($name, $body $arguments,
             injector::Injector<Item>, crossbeam_deque::Injector<Item>, SegQueue<Item>,
             ConcurrentQueue<Item>, Mutex<VecDeque<Item>>)
    };
}

pub const ROWS: &[Row] = &[
    row!("inject_1", bursts(1)),
    row!("inject_256", bursts(256)),
    row!("inject_1_to_1", pass(1, 1, 0)),
    row!("inject_2_to_2", pass(2, 2, 0)),
    row!("inject_1_to_4", pass(1, 4, 0)),
    row!("inject_4_to_1", pass(4, 1, 0)),
    row!("inject_8_to_8", pass(8, 8, 0)),
    row!("inject_1_to_1_work", pass(1, 1, WORK)),
    row!("inject_2_to_2_work", pass(2, 2, WORK)),
    row!("inject_1_to_4_work", pass(1, 4, WORK)),
    row!("inject_4_to_1_work", pass(4, 1, WORK)),
    row!("inject_8_to_8_work", pass(8, 8, WORK)),
];

/// On one thread, which is one of two workers: so many are pushed, then taken.
fn bursts<I: Injector>(n: usize) -> Sample {
    let (injector, own) = (I::new(), I::new_own());
    measured((ITEMS / n * n) as u64, || {
        let mut polled = Polled::with(0);
        for _ in 0..ITEMS / n {
            (1..=n).for_each(|number| injector.push(Item::new(number)));
            while let Some(item) = I::pop(&own).or_else(|| injector.take(&own, 2)) {
                polled.poll(&item);
            }
        }
        assert_eq!(polled.sum, ITEMS / n * sum_to(n));
    })
}

/// From so many threads to so many others, each of which does so much for every item.
fn pass<I: Injector>(from: usize, to: usize, steps: usize) -> Sample {
    let injector = &I::new();
    let (start, producers) = (&Barrier::new(from + to + 1), &AtomicUsize::new(from));
    thread::scope(|scope| {
        for producer in 0..from {
            scope.spawn(move || {
                start.wait();
                for number in (1..=ITEMS).skip(producer).step_by(from) {
                    work(steps);
                    injector.push(Item::new(number));
                }
                producers.fetch_sub(1, Release);
            });
        }
        let consumers: Vec<_> = (0..to)
            .map(|_| {
                scope.spawn(move || {
                    start.wait();
                    consume(injector, to, steps, producers)
                })
            })
            .collect();
        measured(ITEMS as u64, || {
            start.wait();
            let sum: usize = consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum();
            assert_eq!(sum, sum_to(ITEMS));
        })
    })
}

/// The sum of what one consumer took.
fn consume<I: Injector>(
    injector: &I,
    consumers: usize,
    steps: usize,
    producers: &AtomicUsize,
) -> usize {
    let (mut polled, mut patience) = (Polled::with(steps), Patience::default());
    let own = I::new_own();
    loop {
        let over = producers.load(Acquire) == 0;
        match I::pop(&own).or_else(|| injector.take(&own, consumers)) {
            Some(item) => {
                patience.found();
                polled.poll(&item);
            }
            None if over => return polled.sum,
            None => patience.wait(),
        }
    }
}
