//! Keeps ratios as a baseline, and tells what has become worse since.
//!
//! What is compared are ratios to tokio within rounds, of paceline with its slot or, if that was not
//! measured, the arm that was: a host that is slower slows both. A row is worse if the median of its
//! ratios is above the baseline's by more than [`MOST`] and the quartiles of the two do not overlap; and
//! then it is measured again, and must be so again, since among many rows some are bad luck.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use super::allocator::Allocator;
use super::arguments::Plan;
use super::outcome::Outcome;
use super::table::{print_aligned, ratio};
use super::{files, parent};
use crate::common::measure::Quartiles;

/// How much worse a median may be.
const MOST: f64 = 0.10;

fn file_or_default(plan: &Plan, file: &Option<PathBuf>) -> PathBuf {
    file.clone().unwrap_or_else(|| files::directory(plan).join("baseline.json"))
}

/// Measures, and keeps the summary.
pub fn record(plan: &Plan, file: &Option<PathBuf>) -> Result<ExitCode, String> {
    let file = file_or_default(plan, file);
    let (_, code) = super::summarise(plan);
    if code == ExitCode::SUCCESS {
        let summary = files::directory(plan).join("summary.json");
        std::fs::copy(summary, &file).map_err(|error| format!("{}: {error}", file.display()))?;
        println!("Baseline: {}", file.display());
    }
    Ok(code)
}

/// Fails if a row is worse than in the baseline.
pub fn compare(plan: &Plan, file: &Option<PathBuf>) -> Result<ExitCode, String> {
    let file = file_or_default(plan, file);
    let baseline = read(&file)?;
    let knobs: Vec<_> = strings(&baseline["knobs"]).collect();
    if knobs != plan.knobs.arguments() {
        let knobs = knobs.join(" ");
        return Err(format!(
            "{} was recorded with the knobs [{knobs}]: give the same",
            file.display()
        ));
    }
    let (outcomes, code) = super::summarise(plan);
    let mut rows: Vec<_> = outcomes.iter().filter_map(|one| Row::new(&baseline, one)).collect();
    if rows.is_empty() {
        return Err(format!("{} has ratios of none of these rows", file.display()));
    }
    let suspects: Vec<_> = rows.iter().filter(|row| row.is_worse()).map(Row::key).collect();
    if !suspects.is_empty() {
        eprintln!("{} rows look worse; once more:", suspects.len());
    }
    let is_suspect = |name: &str, allocator| suspects.contains(&(name, allocator));
    let (again, failures) = parent::run(plan, is_suspect);
    rows.iter_mut()
        .for_each(|row| row.again = again.iter().find(|one| row.is_of(one)).map(Outcome::judged));
    print(&file, &mut rows);
    let is_worse = rows.iter().any(Row::is_worse) || !failures.is_empty();
    parent::told(&failures);
    Ok(if is_worse { ExitCode::FAILURE } else { code })
}

fn read(file: &Path) -> Result<Value, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{name}: {error}; `cargo bench -- record` makes a baseline"))?;
    serde_json::from_str(&text).map_err(|error| format!("{name} is no baseline: {error}"))
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// A workload with one allocator, then and now.
struct Row<'a> {
    workload: &'a str,
    allocator: Allocator,
    before: Quartiles,
    now: Quartiles,
    /// Where it was measured once more.
    again: Option<Quartiles>,
}

impl<'a> Row<'a> {
    /// None if the baseline has not got it.
    fn new(baseline: &Value, outcome: &'a Outcome) -> Option<Self> {
        let key = [&outcome.workload, outcome.allocator.name(), outcome.subject()];
        let names = ["workload", "allocator", "arm"];
        let row = files::rows(baseline).find(|row| {
            names.iter().zip(key).all(|(name, value)| row.get(*name) == Some(&value.into()))
        })?;
        let number = |name: &str| row.get(name)?.as_f64();
        let before = Quartiles {
            low: number("judged_low")?,
            median: number("judged")?,
            high: number("judged_high")?,
        };
        let (workload, allocator) = (&outcome.workload, outcome.allocator);
        Some(Row { workload, allocator, before, now: outcome.judged(), again: None })
    }

    fn key(&self) -> (&'a str, Allocator) {
        (self.workload, self.allocator)
    }

    fn is_of(&self, outcome: &Outcome) -> bool {
        self.key() == (&outcome.workload, outcome.allocator)
    }

    fn is_worse(&self) -> bool {
        let again = self.again.unwrap_or(self.now);
        is_worse(self.before, self.now) && is_worse(self.before, again)
    }

    fn change(&self) -> f64 {
        self.now.median / self.before.median - 1.0
    }
}

fn is_worse(before: Quartiles, now: Quartiles) -> bool {
    now.median > before.median * (1.0 + MOST) && now.low > before.high
}

fn print(file: &Path, rows: &mut [Row]) {
    let key = |row: &Row| (row.is_worse(), row.change());
    rows.sort_by(|one, other| {
        let ((one_is, one), (other_is, other)) = (key(one), key(other));
        other_is.cmp(&one_is).then(other.total_cmp(&one))
    });
    println!("\nRatios to tokio, compared with {}: median, quartiles\n", file.display());
    let with_quartiles =
        |of: Quartiles| format!("{} ({} to {})", ratio(of.median), ratio(of.low), ratio(of.high));
    let cells = rows.iter().map(|row| {
        vec![
            row.workload.into(),
            row.allocator.name().into(),
            with_quartiles(row.before),
            with_quartiles(row.now),
            row.again.map_or(String::new(), with_quartiles),
            format!("{:+.1}%", row.change() * 100.0),
            if row.is_worse() { "worse".into() } else { String::new() },
        ]
    });
    let head = ["<workload", "<allocator", "baseline", "now", "once more", "change", "<"];
    print_aligned(&head, &cells.collect::<Vec<_>>());
    let worse = rows.iter().filter(|row| row.is_worse()).count();
    println!(
        "\nWorse by more than {:.0}% and than the spread: {worse} of {}",
        MOST * 100.0,
        rows.len()
    );
}

/// Made-up figures are judged as they should be.
pub fn check() {
    let around =
        |median: f64, half: f64| Quartiles { low: median - half, median, high: median + half };
    assert!(is_worse(around(0.5, 0.01), around(0.56, 0.01)));
    assert!(!is_worse(around(0.5, 0.01), around(0.54, 0.01)), "within a tenth");
    assert!(!is_worse(around(0.5, 0.04), around(0.56, 0.04)), "within the spread");
    assert!(!is_worse(around(0.5, 0.01), around(0.3, 0.01)));
    let outcome = Outcome::made_up("pair", &[("paceline", &[6.0]), ("tokio", &[10.0])]);
    let [low, median, high] = [0.49, 0.5, 0.51];
    let baseline = serde_json::json!({"rows": [{
        "workload": "pair", "allocator": "system", "arm": "paceline",
        "judged_low": low, "judged": median, "judged_high": high,
    }]});
    let mut row = Row::new(&baseline, &outcome).expect("the baseline has it");
    assert!(row.is_worse() && (row.change() - 0.2).abs() < 1e-9);
    row.again = Some(around(0.5, 0.01));
    assert!(!row.is_worse(), "it was not, once more");
}
