//! Executors to embed: [`Executor`] and [`LocalExecutor`], which have no threads of their own and run
//! inside any other.

#[cfg(not(paceline_loom))]
mod core;
#[cfg(not(paceline_loom))]
mod multi;
#[cfg(not(paceline_loom))]
mod peers;
#[cfg(not(paceline_loom))]
mod runner;
mod signal;
mod sleepers;

#[cfg(not(paceline_loom))]
pub use multi::Executor;
