#![doc = include_str!("idle.md")]

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicU64, Ordering::*, fence};
use crate::sync::{Mutex, lock};

/// How many processors are held, how many are idle, and how many threads search.
#[derive(Clone, Copy, Debug)]
struct Counts {
    held: u16,
    idle: u16,
    searching: u32,
}

const ONE_HELD: u64 = 1 << 48;
const ONE_IDLE: u64 = 1 << 32;
const ONE_SEARCHING: u64 = 1;

impl Counts {
    fn unpack(word: u64) -> Self {
        Counts { held: (word >> 48) as u16, idle: (word >> 32) as u16, searching: word as u32 }
    }
}

/// Whoever holds this is counted as searching. Given up by [`Idle::found`], [`Idle::park`] or
/// [`Idle::retry`].
#[must_use]
#[derive(Debug)]
pub(crate) struct Searching(());

impl Searching {
    /// Gives the evidence to the thread that is woken, which has it from [`Searching::received`].
    pub(crate) fn send(self) {}

    /// The evidence of a thread that was handed a processor.
    pub(crate) fn received() -> Self {
        Searching(())
    }
}

/// A processor that was taken out of idleness for a thread, which is counted as searching.
/// Whoever is handed this must start the thread on it.
#[must_use]
pub(crate) struct Wake<T> {
    pub(crate) processor: usize,
    /// A parked thread; none is parked if this is `None`, and a new one is wanted.
    pub(crate) thread: Option<T>,
    pub(crate) searching: Searching,
}

/// The runtime is closed; what was to be parked stays with the caller.
#[derive(Debug, PartialEq)]
pub(crate) struct Closed;

struct Lists<T> {
    processors: Vec<usize>,
    /// Spare ones that are not needed.
    benched: Vec<usize>,
    /// How many spare ones are in service, idle or held.
    spare: usize,
    threads: Vec<T>,
    closed: bool,
}

/// Who sleeps and who searches.
pub(crate) struct Idle<T> {
    /// As many as there are if nobody is wedged; those from this index on are spare.
    processors: usize,
    /// Written under `lists` where idleness changes, and by searchers without it.
    counts: CachePadded<AtomicU64>,
    lists: CachePadded<Mutex<Lists<T>>>,
}

impl<T: PartialEq> Idle<T> {
    /// All processors idle, no thread parked.
    pub(crate) fn new(processors: usize) -> Self {
        Idle {
            processors,
            counts: CachePadded::new(AtomicU64::new(processors as u64 * ONE_IDLE)),
            lists: CachePadded::new(Mutex::new(Lists {
                processors: (0..processors).rev().collect(),
                benched: Vec::new(),
                spare: 0,
                threads: Vec::new(),
                closed: false,
            })),
        }
    }

    fn counts(&self) -> Counts {
        Counts::unpack(self.counts.load(SeqCst))
    }

    fn change(&self, added: u64, removed: u64) -> Counts {
        let before = self.counts.fetch_add(added.wrapping_sub(removed), SeqCst);
        let now = Counts::unpack(before.wrapping_add(added).wrapping_sub(removed));
        // Held plus idle changes only where a spare one comes or goes; an underflow shows in both.
        debug_assert!(
            usize::from(now.held) + usize::from(now.idle) <= 2 * self.processors,
            "{now:?} after +{added:#x} -{removed:#x}"
        );
        now
    }

    /// A cheap look that may be stale: would a wake-up find an idle processor, and nobody searching?
    #[inline]
    pub(crate) fn may_wake(&self) -> bool {
        let counts = Counts::unpack(self.counts.load(Relaxed));
        counts.idle > 0 && counts.searching == 0
    }

    /// Whether nothing runs: nobody holds a processor.
    pub(crate) fn is_all_idle(&self) -> bool {
        self.held_processors() == 0
    }

    pub(crate) fn held_processors(&self) -> usize {
        self.counts().held.into()
    }

    /// Whether whoever holds one could be helped by nobody.
    pub(crate) fn is_none_idle(&self) -> bool {
        self.counts().idle == 0
    }

    /// At most half of the processors search at a time.
    pub(crate) fn most_searchers(&self) -> usize {
        self.processors.div_ceil(2)
    }

    /// After work was published: whom to wake for it, if fewer than `wanted` threads search.
    pub(crate) fn wake(&self, wanted: usize) -> Option<Wake<T>> {
        // Ordering P1: store-load; the work was published before this, the counts are read after.
        // Pairs with P2 and P3.
        fence(SeqCst);
        let allows = |counts: Counts| counts.idle > 0 && (counts.searching as usize) < wanted;
        if !allows(self.counts()) {
            return None;
        }
        let mut lists = lock(&self.lists);
        if !allows(self.counts()) {
            return None;
        }
        let processor = lists.processors.pop()?;
        self.change(ONE_HELD + ONE_SEARCHING, ONE_IDLE);
        Some(Wake { processor, thread: lists.threads.pop(), searching: Searching(()) })
    }

    /// An idle processor for a thread that has something to do, if there is one.
    pub(crate) fn acquire(&self) -> Option<usize> {
        let mut lists = lock(&self.lists);
        let processor = lists.processors.pop()?;
        self.change(ONE_HELD, ONE_IDLE);
        Some(processor)
    }

    /// A processor with work on it changes hands: to whom.
    pub(crate) fn hand_over(&self, processor: usize) -> Result<Wake<T>, Closed> {
        let mut lists = lock(&self.lists);
        if lists.closed {
            return Err(Closed);
        }
        self.change(ONE_SEARCHING, 0);
        Ok(Wake { processor, thread: lists.threads.pop(), searching: Searching(()) })
    }

    /// No thread could be started for a processor that was woken: it goes to one that has parked
    /// meanwhile, and relied on that wake-up; if there is none it is idle again.
    pub(crate) fn retry(
        &self,
        processor: usize,
        searching: Searching,
    ) -> Result<Option<Wake<T>>, Closed> {
        let mut lists = lock(&self.lists);
        if lists.closed {
            return Err(Closed);
        }
        if let Some(thread) = lists.threads.pop() {
            return Ok(Some(Wake { processor, thread: Some(thread), searching }));
        }
        lists.processors.push(processor);
        self.change(ONE_IDLE, ONE_HELD + ONE_SEARCHING);
        Ok(None)
    }

    /// Leave to search, unless enough do.
    pub(crate) fn begin_search(&self) -> Option<Searching> {
        let most = self.most_searchers() as u64;
        let may = |word| (u64::from(Counts::unpack(word).searching) < most).then_some(word + 1);
        self.counts.fetch_update(SeqCst, Relaxed, may).ok().map(|_| Searching(()))
    }

    /// The search is over because there is something to do. If it was the last one, the caller
    /// gets whom to wake next, provided that `more` says that there is more.
    pub(crate) fn found(&self, _: Searching, more: impl FnOnce() -> bool) -> Option<Wake<T>> {
        if self.change(0, ONE_SEARCHING).searching > 0 {
            return None;
        }
        // Ordering P2: store-load; a publisher that saw us searching woke nobody: look again.
        // Pairs with P1.
        fence(SeqCst);
        if more() { self.wake(1) } else { None }
    }

    /// A processor without work becomes idle, and with it `thread`, if it is to sleep.
    ///
    /// `more` looks once more for work that was published meanwhile; then the caller gets whom to
    /// wake for it: most likely the very thread that it just parked.
    pub(crate) fn park(
        &self,
        processor: usize,
        thread: Option<T>,
        searching: Option<Searching>,
        more: impl FnOnce() -> bool,
    ) -> Result<Option<Wake<T>>, Closed> {
        let mut lists = lock(&self.lists);
        if lists.closed {
            return Err(Closed);
        }
        lists.processors.push(processor);
        lists.threads.extend(thread);
        let now = self.change(ONE_IDLE, ONE_HELD + searching.map_or(0, |_| ONE_SEARCHING));
        drop(lists);
        self.look_again(now, more)
    }

    /// After a processor became idle: whom to wake for what was published meanwhile.
    fn look_again(
        &self,
        now: Counts,
        more: impl FnOnce() -> bool,
    ) -> Result<Option<Wake<T>>, Closed> {
        // Whoever still searches looks again itself when it stops.
        if now.searching > 0 {
            return Ok(None);
        }
        // Ordering P3: store-load; idleness was announced before this, the work is looked at
        // after. Pairs with P1.
        fence(SeqCst);
        Ok(if more() { self.wake(1) } else { None })
    }

    /// Whether there is a spare processor on the bench.
    pub(crate) fn has_benched(&self) -> bool {
        !lock(&self.lists).benched.is_empty()
    }

    /// A spare processor comes into service, since a worker is stuck: a `new` one, or one from the bench.
    /// It is idle at first; `more` looks for what waits, as in [`park`](Self::park).
    pub(crate) fn bring_in(
        &self,
        new: Option<usize>,
        more: impl FnOnce() -> bool,
    ) -> Result<Option<Wake<T>>, Closed> {
        let mut lists = lock(&self.lists);
        if lists.closed {
            return Err(Closed);
        }
        let Some(spare) = new.or_else(|| lists.benched.pop()) else { return Ok(None) };
        lists.processors.push(spare);
        lists.spare += 1;
        let now = self.change(ONE_IDLE, 0);
        drop(lists);
        self.look_again(now, more)
    }

    /// How many spare processors are in service.
    pub(crate) fn spare(&self) -> usize {
        lock(&self.lists).spare
    }

    /// Spare processors that are idle go to the bench, until `keep` are in service. How many are.
    pub(crate) fn bench_idle(&self, keep: usize) -> usize {
        let mut lists = lock(&self.lists);
        while lists.spare > keep {
            let Some(place) = lists.processors.iter().position(|&index| index >= self.processors)
            else {
                break;
            };
            let spare = lists.processors.remove(place);
            lists.benched.push(spare);
            lists.spare -= 1;
            self.change(0, ONE_IDLE);
        }
        lists.spare
    }

    /// The holder of a spare processor without work puts it on the bench, and parks.
    pub(crate) fn bench_held(&self, spare: usize, thread: T) -> Result<(), Closed> {
        let mut lists = lock(&self.lists);
        if lists.closed {
            return Err(Closed);
        }
        lists.benched.push(spare);
        lists.spare -= 1;
        lists.threads.push(thread);
        self.change(0, ONE_HELD);
        Ok(())
    }

    /// A thread without a processor sleeps.
    pub(crate) fn park_thread(&self, thread: T) -> Result<(), Closed> {
        let mut lists = lock(&self.lists);
        if lists.closed {
            return Err(Closed);
        }
        lists.threads.push(thread);
        Ok(())
    }

    /// The thread sleeps no more. False if it was chosen already: a processor is on its way.
    pub(crate) fn withdraw(&self, thread: &T) -> bool {
        let mut lists = lock(&self.lists);
        let place = lists.threads.iter().rposition(|parked| parked == thread);
        place.map(|place| lists.threads.remove(place)).is_some()
    }

    /// Whether as many threads sleep as there are processors: one more is of no use.
    pub(crate) fn has_enough_threads(&self) -> bool {
        lock(&self.lists).threads.len() >= self.processors
    }

    /// Nobody may park from now on. Returns the idle processors and the parked threads.
    pub(crate) fn close(&self) -> (Vec<usize>, Vec<T>) {
        let mut lists = lock(&self.lists);
        lists.closed = true;
        let mut processors = std::mem::take(&mut lists.processors);
        self.change(0, processors.len() as u64 * ONE_IDLE);
        processors.append(&mut lists.benched);
        (processors, std::mem::take(&mut lists.threads))
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_searcher_is_enough_unless_more_are_wanted() {
        let idle: Idle<u32> = Idle::new(4);
        let first = idle.wake(1).expect("all are idle");
        assert_eq!((first.processor, first.thread), (0, None));
        assert!(idle.wake(1).is_none() && !idle.may_wake());
        let second = idle.wake(2).expect("two were wanted");
        assert!(idle.found(first.searching, || true).is_none(), "the second searches on");
        let third = idle.found(second.searching, || true).expect("the last one wakes the next");
        assert!(idle.found(third.searching, || false).is_none());
        assert_eq!((idle.held_processors(), idle.counts().idle), (3, 1));
    }

    #[test]
    fn the_last_parked_thread_is_woken_first() {
        let idle: Idle<u32> = Idle::new(2);
        let processors = [idle.acquire(), idle.acquire()].map(Option::unwrap);
        assert!(idle.acquire().is_none());
        assert!(idle.park(processors[0], Some(7), None, || false).unwrap().is_none());
        let searching = idle.begin_search();
        assert!(idle.park(processors[1], Some(8), searching, || false).unwrap().is_none());
        assert!(idle.has_enough_threads() && idle.is_all_idle());
        assert_eq!(idle.wake(1).unwrap().thread, Some(8));
        assert!(!idle.withdraw(&8) && idle.withdraw(&7));
    }

    #[test]
    fn a_thread_that_cannot_be_started_is_made_up_for_by_one_that_has_parked() {
        let idle: Idle<u32> = Idle::new(1);
        let wake = idle.wake(1).unwrap();
        idle.park_thread(5).unwrap();
        let wake = idle.retry(wake.processor, wake.searching).unwrap().unwrap();
        assert_eq!(wake.thread, Some(5));
        assert!(idle.retry(wake.processor, wake.searching).unwrap().is_none());
        assert!(idle.may_wake() && idle.is_all_idle());
    }

    #[test]
    fn a_closed_one_parks_nobody() {
        let idle: Idle<u32> = Idle::new(2);
        let processor = idle.acquire().unwrap();
        assert_eq!(idle.close(), (vec![1], vec![]));
        assert!(idle.park(processor, Some(1), None, || true).is_err());
        assert!(idle.wake(1).is_none() && idle.acquire().is_none());
        assert!(idle.hand_over(processor).is_err());
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicUsize;

    /// Idle, what stands for the injector, and two threads' mailboxes with their wake-ups.
    struct Stage {
        idle: Idle<usize>,
        work: AtomicUsize,
        threads: [(AtomicUsize, loom::sync::Notify); 2],
    }

    impl Stage {
        fn new(processors: usize) -> Arc<Self> {
            let thread = || (AtomicUsize::new(0), loom::sync::Notify::new());
            Arc::new(Stage {
                idle: Idle::new(processors),
                work: AtomicUsize::new(0),
                threads: [thread(), thread()],
            })
        }

        fn publish(&self) {
            // Relaxed: the fences of `Idle` must do.
            self.work.fetch_add(1, Relaxed);
            self.deliver(self.idle.wake(1));
        }

        fn take(&self) -> bool {
            self.work.fetch_update(Relaxed, Relaxed, |work| work.checked_sub(1)).is_ok()
        }

        fn has_work(&self) -> bool {
            self.work.load(Relaxed) > 0
        }

        fn deliver(&self, wake: Option<Wake<usize>>) {
            if let Some(wake) = wake {
                let (mail, notify) = &self.threads[wake.thread.expect("a thread is parked")];
                wake.searching.send();
                assert_eq!(mail.swap(wake.processor + 1, Release), 0, "two processors at once");
                notify.notify();
            }
        }

        fn receive(&self, thread: usize) -> usize {
            let (mail, notify) = &self.threads[thread];
            loop {
                match mail.swap(0, Acquire) {
                    0 => notify.wait(),
                    processor_plus_one => return processor_plus_one - 1,
                }
            }
        }

        fn park(&self, thread: usize, processor: usize, searching: Option<Searching>) {
            let wake = self.idle.park(processor, Some(thread), searching, || self.has_work());
            self.deliver(wake.unwrap());
        }

        /// A worker that ends when it has taken one item.
        fn take_one(&self, thread: usize, mut processor: usize, search: bool) {
            let mut searching = None;
            while !self.take() {
                if search && searching.is_none() {
                    searching = self.idle.begin_search();
                    continue;
                }
                self.park(thread, processor, searching.take());
                processor = self.receive(thread);
                searching = Some(Searching::received());
            }
        }
    }

    fn push_while_the_worker_parks(search: bool) {
        loom::model(move || {
            let stage = Stage::new(1);
            let processor = stage.idle.acquire().unwrap();
            let worker = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.take_one(0, processor, search))
            };
            stage.publish();
            // A lost wake-up is a deadlock here.
            worker.join().unwrap();
        });
    }

    #[test]
    fn push_racing_park_is_never_lost() {
        push_while_the_worker_parks(false);
    }

    #[test]
    fn push_racing_search_and_park_is_never_lost() {
        push_while_the_worker_parks(true);
    }

    /// The publisher wakes nobody, since one thread searches; that one finds something else and
    /// is busy from then on: it must have passed the wake-up on to the one that sleeps.
    #[test]
    fn push_that_relied_on_a_searcher_is_passed_on() {
        loom::model(|| {
            let stage = Stage::new(2);
            let processors = [stage.idle.acquire().unwrap(), stage.idle.acquire().unwrap()];
            stage.park(1, processors[1], None);
            let searching = stage.idle.begin_search().unwrap();
            let publisher = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.publish())
            };
            let sleeper = {
                let stage = stage.clone();
                loom::thread::spawn(move || {
                    let processor = stage.receive(1);
                    stage.take_one(1, processor, false);
                })
            };
            stage.deliver(stage.idle.found(searching, || stage.has_work()));
            publisher.join().unwrap();
            sleeper.join().unwrap();
        });
    }

    /// The one processor's holder is wedged. Work that is published while a spare one comes into service
    /// is found by the thread that gets it.
    #[test]
    fn push_racing_a_spare_processor_is_never_lost() {
        loom::model(|| {
            let stage = Stage::new(1);
            let _wedged = stage.idle.acquire().unwrap();
            stage.idle.park_thread(1).unwrap();
            let publisher = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.publish())
            };
            let spare = {
                let stage = stage.clone();
                loom::thread::spawn(move || {
                    let processor = stage.receive(1);
                    stage.take_one(1, processor, false);
                })
            };
            stage.deliver(stage.idle.bring_in(Some(1), || stage.has_work()).unwrap());
            publisher.join().unwrap();
            spare.join().unwrap();
        });
    }

    /// A spare processor goes to the bench while work is published: it is with whom it was woken for, or
    /// on the bench, and comes back from there.
    #[test]
    fn a_benched_processor_is_nobody_elses() {
        loom::model(|| {
            let stage = Stage::new(1);
            let _wedged = stage.idle.acquire().unwrap();
            stage.idle.park_thread(0).unwrap();
            assert!(stage.idle.bring_in(Some(1), || false).unwrap().is_none());
            let publisher = {
                let stage = stage.clone();
                loom::thread::spawn(move || stage.publish())
            };
            let left = stage.idle.bench_idle(0);
            publisher.join().unwrap();
            let mail = stage.threads[0].0.load(Relaxed);
            assert_eq!(
                (left, stage.idle.has_benched()),
                if mail == 0 { (0, true) } else { (1, false) }
            );
        });
    }

    /// A thread that is interrupted while it is parked gets out, or gets its mail.
    #[test]
    fn a_withdrawn_thread_gets_no_mail_and_one_that_cannot_withdraw_does() {
        loom::model(|| {
            let stage = Stage::new(1);
            let processor = stage.idle.acquire().unwrap();
            stage.park(0, processor, None);
            let publisher = {
                let stage = stage.clone();
                loom::thread::spawn(move || {
                    stage.work.fetch_add(1, Relaxed);
                    match stage.idle.wake(1) {
                        Some(wake) if wake.thread.is_none() => {} // a new thread would start
                        wake => stage.deliver(wake),
                    }
                })
            };
            if !stage.idle.withdraw(&0) {
                stage.receive(0);
            }
            publisher.join().unwrap();
            assert_eq!(stage.threads[0].0.load(Relaxed), 0, "mail for a thread that left");
        });
    }
}
