//! What the bench of instructions consists of.

pub mod baseline;
pub mod callgrind;
pub mod clock;
pub mod ops;
