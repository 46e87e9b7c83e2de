//! The timeslice: how long a chain of tasks that wake each other through the slot may go on.
//! Pure: it is told the time when it asks, and knows neither slot nor queue.
//!
//! Reading the clock costs about half a short poll, so it is read at every `every`th question;
//! `every` follows from how much of a slice passed between two readings. A slice's length counts
//! from the first reading within it: it may last `every` short polls longer, never shorter.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The default length of a slice: the smallest whose ends do not show in the throughput of
/// `ping_pong_pair` (benches/README.md).
pub(crate) const DEFAULT: Duration = Duration::from_micros(10);
/// Questions between two readings of the clock while polls are short.
const EVERY_MOST: u32 = 16;

/// One worker's slice. Not shared: every field is a cell.
pub(crate) struct Slice {
    length: Duration,
    /// No reading of the clock has set a deadline yet.
    fresh: Cell<bool>,
    deadline: Cell<Option<Instant>>,
    read_at: Cell<Option<Instant>>,
    every: Cell<u32>,
    until_reading: Cell<u32>,
}

impl Slice {
    pub(crate) fn new(length: Duration) -> Self {
        Slice {
            length,
            fresh: Cell::new(true),
            deadline: Cell::new(None),
            read_at: Cell::new(None),
            every: Cell::new(EVERY_MOST),
            until_reading: Cell::new(EVERY_MOST),
        }
    }

    /// A fresh slice begins.
    #[inline]
    pub(crate) fn begin(&self) {
        self.fresh.set(true);
    }

    /// Whether the slice is over; asked once per continuation.
    #[inline]
    pub(crate) fn is_spent(&self, now: impl FnOnce() -> Instant) -> bool {
        let left = self.until_reading.get() - 1;
        self.until_reading.set(left);
        left == 0 && self.read(now())
    }

    #[cold]
    fn read(&self, now: Instant) -> bool {
        if let Some(before) = self.read_at.replace(Some(now)) {
            self.adapt(now.saturating_duration_since(before));
        }
        self.until_reading.set(self.every.get());
        if self.fresh.replace(false) {
            // No deadline if it is beyond what the clock can say.
            self.deadline.set(now.checked_add(self.length));
        }
        self.deadline.get().is_some_and(|deadline| now >= deadline)
    }

    /// Readings should be a quarter to a sixteenth of a slice apart.
    fn adapt(&self, gap: Duration) {
        let every = self.every.get();
        if gap > self.length / 4 {
            self.every.set((every / 2).max(1));
        } else if gap < self.length / 16 {
            self.every.set((every * 2).min(EVERY_MOST));
        }
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    /// How long slices last when every question comes `poll` after the one before.
    fn lengths(slice: Duration, poll: Duration, slices: usize) -> Vec<Duration> {
        let clock = Slice::new(slice);
        let mut now = Instant::now();
        (0..slices)
            .map(|_| {
                clock.begin();
                let begun = now;
                loop {
                    now += poll;
                    if clock.is_spent(|| now) {
                        return now - begun;
                    }
                }
            })
            .collect()
    }

    #[test]
    fn a_slice_lasts_its_length_and_at_most_half_of_it_more() {
        let slice = Duration::from_micros(500);
        for poll in [20, 200, 1_000, 10_000, 50_000].map(Duration::from_nanos) {
            // The first slices teach the reader how often to look.
            for length in lengths(slice, poll, 20).into_iter().skip(8) {
                let most = slice + slice / 2 + 16 * poll.min(slice / 64);
                assert!(length >= slice && length <= most, "polls of {poll:?}: {length:?}");
            }
        }
    }

    #[test]
    fn polls_longer_than_the_slice_end_it_at_the_second() {
        let slice = Duration::from_micros(500);
        let poll = Duration::from_millis(2);
        for length in lengths(slice, poll, 12).into_iter().skip(8) {
            assert!(length <= 2 * poll, "{length:?}");
        }
    }

    #[test]
    fn a_slice_of_zero_ends_at_the_first_reading_and_an_endless_one_never() {
        assert!(
            lengths(Duration::ZERO, Duration::from_micros(1), 3)
                .iter()
                .all(|l| l.as_micros() <= 16)
        );
        let endless = Slice::new(Duration::MAX);
        let now = Instant::now();
        assert!((0..1_000).all(|i| !endless.is_spent(|| now + Duration::from_secs(i))));
    }
}
