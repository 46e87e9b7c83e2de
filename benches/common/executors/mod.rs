//! What the bench of the embeddable executors consists of.

#[macro_use]
pub mod arms;
pub mod local;
pub mod shared;
pub mod table;

use super::common::workloads::Start;

/// One line of a table: a workload in one way to run it.
pub struct Row {
    pub name: &'static str,
    pub arms: &'static [Start],
}

/// How many tasks there are, and how many steps each takes.
pub const TASKS: usize = 300;
pub const STEPS: usize = 300;

/// Tasks that have nothing to do.
const LIGHT_TASKS: usize = 25_000;
