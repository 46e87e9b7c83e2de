//! Waiting for a moment.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::time::Timer;

/// Waits until `duration` has passed from this call on; for ever, if that is beyond what the clock
/// can say.
///
/// Never shorter; longer by the scheduling of the task, and where timers follow one another closely,
/// by up to 200 µs. Works on any thread; see [`Timer`] for which runtime wakes it.
///
/// # Cancel safety
/// Nothing is lost if it is dropped.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// paceline::block_on(paceline::time::sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
#[inline]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::new(Timer::after(duration))
}

/// Waits until `deadline`.
///
/// # Cancel safety
/// Nothing is lost if it is dropped.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// let deadline = Instant::now() + Duration::from_millis(2);
/// paceline::block_on(paceline::time::sleep_until(deadline));
/// assert!(Instant::now() >= deadline);
/// ```
#[inline]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::new(Timer::at(deadline))
}

/// The future of [`sleep`] and [`sleep_until`]. Once ready it stays so, until it is reset.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    timer: Timer,
    deadline: Option<Instant>,
}

impl Sleep {
    #[inline]
    fn new(timer: Timer) -> Self {
        Sleep { deadline: timer.when(), timer }
    }

    /// When it is over; None if never.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether that moment has come.
    pub fn is_elapsed(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Sets another deadline, also after it was ready. A task that has polled it is woken then, even
    /// if it does not poll it again before.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// paceline::block_on(async {
    ///     let mut sleep = paceline::time::sleep(Duration::from_secs(60));
    ///     sleep.reset(Instant::now());
    ///     sleep.await;
    /// });
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
        self.timer.set_at(deadline);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.will_fire() || self.deadline.is_none() {
            ready!(self.timer.poll_fired(cx));
        }
        Poll::Ready(())
    }
}
