//! What the ticker knows of one processor: whether its holder is in the same poll as at the tick before,
//! and since when. Pure: it is told the time, and knows neither processor nor thread.

use std::time::{Duration, Instant};

use crate::identity::TaskInfo;

pub(crate) struct Watch {
    progress: u64,
    /// When the poll that goes on was first seen.
    since: Instant,
    /// What CPU time its thread had used when it was first seen, and when it was seen last.
    cpu: Option<(Duration, Duration)>,
    /// At how many looks in a row its thread was blocked.
    blocked: u32,
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
            blocked: 0,
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
        (self.progress, self.since, self.cpu, self.blocked) = (progress, now, None, 0);
        Sight::Moved(lasted, std::mem::take(&mut self.episode))
    }

    /// Whether the slice that goes on has outlived its length.
    pub(crate) fn outlives(&mut self, slices: u64, timeslice: Duration, now: Instant) -> bool {
        if slices != self.slices {
            (self.slices, self.slice_since) = (slices, now);
        }
        now.saturating_duration_since(self.slice_since) >= timeslice
    }

    /// What the last look saw.
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    /// Its thread has used so much CPU time by now, where the system tells. How much of that since the last
    /// look.
    pub(crate) fn used(&mut self, cpu: Option<Duration>) -> Option<Duration> {
        let now = cpu?;
        let (first, last) = self.cpu.unwrap_or((now, now));
        self.cpu = Some((first, now));
        Some(now.saturating_sub(last))
    }

    /// Whether its thread is blocked now, and was so at the last look: not just for a moment.
    pub(crate) fn is_blocked(&mut self, now: bool) -> bool {
        self.blocked = if now { self.blocked + 1 } else { 0 };
        self.blocked > 1
    }

    /// Whether a thread that runs has had the CPU time of a wedge: that it waited for a CPU is not its
    /// poll's fault. A quarter is allowed for, since what it ran before the first look is not known.
    pub(crate) fn has_had_its_time(&self, wedge_after: Duration) -> bool {
        self.cpu.is_none_or(|(first, last)| last.saturating_sub(first) >= wedge_after * 3 / 4)
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
    fn a_thread_that_gets_no_cpu_is_not_to_blame() {
        let mut watch = Watch::new(Instant::now());
        assert_eq!(watch.used(None), None);
        assert!(watch.has_had_its_time(MS * 50), "not known");
        assert_eq!(watch.used(Some(MS * 5)), Some(Duration::ZERO));
        assert_eq!(watch.used(Some(MS * 42)), Some(MS * 37));
        assert!(!watch.has_had_its_time(MS * 50));
        watch.used(Some(MS * 43));
        assert!(watch.has_had_its_time(MS * 50));
    }

    #[test]
    fn a_thread_is_blocked_at_the_second_look() {
        let mut watch = Watch::new(Instant::now());
        let looks = [true, false, true, true, true].map(|now| watch.is_blocked(now));
        assert_eq!(looks, [false, false, false, true, true]);
    }
}
