//! Every workload over every arm, interleaved, as one table of ratios to tokio.

use std::io::Write;

use crate::common::arms::{Arm, Tokio};
use crate::common::measure::{Sample, quartiles};
use crate::common::workloads::{self, Runner, WORKLOADS, Workload};

/// Rounds of the short profile, which `cargo bench` runs.
const ROUNDS: usize = 21;

/// What to run.
struct Choice {
    /// After the one that warms up, which counts if there is no other.
    rounds: usize,
    /// Also prints how many operations all rounds did, warm-up and all.
    counts: bool,
    /// Names; all when empty.
    workloads: Vec<String>,
    arms: Vec<String>,
}

impl Choice {
    fn from_arguments() -> Self {
        let mut choice =
            Choice { rounds: ROUNDS, counts: false, workloads: Vec::new(), arms: Vec::new() };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--test" => choice.rounds = 0,
                "--count" => choice.counts = true,
                "--rounds" => {
                    let number = arguments.next().and_then(|n| n.parse().ok());
                    choice.rounds =
                        number.filter(|&n| n > 0).expect("--rounds wants a number above zero");
                }
                "--arm" => {
                    let arms: Vec<_> = WORKLOADS[0].arms.iter().map(|arm| arm.0).collect();
                    let name = arguments.next().unwrap_or_default();
                    assert!(arms.contains(&&*name), "no arm {name:?}; there are {arms:?}");
                    choice.arms.push(name);
                }
                "--bench" => {}
                name if WORKLOADS.iter().any(|workload| workload.name == name) => {
                    choice.workloads.push(name.to_owned());
                }
                other => {
                    let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
                    panic!("no workload {other:?}; there are {names:?}");
                }
            }
        }
        choice
    }
}

fn is_wanted(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|wanted| wanted == name)
}

/// Arguments: names of workloads (all without), `--arm NAME` (again for more; all without),
/// `--rounds N`; `--test` runs each once; `--count` adds the number of operations.
pub fn main() {
    let choice = Choice::from_arguments();
    workloads::expect_planned_panics();
    println!(
        "{:<21}{:<9}{:>12}{:>8}{:>9}{:>12}{:>9}{:>7}{:>12}  {:<25}{:>9}",
        "workload",
        "arm",
        "ns/op",
        "spread",
        "to tokio",
        "cpu ns/op",
        "to tokio",
        "cores",
        "switches/op",
        "watched p50, p99 (us)",
        "to tokio"
    );
    let wanted = WORKLOADS.iter().filter(|workload| is_wanted(&choice.workloads, workload.name));
    let operations: u64 = wanted.map(|workload| run(workload, &choice)).sum();
    if choice.counts {
        println!("operations: {operations}");
    }
}

/// Gives the number of operations.
fn run(workload: &Workload, choice: &Choice) -> u64 {
    let wanted = workload.arms.iter().filter(|arm| is_wanted(&choice.arms, arm.0));
    let mut arms: Vec<(&str, Runner)> = wanted.map(|(name, start)| (*name, start())).collect();
    let rounds = choice.rounds.div_ceil(workload.rounds_divisor);
    let mut samples = vec![Vec::new(); arms.len()];
    let mut operations = 0;
    for round in 0..=rounds {
        for turn in 0..arms.len() {
            let arm = (round + turn) % arms.len();
            let sample = arms[arm].1();
            operations += sample.ops;
            if round > 0 || rounds == 0 {
                samples[arm].push(sample);
            }
        }
    }
    let tokio = arms.iter().position(|arm| arm.0 == Tokio::NAME);
    let tokio = tokio.map(|arm| samples[arm].as_slice());
    for ((arm, _), samples) in arms.iter().zip(&samples) {
        print_row(workload.name, arm, samples, tokio);
    }
    std::io::stdout().flush().unwrap();
    operations
}

fn median(samples: &[Sample], value: fn(&Sample) -> f64) -> f64 {
    quartiles(samples.iter().map(value))[1]
}

fn print_row(workload: &str, arm: &str, samples: &[Sample], tokio: Option<&[Sample]>) {
    let [low, middle, high] = quartiles(samples.iter().map(Sample::ns_per_op));
    let to_tokio = |value: fn(&Sample) -> f64| {
        let ratio = tokio.map(|tokio| median(samples, value) / median(tokio, value));
        ratio.filter(|ratio| ratio.is_finite()).map_or("-".into(), |ratio| format!("{ratio:.3}"))
    };
    let p50 = |sample: &Sample| sample.watched.map_or(f64::NAN, |watched| watched.p50 / 1e3);
    let p99 = |sample: &Sample| sample.watched.map_or(f64::NAN, |watched| watched.p99 / 1e3);
    let (watched, watched_to_tokio) = match samples[0].watched {
        None => Default::default(),
        Some(watched) => {
            let (name, p50_us, p99_us) = (watched.name, median(samples, p50), median(samples, p99));
            (format!("{name} {p50_us:.1}, {p99_us:.1}"), to_tokio(p50))
        }
    };
    println!(
        "{:<21}{:<9}{:>12.1}{:>7.0}%{:>9}{:>12.1}{:>9}{:>7.2}{:>12.4}  {:<25}{:>9}",
        workload,
        arm,
        middle,
        (high - low) / middle * 100.0,
        to_tokio(Sample::ns_per_op),
        median(samples, Sample::cpu_ns_per_op),
        to_tokio(Sample::cpu_ns_per_op),
        median(samples, Sample::cores),
        median(samples, Sample::switches_per_op),
        watched,
        watched_to_tokio,
    );
}
