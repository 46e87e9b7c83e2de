//! Ticks inside of a `run`, the outer executor's turn, and a host's turns.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures_lite::future::{block_on, yield_now, zip};

use super::{Ex, Puppet, Shared, idle_run, yields};
use crate::common::watched;

const ENDLESS: Duration = Duration::from_secs(1_000);

#[test]
fn ticks_inside_of_a_run_lose_no_task_that_gives_way() {
    watched("", || {
        let ex = Shared::new(Ex::new());
        let inner = ex.clone();
        let tasks = [ex.spawn(yields(3)), ex.spawn(yields(3))];
        block_on(ex.run(async move {
            assert!(inner.try_tick() && inner.try_tick());
            for task in tasks {
                task.await;
            }
        }));
    });
}

#[test]
fn a_task_that_gives_way_in_a_tick_inside_of_a_run_is_there_for_the_next_tick() {
    watched("", || {
        let ex = Shared::new(Ex::new());
        let inner = ex.clone();
        block_on(ex.run(async move {
            let task = inner.spawn(yields(5));
            while !task.is_finished() {
                assert!(inner.try_tick());
            }
            let task = inner.spawn(yields(5));
            while !task.is_finished() {
                block_on(inner.tick());
            }
        }));
    });
}

#[test]
fn a_main_future_that_wakes_itself_keeps_no_outer_executor_from_its_turn() {
    watched("", || {
        let (ex, done) = (Ex::new(), AtomicBool::new(false));
        block_on(zip(
            ex.run(async {
                while !done.load(SeqCst) {
                    yield_now().await;
                }
            }),
            async { done.store(true, SeqCst) },
        ));
    });
}

/// In every state that a `run` may be left in: after so many polls it has given way, with a task that has
/// just given way itself, or has been woken from elsewhere.
#[test]
fn a_run_that_was_left_at_any_point_keeps_no_drop_waiting() {
    watched("", || {
        for polls in 55..75 {
            let ex = Ex::new();
            let inner = async { yields(polls).await };
            ex.spawn(inner).detach();
            let mut run = Box::pin(Puppet::new(idle_run(&ex)));
            assert!(run.poll().is_pending());
            ex.spawn(pending::<()>()).detach();
            ex.spawn(yields(100)).detach();
            assert!(run.poll().is_pending());
            std::mem::forget(run);
        }
    });
}

/// A callback, and how often it was called.
fn told(ex: &Ex<'_>) -> Arc<AtomicUsize> {
    let times = Arc::new(AtomicUsize::new(0));
    let count = times.clone();
    ex.on_ready(move || _ = count.fetch_add(1, SeqCst));
    times
}

#[test]
fn a_host_is_told_once_after_every_turn_that_left_nothing() {
    for budget in [Duration::ZERO, ENDLESS] {
        let ex = Ex::new();
        let times = told(&ex);
        for round in 1..10 {
            ex.spawn(async {}).detach();
            assert_eq!(times.load(SeqCst), round, "{budget:?}");
            ex.spawn(async {}).detach();
            assert_eq!(times.load(SeqCst), round, "{budget:?}");
            while !ex.run_until_stalled(budget) {}
            assert!(ex.is_empty());
        }
    }
}

#[test]
fn a_turn_without_a_budget_runs_one_task_and_tells_of_what_is_left() {
    let (ex, polls) = (Ex::new(), Shared::new(AtomicUsize::new(0)));
    let times = told(&ex);
    let count = polls.clone();
    let task = ex.spawn(async move {
        for _ in 0..10 {
            count.fetch_add(1, SeqCst);
            yield_now().await;
        }
    });
    for poll in 1..=10 {
        assert!(!ex.run_until_stalled(Duration::ZERO), "it has given way");
        assert_eq!(polls.load(SeqCst), poll);
    }
    assert!(ex.run_until_stalled(Duration::ZERO));
    assert!(task.is_finished());
    assert_eq!(times.load(SeqCst), 1);
}

/// Judged by what was polled: every poll is longer than the budget.
#[test]
fn a_turn_takes_no_second_poll_when_its_budget_is_over() {
    let (ex, polls) = (Ex::new(), Shared::new(AtomicUsize::new(0)));
    let long = Duration::from_millis(2);
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let polls = polls.clone();
            ex.spawn(async move {
                polls.fetch_add(1, SeqCst);
                let begun = std::time::Instant::now();
                while begun.elapsed() < long {}
            })
        })
        .collect();
    for turn in 1..20 {
        assert!(!ex.run_until_stalled(long / 2));
        assert_eq!(polls.load(SeqCst), turn);
    }
    assert!(ex.run_until_stalled(long / 2));
    assert!(tasks.iter().all(|task| task.is_finished()));
}

#[test]
fn a_host_is_told_although_somebody_who_was_called_does_not_come() {
    let ex = Ex::new();
    let times = told(&ex);
    let mut called = Puppet::new(ex.tick());
    assert!(called.poll().is_pending());
    ex.spawn(async {}).detach();
    assert!(called.is_woken());
    assert!(ex.run_until_stalled(ENDLESS));
    let before = times.load(SeqCst);
    ex.spawn(async {}).detach();
    assert_eq!(times.load(SeqCst), before + 1);
    drop(called);
}

#[test]
fn a_callback_that_panics_is_contained() {
    let ex = Ex::new();
    ex.spawn(async {}).detach();
    ex.on_ready(|| panic!("in a callback"));
    assert!(ex.run_until_stalled(ENDLESS));
    ex.spawn(async {}).detach();
    assert!(ex.run_until_stalled(ENDLESS));
}
