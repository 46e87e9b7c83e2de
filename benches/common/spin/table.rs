//! The rounds of one condition, what they come to, and that as tables.

use std::collections::HashMap;

use super::conditions::Condition;
use super::rounds::{Figure, Outcome};
use super::rows::{ADAPTIVE, ARMS, FIXED, IDLE, Row, TOKIO};
use crate::common::measure::Quartiles;

/// The rounds of every row and arm in one condition.
#[derive(Default)]
pub struct Outcomes(HashMap<(String, String), Vec<Outcome>>);

impl Outcomes {
    pub fn add(&mut self, row: &str, arm: &str, outcome: Outcome) {
        self.0.entry((row.into(), arm.into())).or_default().push(outcome);
    }

    pub fn rounds(&self, row: &str, arm: &str) -> &[Outcome] {
        self.0.get(&(row.into(), arm.into())).map_or(&[], Vec::as_slice)
    }

    /// Quartiles; of nothing if that arm was not measured or has no such figure.
    pub fn of(&self, row: &str, arm: &str, figure: Figure) -> Quartiles {
        Quartiles::of(self.rounds(row, arm).iter().map(|round| round.get(figure)))
    }

    /// Of the ratios in the same round, in which the machine was the same.
    pub fn ratio(&self, row: &str, arm: &str, to: &str, figure: Figure) -> Quartiles {
        let pairs = self.rounds(row, arm).iter().zip(self.rounds(row, to));
        Quartiles::of(pairs.map(|(one, other)| one.get(figure) / other.get(figure)))
    }

    /// The fixed arm that does most.
    pub fn best_fixed(&self, row: &str) -> Option<&'static str> {
        let ops = |arm: &&&str| self.of(row, arm, Figure::OpsPerS).median;
        let known = FIXED.iter().filter(|arm| !ops(arm).is_nan());
        known.max_by(|one, other| ops(one).total_cmp(&ops(other))).copied()
    }
}

/// What there is not, in a cell.
const NONE: &str = "-";

/// So many decimals.
fn shown(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { NONE.into() }
}

fn print_line(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

fn print_head(columns: &[&str]) {
    println!("| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
}

/// Throughput of every arm relative to the best fixed one, and the adaptive arm's own figures.
pub fn print(condition: &Condition, rows: &[Row], outcomes: &Outcomes) {
    println!("\n### {}\n", condition.name);
    let (idle, busy): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.name == IDLE);
    if !busy.is_empty() {
        print_busy(&busy, outcomes);
    }
    if !idle.is_empty() {
        print_idle(outcomes);
    }
}

fn print_busy(rows: &[&Row], outcomes: &Outcomes) {
    let own = ["ops/s", "spread", "p50, µs", "p99, µs", "parks/s", "spins won", "CPU, µs per op"];
    let head = ["workload", "off", "short, 10 µs", "long, 200 µs", "adaptive", "tokio"];
    print_head(&[&head[..], &own, &["p50 to tokio", "p99 to tokio", "CPU to tokio"]].concat());
    rows.iter().for_each(|row| print_row(&row.name, outcomes));
    println!();
}

fn print_idle(outcomes: &Outcomes) {
    let cpu = |arm| shown(outcomes.of(IDLE, arm, Figure::CpuMsPerS).median, 3);
    let arms = ARMS.into_iter().filter(|arm| !outcomes.rounds(IDLE, arm).is_empty());
    let arms: Vec<_> = arms.map(|arm| format!("{arm} {}", cpu(arm))).collect();
    println!("Idle, CPU in ms per s: {}.", arms.join(", "));
}

fn print_row(row: &str, outcomes: &Outcomes) {
    let best = outcomes.best_fixed(row).unwrap_or("none");
    let to_best = |arm| shown(outcomes.ratio(row, arm, best, Figure::OpsPerS).median, 2);
    let own = |figure, decimals| shown(outcomes.of(row, ADAPTIVE, figure).median, decimals);
    let to_tokio = |figure| shown(outcomes.ratio(row, ADAPTIVE, TOKIO, figure).median, 2);
    let percent = |text: String| if text == NONE { text } else { text + "%" };
    let bold = |text: String| if text == NONE { text } else { format!("**{text}**") };
    let spread = outcomes.of(row, ADAPTIVE, Figure::OpsPerS).spread_percent();
    let mut cells = vec![row.to_owned()];
    cells.extend(ARMS.map(|arm| if arm == ADAPTIVE { bold(to_best(arm)) } else { to_best(arm) }));
    cells.extend([
        own(Figure::OpsPerS, 0),
        percent(shown(spread, 0)),
        own(Figure::P50Us, 1),
        own(Figure::P99Us, 1),
        own(Figure::ParksPerS, 0),
        percent(own(Figure::HitsPercent, 0)),
        own(Figure::CpuUsPerOp, 2),
        to_tokio(Figure::P50Us),
        to_tokio(Figure::P99Us),
        to_tokio(Figure::CpuUsPerOp),
    ]);
    print_line(&cells);
}

/// Every figure of every arm.
pub fn print_details(rows: &[Row], outcomes: &Outcomes) {
    const FIGURES: [(&str, Figure, usize); 8] = [
        ("ops/s", Figure::OpsPerS, 0),
        ("p50, µs", Figure::P50Us, 1),
        ("p99, µs", Figure::P99Us, 1),
        ("parks/s", Figure::ParksPerS, 0),
        ("spins/s", Figure::SpinsPerS, 0),
        ("won, %", Figure::HitsPercent, 0),
        ("CPU, µs per op", Figure::CpuUsPerOp, 2),
        ("CPU, ms per s", Figure::CpuMsPerS, 2),
    ];
    println!();
    print_head(&[&["workload", "arm", "spread, %"], &FIGURES.map(|(name, ..)| name)[..]].concat());
    for row in rows {
        for arm in ARMS.into_iter().filter(|arm| !outcomes.rounds(&row.name, arm).is_empty()) {
            let of = |figure| outcomes.of(&row.name, arm, figure);
            let spread = shown(of(Figure::OpsPerS).spread_percent(), 0);
            let mut cells = vec![row.name.clone(), arm.into(), spread];
            cells.extend(FIGURES.map(|(_, figure, decimals)| shown(of(figure).median, decimals)));
            print_line(&cells);
        }
    }
}
