//! What the ticker does at a tick: it ends slices, rescues what a stuck worker holds, wakes thieves,
//! reports wedges, brings spare workers in and sends them off; and before it falls asleep, it takes the
//! census. Its wait is in [`crate::doze`].
//!
//! It reads what the workers write, and stops nobody: a worker that comes back to its loop and
//! begins a new slice within a tick does not notice it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::census::When;
use crate::config::Ticker;
use crate::contain::contain;
use crate::identity::Identity;
use crate::idle::Closed;
use crate::processor::Processor;
use crate::report::{ThreadState, Wedge};
use crate::shared::Shared;
use crate::sync::atomic::Ordering::Relaxed;
use crate::wedge::{Episode, Sight, Watch};

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

/// A thread that blocks is made up for after so long: by then it is no page fault.
const BLOCKED_FOR: Duration = Duration::from_millis(1);

/// The ticker thread.
pub(crate) fn run(shared: &Shared) {
    let mut ticker = Watchman { shared, watches: Vec::new(), spare: 0, reported_at: None };
    let mut tempo = Tempo::new(shared.config.ticker);
    let mut long_poll_at = None;
    loop {
        let goes_on = match tempo.next {
            Some(tick) => shared.doze.tick(tick),
            None => {
                let goes_on =
                    shared.doze.sleep(|| shared.idle.is_all_idle() && ticker.take_census());
                ticker.watches.clear();
                goes_on
            }
        };
        if !goes_on {
            return;
        }
        let scene = ticker.look_after();
        if scene == Scene::LongPolls {
            long_poll_at = Some(Instant::now());
        }
        let lately = || long_poll_at.is_some_and(|at: Instant| at.elapsed() < LATELY);
        let undriven = shared.reactor.needs_driver();
        tempo.saw(
            scene,
            match undriven || ticker.is_anyone_stuck() {
                false => LONGEST,
                true if undriven && lately() => LONGEST_WARY,
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

/// Who looks after the workers, and what is known of each.
struct Watchman<'a> {
    shared: &'a Shared,
    watches: Vec<Watch>,
    /// Spare processors in service.
    spare: usize,
    /// When a deadlock was reported.
    reported_at: Option<When>,
}

/// Every poll begins a slice, but for those out of the slot.
fn slices(processor: &Processor) -> u64 {
    let counters = &processor.open.counters;
    // Beside a running worker this may be off by one for a moment, which costs a tick at most.
    let hits = counters.slot_hits.get();
    counters.polls.get().saturating_sub(hits)
}

impl Watchman<'_> {
    fn look_after(&mut self) -> Scene {
        let (shared, now) = (self.shared, Instant::now());
        let (mut long_polls, mut wedges) = (0, 0);
        for (index, processor) in shared.processors.iter().enumerate() {
            if index == self.watches.len() {
                self.watches.push(Watch::new(now));
            }
            let watch = &mut self.watches[index];
            match watch.look(processor.inbox.is_open(), processor.open.progress(), now) {
                Sight::Moved(lasted, episode) => {
                    if processor.inbox.is_open() {
                        watch.used(processor.open.holder().cpu_time());
                    }
                    if episode.is_wedged {
                        report(shared, processor, &episode, lasted, None);
                    }
                }
                Sight::Still(lasted) => {
                    watch.episode.queued = watch.episode.queued.max(processor.stealer.len());
                    watch.episode.moved += rescue(shared, processor);
                    judge(shared, processor, watch, lasted);
                    let episode = &watch.episode;
                    long_polls += usize::from(!episode.is_wedged);
                    wedges += usize::from(episode.is_wedged);
                }
            }
            if watch.outlives(slices(processor), shared.config.timeslice, now) {
                processor.verdict.slice_over.store(true, Relaxed);
            }
        }
        // Left behind when no thread could be had.
        if !shared.injector.is_empty() && shared.idle.may_wake() {
            let _ = shared.wake(1);
        }
        self.make_up();
        match shared.idle.is_all_idle() {
            // Whoever is stuck, or has been, is not done with.
            true if wedges == 0 && self.spare == 0 => Scene::Idle,
            _ if long_polls > 0 => Scene::LongPolls,
            _ => Scene::ShortPolls,
        }
    }

    fn is_anyone_stuck(&self) -> bool {
        self.spare > 0 || self.watches.iter().any(|watch| watch.episode.is_wedged)
    }

    /// As many spare workers as there are stuck ones to be made up for.
    fn make_up(&mut self) {
        let shared = self.shared;
        let wanted = self.watches.iter().filter(|watch| watch.episode.is_made_up_for).count();
        if self.spare > 0 {
            // Some may have stood down.
            self.spare = shared.idle.spare();
        }
        while self.spare < wanted {
            match bring_in(shared) {
                Some(()) => self.spare += 1,
                None => break,
            }
        }
        if self.spare > wanted {
            // Those that are busy stand down themselves.
            self.spare = shared.idle.bench_idle(wanted);
        }
        shared.surplus.store(self.spare.saturating_sub(wanted), Relaxed);
    }

    /// Reports a deadlock, if there is one. False if there may be one next time.
    fn take_census(&mut self) -> bool {
        if let Some(hook) = &self.shared.config.on_deadlock {
            let found =
                self.shared.deadlocked().filter(|(when, _)| self.reported_at != Some(*when));
            if let Some((when, mains)) = found {
                self.reported_at = Some(when);
                let census = self.shared.census(&mains);
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| hook(&census))) {
                    mains[0].clone().fail(payload);
                }
            }
        }
        self.shared.idle.is_all_idle()
    }
}

/// The poll has gone on for a tick at least, in all for `lasted`.
fn judge(shared: &Shared, processor: &Processor, watch: &mut Watch, lasted: Duration) {
    let (config, thread) = (&shared.config, processor.open.holder());
    // Where the system does not tell, only the clock counts.
    let used = watch.used(thread.cpu_time());
    let is_needed =
        !watch.episode.is_made_up_for && shared.idle.is_none_idle() && shared.has_work_waiting();
    let seems_blocked =
        is_needed && lasted >= BLOCKED_FOR && used.is_some_and(|used| used < SHORTEST / 4);
    // Its state is in a file.
    let may_be_wedged = !watch.episode.is_wedged && lasted >= config.wedge_after / 2;
    if !may_be_wedged && !seems_blocked {
        watch.episode.is_made_up_for |= is_needed && watch.episode.is_wedged;
        return;
    }
    let (state, who) = (thread.state(), processor.open.polled());
    let is_blocked = watch.is_blocked(state == ThreadState::Blocked);
    let is_its_fault =
        is_blocked || (state != ThreadState::Blocked && watch.has_had_its_time(config.wedge_after));
    // After who it is was read: is it still the same poll?
    let is_poll = who != Identity::NOBODY && processor.open.progress() == watch.progress();
    if may_be_wedged && lasted >= config.wedge_after && is_poll && is_its_fault {
        watch.episode.is_wedged = true;
        watch.episode.task = shared.names.look_up(who);
        processor.verdict.wedges.add(1);
        report(shared, processor, &watch.episode, lasted, Some(state));
    }
    watch.episode.is_made_up_for |= is_needed && (watch.episode.is_wedged || is_blocked);
}

/// Tells the hook of a wedge, or, without a state, of its end.
fn report(
    shared: &Shared,
    processor: &Processor,
    episode: &Episode,
    lasted: Duration,
    state: Option<ThreadState>,
) {
    let Some(hook) = &shared.config.on_wedge else { return };
    let wedge = Wedge {
        worker: processor.index,
        task: episode.task.clone(),
        lasted,
        stranded: episode.moved + episode.queued,
        thread: state.unwrap_or(ThreadState::Unknown),
        is_over: state.is_none(),
    };
    contain(|| hook(&wedge));
}

/// Brings a spare processor into service. None if there is none, or the runtime is closed.
fn bring_in(shared: &Shared) -> Option<()> {
    let new = if shared.idle.has_benched() {
        None
    } else if shared.processors.has_spare() && shared.stop.tally.open() {
        // Its share was opened before anyone can hold it.
        Some(shared.processors.make_spare(shared.config.timeslice))
    } else {
        return None;
    };
    match shared.idle.bring_in(new, || shared.has_work_waiting()) {
        Ok(wake) => {
            // Where no thread can be had, the next tick tries again.
            wake.into_iter().for_each(|wake| drop(shared.deliver(wake)));
            Some(())
        }
        Err(Closed) => {
            // One from the bench was taken out of service with all others.
            new.into_iter().for_each(|new| drop(shared.retire(&shared.processors[new])));
            None
        }
    }
}

/// The processor's holder sat in one poll for a whole tick: what waits behind it is for others. How many
/// runnables were moved on.
fn rescue(shared: &Shared, processor: &Processor) -> usize {
    let mut moved = 0;
    // Where no thread can be had, they wait in the injector.
    processor.inbox.take_all(|runnable| {
        moved += 1;
        drop(shared.inject(runnable));
    });
    if let Some(runnable) = processor.open.slot.take() {
        processor.verdict.rescues.add(1);
        drop(shared.inject(runnable));
        moved += 1;
    } else if processor.stealer.len() > 0 || shared.reactor.needs_driver() {
        let _ = shared.wake(1);
    }
    moved
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
