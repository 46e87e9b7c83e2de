//! An async executor with a wake slot, inherited timeslices, and a ticker that rescues what a
//! stuck worker holds.
//!
//! ```
//! fn main() {
//!     let total = paceline::block_on(async {
//!         let tasks: Vec<_> = (1..=10).map(|i| paceline::spawn(async move { i * i })).collect();
//!         let mut total = 0;
//!         for task in tasks {
//!             total += task.await;
//!         }
//!         total
//!     });
//!     assert_eq!(total, 385);
//! }
//! ```
//!
//! [`block_on`] and [`spawn`] use the default runtime, which has a worker per CPU and starts at
//! first use. [`Runtime`] and [`Builder`] make others. A [`Task`] is a future of its output;
//! **dropping it cancels it**.
//!
//! # How it schedules
//!
//! - A task woken by the running task goes into the worker's **wake slot** and runs next, on what
//!   is left of the running task's **timeslice** (10 µs by default). Who sat in the slot goes to
//!   the tail of the worker's queue. When the slice is spent, the queue has its turn. So two tasks
//!   that talk do so at the price of two polls, and keep the others waiting for no more than a
//!   slice, a poll and, if polls are long, a tick.
//! - A spawned task, and one that yields, goes to the queue's tail. A wake from another thread
//!   goes to the **injector**, which every worker looks at when its queue is empty and every so
//!   many polls. An idle worker takes half of another's queue.
//! - The **ticker** thread looks after workers whose poll does not return: what waits in their
//!   slot and queue runs elsewhere. It sleeps while nothing runs.
//! - A thread in `block_on` is one of the workers while its future waits.
//!
//! # The life of a task, in modules
//!
//! The modules below stand in that order: from a future to a task ([`task`], [`joiner`]), its
//! waking ([`schedule`]) into a [`slot`], a [`queue`] or the [`injector`]; the [`worker`]'s loop
//! that takes it from there, with what it looks at ([`search`], [`slice`](mod@slice), [`cadence`],
//! [`backlog`]); what a worker holds and where that is noted ([`processor`], [`current`],
//! [`shared`]); who sleeps and who is woken ([`idle`], [`park`], [`spin`]); who looks after them
//! ([`ticker`], [`doze`]); how it ends ([`registry`], [`tally`], [`stop`]); and the public
//! runtime on top.
#![allow(rustdoc::private_intra_doc_links)] // the map above is for readers of the source
#![allow(clippy::needless_doctest_main)] // a first program has a `main`

#[cfg(not(paceline_loom))]
mod task;
mod joiner;
#[cfg(not(paceline_loom))]
mod schedule;
mod slot;
mod queue;
mod injector;

#[cfg(not(paceline_loom))]
mod worker;
#[cfg(not(paceline_loom))]
mod search;
mod slice;
mod cadence;
mod backlog;
#[cfg(not(paceline_loom))]
mod cooperate;

#[cfg(not(paceline_loom))]
mod processor;
#[cfg(not(paceline_loom))]
mod current;
#[cfg(not(paceline_loom))]
mod shared;

mod idle;
#[cfg(not(paceline_loom))]
mod park;
mod spin;

#[cfg(not(paceline_loom))]
mod ticker;
mod doze;

#[cfg(not(paceline_loom))]
mod registry;
mod tally;
#[cfg(not(paceline_loom))]
mod stop;

#[cfg(not(paceline_loom))]
mod runtime;
#[cfg(not(paceline_loom))]
mod config;
#[cfg(not(paceline_loom))]
mod metrics;

mod contain;
mod sync;
mod word;

#[cfg(not(paceline_loom))]
pub use config::{Config, Ticker};
#[cfg(not(paceline_loom))]
pub use cooperate::{Unconstrained, unconstrained, yield_if_due, yield_now};
#[cfg(not(paceline_loom))]
pub use metrics::{Metrics, WorkerMetrics};
#[cfg(not(paceline_loom))]
pub use runtime::{Builder, Enter, Handle, Runtime, block_on, spawn};
#[cfg(not(paceline_loom))]
pub use task::{JoinError, Task};
