//! How long a thread looks for work before it parks. The only place where this crate spins.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Spins for a bounded time, by the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window(Duration);

/// About one wake-up of a parked thread (20 to 45 µs on the hosts measured, see
/// benches/README.md): work that arrives within it costs less than the park would have.
const FIXED: Duration = Duration::from_micros(20);
/// How much longer a sleep is than what it waited for.
const WAKE_UP: Duration = Duration::from_micros(30);
/// Pauses between two looks at the work: 0.5 to 1.5 µs, so that a look costs its target little.
const PAUSES: u32 = 32;

impl Window {
    /// The window for a machine with so many CPUs: none where the spinner would only keep the
    /// thread that it waits for from running.
    pub(crate) fn for_cpus(cpus: usize) -> Self {
        Window(if cpus > 1 { FIXED } else { Duration::ZERO })
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

/// One thread's window, as its own luck has it. Not shared: a cell.
pub(crate) struct Adaptive {
    most: Window,
    now: Cell<Duration>,
}

impl Adaptive {
    pub(crate) fn new(most: Window) -> Self {
        Adaptive { most, now: Cell::new(most.0) }
    }

    pub(crate) fn window(&self) -> Window {
        Window(self.now.get())
    }

    /// What the spin has come to: something was found, or the window closed.
    pub(crate) fn spun(&self, found: bool) {
        let now = if found { self.most.0 } else { self.now.get() / 2 };
        self.now.set(if now < self.most.0 / 8 { Duration::ZERO } else { now });
    }

    /// After a sleep that something but the clock has ended: if it was short, a spin would have paid.
    pub(crate) fn slept(&self, lasted: Duration) {
        if lasted < self.most.0 + WAKE_UP {
            self.now.set(self.most.0);
        }
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_does_not_spin() {
        assert_eq!(Window::for_cpus(1).spin(|| Some(())), None);
    }

    #[test]
    fn a_window_closes_while_nothing_comes_and_opens_when_something_just_misses_it() {
        let most = Window::for_cpus(2);
        let spin = Adaptive::new(most);
        (0..4).for_each(|_| spin.spun(false));
        assert!(spin.window().length().is_zero());
        spin.slept(Duration::from_millis(1));
        assert!(spin.window().length().is_zero());
        spin.slept(most.length());
        assert_eq!(spin.window().length(), most.length());
        spin.spun(false);
        assert_eq!(spin.window().length(), most.length() / 2);
        spin.spun(true);
        assert_eq!(spin.window().length(), most.length());
    }

    #[test]
    fn a_window_ends_with_what_was_found_or_by_itself() {
        let window = Window::for_cpus(2);
        let mut looks = 0;
        let found = window.spin(|| {
            looks += 1;
            (looks == 2).then_some(looks)
        });
        assert!(found == Some(2) || looks < 2, "only a pause as long as the window ends it early");
        assert_eq!(window.spin(|| None::<()>), None);
    }
}
