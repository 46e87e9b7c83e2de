//! Moments as numbers: nanoseconds since this process first asked.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The start; a little before the first question, so that no moment asked for is zero.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(Duration::from_nanos(1)).unwrap_or(now)
    })
}

/// The number of a moment; of one before the start, zero.
#[inline]
pub(crate) fn nanos(moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(start()).as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn now() -> u64 {
    nanos(Instant::now()).max(1)
}
