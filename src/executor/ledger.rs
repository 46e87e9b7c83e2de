//! What other threads may do to a local task: one atomic word, and the cell of a joiner elsewhere.
//! Knows neither futures nor executors; generic over the joiner's waker.
//!
//! References are counted twice. The owner counts its own in a plain cell while the future lives, all
//! other threads count theirs here, where the count may be negative meanwhile: what one thread made
//! another may drop. At the end the owner adds its own count to this one, and from then on this one is
//! exact; who brings it to zero frees.

use std::fmt;

use crate::sync::UnsafeCell;
use crate::sync::atomic::{Ordering::*, fence};

/// As wide as there is one: 32 bits, less those of the flags, are soon counted through.
#[cfg(target_has_atomic = "64")]
type Word = i64;
#[cfg(target_has_atomic = "64")]
type AtomicWord = crate::sync::atomic::AtomicI64;
#[cfg(not(target_has_atomic = "64"))]
type Word = isize;
#[cfg(not(target_has_atomic = "64"))]
type AtomicWord = crate::sync::atomic::AtomicIsize;

/// The future is gone, and the counts are one.
const ENDED: Word = 1;
/// A waker is in the cell; whoever leaves this state owns the cell, and after the end the owner does.
const WAITING: Word = 2;
/// A thread has put the task into the executor's inbox, or is about to; only the owner leaves this
/// state, and does so before the poll.
const CLAIMED: Word = 4;
/// The handle is gone: nobody wants the output.
const ABANDONED: Word = 8;
/// The future is to be dropped.
const CANCELLED: Word = 16;
/// One reference.
const UNIT: Word = 256;

/// A count beyond is one of forgotten clones: memory cannot hold wakers of so many references; on 32 bits
/// without an atomic word of 64 they would be 16 MB.
const MOST: Word = Word::MAX / UNIT / 4;

/// The word at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Entry(Word);

impl Entry {
    fn has(self, flag: Word) -> bool {
        self.0 & flag != 0
    }

    fn count(self) -> Word {
        self.0 >> UNIT.trailing_zeros()
    }

    pub(crate) fn is_cancelled(self) -> bool {
        self.has(CANCELLED)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("count", &self.count())
            .field("flags", &format_args!("{:05b}", self.0 & (UNIT - 1)))
            .finish()
    }
}

/// What a wake or a cancellation from elsewhere came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The caller is to put the task into the inbox, with one reference.
    Mine,
    /// Somebody else does.
    Others,
    /// The future is gone.
    Ended,
}

/// How it stands at the end.
pub(crate) struct End<W> {
    /// Of a joiner elsewhere.
    pub(crate) waker: Option<W>,
    /// A claim is under way: an entry of the inbox is still to come, or there.
    pub(crate) is_claimed: bool,
    /// The handle was dropped elsewhere: the output is the owner's to drop.
    pub(crate) is_abandoned: bool,
    pub(crate) reference: Reference,
}

/// The executor's own reference, after the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// Nobody has one any more: the caller frees.
    Last,
    Given,
    /// The caller is to [`release`](Ledger::release) it.
    Kept,
}

pub(crate) struct Ledger<W> {
    word: AtomicWord,
    waker: UnsafeCell<Option<W>>,
}

impl<W> Ledger<W> {
    pub(crate) fn new() -> Self {
        Ledger { word: AtomicWord::new(0), waker: UnsafeCell::new(None) }
    }

    fn set(&self, flags: Word) -> Entry {
        // Ordering J1: release what the caller did for the poll or the end that follows, also if
        // nothing changes; pairs with J2 and J3. Acquire: of the end (J3), the output.
        Entry(self.word.fetch_or(flags, AcqRel))
    }

    /// One more reference, counted here.
    pub(crate) fn refer(&self) {
        let before = Entry(self.word.fetch_add(UNIT, Relaxed));
        if before.count() > MOST {
            std::process::abort();
        }
    }

    /// The owner: so many references more that it had counted itself; or less.
    #[cold]
    pub(crate) fn carry(&self, count: isize) {
        // Relaxed: before the end nobody frees, whatever the count is.
        let before = Entry(self.word.fetch_add(count as Word * UNIT, Relaxed));
        if before.count() > MOST {
            std::process::abort();
        }
    }

    /// One reference less, counted here. True if it was the last: the caller frees.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        // Ordering J4: acquire what all others did with the task before they let go of it (J5).
        let now = Entry(self.word.load(Acquire));
        if now.has(ENDED) && now.count() == 1 {
            // It is the caller's own, so there is nobody who could make another.
            return true;
        }
        // Ordering J5: release what the caller did with the task; pairs with J4 and J6.
        let before = Entry(self.word.fetch_sub(UNIT, Release));
        if before.has(ENDED) && before.count() == 1 {
            // Ordering J6: acquire; pairs with J5.
            fence(Acquire);
            return true;
        }
        false
    }

    /// Elsewhere: the task is to be polled.
    pub(crate) fn wake(&self) -> Claim {
        Self::claim(self.set(CLAIMED))
    }

    /// Elsewhere: the future is to be dropped.
    pub(crate) fn cancel(&self) -> Claim {
        Self::claim(self.set(CANCELLED | CLAIMED))
    }

    /// Elsewhere, by the handle: nobody wants the output, and the future is to be dropped. If the task has
    /// ended, the output is the caller's.
    pub(crate) fn abandon(&self) -> Claim {
        Self::claim(self.set(ABANDONED | CANCELLED | CLAIMED))
    }

    /// Elsewhere, by the handle: nobody wants the output. True if the task has ended: then the output is
    /// the caller's.
    pub(crate) fn detach(&self) -> bool {
        self.set(ABANDONED).has(ENDED)
    }

    fn claim(before: Entry) -> Claim {
        if before.has(ENDED) {
            Claim::Ended
        } else if before.has(CLAIMED) {
            Claim::Others
        } else {
            Claim::Mine
        }
    }

    /// Whether the future is gone. If so, the output is there.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        // Ordering J7: acquire; pairs with J3.
        Entry(self.word.load(Acquire)).has(ENDED)
    }

    /// Elsewhere: leaves a waker, which `renew` makes from the one that was left before, if any. False if
    /// the task has ended; then nobody will be woken.
    ///
    /// # Safety
    /// Only the one handle of the task calls this, from one thread at a time.
    pub(crate) unsafe fn wait(&self, renew: impl FnOnce(Option<W>) -> W) -> bool {
        let mut before = None;
        // Ordering J8: acquire only pairs with this handle's own J1; the cell is its own again.
        if Entry(self.word.load(Relaxed)).has(WAITING) {
            if Entry(self.word.fetch_and(!WAITING, Acquire)).has(ENDED) {
                return false;
            }
            // SAFETY: this left `WAITING`, before the end.
            before = self.waker.with_mut(|waker| unsafe { (*waker).take() });
        }
        let waker = renew(before);
        // SAFETY: not `WAITING`: the owner does not touch the cell.
        let before = self.waker.with_mut(|cell| unsafe { (*cell).replace(waker) });
        debug_assert!(before.is_none());
        if !self.set(WAITING).has(ENDED) {
            return true;
        }
        // SAFETY: the end saw no `WAITING`, so the cell stays the handle's.
        drop(self.waker.with_mut(|waker| unsafe { (*waker).take() }));
        false
    }

    /// The owner takes note of a claim, before it polls. The entry's reference is the owner's now.
    pub(crate) fn accept(&self) -> Entry {
        // Ordering J2: acquire what the wakers did; pairs with J1.
        Entry(self.word.fetch_and(!CLAIMED, AcqRel))
    }

    /// The owner: the future is gone, the output is there. `count` is what the owner counted, with the
    /// executor's own reference, of which [`End`] tells.
    #[inline]
    pub(crate) fn end(&self, count: isize) -> End<W> {
        // Ordering J9: acquire; as J4, for who finds no other reference.
        let before = Entry(self.word.load(Acquire));
        let of = |reference| End {
            waker: None,
            is_claimed: before.has(CLAIMED),
            is_abandoned: false,
            reference,
        };
        if !before.has(WAITING | ABANDONED) {
            let after = Entry(before.0 + (count as Word - 1) * UNIT + ENDED);
            if after.count() == 0 {
                return of(Reference::Last);
            }
            // Ordering J3: release the output, and what the owner did with the task; pairs with J1,
            // J4 and J7.
            let given = self.word.compare_exchange(before.0, after.0, Release, Relaxed);
            if given.is_ok() {
                return of(Reference::Given);
            }
        }
        self.end_beside_others(count)
    }

    /// Keeps the executor's reference for what is to be done after the end.
    #[cold]
    fn end_beside_others(&self, count: isize) -> End<W> {
        // Ordering J3: as above. Acquire: the joiner's waker.
        let before = Entry(self.word.fetch_add(count as Word * UNIT + ENDED, AcqRel));
        debug_assert!(!before.has(ENDED), "{before:?}");
        let waker = before.has(WAITING).then(|| {
            // SAFETY: after an end that finds `WAITING` the handle leaves the cell alone.
            self.waker.with_mut(|waker| unsafe { (*waker).take() })
        });
        End {
            waker: waker.flatten(),
            is_claimed: before.has(CLAIMED),
            is_abandoned: before.has(ABANDONED),
            reference: Reference::Kept,
        }
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_made_another_may_drop() {
        let ledger = Ledger::<u32>::new();
        // The owner made a reference that is dropped elsewhere; the executor's own is the second.
        assert!(!ledger.release());
        ledger.refer();
        let end = ledger.end(2);
        assert_eq!(end.reference, Reference::Given);
        assert!(ledger.release());
    }

    #[test]
    fn what_the_owner_carries_over_counts_at_the_end() {
        let ledger = Ledger::<u32>::new();
        // Three were made by the owner, one of which is dropped elsewhere.
        ledger.carry(3);
        assert!(!ledger.release());
        let end = ledger.end(1);
        assert_eq!(end.reference, Reference::Given);
        assert!(!ledger.release());
        assert!(ledger.release());
    }

    /// Also on 32 bits.
    #[cfg(target_has_atomic = "64")]
    #[test]
    fn millions_of_references_are_counted() {
        let ledger = Ledger::<u32>::new();
        ledger.carry(1 << 26);
        ledger.refer();
        ledger.carry(-(1 << 26));
        let end = ledger.end(1);
        assert_eq!(end.reference, Reference::Given);
        assert!(ledger.release());
    }

    #[test]
    fn an_end_without_other_references_frees_at_once() {
        let ledger = Ledger::<u32>::new();
        assert_eq!(ledger.end(1).reference, Reference::Last);
    }

    #[test]
    fn the_latest_waker_comes_out_at_the_end_and_the_reference_stays() {
        let ledger = Ledger::new();
        // SAFETY: one handle.
        unsafe {
            assert!(ledger.wait(|before: Option<u32>| before.unwrap_or(1)));
            assert!(ledger.wait(|before| before.unwrap() + 1));
        }
        let end = ledger.end(2);
        assert_eq!((end.waker, end.reference), (Some(2), Reference::Kept));
        // SAFETY: one handle.
        assert!(unsafe { !ledger.wait(|_| 3) });
        assert!(!ledger.release());
        assert!(ledger.release());
    }

    #[test]
    fn a_claim_is_one_threads_until_the_owner_takes_note() {
        let ledger = Ledger::<u32>::new();
        assert_eq!((ledger.wake(), ledger.cancel()), (Claim::Mine, Claim::Others));
        assert!(ledger.accept().is_cancelled());
        assert_eq!(ledger.wake(), Claim::Mine);
        ledger.refer();
        assert!(ledger.end(1).is_claimed);
        assert_eq!(ledger.wake(), Claim::Ended);
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::executor::remote::Remote;
    use crate::sync::Arc;
    use crate::sync::atomic::{AtomicBool, AtomicUsize};

    /// A task as the model checker sees it: what is read in `memory` must not be freed meanwhile.
    struct Stage {
        ledger: Ledger<u32>,
        memory: loom::cell::UnsafeCell<()>,
        output: UnsafeCell<Option<u32>>,
        outputs_dropped: AtomicUsize,
        freed: AtomicUsize,
        inbox: Remote<(), ()>,
        note: AtomicUsize,
        /// The owner has dropped the handle: it drops the output itself, before the end.
        abandoned_here: AtomicBool,
    }

    // SAFETY: the model checker watches the cells.
    unsafe impl Send for Stage {}
    // SAFETY: as above.
    unsafe impl Sync for Stage {}

    impl Stage {
        /// One end by the owner, beside others' doings. Then everything was freed once.
        fn model(count: isize, others: fn(&Arc<Stage>) -> Vec<loom::thread::JoinHandle<()>>) {
            // The checker starts from the order in which the threads come, and a thread's own load hides
            // from it that another's could come later: so the owner is once the first and once the last.
            for is_last in [false, true] {
                let mut model = loom::model::Builder::new();
                // Of three threads not all orders are tried: those with so many preemptions are.
                model.preemption_bound = Some(2);
                model.check(move || {
                    let stage = Stage::new();
                    let mut threads = others(&stage);
                    if is_last {
                        threads.push(beside(&stage, move |stage| drop(stage.end(count))));
                    } else {
                        stage.end(count);
                    }
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                    assert_eq!(stage.freed.load(Relaxed), 1, "freed once");
                    assert_eq!(stage.outputs_dropped.load(Relaxed), 1, "output dropped once");
                });
            }
        }

        fn new() -> Arc<Self> {
            Arc::new(Stage {
                ledger: Ledger::new(),
                memory: loom::cell::UnsafeCell::new(()),
                output: UnsafeCell::new(None),
                outputs_dropped: AtomicUsize::new(0),
                freed: AtomicUsize::new(0),
                inbox: Remote::new(),
                note: AtomicUsize::new(0),
                abandoned_here: AtomicBool::new(false),
            })
        }

        fn touch(&self) -> &Ledger<u32> {
            self.memory.with(|_| ());
            &self.ledger
        }

        fn drop_output(&self) {
            // SAFETY: the model checker watches the cell.
            if self.output.with_mut(|output| unsafe { (*output).take() }).is_some() {
                self.outputs_dropped.fetch_add(1, Relaxed);
            }
        }

        fn release(&self) {
            if self.touch().release() {
                self.free();
            }
        }

        fn free(&self) {
            self.memory.with_mut(|_| ());
            assert_eq!(self.freed.fetch_add(1, Relaxed), 0);
        }

        /// The owner's end, and the executor's. What a joiner elsewhere had left.
        fn end(&self, count: isize) -> Option<u32> {
            self.memory.with(|_| ());
            // SAFETY: the model checker watches the cell.
            self.output.with_mut(|output| unsafe { *output = Some(1) });
            if self.abandoned_here.load(Relaxed) {
                self.drop_output();
            }
            let end = self.ledger.end(count);
            match end.reference {
                Reference::Last => self.free(),
                Reference::Given => {}
                Reference::Kept => {
                    if end.is_abandoned {
                        self.drop_output();
                    }
                    self.release();
                }
            }
            self.inbox.close(usize::from(end.is_claimed), |()| {
                self.release();
                1
            });
            end.waker
        }

        /// A wake elsewhere; the waker lives on.
        fn wake(&self) -> Claim {
            let claim = self.touch().wake();
            if claim == Claim::Mine {
                self.touch().refer();
                self.inbox.leave((), |()| false);
            }
            claim
        }

        /// The handle is dropped elsewhere.
        fn abandon(&self) {
            match self.touch().abandon() {
                Claim::Mine => {
                    self.inbox.leave((), |()| false);
                }
                Claim::Others => self.release(),
                Claim::Ended => {
                    self.drop_output();
                    self.release();
                }
            }
        }
    }

    fn beside(
        stage: &Arc<Stage>,
        body: impl FnOnce(&Stage) + 'static,
    ) -> loom::thread::JoinHandle<()> {
        let stage = stage.clone();
        loom::thread::spawn(move || body(&stage))
    }

    /// Waker and handle go elsewhere while the task ends: whoever is last frees, and nobody reads what is
    /// freed.
    #[test]
    fn the_last_reference_frees_exactly_once() {
        Stage::model(3, |stage| {
            let waker = beside(stage, |stage| {
                stage.touch().refer();
                stage.release();
                stage.release();
            });
            let handle = beside(stage, |stage| {
                if stage.touch().detach() {
                    stage.drop_output();
                }
                stage.release();
            });
            vec![waker, handle]
        });
    }

    /// The owner carries over the references that it made and has not dropped itself, and others let go
    /// of them meanwhile: before, between and after.
    #[test]
    fn what_is_carried_over_while_others_let_go_of_it_frees_exactly_once() {
        for count in [0, 1] {
            loom::model(move || {
                let stage = Stage::new();
                // The executor's own, and two wakers that went elsewhere.
                let others: Vec<_> = (0..2).map(|_| beside(&stage, Stage::release)).collect();
                stage.abandoned_here.store(true, Relaxed);
                stage.ledger.carry(3 - count);
                stage.end(count);
                others.into_iter().for_each(|other| other.join().unwrap());
                assert_eq!(stage.freed.load(Relaxed), 1, "freed once");
                assert_eq!(stage.outputs_dropped.load(Relaxed), 1, "output dropped once");
            });
        }
    }

    /// The handle was dropped by the owner, a waker goes elsewhere while the task ends.
    #[test]
    fn an_end_without_other_references_frees_after_all_others_have_let_go() {
        Stage::model(2, |stage| {
            stage.abandoned_here.store(true, Relaxed);
            vec![beside(stage, Stage::release)]
        });
    }

    /// The handle is dropped elsewhere while the task ends.
    #[test]
    fn an_abandoned_output_is_dropped_exactly_once() {
        Stage::model(2, |stage| vec![beside(stage, Stage::abandon)]);
    }

    /// A wake elsewhere while the task ends, and the executor after it: the entry that comes is waited
    /// for, and none that does not.
    #[test]
    fn the_end_of_an_executor_waits_for_every_claim() {
        Stage::model(3, |stage| {
            let waker = beside(stage, |stage| {
                stage.wake();
                stage.release();
            });
            // The handle, dropped by the owner.
            let handle = beside(stage, Stage::abandon);
            vec![waker, handle]
        });
    }

    /// A wake that finds the task claimed is seen by the poll that follows the claim.
    #[test]
    fn a_wake_is_followed_by_a_poll_that_sees_what_was_done_before_it() {
        loom::model(|| {
            let stage = Stage::new();
            assert_eq!(stage.wake(), Claim::Mine);
            let waker = {
                let stage = stage.clone();
                loom::thread::spawn(move || {
                    stage.note.store(1, Relaxed);
                    stage.wake()
                })
            };
            stage.ledger.accept();
            let seen = stage.note.load(Relaxed);
            if waker.join().unwrap() == Claim::Others {
                assert_eq!(seen, 1);
            }
        });
    }

    /// A handle elsewhere leaves a waker, twice, while the task ends: it is told, and sees the output, or
    /// its latest waker comes out.
    #[test]
    fn an_end_is_never_missed_elsewhere() {
        loom::model(|| {
            let stage = Stage::new();
            let owner = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.end(2))
            };
            // SAFETY: one handle.
            let (first, second) = unsafe {
                let first = stage.touch().wait(|_| 1);
                (first, stage.touch().wait(|_| 2))
            };
            if !second {
                stage.drop_output();
            }
            stage.release();
            let taken = owner.join().unwrap();
            if second {
                assert_eq!(taken, Some(2));
            } else {
                assert!(taken.is_none() || (first && taken == Some(1)));
                assert_eq!(stage.outputs_dropped.load(Relaxed), 1);
            }
            assert_eq!(stage.freed.load(Relaxed), 1);
        });
    }
}
