//! Measures a row's arms, interleaved round by round, and hands each round's figures on as a line of
//! text, for the process that makes the table.

use std::io::Write;
use std::time::Duration;

use paceline::WorkerMetrics;

use super::rows::{IDLE, Row};
use crate::common::measure::{Sample, take_turns};
use crate::common::workloads::outside::Timed;

/// How many rounds, and how long each is.
#[derive(Clone, Copy)]
pub struct Profile {
    pub rounds: usize,
    pub round: Duration,
    pub idle_rounds: usize,
    pub idle_round: Duration,
}

/// What is known of a round.
#[derive(Clone, Copy)]
pub enum Figure {
    OpsPerS,
    P50Us,
    P99Us,
    CpuUsPerOp,
    /// Of the whole process.
    CpuMsPerS,
    ParksPerS,
    SpinsPerS,
    /// How many of the spins were won.
    HitsPercent,
}

/// The figures of one round, by [`Figure`]. What there is not is not a number.
#[derive(Clone, Copy, Debug)]
pub struct Outcome([f64; 8]);

impl Outcome {
    fn new(sample: &Sample, counted: Option<[WorkerMetrics; 2]>) -> Self {
        let seconds = sample.elapsed.as_secs_f64();
        let more = |count: fn(&WorkerMetrics) -> u64| {
            counted.map_or(f64::NAN, |[before, after]| (count(&after) - count(&before)) as f64)
        };
        let (spins, won) = (more(|counted| counted.spins), more(|counted| counted.spins_won));
        Outcome([
            sample.ops as f64 / seconds,
            sample.watched.map_or(f64::NAN, |watched| watched.p50 / 1e3),
            sample.watched.map_or(f64::NAN, |watched| watched.p99 / 1e3),
            sample.cpu_ns_per_op() / 1e3,
            sample.cores() * 1e3,
            more(|counted| counted.parks) / seconds,
            spins / seconds,
            won / spins * 100.0,
        ])
    }

    /// One that differs from others in two figures only.
    pub fn made_up(ops_per_s: f64, cpu: f64) -> Self {
        Outcome([ops_per_s, 1.0, 1.0, cpu, cpu, 0.0, 0.0, f64::NAN])
    }

    pub fn get(&self, figure: Figure) -> f64 {
        self.0[figure as usize]
    }
}

/// Row, arm and figures.
pub fn parsed(line: &str) -> Option<(&str, &str, Outcome)> {
    let mut fields = line.split('\t');
    let (row, arm) = (fields.next()?, fields.next()?);
    let figures: Result<Vec<f64>, _> = fields.map(str::parse).collect();
    Some((row, arm, Outcome(figures.ok()?.try_into().ok()?)))
}

fn print(row: &str, arm: &str, outcome: Outcome) {
    let figures = outcome.0.map(|figure| figure.to_string()).join("\t");
    println!("{row}\t{arm}\t{figures}");
    // Line by line also into a pipe.
    std::io::stdout().flush().unwrap();
}

/// One arm with the load on it.
struct Contender {
    load: Timed,
    /// None for tokio.
    handle: Option<paceline::Handle>,
}

impl Contender {
    fn new(row: &Row, arm: &str) -> Self {
        let (load, handle) = row.start(arm);
        Contender { load, handle }
    }

    fn round(&mut self, lasts: Duration) -> Outcome {
        let count = |handle: &paceline::Handle| handle.metrics().total();
        let before = self.handle.as_ref().map(count);
        let sample = (self.load)(lasts);
        let after = self.handle.as_ref().map(count);
        Outcome::new(&sample, before.zip(after).map(<[_; 2]>::from))
    }
}

/// Measures the row and prints each arm's rounds.
pub fn run(row: &Row, arms: &[&str], profile: Profile) {
    if row.name == IDLE {
        return run_one_by_one(row, arms, profile);
    }
    let mut contenders: Vec<_> = arms.iter().map(|arm| Contender::new(row, arm)).collect();
    for contender in &mut contenders {
        contender.round(profile.round / 4);
    }
    in_turns(arms.len(), profile.rounds, |arm| {
        print(&row.name, arms[arm], contenders[arm].round(profile.round));
    });
}

/// With no other runtime in the process, for its CPU time is what counts.
fn run_one_by_one(row: &Row, arms: &[&str], profile: Profile) {
    in_turns(arms.len(), profile.idle_rounds, |arm| {
        let outcome = Contender::new(row, arms[arm]).round(profile.idle_round);
        print(&row.name, arms[arm], outcome);
    });
}

fn in_turns(arms: usize, rounds: usize, mut turn: impl FnMut(usize)) {
    (0..rounds).for_each(|round| take_turns(arms, round, &mut turn));
}
