//! One timer: when it is to fire, and its place in the reactor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use futures_core::Stream;

use crate::clock;
use crate::cooperate::poll_if_due;
use crate::current;
use crate::io::see_to_driver;
use crate::reactor::timers::{Armed, Closed};
use crate::runtime::{Handle, default_runtime};
use crate::shared::Shared;

/// A timer that can be set anew: once or periodically.
///
/// As a future it is ready when it fires; as a stream it yields each firing, one item if it was set
/// to fire once. Both yield the moment that it was set for, which may lie in the past by the time
/// that they are polled: a periodic timer catches up, one firing at a time.
///
/// A timer belongs to the runtime whose thread polls it first, else to the default one; if that
/// stops, to the one whose thread polls it next. It never fires early. It is late by the scheduling
/// of its task and, where timers follow one another closely, by up to 200 µs, so that they fire
/// together.
///
/// # Cancel safety
/// A timer that is dropped does not fire. Polling it by `&mut` loses nothing.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// paceline::block_on(async {
///     let start = Instant::now();
///     let mut timer = paceline::Timer::after(Duration::from_secs(10));
///     timer.set_after(Duration::from_millis(2));
///     (&mut timer).await;
///     assert!(start.elapsed() >= Duration::from_millis(2));
/// });
/// ```
#[derive(Debug)]
#[must_use = "timers do nothing unless awaited"]
pub struct Timer {
    /// None: never.
    when: Option<Instant>,
    period: Option<Duration>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Not polled yet, and set for a while after the moment that it was made in.
    New,
    /// Not polled since it was set.
    Nowhere,
    Armed(Armed<Waker>),
    /// Polled, and set to never.
    Waiting(Waker),
}

/// A timer for longer than that is armed at its first poll without a look at the clock, which costs
/// as much as arming it. If it is polled for the first time after its time is over, it fires at
/// once, instead of being ready in that poll.
const WHILE: Duration = Duration::from_millis(1);

impl Place {
    /// Has `waker` called at that moment; at none if it is set to never.
    fn of(at: Option<u64>, waker: Waker) -> Self {
        match at {
            None => Place::Waiting(waker),
            Some(at) => Place::Armed(arm(at, waker)),
        }
    }
}

impl Timer {
    #[inline]
    fn new(when: Option<Instant>, period: Option<Duration>) -> Self {
        Timer { when, period, place: Place::Nowhere }
    }

    /// A timer that does not fire, until it is set.
    pub fn never() -> Self {
        Timer::new(None, None)
    }

    /// A timer that fires once, so much later; never, if that is beyond what the clock can say.
    #[inline]
    pub fn after(duration: Duration) -> Self {
        let place = if duration >= WHILE { Place::New } else { Place::Nowhere };
        Timer { place, ..Timer::new(Instant::now().checked_add(duration), None) }
    }

    /// A timer that fires once, at that moment.
    #[inline]
    pub fn at(instant: Instant) -> Self {
        Timer::new(Some(instant), None)
    }

    /// A timer that fires again and again, for the first time after one period.
    ///
    /// # Panics
    /// If the period is zero.
    pub fn interval(period: Duration) -> Self {
        check_period(period);
        Timer::new(Instant::now().checked_add(period), Some(period))
    }

    /// A timer that fires at `start`, and then once each period.
    ///
    /// # Panics
    /// If the period is zero.
    pub fn interval_at(start: Instant, period: Duration) -> Self {
        check_period(period);
        Timer::new(Some(start), Some(period))
    }

    /// Whether it is set to fire (again).
    pub fn will_fire(&self) -> bool {
        self.when.is_some()
    }

    /// Sets it to fire once, so much later.
    pub fn set_after(&mut self, duration: Duration) {
        self.set(Instant::now().checked_add(duration), None);
    }

    /// Sets it to fire once, at that moment. A task that has polled it is woken then, even if it does
    /// not poll it again before.
    pub fn set_at(&mut self, instant: Instant) {
        self.set(Some(instant), None);
    }

    /// Sets it to fire again and again, for the first time after one period.
    ///
    /// # Panics
    /// If the period is zero.
    pub fn set_interval(&mut self, period: Duration) {
        check_period(period);
        self.set(Instant::now().checked_add(period), Some(period));
    }

    /// Sets it to fire at `start`, and then once each period.
    ///
    /// # Panics
    /// If the period is zero.
    pub fn set_interval_at(&mut self, start: Instant, period: Duration) {
        check_period(period);
        self.set(Some(start), Some(period));
    }

    fn set(&mut self, when: Option<Instant>, period: Option<Duration>) {
        (self.when, self.period) = (when, period);
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::New | Place::Nowhere => {}
            // A waker of a timer that has just fired was called: its task polls again.
            Place::Armed(armed) => {
                if let Some(waker) = armed.give_up() {
                    self.place = Place::of(when.map(clock::nanos), waker);
                }
            }
            Place::Waiting(waker) => self.place = Place::of(when.map(clock::nanos), waker),
        }
    }

    /// The moment that it is set for.
    pub(crate) fn when(&self) -> Option<Instant> {
        self.when
    }

    /// Ready when it fires, with the moment that it was set for; it is not set any more then.
    pub(crate) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        let at = self.when.map(clock::nanos);
        let same = |waker: &Waker| waker.will_wake(cx.waker());
        let waits = match &self.place {
            Place::New | Place::Nowhere => false,
            Place::Armed(armed) => armed.renew(same, || cx.waker().clone()),
            Place::Waiting(waker) => same(waker),
        };
        if let (Some(when), Some(at)) = (self.when, at) {
            let has_come = match self.place {
                Place::New => false,
                // It has fired, or its runtime has stopped.
                Place::Armed(_) if !waits => at <= clock::now(),
                _ => clock::has_come(at),
            };
            if has_come {
                ready!(poll_if_due(cx));
                self.place = Place::Nowhere;
                self.when = None;
                return Poll::Ready(when);
            }
        }
        if !waits {
            self.place = Place::of(at, cx.waker().clone());
        }
        Poll::Pending
    }
}

fn check_period(period: Duration) {
    assert!(!period.is_zero(), "a timer's period is zero, but must be longer");
}

/// Arms a timer on the runtime that this thread works for, or on the default one.
fn arm(at: u64, waker: Waker) -> Armed<Waker> {
    let armed = current::with_lease(|lease| match lease.filter(|_| !current::is_overridden()) {
        Some(lease) => {
            let armed = arm_on(lease.shared, lease.processor.index, at, waker);
            lease.call_watch();
            armed
        }
        None => {
            let shared = Handle::current().shared;
            shared.origin.check();
            let armed = arm_on(&shared, 0, at, waker);
            see_to_driver(&shared);
            armed
        }
    });
    armed.unwrap_or_else(|Closed(waker)| {
        let shared = &default_runtime().handle().shared;
        shared.origin.check();
        let armed = arm_on(shared, 0, at, waker);
        see_to_driver(shared);
        armed.unwrap_or_else(|_| unreachable!("the default runtime never stops"))
    })
}

fn arm_on(
    shared: &Shared,
    processor: usize,
    at: u64,
    waker: Waker,
) -> Result<Armed<Waker>, Closed<Waker>> {
    let (armed, first) = shared.reactor.shard(processor).arm(at, waker)?;
    if first {
        shared.reactor.armed(at);
    }
    Ok(armed)
}

impl Future for Timer {
    type Output = Instant;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        self.poll_next(cx).map(|when| when.expect("a timer that is not set is pending"))
    }
}

impl Stream for Timer {
    type Item = Instant;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        let this = self.get_mut();
        let when = ready!(this.poll_fired(cx));
        if let Some(period) = this.period {
            this.when = when.checked_add(period);
        }
        Poll::Ready(Some(when))
    }
}
