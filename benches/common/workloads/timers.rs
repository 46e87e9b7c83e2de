//! Workloads of timers. What is armed is far enough away not to fire, unless it is said.

use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use futures::poll;

use super::busy::{Load, compute_10us};
use super::{Runner, countdown, workers, yield_now};
use crate::common::measure::{Histogram, Sample, measured};
use crate::common::net::Net;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Mixes numbers that follow each other evenly over the range, the same way every time.
fn scattered(number: usize, least: Duration, most: Duration) -> Duration {
    let hash = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let width = (most - least).as_micros() as u64;
    least + Duration::from_micros((hash * width) >> 32)
}

const TIMERS: usize = 10_000;

/// 10,000 tasks sleep once, for 1 to 50 ms; watched is how much later than asked each wakes.
pub fn many_timers<A: Net>(arm: &A) -> Sample {
    let lateness: Arc<[AtomicU64]> = (0..TIMERS).map(|_| AtomicU64::new(0)).collect();
    let mut sample = measured(TIMERS as u64, || arm.in_task(sleepers::<A>(lateness.clone())));
    let mut histogram = Histogram::new();
    lateness.iter().for_each(|ns| histogram.add(Duration::from_nanos(ns.load(Relaxed))));
    sample.watched = Some(histogram.watched("late"));
    sample
}

/// The same beside two tasks for each worker that yield and compute for 10 µs; an operation is a turn of
/// one of these.
pub fn timers_busy<A: Net>(arm: &A) -> Sample {
    let load = Load::yielding(arm, 2 * workers(), compute_10us);
    let mut sample = many_timers(arm);
    sample.ops = load.end().count;
    sample
}

async fn sleepers<A: Net>(lateness: Arc<[AtomicU64]>) {
    let (left, done) = countdown(lateness.len());
    for number in 0..lateness.len() {
        let (left, lateness) = (left.clone(), lateness.clone());
        A::launch(async move {
            let sleep = scattered(number, Duration::from_millis(1), Duration::from_millis(50));
            let deadline = Instant::now() + sleep;
            A::sleep_until(deadline).await;
            let late = Instant::now().checked_duration_since(deadline).expect("woke early");
            lateness[number].store(late.as_nanos() as u64, Relaxed);
            left.one_less();
        });
    }
    done.await.unwrap();
}

const TIMEOUTS: usize = 100_000;

async fn timeouts<A: Net, F: Future<Output = u32> + Send>(future: fn() -> F) {
    for _ in 0..TIMEOUTS {
        let value = A::timeout(Duration::from_secs(1), black_box(future())).await;
        assert_eq!(value, Some(1));
    }
}

/// A timeout around a future that is ready.
pub fn timeout_ready<A: Net>(arm: &A) -> Sample {
    measured(TIMEOUTS as u64, || arm.in_task(timeouts::<A, _>(|| ready(1))))
}

/// A timeout around a future that yields once.
pub fn timeout_pending_once<A: Net>(arm: &A) -> Sample {
    async fn one_later() -> u32 {
        yield_now().await;
        1
    }
    measured(TIMEOUTS as u64, || arm.in_task(timeouts::<A, _>(one_later)))
}

/// A task sleeps until a moment that has passed.
pub fn sleep_expired<A: Net>(arm: &A) -> Sample {
    const TIMES: usize = 20_000;
    // Long ago for a timer that counts milliseconds.
    const AGO: Duration = Duration::from_millis(10);
    measured(TIMES as u64, || {
        arm.in_task(async {
            let passed = Instant::now() - AGO;
            for _ in 0..TIMES {
                A::sleep_until(passed).await;
            }
        });
    })
}

type Timers = Vec<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Timers of one to two hours, armed by the task that calls.
async fn armed<A: Net>(count: usize) -> Timers {
    let now = Instant::now();
    let mut timers = Timers::with_capacity(count);
    for number in 0..count {
        let mut timer = Box::pin(A::sleep_until(now + scattered(number, HOUR, 2 * HOUR)));
        assert!(poll!(timer.as_mut()).is_pending());
        timers.push(timer);
    }
    timers
}

/// One task arms and drops timers of a minute, beside so many that stay armed.
pub fn arm_cancel<A: Net, const ARMED: usize>(arm: A) -> Runner {
    const TIMES: usize = 100_000;
    let held = arm.in_task(armed::<A>(ARMED));
    // The timers stay as long as the closure, and go before their runtime.
    let state = (held, arm);
    Box::new(move || {
        let (held, arm) = &state;
        assert_eq!(held.len(), ARMED);
        measured(TIMES as u64, || {
            arm.in_task(async {
                for _ in 0..TIMES {
                    let timer = pin!(A::sleep_until(Instant::now() + MINUTE));
                    assert!(poll!(timer).is_pending());
                }
            });
        })
    })
}

/// A million armed timers are dropped, their boxes with them.
pub fn drop_1m<A: Net>(arm: &A) -> Sample {
    const TIMERS: usize = 1_000_000;
    let timers = arm.in_task(armed::<A>(TIMERS));
    measured(TIMERS as u64, || arm.in_task(async move { drop(timers) }))
}
