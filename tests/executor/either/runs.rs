//! Several `run`s and ticks on one thread: what one of them leaves, another does.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;
use futures_lite::future::{block_on, or, zip};

use super::{Ex, Puppet, Shared, assert_works, idle_run, tick_all, yields};
use crate::Held;
use crate::common::watched;

/// How far a `run` has come when it is given up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    NeverPolled,
    /// Polled, and nothing to do.
    Idle,
    /// It gave way, with tasks in its queue.
    Busy,
    /// Woken for a task, and not polled since.
    Notified,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::NeverPolled, Phase::Idle, Phase::Busy, Phase::Notified];
}

type Run<'e> = Puppet<Pin<Box<dyn Future<Output = ()> + 'e>>>;

/// One of two `run`s in that phase, and the other; `other_first` tells the order of their first polls.
fn two_runs<'e>(
    ex: &'e Ex<'_>,
    phase: Phase,
    other_first: bool,
    ended: &Arc<AtomicUsize>,
) -> [Run<'e>; 2] {
    let new_run = || Puppet::new(Box::pin(idle_run(ex)) as Pin<Box<dyn Future<Output = ()> + 'e>>);
    let [mut given_up, mut other] = [new_run(), new_run()];
    if other_first {
        assert!(other.settle().is_pending());
    }
    match phase {
        Phase::NeverPolled => {}
        Phase::Idle => assert!(given_up.settle().is_pending()),
        Phase::Busy => {
            spawn_counted(ex, 1_000, ended);
            assert!(given_up.poll().is_pending());
            assert!(given_up.is_woken(), "it gives way");
        }
        Phase::Notified => {
            assert!(given_up.settle().is_pending());
            assert!(other.settle().is_pending());
            spawn_counted(ex, 1, ended);
            if !given_up.is_woken() {
                std::mem::swap(&mut given_up, &mut other);
            }
            assert!(given_up.is_woken());
        }
    }
    [given_up, other]
}

/// Spawns tasks that give way twice and then count.
fn spawn_counted(ex: &Ex<'_>, count: usize, ended: &Arc<AtomicUsize>) {
    for _ in 0..count {
        let ended = ended.clone();
        ex.spawn(async move {
            yields(2).await;
            ended.fetch_add(1, SeqCst);
        })
        .detach();
    }
}

fn each_phase(body: impl Fn(Phase, bool) + Send + Sync + 'static) {
    let body = Arc::new(body);
    for phase in Phase::ALL {
        for other_first in [false, true] {
            let body = body.clone();
            watched(&format!("{phase:?}, other first: {other_first}"), move || {
                body(phase, other_first)
            });
        }
    }
}

#[test]
fn a_dropped_run_strands_nothing_while_another_is_polled_only_when_woken() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let [given_up, mut other] = two_runs(&ex, phase, other_first, &ended);
        drop(given_up);
        assert!(other.settle().is_pending());
        assert!(ex.is_empty(), "{ended:?} have ended");
        spawn_counted(&ex, 10, &ended);
        assert!(other.is_woken());
        assert!(other.settle().is_pending());
        assert!(ex.is_empty());
    });
}

#[test]
fn a_run_that_is_dropped_later_strands_nothing_either() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let [given_up, mut other] = two_runs(&ex, phase, other_first, &ended);
        spawn_counted(&ex, 10, &ended);
        drop(given_up);
        assert!(other.settle().is_pending());
        assert!(ex.is_empty(), "{ended:?} have ended");
    });
}

#[test]
fn the_last_run_leaves_its_tasks_to_the_next_one() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        drop(two_runs(&ex, phase, other_first, &ended));
        spawn_counted(&ex, 10, &ended);
        let mut next = Puppet::new(idle_run(&ex));
        assert!(next.settle().is_pending());
        assert!(ex.is_empty(), "{ended:?} have ended");
    });
}

#[test]
fn the_last_run_leaves_its_tasks_to_ticks() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        drop(two_runs(&ex, phase, other_first, &ended));
        spawn_counted(&ex, 10, &ended);
        tick_all(&ex);
        assert!(ex.is_empty(), "{ended:?} have ended");
    });
}

#[test]
fn what_a_run_holds_that_is_not_polled_any_more_is_done_by_one_that_is() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let [_not_polled, mut other] = two_runs(&ex, phase, other_first, &ended);
        for _ in 0..10 {
            spawn_counted(&ex, 10, &ended);
            assert!(other.poll().is_pending());
        }
        while !ex.is_empty() {
            assert!(other.poll().is_pending());
        }
    });
}

/// Who is woken and not polled is not waited for.
#[test]
fn what_a_run_holds_that_is_not_polled_any_more_is_done_by_one_that_is_polled_when_woken() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let [_not_polled, mut other] = two_runs(&ex, phase, other_first, &ended);
        for _ in 0..10 {
            spawn_counted(&ex, 10, &ended);
            assert!(other.settle().is_pending());
        }
        assert!(ex.is_empty(), "{ended:?} have ended");
    });
}

#[test]
fn try_tick_reaches_what_a_run_holds_that_is_not_polled() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let _runs = two_runs(&ex, phase, other_first, &ended);
        spawn_counted(&ex, 10, &ended);
        tick_all(&ex);
        assert!(ex.is_empty(), "{ended:?} have ended");
    });
}

#[test]
fn tick_reaches_what_a_run_holds_that_is_not_polled() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let _runs = two_runs(&ex, phase, other_first, &ended);
        spawn_counted(&ex, 10, &ended);
        while !ex.is_empty() {
            let mut tick = Puppet::new(ex.tick());
            assert!(tick.poll().is_ready(), "{ended:?} have ended");
        }
    });
}

#[test]
fn a_leaked_run_keeps_no_other_from_its_work() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let [leaked, mut other] = two_runs(&ex, phase, other_first, &ended);
        std::mem::forget(leaked);
        while !ex.is_empty() {
            assert!(other.poll().is_pending());
        }
        drop(other);
        assert_works(&ex);
    });
}

#[test]
fn what_a_leaked_run_holds_is_dropped_with_the_executor() {
    each_phase(|phase, other_first| {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        let [leaked, _other] = two_runs(&ex, phase, other_first, &ended);
        std::mem::forget(leaked);
        drop(_other);
        drop(ex);
        assert_eq!(Arc::strong_count(&ended), 1);
    });
}

#[test]
fn a_tick_that_is_woken_and_dropped_passes_it_on() {
    watched("", || {
        for dropped in 0..2 {
            let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
            let mut ticks = [Some(Puppet::new(ex.tick())), Some(Puppet::new(ex.tick()))];
            for tick in ticks.iter_mut().flatten() {
                assert!(tick.settle().is_pending());
            }
            spawn_counted(&ex, 1, &ended);
            assert!(ticks.iter().flatten().any(Puppet::is_woken));
            ticks[dropped] = None;
            let left = ticks[1 - dropped].as_mut().unwrap();
            assert!(left.is_woken());
            assert!(left.settle().is_ready());
        }
    });
}

#[test]
fn a_run_and_a_tick_get_everything_done_together() {
    watched("", || {
        let (ex, ended) = (Ex::new(), Arc::new(AtomicUsize::new(0)));
        spawn_counted(&ex, 1_000, &ended);
        let ticks = async {
            while ended.load(SeqCst) < 1_000 {
                // The rest may be in the other's hands.
                or(ex.tick(), yields(1)).await;
                yields(1).await;
            }
        };
        let main = async {
            while ended.load(SeqCst) < 1_000 {
                yields(1).await;
            }
        };
        block_on(zip(ticks, ex.run(main)));
        assert!(ex.is_empty());
    });
}

/// Who polls what wakes and spawns.
#[derive(Clone, Copy, Debug)]
enum By {
    TryTick,
    Tick,
    Run,
    /// It is the future of `run`.
    Main,
}

/// While that is under way, another `run` is polled (by `settle`) and idle; it is woken afterwards, and does
/// the rest.
pub fn leaves_the_rest_to_an_idle_run(settle: fn(&mut Puppet<Held>) -> bool) {
    for by in [By::TryTick, By::Tick, By::Run, By::Main] {
        for (wakes, spawns) in [(true, false), (false, true), (true, true)] {
            let ex = Shared::new(Ex::new());
            let (wake, woken) = oneshot::channel::<()>();
            let waits = ex.spawn(async move { _ = woken.await });
            tick_all(&ex);
            let runs = ex.clone();
            let idle = async move { runs.run(pending::<()>()).await };
            let idle = Shared::new(Mutex::new(Puppet::new(Box::pin(idle) as Held)));
            let (inner, other) = (ex.clone(), idle.clone());
            let wakes_and_spawns = async move {
                assert!(settle(&mut other.lock().unwrap()));
                if spawns {
                    inner.spawn(yields(1)).detach();
                }
                let mut wake = Some(wake);
                if wakes {
                    wake.take().unwrap().send(()).unwrap();
                }
                wake
            };
            let _not_yet = match by {
                By::TryTick => {
                    let task = ex.spawn(wakes_and_spawns);
                    assert!(ex.try_tick());
                    block_on(task)
                }
                By::Tick => {
                    let task = ex.spawn(wakes_and_spawns);
                    block_on(ex.tick());
                    block_on(task)
                }
                By::Run => block_on(ex.run(ex.spawn(wakes_and_spawns))),
                By::Main => block_on(ex.run(wakes_and_spawns)),
            };
            let mut idle = idle.lock().unwrap();
            assert!(idle.is_woken() || ex.is_empty(), "by {by:?}, {wakes}, {spawns}");
            assert!(settle(&mut idle));
            assert_eq!(waits.is_finished(), wakes, "by {by:?}, {wakes}, {spawns}");
            drop(waits);
            assert!(settle(&mut idle));
            assert!(ex.is_empty(), "by {by:?}, {wakes}, {spawns}");
        }
    }
}

#[test]
fn an_idle_run_is_woken_for_what_others_on_its_thread_leave() {
    watched("", || leaves_the_rest_to_an_idle_run(|idle| idle.settle().is_pending()));
}

#[test]
fn two_runs_on_one_thread_await_each_others_tasks() {
    watched("", || {
        let ex = Ex::new();
        let [a, b] = [5, 50].map(|times| {
            ex.spawn(async move {
                yields(times).await;
                times
            })
        });
        assert_eq!(block_on(zip(ex.run(b), ex.run(a))), (50, 5));
    });
}

#[test]
fn runs_of_one_executor_nest() {
    watched("", || {
        let ex = Ex::new();
        let task = ex.spawn(async {
            yields(10).await;
            1
        });
        let run = ex.run(async { ex.run(async { ex.run(task).await + 1 }).await + 1 });
        assert_eq!(block_on(run), 3);
        assert!(ex.is_empty());
    });
}

#[test]
fn a_task_may_drive_its_own_executor() {
    watched("", || {
        let ex = Shared::new(Ex::new());
        let inner = ex.clone();
        let task = ex.spawn(async move {
            let ticked = inner.spawn(async { 1 });
            while !ticked.is_finished() {
                assert!(inner.try_tick());
            }
            // On this thread, inside this poll.
            let in_run = block_on(inner.run(inner.spawn(async {
                yields(3).await;
                10
            })));
            // Beside this future.
            let beside = inner.run(inner.spawn(async { 100 })).await;
            ticked.await + in_run + beside
        });
        assert_eq!(block_on(ex.run(task)), 111);
        assert!(ex.is_empty());
    });
}

#[test]
fn a_run_is_dropped_in_the_middle_of_a_poll_of_its_own_executors_task() {
    watched("", || {
        let ex = Shared::new(Ex::new());
        for _ in 0..100 {
            let (inner, ended) = (ex.clone(), Arc::new(AtomicUsize::new(0)));
            let counted = ended.clone();
            let task = ex.spawn(async move {
                let mut run = Puppet::new(inner.run(pending::<()>()));
                spawn_counted(&inner, 300, &counted);
                assert!(run.poll().is_pending());
                drop(run);
            });
            block_on(ex.run(async {
                task.await;
                while ended.load(SeqCst) < 300 {
                    yields(1).await;
                }
            }));
        }
        assert!(ex.is_empty());
    });
}
