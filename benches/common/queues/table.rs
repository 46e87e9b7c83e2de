//! Runs rows, arms interleaved, and prints them as a table with the ratio of each arm to the first.

use std::io::Write;

use super::Row;
use crate::choice::Choice;
use crate::measure::{Sample, interleaved, quartiles};

/// Gives the number of operations.
pub fn run(title: &str, rows: &[Row], choice: &Choice) -> u64 {
    let wanted: Vec<_> = rows.iter().filter(|row| choice.wants_workload(row.name)).collect();
    let mut columns: Vec<_> = rows[0].arms.iter().map(|arm| arm.0).collect();
    columns.retain(|arm| choice.wants_arm(arm));
    if wanted.is_empty() || columns.is_empty() {
        return 0;
    }
    println!("| {title} | {} |", columns.join(" | "));
    println!("|{}", "---|".repeat(columns.len() + 1));
    wanted.iter().map(|row| run_row(row, &columns, choice)).sum()
}

fn run_row(row: &Row, columns: &[&str], choice: &Choice) -> u64 {
    let mut arms: Vec<_> = row.arms.iter().filter(|arm| choice.wants_arm(arm.0)).collect();
    let (samples, operations) = interleaved(&mut arms, choice.rounds, |arm| arm.1());
    print!("| {} |", row.name);
    for column in columns {
        match arms.iter().position(|arm| arm.0 == *column) {
            Some(arm) => print!(" {} |", cell(&samples[arm], &samples[0])),
            None => print!(" - |"),
        }
    }
    println!();
    std::io::stdout().flush().unwrap();
    operations
}

/// Nanoseconds per operation, and their ratio to those of `first`, round by round; each with its spread.
fn cell(samples: &[Sample], first: &[Sample]) -> String {
    let (ns, spread) = with_spread(samples.iter().map(Sample::ns_per_op));
    if std::ptr::eq(samples, first) {
        return format!("{ns:.1} ({spread:.0}%)");
    }
    let pairs = samples.iter().zip(first);
    let (ratio, spread) =
        with_spread(pairs.map(|(own, first)| own.ns_per_op() / first.ns_per_op()));
    format!("{ns:.1}, {ratio:.2} ({spread:.0}%)")
}

/// The median, and the distance of the quartiles in percent of it.
fn with_spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let [low, middle, high] = quartiles(values);
    (middle, (high - low) / middle * 100.0)
}
