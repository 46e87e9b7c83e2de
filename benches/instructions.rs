//! Instructions per operation of paceline and tokio, counted by callgrind; and the gate that keeps them
//! from growing. See benches/README.md.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, io, thread};

mod common;
#[path = "common/executors/mod.rs"]
#[allow(dead_code)]
mod executors;
#[path = "common/instructions/mod.rs"]
mod instructions;

use instructions::baseline::{self, Baseline, MOST_GROWTH};
use instructions::callgrind::{self, Place};
use instructions::ops::{OPS, Op};

const USAGE: &str = "\
usage: cargo bench --bench instructions -- [COMMAND] [OP...]

Without a command, prints the table. Commands:
  check            fails if an operation takes 5% more than benches/instructions.csv says
  record           writes that file
  profile OP ARM   prints where the instructions go, paceline's or tokio's";

const NO_VALGRIND: &str = "valgrind is not here; on Debian: apt-get install valgrind";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["run", op, arm] => match callgrind::find(op, arm) {
            Some(start) => {
                callgrind::run(start);
                Ok(true)
            }
            None => return misuse(USAGE),
        },
        // Among all benches it is no failure.
        [] if !callgrind::is_there() => {
            println!("{NO_VALGRIND}");
            Ok(true)
        }
        _ if !callgrind::is_there() => return misuse(NO_VALGRIND),
        ["profile", op, arm] if callgrind::find(op, arm).is_some() => profile(op, arm),
        ["record"] => record(),
        ["check", ref ops @ ..] if are_ops(ops) => table(ops, true),
        ref ops if are_ops(ops) => table(ops, false),
        _ => return misuse(USAGE),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => misuse(&error.to_string()),
    }
}

fn misuse(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}

fn are_ops(names: &[&str]) -> bool {
    names.iter().all(|name| OPS.iter().any(|op| op.name == *name))
}

fn profile(op: &str, arm: &str) -> io::Result<bool> {
    let place = Place::new()?;
    callgrind::annotate(&place.count(op, arm)?.profile)?;
    Ok(true)
}

/// Counts every operation on its arms but those that are not wanted, two at a time or as many as there
/// are CPUs. In the order of `ops`, then of the arms.
fn count(ops: &[&Op], wants_arm: fn(&str) -> bool) -> io::Result<Vec<Vec<f64>>> {
    let jobs: Vec<_> = ops
        .iter()
        .flat_map(|op| {
            op.arms.iter().filter(|start| wants_arm(start.0)).map(|start| (op.name, start.0))
        })
        .collect();
    let (place, next) = (Place::new()?, AtomicUsize::new(0));
    let work = || {
        let mut counts = Vec::new();
        while let Some(&(op, arm)) = jobs.get(next.fetch_add(1, Relaxed)) {
            counts.push(((op, arm), place.count(op, arm)?.per_operation()?));
        }
        io::Result::Ok(counts)
    };
    let threads = thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let mut counts = HashMap::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            counts.extend(worker.join().expect("counting does not panic")?);
        }
        io::Result::Ok(())
    })?;
    let of_op = |op: &&Op| {
        op.arms.iter().filter_map(|start| counts.get(&(op.name, start.0)).copied()).collect()
    };
    Ok(ops.iter().map(of_op).collect())
}

fn record() -> io::Result<bool> {
    let ops: Vec<_> = OPS.iter().collect();
    let counts = count(&ops, |arm| arm == "paceline")?;
    let counts: Vec<_> = ops.iter().map(|op| op.name).zip(counts.iter().map(|c| c[0])).collect();
    Baseline::write(&counts)?;
    Ok(true)
}

/// Prints the counts; as the gate, only paceline's, and whether they have grown too much.
fn table(names: &[&str], gate: bool) -> io::Result<bool> {
    let baseline = Baseline::read()?;
    let is_wanted = |op: &&Op| names.is_empty() || names.contains(&op.name);
    let ops: Vec<_> = OPS.iter().filter(is_wanted).collect();
    let counts = count(&ops, if gate { |arm| arm == "paceline" } else { |_| true })?;
    println!(
        "{:<22}{:>10}{:>10}{:>8}{:>10}{:>9}",
        "instructions per op", "paceline", "tokio", "ratio", "baseline", "change"
    );
    let mut grown = Vec::new();
    for (op, counts) in ops.iter().zip(&counts) {
        let [own, tokio] = [counts[0], counts.get(1).copied().unwrap_or(f64::NAN)];
        let before = baseline.counts.get(op.name).copied().unwrap_or(f64::NAN);
        let change = own / before - 1.0;
        print!("{:<22}{own:>10.1}{:>10}{:>8}", op.name, known(tokio, 1), known(own / tokio, 3));
        print!("{:>10}{:>9}", known(before, 1), known(change * 100.0, 1));
        println!("{}", op.varies.map_or(String::new(), |why| format!("  varies: {why}")));
        // An operation without a baseline is to get one.
        if op.varies.is_none() && (change.is_nan() || change > MOST_GROWTH) {
            grown.push(op.name);
        }
    }
    let compiler = baseline::compiler()?;
    if compiler != baseline.compiler {
        println!("The baseline was counted with {}, this with {compiler}.", baseline.compiler);
    }
    if !gate {
        return Ok(true);
    }
    match grown.is_empty() {
        true => println!("No operation takes 5% more than its baseline."),
        false => println!("Takes 5% more than its baseline: {}", grown.join(", ")),
    }
    Ok(grown.is_empty())
}

/// Nothing where there is no such number.
fn known(value: f64, digits: usize) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.digits$}") }
}
