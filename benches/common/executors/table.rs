//! Runs rows, arms interleaved, and prints them as a table with the ratio of each arm to each other.

use std::io::Write;

use super::Row;
use crate::common::choice::Choice;
use crate::common::measure::{Sample, interleaved, quartiles};

pub fn arms_of(rows: &[Row]) -> Vec<&'static str> {
    rows[0].arms.iter().map(|arm| arm.0).collect()
}

/// Gives the number of operations.
pub fn run(title: &str, rows: &[Row], choice: &Choice) -> u64 {
    let wanted: Vec<_> = rows.iter().filter(|row| choice.wants_workload(row.name)).collect();
    let mut columns = arms_of(rows);
    columns.retain(|arm| choice.wants_arm(arm));
    if wanted.is_empty() || columns.is_empty() {
        return 0;
    }
    print!("{title:<25}{:<15}{:>10}{:>8}", "arm", "ns/op", "spread");
    print!("{:>11}{:>7}{:>13}", "cpu ns/op", "cores", "switches/op");
    columns.iter().for_each(|arm| print!("{:>20}", format!("to {arm}")));
    println!();
    wanted.iter().map(|row| run_row(row, choice)).sum()
}

fn run_row(row: &Row, choice: &Choice) -> u64 {
    let arms = row.arms.iter().filter(|arm| choice.wants_arm(arm.0));
    let mut arms: Vec<_> = arms.map(|(name, start)| (*name, start())).collect();
    let (samples, operations) = interleaved(&mut arms, choice.rounds, |arm| arm.1());
    for ((arm, _), own) in arms.iter().zip(&samples) {
        print_line(row.name, arm, own, &samples);
    }
    std::io::stdout().flush().unwrap();
    operations
}

fn print_line(row: &str, arm: &str, own: &[Sample], of_all: &[Vec<Sample>]) {
    let median = |value: fn(&Sample) -> f64| quartiles(own.iter().map(value))[1];
    let (ns, spread) = with_spread(own.iter().map(Sample::ns_per_op));
    print!("{row:<25}{arm:<15}{ns:>10.1}{spread:>7.0}%");
    let [cpu, cores] = [median(Sample::cpu_ns_per_op), median(Sample::cores)];
    print!("{cpu:>11.1}{cores:>7.2}{:>13.4}", median(Sample::switches_per_op));
    for other in of_all {
        // Round by round: what disturbs one arm is likely to disturb its neighbour.
        let pairs = own.iter().zip(other);
        let (ratio, spread) =
            with_spread(pairs.map(|(own, other)| own.ns_per_op() / other.ns_per_op()));
        if std::ptr::eq(own, other.as_slice()) {
            print!("{:>20}", "-");
        } else {
            print!("{:>20}", format!("{ratio:.3} ({spread:.0}%)"));
        }
    }
    println!();
}

/// The median, and the distance of the quartiles in percent of it.
fn with_spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let [low, middle, high] = quartiles(values);
    (middle, (high - low) / middle * 100.0)
}
