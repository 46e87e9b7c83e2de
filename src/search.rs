//! Where a worker looks when its own queue is empty: the injector, then the others' queues.
//! Knows nothing of parking; see [`crate::worker`].

use crate::processor::Lease;
use crate::shared::Runnable;

/// The most runnables that one look into the injector brings to a worker's own queue.
const MOST_INJECTED: usize = 128;

/// The oldest injected runnable, and this worker's share of the others.
pub(crate) fn injected(lease: Lease<'_>) -> Option<Runnable> {
    let mut taken = 1;
    let workers = lease.shared.processors.own();
    let runnable = lease.shared.injector.pop(
        |rest| (rest / workers).min(MOST_INJECTED),
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

/// Half of some other worker's queue, from a random one on.
///
/// A single runnable is left to its owner, which is about to pop it, unless the owner did not
/// come round to it since the look before: `alone` remembers that look.
pub(crate) fn stolen(lease: Lease<'_>, alone: &mut Option<(usize, u32)>) -> Option<Runnable> {
    let processors = &lease.shared.processors;
    let count = processors.len();
    let start = lease.random(count);
    let mut lonely = None;
    for victim in (0..count).map(|i| (start + i) % count) {
        if victim == lease.processor.index {
            continue;
        }
        let stealer = &processors[victim].open.stealer;
        let len = stealer.len();
        let look = (victim, stealer.position());
        if len == 0 || (len == 1 && *alone != Some(look)) {
            lonely = lonely.or((len == 1).then_some(look));
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
    *alone = lonely;
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
