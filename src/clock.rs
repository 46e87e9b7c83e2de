//! Moments as numbers: nanoseconds since this process first asked.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// The number of a moment; of one before the start, zero.
#[inline]
pub(crate) fn nanos(moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(start()).as_nanos()).unwrap_or(u64::MAX)
}

/// The moment of a number; none if it is beyond what the clock can say.
pub(crate) fn moment(nanos: u64) -> Option<Instant> {
    start().checked_add(Duration::from_nanos(nanos))
}

pub(crate) fn now() -> u64 {
    nanos(Instant::now())
}
