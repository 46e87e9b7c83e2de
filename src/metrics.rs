//! What a runtime has counted. Counting costs a store to the worker's own cache line.

use crate::processor::Processor;
use crate::shared::Shared;

/// A snapshot, from [`Runtime::metrics`](crate::Runtime::metrics) or
/// [`Handle::metrics`](crate::Handle::metrics). Counters never decrease, and are read one after
/// the other while the workers go on.
///
/// # Examples
/// ```
/// let runtime = paceline::Runtime::new()?;
/// runtime.block_on(async { paceline::spawn(async {}).await });
/// assert!(runtime.metrics().total().polls >= 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// One entry per worker, that is, per task that may run at once: threads take turns in them. After
    /// [`worker_threads`](crate::Config::worker_threads) of them come the spare ones that have made up for
    /// wedged ones so far.
    pub workers: Vec<WorkerMetrics>,
    /// Tasks whose future has not been dropped yet. Inexact while workers run: it is the sum of what
    /// each has added and removed, read one after the other.
    pub live_tasks: usize,
    /// Runnable tasks that came from outside the workers and were not taken yet.
    pub injector_depth: usize,
    /// Timers that are armed.
    pub timers: usize,
    /// Sockets and other descriptors that are registered.
    pub sources: usize,
    /// Spare workers that make up for wedged ones now.
    pub spare_workers: usize,
    /// Threads that the runtime has started, the ticker included; threads in `block_on` are not
    /// counted.
    pub threads: usize,
}

/// What one worker has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Polls of tasks and of the futures of `block_on`.
    pub polls: u64,
    /// Tasks that were run from the wake slot.
    pub slot_hits: u64,
    /// Tasks that had to leave the wake slot to a later wake, for the queue's tail.
    pub slot_displacements: u64,
    /// Times that the wake slot had to wait for the queue since the timeslice was spent.
    pub slices_spent: u64,
    /// Times that [`yield_if_due`](crate::yield_if_due), or an operation on a socket or a timer that was
    /// ready, gave way.
    pub forced_yields: u64,
    /// Tasks taken from the injector.
    pub injected: u64,
    /// Successful thefts from other workers' queues.
    pub steals: u64,
    /// Tasks that these brought.
    pub stolen: u64,
    /// Other workers woken, for a backlog or at the end of a search.
    pub wakes: u64,
    /// Searches that went on to spin, since there was nothing at first.
    pub spins: u64,
    /// Those that found something.
    pub spins_won: u64,
    /// Times that there was nothing to do, so that the thread went to sleep.
    pub parks: u64,
    /// Tasks that the ticker took out of the wake slot since the poll before did not return.
    pub rescues: u64,
    /// Polls that lasted longer than [`wedge_after`](crate::Builder::wedge_after).
    pub wedges: u64,
    /// Runnable tasks in the local queue.
    pub queue_depth: usize,
}

impl Metrics {
    pub(crate) fn of(shared: &Shared) -> Self {
        Metrics {
            workers: shared.processors.iter().map(WorkerMetrics::of).collect(),
            live_tasks: shared.alive(),
            injector_depth: shared.injector.len(),
            timers: shared.reactor.armed_timers(),
            sources: shared.reactor.registered_sources(),
            spare_workers: shared.idle.spare(),
            threads: crate::sync::lock(&shared.threads).len(),
        }
    }

    /// The sum over all workers.
    pub fn total(&self) -> WorkerMetrics {
        self.workers.iter().fold(WorkerMetrics::default(), |sum, worker| sum.plus(worker))
    }
}

impl WorkerMetrics {
    fn of(processor: &Processor) -> Self {
        let counters = &processor.open.counters;
        WorkerMetrics {
            polls: counters.polls.get(),
            slot_hits: counters.slot_hits.get(),
            slot_displacements: counters.slot_displacements.get(),
            slices_spent: counters.slices_spent.get(),
            forced_yields: counters.forced_yields.get(),
            injected: counters.injected.get(),
            steals: counters.steals.get(),
            stolen: counters.stolen.get(),
            wakes: counters.wakes.get(),
            spins: counters.spins.get(),
            spins_won: counters.spins_won.get(),
            parks: counters.parks.get(),
            rescues: processor.verdict.rescues.get(),
            wedges: processor.verdict.wedges.get(),
            queue_depth: processor.stealer.len() + processor.inbox.len(),
        }
    }

    fn plus(self, other: &Self) -> Self {
        WorkerMetrics {
            polls: self.polls + other.polls,
            slot_hits: self.slot_hits + other.slot_hits,
            slot_displacements: self.slot_displacements + other.slot_displacements,
            slices_spent: self.slices_spent + other.slices_spent,
            forced_yields: self.forced_yields + other.forced_yields,
            injected: self.injected + other.injected,
            steals: self.steals + other.steals,
            stolen: self.stolen + other.stolen,
            wakes: self.wakes + other.wakes,
            spins: self.spins + other.spins,
            spins_won: self.spins_won + other.spins_won,
            parks: self.parks + other.parks,
            rescues: self.rescues + other.rescues,
            wedges: self.wedges + other.wedges,
            queue_depth: self.queue_depth + other.queue_depth,
        }
    }
}
