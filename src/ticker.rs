//! What the ticker does at a tick: it ends slices, rescues what a stuck worker holds, wakes
//! thieves. Its wait is in [`crate::doze`].
//!
//! It reads what the workers write, and stops nobody: a worker that comes back to its loop and
//! begins a new slice within a tick does not notice it.

use std::time::{Duration, Instant};

use crate::config::Ticker;
use crate::processor::Processor;
use crate::shared::Shared;
use crate::sync::atomic::Ordering::Relaxed;

/// While polls run long: a stuck worker is noticed within two of these, once this is the tempo.
const SHORTEST: Duration = Duration::from_micros(500);
/// While they are short: 40 wake-ups a second.
const LONGEST: Duration = Duration::from_millis(25);
/// The same while nobody drives the reactor, since all who are awake work: should a poll be long, the
/// others' sockets and timers wait for one or two of these.
const LONGEST_UNDRIVEN: Duration = Duration::from_millis(5);
/// The same if a poll was long within the last [`LATELY`].
const LONGEST_WARY: Duration = Duration::from_millis(1);
const LATELY: Duration = Duration::from_secs(1);

/// The ticker thread.
pub(crate) fn run(shared: &Shared) {
    let now = Instant::now();
    let mut tempo = Tempo::new(shared.config.ticker);
    let mut looks: Vec<_> = shared.processors.iter().map(|p| Look::first(p, now)).collect();
    let mut long_poll_at = None;
    loop {
        let goes_on = match tempo.next {
            Some(tick) => shared.doze.tick(tick),
            None => shared.doze.sleep(|| shared.idle.is_all_idle()),
        };
        if !goes_on {
            return;
        }
        let scene = look_after(shared, &mut looks);
        if scene == Scene::LongPolls {
            long_poll_at = Some(Instant::now());
        }
        let lately = || long_poll_at.is_some_and(|at: Instant| at.elapsed() < LATELY);
        tempo.saw(
            scene,
            match shared.reactor.needs_driver() {
                false => LONGEST,
                true if lately() => LONGEST_WARY,
                true => LONGEST_UNDRIVEN,
            },
        );
    }
}

/// What a tick found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scene {
    Idle,
    ShortPolls,
    LongPolls,
}

/// How long until the next tick. Pure.
struct Tempo {
    setting: Ticker,
    /// None: sleep until somebody runs.
    next: Option<Duration>,
    idle_ticks: u32,
}

impl Tempo {
    fn new(setting: Ticker) -> Self {
        let mut tempo = Tempo { setting, next: None, idle_ticks: 0 };
        tempo.restart();
        tempo
    }

    fn restart(&mut self) {
        self.next = Some(match self.setting {
            Ticker::Every(length) => length,
            Ticker::Adaptive | Ticker::Off => SHORTEST,
        });
    }

    fn saw(&mut self, scene: Scene, longest: Duration) {
        self.idle_ticks = if scene == Scene::Idle { self.idle_ticks + 1 } else { 0 };
        let last = self.next;
        match (self.setting, scene, last) {
            (_, Scene::LongPolls, _) | (_, _, None) => self.restart(),
            (Ticker::Every(_), Scene::Idle, Some(_)) if self.idle_ticks > 1 => self.next = None,
            (Ticker::Every(_), ..) => {}
            (_, Scene::Idle, Some(last)) if last >= longest => self.next = None,
            (_, _, Some(last)) => self.next = Some((last * 2).min(longest)),
        }
    }
}

/// What the ticker saw of one processor at the last tick.
struct Look {
    polls: u64,
    /// How many slices had begun, and when that was first seen.
    slices: u64,
    since: Instant,
}

impl Look {
    fn first(processor: &Processor, now: Instant) -> Self {
        Look { polls: processor.open.counters.polls.get(), slices: slices(processor), since: now }
    }
}

/// Every poll begins a slice, but for those out of the slot.
fn slices(processor: &Processor) -> u64 {
    let counters = &processor.open.counters;
    // Beside a running worker this may be off by one for a moment, which costs a tick at most.
    let hits = counters.slot_hits.get();
    counters.polls.get().saturating_sub(hits)
}

fn look_after(shared: &Shared, looks: &mut [Look]) -> Scene {
    let now = Instant::now();
    let mut still = 0;
    for (processor, look) in shared.processors.iter().zip(looks) {
        let polls = processor.open.counters.polls.get();
        if polls == look.polls {
            still += 1;
            rescue(shared, processor);
        }
        look.polls = polls;
        let slices = slices(processor);
        if slices != look.slices {
            (look.slices, look.since) = (slices, now);
        } else if now.duration_since(look.since) >= shared.config.timeslice {
            processor.verdict.slice_over.store(true, Relaxed);
        }
    }
    // Left behind when no thread could be had.
    if !shared.injector.is_empty() && shared.idle.may_wake() {
        let _ = shared.wake(1);
    }
    let idle = shared.idle.idle_processors();
    match still {
        _ if idle == shared.processors.len() => Scene::Idle,
        _ if still > idle => Scene::LongPolls,
        _ => Scene::ShortPolls,
    }
}

/// The processor's holder sat in one poll for a whole tick: what waits behind it is for others.
fn rescue(shared: &Shared, processor: &Processor) {
    processor.inbox.take_all(|runnable| drop(shared.inject(runnable)));
    if let Some(runnable) = processor.open.slot.take() {
        processor.verdict.rescues.add(1);
        // Where no thread can be had, it waits in the injector.
        let _ = shared.inject(runnable);
    } else if processor.open.stealer.len() > 0 || shared.reactor.needs_driver() {
        let _ = shared.wake(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(setting: Ticker, scenes: &[Scene]) -> Vec<Option<Duration>> {
        let mut tempo = Tempo::new(setting);
        let after = |scene: &Scene| {
            tempo.saw(*scene, LONGEST);
            tempo.next
        };
        scenes.iter().map(after).collect()
    }

    #[test]
    fn ticks_back_off_while_polls_are_short_and_end_when_nothing_runs() {
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(
            waits(Ticker::Adaptive, &[Scene::ShortPolls; 7]),
            [ms(1), ms(2), ms(4), ms(8), ms(16), ms(25), ms(25)]
        );
        assert_eq!(waits(Ticker::Adaptive, &[Scene::Idle; 7])[5..], [ms(25), None]);
        let stuck = [Scene::ShortPolls, Scene::ShortPolls, Scene::LongPolls];
        assert_eq!(waits(Ticker::Adaptive, &stuck)[2], Some(SHORTEST));
        let roused = [&[Scene::Idle; 7][..], &[Scene::ShortPolls]].concat();
        assert_eq!(waits(Ticker::Adaptive, &roused)[7], Some(SHORTEST));
    }

    #[test]
    fn a_set_tick_stays_until_nothing_runs() {
        let tick = Duration::from_millis(3);
        let scenes = [Scene::ShortPolls, Scene::LongPolls, Scene::Idle, Scene::Idle, Scene::Idle];
        let expected = [Some(tick), Some(tick), Some(tick), None, Some(tick)];
        assert_eq!(waits(Ticker::Every(tick), &scenes), expected);
    }
}
