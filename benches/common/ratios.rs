//! Every workload over every arm, interleaved, as one table of ratios to tokio.

use std::io::Write;

use crate::common::arms::{Arm, Paceline, SlotOff, Smol, Tokio};
use crate::common::measure::{Sample, quartiles};
use crate::common::workloads::{self, WORKERS};

/// Rounds of the short profile, which `cargo bench` runs.
const ROUNDS: usize = 21;

/// One arm's runtime and the workload on it.
type Runner = (&'static str, Box<dyn Fn() -> Sample>);

/// One workload with a runtime of each arm, made once.
struct Row {
    name: &'static str,
    /// Of long workloads there are fewer rounds.
    rounds_divisor: usize,
    arms: Vec<Runner>,
}

/// A workload's name, and what makes its row when its turn comes.
type Entry = (&'static str, fn() -> Row);

macro_rules! row {
    ($name:literal, $body:ident $(::<$workers:literal>)?) => { row!($name, $body $(::<$workers>)?, 1) };
    ($name:literal, $body:ident $(::<$workers:literal>)?, $divisor:literal) => {
        ($name, || Row {
            name: $name,
            rounds_divisor: $divisor,
            arms: vec![
                arm::<Paceline>(workloads::$body::<Paceline $(, $workers)?>),
                arm::<Tokio>(workloads::$body::<Tokio $(, $workers)?>),
                arm::<Smol>(workloads::$body::<Smol $(, $workers)?>),
                arm::<SlotOff>(workloads::$body::<SlotOff $(, $workers)?>),
            ],
        })
    };
}

fn arm<A: Arm>(body: fn(&A) -> Sample) -> Runner {
    let runtime = A::new(WORKERS);
    (A::NAME, Box::new(move || body(&runtime)))
}

const ROWS: &[Entry] = &[
    row!("spawn_many", spawn_many),
    row!("spawn_inside", spawn_inside),
    row!("chained_spawn", chained_spawn),
    row!("spawn_await", spawn_await),
    row!("spawn_await_main", spawn_await_main),
    row!("yield_200", yield_200),
    row!("yield_1", yield_1),
    row!("ping_pong", ping_pong),
    row!("pair", pair_alone),
    row!("pair_beside_yielders", pair_beside_yielders, 3),
    row!("main_round_trip", main_round_trip),
    row!("remote_round_trip", remote_round_trip),
    row!("lifecycle_1", lifecycle::<1>),
    row!("lifecycle_2", lifecycle::<2>),
    row!("lifecycle_8", lifecycle::<8>),
    row!("lifecycle_with_work", lifecycle_with_work),
    row!("fan_out_compute", fan_out_compute),
    row!("catch_panics", catch_panics),
];

/// Arguments: names of workloads (all without), `--rounds N`; `--test` runs each once.
pub fn main() {
    let mut rounds = ROUNDS;
    let mut wanted = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--test" => rounds = 1,
            "--rounds" => {
                let number = arguments.next().and_then(|n| n.parse().ok());
                rounds = number.filter(|&n| n > 0).expect("--rounds wants a number above zero");
            }
            "--bench" => {}
            name if ROWS.iter().any(|row| row.0 == name) => wanted.push(name.to_owned()),
            other => {
                let names: Vec<_> = ROWS.iter().map(|row| row.0).collect();
                panic!("no workload {other:?}; there are {names:?}");
            }
        }
    }
    workloads::expect_planned_panics();
    println!(
        "{:<22}{:>16}{:>12}{:>9}{:>10}{:>8}{:>12}{:>14}",
        "workload", "arm", "ns/op", "spread", "to tokio", "cores", "switches/op", "watched p99"
    );
    for (name, make) in ROWS {
        if wanted.is_empty() || wanted.iter().any(|want| want == name) {
            run(&make(), rounds);
        }
    }
}

fn run(row: &Row, rounds: usize) {
    let rounds = rounds.div_ceil(row.rounds_divisor);
    let mut samples = vec![Vec::new(); row.arms.len()];
    for round in 0..=rounds {
        for turn in 0..row.arms.len() {
            let arm = (round + turn) % row.arms.len();
            let sample = row.arms[arm].1();
            // The first round warms up, unless it is the only one.
            if round > 0 || rounds == 1 {
                samples[arm].push(sample);
            }
        }
    }
    let medians: Vec<_> =
        samples.iter().map(|s| quartiles(s.iter().map(Sample::ns_per_op))).collect();
    let tokio = row.arms.iter().position(|arm| arm.0 == Tokio::NAME).unwrap();
    for (arm, (name, _)) in row.arms.iter().enumerate() {
        let [low, median, high] = medians[arm];
        let of = |value: fn(&Sample) -> f64| quartiles(samples[arm].iter().map(value))[1];
        let watched = match samples[arm][0].watched_p99 {
            Some(_) => format!("{:.1} us", of(|s| s.watched_p99.unwrap()) / 1_000.0),
            None => String::new(),
        };
        println!(
            "{:<22}{:>16}{:>12.1}{:>8.0}%{:>10.3}{:>8.2}{:>12.4}{:>14}",
            row.name,
            name,
            median,
            (high - low) / median * 100.0,
            median / medians[tokio][1],
            of(Sample::cores),
            of(Sample::switches_per_op),
            watched,
        );
    }
    std::io::stdout().flush().unwrap();
}
