//! The embeddable executors beside each other, interleaved: async-executor's kinds of workloads on what
//! threads share, and on what one thread has, there with tokio's `LocalSet`. See benches/README.md.

mod common;
#[path = "common/executors/mod.rs"]
mod executors;

use common::choice::Choice;
use executors::{local, shared, table};

fn main() {
    let rows = || shared::ROWS.iter().chain(local::ROWS);
    let mut arms = table::arms_of(shared::ROWS);
    arms.extend(table::arms_of(local::ROWS));
    let names: Vec<_> = rows().map(|row| row.name).collect();
    let choice = Choice::from_arguments(&names, &arms);
    let mut operations = table::run("Executor", shared::ROWS, &choice);
    println!();
    operations += table::run("LocalExecutor", local::ROWS, &choice);
    if choice.counts {
        println!("operations: {operations}");
    }
}
