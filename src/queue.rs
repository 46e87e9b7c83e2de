//! The local queue: FIFO, pushed and popped by its owner, robbed of half by thieves.
//! Knows nothing of workers or of who ought to steal; see [`crate::search`].
//!
//! A ring of words that doubles when it is full. The consuming end is one word with two indices:
//! `real`, the next item to pop, and `steal`, behind which slots may be overwritten. They are
//! equal except while one thief copies the items between them, which it claimed by moving `real`.
//! So the owner goes on popping during a theft, and never waits for a thief.
//! A ring that was outgrown is kept until the queue is dropped, since a thief may still read it;
//! all of them together are no larger than the newest.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use crate::sync::{Arc, Mutex, lock};
use crate::word::Word;

/// Slots of a new ring: 512 bytes, enough for the usual handful of runnable tasks.
const FIRST_CAPACITY: u32 = if cfg!(paceline_loom) { 2 } else { 64 };
/// The most that one theft takes: other thieves wait for its copy, 32 cache lines long.
const MAX_THEFT: u32 = 256;

/// The consuming end. Indices wrap; a slot's place is the index modulo the ring's capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Heads {
    steal: u32,
    real: u32,
}

impl Heads {
    fn unpack(word: u64) -> Self {
        Heads { steal: (word >> 32) as u32, real: word as u32 }
    }

    fn pack(self) -> u64 {
        u64::from(self.steal) << 32 | u64::from(self.real)
    }

    fn theft_under_way(self) -> bool {
        self.steal != self.real
    }
}

struct Ring {
    /// As many as a power of two.
    slots: Box<[AtomicPtr<()>]>,
    mask: u32,
}

impl Ring {
    fn new(capacity: u32) -> Box<Self> {
        assert!(capacity.is_power_of_two(), "{capacity}");
        let slots = (0..capacity).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Box::new(Ring { slots, mask: capacity - 1 })
    }

    fn capacity(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn slot(&self, index: u32) -> &AtomicPtr<()> {
        // SAFETY: the mask is one less than the number of slots.
        unsafe { self.slots.get_unchecked((index & self.mask) as usize) }
    }
}

/// Written by the owner only.
struct Producing {
    tail: AtomicU32,
    ring: AtomicPtr<Ring>,
}

struct Shared<T: Word> {
    heads: CachePadded<AtomicU64>,
    producing: CachePadded<Producing>,
    /// Every ring so far, the newest last; frees them.
    rings: Mutex<Vec<NonNull<Ring>>>,
    holds: PhantomData<T>,
}

// SAFETY: the rings' pointers stand for boxes of atomics, freed once, by `Drop`; the items are
// `Send` (a `Word` is) and each leaves by one `from_raw`.
unsafe impl<T: Word> Send for Shared<T> {}
// SAFETY: as above; every shared field is an atomic or a lock.
unsafe impl<T: Word> Sync for Shared<T> {}

impl<T: Word> Shared<T> {
    fn heads(&self) -> Heads {
        // Ordering Q1: acquire; pairs with Q4, so that a slot is overwritten after it was copied.
        Heads::unpack(self.heads.load(Acquire))
    }

    #[inline]
    fn ring(&self) -> &Ring {
        // Ordering Q2: acquire; pairs with Q6.
        // SAFETY: rings live as long as the queue.
        unsafe { &*self.producing.ring.load(Acquire) }
    }

    fn len(&self) -> usize {
        let heads = self.heads();
        let tail = self.producing.tail.load(Acquire);
        // A tail older than the heads makes the difference negative: the queue was empty.
        (tail.wrapping_sub(heads.real) as i32).max(0) as usize
    }
}

impl<T: Word> Drop for Shared<T> {
    fn drop(&mut self) {
        let heads = self.heads();
        let tail = self.producing.tail.load(Relaxed);
        let mut index = heads.real;
        while index != tail {
            let raw = self.ring().slot(index).load(Relaxed);
            // SAFETY: the items from `real` to the tail are still the queue's.
            drop(unsafe { T::from_raw(NonNull::new(raw).expect("an item in its slot")) });
            index = index.wrapping_add(1);
        }
        for ring in lock(&self.rings).drain(..) {
            // SAFETY: leaked from a box in `grow` or `new`, and nobody else can reach it now.
            drop(unsafe { Box::from_raw(ring.as_ptr()) });
        }
    }
}

/// The owner's end: not `Sync`, so one thread at a time pushes and pops.
pub(crate) struct Owner<T: Word> {
    shared: Arc<Shared<T>>,
    /// The newest ring.
    ring: Cell<NonNull<Ring>>,
    /// The tail that would overwrite a slot which may still be in use; spares looking at the
    /// thieves' line at every push.
    limit: Cell<u32>,
}

// SAFETY: the ring's pointer is one of the shared queue's, which is `Send`.
unsafe impl<T: Word> Send for Owner<T> {}

/// A thief's end.
pub(crate) struct Stealer<T: Word> {
    shared: Arc<Shared<T>>,
}

impl<T: Word> Owner<T> {
    pub(crate) fn new() -> Self {
        let ring = NonNull::from(Box::leak(Ring::new(FIRST_CAPACITY)));
        let shared = Arc::new(Shared {
            heads: CachePadded::new(AtomicU64::new(0)),
            producing: CachePadded::new(Producing {
                tail: AtomicU32::new(0),
                ring: AtomicPtr::new(ring.as_ptr()),
            }),
            rings: Mutex::new(vec![ring]),
            holds: PhantomData,
        });
        Owner { shared, ring: Cell::new(ring), limit: Cell::new(FIRST_CAPACITY) }
    }

    #[inline]
    fn ring(&self) -> &Ring {
        // SAFETY: rings live as long as the queue.
        unsafe { self.ring.get().as_ref() }
    }

    pub(crate) fn stealer(&self) -> Stealer<T> {
        Stealer { shared: self.shared.clone() }
    }

    /// Puts an item at the tail.
    #[inline]
    pub(crate) fn push(&self, item: T) {
        let tail = self.shared.producing.tail.load(Relaxed);
        if tail == self.limit.get() {
            self.make_room(tail);
        }
        self.ring().slot(tail).store(item.into_raw().as_ptr(), Relaxed);
        // Ordering Q3: release; pairs with the loads of the tail in `claim` and `len`: who sees
        // the item counted sees its slot and its ring.
        self.shared.producing.tail.store(tail.wrapping_add(1), Release);
    }

    #[cold]
    fn make_room(&self, tail: u32) {
        let steal = self.shared.heads().steal;
        let old = self.ring();
        if tail.wrapping_sub(steal) == old.capacity() {
            let new = Ring::new(old.capacity().checked_mul(2).expect("fewer than 2^31 items"));
            // From `steal`, not `real`: a thief may be about to copy what it claimed.
            let mut index = steal;
            while index != tail {
                new.slot(index).store(old.slot(index).load(Relaxed), Relaxed);
                index = index.wrapping_add(1);
            }
            let new = NonNull::from(Box::leak(new));
            lock(&self.shared.rings).push(new);
            // Ordering Q6: release; pairs with Q2.
            self.shared.producing.ring.store(new.as_ptr(), Release);
            self.ring.set(new);
        }
        self.limit.set(steal.wrapping_add(self.ring().capacity()));
    }

    /// Takes the item at the head, and says how many are left.
    #[inline]
    pub(crate) fn pop(&self) -> Option<(T, u32)> {
        let tail = self.shared.producing.tail.load(Relaxed);
        // Acquire and, below, AcqRel: pair with Q4, for the next time the slot is written (Q1).
        let mut seen = self.shared.heads.load(Acquire);
        loop {
            let heads = Heads::unpack(seen);
            if heads.real == tail {
                return None;
            }
            let real = heads.real.wrapping_add(1);
            let steal = if heads.theft_under_way() { heads.steal } else { real };
            let next = Heads { steal, real }.pack();
            match self.shared.heads.compare_exchange_weak(seen, next, AcqRel, Acquire) {
                Ok(_) => return Some((self.item(heads.real), tail.wrapping_sub(real))),
                Err(now) => seen = now,
            }
        }
    }

    #[inline]
    fn item(&self, index: u32) -> T {
        let raw = self.ring().slot(index).load(Relaxed);
        debug_assert!(!raw.is_null(), "an item in its slot, at {index}");
        // SAFETY: the exchange in `pop` moved `real` past `index`, which makes this thread the
        // only one that takes that item; the owner itself stored it.
        unsafe { T::from_raw(NonNull::new_unchecked(raw)) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Word> Stealer<T> {
    /// Takes the older half, at most [`MAX_THEFT`]: returns the first, the others go to `into`.
    ///
    /// None if there is nothing, or another thief is at it.
    pub(crate) fn steal(&self, into: &Owner<T>) -> Option<T> {
        let claim = self.claim(|available| available - available / 2)?;
        let first = self.claimed(claim.steal);
        let mut index = claim.steal.wrapping_add(1);
        while index != claim.real {
            into.push(self.claimed(index));
            index = index.wrapping_add(1);
        }
        self.release(claim);
        Some(first)
    }

    /// Takes the first item only.
    pub(crate) fn steal_one(&self) -> Option<T> {
        let claim = self.claim(|_| 1)?;
        let first = self.claimed(claim.steal);
        self.release(claim);
        Some(first)
    }

    /// Moves `real` past what is taken; the claim is what lies between the two heads then.
    fn claim(&self, share: impl Fn(u32) -> u32) -> Option<Heads> {
        let mut seen = self.shared.heads.load(Acquire);
        loop {
            let heads = Heads::unpack(seen);
            // Ordering Q5: acquire; pairs with Q3.
            let tail = self.shared.producing.tail.load(Acquire);
            let available = tail.wrapping_sub(heads.real) as i32;
            if heads.theft_under_way() || available <= 0 {
                return None;
            }
            let taken = share(available as u32).min(MAX_THEFT);
            let claim = Heads { steal: heads.real, real: heads.real.wrapping_add(taken) };
            // An exchange that succeeds proves that `heads.real` was not popped meanwhile, so the
            // slots from there to the tail that was read still hold their items. (An ABA would
            // take 2^32 pops between two lines of this loop.)
            match self.shared.heads.compare_exchange_weak(seen, claim.pack(), AcqRel, Acquire) {
                Ok(_) => return Some(claim),
                Err(now) => seen = now,
            }
        }
    }

    /// An item between the heads of this thread's claim.
    fn claimed(&self, index: u32) -> T {
        let raw = self.shared.ring().slot(index).load(Relaxed);
        debug_assert!(!raw.is_null(), "an item in its slot, at {index}");
        // SAFETY: the claim made this thread the only one to take the item, and until `release`
        // neither is the slot overwritten nor does a new ring leave it out; the ring that is read
        // is the one the item was pushed to (Q5) or a later one.
        unsafe { T::from_raw(NonNull::new_unchecked(raw)) }
    }

    /// Hands the slots of the claim back to the owner.
    fn release(&self, claim: Heads) {
        let mut seen = self.shared.heads.load(Relaxed);
        loop {
            let heads = Heads::unpack(seen);
            debug_assert_eq!(heads.steal, claim.steal, "one thief at a time: {heads:?}");
            let next = Heads { steal: heads.real, real: heads.real }.pack();
            // Ordering Q4: release; pairs with Q1.
            match self.shared.heads.compare_exchange_weak(seen, next, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }

    /// The index of the next item to pop: two equal looks mean that nothing was popped between.
    pub(crate) fn position(&self) -> u32 {
        self.shared.heads().real
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn is_first_in_first_out_across_growth() {
        let queue = Owner::new();
        let count = FIRST_CAPACITY as usize * 5;
        (0..count).for_each(|i| queue.push(Box::new(i)));
        assert_eq!(queue.len(), count);
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(item, _)| *item).collect();
        assert_eq!(popped, (0..count).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }

    #[test]
    fn a_thief_takes_the_older_half() {
        let (victim, thief) = (Owner::new(), Owner::new());
        (0..9).for_each(|i| victim.push(Box::new(i)));
        assert_eq!(victim.stealer().steal(&thief), Some(Box::new(0)));
        let stolen: Vec<_> = std::iter::from_fn(|| thief.pop()).map(|(item, _)| *item).collect();
        assert_eq!(stolen, [1, 2, 3, 4]);
        assert_eq!(victim.pop(), Some((Box::new(5), 3)));
        assert_eq!(victim.stealer().steal_one(), Some(Box::new(6)));
    }

    #[test]
    fn what_is_left_is_dropped_with_the_queue() {
        let item = std::sync::Arc::new(());
        let queue = Owner::new();
        (0..100).for_each(|_| queue.push(Box::new(item.clone())));
        drop(queue.pop());
        drop(queue);
        assert_eq!(std::sync::Arc::strong_count(&item), 1);
    }

    /// One owner pushing and popping, three thieves: every item is taken exactly once.
    #[test]
    fn thieves_and_owner_share_without_loss() {
        const ITEMS: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
        let queue = Owner::new();
        let done = std::sync::atomic::AtomicBool::new(false);
        let mut seen: Vec<usize> = Vec::new();
        std::thread::scope(|scope| {
            let thieves: Vec<_> = (0..3)
                .map(|_| {
                    let (stealer, done) = (queue.stealer(), &done);
                    scope.spawn(move || {
                        let (mine, mut seen) = (Owner::new(), Vec::new());
                        while !done.load(Acquire) {
                            seen.extend(stealer.steal(&mine).map(|item: Box<usize>| *item));
                            seen.extend(std::iter::from_fn(|| mine.pop()).map(|(item, _)| *item));
                        }
                        seen
                    })
                })
                .collect();
            for i in 0..ITEMS {
                queue.push(Box::new(i));
                if i % 3 == 0 {
                    seen.extend(queue.pop().map(|(item, _)| *item));
                }
            }
            seen.extend(std::iter::from_fn(|| queue.pop()).map(|(item, _)| *item));
            done.store(true, Release);
            thieves.into_iter().for_each(|thief| seen.extend(thief.join().unwrap()));
        });
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..ITEMS));
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;

    fn drain(queue: &Owner<Box<u32>>, seen: &mut Vec<u32>) {
        while let Some((item, _)) = queue.pop() {
            seen.push(*item);
        }
    }

    /// Owner pushes and pops, one thief steals half, and the ring grows meanwhile.
    #[test]
    fn an_item_is_popped_or_stolen_exactly_once_while_the_ring_grows() {
        loom::model(|| {
            let queue = Owner::new();
            queue.push(Box::new(1));
            let stealer = queue.stealer();
            let thief = loom::thread::spawn(move || {
                let mine = Owner::new();
                let mut seen = Vec::new();
                seen.extend(stealer.steal(&mine).map(|item: Box<u32>| *item));
                drain(&mine, &mut seen);
                seen
            });
            let mut seen = Vec::new();
            queue.push(Box::new(2));
            queue.push(Box::new(3));
            seen.extend(queue.pop().map(|(item, _)| *item));
            queue.push(Box::new(4));
            seen.extend(thief.join().unwrap());
            drain(&queue, &mut seen);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 3, 4]);
        });
    }

    /// A slot that a thief still copies from is not overwritten.
    #[test]
    fn a_claimed_slot_is_not_overwritten() {
        loom::model(|| {
            let queue = Owner::new();
            queue.push(Box::new(1));
            queue.push(Box::new(2));
            let stealer = queue.stealer();
            let thief = loom::thread::spawn(move || stealer.steal_one().map(|item| *item));
            let mut seen = Vec::new();
            seen.extend(queue.pop().map(|(item, _)| *item));
            queue.push(Box::new(3));
            queue.push(Box::new(4));
            seen.extend(thief.join().unwrap());
            drain(&queue, &mut seen);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 3, 4]);
        });
    }

    /// Two thieves at one queue, beside its owner.
    #[test]
    fn two_thieves_never_take_the_same_item() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let queue = Owner::new();
            queue.push(Box::new(1));
            queue.push(Box::new(2));
            let thieves: Vec<_> = (0..2)
                .map(|_| {
                    let stealer = queue.stealer();
                    loom::thread::spawn(move || stealer.steal_one().map(|item: Box<u32>| *item))
                })
                .collect();
            let mut seen = Vec::new();
            seen.extend(queue.pop().map(|(item, _)| *item));
            thieves.into_iter().for_each(|thief| seen.extend(thief.join().unwrap()));
            drain(&queue, &mut seen);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }
}
