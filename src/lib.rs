//! paceline

mod contain;
mod cooperate;
mod task;
mod joiner;
mod schedule;
mod slot;
mod queue;
mod injector;
mod word;
mod worker;
mod search;
mod slice;
mod cadence;
mod backlog;
mod processor;
mod current;
mod shared;
mod idle;
mod park;
mod spin;
mod ticker;
mod doze;
mod registry;
mod tally;
mod stop;
mod config;
mod metrics;
mod runtime;
mod sync;

pub use config::{Config, Ticker};
pub use cooperate::{Unconstrained, unconstrained, yield_if_due, yield_now};
pub use metrics::{Metrics, WorkerMetrics};
pub use runtime::{Builder, Enter, Handle, Runtime, block_on, spawn};
pub use task::{JoinError, Task};
