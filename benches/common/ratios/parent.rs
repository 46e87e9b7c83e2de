//! Has every workload measured, each by processes of its own, and gathers what these print.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use super::allocator::Allocator;
use super::arguments::{Extent, Knobs, Plan};
use super::outcome::{Line, Outcome};
use super::progress::Progress;

/// Measures what of the plan is wanted. Gives the outcomes in the order of the workloads, and what failed.
pub fn run(plan: &Plan, wants: impl Fn(&str, Allocator) -> bool) -> (Vec<Outcome>, Vec<String>) {
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    let empty = |name: &str| -> Vec<_> {
        let has_arms = plan.arms_of(name).next().is_some();
        let wants = |allocator| has_arms && wants(name, allocator);
        let wanted = plan.allocators.iter().filter(|allocator| wants(**allocator));
        wanted.map(|allocator| Outcome::new(name, *allocator)).collect()
    };
    let jobs = plan.workloads.iter().map(|workload| empty(workload.name).len()).sum();
    let profile = plan.profile.shared_by(jobs);
    let mut progress = Progress::new(jobs * profile.launches);
    for workload in &plan.workloads {
        let mut own = empty(workload.name);
        if own.is_empty() {
            continue;
        }
        let (extent, arms) = (profile.extent(workload), plan.arms_of(workload.name).collect());
        let launch = Launch { extent, arms, knobs: &plan.knobs, launches: profile.launches };
        for _ in 0..profile.launches {
            for outcome in &mut own {
                failures.extend(launch.run(outcome, &mut progress).err());
            }
        }
        progress.tell(&told_of(&own));
        outcomes.extend(own);
    }
    (outcomes, failures)
}

fn told_of(outcomes: &[Outcome]) -> String {
    let ratios = outcomes.iter().map(|outcome| {
        let rounds = outcome.rounds(outcome.subject()).len();
        format!("{} {:.3} ({rounds} rounds)", outcome.allocator.name(), outcome.judged().median)
    });
    let title = outcomes.first().map_or(String::new(), Outcome::title);
    format!("{title}, to tokio: {}", ratios.collect::<Vec<_>>().join(", "))
}

/// A process that measures a workload, to be started so many times.
pub struct Launch<'a> {
    pub extent: Extent,
    pub arms: Vec<&'static str>,
    pub knobs: &'a Knobs,
    pub launches: usize,
}

impl Launch<'_> {
    /// Adds what it printed to the outcome; all of it or, if it failed, nothing.
    pub fn run(&self, outcome: &mut Outcome, progress: &mut Progress) -> Result<(), String> {
        let lines = self.lines(outcome, progress);
        progress.launch_is_done();
        let what = |error| format!("{}, {}: {error}", outcome.workload, outcome.allocator.name());
        let lines = lines.map_err(what)?;
        lines.iter().filter_map(|line| Line::parsed(line)).for_each(|line| outcome.add(line));
        Ok(())
    }

    fn lines(&self, outcome: &Outcome, progress: &mut Progress) -> Result<Vec<String>, String> {
        let Extent { least, most, budget } = self.extent;
        let mut child = Command::new(std::env::current_exe().map_err(|error| error.to_string())?)
            .args(["measure", &outcome.workload])
            .args(["--extent", &format!("{least},{most},{}", budget.as_millis())])
            .args(self.arms.iter().flat_map(|arm| ["--arm", arm]))
            .args(self.knobs.arguments())
            .env(Allocator::VARIABLE, outcome.allocator.name())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("no process to measure in: {error}"))?;
        let stdout = child.stdout.take().expect("it is piped");
        let lines = self.read(stdout, outcome, progress);
        let status = child.wait().map_err(|error| error.to_string())?;
        let lines = lines?;
        if status.success() { Ok(lines) } else { Err(status.to_string()) }
    }

    fn read(
        &self,
        stdout: impl Read,
        outcome: &Outcome,
        progress: &mut Progress,
    ) -> Result<Vec<String>, String> {
        let what = format!("{}, {}", outcome.workload, outcome.allocator.name());
        let before = outcome.rounds(outcome.subject()).len();
        let (started, mut lines) = (Instant::now(), Vec::new());
        progress.at(&what);
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|error| error.to_string())?;
            check(&line, outcome)?;
            lines.push(line);
            let rounds = lines.iter().filter(|line| line.starts_with("round")).count();
            let rounds = rounds / self.arms.len().max(1);
            let foreseen = self.extent.foreseen(rounds, started.elapsed());
            let all = (before + foreseen).max(self.launches * foreseen);
            progress.at(&format!("{what}: round {} of {all}", before + rounds));
        }
        Ok(lines)
    }
}

/// That it is a line which can be read, of a process that has the right allocator.
fn check(line: &str, outcome: &Outcome) -> Result<(), String> {
    let wanted = outcome.allocator.name();
    match line.split_once('\t') {
        Some(("allocator", name)) if name == wanted => Ok(()),
        Some(("allocator", name)) => Err(format!("it uses {name}, not {wanted}")),
        _ => Line::parsed(line).map(drop).ok_or_else(|| format!("it printed {line:?}")),
    }
}

/// Says what failed.
pub fn told(failures: &[String]) -> ExitCode {
    failures.iter().for_each(|failure| eprintln!("failed: {failure}"));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
