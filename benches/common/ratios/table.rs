//! The tables on standard output.

use super::arguments::Plan;
use super::fit;
use super::goals::{self, Goal};
use super::outcome::{Figure, Outcome, SLOT_OFF, TOKIO};
use crate::common::measure::Quartiles;

/// What there is not, in a cell.
const NONE: &str = "-";

/// So many decimals.
pub fn shown(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { NONE.into() }
}

/// Three digits that count, as far as a ratio has them.
pub fn ratio(value: f64) -> String {
    let decimals = if value < 0.01 {
        4
    } else if value < 9.9995 {
        3
    } else {
        1
    };
    shown(value, decimals)
}

fn percent(value: f64) -> String {
    if value.is_finite() { format!("{value:.0}%") } else { NONE.into() }
}

/// Nothing is wider than its column; the first so many columns are aligned to the left.
pub fn print_aligned(head: &[&str], rows: &[Vec<String>], left: usize) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.fold(head[column].chars().count(), usize::max)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        println!("{}", padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(head);
    for row in rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Worst first, as they come.
pub fn print(plan: &Plan, outcomes: &[Outcome]) {
    let Some(subject) = outcomes.first().map(Outcome::subject) else { return };
    println!(
        "\nRatios of {subject}: medians of those within rounds, with the distance of the quartiles\n"
    );
    let head = [
        "workload",
        "allocator",
        "ns/op",
        "spread",
        "to tokio",
        "spread",
        "to the best other",
        "slot off",
        "goal",
    ];
    print_aligned(&head, &outcomes.iter().map(ratios).collect::<Vec<_>>(), 2);
    print_goals(outcomes);
    println!("\nDetails: watched durations, start-up and teardown in us, all else per operation\n");
    print_details(plan, outcomes);
    print_fits(outcomes);
}

fn ratios(outcome: &Outcome) -> Vec<String> {
    let (subject, figure) = (outcome.subject(), goals::judged_by(&outcome.workload));
    let (own, to_tokio) = (outcome.of(subject, figure), outcome.judged());
    let best = outcome.best_other(figure).map_or(NONE.into(), |best| {
        format!("{} {best:<5}", ratio(outcome.ratio(subject, best, figure).median))
    });
    vec![
        outcome.title(),
        outcome.allocator.name().into(),
        shown(own.median, 1),
        percent(own.spread_percent()),
        ratio(to_tokio.median),
        percent(to_tokio.spread_percent()),
        best,
        ratio(outcome.ratio(SLOT_OFF, TOKIO, figure).median),
        goals_of(outcome),
    ]
}

fn goals_of(outcome: &Outcome) -> String {
    let told = goals::of(&outcome.workload).iter().enumerate().map(|(index, goal)| {
        let met = match goal.is_met(outcome) {
            None => NONE,
            Some(true) => "met",
            Some(false) => "missed",
        };
        let figure = if index == 0 { "" } else { figure_name(goal.0) };
        format!("{figure}{} {met:<6}", goal.most(outcome.allocator))
    });
    told.rev().collect::<Vec<_>>().join(", ")
}

fn figure_name(figure: Figure) -> &'static str {
    match figure {
        Figure::Cpu => "CPU ",
        Figure::P50 => "p50 ",
        Figure::P99 => "p99 ",
        _ => "",
    }
}

fn print_goals(outcomes: &[Outcome]) {
    let judge = |outcome: &Outcome| {
        let goals = goals::of(&outcome.workload).iter();
        goals.filter_map(|goal: &Goal| goal.is_met(outcome)).collect::<Vec<_>>()
    };
    let met: Vec<bool> = outcomes.iter().flat_map(judge).collect();
    let count = met.iter().filter(|met| **met).count();
    let slower = outcomes.iter().filter(|outcome| outcome.judged().median > 1.0).count();
    println!(
        "\nGoals met: {count} of {}. Rows above 1: {slower} of {}.",
        met.len(),
        outcomes.len()
    );
}

/// Of every arm where workloads were named, else of the one that the tables are about.
fn print_details(plan: &Plan, outcomes: &[Outcome]) {
    let head = [
        "workload",
        "allocator",
        "arm",
        "ns",
        "to tokio",
        "CPU ns",
        "to tokio",
        "cores",
        "switches",
        "parks",
        "watched p50",
        "to tokio",
        "p99",
        "to tokio",
        "start",
        "stop",
    ];
    let mut rows = Vec::new();
    for outcome in outcomes {
        let arms = outcome.arms().filter(|arm| plan.is_named || *arm == outcome.subject());
        rows.extend(arms.map(|arm| details(outcome, arm)));
    }
    print_aligned(&head, &rows, 3);
}

fn details(outcome: &Outcome, arm: &str) -> Vec<String> {
    let own = |figure, decimals| shown(outcome.of(arm, figure).median, decimals);
    let to_tokio = |figure| ratio(outcome.ratio(arm, TOKIO, figure).median);
    let us = |figure| {
        let Quartiles { median, .. } = outcome.of(arm, figure);
        shown(median / 1e3, 1)
    };
    vec![
        outcome.workload.clone(),
        outcome.allocator.name().into(),
        arm.into(),
        own(Figure::Time, 1),
        to_tokio(Figure::Time),
        own(Figure::Cpu, 1),
        to_tokio(Figure::Cpu),
        own(Figure::Cores, 2),
        own(Figure::Switches, 4),
        own(Figure::Parks, 4),
        format!("{} {}", outcome.watched, us(Figure::P50)).trim_start().into(),
        to_tokio(Figure::P50),
        us(Figure::P99),
        to_tokio(Figure::P99),
        shown(outcome.start(arm) / 1e3, 0),
        shown(outcome.stop(arm) / 1e3, 0),
    ]
}

fn print_fits(outcomes: &[Outcome]) {
    let fits = fit::fits(outcomes);
    if fits.is_empty() {
        return;
    }
    println!(
        "\nRuns of tasks: what a run costs, and each task in it, by least squares over `burst_N`\n"
    );
    let rows = fits.iter().map(|fit| {
        vec![
            fit.arm.clone(),
            fit.allocator.name().into(),
            shown(fit.line.fixed / 1e3, 2),
            shown(fit.line.marginal, 1),
            shown(fit.line.r_squared, 4),
        ]
    });
    let head = ["arm", "allocator", "fixed, us", "marginal, ns", "r2"];
    print_aligned(&head, &rows.collect::<Vec<_>>(), 2);
}
