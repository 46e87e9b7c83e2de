//! The other seats of an embedded executor: what a `run` may take from them, and when.
//!
//! Of two runnables or more, half are anybody's. One alone, in the queue or in the wake slot, is about
//! to be run by who holds the seat, and a pair of tasks that talk is not to be torn apart; it is taken
//! if it was not touched for a moment: then the holder is in a long poll, or stuck.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::executor::core::Core;
use crate::executor::runner::{Seat, Seated};
use crate::shared::Runnable;
use crate::spin;
use crate::sync::Arc;
use crate::sync::atomic::Ordering::*;

/// How long a single runnable is left to who holds the seat: some times what a switch between two
/// tasks takes, and less than a wake-up of another thread.
const PATIENCE: Duration = Duration::from_micros(10);
/// How long one that was called looks on where others only seem to be about to run what they hold.
/// They pay for every call, with up to 5 µs where it wakes a thread (benches/README.md).
const WATCH: Duration = Duration::from_micros(100);

#[derive(Default)]
pub(super) struct Peers {
    /// The first seats of the executor, the own one among them; each with what it was seen to hold, and
    /// since when nobody has touched that.
    seats: Vec<(Arc<CachePadded<Seat>>, Option<Seen>)>,
    /// Where to begin.
    turn: usize,
}

/// What a seat was seen to hold, and since when.
type Seen = (Mark, Instant);

/// What a seat holds, at one moment.
#[derive(Clone, Copy, PartialEq)]
struct Mark {
    /// If the slot has one: how many polls there were.
    slot: Option<u64>,
    /// If the queue has any: the indices of the first, and behind the last.
    queue: Option<(u32, u32)>,
}

impl Mark {
    fn of(seat: &Seat) -> Option<Self> {
        let slot = (!seat.slot.is_empty()).then(|| seat.polls.get());
        let first = seat.stealer.position();
        let end = first.wrapping_add(seat.stealer.len() as u32);
        let queue = (first != end).then_some((first, end));
        (slot.is_some() || queue.is_some()).then_some(Mark { slot, queue })
    }

    /// Whether everything that was there then has been taken from where it was.
    fn is_past(&self, seat: &Seat) -> bool {
        let passed = |end: u32| seat.stealer.position().wrapping_sub(end) as i32 >= 0;
        self.slot.is_none_or(|polls| seat.polls.get() != polls || seat.slot.is_empty())
            && self.queue.is_none_or(|(_, end)| passed(end))
    }
}

impl Peers {
    /// Looks for new seats.
    #[inline]
    pub(super) fn learn(&mut self, core: &Core) {
        // Ordering E8: acquire; pairs with E7.
        if core.seat_count.load(Acquire) > self.seats.len() {
            let new = core.seats_from(self.seats.len());
            self.seats.extend(new.into_iter().map(|seat| (seat, None)));
        }
    }

    fn others(&self, own: usize) -> impl Iterator<Item = &Seat> {
        self.seats.iter().map(|(seat, _)| &***seat).filter(move |seat| seat.index != own)
    }

    /// Half of a queue that has more than one; or one alone that nobody has touched since a look before,
    /// or that nobody can before this thread goes on.
    pub(super) fn take(&mut self, own: &Seated) -> Option<Runnable> {
        let count = self.seats.len();
        self.turn = (self.turn + 1) % count.max(1);
        for place in (0..count).map(|i| (self.turn + i) % count).filter(|&i| i != own.seat.index) {
            let (seat, seen) = &mut self.seats[place];
            if seat.stealer.len() > 1 {
                let stolen = seat.stealer.steal(&own.queue);
                if stolen.is_some() {
                    return stolen;
                }
            }
            let Some(mark) = Mark::of(seat) else { continue };
            let now = Instant::now();
            match seen {
                _ if seat.is_of_this_thread() => return seat.take_one(),
                Some((before, since)) if *before == mark => {
                    if now - *since >= PATIENCE {
                        return seat.take_one();
                    }
                }
                seen => *seen = Some((mark, now)),
            }
        }
        None
    }

    /// Looks on for a while, since somebody called, as long as others do anything.
    pub(super) fn watch(
        &mut self,
        core: &Core,
        own: &Seated,
        is_called: impl Fn() -> bool,
    ) -> Option<Runnable> {
        let elsewhere = |peers: &Self| -> Option<u64> {
            let others = peers.others(own.seat.index).filter(|seat| !seat.is_of_this_thread());
            others.map(|seat| seat.polls.get()).reduce(u64::wrapping_add)
        };
        let (mut polls, mut moved) = (elsewhere(self)?, Instant::now());
        let found = spin::watch(WATCH, |now| {
            let found = own.injected(core).or_else(|| self.take(own));
            if found.is_some() {
                return Some(found);
            }
            let before = std::mem::replace(&mut polls, elsewhere(self).unwrap_or(0));
            if before != polls {
                moved = now;
            }
            (now - moved > PATIENCE || is_called()).then_some(None)
        });
        found.flatten()
    }

    /// The last look before a rest, after it is listed. What is put anywhere from then on calls it, so
    /// that only what was there already is to be run by somebody, or taken.
    pub(super) fn last_look(&mut self, core: &Core, own: &Seated) -> Option<Runnable> {
        if let Some(runnable) = own.injected(core).or_else(|| self.take(own)) {
            return Some(runnable);
        }
        let others = self.others(own.seat.index);
        let mut marks: Vec<_> = others.filter_map(|seat| Some((seat, Mark::of(seat)?))).collect();
        while !marks.is_empty() {
            let all_past = spin::watch(PATIENCE, |_| {
                marks.retain(|(seat, mark)| !mark.is_past(seat));
                marks.is_empty().then_some(())
            });
            if all_past.is_none() {
                let taken = marks.iter().find_map(|(seat, _)| seat.take_one());
                if taken.is_some() {
                    return taken;
                }
            }
        }
        None
    }
}
