//! What the ticker knows of one processor: whether its holder is in the same poll as at the tick before,
//! and since when. Pure: it is told the time, and knows neither processor nor thread.

use std::time::{Duration, Instant};

use crate::identity::TaskInfo;

/// A thread that runs for a smaller part of the time than one in so many does not get the CPU.
const MOST_STARVED: u32 = 4;

pub(crate) struct Watch {
    progress: u64,
    /// When the poll that goes on was first seen.
    since: Instant,
    /// When it was seen for the second time, and what CPU time its thread had used then, and when it was
    /// seen last.
    cpu: Option<(Instant, Duration, Duration)>,
    /// When it was seen last.
    seen: Instant,
    /// How many slices had begun, and when that was first seen.
    slices: u64,
    slice_since: Instant,
    pub(crate) episode: Episode,
}

/// What was found out about, and done for, the poll that goes on.
#[derive(Default)]
pub(crate) struct Episode {
    /// Runnables that were moved on from behind it.
    pub(crate) moved: usize,
    /// The most that were seen in its queue.
    pub(crate) queued: usize,
    /// It has been counted as a wedge.
    pub(crate) is_wedged: bool,
    pub(crate) task: Option<TaskInfo>,
    /// A spare worker makes up for it.
    pub(crate) is_made_up_for: bool,
}

/// What a tick saw.
pub(crate) enum Sight {
    /// The poll before is over, after so long.
    Moved(Duration, Episode),
    /// The same poll goes on, since so long.
    Still(Duration),
}

impl Watch {
    pub(crate) fn new(now: Instant) -> Self {
        Watch {
            progress: 0,
            since: now,
            cpu: None,
            seen: now,
            slices: 0,
            slice_since: now,
            episode: Episode::default(),
        }
    }

    /// At a tick. `is_held`: there is a worker; `progress`: how many polls, and whatever else, it has begun.
    pub(crate) fn look(&mut self, is_held: bool, progress: u64, now: Instant) -> Sight {
        let lasted = now.saturating_duration_since(self.since);
        if is_held && progress == self.progress {
            return Sight::Still(lasted);
        }
        (self.progress, self.since, self.cpu) = (progress, now, None);
        Sight::Moved(lasted, std::mem::take(&mut self.episode))
    }

    /// Whether the slice that goes on has outlived its length.
    pub(crate) fn outlives(&mut self, slices: u64, timeslice: Duration, now: Instant) -> bool {
        if slices != self.slices {
            (self.slices, self.slice_since) = (slices, now);
        }
        now.saturating_duration_since(self.slice_since) >= timeslice
    }

    /// Nobody looked for so long: that time does not count.
    pub(crate) fn overslept(&mut self, late: Duration) {
        self.since += late;
        self.slice_since += late;
    }

    /// What the last look saw.
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    /// The poll goes on, and its thread has used so much CPU time by now. How much of that since the last
    /// time this was called.
    pub(crate) fn used(&mut self, cpu: Duration, now: Instant) -> Duration {
        let (from, first, last) = self.cpu.unwrap_or((now, cpu, cpu));
        self.cpu = Some((from, first, cpu));
        self.seen = now;
        cpu.saturating_sub(last)
    }

    /// Whether a thread that runs has rather waited for a CPU: that is not its poll's fault, unless it has
    /// used the time of a wedge nevertheless.
    pub(crate) fn is_starved(&self, wedge_after: Duration) -> bool {
        self.cpu.is_some_and(|(from, first, last)| {
            let (used, passed) =
                (last.saturating_sub(first), self.seen.saturating_duration_since(from));
            used < passed / MOST_STARVED && used < wedge_after
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn lasted(sight: Sight) -> (bool, Duration) {
        match sight {
            Sight::Still(lasted) => (true, lasted),
            Sight::Moved(lasted, _) => (false, lasted),
        }
    }

    #[test]
    fn a_poll_lasts_from_the_tick_that_first_saw_it() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        let mut look = |held, polls, ms: u32| lasted(watch.look(held, polls, start + MS * ms));
        assert_eq!(look(true, 7, 1), (false, MS));
        assert_eq!(look(true, 7, 51), (true, MS * 50));
        assert_eq!(look(true, 8, 61), (false, MS * 60));
        assert_eq!(look(false, 8, 70), (false, MS * 9), "nobody is there");
        assert_eq!(look(true, 8, 80), (true, MS * 10), "about to begin one");
    }

    #[test]
    fn what_the_ticker_overslept_does_not_count() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        watch.look(true, 1, start);
        watch.overslept(MS * 900);
        assert_eq!(lasted(watch.look(true, 1, start + MS * 910)), (true, MS * 10));
    }

    #[test]
    fn a_thread_that_gets_no_cpu_is_starved() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        assert!(!watch.is_starved(MS * 50), "not known");
        assert_eq!(watch.used(MS * 5, start + MS), Duration::ZERO);
        assert!(!watch.is_starved(MS * 50), "no time has passed");
        assert_eq!(watch.used(MS * 7, start + MS * 51), MS * 2);
        assert!(watch.is_starved(MS * 50));
        assert_eq!(watch.used(MS * 24, start + MS * 71), MS * 17);
        assert!(!watch.is_starved(MS * 50), "it gets a quarter");
        assert_eq!(watch.used(MS * 54, start + MS * 901), MS * 30);
        assert!(watch.is_starved(MS * 50) && !watch.is_starved(MS * 49), "it has had its time");
    }
}
