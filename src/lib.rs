//! An async runtime with a wake slot, inherited timeslices, a reactor without a thread of its own,
//! and a ticker that rescues what a stuck worker holds.
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
//! **dropping it cancels it**. [`time`] has timers, [`net`] sockets, and [`Async`] is for any other
//! descriptor; they work on every thread, on the default runtime if on no other. [`supervise`] keeps a
//! task alive. [`LocalRuntime`] is one of a single thread, for futures that need not be `Send` and for hosts
//! with a loop of their own.
//!
//! # How it schedules
//!
//! - A task woken by the running task goes into the worker's **wake slot** and runs next, on what
//!   is left of the running task's **timeslice** (10 µs by default). Who sat in the slot goes to
//!   the tail of the worker's queue. When the slice is spent, the queue has its turn. So two tasks
//!   that talk do so at the price of two polls, and keep the others waiting for no more than a
//!   slice, a poll and, if polls are long, two ticks.
//! - A spawned task, and one that yields, goes to the queue's tail. A wake from another thread
//!   goes to the **injector**, which every worker looks at when its queue is empty and every so
//!   many polls. An idle worker takes half of another's queue.
//! - The **ticker** thread looks after workers whose poll does not return: what waits in their
//!   slot and queue runs elsewhere, on a **spare** worker if need be. It reports **wedges**, polls that
//!   last too long, by the task's name and spawn location, and deadlocks if asked to. It sleeps while
//!   nothing runs.
//! - A thread in `block_on` is one of the workers while its future waits.
//! - No thread is there for I/O: whoever has nothing to do sleeps in the **reactor**, where sockets
//!   and timers wake it; whoever is busy looks in every so many polls. What they wake goes to the
//!   queue's tail.
//!
//! # Words
//!
//! - *Runnable*: a task that is to be polled, as async-task hands it out. It is in exactly one
//!   place: a slot, a queue, the injector, or a worker's hands.
//! - *Processor*: the right to run one task at a time, with a slot, a queue and counters. There are
//!   as many as the runtime's `worker_threads`, and spare ones.
//! - *Worker*: a thread that holds a processor. A *lease* is the evidence that this thread does.
//! - *Frame*: one worker loop or one `block_on` on a thread's stack.
//! - *Wedged*: in a poll that lasts longer than `wedge_after`. *Spare processor*: one more, in service
//!   while a worker is stuck and work waits; else on the *bench*.
//! - *Counted*: a future that was made and not dropped yet; it keeps its scheduler alive. *The end*:
//!   what begins when a runtime is dropped, and is over when no future is counted.
//! - *Source*: a descriptor that is registered with the reactor. *Driver*: the thread that sleeps
//!   there, or looks in; at most one at a time. *Due*: the wakers that it has collected and not
//!   called yet. *Alarm*: until when it sleeps.
//!
//! # One wake, step by step
//!
//! A socket's thread, say, completes what a task waits for, and calls `wake`. async-task marks the
//! task as scheduled and calls [`schedule`], which finds that this thread holds no
//! processor of the task's scheduler: the runnable goes into the [`injector`]. Then
//! [`idle::Idle::wake`] looks at two counts. Somebody searches, or nobody is idle: they will look
//! into the injector. Otherwise it takes an idle processor and a parked thread out of their lists,
//! mails the one to the other and unparks it ([`park`]); with no thread parked, one is started.
//! The thread wakes up in [`worker`], counted as searching; it takes the runnable out of the
//! injector with its share of what else is there, stops to count as searching (waking the next one
//! if there is more), and polls the task. Had a worker of that scheduler called `wake` in the
//! middle of a poll, the runnable would have gone into its [`slot`], and been its next.
//!
//! Most sockets are the runtime's own. Then the reactor's driver finds the event
//! ([`reactor`]): it was asleep in the poller, in the idle list as any parked thread, and takes
//! itself out of it together with an idle processor. It counts the event as one of the source's
//! ([`reactor::source`]), takes the waker that is there, and calls it with the processor in hand: the
//! runnable goes to its own queue, and is polled next. A task that was about to wait when the event
//! came compares the count, under the source's lock, and tries again instead. Had the task been polled on
//! another worker that is awake, the runnable would have gone to that one's [`inbox`].
//!
//! # The life of a task, in modules
//!
//! The modules stand in that order: from a future to a task ([`task`], [`identity`], [`joiner`]), its waking
//! ([`schedule`]) into a [`slot`], a [`queue`], an [`inbox`] or the [`injector`]; the [`worker`]'s loop that
//! takes it from there, with what it looks at ([`search`], [`slice`](mod@slice), [`cadence`],
//! [`backlog`]) and how a task gives way ([`cooperate`]); what a worker holds and where that is
//! noted ([`processor`], [`current`], [`shared`]); who sleeps and who is woken ([`idle`], [`park`],
//! [`spin`]); what wakes them from outside ([`reactor`], [`clock`]); who looks after them ([`ticker`],
//! [`doze`]), what is found there ([`wedge`], [`thread_state`], [`census`], [`outside`]) and reported
//! ([`report`]); how it ends ([`registry`], [`tally`], [`closing`], [`stop`]); what tasks await
//! ([`blocking`] on its [`pool`], [`io`], [`net`], [`time`], and `hyper` and `tokio_io` for libraries that want it so);
//! the public runtime on top, with its [`config`] and [`metrics`], and who keeps a task alive on it
//! ([`supervise`]); executors without threads ([`executor`]: several threads share one, with the same task,
//! slot and queue; one thread has the other, with a task of its own that is not atomic there); and small
//! change ([`contain`] for panics, [`fork`] for forked processes, [`sync`] for the model checker, [`word`]
//! for what fits a pointer).
#![allow(rustdoc::private_intra_doc_links)] // the map above is for readers of the source
#![allow(clippy::needless_doctest_main)] // a first program has a `main`

#[cfg(not(paceline_loom))]
mod task;
#[cfg(not(paceline_loom))]
mod identity;
mod joiner;
#[cfg(not(paceline_loom))]
mod schedule;
mod slot;
mod queue;
mod injector;
mod inbox;

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
#[cfg(not(paceline_loom))]
mod spin;

mod reactor;
#[cfg(not(paceline_loom))]
mod clock;

#[cfg(not(paceline_loom))]
mod ticker;
#[cfg(not(paceline_loom))]
mod wedge;
#[cfg(not(paceline_loom))]
mod report;
#[cfg(not(paceline_loom))]
mod thread_state;
mod doze;

#[cfg(not(paceline_loom))]
mod census;
#[cfg(not(paceline_loom))]
mod outside;

#[cfg(not(paceline_loom))]
mod registry;
mod tally;
mod closing;
#[cfg(not(paceline_loom))]
mod stop;

#[cfg(not(paceline_loom))]
mod blocking;
#[cfg(not(paceline_loom))]
mod pool;
#[cfg(not(paceline_loom))]
mod io;
#[cfg(not(paceline_loom))]
pub mod net;
#[cfg(not(paceline_loom))]
pub mod time;
#[cfg(all(feature = "hyper", not(paceline_loom)))]
pub mod hyper;
#[cfg(all(feature = "tokio-io", not(paceline_loom)))]
mod tokio_io;

#[cfg(not(paceline_loom))]
mod runtime;
mod executor;
#[cfg(not(paceline_loom))]
mod config;
#[cfg(not(paceline_loom))]
mod metrics;
#[cfg(not(paceline_loom))]
pub mod supervise;

mod contain;
#[cfg(not(paceline_loom))]
mod fork;
mod sync;
mod word;

#[cfg(not(paceline_loom))]
pub use blocking::{Unblock, block_in_place, unblock};
#[cfg(not(paceline_loom))]
pub use config::{Config, Spin, Ticker};
#[cfg(not(paceline_loom))]
pub use cooperate::{Unconstrained, unconstrained, yield_if_due, yield_now};
#[cfg(not(paceline_loom))]
pub use executor::{Executor, LocalExecutor};
#[cfg(not(paceline_loom))]
pub use identity::TaskInfo;
#[cfg(not(paceline_loom))]
pub use io::Async;
#[cfg(not(paceline_loom))]
pub use metrics::{Metrics, WorkerMetrics};
#[cfg(not(paceline_loom))]
pub use report::{Census, ThreadState, Wedge};
#[cfg(not(paceline_loom))]
pub use runtime::{
    Builder, Enter, Handle, LocalRuntime, Runtime, block_on, spawn, spawn_local, spawn_named,
};
#[cfg(not(paceline_loom))]
pub use task::{FallibleTask, JoinError, Task};
#[cfg(not(paceline_loom))]
pub use time::Timer;
