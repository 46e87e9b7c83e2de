//! What the benches share: the arms, the workloads, the measuring.
#![allow(dead_code)] // each bench uses its part

pub mod arms;
pub mod channel;
pub mod choice;
pub mod measure;
pub mod net;
pub mod settings;
pub mod workloads;
