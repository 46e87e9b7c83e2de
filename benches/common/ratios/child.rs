//! Measures a workload in this process and prints what it measured, line by line.

use std::io::{BufWriter, Write, stdout};
use std::time::{Duration, Instant};

use super::arguments::{Extent, Plan};
use super::outcome::{Line, Round};
use crate::ALLOCATOR;
use crate::common::measure::{Sample, take_turns};
use crate::common::settings;
use crate::common::workloads::{Runner, Workload, expect_planned_panics};

/// Who reads the lines wakes up for them, on one of the CPUs that are measured on: not more often.
const PRINTS: Duration = Duration::from_millis(500);

/// For the process that made this one: the allocator, and lines of [`Line`].
pub fn print(plan: &Plan) {
    prepare(plan);
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    writeln!(out, "allocator\t{}", ALLOCATOR.chosen().name()).unwrap();
    for workload in &plan.workloads {
        measure(workload, plan, &mut out);
    }
    out.flush().unwrap();
}

/// Runs the rounds and prints how many operations they did, warm-up and all.
pub fn count(plan: &Plan) {
    prepare(plan);
    let count = |workload: &&'static Workload| measure(workload, plan, &mut std::io::sink());
    println!("operations: {}", plan.workloads.iter().map(count).sum::<u64>());
}

fn prepare(plan: &Plan) {
    settings::set(plan.knobs.settings());
    expect_planned_panics();
}

/// Gives the number of operations.
fn measure(workload: &Workload, plan: &Plan, out: &mut impl Write) -> u64 {
    let wanted = workload.arms.iter().filter(|arm| plan.wants_arm(arm.0));
    let mut arms: Vec<(&str, Runner)> = Vec::new();
    for (name, start) in wanted {
        let before = Instant::now();
        arms.push((name, start()));
        print_line(out, &Line::Start(name, before.elapsed()));
    }
    let operations = rounds(&mut arms, plan.profile.extent(workload), out);
    for (name, runner) in arms {
        let before = Instant::now();
        drop(runner);
        print_line(out, &Line::Stop(name, before.elapsed()));
    }
    operations
}

/// The arms take turns. The first round warms up, and counts if there is no other.
fn rounds(arms: &mut [(&str, Runner)], extent: Extent, out: &mut impl Write) -> u64 {
    let (mut operations, mut watched) = (0, None);
    let mut round = |number: usize, out: &mut dyn FnMut(Line)| {
        take_turns(arms.len(), number, |arm| {
            let (name, runner) = &mut arms[arm];
            let sample: Sample = runner();
            operations += sample.ops;
            watched = watched.or(sample.watched);
            out(Line::Round(name, Round::new(&sample)));
        });
    };
    match extent.most {
        0 => round(0, &mut |line| print_line(out, &line)),
        _ => round(0, &mut |_| {}),
    }
    let start = Instant::now();
    let mut printed = start;
    for number in 1.. {
        if extent.is_enough(number - 1, start.elapsed()) {
            break;
        }
        round(number, &mut |line| print_line(out, &line));
        if printed.elapsed() > PRINTS {
            out.flush().unwrap();
            printed = Instant::now();
        }
    }
    if let Some(watched) = watched {
        print_line(out, &Line::Watched(watched.name));
    }
    operations
}

fn print_line(out: &mut impl Write, line: &Line) {
    writeln!(out, "{line}").unwrap();
}
