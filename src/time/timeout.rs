//! A limit on how long a future may take.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::time::Timer;

/// Runs `future` for at most `duration` from this call on.
///
/// The future is polled before the clock is looked at: if both are ready, its output counts. When the
/// time is over it is not polled any more, and dropped with the [`Timeout`].
///
/// # Errors
/// [`Elapsed`] if the future was not ready in time.
///
/// # Cancel safety
/// That of `future`.
///
/// # Examples
/// ```
/// use std::future::pending;
/// use std::time::Duration;
/// use paceline::time::timeout;
/// paceline::block_on(async {
///     assert_eq!(timeout(Duration::from_secs(60), async { 1 }).await, Ok(1));
///     assert!(timeout(Duration::from_millis(1), pending::<()>()).await.is_err());
/// });
/// ```
#[inline]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { timer: Timer::after(duration), future: future.into_future() }
}

/// As [`timeout`], until `deadline`.
///
/// # Errors
/// [`Elapsed`] if the future was not ready by then.
///
/// # Cancel safety
/// That of `future`.
#[inline]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { timer: Timer::at(deadline), future: future.into_future() }
}

/// The future of [`timeout`] and [`timeout_at`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Timeout<F> {
    timer: Timer,
    future: F,
}

impl<F> Timeout<F> {
    /// The future whose time is limited.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The same, mutably.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// The same, without its limit.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned as `self` is, and never moved; `timer` is not pinned.
        let (future, timer) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.timer)
        };
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        timer.poll_fired(cx).map(|_| Err(Elapsed(())))
    }
}

/// The time was over.
///
/// Converts to an [`io::Error`] of the kind [`TimedOut`](io::ErrorKind::TimedOut).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was over before the future was ready")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
