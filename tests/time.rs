//! Timers: never early, set anew, in order, beside whatever else runs, wherever they are polled.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

mod common;

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    compute_until, on_each, on_each_size, poll_once, runtime, self_waker, silent_panic, until,
    waker_that, watched,
};
use futures::future::{join_all, select};
use futures::{Stream, StreamExt, poll};
use paceline::time::{
    MissedTickBehavior, Sleep, interval, interval_at, sleep, sleep_until, timeout, timeout_at,
};
use paceline::{
    Builder, Handle, Runtime, Task, Ticker, Timer, block_on, spawn, yield_if_due, yield_now,
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
/// Timers in flight at once.
const MANY: usize = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };

/// From zero to 20 ms, few of them whole microseconds.
fn lengths(count: u64) -> impl Iterator<Item = Duration> {
    (0..count).map(|i| Duration::from_nanos(i * 7_919 * 7_919 % 20_000_000))
}

/// Waits in every way that there is.
async fn wait_for(length: Duration) {
    let start = Instant::now();
    sleep(length).await;
    assert!(start.elapsed() >= length, "sleep of {length:?}");

    let deadline = Instant::now() + length;
    sleep_until(deadline).await;
    assert!(Instant::now() >= deadline, "sleep_until in {length:?}");

    let deadline = Instant::now() + length;
    let set_for = Timer::after(length).await;
    assert!(set_for >= deadline && Instant::now() >= set_for, "timer of {length:?}");

    let start = Instant::now();
    assert!(timeout(length, pending::<()>()).await.is_err());
    assert!(start.elapsed() >= length, "timeout of {length:?}");

    if !length.is_zero() {
        let mut ticks = interval(length);
        for _ in 0..2 {
            let planned = ticks.tick().await;
            assert!(Instant::now() >= planned, "tick of {length:?}");
        }
    }
}

#[test]
fn a_task_never_wakes_early() {
    on_each(|runtime| {
        let tasks: Vec<_> = lengths(500).map(|length| runtime.spawn(wait_for(length))).collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task));
    });
}

#[test]
fn block_on_never_wakes_early() {
    on_each(|runtime| {
        runtime.block_on(async {
            for length in lengths(12) {
                wait_for(length).await;
            }
            join_all(lengths(300).map(wait_for)).await;
        });
    });
}

#[test]
fn a_thread_outside_of_any_runtime_never_wakes_early() {
    watched("foreign", || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| futures::executor::block_on(join_all(lengths(100).map(wait_for))));
            }
        });
    });
}

/// What has begun runs on, whoever waited for it; also if no ticker looks after it.
#[test]
fn detached_tasks_wake_after_block_on_has_returned() {
    on_each_size(|workers| {
        for ticker in [Ticker::Adaptive, Ticker::Off] {
            for main_sleeps in [false, true] {
                let runtime =
                    Builder::new().worker_threads(workers).ticker(ticker).build().unwrap();
                let (tell, told) = mpsc::channel();
                runtime.block_on(async {
                    for length in lengths(20) {
                        let tell = tell.clone();
                        spawn(async move {
                            sleep(length).await;
                            tell.send(()).unwrap();
                        })
                        .detach();
                    }
                    if main_sleeps {
                        // So that this very thread sleeps in the reactor, and leaves.
                        sleep(2 * MS).await;
                    }
                });
                (0..20).for_each(|_| told.recv().unwrap());
            }
        }
    });
}

#[test]
fn a_sleep_of_zero_is_over_at_once() {
    on_each(|runtime| {
        runtime.block_on(async { assert!(poll!(sleep(Duration::ZERO)).is_ready()) });
        let task = async { assert!(poll!(sleep_until(Instant::now())).is_ready()) };
        runtime.block_on(runtime.spawn(task));
    });
    assert!(poll_once(&mut sleep(Duration::ZERO), Waker::noop()).is_ready());
}

/// Deadlines that the clock cannot tell, and deadlines in a thousand years.
#[test]
fn a_deadline_beyond_the_clock_never_comes() {
    on_each(|runtime| {
        let woken = Arc::new(AtomicUsize::new(0));
        let waker = {
            let woken = woken.clone();
            waker_that(move || _ = woken.fetch_add(1, SeqCst))
        };
        let timers = runtime.block_on(async {
            let year = 365 * 24 * HOUR;
            let far = [1, 291, 292, 293, 1_000].map(|years| Timer::after(years * year));
            let never = [Duration::MAX, Duration::MAX - MS].map(Timer::after);
            assert!(never.iter().all(|timer| !timer.will_fire()));
            let mut timers: Vec<_> = far.into_iter().chain(never).collect();
            for timer in &mut timers {
                assert!(poll_once(timer, &waker).is_pending());
            }
            assert_eq!(sleep(Duration::MAX).deadline(), None);
            assert_eq!(timeout(Duration::MAX, async { 1 }).await, Ok(1));

            let mut ticks = interval(Duration::MAX);
            ticks.tick().await;
            assert!(poll!(pin!(ticks.tick())).is_pending());
            ticks.reset();
            assert!(poll!(pin!(ticks.tick())).is_pending());
            ticks.reset_immediately();
            ticks.tick().await;

            for length in lengths(5) {
                sleep(length).await;
            }
            timers
        });
        assert_eq!((woken.load(SeqCst), runtime.metrics().timers), (0, 5));
        drop(timers);
        assert_eq!(runtime.metrics().timers, 0);
    });
}

// Set anew.

#[test]
fn a_sleep_that_is_reset_is_over_at_its_new_deadline() {
    on_each(|runtime| {
        let resets = async {
            let mut sleep = sleep(HOUR);
            assert!(poll!(&mut sleep).is_pending());
            // Earlier, later, after it was over; and later again, past the one it was armed for.
            for length in [5 * MS, 7 * MS, MS] {
                let deadline = Instant::now() + length;
                sleep.reset(deadline);
                assert_eq!(sleep.deadline(), Some(deadline));
                (&mut sleep).await;
                assert!(Instant::now() >= deadline && sleep.is_elapsed());
                assert!(poll!(&mut sleep).is_ready(), "it stays so");
            }
            sleep.reset(Instant::now() + MS);
            let _ = poll!(&mut sleep);
            let deadline = Instant::now() + 10 * MS;
            sleep.reset(deadline);
            sleep.await;
            assert!(Instant::now() >= deadline);
        };
        runtime.block_on(resets);
    });
}

/// A task that polls `timer`, tells of every poll, and then of the moment that it fired for.
fn watch(
    runtime: &Runtime,
    timer: &Arc<Mutex<Timer>>,
) -> (mpsc::Receiver<()>, mpsc::Receiver<Instant>) {
    let ((polled, polls), (tell, told)) = (mpsc::channel(), mpsc::channel());
    let timer = timer.clone();
    let watching = async move {
        let fired = poll_fn(|cx| {
            let poll = Pin::new(&mut *timer.lock().unwrap()).poll(cx);
            let _ = polled.send(());
            poll
        });
        let set_for = fired.await;
        assert!(Instant::now() >= set_for);
        tell.send(set_for).unwrap();
    };
    runtime.spawn(watching).detach();
    (polls, told)
}

/// The task is polled twice: at first, and when its timer fires.
#[test]
fn a_timer_set_by_somebody_else_wakes_the_task_that_polled_it() {
    on_each(|runtime| {
        for by_a_task in [false, true] {
            for timer in [Timer::after(HOUR), Timer::never(), Timer::interval(HOUR)] {
                let timer = Arc::new(Mutex::new(timer));
                let (polls, fired) = watch(&runtime, &timer);
                polls.recv().unwrap();
                let soon = Instant::now() + 3 * MS;
                if by_a_task {
                    let timer = timer.clone();
                    runtime
                        .block_on(runtime.spawn(async move { timer.lock().unwrap().set_at(soon) }));
                } else {
                    timer.lock().unwrap().set_at(soon);
                }
                assert_eq!(fired.recv(), Ok(soon));
                assert_eq!(polls.iter().count(), 1, "and only then");
            }
        }
    });
}

#[test]
fn a_timer_put_off_by_somebody_else_does_not_fire_before() {
    on_each(|runtime| {
        let timer = Arc::new(Mutex::new(Timer::after(10 * MS)));
        let (polls, fired) = watch(&runtime, &timer);
        polls.recv().unwrap();
        for _ in 0..20 {
            timer.lock().unwrap().set_after(10 * MS);
        }
        timer.lock().unwrap().set_after(HOUR);
        // What was put off too late has fired, or is polled anew.
        let before = Instant::now();
        let last = before + 20 * MS;
        runtime.block_on(sleep_until(last));
        timer.lock().unwrap().set_at(last);
        let set_for = fired.recv().unwrap();
        assert!(set_for == last || set_for <= before, "{set_for:?}, {last:?}");
    });
}

/// Arms a timer that is about to fire.
fn arm_soon(waker: &Waker) -> Timer {
    loop {
        let mut timer = Timer::after(MS);
        if poll_once(&mut timer, waker).is_pending() {
            return timer;
        }
    }
}

#[test]
fn a_waker_may_drop_its_own_timer_and_others() {
    on_each(|runtime| {
        let timers: Arc<Mutex<Vec<Timer>>> = Arc::default();
        let (tell, told) = mpsc::channel();
        let waker = {
            let timers = timers.clone();
            waker_that(move || {
                let gone = std::mem::take(&mut *timers.lock().unwrap());
                drop(gone);
                tell.send(()).unwrap();
            })
        };
        for others_are_due in [true, false] {
            runtime.block_on(async {
                // Dropped by the waker, which waits for it until all are armed.
                let mut armed = timers.lock().unwrap();
                armed.push(arm_soon(&waker));
                for _ in 0..100 {
                    let mut other = Timer::after(if others_are_due { MS } else { HOUR });
                    let _ = poll_once(&mut other, &waker);
                    armed.push(other);
                }
            });
            told.recv().unwrap();
            until(|| runtime.metrics().timers == 0);
        }
    });
}

#[test]
fn a_waker_may_arm_a_timer() {
    on_each(|runtime| {
        let (tell, told) = mpsc::channel();
        let waker = waker_that(move || {
            let tell = tell.clone();
            let fired = waker_that(move || tell.send(()).unwrap());
            // It fires although it is dropped nowhere: it is leaked, as the waker lasts.
            std::mem::forget(arm_soon(&fired));
        });
        // Not awaited: what counts is who calls the waker.
        let _timer = runtime.block_on(poll_fn(|_| Poll::Ready(arm_soon(&waker))));
        told.recv().unwrap();
    });
}

#[test]
fn a_waker_that_panics_does_not_keep_others_from_being_woken() {
    on_each(|runtime| {
        let waker = waker_that(|| silent_panic());
        let _timers = runtime.block_on(async {
            let timers: Vec<_> = (0..10).map(|_| arm_soon(&waker)).collect();
            sleep(3 * MS).await;
            timers
        });
        runtime.block_on(runtime.spawn(sleep(MS)));
        until(|| runtime.metrics().timers == 0);
    });
}

#[test]
fn the_last_waker_is_woken_at_the_same_deadline() {
    on_each(|runtime| {
        let woken: Arc<Mutex<Vec<usize>>> = Arc::default();
        let (tell, told) = mpsc::channel();
        let wakers: Vec<_> = (0..3)
            .map(|number| {
                let (woken, tell) = (woken.clone(), tell.clone());
                waker_that(move || {
                    woken.lock().unwrap().push(number);
                    tell.send(Instant::now()).unwrap();
                })
            })
            .collect();
        let deadline = Instant::now() + 15 * MS;
        let mut sleep = sleep_until(deadline);
        let armed = runtime.block_on(async {
            let polls = wakers.iter().all(|waker| poll_once(&mut sleep, waker).is_pending());
            polls && Instant::now() < deadline - 5 * MS
        });
        assert!(told.recv().unwrap() >= deadline);
        if armed {
            assert_eq!(*woken.lock().unwrap(), [2]);
        }
    });
}

// Order, and what else runs.

#[test]
fn an_output_beats_a_deadline() {
    on_each(|runtime| {
        runtime.block_on(async {
            let past = Instant::now();
            assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
            assert_eq!(timeout_at(past, async { 1 }).await, Ok(1));
            assert!(timeout(Duration::ZERO, pending::<()>()).await.is_err());

            let ready = AtomicBool::new(false);
            let output =
                poll_fn(|_| if ready.load(SeqCst) { Poll::Ready(1) } else { Poll::Pending });
            let deadline = Instant::now() + 2 * MS;
            let mut limited = pin!(timeout_at(deadline, output));
            let waits = poll!(&mut limited).is_pending();
            compute_until(deadline + MS);
            ready.store(true, SeqCst);
            if waits {
                assert_eq!(limited.await, Ok(1));
            }
        });
    });
}

type Endless = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Futures that could go on for ever.
fn endless() -> Vec<(&'static str, Endless)> {
    let computing = || compute_until(Instant::now() + Duration::from_micros(30));
    vec![
        ("wakes itself", Box::pin(self_waker(Arc::default()))),
        (
            "yields",
            Box::pin(async {
                loop {
                    yield_now().await;
                }
            }),
        ),
        (
            "yields when due",
            Box::pin(async move {
                loop {
                    computing();
                    yield_if_due().await;
                }
            }),
        ),
        (
            "sleeps for no time",
            Box::pin(async {
                loop {
                    sleep(Duration::ZERO).await;
                }
            }),
        ),
        (
            "sleeps for no time and computes",
            Box::pin(async move {
                loop {
                    computing();
                    sleep(Duration::ZERO).await;
                }
            }),
        ),
        (
            "catches up",
            Box::pin(async move {
                let mut ticks = interval(Duration::from_nanos(1));
                loop {
                    computing();
                    ticks.tick().await;
                }
            }),
        ),
    ]
}

#[test]
fn a_timeout_fires_although_the_future_is_always_ready_to_run_again() {
    on_each(|runtime| {
        for (what, future) in endless() {
            eprintln!("{what}");
            assert!(runtime.block_on(timeout(2 * MS, future)).is_err(), "{what}");
        }
        for (what, future) in endless() {
            eprintln!("{what}, in a task");
            assert!(runtime.block_on(runtime.spawn(timeout(2 * MS, future))).is_err(), "{what}");
        }
        for (what, future) in endless() {
            eprintln!("{what}, on another executor");
            let limited = timeout(2 * MS, future);
            assert!(futures::executor::block_on(limited).is_err(), "{what}");
        }
    });
}

/// As above, with a combinator that knows nothing of slices.
#[test]
fn a_sleep_fires_beside_a_future_that_is_always_ready_to_run_again() {
    on_each(|runtime| {
        for (what, future) in endless() {
            eprintln!("{what}");
            runtime.block_on(select(future, sleep(2 * MS)));
        }
        for (what, future) in endless() {
            eprintln!("{what}, in a task");
            let both = async { drop(select(future, sleep(2 * MS)).await) };
            runtime.block_on(runtime.spawn(both));
        }
        for (what, future) in endless() {
            eprintln!("{what}, in a nested block_on");
            let (handle, both) = (runtime.handle().clone(), select(future, sleep(2 * MS)));
            runtime.block_on(runtime.spawn(async move { drop(handle.block_on(both)) }));
        }
    });
}

#[test]
fn timers_fire_beside_tasks_that_wake_themselves() {
    on_each(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..8).map(|_| runtime.spawn(self_waker(stop.clone()))).collect();
        let tasks: Vec<_> = lengths(50).map(|length| runtime.spawn(sleep(length))).collect();
        runtime.block_on(sleep(2 * MS));
        tasks.into_iter().for_each(|task| runtime.block_on(task));
        stop.store(true, SeqCst);
        hogs.into_iter().for_each(|task| runtime.block_on(task));
    });
}

#[test]
fn tasks_that_only_sleep_again_and_again_all_finish() {
    on_each(|runtime| {
        let tasks: Vec<_> = (0..100)
            .map(|i| {
                runtime.spawn(async move {
                    for length in lengths(10) {
                        sleep(length / (i % 10 + 1)).await;
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task));
        assert_eq!(runtime.metrics().timers, 0);
    });
}

/// Offsets between which there are nanoseconds, microseconds, or nothing, well mixed.
fn offsets() -> Vec<Duration> {
    let near = (0..50).map(Duration::from_nanos);
    let far = (0..100).map(|i| Duration::from_micros(3 * i));
    let mut offsets: Vec<_> = near.chain(far).chain([Duration::from_micros(30); 50]).collect();
    let count = offsets.len();
    (0..count).for_each(|i| offsets.swap(i, i * 7_919 % count));
    offsets
}

/// Only the thread in `block_on` works here: there is one worker.
#[test]
fn wakers_are_called_in_the_order_of_their_deadlines() {
    watched("one worker", || {
        let runtime = runtime(1);
        for _ in 0..20 {
            let order: Arc<Mutex<Vec<Duration>>> = Arc::default();
            runtime.block_on(async {
                let base = Instant::now() + 20 * MS;
                let mut armed = Vec::new();
                for offset in offsets() {
                    let order = order.clone();
                    let waker = waker_that(move || order.lock().unwrap().push(offset));
                    let mut timer = Timer::at(base + offset);
                    if poll_once(&mut timer, &waker).is_pending() {
                        armed.push(timer);
                    }
                }
                while order.lock().unwrap().len() < armed.len() {
                    sleep(MS / 10).await;
                }
            });
            let order = order.lock().unwrap();
            assert!(order.is_sorted(), "{order:?}");
        }
    });
}

#[test]
fn tasks_go_on_in_the_order_of_their_deadlines() {
    watched("one worker", || {
        let mut judged = 0;
        while judged < 20 {
            // A new one each time, so that this thread alone works and drives: where two take turns,
            // each with what it has collected, nobody promises an order between them.
            let runtime = runtime(1);
            let order: Arc<Mutex<Vec<Duration>>> = Arc::default();
            let in_time = runtime.block_on(async {
                let base = Instant::now() + 20 * MS;
                let task = |offset| {
                    let order = order.clone();
                    spawn(async move {
                        sleep_until(base + offset).await;
                        order.lock().unwrap().push(offset);
                    })
                };
                let tasks: Vec<Task<()>> = offsets().into_iter().map(task).collect();
                let is_armed = || Handle::current().metrics().timers == tasks.len();
                while !is_armed() && Instant::now() < base {
                    yield_now().await;
                }
                let in_time = is_armed() && Instant::now() < base;
                for task in tasks {
                    task.await;
                }
                in_time
            });
            if in_time {
                judged += 1;
                let order = order.lock().unwrap();
                assert!(order.is_sorted(), "{order:?}");
            }
        }
    });
}

// Many.

#[test]
fn a_million_armed_timers_are_counted_and_dropped() {
    on_each_size(|workers| {
        let runtime = runtime(workers);
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                runtime.spawn(async {
                    let armed = (0..MANY / 4).map(|i| {
                        let mut timer = Timer::after(HOUR + Duration::from_micros(i as u64 * 77));
                        assert!(poll_once(&mut timer, Waker::noop()).is_pending());
                        timer
                    });
                    armed.collect::<Vec<_>>()
                })
            })
            .collect();
        let timers: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task)).collect();
        assert_eq!(runtime.metrics().timers, MANY);
        runtime.block_on(sleep(MS));
        runtime.block_on(runtime.spawn(sleep(MS)));
        let mut timers = timers.into_iter();
        drop(timers.next());
        assert_eq!(runtime.metrics().timers, MANY / 4 * 3);
        let rest: Vec<_> = timers.collect();
        runtime.block_on(runtime.spawn(async move { drop(rest) }));
        assert_eq!(runtime.metrics().timers, 0);
    });
}

#[test]
fn timers_dropped_in_any_order_leave_the_others() {
    const COUNT: usize = 100_000;
    on_each(|runtime| {
        for order in ["first armed first", "last armed first", "mixed"] {
            runtime.block_on(async {
                let mut stays = sleep(5 * MS);
                let _ = poll!(&mut stays);
                let arm = |i: usize| {
                    let mut timer = Timer::after(HOUR + Duration::from_nanos((i * 7_919) as u64));
                    assert!(poll_once(&mut timer, Waker::noop()).is_pending());
                    Some(timer)
                };
                let mut timers: Vec<_> = (0..COUNT).map(arm).collect();
                for i in 0..COUNT {
                    let place = match order {
                        "first armed first" => i,
                        "last armed first" => COUNT - 1 - i,
                        _ => i * 7_919 % COUNT,
                    };
                    drop(timers[place].take().expect("each once"));
                }
                stays.await;
                sleep(MS).await;
            });
            assert_eq!(runtime.metrics().timers, 0, "{order}");
        }
    });
}

// Periodic ones.

/// Takes the tick that is planned at `start + period` too late, and three more. Returns when the
/// first of them was taken, at the earliest and at the latest, and for when they were planned.
async fn taken_late(
    behavior: MissedTickBehavior,
    start: Instant,
    period: Duration,
) -> (Instant, Instant, Vec<Instant>) {
    let mut ticks = interval_at(start, period);
    ticks.set_missed_tick_behavior(behavior);
    assert_eq!(ticks.tick().await, start);
    compute_until(start + period * 7 / 2);
    let before = Instant::now();
    let mut planned = vec![ticks.tick().await];
    let after = Instant::now();
    for _ in 0..3 {
        planned.push(ticks.tick().await);
        assert!(Instant::now() >= planned[planned.len() - 1]);
    }
    (before, after, planned)
}

#[test]
fn an_interval_makes_up_for_missed_ticks_or_moves_or_loses_them() {
    on_each(|runtime| {
        runtime.block_on(async {
            let (start, period) = (Instant::now(), 2 * MS);
            let (.., planned) = taken_late(MissedTickBehavior::Burst, start, period).await;
            assert_eq!(planned, [1, 2, 3, 4].map(|i| start + i * period));

            let start = Instant::now();
            let (before, after, planned) =
                taken_late(MissedTickBehavior::Delay, start, period).await;
            assert_eq!(planned[0], start + period);
            assert!((before + period..=after + period).contains(&planned[1]), "{planned:?}");

            let start = Instant::now();
            let (before, after, planned) =
                taken_late(MissedTickBehavior::Skip, start, period).await;
            assert_eq!(planned[0], start + period);
            assert!((before..=after + period).contains(&planned[1]), "{planned:?}");
            for planned in &planned {
                assert_eq!((*planned - start).as_nanos() % period.as_nanos(), 0);
            }
        });
    });
}

#[test]
fn a_tick_that_is_not_awaited_to_its_end_is_not_lost() {
    on_each(|runtime| {
        runtime.block_on(async {
            let (start, period) = (Instant::now(), MS / 4);
            let mut ticks = interval_at(start, period);
            let mut taken = 0;
            while taken < 50 {
                match poll!(pin!(ticks.tick())) {
                    Poll::Ready(planned) => {
                        assert_eq!(planned, start + taken * period);
                        taken += 1;
                    }
                    Poll::Pending if taken % 2 == 0 => yield_now().await,
                    Poll::Pending => sleep(MS / 10).await,
                }
            }
        });
    });
}

#[test]
fn an_interval_that_is_reset_counts_from_there() {
    on_each(|runtime| {
        runtime.block_on(async {
            let mut ticks = interval(HOUR);
            assert_eq!(ticks.period(), HOUR);
            ticks.tick().await;
            assert!(poll!(pin!(ticks.tick())).is_pending());
            let soon = Instant::now() + 2 * MS;
            ticks.reset_at(soon);
            assert_eq!(ticks.tick().await, soon);
            let before = Instant::now();
            ticks.reset_after(MS);
            let planned = ticks.tick().await;
            assert!((before + MS..=Instant::now()).contains(&planned));
            ticks.reset_immediately();
            assert!((before..=Instant::now()).contains(&ticks.next().await.unwrap()));
            ticks.reset();
            assert!(poll!(pin!(ticks.tick())).is_pending());
        });
    });
}

#[test]
fn a_timer_as_a_stream_yields_each_firing() {
    on_each(|runtime| {
        runtime.block_on(async {
            let (start, period) = (Instant::now(), MS);
            let mut timer = Timer::interval_at(start, period);
            for i in 0..5 {
                assert_eq!(timer.next().await, Some(start + i * period));
                assert!(timer.will_fire());
            }
            compute_until(start + 8 * period);
            for i in 5..9 {
                assert_eq!(timer.next().await, Some(start + i * period), "none is lost");
            }
            let once = Instant::now() + MS;
            timer.set_at(once);
            assert_eq!(timer.next().await, Some(once));
            assert!(!timer.will_fire() && poll!(timer.next()).is_pending());

            let start = Instant::now();
            timer.set_interval(period);
            let first = timer.next().await.unwrap();
            assert!(first >= start + period);
            assert_eq!(timer.next().await, Some(first + period));
            timer.set_interval_at(start, HOUR);
            assert_eq!(timer.next().await, Some(start));
            assert!(timer.will_fire() && poll!(timer.next()).is_pending());
            assert_eq!(timer.size_hint().1, None);
        });
    });
}

#[test]
fn a_timer_set_to_never_waits_until_it_is_set() {
    on_each(|runtime| {
        runtime.block_on(async {
            let mut timer = Timer::never();
            assert!(!timer.will_fire() && poll!(&mut timer).is_pending());
            sleep(MS).await;
            assert!(poll!(&mut timer).is_pending());
            let before = Instant::now();
            timer.set_after(MS);
            assert!((&mut timer).await >= before + MS && !timer.will_fire());
            timer.set_after(Duration::MAX);
            assert!(!timer.will_fire() && poll!(&mut timer).is_pending());
        });
        assert_eq!(runtime.metrics().timers, 0);
    });
}

// Between runtimes.

/// Arms it on that runtime, with nobody to wake.
fn arm_on(runtime: &Runtime, sleep: &mut Sleep) {
    runtime.block_on(async { _ = poll_once(sleep, Waker::noop()) });
}

#[test]
fn a_sleep_moves_on_when_the_runtime_it_was_armed_on_is_dropped() {
    on_each_size(|workers| {
        for length in [HOUR, 20 * MS] {
            let (home, away) = (runtime(workers), runtime(workers));
            let deadline = Instant::now() + length;
            let mut sleep = sleep_until(deadline);
            arm_on(&home, &mut sleep);
            let (polled, polls) = mpsc::channel();
            let task = away.spawn(async move {
                poll_fn(|cx| {
                    let poll = Pin::new(&mut sleep).poll(cx);
                    let _ = polled.send(());
                    poll
                })
                .await;
                assert!(Instant::now() >= deadline);
            });
            polls.recv().unwrap();
            let far = length == HOUR;
            if far {
                assert_eq!((home.metrics().timers, away.metrics().timers), (1, 0));
            }
            drop(home);
            // It is polled again, unless its time was over before.
            let polled = polls.recv().is_ok();
            if far {
                assert!(polled);
                until(|| away.metrics().timers == 1);
                drop(task);
                until(|| away.metrics().timers == 0);
            } else {
                away.block_on(task);
            }
        }
    });
}

#[test]
fn a_foreign_thread_waits_on_when_the_runtime_its_sleep_was_armed_on_is_dropped() {
    on_each_size(|workers| {
        let home = runtime(workers);
        let deadline = Instant::now() + 20 * MS;
        let mut sleeps: Vec<_> = (0..20).map(|_| sleep_until(deadline)).collect();
        sleeps.iter_mut().for_each(|sleep| arm_on(&home, sleep));
        let (begun, begins) = mpsc::channel();
        let foreign = thread::spawn(move || {
            futures::executor::block_on(async {
                let mut all = join_all(sleeps);
                assert!(poll!(&mut all).is_pending() || Instant::now() >= deadline);
                begun.send(()).unwrap();
                all.await;
            });
            assert!(Instant::now() >= deadline);
        });
        begins.recv().unwrap();
        drop(home);
        foreign.join().unwrap();
    });
}

#[test]
fn block_on_of_a_stopped_runtime_still_sleeps() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        drop(runtime);
        handle.block_on(async {
            wait_for(2 * MS).await;
            join_all(lengths(20).map(wait_for)).await;
        });
        let _guard = handle.enter();
        futures::executor::block_on(wait_for(MS));
    });
}

async fn nested(handle: Handle) {
    handle.block_on(async {
        sleep(MS).await;
        let inner = handle.clone();
        handle.block_on(async {
            spawn(async move { inner.block_on(wait_for(MS)) }).await;
            sleep(MS).await;
        });
        timeout(MS, pending::<()>()).await.unwrap_err();
    });
}

#[test]
fn a_nested_block_on_sleeps() {
    on_each(|runtime| {
        runtime.block_on(runtime.spawn(nested(runtime.handle().clone())));
        runtime.block_on(nested(runtime.handle().clone()));
    });
}

#[test]
fn block_on_of_another_runtime_sleeps_inside_a_task() {
    on_each_size(|workers| {
        let (outer, inner) = (runtime(workers), Arc::new(runtime(workers)));
        let task = outer.spawn(async move {
            inner.block_on(async {
                sleep(MS).await;
                spawn(wait_for(MS)).await;
            });
            sleep(MS).await;
        });
        outer.block_on(task);
    });
}

#[cfg(target_os = "linux")]
mod alone {
    use super::*;
    use common::{alone, assert_all_sleep_while, descriptors, settle, threads_and_switches};
    use paceline::Async;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// The first that a process asks of the default runtime.
    #[test]
    fn a_foreign_thread_sleeps_while_the_default_runtime_is_idle() {
        alone("alone::a_foreign_thread_sleeps_while_the_default_runtime_is_idle", || {
            for length in lengths(10) {
                futures::executor::block_on(wait_for(length));
            }
            settle();
            futures::executor::block_on(join_all(lengths(50).map(wait_for)));
            block_on(wait_for(MS));
            settle();
            futures::executor::block_on(wait_for(MS));
        });
    }

    /// Arms a timer on that runtime, from outside of it.
    fn arm_from_outside(runtime: &Runtime, length: Duration) -> Timer {
        let _guard = runtime.handle().enter();
        let mut timer = Timer::after(length);
        assert!(poll_once(&mut timer, Waker::noop()).is_pending());
        timer
    }

    #[test]
    fn an_earlier_deadline_wakes_who_sleeps_and_a_later_one_does_not() {
        let name = "alone::an_earlier_deadline_wakes_who_sleeps_and_a_later_one_does_not";
        alone(name, || {
            for workers in [1, 4] {
                let runtime = runtime(workers);
                // Workers and a ticker that have been there.
                runtime.block_on(async { spawn(sleep(MS)).await });
                let first = arm_from_outside(&runtime, 2 * HOUR);
                let mut later = Vec::new();
                assert_all_sleep_while(|| {
                    later.extend((0..10_000).map(|_| arm_from_outside(&runtime, 3 * HOUR)));
                });
                assert_all_sleep_while(|| drop(later));
                let before = threads_and_switches();
                let earlier = arm_from_outside(&runtime, HOUR);
                until(|| threads_and_switches() != before);
                drop((first, earlier));
            }
        });
    }

    /// Sets the limit on open files, and returns what it was.
    fn limit_files(limit: u64) -> u64 {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: plain calls with a struct of ours.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut before), 0);
            let now = libc::rlimit { rlim_cur: limit, ..before };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &now), 0);
        }
        before.rlim_cur
    }

    #[test]
    fn a_runtime_that_waits_for_nothing_has_no_descriptors() {
        alone("alone::a_runtime_that_waits_for_nothing_has_no_descriptors", || {
            let before = descriptors();
            let runtimes = [1, 4].map(runtime);
            for runtime in &runtimes {
                runtime.block_on(async { spawn(async {}).await });
                runtime.block_on(runtime.spawn(async { spawn(yield_now()).await }));
                runtime.block_on(sleep(Duration::ZERO));
            }
            assert_eq!(descriptors(), before);
            runtimes.iter().for_each(|runtime| runtime.block_on(sleep(MS)));
            drop(runtimes);
            assert_eq!(descriptors(), before, "none is left behind");
        });
    }

    #[test]
    fn timers_fire_although_no_file_can_be_opened() {
        alone("alone::timers_fire_although_no_file_can_be_opened", || {
            let (mut near, far) = UnixStream::pair().unwrap();
            let runtimes = [1, 4].map(runtime);
            let before = limit_files(0);
            std::fs::File::open("/proc/self/status").expect_err("none can be opened");
            for runtime in &runtimes {
                runtime.block_on(join_all(lengths(20).map(wait_for)));
                let tasks: Vec<_> = lengths(20).map(|l| runtime.spawn(wait_for(l))).collect();
                tasks.into_iter().for_each(futures::executor::block_on);
                drop(arm_from_outside(runtime, HOUR));
            }
            let there = runtimes.each_ref().map(|runtime| {
                let _guard = runtime.handle().enter();
                Async::new(&far).expect_err("no poller to register it with").to_string()
            });
            assert!(there.iter().all(|error| error.contains("ulimit -n")), "{there:?}");
            let waiting = runtimes.each_ref().map(|runtime| arm_from_outside(runtime, HOUR));

            limit_files(before);
            for runtime in &runtimes {
                let registered = {
                    let _guard = runtime.handle().enter();
                    Async::new(&far).expect("there is a poller again")
                };
                let foreign = thread::scope(|scope| {
                    let read = scope.spawn(|| {
                        futures::executor::block_on(
                            registered.read_with(|far| Read::read(&mut &**far, &mut [0; 8])),
                        )
                    });
                    near.write_all(b"!").unwrap();
                    read.join().unwrap().unwrap()
                });
                assert_eq!(foreign, 1);
                runtime.block_on(wait_for(MS));
            }
            drop(waiting);
        });
    }
}
