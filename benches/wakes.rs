//! How many workers a burst of tasks wakes, by how many there are; counts, not times. See
//! benches/README.md.
#![allow(clippy::disallowed_methods)] // a pause between two bursts; nothing waits for it

#[path = "common/measure.rs"]
#[allow(dead_code)]
mod measure;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc;
use std::time::Duration;

use measure::{Sample, measured, quartiles};
use paceline::{Builder, Runtime, WorkerMetrics};

const WORKERS: [usize; 4] = [2, 16, 64, 256];
const BURSTS: [usize; 4] = [1, 16, 256, 4_096];
/// Microseconds.
const WORK: [usize; 3] = [0, 1, 50];
/// By then whoever was woken is asleep again.
const REST: Duration = Duration::from_millis(3);

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--test") { 1 } else { 9 };
    let runtimes = WORKERS.map(|workers| Builder::new().worker_threads(workers).build().unwrap());
    let columns = WORKERS.map(|workers| format!("{workers} workers"));
    println!("| burst | {} |\n|---{}|", columns.join(" | "), "|---".repeat(WORKERS.len()));
    for (from, burst) in [("outside", from_outside as Burst), ("a task", from_a_task)] {
        for work in WORK {
            for count in BURSTS {
                let round = |runtime| observed(runtime, || burst(runtime, count, work));
                let cells = runtimes.each_ref().map(|runtime| cell(rounds, || round(runtime)));
                println!("| {count} of {work} µs from {from} | {} |", cells.join(" | "));
            }
        }
    }
    let yields = |runtime| observed(runtime, || yield_200(runtime));
    let cells = runtimes.each_ref().map(|runtime| cell(rounds, || yields(runtime)));
    println!("| 200 tasks yield 1,000 times | {} |", cells.join(" | "));
}

type Burst = fn(&Runtime, usize, usize);

/// What was counted while a burst was worked off, and until all was quiet again.
struct Seen {
    sample: Sample,
    counted: WorkerMetrics,
}

fn observed(runtime: &Runtime, burst: impl FnOnce()) -> Seen {
    let before = runtime.metrics().total();
    let sample = measured(1, burst);
    std::thread::sleep(REST);
    let mut counted = runtime.metrics().total();
    counted.parks -= before.parks;
    counted.steals -= before.steals;
    Seen { sample, counted }
}

/// Medians: how many went to sleep (who had been woken before), stole, and the microseconds.
fn cell(rounds: usize, round: impl Fn() -> Seen) -> String {
    round();
    let seen: Vec<_> = (0..rounds).map(|_| round()).collect();
    let median = |value: fn(&Seen) -> f64| quartiles(seen.iter().map(value))[1];
    let [parks, steals] =
        [median(|seen| seen.counted.parks as f64), median(|seen| seen.counted.steals as f64)];
    let us = median(|seen| seen.sample.elapsed.as_nanos() as f64 / 1e3);
    format!("{parks:.0}, {steals:.0}, {us:.0}")
}

/// Of so many tasks; the last one tells.
struct Countdown(AtomicUsize, mpsc::Sender<()>);

fn countdown(count: usize) -> (Arc<Countdown>, mpsc::Receiver<()>) {
    let (done, end) = mpsc::channel();
    (Arc::new(Countdown(AtomicUsize::new(count), done)), end)
}

impl Countdown {
    fn one_less(&self) {
        if self.0.fetch_sub(1, AcqRel) == 1 {
            self.1.send(()).unwrap();
        }
    }
}

/// Arithmetic, not a wait for the clock: who is preempted has worked no longer.
fn work(us: usize) {
    (0..us * 1_000).for_each(|step| {
        black_box(step);
    });
}

fn from_outside(runtime: &Runtime, count: usize, us: usize) {
    let (left, end) = countdown(count);
    for _ in 0..count {
        let left = left.clone();
        let task = async move {
            work(us);
            left.one_less();
        };
        runtime.spawn(task).detach();
    }
    end.recv().unwrap();
}

fn from_a_task(runtime: &Runtime, count: usize, us: usize) {
    let (left, end) = countdown(count);
    let parent = async move {
        for _ in 0..count {
            let left = left.clone();
            let task = async move {
                work(us);
                left.one_less();
            };
            paceline::spawn(task).detach();
        }
    };
    runtime.spawn(parent).detach();
    end.recv().unwrap();
}

fn yield_200(runtime: &Runtime) {
    let (left, end) = countdown(200);
    for _ in 0..200 {
        let left = left.clone();
        let task = async move {
            for _ in 0..1_000 {
                paceline::yield_now().await;
            }
            left.one_less();
        };
        runtime.spawn(task).detach();
    }
    end.recv().unwrap();
}
