//! How long a worker that finds nothing to do looks on before it parks. The only place where this crate
//! spins. Pure but for the spin itself: it is told how long waits were, and what a wake-up takes.
//!
//! A spin of `w` costs the CPU time until work comes, or all of `w` and the park that follows. So of some
//! windows the best is the one that would have cost least over the last waits, whether or not they were
//! spun: that is known of each wait, once it is over.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::config::Spin;

/// The windows to choose from, but for none at all, in ns: doubling from about the shortest wait that a
/// thread can hope for to the longest price of a park.
const WINDOWS: [u32; 6] = [6_250, 12_500, 25_000, 50_000, 100_000, 200_000];
/// What a park is worth to avoid, in wake-ups: the work waits for one, the waker and the woken pay for one,
/// and the CPU sleeps and comes back less lively. At four, a wait is spun if it is as short as those that
/// decide the throughput of a client that waits for each reply (`benches/spin.rs`).
const PRICE: u32 = 4;
/// What a wake-up takes before any was measured: 20 to 45 µs on the hosts of benches/README.md.
const WAKE_UP: u32 = 40_000;
/// Beyond that, a wake-up waited for a CPU.
const LONGEST_WAKE_UP: u32 = 100_000;
/// A wait that has just ended weighs as much as all before the last 16.
const FADE: u32 = 16;
const ONE: u32 = 1 << 16;
/// No two looks at the clock are that far apart, unless another thread had the CPU in between.
const DESCHEDULED: Duration = Duration::from_micros(250);
/// So many waits are not spun then: the CPU is needed.
const PENANCE: u32 = 64;
/// Pauses between two looks at the work: 0.5 to 1.5 µs, so that a look costs its target little.
const PAUSES: u32 = 32;

/// One worker's window. Not shared: every field is a cell.
pub(crate) struct Adaptive {
    /// How much of the last waits ended within each window but not within the one before, and longer ones.
    waits: [Cell<u32>; WINDOWS.len() + 1],
    wake_up: Cell<u32>,
    window: Cell<Duration>,
    penance: Cell<u32>,
}

impl Adaptive {
    pub(crate) fn new() -> Self {
        let adaptive = Adaptive {
            waits: Default::default(),
            wake_up: Cell::new(WAKE_UP),
            window: Cell::default(),
            penance: Cell::new(0),
        };
        // As if every other wait had been a short one.
        adaptive.waits[2].set(ONE / 2);
        adaptive.waits[WINDOWS.len()].set(ONE / 2);
        adaptive.choose();
        adaptive
    }

    /// How long to spin now.
    pub(crate) fn window(&self) -> Duration {
        match self.penance.get() {
            0 => self.window.get(),
            left => {
                self.penance.set(left - 1);
                Duration::ZERO
            }
        }
    }

    /// Work came so long after there was none. `None`: by the clock, so that no spin was called for.
    pub(crate) fn waited(&self, wait: Option<Duration>) {
        let ns = wait.map_or(u128::MAX, |wait| wait.as_nanos());
        let class = WINDOWS.iter().position(|&window| ns <= window.into()).unwrap_or(WINDOWS.len());
        for (each, weight) in self.waits.iter().enumerate() {
            let faded = weight.get() - weight.get().div_ceil(FADE);
            weight.set(faded + if each == class { ONE / FADE } else { 0 });
        }
        self.choose();
    }

    /// A thread ran so long after it was woken.
    pub(crate) fn woken_after(&self, delay: Duration) {
        let delay = u32::try_from(delay.as_nanos()).unwrap_or(u32::MAX).min(LONGEST_WAKE_UP);
        self.wake_up.set(self.wake_up.get() - self.wake_up.get() / FADE + delay / FADE);
    }

    pub(crate) fn wake_up(&self) -> Duration {
        Duration::from_nanos(self.wake_up.get().into())
    }

    /// Another thread had the CPU during a spin.
    pub(crate) fn descheduled(&self) {
        self.penance.set(PENANCE);
    }

    fn choose(&self) {
        let park = u64::from(self.wake_up.get() * PRICE);
        let mut longer: u64 = self.waits.iter().map(|weight| u64::from(weight.get())).sum();
        // Of no window: every wait is a park.
        let (mut best, mut least) = (0, longer * park);
        let mut spun = 0;
        for (&window, weight) in WINDOWS.iter().zip(&self.waits) {
            let window = u64::from(window);
            let within = u64::from(weight.get());
            longer -= within;
            spun += within * window;
            let cost = spun + longer * (window + park);
            if cost < least {
                (best, least) = (window, cost);
            }
        }
        self.window.set(Duration::from_nanos(best));
    }
}

/// What a spin came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Spun<R> {
    Found(R),
    Nothing,
    /// Another thread had the CPU: whoever is waited for may need it.
    Descheduled,
}

/// Looks until there is something or the window closes.
#[allow(clippy::disallowed_methods)] // the window that the lint asks for
pub(crate) fn spin<R>(
    since: Instant,
    window: Duration,
    mut look: impl FnMut() -> Option<R>,
) -> Spun<R> {
    let mut last = since;
    loop {
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        if let Some(found) = look() {
            return Spun::Found(found);
        }
        let now = Instant::now();
        if now - last > DESCHEDULED {
            return Spun::Descheduled;
        }
        if now - since >= window {
            return Spun::Nothing;
        }
        last = now;
    }
}

impl Spin {
    /// The window of this setting, where an adaptive one has come to its own.
    pub(crate) fn window(self, adaptive: &Adaptive) -> Duration {
        match self {
            Spin::Adaptive => adaptive.window(),
            Spin::Fixed(window) => window,
            Spin::Off => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window in µs after these waits in µs, again and again.
    fn after(waits: &[u64]) -> u128 {
        let adaptive = Adaptive::new();
        for &wait in waits.iter().cycle().take(600) {
            adaptive.waited(Some(Duration::from_micros(wait)));
        }
        adaptive.window().as_micros()
    }

    #[test]
    fn the_window_is_the_one_that_would_have_cost_least() {
        // (waits, window)
        let table: [(&[u64], u128); 10] = [
            (&[2], 6),
            (&[10], 12),
            (&[45], 50),
            (&[90], 100),
            // Dearer than a park.
            (&[180], 0),
            (&[2_000], 0),
            (&[10_000_000], 0),
            // Half of the waits are short: worth a short spin.
            (&[10, 2_000], 12),
            // One in sixteen is: not.
            (
                &[
                    10, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000,
                    2_000, 2_000, 2_000, 2_000, 2_000,
                ],
                0,
            ),
            (&[3, 3, 3, 40], 50),
        ];
        for (waits, window) in table {
            assert_eq!(after(waits), window, "{waits:?}");
        }
    }

    #[test]
    fn long_waits_end_the_spinning_and_short_ones_bring_it_back() {
        let adaptive = Adaptive::new();
        assert_eq!(adaptive.window().as_micros(), 25, "a first guess");
        let turns = |wait, spins: bool| {
            (1..100).find(|_| {
                adaptive.waited(wait);
                adaptive.window().is_zero() != spins
            })
        };
        let (short, long) = (Some(Duration::from_micros(5)), Some(Duration::from_millis(5)));
        assert!(turns(long, false) <= Some(32));
        assert!(turns(short, true) <= Some(2));
        assert!(turns(long, false) <= Some(60));
        (0..100).for_each(|_| adaptive.waited(short));
        assert!(turns(None, false) <= Some(60), "waits for timers are not spun");
    }

    #[test]
    fn cheap_wake_ups_make_for_short_spins() {
        let adaptive = Adaptive::new();
        (0..100).for_each(|_| adaptive.woken_after(Duration::from_micros(4)));
        (0..100).for_each(|_| adaptive.waited(Some(Duration::from_micros(30))));
        assert!(adaptive.window().is_zero());
        (0..100).for_each(|_| adaptive.woken_after(Duration::from_secs(4)));
        (0..100).for_each(|_| adaptive.waited(Some(Duration::from_micros(30))));
        assert_eq!(adaptive.window().as_micros(), 50);
    }

    #[test]
    fn who_was_descheduled_does_not_spin_for_a_while() {
        let adaptive = Adaptive::new();
        adaptive.descheduled();
        assert_eq!((0..100).find(|_| !adaptive.window().is_zero()), Some(PENANCE));
    }

    #[test]
    fn a_spin_ends_with_what_was_found_or_by_the_clock() {
        let window = Duration::from_micros(20);
        let mut looks = 0;
        let found = spin(Instant::now(), Duration::MAX, || {
            looks += 1;
            (looks == 2).then_some(looks)
        });
        assert!(found == Spun::Found(2) || found == Spun::Descheduled);
        let start = Instant::now();
        assert_ne!(spin(start, window, || None::<()>), Spun::Found(()));
        assert!(start.elapsed() >= window);
        let start = Instant::now();
        let busy = || {
            let since = Instant::now();
            while since.elapsed() < DESCHEDULED * 2 {}
            None::<()>
        };
        assert_eq!(spin(start, Duration::MAX, busy), Spun::Descheduled);
    }
}
