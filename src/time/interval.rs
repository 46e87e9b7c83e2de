//! Ticks: one each period.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_core::Stream;

use crate::time::Timer;

/// Ticks each `period`, for the first time at once.
///
/// # Panics
/// If the period is zero.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// paceline::block_on(async {
///     let start = Instant::now();
///     let mut interval = paceline::time::interval(Duration::from_millis(1));
///     for _ in 0..3 {
///         interval.tick().await;
///     }
///     assert!(start.elapsed() >= Duration::from_millis(2));
/// });
/// ```
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Ticks each `period`, for the first time at `start`.
///
/// # Panics
/// If the period is zero.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval's period is zero, but must be longer");
    let behavior = MissedTickBehavior::default();
    Interval { timer: Timer::at(start), period, behavior }
}

/// What an [`Interval`] does when a tick was taken a period or more late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Ticks at once until it has caught up, then as planned: no tick is lost.
    #[default]
    Burst,
    /// The next tick comes a period after the late one; the plan moves.
    Delay,
    /// The next tick is the next that was planned; those in between are lost.
    Skip,
}

/// Ticks once each period; from [`interval`] and [`interval_at`]. Also a stream of its ticks, which
/// never ends.
#[derive(Debug)]
pub struct Interval {
    timer: Timer,
    period: Duration,
    behavior: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick. Returns the moment that it was planned for.
    ///
    /// # Cancel safety
    /// No tick is lost if the future is dropped.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// As [`tick`](Interval::tick), polled.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        let planned = ready!(self.timer.poll_fired(cx));
        let next = self.behavior.next(planned, self.period, Instant::now());
        match next {
            Some(next) => self.timer.set_at(next),
            None => self.timer = Timer::never(),
        }
        Poll::Ready(planned)
    }

    /// The next tick comes after one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// The next tick comes at once.
    pub fn reset_immediately(&mut self) {
        self.timer.set_at(Instant::now());
    }

    /// The next tick comes so much later.
    pub fn reset_after(&mut self, duration: Duration) {
        self.timer.set_after(duration);
    }

    /// The next tick comes at that moment.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.timer.set_at(deadline);
    }

    /// What happens when a tick is taken late.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.behavior
    }

    /// Sets what happens when a tick is taken late.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.behavior = behavior;
    }

    /// The time from tick to tick.
    pub fn period(&self) -> Duration {
        self.period
    }
}

impl Stream for Interval {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.poll_tick(cx).map(Some)
    }
}

impl MissedTickBehavior {
    /// When the tick after the one that was planned for `planned` and taken at `now` comes; None
    /// if that is beyond what the clock can say.
    fn next(self, planned: Instant, period: Duration, now: Instant) -> Option<Instant> {
        let next = planned.checked_add(period)?;
        if next > now {
            return Some(next);
        }
        match self {
            MissedTickBehavior::Burst => Some(next),
            MissedTickBehavior::Delay => now.checked_add(period),
            MissedTickBehavior::Skip => {
                let late = now.duration_since(next).as_nanos();
                // Less than a period.
                let into_period = late % period.as_nanos();
                let seconds = into_period / 1_000_000_000;
                let nanos = into_period % 1_000_000_000;
                let into_period = Duration::new(seconds as u64, nanos as u32);
                now.checked_add(period - into_period)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MissedTickBehavior::*;

    const MS: Duration = Duration::from_millis(1);

    fn next(behavior: MissedTickBehavior, taken_after: Duration) -> Duration {
        let planned = Instant::now();
        let next = behavior.next(planned, 10 * MS, planned + taken_after).unwrap();
        next - planned
    }

    #[test]
    fn a_tick_in_time_keeps_the_plan() {
        for behavior in [Burst, Delay, Skip] {
            assert_eq!(next(behavior, 9 * MS), 10 * MS);
        }
    }

    #[test]
    fn a_late_tick_is_made_up_for_or_moves_the_plan_or_is_lost() {
        assert_eq!(next(Burst, 34 * MS), 10 * MS);
        assert_eq!(next(Delay, 34 * MS), 44 * MS);
        assert_eq!(next(Skip, 34 * MS), 40 * MS);
        assert_eq!(next(Skip, 40 * MS), 50 * MS, "due now is missed");
    }
}
