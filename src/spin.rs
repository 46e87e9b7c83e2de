//! How long a worker that finds nothing to do looks on before it parks. The only place where this crate
//! spins. Pure but for the spin itself: it is told how long waits were.
//!
//! A spin of `w` costs the CPU time until work comes, or all of `w` and the park that follows. So of some
//! windows the best is the one that would have cost least over the last waits, whether or not they were
//! spun: that is known of each wait, once it is over.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::config::Spin;

/// The windows to choose from, but for none at all, in ns. Doubling; the longest is the first that is not
/// worth a park by itself.
const WINDOWS: [u32; 5] = [6_250, 12_500, 25_000, 50_000, 100_000];
/// What a park is worth to avoid, in ns: two wake-ups, which took up to 45 µs each on the hosts of
/// benches/README.md. One is what the work waits for, the other what it costs in CPU time.
const PARK: u64 = 80_000;
/// A wait that has just ended weighs as much as all before the last 16.
const FADE: u32 = 16;
const ONE: u32 = 1 << 16;
/// Two looks at the clock that are so far apart make one ask whether another thread had the CPU in between.
const HICCUP: Duration = Duration::from_micros(3);
/// So many waits are not spun if one had: whoever is waited for may need the CPU. Twice as many each time,
/// until so many spins have gone well.
const PENANCE: u32 = 64;
const LONGEST_PENANCE: u32 = 1 << 14;
/// Pauses between two looks at the work: 0.5 to 1.5 µs, so that a look costs its target little.
const PAUSES: u32 = 32;

/// One worker's window. Not shared: every field is a cell.
pub(crate) struct Adaptive {
    /// How much of the last waits ended within each window but not within the one before, and longer ones.
    waits: [Cell<u32>; WINDOWS.len() + 1],
    window: Cell<Duration>,
    penance: Cell<u32>,
    next_penance: Cell<u32>,
    gone_well: Cell<u32>,
}

impl Adaptive {
    pub(crate) fn new() -> Self {
        let adaptive = Adaptive {
            waits: Default::default(),
            window: Cell::default(),
            penance: Cell::new(0),
            next_penance: Cell::new(PENANCE),
            gone_well: Cell::new(0),
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

    /// Another thread had the CPU during a spin.
    pub(crate) fn descheduled(&self) {
        let penance = self.next_penance.get();
        self.penance.set(penance);
        self.next_penance.set((penance * 2).min(LONGEST_PENANCE));
        self.gone_well.set(0);
    }

    /// No other thread did.
    pub(crate) fn went_well(&self) {
        self.gone_well.set(self.gone_well.get() + 1);
        if self.gone_well.get() == PENANCE {
            self.gone_well.set(0);
            self.next_penance.set(PENANCE);
        }
    }

    fn choose(&self) {
        let mut longer: u64 = self.waits.iter().map(|weight| u64::from(weight.get())).sum();
        // Of no window: every wait is a park.
        let (mut best, mut least) = (0, longer * PARK);
        let mut spun = 0;
        for (&window, weight) in WINDOWS.iter().zip(&self.waits) {
            let window = u64::from(window);
            let within = u64::from(weight.get());
            longer -= within;
            // Between this window and half of it.
            spun += within * window * 3 / 4;
            let cost = spun + longer * (window + PARK);
            if cost < least {
                (best, least) = (window, cost);
            }
        }
        self.window.set(Duration::from_nanos(best));
    }
}

/// Between two looks of who [watches](watch) another thread: each costs that one a cache miss or two.
const LOOK_EVERY: Duration = Duration::from_micros(4);

/// Looks at what another thread does, every so often, until there is something or the window closes.
/// Not for work that may come soon: where that thread waits for this CPU, it gets it.
#[allow(clippy::disallowed_methods)] // it waits for a thread that runs, and is in nobody's way
pub(crate) fn watch<R>(window: Duration, mut look: impl FnMut(Instant) -> Option<R>) -> Option<R> {
    let begun = Instant::now();
    let (mut now, mut next) = (begun, begun);
    loop {
        if now >= next {
            let found = look(now);
            if found.is_some() {
                return found;
            }
            next = now + LOOK_EVERY;
        }
        if now - begun >= window {
            return None;
        }
        std::thread::yield_now();
        now = Instant::now();
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

/// Looks until there is something or the window closes; or until, after a hiccup, `lost_cpu` says that
/// another thread ran here.
#[allow(clippy::disallowed_methods)] // the window that the lint asks for
pub(crate) fn spin<R>(
    since: Instant,
    window: Duration,
    mut look: impl FnMut() -> Option<R>,
    lost_cpu: impl Fn(Duration) -> bool,
) -> Spun<R> {
    let mut last = since;
    loop {
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        let now = Instant::now();
        if now - last > HICCUP && lost_cpu(now - last) {
            return Spun::Descheduled;
        }
        if let Some(found) = look() {
            return Spun::Found(found);
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
    fn who_lost_the_cpu_spins_later_each_time_until_all_is_well() {
        let adaptive = Adaptive::new();
        let penance = || (0..100_000).find(|_| !adaptive.window().is_zero());
        let after = || {
            adaptive.descheduled();
            penance()
        };
        assert_eq!(
            (after(), after(), after()),
            (Some(PENANCE), Some(2 * PENANCE), Some(4 * PENANCE))
        );
        (0..20).for_each(|_| adaptive.descheduled());
        assert_eq!(penance(), Some(LONGEST_PENANCE));
        (0..PENANCE).for_each(|_| adaptive.went_well());
        assert_eq!(after(), Some(PENANCE));
    }

    #[test]
    fn a_spin_ends_with_what_was_found_or_by_the_clock_or_with_the_cpu() {
        let window = Duration::from_micros(20);
        let mut looks = 0;
        let second = || {
            looks += 1;
            (looks == 2).then_some(looks)
        };
        assert_eq!(spin(Instant::now(), Duration::MAX, second, |_| false), Spun::Found(2));
        let start = Instant::now();
        assert_eq!(spin(start, window, || None::<()>, |_| false), Spun::Nothing);
        assert!(start.elapsed() >= window);
        let slow = || {
            let since = Instant::now();
            while since.elapsed() < HICCUP * 2 {}
            None::<()>
        };
        assert_eq!(
            spin(Instant::now(), Duration::MAX, slow, |gap| gap > HICCUP),
            Spun::Descheduled
        );
    }
}
