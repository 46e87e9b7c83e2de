//! Moments as numbers: nanoseconds since this process first asked.

use std::sync::OnceLock;
use std::time::Instant;

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// The number of a moment; of one before the start, zero.
#[inline]
pub(crate) fn nanos(moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(start()).as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn now() -> u64 {
    nanos(Instant::now())
}
