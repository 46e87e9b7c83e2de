//! What the bench `ratios` consists of, besides the workloads and arms. One process orchestrates; each
//! workload runs in processes of its own, one allocator each, which print what they measure.

use std::process::ExitCode;

pub mod allocator;
mod arguments;
mod child;
mod compare;
mod environment;
mod files;
mod fit;
mod goals;
mod outcome;
mod parent;
mod progress;
mod svg;
mod sweep;
mod table;

use allocator::Allocator;
use arguments::{Action, Plan};

/// 1 says that something is worse than in the baseline or failed, 2 that the arguments are wrong.
const WRONG_ARGUMENTS: u8 = 2;

/// For its arguments see [`arguments::USAGE`].
pub fn main() -> ExitCode {
    match arguments::parsed(std::env::args().skip(1)).and_then(|plan| act(&plan)) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(WRONG_ARGUMENTS)
        }
    }
}

/// An error is something to mend in the arguments, or in what they name.
fn act(plan: &Plan) -> Result<ExitCode, String> {
    match &plan.action {
        Action::Help => print!("{}", arguments::USAGE),
        Action::Measure => child::print(plan),
        Action::Count => child::count(plan),
        Action::Run if plan.test => return Ok(test(plan)),
        Action::Run => return Ok(summarise(plan).1),
        Action::Record(file) => return compare::record(plan, file),
        Action::Compare(file) => return compare::compare(plan, file),
        Action::Sweep => return Ok(sweep::run(plan)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures, writes the files and prints the tables.
fn summarise(plan: &Plan) -> (Vec<outcome::Outcome>, ExitCode) {
    // A test is content with one workload for the second allocator.
    let is_first = |name: &str| plan.workloads.first().is_some_and(|first| first.name == name);
    let (mut outcomes, failures) = parent::run(plan, |name, allocator| {
        !plan.test || allocator == Allocator::System || is_first(name)
    });
    outcome::sort_worst_first(&mut outcomes);
    let files = files::write(plan, &outcomes);
    table::print(plan, &outcomes);
    println!("\nFiles: {files}");
    (outcomes, parent::told(&failures))
}

/// The parts that need no measuring are right, and everything runs.
fn test(plan: &Plan) -> ExitCode {
    arguments::check();
    compare::check();
    files::check();
    fit::check();
    goals::check();
    outcome::check();
    svg::check();
    sweep::check();
    let (outcomes, code) = summarise(plan);
    for outcome in &outcomes {
        for arm in plan.arms_of(&outcome.workload) {
            let rounds = outcome.rounds(arm).len();
            assert_eq!(rounds, 1, "rounds of {} on {arm}", outcome.workload);
        }
    }
    code
}
