//! The armed timers of one shard: put in, taken out, fired.
//! Knows neither clock nor wakers: deadlines are nanoseconds, and a `W` waits for each.
//!
//! Most timers are timeouts that never fire. So arming is a push to a bucket and cancelling frees a
//! slot; what is left in the bucket is *stale*, and dropped when the bucket is next looked through.
//! Only timers whose time comes near are sorted, and only roughly: a radix heap.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, lock};

/// Later than any timer: about 292 years after the clock's start.
pub(crate) const NEVER: u64 = i64::MAX as u64;
/// Bucket 0 is for what is due, bucket b for what differs from the last firing first at bit b - 1.
const BUCKETS: usize = 64;
/// Stale entries that are left alone however few timers are live.
const FEW_STALE: usize = 64;
/// No slot.
const NONE: u32 = u32::MAX;

/// Names a timer in its shard, even after it has fired and its slot is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    slot: u32,
    generation: u32,
}

/// A timer that was armed: its place, until it is given up. Keeps its shard alive.
pub(crate) struct Armed<W> {
    shard: *const Shard<W>,
    key: Key,
    /// The bucket that it was put into.
    bucket: usize,
}

// SAFETY: a shard is `Sync` and moves whoever waits from thread to thread under its lock.
unsafe impl<W: Send> Send for Armed<W> {}
// SAFETY: as above; through a shared reference waiters can only be replaced.
unsafe impl<W: Send> Sync for Armed<W> {}

impl<W> Armed<W> {
    fn shard(&self) -> &Shard<W> {
        // SAFETY: this is counted in `places`: while that is not zero, the owner of the shard, or
        // after its end the shard itself (`kept`), has a reference.
        unsafe { &*self.shard }
    }

    /// Replaces who waits, unless `keep` says that it is the same. False if the timer has fired.
    pub(crate) fn renew(&self, keep: impl Fn(&W) -> bool, new: impl Fn() -> W) -> bool {
        let timers = &self.shard().timers;
        match lock(timers).waiter(self.key) {
            None => return false,
            Some(waiter) if keep(waiter) => return true,
            Some(_) => {}
        }
        // Made, and the old one dropped, outside of the lock: both may run a user's code.
        let mut new = new();
        let renewed = lock(timers).waiter(self.key).map(|waiter| std::mem::swap(waiter, &mut new));
        renewed.is_some()
    }

    /// Gives up the place. Returns who waited, unless the timer has fired.
    pub(crate) fn give_up(self) -> Option<W> {
        // Its drop would give up the place once more.
        std::mem::ManuallyDrop::new(self).leave()
    }

    /// To be called once, last.
    #[inline]
    fn leave(&self) -> Option<W> {
        let (waiter, kept) = self.shard().give_up(self.key, self.bucket);
        // The shard goes with it, if this was the last place.
        drop(kept);
        waiter
    }
}

impl<W> Drop for Armed<W> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

impl<W> std::fmt::Debug for Armed<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Armed").field(&self.key).finish()
    }
}

/// The one who has a shard. Places that outlive it keep the shard.
pub(crate) struct Owner<W>(Arc<Shard<W>>);

impl<W> Owner<W> {
    pub(crate) fn new() -> Self {
        Owner(Arc::new(Shard::new()))
    }
}

impl<W> std::ops::Deref for Owner<W> {
    type Target = Shard<W>;

    fn deref(&self) -> &Shard<W> {
        &self.0
    }
}

impl<W> Drop for Owner<W> {
    fn drop(&mut self) {
        let mut timers = lock(&self.0.timers);
        if timers.places > 0 {
            timers.kept = Some(self.0.clone());
        }
    }
}

/// The shard was closed; who waits must look elsewhere.
#[derive(Debug)]
pub(crate) struct Closed<W>(pub(crate) W);

/// Aligned as `CachePadded` is: shards are made one after the other, and are different workers'.
#[repr(align(128))]
pub(crate) struct Shard<W> {
    /// No timer fires before that; read without the lock.
    earliest: AtomicU64,
    timers: Mutex<Timers<W>>,
}

impl<W> Shard<W> {
    fn new() -> Self {
        Shard { earliest: AtomicU64::new(NEVER), timers: Mutex::new(Timers::new()) }
    }

    /// Nothing fires before that moment. [`NEVER`] if nothing is armed; it may be too early if
    /// timers were cancelled.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        // Relaxed: who must see the latest value has a fence of its own (see [`super::alarm`]).
        self.earliest.load(Relaxed)
    }

    /// Arms a timer. True if it is now the first of the shard.
    #[inline]
    pub(crate) fn arm(&self, at: u64, waiter: W) -> Result<(Armed<W>, bool), Closed<W>> {
        let mut timers = lock(&self.timers);
        if timers.closed {
            return Err(Closed(waiter));
        }
        let (key, bucket) = timers.put(at.min(NEVER), waiter);
        timers.places += 1;
        let first = at < self.earliest.load(Relaxed);
        if first {
            self.earliest.store(at, Relaxed);
        }
        Ok((Armed { shard: self, key, bucket }, first))
    }

    /// Takes a timer out: who waited, unless it has fired; and the shard itself, if it was the last
    /// place of one without an owner.
    #[inline]
    fn give_up(&self, key: Key, bucket: usize) -> (Option<W>, Option<Arc<Self>>) {
        let mut timers = lock(&self.timers);
        let waiter = timers.remove(key, bucket);
        if timers.live == 0 && waiter.is_some() {
            timers.clear();
            self.earliest.store(NEVER, Relaxed);
        }
        timers.places -= 1;
        let kept = if timers.places == 0 { timers.kept.take() } else { None };
        (waiter, kept)
    }

    /// Takes out whoever waits for a moment up to `now`, each with its deadline.
    pub(crate) fn fire(&self, now: u64, due: &mut Vec<(u64, W)>) {
        if self.earliest() > now {
            return;
        }
        let mut timers = lock(&self.timers);
        timers.fire(now, due);
        self.earliest.store(timers.earliest(), Relaxed);
    }

    /// Nothing can be armed any more. Returns who waited.
    pub(crate) fn close(&self) -> Vec<W> {
        let mut timers = lock(&self.timers);
        timers.closed = true;
        timers.clear();
        timers.live = 0;
        self.earliest.store(NEVER, Relaxed);
        let slots = std::mem::take(&mut timers.slots);
        slots.into_iter().filter_map(|slot| slot.waiter).collect()
    }

    /// How many timers are armed.
    pub(crate) fn len(&self) -> usize {
        lock(&self.timers).live
    }
}

struct Slot<W> {
    /// Of the timer that is here, or that will be next.
    generation: u32,
    next_free: u32,
    waiter: Option<W>,
}

#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    key: Key,
}

// What an armed timer takes: 16 bytes here, 24 in its slot (with 64-bit pointers), plus what a
// growing `Vec` has to spare.
const _: () = assert!(size_of::<Entry>() == 16);

struct Bucket {
    entries: Vec<Entry>,
    earliest: u64,
}

struct Timers<W> {
    /// Empty until the first timer is armed.
    buckets: Vec<Bucket>,
    /// A bit for each bucket that has entries.
    occupied: u64,
    /// The moment of the last firing.
    last: u64,
    slots: Vec<Slot<W>>,
    free: u32,
    live: usize,
    stale: usize,
    closed: bool,
    /// How many [`Armed`] there are, of timers that have fired as well.
    places: usize,
    /// The shard itself, if only places are left of it.
    kept: Option<Arc<Shard<W>>>,
}

impl<W> Timers<W> {
    fn new() -> Self {
        Timers {
            buckets: Vec::new(),
            occupied: 0,
            last: 0,
            slots: Vec::new(),
            free: NONE,
            live: 0,
            stale: 0,
            closed: false,
            places: 0,
            kept: None,
        }
    }

    fn waiter(&mut self, key: Key) -> Option<&mut W> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation == key.generation { slot.waiter.as_mut() } else { None }
    }

    fn is_live(&self, key: Key) -> bool {
        self.slots[key.slot as usize].generation == key.generation
    }

    /// The timer's name, and its bucket.
    fn put(&mut self, at: u64, waiter: W) -> (Key, usize) {
        let slot = self.free;
        let key = if slot == NONE {
            let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 armed timers");
            self.slots.push(Slot { generation: 0, next_free: NONE, waiter: Some(waiter) });
            Key { slot, generation: 0 }
        } else {
            let free = &mut self.slots[slot as usize];
            self.free = free.next_free;
            free.waiter = Some(waiter);
            Key { slot, generation: free.generation }
        };
        self.live += 1;
        (key, self.file(Entry { at, key }))
    }

    /// Puts an entry into its bucket.
    fn file(&mut self, entry: Entry) -> usize {
        if self.buckets.is_empty() {
            self.buckets
                .extend((0..BUCKETS).map(|_| Bucket { entries: Vec::new(), earliest: NEVER }));
        }
        // One that is overdue counts as due at the last firing.
        let differs = entry.at.max(self.last) ^ self.last;
        let index = (u64::BITS - differs.leading_zeros()) as usize;
        let bucket = &mut self.buckets[index];
        bucket.earliest = bucket.earliest.min(entry.at);
        bucket.entries.push(entry);
        self.occupied |= 1 << index;
        index
    }

    /// Takes a timer out of its slot; its entry stays behind.
    fn vacate(&mut self, key: Key) -> Option<W> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let waiter = slot.waiter.take()?;
        slot.generation += 1;
        // A slot whose generations are used up is never used again, so that no key is.
        if slot.generation != u32::MAX {
            slot.next_free = std::mem::replace(&mut self.free, key.slot);
        }
        self.live -= 1;
        Some(waiter)
    }

    fn remove(&mut self, key: Key, bucket: usize) -> Option<W> {
        let waiter = self.vacate(key)?;
        let bucket = &mut self.buckets[bucket].entries;
        if bucket.last().is_some_and(|entry| entry.key == key) {
            // A timeout that was over before anything else was armed leaves nothing behind.
            bucket.pop();
            return Some(waiter);
        }
        self.stale += 1;
        if self.stale > self.live + FEW_STALE {
            self.compact();
        }
        Some(waiter)
    }

    fn earliest(&self) -> u64 {
        occupied(self.occupied).map(|index| self.buckets[index].earliest).min().unwrap_or(NEVER)
    }

    fn fire(&mut self, now: u64, due: &mut Vec<(u64, W)>) {
        // Not the time of another CPU's clock that is behind: what is filed is later than `last`.
        let now = now.max(self.last);
        self.last = now;
        for index in occupied(self.occupied) {
            if self.buckets[index].earliest <= now {
                self.look_through(index, now, due);
            }
        }
    }

    /// Empties a bucket: who is due leaves, the others move to buckets of nearer times.
    fn look_through(&mut self, index: usize, now: u64, due: &mut Vec<(u64, W)>) {
        self.occupied &= !(1 << index);
        let bucket = &mut self.buckets[index];
        bucket.earliest = NEVER;
        let mut entries = std::mem::take(&mut bucket.entries);
        for entry in entries.drain(..) {
            if !self.is_live(entry.key) {
                self.stale -= 1;
            } else if entry.at <= now {
                due.extend(self.vacate(entry.key).map(|waiter| (entry.at, waiter)));
            } else {
                self.file(entry);
            }
        }
        let bucket = &mut self.buckets[index];
        debug_assert!(bucket.entries.is_empty(), "entries move to nearer buckets");
        if entries.capacity() <= 2 * FEW_STALE {
            bucket.entries = entries;
        }
    }

    /// Drops what is stale everywhere.
    fn compact(&mut self) {
        for index in occupied(self.occupied) {
            let bucket = &mut self.buckets[index];
            let slots = &self.slots;
            bucket.entries.retain(|e| slots[e.key.slot as usize].generation == e.key.generation);
            bucket.earliest = bucket.entries.iter().map(|entry| entry.at).min().unwrap_or(NEVER);
            if bucket.entries.is_empty() {
                self.occupied &= !(1 << index);
            }
            if bucket.entries.capacity() > 4 * bucket.entries.len() + 2 * FEW_STALE {
                bucket.entries.shrink_to(2 * bucket.entries.len());
            }
        }
        self.stale = 0;
    }

    /// Drops all entries.
    fn clear(&mut self) {
        for index in occupied(self.occupied) {
            self.buckets[index].entries.clear();
            self.buckets[index].earliest = NEVER;
        }
        (self.occupied, self.stale) = (0, 0);
    }
}

/// The indices of the bits that are set.
fn occupied(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (bits != 0).then_some(bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(index)
    })
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    fn fired(shard: &Shard<u64>, now: u64) -> Vec<(u64, u64)> {
        let mut due = Vec::new();
        shard.fire(now, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn timers_fire_at_their_time_and_never_before() {
        let shard = Shard::new();
        let _armed = [30, 10, 20, 10].map(|at| shard.arm(at, at).unwrap());
        assert_eq!(shard.earliest(), 10);
        assert_eq!(fired(&shard, 9), []);
        assert_eq!(fired(&shard, 29), [(10, 10), (10, 10), (20, 20)]);
        assert_eq!(shard.earliest(), 30);
        assert_eq!((fired(&shard, 30), shard.len()), (vec![(30, 30)], 0));
        assert_eq!(shard.earliest(), NEVER);
    }

    #[test]
    fn a_key_of_a_timer_that_fired_names_nothing() {
        let shard = Shard::new();
        let (old, _) = shard.arm(1, 1).unwrap();
        assert_eq!(fired(&shard, 1).len(), 1);
        let (new, _) = shard.arm(2, 2).unwrap();
        assert_eq!(old.key.slot, new.key.slot);
        assert!(!old.renew(|_| true, || 0) && old.give_up().is_none());
        assert_eq!(new.give_up(), Some(2));
    }

    #[test]
    fn only_an_earlier_deadline_is_the_first() {
        let shard = Shard::new();
        let (_first, yes) = shard.arm(10, ()).unwrap();
        let (_second, no) = shard.arm(10, ()).unwrap();
        let (_third, also_yes) = shard.arm(9, ()).unwrap();
        assert!(yes && !no && also_yes);
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_once_and_one_beyond_the_end_is_kept() {
        let shard = Shard::new();
        fired(&shard, 1_000);
        let _armed = [5, u64::MAX].map(|at| shard.arm(at, at).unwrap());
        assert_eq!(fired(&shard, 1_000), [(5, 5)]);
        assert_eq!(shard.len(), 1);
    }

    #[test]
    fn timers_that_are_cancelled_again_and_again_take_bounded_memory() {
        let shard = Shard::new();
        let stays: Vec<_> = (0..100).map(|i| shard.arm(1 << 40, i).unwrap().0).collect();
        for i in 0..100_000 {
            let (first, _) = shard.arm((1 << 30) + i, 0).unwrap();
            let (second, _) = shard.arm((1 << 30) + i, 1).unwrap();
            assert_eq!((first.give_up(), second.give_up()), (Some(0), Some(1)));
        }
        let timers = lock(&shard.timers);
        assert!(timers.slots.len() <= 102 && timers.stale <= 100 + FEW_STALE);
        let capacity: usize = timers.buckets.iter().map(|bucket| bucket.entries.capacity()).sum();
        assert!(capacity < 1_500, "{capacity}");
        drop(timers);
        drop(stays);
        assert_eq!(shard.earliest(), NEVER);
    }

    #[test]
    fn a_closed_shard_gives_everybody_back_and_takes_nobody() {
        let shard = Shard::new();
        let armed = [10, 20].map(|at| shard.arm(at, at).unwrap().0);
        assert_eq!(shard.close(), [10, 20]);
        assert!(shard.arm(5, 3).is_err_and(|closed| closed.0 == 3));
        assert!(armed.map(Armed::give_up) == [None, None] && shard.earliest() == NEVER);
    }

    #[test]
    fn places_outlive_the_owner_of_their_shard() {
        let waiter = std::sync::Arc::new(());
        let shard = Owner::new();
        let armed = [1, 2].map(|at| shard.arm(at, waiter.clone()).unwrap().0);
        drop(shard);
        let [first, second] = armed;
        assert!(first.give_up().is_some() && second.renew(|_| true, || waiter.clone()));
        drop(second);
        assert_eq!(std::sync::Arc::strong_count(&waiter), 1);
    }

    /// Against a sorted list, with times of all magnitudes.
    #[test]
    fn it_does_what_a_sorted_list_does() {
        for seed in 1..=200u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut draw = move |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let (shard, mut now) = (Shard::new(), 0);
            let mut list = Vec::<(u64, u64, Armed<u64>)>::new();
            for step in 0..500 {
                match draw(4) {
                    0 | 1 => {
                        let magnitude = draw(50);
                        let at = now + draw(1 << magnitude);
                        list.push((at, step, shard.arm(at, step).unwrap().0));
                    }
                    2 if !list.is_empty() => {
                        let index = draw(list.len() as u64) as usize;
                        let (_, waiter, armed) = list.swap_remove(index);
                        assert_eq!(armed.give_up(), Some(waiter));
                    }
                    _ => {
                        let first = list.iter().map(|timer| timer.0).min();
                        assert!(first.is_none_or(|at| shard.earliest() <= at), "seed {seed}");
                        let magnitude = draw(48);
                        now += draw(1 << magnitude);
                        let (due, mut expected) = (fired(&shard, now), Vec::new());
                        list.retain(|&(at, waiter, _)| {
                            if at <= now {
                                expected.push((at, waiter));
                            }
                            at > now
                        });
                        expected.sort_unstable();
                        assert_eq!(due, expected, "seed {seed}, step {step}");
                    }
                }
                assert_eq!(shard.len(), list.len());
            }
        }
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicBool;

    /// A task re-polls its timer with another waker while it fires: the old one is called, and the
    /// task finds the timer gone; or the new one is.
    #[test]
    fn a_timer_that_fires_while_its_task_runs_wakes_it() {
        loom::model(|| {
            let shard = Arc::new(Shard::new());
            let (timer, first) = shard.arm(10, 1).unwrap();
            assert!(first);
            let driver = {
                let shard = shard.clone();
                loom::thread::spawn(move || {
                    let mut due = Vec::new();
                    shard.fire(10, &mut due);
                    due
                })
            };
            let armed = timer.renew(|_| false, || 2);
            let due = driver.join().unwrap();
            assert_eq!(due, [(10, if armed { 2 } else { 1 })]);
        });
    }

    /// A cancel beside a firing: exactly one of the two has the waiter.
    #[test]
    fn a_timer_is_fired_or_cancelled() {
        loom::model(|| {
            let shard = Arc::new(Shard::new());
            let (timer, _) = shard.arm(10, ()).unwrap();
            let fired = Arc::new(AtomicBool::new(false));
            let driver = {
                let (shard, fired) = (shard.clone(), fired.clone());
                loom::thread::spawn(move || {
                    let mut due = Vec::new();
                    shard.fire(10, &mut due);
                    fired.store(!due.is_empty(), Relaxed);
                })
            };
            let cancelled = timer.give_up().is_some();
            driver.join().unwrap();
            assert!(cancelled != fired.load(Relaxed));
        });
    }

    /// Places go while the owner goes: the last of all frees the shard, once. (The model checker
    /// reports what leaks.)
    #[test]
    fn the_last_to_go_frees_the_shard() {
        loom::model(|| {
            let shard = Owner::new();
            let [one, other] = [1, 2].map(|at| shard.arm(at, Arc::new(())).unwrap().0);
            let gives_up = loom::thread::spawn(move || assert!(one.give_up().is_some()));
            let drops = loom::thread::spawn(move || drop(other));
            drop(shard);
            gives_up.join().unwrap();
            drops.join().unwrap();
        });
    }
}
