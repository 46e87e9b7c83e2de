//! What the bench of the adaptive spin consists of, besides the loads in [`crate::common::workloads`].

pub mod conditions;
pub mod rounds;
pub mod rows;
pub mod table;
pub mod verdicts;
