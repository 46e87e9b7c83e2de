//! Executors to embed: [`Executor`] and [`LocalExecutor`], which have no threads of their own and run
//! inside any other.

#[cfg(not(paceline_loom))]
mod multi;
#[cfg(not(paceline_loom))]
mod core;
#[cfg(not(paceline_loom))]
mod runner;
#[cfg(not(paceline_loom))]
mod peers;
mod sleepers;

#[cfg(not(paceline_loom))]
mod local;
#[cfg(all(test, not(paceline_loom)))]
mod local_tests;
#[cfg(all(test, not(paceline_loom)))]
mod local_turn_tests;
#[cfg(not(paceline_loom))]
mod home;
#[cfg(not(paceline_loom))]
mod quantum;
#[cfg(not(paceline_loom))]
mod local_task;
mod ledger;
mod remote;

mod signal;
pub(crate) mod attention;

#[cfg(not(paceline_loom))]
pub use local::LocalExecutor;
#[cfg(not(paceline_loom))]
pub(crate) use local_task::Handle as LocalHandle;
#[cfg(not(paceline_loom))]
pub use multi::Executor;
