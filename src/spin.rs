//! How long a thread looks for work before it parks. The only place where this crate spins.

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

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_does_not_spin() {
        assert_eq!(Window::for_cpus(1).spin(|| Some(())), None);
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
