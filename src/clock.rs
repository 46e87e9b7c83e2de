//! Moments as numbers: nanoseconds since this process first asked.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

struct Start {
    moment: Instant,
    coarse: u64,
}

#[inline]
fn start() -> &'static Start {
    static START: OnceLock<Start> = OnceLock::new();
    START.get_or_init(|| Start { moment: Instant::now(), coarse: coarse::now() })
}

/// The number of a moment; of one before the start, zero.
#[inline]
pub(crate) fn nanos(moment: Instant) -> u64 {
    let since = moment.saturating_duration_since(start().moment);
    since.as_secs().saturating_mul(1_000_000_000).saturating_add(since.subsec_nanos().into())
}

/// The moment of a number; none if it is beyond what the clock can say.
pub(crate) fn moment(nanos: u64) -> Option<Instant> {
    start().moment.checked_add(Duration::from_nanos(nanos))
}

pub(crate) fn now() -> u64 {
    nanos(Instant::now())
}

/// Whether the moment with that number has come. Of one that is far away a coarse clock tells, where
/// there is one; should that stand still (its CPU is not run by its host), this is late to say so.
#[inline]
pub(crate) fn has_come(nanos: u64) -> bool {
    let coarse = coarse::now().saturating_sub(start().coarse);
    nanos <= coarse.saturating_add(coarse::FAR) && nanos <= now()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod coarse {
    /// This clock is behind the other by up to a tick of the kernel, 10 ms at most, now and at the start.
    pub(super) const FAR: u64 = 20_000_000;

    /// Costs a third of what the other does.
    #[inline]
    pub(super) fn now() -> u64 {
        // SAFETY: integers, which may be zero, and stay so if there is no such clock.
        let mut time = unsafe { std::mem::zeroed::<libc::timespec>() };
        // SAFETY: `time` is there to be filled.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod coarse {
    /// No moment is far away.
    pub(super) const FAR: u64 = u64::MAX;

    #[inline]
    pub(super) fn now() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_come_when_the_clock_says_so_be_it_near_or_far() {
        let start = Instant::now();
        assert!(has_come(nanos(start)) && has_come(0) && !has_come(u64::MAX));
        for ms in [1, 5, 10, 15, 20, 30, 40] {
            let moment = start + Duration::from_millis(ms);
            let early = has_come(nanos(moment));
            assert!(!early || Instant::now() >= moment, "{ms} ms");
            while Instant::now() < moment {}
            assert!(has_come(nanos(moment)), "{ms} ms");
        }
    }
}
