//! Whether the adaptive spin is as good as the best fixed one, load by load: a table for each condition,
//! measured in a process of its own, and the rows that fall short. See benches/README.md.

mod common;
#[path = "common/spin/mod.rs"]
mod spin;

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use spin::conditions::{CONDITIONS, Condition, HOG, Hog};
use spin::rounds::{self, Figure, Profile};
use spin::rows::{ARMS, IDLE, Row, rows};
use spin::table::{self, Outcomes};
use spin::verdicts;

/// About three minutes.
const QUICK: Profile = Profile {
    rounds: 5,
    round: Duration::from_millis(100),
    idle_rounds: 1,
    idle_round: Duration::from_secs(1),
};
const FULL: Profile = Profile {
    rounds: 21,
    round: Duration::from_millis(200),
    idle_rounds: 3,
    idle_round: Duration::from_secs(10),
};
const TEST: Profile = Profile {
    rounds: 1,
    round: Duration::from_millis(4),
    idle_rounds: 1,
    idle_round: Duration::from_millis(20),
};

/// What to run.
struct Choice {
    profile: Profile,
    /// Measures in this process, which is in the condition from then on.
    inside: Option<&'static Condition>,
    /// All where none was named.
    rows: Vec<Row>,
    arms: Vec<&'static str>,
    conditions: Vec<&'static Condition>,
    details: bool,
    check: bool,
    test: bool,
}

impl Choice {
    fn from_arguments() -> Self {
        let mut choice = Choice {
            profile: QUICK,
            inside: None,
            rows: Vec::new(),
            arms: Vec::new(),
            conditions: Vec::new(),
            details: false,
            check: false,
            test: false,
        };
        let (mut names, mut rounds) = (Vec::new(), None);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => {}
                "--full" => choice.profile = FULL,
                "--test" => (choice.profile, choice.test) = (TEST, true),
                "--check" => choice.check = true,
                "--details" => choice.details = true,
                "--rounds" => {
                    let number = arguments.next().and_then(|n| n.parse().ok());
                    rounds = Some(
                        number.filter(|&n| n > 0).expect("--rounds wants a number above zero"),
                    );
                }
                "--condition" => {
                    let name = arguments.next().unwrap_or_default();
                    choice.inside = Some(Condition::named(&name).expect("--condition wants one"));
                }
                _ => names.push(argument),
            }
        }
        choice.profile.rounds = rounds.unwrap_or(choice.profile.rounds);
        names.iter().for_each(|name| choice.narrow(name));
        choice.fill();
        choice
    }

    /// To a condition, an arm, or the rows whose name begins so.
    fn narrow(&mut self, name: &str) {
        if let Some(condition) = Condition::named(name) {
            return self.conditions.push(condition);
        }
        if let Some(arm) = ARMS.into_iter().find(|arm| *arm == name) {
            return self.arms.push(arm);
        }
        let known = rows();
        let all: Vec<_> = known.iter().map(|row| row.name.clone()).collect();
        let before = self.rows.len();
        self.rows.extend(known.into_iter().filter(|row| row.name.starts_with(name)));
        let conditions = CONDITIONS.map(|condition| condition.name);
        assert!(
            self.rows.len() > before,
            "nothing begins with {name:?}; there are {conditions:?}, {ARMS:?} and {all:?}"
        );
    }

    fn fill(&mut self) {
        if self.rows.is_empty() {
            self.rows = rows();
        }
        if self.arms.is_empty() {
            self.arms = ARMS.to_vec();
        }
        if self.conditions.is_empty() {
            self.conditions = CONDITIONS.iter().collect();
        }
    }

    fn arms_of(&self, row: &Row) -> Vec<&'static str> {
        self.arms.iter().copied().filter(|arm| row.has(arm)).collect()
    }
}

/// Arguments: names of workloads (or how they begin), arms and conditions (all without); `--full`,
/// `--rounds N`; `--details` adds every arm's figures; `--check` makes rows that fall short a failure;
/// `--test` runs each row for a moment.
fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == HOG) {
        Hog::main();
        return ExitCode::SUCCESS;
    }
    let choice = Choice::from_arguments();
    if let Some(condition) = choice.inside {
        let _hog = condition.enter();
        for row in &choice.rows {
            rounds::run(row, &choice.arms_of(row), choice.profile);
        }
        return ExitCode::SUCCESS;
    }
    let mut short = Vec::new();
    for condition in &choice.conditions {
        if condition.is_possible() {
            short.extend(run(condition, &choice));
        } else {
            println!("\n{}: left out, this machine cannot do it", condition.name);
        }
    }
    println!("\nRows that fall short: {}\n", short.len());
    short.iter().for_each(|line| println!("- {line}"));
    ExitCode::from(u8::from(choice.check && !short.is_empty()))
}

/// One condition: its tables, and the rows that fall short.
fn run(condition: &Condition, choice: &Choice) -> Vec<String> {
    let outcomes = measured(condition);
    table::print(condition, &choice.rows, &outcomes);
    if choice.details {
        table::print_details(&choice.rows, &outcomes);
    }
    if choice.test {
        check(condition, choice, &outcomes);
    }
    let judge = |row: &Row| verdicts::of_row(condition, &row.name, &outcomes);
    choice.rows.iter().flat_map(judge).collect()
}

/// By a process in the condition, with the arguments of this one.
fn measured(condition: &Condition) -> Outcomes {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(std::env::args().skip(1))
        .args(["--condition", condition.name])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process for the condition");
    let mut outcomes = Outcomes::default();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let (row, arm, outcome) = rounds::parsed(&line).unwrap_or_else(|| panic!("{line:?}"));
        outcomes.add(row, arm, outcome);
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{}: {status}", condition.name);
    outcomes
}

/// Everything was measured, and nothing spun that should not.
fn check(condition: &Condition, choice: &Choice, outcomes: &Outcomes) {
    verdicts::check();
    for row in &choice.rows {
        for arm in choice.arms_of(row) {
            let rounds = outcomes.rounds(&row.name, arm);
            let profile = &choice.profile;
            let wanted = if row.name == IDLE { profile.idle_rounds } else { profile.rounds };
            assert_eq!(rounds.len(), wanted, "{} {} {arm}", condition.name, row.name);
            for round in rounds {
                assert!(round.get(Figure::OpsPerS) > 0.0, "{} {arm}: {round:?}", row.name);
                let may_spin = arm != "off" && !condition.has_one_cpu();
                let has_spun = round.get(Figure::SpinsPerS) > 0.0;
                assert!(may_spin || !has_spun, "{} {arm} spins: {round:?}", row.name);
            }
        }
    }
}
