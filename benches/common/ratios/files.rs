//! The files that a run leaves: figures as CSV and JSON, and the chart.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::arguments::Plan;
use super::environment::Environment;
use super::fit;
use super::goals;
use super::outcome::{Figure, Outcome, TOKIO};
use super::svg;
use crate::common::measure::Quartiles;

/// In cargo's target directory; what a test leaves stays apart.
pub fn directory(plan: &Plan) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let beside = || {
        let binary = std::env::current_exe().ok()?;
        // target/release/deps/ratios-0123
        Some(binary.ancestors().nth(3)?.to_owned())
    };
    let bench = target.or_else(beside).unwrap_or_default().join("paceline-bench");
    let directory = if plan.test { bench.join("test") } else { bench };
    std::fs::create_dir_all(&directory)
        .unwrap_or_else(|error| eprintln!("{}: {error}", directory.display()));
    directory
}

/// Says so if it cannot be written; the tables are worth having without it.
pub fn save(file: &Path, text: &str) {
    if let Err(error) = std::fs::write(file, text) {
        eprintln!("{}: {error}", file.display());
    }
}

/// A line of a table: names and values.
pub type Record = Vec<(&'static str, Value)>;

/// Gives where they are.
pub fn write(plan: &Plan, outcomes: &[Outcome]) -> String {
    let environment = Environment::here();
    let records = records(outcomes);
    let fits: Vec<_> = fit::fits(outcomes).iter().map(fit_record).collect();
    let directory = directory(plan);
    save(&directory.join("summary.csv"), &csv(&records));
    save(&directory.join("summary.json"), &summary(plan, &environment, &records, &fits));
    save(&directory.join("ratios.svg"), &svg::chart(outcomes, &environment));
    let mut names = "summary.csv, summary.json, ratios.svg".to_owned();
    if !fits.is_empty() {
        save(&directory.join("burst.csv"), &csv(&fits));
        names += ", burst.csv";
    }
    format!("{names} in {}", directory.display())
}

/// What a baseline is, too.
pub fn summary(
    plan: &Plan,
    environment: &Environment,
    records: &[Record],
    fits: &[Record],
) -> String {
    let objects = |records: &[Record]| {
        let object = |record: &Record| {
            record.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        Value::Array(records.iter().map(|record| Value::Object(object(record))).collect())
    };
    let summary = json!({
        "environment": {
            "cores": environment.cores,
            "system": environment.system,
            "rustc": environment.rustc,
            "runtimes": environment.runtimes,
        },
        "knobs": plan.knobs.arguments(),
        "rows": objects(records),
        "bursts": objects(fits),
    });
    format!("{summary:#}\n")
}

/// One for every workload, allocator and arm.
pub fn records(outcomes: &[Outcome]) -> Vec<Record> {
    let of = |outcome| move |arm| record(outcome, arm);
    outcomes.iter().flat_map(|outcome: &Outcome| outcome.arms().map(of(outcome))).collect()
}

fn record(outcome: &Outcome, arm: &str) -> Record {
    let own = |figure| number(outcome.of(arm, figure).median);
    let us = |figure| number(outcome.of(arm, figure).median / 1e3);
    let to_tokio = |figure| outcome.ratio(arm, TOKIO, figure);
    let judged_by = goals::judged_by(&outcome.workload);
    let best = outcome.best_other(judged_by).filter(|best| *best != arm);
    let to_best = best.map_or(f64::NAN, |best| outcome.ratio(arm, best, judged_by).median);
    let goal = goals::of(&outcome.workload)[0];
    let is_subject = arm == outcome.subject();
    let mut record = vec![
        ("workload", json!(outcome.workload)),
        ("allocator", json!(outcome.allocator.name())),
        ("arm", json!(arm)),
        ("rounds", json!(outcome.rounds(arm).len())),
    ];
    record.extend(quartiles(["ns_per_op", "ns_low", "ns_high"], outcome.of(arm, Figure::Time)));
    record.extend(quartiles(["to_tokio", "to_tokio_low", "to_tokio_high"], to_tokio(Figure::Time)));
    record.extend([
        ("cpu_ns_per_op", own(Figure::Cpu)),
        ("cpu_to_tokio", number(to_tokio(Figure::Cpu).median)),
        ("cores", own(Figure::Cores)),
        ("switches_per_op", own(Figure::Switches)),
        ("parks_per_op", own(Figure::Parks)),
        ("watched", json!(outcome.watched)),
        ("p50_us", us(Figure::P50)),
        ("p50_to_tokio", number(to_tokio(Figure::P50).median)),
        ("p99_us", us(Figure::P99)),
        ("p99_to_tokio", number(to_tokio(Figure::P99).median)),
        ("start_us", number(outcome.start(arm) / 1e3)),
        ("stop_us", number(outcome.stop(arm) / 1e3)),
        ("judged_by", json!(judged_by.name())),
    ]);
    record.extend(quartiles(["judged", "judged_low", "judged_high"], to_tokio(judged_by)));
    record.extend([
        ("best_other", json!(best)),
        ("to_best_other", number(to_best)),
        ("goal", if is_subject { number(goal.most(outcome.allocator)) } else { Value::Null }),
        ("goal_met", if is_subject { json!(goal.is_met(outcome)) } else { Value::Null }),
    ]);
    record
}

fn fit_record(fit: &fit::Fit) -> Record {
    vec![
        ("allocator", json!(fit.allocator.name())),
        ("arm", json!(fit.arm)),
        ("fixed_us", number(fit.line.fixed / 1e3)),
        ("marginal_ns", number(fit.line.marginal)),
        ("r_squared", number(fit.line.r_squared)),
    ]
}

/// Under names for the median, the lower and the upper one.
pub fn quartiles(names: [&'static str; 3], of: Quartiles) -> [(&'static str, Value); 3] {
    let [median, low, high] = names;
    [(median, number(of.median)), (low, number(of.low)), (high, number(of.high))]
}

/// With six digits that count; null if it is not one.
pub fn number(value: f64) -> Value {
    format!("{value:.5e}").parse::<f64>().map_or(Value::Null, |rounded| json!(rounded))
}

/// With the names of the first record, which all have, as a head.
pub fn csv(records: &[Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let names = first.iter().map(|(name, _)| (*name).to_owned()).collect();
    let cells = |record: &Record| record.iter().map(|(_, value)| cell(value)).collect();
    let lines = std::iter::once(names).chain(records.iter().map(cells));
    lines.map(|cells: Vec<String>| cells.join(",") + "\n").collect()
}

/// No name here has a comma or a quote in it.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Reads a summary's rows.
pub fn rows(summary: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    summary["rows"].as_array().into_iter().flatten().filter_map(Value::as_object)
}

/// Figures are written as they should be.
pub fn check() {
    assert_eq!(number(f64::NAN), Value::Null);
    assert_eq!(number(1_234.567_89).to_string(), "1234.57");
    let outcome = Outcome::made_up("pair", &[("paceline", &[1.0]), (TOKIO, &[4.0])]);
    let records = records(&[outcome]);
    let text = csv(&records);
    assert!(text.starts_with("workload,allocator,arm,rounds,ns_per_op,ns_low,"), "{text}");
    assert!(text.contains("\npair,system,paceline,1,1.0,1.0,1.0,0.25,0.25,0.25,"), "{text}");
    assert_eq!(text.lines().count(), 3);
}
