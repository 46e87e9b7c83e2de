//! How long a `run` on one thread goes on before it looks up, and the executor around it has its turn.
//! Pure: it is told the time and the number of polls, and knows neither tasks nor queues.
//!
//! Reading the clock costs more than a short poll, so it is read every [`STRIDE`] polls while polls are
//! short, and where they are not, whenever those of this quantum make one expect its end. After a quantum
//! that its time has ended the first reading comes early: it costs nothing beside that time.

use std::cell::Cell;
use std::time::{Duration, Instant};

const LENGTH: Duration = Duration::from_micros(200);
/// The most polls in a quantum: a look up costs about as much as one short poll.
const MOST: u64 = 127;
/// The most polls between two readings of the clock: one in the midst of a quantum of short polls, whose
/// end needs none.
const STRIDE: u64 = 64;
/// The fewest polls in a quantum; and until the next reading where nothing is known.
const FEWEST: u64 = 2;

pub(super) struct Quantum {
    /// After so many polls in all the clock is read.
    reading: Cell<u64>,
    /// After so many the quantum is over, whatever the clock says.
    last: Cell<u64>,
    /// Since when, and after how many polls. None if the time since is not that of polls.
    begun: Cell<Option<(Instant, u64)>>,
    /// The last quantum was ended by its time.
    was_long: Cell<bool>,
}

impl Quantum {
    pub(super) fn new() -> Self {
        Quantum {
            reading: Cell::new(FEWEST),
            last: Cell::new(MOST),
            begun: Cell::new(None),
            was_long: Cell::new(false),
        }
    }

    /// Whether it is time to read the clock, after so many polls in all.
    #[inline]
    pub(super) fn is_due(&self, polls: u64) -> bool {
        polls >= self.reading.get()
    }

    /// Whether the quantum is over; then another [begins](Self::begin).
    pub(super) fn is_over(&self, now: impl FnOnce() -> Instant, polls: u64) -> bool {
        if polls >= self.last.get() {
            self.was_long.set(false);
            return true;
        }
        let now = now();
        let until_reading = match self.begun.get() {
            Some((begun, before)) => {
                let elapsed = now.saturating_duration_since(begun);
                if elapsed >= LENGTH {
                    self.was_long.set(true);
                    return true;
                }
                let mean_ns = elapsed.as_nanos() as u64 / (polls - before).max(1);
                let left_ns = (LENGTH - elapsed).as_nanos() as u64;
                (left_ns / mean_ns.max(1)).clamp(1, STRIDE)
            }
            None => {
                self.begun.set(Some((now, polls)));
                FEWEST
            }
        };
        self.reading.set(self.last.get().min(polls + until_reading));
        false
    }

    /// The next quantum; its time counts from the first reading where there is none.
    pub(super) fn begin(&self, now: Option<Instant>, polls: u64) {
        self.begun.set(now.map(|now| (now, polls)));
        self.reading.set(polls + if self.was_long.get() { FEWEST } else { STRIDE });
        self.last.set(polls + MOST);
    }

    /// Others had their turn, or nothing was to be done: that time is not to be counted as polls.
    pub(super) fn pause(&self) {
        self.begun.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls of that length, until the quantum is over; how many, and how often the clock was read.
    fn polls_of(quantum: &Quantum, clock: &mut (Instant, u64), poll: Duration) -> (u64, u64) {
        let (before, mut readings) = (clock.1, 0);
        loop {
            clock.0 += poll;
            clock.1 += 1;
            let now = || {
                readings += 1;
                clock.0
            };
            if quantum.is_due(clock.1) && quantum.is_over(now, clock.1) {
                quantum.begin(Some(clock.0), clock.1);
                return (clock.1 - before, readings);
            }
        }
    }

    #[test]
    fn a_quantum_is_over_after_its_time_or_its_polls() {
        for (poll_ns, polls, most_readings) in
            [(0, 127, 1), (50, 127, 1), (10_000, 20, 3), (60_000, 4, 3), (1_000_000, 2, 1)]
        {
            let (quantum, mut clock) = (Quantum::new(), (Instant::now(), 0));
            let poll = Duration::from_nanos(poll_ns);
            polls_of(&quantum, &mut clock, poll);
            for _ in 0..5 {
                let (made, readings) = polls_of(&quantum, &mut clock, poll);
                assert!(made == polls && readings <= most_readings, "{poll:?}: {made} {readings}");
            }
        }
    }

    #[test]
    fn long_polls_after_short_ones_make_two_quanta_late_at_most() {
        let (short, long) = (Duration::from_nanos(50), Duration::from_millis(5));
        for short_ones in 0..MOST {
            let (quantum, mut clock) = (Quantum::new(), (Instant::now(), 0));
            polls_of(&quantum, &mut clock, short);
            for _ in 0..short_ones {
                clock = (clock.0 + short, clock.1 + 1);
                let is_over = quantum.is_due(clock.1) && quantum.is_over(|| clock.0, clock.1);
                assert!(!is_over);
            }
            // The second, where they began after the first one's reading.
            assert!(polls_of(&quantum, &mut clock, long).0 <= STRIDE);
            assert!(polls_of(&quantum, &mut clock, long).0 <= STRIDE);
            assert_eq!(polls_of(&quantum, &mut clock, long).0, FEWEST);
        }
    }

    #[test]
    fn at_first_and_after_a_pause_the_time_counts_from_the_first_reading() {
        let (quantum, mut clock) = (Quantum::new(), (Instant::now(), 0));
        let long = Duration::from_millis(5);
        assert!(polls_of(&quantum, &mut clock, long).0 <= 2 * FEWEST);
        polls_of(&quantum, &mut clock, Duration::from_nanos(50));
        quantum.pause();
        clock.0 += Duration::from_secs(10);
        let (made, _) = polls_of(&quantum, &mut clock, Duration::from_nanos(50));
        assert_eq!(made, MOST);
        quantum.pause();
        assert!(polls_of(&quantum, &mut clock, long).0 <= STRIDE + FEWEST);
    }
}
