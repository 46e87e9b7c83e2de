//! What a supervisor promises: after which ends its child is started anew, how often, and that it never
//! outlives the supervisor. Waits are short, and judged by order and number.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

mod common;

use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::poll;
use paceline::supervise::{GaveUp, Restart, Supervisor};
use paceline::time::sleep;
use paceline::{Builder, Handle, Runtime, Task, block_on, yield_now};

use common::{Census, hand_made, on_drop, on_each, on_each_size, silent_panic, until};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Waits hardly at all, and forgets no restart.
fn supervisor(restarts: u32) -> Supervisor {
    Supervisor::new("child").backoff(MS / 100, MS).intensity(restarts, HOUR)
}

/// Counts how often a child was started.
#[derive(Clone, Default)]
struct Starts(Arc<AtomicUsize>);

impl Starts {
    /// One more; which one it is.
    fn one(&self) -> usize {
        self.0.fetch_add(1, SeqCst) + 1
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// The output of a supervised child on `runtime`, and how often it was started. `child` is told which
/// of them it is.
fn supervised<T: Send + 'static>(
    runtime: &Runtime,
    supervisor: Supervisor,
    child: impl Fn(usize) -> T + Clone + Send + 'static,
) -> (Result<T, GaveUp>, usize) {
    let (starts, counter) = (Starts::default(), Starts::default());
    let started = counter.clone();
    let start = move || {
        started.one();
        let (starts, child) = (starts.clone(), child.clone());
        async move {
            yield_now().await;
            child(starts.one())
        }
    };
    let result = runtime.block_on(async { supervisor.spawn(start).await });
    (result, counter.count())
}

async fn crash() {
    silent_panic()
}

/// An output only at the `last` start.
fn panic_until(last: usize) -> impl Fn(usize) -> usize + Clone {
    move |start| if start < last { silent_panic() } else { start }
}

#[track_caller]
fn payload<T: 'static>(gave_up: GaveUp) -> T {
    let error = gave_up.error.expect("a panic");
    *error.into_panic().downcast().expect("the child's own payload")
}

#[test]
fn a_child_that_panics_is_started_anew_until_it_has_an_output() {
    on_each(|runtime| {
        for last in 1..5 {
            let (result, starts) = supervised(&runtime, supervisor(10), panic_until(last));
            assert_eq!((result.unwrap(), starts), (last, last));
        }
    });
}

#[test]
fn the_default_is_to_restart_after_panics_five_times_at_most() {
    on_each(|runtime| {
        let (result, _) = supervised(&runtime, Supervisor::new("child"), panic_until(6));
        assert_eq!(result.unwrap(), 6);
        let (result, _) = supervised(&runtime, Supervisor::new("child"), panic_until(7));
        assert_eq!(result.unwrap_err().restarts, 5);
    });
}

#[test]
fn an_output_is_not_followed_by_a_restart_also_if_it_is_an_error() {
    on_each(|runtime| {
        for restart in [Restart::Never, Restart::OnPanic] {
            let child = |_| Err::<(), _>("no luck");
            let (result, starts) = supervised(&runtime, supervisor(10).restart(restart), child);
            assert_eq!((result.unwrap(), starts), (Err("no luck"), 1), "{restart:?}");
        }
    });
}

#[test]
fn one_that_is_always_restarted_is_so_after_outputs_and_panics() {
    on_each(|runtime| {
        let always = supervisor(5).restart(Restart::Always);
        let child = |start| if start % 2 == 0 { panic_any(start) } else { start };
        let (result, starts) = supervised(&runtime, always.clone(), child);
        let gave_up = result.unwrap_err();
        assert_eq!((gave_up.restarts, starts), (5, 6));
        assert_eq!(payload::<usize>(gave_up), 6, "that of the last");

        let (result, starts) = supervised(&runtime, always, |start| start);
        let gave_up = result.unwrap_err();
        assert_eq!((gave_up.restarts, starts), (5, 6));
        assert_eq!(gave_up.to_string(), "\"child\" is given up after 5 restarts: task finished");
        assert!(gave_up.error.is_none());
    });
}

#[test]
fn one_that_is_never_restarted_is_given_up_at_its_first_panic() {
    on_each(|runtime| {
        let never = supervisor(10).restart(Restart::Never);
        let (result, starts) = supervised(&runtime, never, panic_until(2));
        assert_eq!((result.unwrap_err().restarts, starts), (0, 1));
    });
}

#[test]
fn a_child_is_restarted_as_often_as_the_limit_says_and_then_given_up() {
    fn is_an_error<E: std::error::Error + Send + Sync + 'static>(_: &E) {}
    on_each(|runtime| {
        for (limit, restarts) in [(0, "0 restarts"), (1, "1 restart"), (7, "7 restarts")] {
            let child = |start| -> () { panic!("start {start}") };
            let (result, starts) = supervised(&runtime, supervisor(limit), child);
            let gave_up = result.unwrap_err();
            is_an_error(&gave_up);
            assert_eq!(&*gave_up.name, "child");
            assert_eq!((gave_up.restarts, starts), (limit.into(), limit as usize + 1));
            let message =
                format!("\"child\" is given up after {restarts}: task panicked: start {starts}");
            assert_eq!(gave_up.to_string(), message);
        }
    });
}

#[test]
fn the_panics_payload_is_delivered() {
    on_each(|runtime| {
        let child = |start: usize| -> () { panic_any([start, 7]) };
        let (result, _) = supervised(&runtime, supervisor(1), child);
        assert_eq!(payload::<[usize; 2]>(result.unwrap_err()), [2, 7]);
    });
}

/// Each of the first children runs for longer than the period, so that its restart is forgotten.
#[test]
fn restarts_that_are_longer_ago_than_the_period_do_not_count() {
    on_each(|runtime| {
        let starts = Starts::default();
        let start = move || {
            let is_long = starts.one() <= 4;
            async move {
                if is_long {
                    sleep(30 * MS).await;
                }
                crash().await;
            }
        };
        let supervisor = Supervisor::new("child").backoff(MS, MS).intensity(1, 20 * MS);
        let gave_up = runtime.block_on(supervisor.run(start)).unwrap_err();
        // The fifth is the first that can be the one too many.
        assert!(gave_up.restarts >= 4, "{gave_up}");
    });
}

#[test]
fn a_panic_in_making_the_child_is_one_of_the_childs() {
    on_each(|runtime| {
        let starts = Starts::default();
        let started = starts.clone();
        let start = move || match started.one() {
            3 => ready(3),
            start => panic_any(start),
        };
        let result = runtime.block_on(supervisor(2).run(start.clone()));
        assert_eq!(result.unwrap(), 3);
        let result = runtime.block_on(supervisor(2).run(start));
        assert_eq!(payload::<usize>(result.unwrap_err()), 6);
    });
}

#[test]
fn a_child_has_been_dropped_before_the_next_one_is_made() {
    on_each(|runtime| {
        let (census, overlaps) = (Census::new(), Arc::new(Mutex::new(Vec::new())));
        let found = overlaps.clone();
        let start = move || {
            let alive = census.born() - census.dead();
            found.lock().unwrap().push(alive);
            let (one, panics) = (census.one(), census.born() % 2 == 0);
            let poll =
                move |_: &mut Context<'_>| if panics { silent_panic() } else { Poll::Ready(()) };
            hand_made(poll, move || drop(one))
        };
        let always = supervisor(100).restart(Restart::Always).backoff(Duration::ZERO, MS);
        assert_eq!(runtime.block_on(always.spawn(start)).unwrap_err().restarts, 100);
        assert_eq!(*overlaps.lock().unwrap(), [0; 101]);
    });
}

#[test]
fn waits_are_at_least_half_as_long_as_they_are_set() {
    on_each(|runtime| {
        let start = Instant::now();
        let supervisor = supervisor(4).backoff(10 * MS, 20 * MS);
        let (result, _) = supervised(&runtime, supervisor, panic_until(5));
        assert_eq!(result.unwrap(), 5);
        assert!(start.elapsed() >= (10 + 20 + 20 + 20) * MS / 2, "{:?}", start.elapsed());
    });
}

/// A child that says that it runs, and then waits for ever; one of `census`, as is what makes it.
fn lasting(
    census: &Census,
    runs: mpsc::Sender<()>,
) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
    let (census, maker) = (census.clone(), census.one());
    move || {
        let _ = &maker;
        let (one, runs) = (census.one(), runs.clone());
        Box::pin(async move {
            let _one = one;
            runs.send(()).unwrap();
            pending().await
        })
    }
}

#[test]
fn dropping_or_cancelling_the_supervisor_drops_the_child() {
    on_each(|runtime| {
        for cancel in [false, true] {
            let (census, (runs, told)) = (Census::new(), mpsc::channel());
            let task = runtime.spawn(supervisor(5).run(lasting(&census, runs)));
            told.recv().unwrap();
            assert_eq!((census.born(), census.dead()), (2, 0));
            if cancel {
                assert!(runtime.block_on(task.cancel()).is_none());
            } else {
                drop(task);
            }
            until(|| census.dead() == 2);
            assert!(told.recv().is_err(), "no other child is started");
        }
    });
}

#[test]
fn dropping_the_future_drops_the_child_whether_or_not_that_has_begun() {
    on_each(|runtime| {
        let (census, (runs, told)) = (Census::new(), mpsc::channel());
        runtime.block_on(async {
            for _ in 0..100 {
                let mut supervised = Box::pin(supervisor(5).run(lasting(&census, runs.clone())));
                assert!(poll!(&mut supervised).is_pending());
            }
        });
        until(|| census.dead() == 200);
        assert!(told.try_iter().count() <= 100);
    });
}

#[test]
fn a_supervisor_that_is_cancelled_while_it_waits_starts_no_other_child() {
    on_each(|runtime| {
        let (runs, told) = mpsc::channel();
        let start = move || {
            runs.send(()).unwrap();
            crash()
        };
        let task = runtime.spawn(supervisor(5).backoff(HOUR, HOUR).run(start));
        told.recv().unwrap();
        assert!(runtime.block_on(task.cancel()).is_none());
        assert!(told.recv().is_err());
    });
}

/// Of a runtime that was dropped. Most likely the task is cancelled; but if it was in the middle of a poll,
/// it has seen what became of its child.
#[track_caller]
fn expect_stopped(supervised: Task<Result<(), GaveUp>>) {
    match block_on(supervised.fallible()) {
        None => {}
        Some(Ok(())) => panic!("the child has no output"),
        Some(Err(gave_up)) => assert!(gave_up.error.is_some_and(|error| error.is_cancelled())),
    }
}

#[test]
fn a_dropped_runtime_ends_supervisor_and_child() {
    on_each(|runtime| {
        let (census, (runs, told)) = (Census::new(), mpsc::channel());
        let task = runtime.spawn(supervisor(5).run(lasting(&census, runs)));
        told.recv().unwrap();
        drop(runtime);
        assert_eq!((census.born(), census.dead()), (2, 2));
        expect_stopped(task);
    });
}

#[test]
fn a_dropped_runtime_ends_a_supervisor_that_waits() {
    on_each(|runtime| {
        let (runs, told) = mpsc::channel();
        let start = move || {
            let runs = runs.clone();
            let ended = on_drop(move || runs.send(()).unwrap());
            async move {
                let _ended = ended;
                crash().await;
            }
        };
        let task = runtime.spawn(supervisor(5).backoff(HOUR, HOUR).run(start));
        told.recv().unwrap();
        drop(runtime);
        assert!(told.recv().is_err(), "`start` is dropped, and was not called again");
        expect_stopped(task);
    });
}

/// Whoever outlives the child's runtime is told.
#[test]
fn a_supervisor_elsewhere_gives_up_when_the_childs_runtime_stops() {
    on_each(|runtime| {
        let (census, (runs, told)) = (Census::new(), mpsc::channel());
        let handle = runtime.handle().clone();
        let start = lasting(&census, runs);
        let elsewhere = thread::spawn(move || {
            let _guard = handle.enter();
            let always = supervisor(5).restart(Restart::Always);
            let first = futures::executor::block_on(always.clone().run(start));
            // By now no child can be spawned at all.
            let second = futures::executor::block_on(always.run(pending::<()>));
            [first, second]
        });
        told.recv().unwrap();
        drop(runtime);
        for result in elsewhere.join().unwrap() {
            let gave_up = result.unwrap_err();
            let message = "\"child\" is given up after 0 restarts: task was cancelled";
            assert_eq!(gave_up.to_string(), message);
            assert!(gave_up.error.is_some_and(|error| error.is_cancelled()));
        }
        assert_eq!(census.dead(), census.born());
    });
}

#[test]
fn children_are_tasks_of_the_runtime_that_runs_the_supervisor() {
    on_each_size(|workers| {
        let there = Builder::new().worker_threads(workers).thread_name("there").build().unwrap();
        let where_am_i = || async { Handle::current().config().thread_name().to_owned() };
        let there = there.handle().spawn(supervisor(5).run(where_am_i));
        assert_eq!(block_on(there).unwrap(), "there");
    });
}

#[test]
fn a_detached_supervisor_keeps_its_child_alive() {
    on_each(|runtime| {
        let (tell, told) = mpsc::channel();
        let starts = Starts::default();
        let start = move || {
            let (start, tell) = (starts.one(), tell.clone());
            async move {
                tell.send(start).unwrap();
                if start < 4 {
                    crash().await;
                }
            }
        };
        runtime.block_on(async { supervisor(5).spawn(start).detach() });
        assert!(told.iter().eq(1..=4));
    });
}

#[test]
fn that_an_inner_supervisor_gave_up_is_passed_on_by_a_child_that_unwraps_it() {
    on_each(|runtime| {
        let starts = Starts::default();
        let started = starts.clone();
        let inner = move || {
            started.one();
            crash()
        };
        let outer = move || {
            let inner = supervisor(2).run(inner.clone());
            async { inner.await.unwrap_or_else(|gave_up| panic_any(gave_up.restarts)) }
        };
        let gave_up = runtime.block_on(supervisor(3).run(outer)).unwrap_err();
        assert_eq!((gave_up.restarts, starts.count()), (3, 4 * 3));
        assert_eq!(payload::<u64>(gave_up), 2);
    });
}

#[test]
fn an_output_whose_destructor_panics_ends_no_supervisor() {
    on_each(|runtime| {
        let always = supervisor(2).restart(Restart::Always);
        let (result, starts) = supervised(&runtime, always, |_| on_drop(|| silent_panic()));
        let gave_up = result.map(drop).unwrap_err();
        assert_eq!((gave_up.restarts, gave_up.error.is_none(), starts), (2, true, 3));
    });
}

#[test]
fn settings_that_contradict_themselves_are_refused() {
    #[track_caller]
    fn refused(set: impl FnOnce() -> Supervisor) -> String {
        let payload = catch_unwind(AssertUnwindSafe(set)).map(drop).expect_err("to be refused");
        *payload.downcast().expect("a message")
    }
    let message = refused(|| Supervisor::new("child").backoff(2 * MS, MS));
    assert!(message.contains("backoff") && message.contains("2ms"), "{message}");
    let message = refused(|| Supervisor::new("child").intensity(5, Duration::ZERO));
    assert!(message.contains("period") && message.contains("0ns"), "{message}");
}
