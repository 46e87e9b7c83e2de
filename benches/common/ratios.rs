//! Every workload over every arm, interleaved, as one table of ratios to tokio.

use std::io::Write;

use crate::common::arms::{Arm, Tokio};
use crate::common::choice::Choice;
use crate::common::measure::{Sample, interleaved, quartiles};
use crate::common::workloads::{self, Runner, WORKLOADS, Workload};

/// For its arguments see [`Choice::from_arguments`].
pub fn main() {
    let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
    let arms: Vec<_> = WORKLOADS[0].arms.iter().map(|arm| arm.0).collect();
    let choice = Choice::from_arguments(&names, &arms);
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
    let wanted = WORKLOADS.iter().filter(|workload| choice.wants_workload(workload.name));
    let operations: u64 = wanted.map(|workload| run(workload, &choice)).sum();
    if choice.counts {
        println!("operations: {operations}");
    }
}

/// Gives the number of operations.
fn run(workload: &Workload, choice: &Choice) -> u64 {
    let wanted = workload.arms.iter().filter(|arm| choice.wants_arm(arm.0));
    let mut arms: Vec<(&str, Runner)> = wanted.map(|(name, start)| (*name, start())).collect();
    let rounds = choice.rounds.div_ceil(workload.rounds_divisor);
    let (samples, operations) = interleaved(&mut arms, rounds, |arm| arm.1());
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
