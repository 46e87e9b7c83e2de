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
    /// The first seats of the executor, the own one among them.
    seats: Vec<Arc<CachePadded<Seat>>>,
    /// Where to begin.
    turn: usize,
    /// Seats with one runnable or two, and since when nobody has touched those.
    seen: Vec<(Mark, Instant)>,
}

/// A seat with one runnable or two, at one moment.
#[derive(Clone, Copy, PartialEq)]
struct Mark {
    seat: usize,
    /// If the slot has one: how many polls there were.
    slot: Option<u64>,
    /// If the queue has: its index.
    queue: Option<u32>,
}

impl Mark {
    fn of(seat: &Seat) -> Option<Self> {
        let slot = (!seat.slot.is_empty()).then(|| seat.polls.get());
        let position = seat.stealer.position();
        let queue = (seat.stealer.len() > 0).then_some(position);
        (slot.is_some() || queue.is_some()).then_some(Mark { seat: seat.index, slot, queue })
    }

    /// Whether everything that was there then has been taken from where it was.
    fn is_past(&self, seat: &Seat) -> bool {
        self.slot.is_none_or(|polls| seat.polls.get() != polls || seat.slot.is_empty())
            && self.queue.is_none_or(|position| seat.stealer.position() != position)
    }
}

impl Peers {
    /// Looks for new seats.
    #[inline]
    pub(super) fn learn(&mut self, core: &Core) {
        // Ordering E8: acquire; pairs with E7.
        if core.seat_count.load(Acquire) > self.seats.len() {
            core.learn_seats(&mut self.seats);
        }
    }

    fn others(&self, own: usize) -> impl Iterator<Item = &Seat> {
        self.seats.iter().map(|seat| &***seat).filter(move |seat| seat.index != own)
    }

    /// Half of a queue that has more than one; or one alone that nobody touched since a look before.
    pub(super) fn take(&mut self, own: &Seated) -> Option<Runnable> {
        let count = self.seats.len();
        self.turn = (self.turn + 1) % count.max(1);
        for seat in (0..count).map(|i| (self.turn + i) % count).filter(|&i| i != own.seat.index) {
            let seat = &self.seats[seat];
            if seat.stealer.len() > 1 {
                let stolen = seat.stealer.steal(&own.queue);
                if stolen.is_some() {
                    return stolen;
                }
            }
            let Some(mark) = Mark::of(seat) else { continue };
            let now = Instant::now();
            match self.seen.iter_mut().find(|(before, _)| before.seat == mark.seat) {
                None => self.seen.push((mark, now)),
                Some((before, since)) if *before == mark => {
                    if now - *since >= PATIENCE {
                        return seat.take_one();
                    }
                }
                Some(entry) => *entry = (mark, now),
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
        let (mut polls, mut moved) = (None, Instant::now());
        let found = spin::watch(WATCH, |now| {
            let found = own.injected(core).or_else(|| self.take(own));
            if found.is_some() {
                return Some(found);
            }
            let polls_now = self.others(own.seat.index).map(|seat| seat.polls.get()).sum::<u64>();
            if polls.replace(polls_now) != Some(polls_now) {
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
        let mut marks: Vec<Mark> = others.filter_map(Mark::of).collect();
        while !marks.is_empty() {
            let all_past = spin::watch(PATIENCE, |_| {
                marks.retain(|mark| !mark.is_past(&self.seats[mark.seat]));
                marks.is_empty().then_some(())
            });
            if all_past.is_none() {
                let taken = marks.iter().find_map(|mark| self.seats[mark.seat].take_one());
                if taken.is_some() {
                    return taken;
                }
            }
        }
        None
    }
}
