//! How many futures are alive, counted without a cache line that every worker writes.
//! Knows nothing of what is done when the last one has gone; its callers are told, once.
//!
//! Each processor has a [`Share`] that only its holder writes; everybody else counts on the
//! common rest. An open share weighs [`OPEN`] in the rest, so the rest reads zero only when every
//! share was folded into it and no future is left. From then on nothing can enter.

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicI64, Ordering::*};

/// Far above any number of futures that one machine holds, and 2^22 of them fit the word.
const OPEN: i64 = 1 << 40;

/// One processor's part: what its holders added and removed, each a count of its own, so that who reads
/// what was removed first, and what was added last, never misses what is alive.
pub(crate) struct Share {
    added: AtomicI64,
    removed: AtomicI64,
}

impl Share {
    pub(crate) fn new() -> Self {
        Share { added: AtomicI64::new(0), removed: AtomicI64::new(0) }
    }

    /// One more; only by the processor's holder.
    #[inline]
    pub(crate) fn add(&self) {
        // Single writer: holders follow one another through the idle list's lock or by mail.
        self.added.store(self.added.load(Relaxed) + 1, Relaxed);
    }

    /// One less; only by the processor's holder. It may have been added elsewhere.
    #[inline]
    pub(crate) fn remove(&self) {
        // Ordering T3: release; pairs with the acquire in `alive`: who sees it removed sees it added.
        self.removed.store(self.removed.load(Relaxed) + 1, Release);
    }

    fn read(&self) -> i64 {
        self.added.load(Relaxed) - self.removed.load(Relaxed)
    }
}

/// The sum of all shares and of the rest.
pub(crate) struct Tally {
    rest: CachePadded<AtomicI64>,
}

impl Tally {
    pub(crate) fn new(shares: usize) -> Self {
        Tally { rest: CachePadded::new(AtomicI64::new(OPEN * shares as i64)) }
    }

    /// One more share. False if all is over.
    pub(crate) fn open(&self) -> bool {
        // Ordering T2: as T1.
        self.rest.fetch_update(AcqRel, Acquire, |rest| (rest != 0).then_some(rest + OPEN)).is_ok()
    }

    /// Counts a future on the rest. False if all is over: then it was not counted.
    pub(crate) fn enter(&self) -> bool {
        // Ordering T2: as T1.
        self.rest.fetch_update(AcqRel, Acquire, |rest| (rest != 0).then_some(rest + 1)).is_ok()
    }

    /// A future has gone. True if it was the last of all, to one caller only; unless that caller
    /// knows better, whatever holds the tally may be freed once this returns false.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        self.change(-1)
    }

    /// Closes a share, which is not written any more. True if all is over, to one caller only.
    #[must_use]
    pub(crate) fn fold(&self, share: &Share) -> bool {
        self.change(share.read() - OPEN)
    }

    fn change(&self, by: i64) -> bool {
        // Ordering T1: release what was done with the future, acquire what others did: pairs with
        // itself, as the count of an `Arc` does.
        let before = self.rest.fetch_add(by, AcqRel);
        debug_assert!(before + by >= 0 || before > OPEN / 2, "rest {before}, change {by}");
        before + by == 0
    }

    pub(crate) fn is_over(&self) -> bool {
        self.rest.load(Acquire) == 0
    }

    /// How many futures are alive, of which `shares` are the processors'. Inexact while they run, but not
    /// zero as long as there is one.
    pub(crate) fn alive<'a>(&self, shares: impl Iterator<Item = &'a Share> + Clone) -> usize {
        // Ordering T3: acquire, in this order: whoever was added in one place and is seen removed in
        // another was added before.
        let removed: i64 = shares.clone().map(|share| share.removed.load(Acquire)).sum();
        let rest = self.rest.load(Acquire);
        let folded = (rest + OPEN / 2).rem_euclid(OPEN) - OPEN / 2;
        // A folded share was added to the rest and is not told apart: while a runtime stops, this is
        // an estimate.
        let open: i64 = if rest >= OPEN / 2 {
            shares.map(|share| share.added.load(Relaxed)).sum()
        } else {
            removed
        };
        (folded + open - removed).max(0) as usize
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn ends_once_and_lets_nobody_in_afterwards() {
        let (tally, share) = (Tally::new(1), Share::new());
        assert!(tally.enter());
        share.add();
        share.add();
        assert_eq!(tally.alive([&share].into_iter()), 3);
        share.remove();
        assert!(!tally.leave() && !tally.leave(), "a rest may be below what the shares hold");
        assert!(!tally.is_over());
        assert!(tally.fold(&share));
        assert!(tally.is_over() && !tally.enter());
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// Futures born on a worker die elsewhere while the share is folded: one caller, no other,
    /// hears that all is over, and only when nothing is left.
    #[test]
    fn the_end_is_reported_exactly_once() {
        loom::model(|| {
            let tally = Arc::new(Tally::new(1));
            let share = Share::new();
            share.add();
            let elsewhere = {
                let tally = tally.clone();
                loom::thread::spawn(move || {
                    let mut ends = u32::from(tally.leave());
                    if tally.enter() {
                        ends += u32::from(tally.leave());
                    }
                    ends
                })
            };
            let ends = u32::from(tally.fold(&share)) + elsewhere.join().unwrap();
            assert!(tally.is_over());
            assert_eq!(ends, 1);
        });
    }
}
