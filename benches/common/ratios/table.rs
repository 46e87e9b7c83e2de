//! The tables on standard output.

use super::arguments::Plan;
use super::fit;
use super::goals::{self, Goal};
use super::outcome::{Figure, Outcome, SLOT_OFF, TOKIO};

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

/// Nothing is wider than its column. A column whose name begins with `<` is aligned to the left.
pub fn print_aligned(head: &[&str], rows: &[Vec<String>]) {
    let is_left: Vec<_> = head.iter().map(|name| name.starts_with('<')).collect();
    let head: Vec<_> = head.iter().map(|name| name.trim_start_matches('<')).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.fold(head[column].chars().count(), usize::max)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if is_left[column] { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        println!("{}", padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(&head);
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
        "<workload",
        "<allocator",
        "ns/op",
        "spread",
        "to tokio",
        "spread",
        "to best other",
        "<",
        "slot off",
        "goal",
        "<met",
        "<further goals",
    ];
    print_aligned(&head, &outcomes.iter().map(ratios).collect::<Vec<_>>());
    print_goals(outcomes);
    println!("\nDetails: watched durations, start-up and teardown in us, all else per operation\n");
    print_details(plan, outcomes);
    print_fits(outcomes);
}

fn ratios(outcome: &Outcome) -> Vec<String> {
    let (subject, figure) = (outcome.subject(), goals::judged_by(&outcome.workload));
    let (own, to_tokio) = (outcome.of(subject, figure), outcome.judged());
    let best = outcome.best_other(figure);
    let to_best = best.map_or(f64::NAN, |best| outcome.ratio(subject, best, figure).median);
    let (goal, further) = goals::of(&outcome.workload).split_first().expect("there is one");
    let tell_further = |goal: &Goal| {
        let most = goal.most(outcome.allocator);
        format!("{} {most}: {}", goal.0.name(), met(goal, outcome))
    };
    vec![
        outcome.title(),
        outcome.allocator.name().into(),
        shown(own.median, 1),
        percent(own.spread_percent()),
        ratio(to_tokio.median),
        percent(to_tokio.spread_percent()),
        ratio(to_best),
        best.unwrap_or_default().into(),
        ratio(outcome.ratio(SLOT_OFF, TOKIO, figure).median),
        goal.most(outcome.allocator).to_string(),
        met(goal, outcome).into(),
        further.iter().map(tell_further).collect::<Vec<_>>().join(", "),
    ]
}

fn met(goal: &Goal, outcome: &Outcome) -> &'static str {
    match goal.is_met(outcome) {
        None => NONE,
        Some(true) => "yes",
        Some(false) => "no",
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
    let mut head = vec!["<workload", "<allocator"];
    if plan.is_named {
        head.extend(["<arm", "ns", "to tokio"]);
    }
    let cpu = ["CPU ns", "to tokio", "cores", "switches", "parks"];
    head.extend(cpu);
    head.extend(["watched p50", "to tokio", "p99", "to tokio", "start", "stop"]);
    let mut rows = Vec::new();
    for outcome in outcomes {
        let arms = outcome.arms().filter(|arm| plan.is_named || *arm == outcome.subject());
        rows.extend(arms.map(|arm| details(outcome, arm, plan.is_named)));
    }
    print_aligned(&head, &rows);
}

fn details(outcome: &Outcome, arm: &str, is_named: bool) -> Vec<String> {
    let own = |figure, decimals| shown(outcome.of(arm, figure).median, decimals);
    let to_tokio = |figure| ratio(outcome.ratio(arm, TOKIO, figure).median);
    let us = |figure| shown(outcome.of(arm, figure).median / 1e3, 1);
    let mut cells = vec![outcome.workload.clone(), outcome.allocator.name().into()];
    if is_named {
        cells.extend([arm.into(), own(Figure::Time, 1), to_tokio(Figure::Time)]);
    }
    cells.extend([
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
    ]);
    cells
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
    let head = ["<arm", "<allocator", "fixed, us", "marginal, ns", "r2"];
    print_aligned(&head, &rows.collect::<Vec<_>>());
}
