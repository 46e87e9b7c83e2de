//! Where a worker looks when its own queue is empty: the injector, then the others' queues.
//! Knows nothing of parking; see [`crate::worker`].

use crate::processor::Lease;
use crate::shared::Runnable;

/// The most runnables that one look into the injector brings to an idle worker's own queue.
pub(crate) const MOST_INJECTED: usize = 128;

/// The oldest injected runnable, and of the others this worker's share, but no more than that many.
pub(crate) fn injected(lease: Lease<'_>, most: usize) -> Option<Runnable> {
    let mut taken = 1;
    let workers = lease.shared.processors.own();
    let runnable = lease.shared.injector.pop(
        |rest| (rest / workers).min(most),
        |runnable| {
            taken += 1;
            lease.queue().push(runnable);
        },
    )?;
    lease.counters().injected.add(taken);
    if taken > 1 {
        lease.call_watch();
    }
    Some(runnable)
}

/// A single runnable in some worker's queue that was seen in one look after the other.
pub(crate) struct Alone {
    /// Whose queue, and how many it had given out before.
    seen: Option<(usize, u32)>,
    looks: u32,
    enough: u32,
}

impl Alone {
    /// It is taken away when it has been seen so many times.
    pub(crate) fn after(enough: u32) -> Self {
        Alone { seen: None, looks: 0, enough }
    }

    /// Has less patience from here on.
    pub(crate) fn settle_for(&mut self, enough: u32) {
        self.enough = enough;
    }

    fn look(&mut self, seen: Option<(usize, u32)>) {
        self.looks = if seen.is_some() && seen == self.seen { self.looks + 1 } else { 1 };
        self.seen = seen;
    }

    fn has_waited(&self) -> bool {
        self.seen.is_some() && self.looks >= self.enough
    }
}

/// Half of some other worker's queue, from a random one on.
///
/// A single runnable is left to its owner, which is about to pop it, unless the owner did not
/// come round to it in so many looks as `alone` allows.
pub(crate) fn stolen(lease: Lease<'_>, alone: &mut Alone) -> Option<Runnable> {
    let processors = &lease.shared.processors;
    let count = processors.len();
    let start = lease.random(count);
    let mut seen = None;
    let patience = alone.has_waited();
    for victim in (0..count).map(|i| (start + i) % count) {
        if victim == lease.processor.index {
            continue;
        }
        let stealer = &processors[victim].stealer;
        let len = stealer.len();
        let look = (victim, stealer.position());
        if len == 0 || (len == 1 && !(patience && alone.seen == Some(look))) {
            seen = seen.or((len == 1).then_some(look));
            continue;
        }
        let before = lease.queue().len();
        if let Some(runnable) = stealer.steal(lease.queue()) {
            lease.counters().steals.add(1);
            let brought = lease.queue().len() - before;
            lease.counters().stolen.add(1 + brought as u64);
            if brought > 0 {
                lease.call_watch();
            }
            return Some(runnable);
        }
    }
    alone.look(seen);
    None
}

/// Half of what was left for some other worker, which does not come round to it.
pub(crate) fn left_behind(lease: Lease<'_>) -> Option<Runnable> {
    let mut others =
        lease.shared.processors.iter().filter(|other| other.index != lease.processor.index);
    let mut taken = 1;
    let runnable = others.find_map(|other| {
        other.inbox.pop_half(|runnable| {
            taken += 1;
            lease.queue().push(runnable);
        })
    })?;
    lease.counters().steals.add(1);
    lease.counters().stolen.add(taken);
    if taken > 1 {
        lease.call_watch();
    }
    Some(runnable)
}
