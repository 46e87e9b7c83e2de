//! When a queue's backlog is worth waking another worker for.
//! Pure: it is told the time when it asks, and how long the queue is.
//!
//! A wake-up costs as much as hundreds of short polls, and a task that moves to another core costs
//! about as much as it saves if it is over in one short poll: its memory follows it, and is freed
//! where it was not allocated. So a backlog must last: for a wake-up's cost if its polls are long
//! enough to be worth moving; else until everything that stood in line has been polled and there
//! still is a line, that is, until its tasks are seen to come back.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// About what it costs to wake a sleeping thread (a call of 1 to 14 µs, and 20 to 45 µs until it
/// runs on the hosts measured; see benches/README.md).
const WAKE_COST: Duration = Duration::from_micros(10);
/// About what it costs to move a task to another core: some cache misses.
const MOVE_COST: Duration = Duration::from_nanos(100);
/// Pops between two readings of the clock: a reading costs about half a short poll.
const READ_EVERY: u32 = 16;

/// What one worker knows of its backlog. Not shared: every field is a cell.
#[derive(Default)]
pub(crate) struct Backlog {
    since: Cell<Option<Instant>>,
    /// How many stood in line then.
    line: Cell<u32>,
    pops: Cell<u32>,
}

impl Backlog {
    /// There is no backlog, or it is being helped with.
    #[inline]
    pub(crate) fn clear(&self) {
        self.since.set(None);
    }

    /// After a pop that left `left` in line while another worker sleeps: how many to wake.
    #[cold]
    pub(crate) fn helpers(&self, left: u32, now: impl FnOnce() -> Instant) -> usize {
        let Some(since) = self.since.get() else {
            self.since.set(Some(now()));
            self.line.set(left);
            self.pops.set(0);
            return 0;
        };
        let pops = self.pops.get() + 1;
        self.pops.set(pops);
        // The first polls are looked at one by one, in case they are long.
        if !pops.is_power_of_two() && pops % READ_EVERY != 0 {
            return 0;
        }
        let lasted = now().saturating_duration_since(since);
        let poll = lasted / pops;
        if lasted < WAKE_COST || (poll < MOVE_COST && pops < self.line.get()) {
            return 0;
        }
        self.clear();
        let worth = poll.saturating_mul(left).as_nanos() / WAKE_COST.as_nanos();
        // Woken one after the other, the first so many have done the work when the last is awake; and
        // none is of use who gets no task.
        let helpers = (2 * worth).isqrt().clamp(1, u128::from(left.max(1)));
        usize::try_from(helpers).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many pops of a line of constant length somebody is woken, and how many.
    fn woken_after(line: u32, poll: Duration) -> Option<(u32, usize)> {
        let backlog = Backlog::default();
        let start = Instant::now();
        (0..100_000).find_map(|pop| {
            let helpers = backlog.helpers(line, || start + poll * pop);
            (helpers > 0).then_some((pop, helpers))
        })
    }

    #[test]
    fn long_polls_call_for_help_at_once_and_for_more_the_longer_the_line() {
        let poll = Duration::from_millis(1);
        assert_eq!(woken_after(1, poll), Some((1, 1)));
        assert_eq!(woken_after(63, poll), Some((1, 63)));
        assert_eq!(woken_after(1, Duration::from_micros(1)), Some((16, 1)));
    }

    #[test]
    fn short_polls_call_for_help_when_the_tasks_come_back() {
        let poll = Duration::from_nanos(40);
        assert_eq!(woken_after(200, poll), Some((256, 1)));
        let (pops, helpers) = woken_after(10_000, poll).unwrap();
        assert!((10_000..10_016).contains(&pops) && helpers == 8, "{pops}, {helpers}");
    }

    #[test]
    fn a_line_that_ends_starts_anew() {
        let backlog = Backlog::default();
        let start = Instant::now();
        assert_eq!(backlog.helpers(5, || start), 0);
        backlog.clear();
        assert_eq!(backlog.helpers(5, || start + WAKE_COST * 9), 0, "the first of a new line");
        assert!(backlog.helpers(5, || start + WAKE_COST * 10) > 0);
    }
}
