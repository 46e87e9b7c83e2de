//! Sleeping, timeouts, intervals.
//!
//! Moments are [`std::time::Instant`]s, to the nanosecond. A timer never fires early, and in
//! practice well under a millisecond late on an idle machine (`many_timers` in benches/README.md). An
//! armed one takes 40 bytes in the reactor beside its own 64 (of 64-bit pointers), until it fires or
//! is dropped; arming and cancelling take constant time, however many there are.

mod interval;
mod sleep;
mod timeout;
mod timer;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
pub use timer::Timer;
