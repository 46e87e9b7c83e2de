//! Executors to embed: they have no threads of their own and run inside any other.

#[cfg(not(paceline_loom))]
mod home;
mod ledger;
#[cfg(not(paceline_loom))]
mod local;
#[cfg(not(paceline_loom))]
mod local_task;
#[cfg(all(test, not(paceline_loom)))]
mod local_tests;
mod remote;
mod signal;

#[cfg(not(paceline_loom))]
pub use local::LocalExecutor;
#[cfg(not(paceline_loom))]
pub(crate) use local_task::Handle as LocalHandle;
