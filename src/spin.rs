//! How long a thread looks for work before it parks. The only place where this crate spins.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Spins for a bounded time, by the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window(Duration);

/// About one wake-up of a parked thread (20 to 45 µs on the hosts measured, see
/// benches/README.md): work that arrives within it costs less than the park would have.
const FIXED: Duration = Duration::from_micros(20);
/// Pauses between two looks at the work: 0.5 to 1.5 µs, so that a look costs its target little.
const PAUSES: u32 = 32;

impl Window {
    pub(crate) fn of(spin: crate::config::Spin) -> Self {
        match spin {
            crate::config::Spin::Adaptive => Window(FIXED),
            crate::config::Spin::Fixed(length) => Window(length),
            crate::config::Spin::Off => Window(Duration::ZERO),
        }
    }

    pub(crate) fn length(self) -> Duration {
        self.0
    }

    /// Looks until there is something or the window closes.
    #[allow(clippy::disallowed_methods)] // the window that the lint asks for
    pub(crate) fn spin<R>(self, mut look: impl FnMut() -> Option<R>) -> Option<R> {
        if self.0.is_zero() {
            return None;
        }
        let start = Instant::now();
        loop {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(found) = look() {
                return Some(found);
            }
            if start.elapsed() >= self.0 {
                return None;
            }
        }
    }
}

/// Whether one thread's spins pay, as its own luck has it. Not shared: every field is a cell.
///
/// A spin that finds nothing costs its window, and the sleep that follows costs about as much again;
/// so it pays if it wins about every other time. While it does not, one spin in [`PROBE_EVERY`] tries
/// whether things have changed.
pub(crate) struct Luck {
    /// The share of spins that were won, in 1/256, the last ones weighing most.
    won: Cell<u32>,
    skipped: Cell<u32>,
}

/// From this share of won spins on, they pay.
const ENOUGH: u32 = 96;
/// What one won spin makes of too small a share.
const HOPE: u32 = 128;
const PROBE_EVERY: u32 = 16;

impl Luck {
    pub(crate) fn new() -> Self {
        Luck { won: Cell::new(HOPE), skipped: Cell::new(0) }
    }

    /// Whether to spin now.
    pub(crate) fn is_worth_a_spin(&self) -> bool {
        if self.won.get() >= ENOUGH {
            return true;
        }
        self.skipped.set((self.skipped.get() + 1) % PROBE_EVERY);
        self.skipped.get() == 0
    }

    /// What the spin has come to: something was found, or the window closed.
    pub(crate) fn spun(&self, found: bool) {
        let won = self.won.get();
        self.won.set(if found { (won + (256 - won) / 8).max(HOPE) } else { won - won / 8 });
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_does_not_spin() {
        assert_eq!(Window::of(crate::config::Spin::Off).spin(|| Some(())), None);
    }

    /// Of a thousand chances, how many were taken if each spin wins with that chance in percent.
    fn taken(percent: u32) -> u32 {
        let (luck, mut random) = (Luck::new(), 1u32);
        let mut taken = 0;
        for _ in 0..1_000 {
            if luck.is_worth_a_spin() {
                taken += 1;
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                luck.spun((random >> 8) % 100 < percent);
            }
        }
        taken
    }

    #[test]
    fn spins_are_left_out_unless_they_win_often_enough() {
        assert_eq!(taken(100), 1_000);
        assert!(taken(70) > 850, "{}", taken(70));
        assert!(taken(10) < 250, "{}", taken(10));
        assert!(taken(0) < 75, "{}", taken(0));
    }

    #[test]
    fn a_window_ends_with_what_was_found_or_by_itself() {
        let window = Window::of(crate::config::Spin::Adaptive);
        let mut looks = 0;
        let found = window.spin(|| {
            looks += 1;
            (looks == 2).then_some(looks)
        });
        assert!(found == Some(2) || looks < 2, "only a pause as long as the window ends it early");
        assert_eq!(window.spin(|| None::<()>), None);
    }
}
