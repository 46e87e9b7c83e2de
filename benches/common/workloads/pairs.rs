//! Workloads of messages there and back: between two tasks, alone or among others, and between a task
//! and a thread.

use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;

use super::busy::Load;
use crate::common::arms::Arm;
use crate::common::channel::{Receiver, Sender, channel};
use crate::common::measure::{Histogram, Sample, measured};

/// Sends back what comes in, until the other side hangs up.
async fn echo(mut incoming: Receiver<usize>, mut outgoing: Sender<usize>) {
    while let Some(message) = incoming.recv().await {
        outgoing.send(message).await;
    }
}

/// Sends messages and waits for each to come back.
async fn call(mut outgoing: Sender<usize>, mut incoming: Receiver<usize>, n: usize) {
    for message in 0..n {
        outgoing.send(message).await;
        assert_eq!(incoming.recv().await, Some(message));
    }
}

/// The same as long as it is told, of the trips made and the time; how many there were, and how long
/// each took.
async fn timed_call(
    mut outgoing: Sender<usize>,
    mut incoming: Receiver<usize>,
    goes_on: impl Fn(usize, Instant) -> bool,
) -> (usize, Histogram) {
    let (mut trips, mut took, mut now) = (0, Histogram::new(), Instant::now());
    while goes_on(trips, now) {
        outgoing.send(trips).await;
        assert_eq!(incoming.recv().await, Some(trips));
        trips += 1;
        let before = std::mem::replace(&mut now, Instant::now());
        took.add(now - before);
    }
    (trips, took)
}

/// Two tasks that exchange messages over channels of capacity 1.
fn pair<A: Arm>(messages: usize) -> impl Future<Output = ()> {
    let (ping, pings) = channel();
    let (pong, pongs) = channel();
    let echo = A::spawn(echo(pings, pong));
    let caller = A::spawn(call(ping, pongs, messages));
    async {
        caller.await;
        echo.await;
    }
}

/// So many pairs; an operation is one message there and back.
pub fn pairs<A: Arm, const PAIRS: usize>(arm: &A) -> Sample {
    pairs_of(arm, PAIRS)
}

fn pairs_of<A: Arm>(arm: &A, count: usize) -> Sample {
    const MESSAGES: usize = 50_000;
    measured(MESSAGES as u64, || {
        arm.block_on(async {
            let pairs: Vec<_> = (0..count).map(|_| pair::<A>(MESSAGES / count)).collect();
            for pair in pairs {
                pair.await;
            }
        });
    })
}

/// One pair beside 200 tasks that yield, for 30 ms; watched is how long these wait for their next
/// turn.
pub fn pair_beside_yielders<A: Arm>(arm: &A) -> Sample {
    const LASTS: Duration = Duration::from_millis(30);
    let load = Load::yielding(arm, 200, || ());
    let mut trips = 0;
    let mut sample = measured(0, || {
        trips = arm.in_task(async {
            let (ping, pings) = channel();
            let (pong, pongs) = channel();
            A::launch(echo(pings, pong));
            let start = Instant::now();
            timed_call(ping, pongs, move |_, now| now - start < LASTS).await.0
        });
    });
    sample.ops = trips as u64;
    sample.watched = Some(load.end().waits.watched("wait"));
    sample
}

const TRIPS: usize = 2_000;

/// The future of `block_on` and one task exchange messages; watched is how long a message takes there
/// and back, here and below.
pub fn main_round_trip<A: Arm>(arm: &A) -> Sample {
    let mut took = Histogram::new();
    let mut sample = measured(TRIPS as u64, || {
        arm.block_on(async {
            let (ping, pings) = channel();
            let (pong, pongs) = channel();
            A::launch(echo(pings, pong));
            (_, took) = timed_call(ping, pongs, |trips, _| trips < TRIPS).await;
        });
    });
    sample.watched = Some(took.watched("trip"));
    sample
}

/// A foreign thread and a task exchange messages while the runtime has nothing else to do.
pub fn remote_round_trip<A: Arm>(arm: &A) -> Sample {
    remote_trips(arm, |trips, _| trips < TRIPS)
}

/// The same for that long.
pub fn remote_round_trip_for<A: Arm>(arm: &A, lasts: Duration) -> Sample {
    let start = Instant::now();
    remote_trips(arm, move |_, now| now - start < lasts)
}

fn remote_trips<A: Arm>(arm: &A, goes_on: impl Fn(usize, Instant) -> bool) -> Sample {
    let (ping, pings) = channel();
    let (pong, pongs) = channel();
    arm.launch_from_outside(echo(pings, pong));
    let (mut trips, mut took) = (0, Histogram::new());
    let mut sample = measured(0, || (trips, took) = block_on(timed_call(ping, pongs, goes_on)));
    sample.ops = trips as u64;
    sample.watched = Some(took.watched("trip"));
    sample
}

/// The same between two threads without any runtime, which park: what a runtime whose workers sleep
/// adds to.
pub fn raw_round_trip() -> Sample {
    fn park_until(turn: &AtomicUsize, wanted: usize) {
        while turn.load(Acquire) != wanted {
            thread::park();
        }
    }
    let (turn, caller) = (AtomicUsize::new(0), thread::current());
    let mut took = Histogram::new();
    let mut sample = thread::scope(|scope| {
        let other = scope.spawn(|| {
            for trip in 0..TRIPS {
                park_until(&turn, 2 * trip + 1);
                turn.store(2 * trip + 2, Release);
                caller.unpark();
            }
        });
        measured(TRIPS as u64, || {
            for trip in 0..TRIPS {
                let before = Instant::now();
                turn.store(2 * trip + 1, Release);
                other.thread().unpark();
                park_until(&turn, 2 * trip + 2);
                took.add(before.elapsed());
            }
        })
    });
    sample.watched = Some(took.watched("trip"));
    sample
}
