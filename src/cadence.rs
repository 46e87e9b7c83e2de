//! How often a worker looks up from its own queue.
//! Pure: it is told the time and the number of polls.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long injected work may wait for a worker that is busy with its own queue. As tokio's
/// `global_queue_interval` aims at, scaled to the mean poll.
const LOOK_UP: Duration = Duration::from_micros(200);
/// Bounds of the interval in polls: the look costs about as much as one short poll.
const FEWEST: u64 = 2;
const MOST: u64 = 127;
/// Before anything was measured.
const FIRST_GUESS: Duration = Duration::from_micros(1);

/// One worker's measure. Not shared: every field is a cell.
pub(crate) struct Cadence {
    next: Cell<u64>,
    mean_ns: Cell<u64>,
    last: Cell<Option<(Instant, u64)>>,
}

impl Cadence {
    pub(crate) fn new() -> Self {
        Cadence {
            next: Cell::new(MOST / 2),
            mean_ns: Cell::new(FIRST_GUESS.as_nanos() as u64),
            last: Cell::new(None),
        }
    }

    /// Whether it is time to look up, after so many polls in all.
    #[inline]
    pub(crate) fn is_due(&self, polls: u64) -> bool {
        polls >= self.next.get()
    }

    /// The worker looks up now, and again after so many polls.
    pub(crate) fn look_up(&self, now: Instant, polls: u64) -> u64 {
        if let Some((before, polls_before)) = self.last.replace(Some((now, polls))) {
            let polled = (polls - polls_before).max(1);
            let ns = now.saturating_duration_since(before).as_nanos() as u64 / polled;
            // A quarter of the new value: a few look-ups follow a change of load.
            self.mean_ns.set((3 * self.mean_ns.get() + ns) / 4);
        }
        let interval = LOOK_UP.as_nanos() as u64 / self.mean_ns.get().max(1);
        let interval = interval.clamp(FEWEST, MOST);
        self.next.set(polls + interval);
        interval
    }

    /// The worker was idle: that time is not to be counted as polls.
    pub(crate) fn pause(&self) {
        self.last.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval in polls that a worker settles on when each poll takes `poll`.
    fn settled(poll: Duration) -> u64 {
        let cadence = Cadence::new();
        let (start, mut polls, mut last) = (Instant::now(), 0, 0);
        for _ in 0..50 {
            last = polls;
            while !cadence.is_due(polls) {
                polls += 1;
            }
            cadence.look_up(start + poll * polls as u32, polls);
        }
        polls - last
    }

    #[test]
    fn the_interval_follows_the_length_of_polls() {
        assert_eq!(settled(Duration::from_nanos(50)), MOST);
        assert_eq!(settled(Duration::from_micros(10)), 20);
        assert_eq!(settled(Duration::from_millis(1)), FEWEST);
    }

    #[test]
    fn a_pause_is_not_taken_for_a_long_poll() {
        let cadence = Cadence::new();
        let start = Instant::now();
        cadence.look_up(start, 0);
        cadence.pause();
        cadence.look_up(start + Duration::from_secs(10), 1);
        assert_eq!(cadence.mean_ns.get(), FIRST_GUESS.as_nanos() as u64);
    }
}
