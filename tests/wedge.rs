//! Wedges: which polls are reported, when, how often and with what; which ones never are.
//!
//! A hog stays in its poll until its report has come, or all that it must not hold up has happened:
//! there is nothing to wait for by the clock.

#![allow(clippy::disallowed_methods)] // what is tested here is code that blocks, and time

mod common;

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Gate, Hog, Hogs, compute_until, hand_made, hogs, listener, on_each_size, ping_pong,
    round_trips, serve_echo, silent_panic, until, watched,
};
use futures::executor::block_on as block_foreign;
use paceline::time::sleep;
use paceline::{
    Builder, Runtime, ThreadState, Ticker, Wedge, block_in_place, spawn, spawn_named, unblock,
    yield_now,
};

const MS: Duration = Duration::from_millis(1);
/// The default.
const WEDGE_AFTER: Duration = Duration::from_millis(50);
/// Many times that and a tick.
const SOON: Duration = Duration::from_secs(1);
/// While polls run long there are ticks far more often.
const TICK: Duration = Duration::from_millis(25);

type Reports = mpsc::Receiver<Wedge>;

fn reporting(workers: usize) -> (Runtime, Reports) {
    reporting_as(workers, |builder| builder)
}

fn reporting_as(workers: usize, set: impl FnOnce(Builder) -> Builder) -> (Runtime, Reports) {
    let (hook, reports) = listener();
    let builder = Builder::new().worker_threads(workers).on_wedge(hook);
    (set(builder).build().unwrap(), reports)
}

fn name(wedge: &Wedge) -> &str {
    wedge.task.as_ref().and_then(|task| task.name.as_deref()).unwrap_or("")
}

/// Nothing came, and nothing will.
#[track_caller]
fn assert_silent(runtime: Runtime, reports: &Reports) {
    let counted = runtime.metrics().total().wedges;
    // The ticker, which reports, is joined.
    drop(runtime);
    let reports: Vec<_> = reports.try_iter().map(|wedge| wedge.to_string()).collect();
    assert!(reports.is_empty() && counted == 0, "{counted} counted: {reports:#?}");
}

// What is reported.

/// A hog's episode from its first report on, which has come already.
fn see_through(first: Wedge, hogs: Hogs, began: Instant, reports: &Reports) {
    let after = began.elapsed();
    assert!(first.lasted <= after + TICK, "{:?} of {after:?}", first.lasted);
    thread::sleep(5 * WEDGE_AFTER);
    assert_eq!(reports.try_recv().map(|wedge| wedge.to_string()), Err(mpsc::TryRecvError::Empty));
    hogs.release();
    let second = reports.recv().unwrap();
    let after = began.elapsed();
    assert!(second.is_over && second.lasted <= after + TICK, "{second} after {after:?}");
    assert!(second.lasted >= first.lasted + 4 * WEDGE_AFTER, "{first}\n{second}");
    assert_eq!((second.worker, &second.task), (first.worker, &first.task));
    assert_eq!(second.thread, ThreadState::Unknown);
}

#[test]
fn a_hog_is_reported_once_and_once_more_when_it_is_over() {
    on_each_size(|workers| {
        for how in Hog::ALL {
            let (runtime, reports) = reporting(workers);
            let began = Instant::now();
            let hogs = hogs(&runtime, 1, how);
            let first = reports.recv().unwrap();
            assert!(!first.is_over && first.lasted >= WEDGE_AFTER, "{first}");
            assert_eq!((name(&first), first.stranded), ("hog 0", 0), "{first}");
            assert!(first.worker < runtime.metrics().workers.len(), "{first}");
            match how {
                // It may just have woken up.
                Hog::Sleeps => {}
                _ if cfg!(not(target_os = "linux")) => {
                    assert_eq!(first.thread, ThreadState::Unknown);
                }
                Hog::Waits => assert_eq!(first.thread, ThreadState::Blocked, "{first}"),
                Hog::Computes => assert_eq!(first.thread, ThreadState::Running, "{first}"),
            }
            see_through(first, hogs, began, &reports);
            drop(runtime);
            assert_eq!(reports.try_iter().count(), 0, "no third report");
        }
    });
}

#[test]
fn a_report_names_the_task_and_the_line_that_spawned_it() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        let handle = runtime.handle().clone();
        let expect = |line: u32, called: Option<&str>| {
            let wedge = reports.recv().unwrap();
            let task = wedge.task.as_ref().expect("it has not ended");
            assert_eq!((task.name.as_deref(), task.spawned_at.line()), (called, line), "{wedge}");
            assert_eq!(task.spawned_at.file(), file!());
            let text = wedge.to_string();
            assert!(text.contains(&format!("tests/wedge.rs:{line}:")), "{text}");
            assert!(called.is_none_or(|name| text.contains(&format!("{name:?}"))), "{text}");
        };
        // Both reports of an episode are told what the first one was.
        let expect_both = |line, called, gate: Gate| {
            expect(line, called);
            gate.open();
            expect(line, called);
        };
        let hog = || {
            let gate = Gate::default();
            let entrance = gate.entrance();
            (gate, async move { entrance.pass(Hog::Waits) })
        };

        let (gate, future) = hog();
        let (line, task) = (line!(), runtime.spawn(future));
        expect_both(line, None, gate);
        block_foreign(task);

        let (gate, future) = hog();
        let (line, task) = (line!(), handle.spawn_named("by handle", future));
        expect_both(line, Some("by handle"), gate);
        block_foreign(task);

        let (gate, future) = hog();
        let (tell, told) = mpsc::channel();
        let outer = runtime.spawn_named("outer", async move {
            let (line, task) = (line!(), spawn_named("inner", future));
            tell.send(line).unwrap();
            task.await;
        });
        expect_both(told.recv().unwrap(), Some("inner"), gate);
        block_foreign(outer);

        let (gate, future) = hog();
        let outer = runtime.spawn_named("outer", async move { spawn(future).await });
        expect_both(line!() - 1, None, gate);
        block_foreign(outer);
    });
}

/// Whatever the settings of the ticker, and of `wedge_after`.
#[test]
fn a_wedge_is_reported_in_time_and_not_too_soon() {
    let adaptive = Ticker::Adaptive;
    for (wedge_after, ticker) in
        [(50, adaptive), (5, adaptive), (200, adaptive), (50, Ticker::Every(10 * MS))]
    {
        for how in Hog::ALL {
            watched(&format!("{wedge_after} ms, {ticker:?}, {how:?}"), move || {
                let wedge_after = wedge_after * MS;
                let set = |builder: Builder| builder.wedge_after(wedge_after).ticker(ticker);
                let (runtime, reports) = reporting_as(2, set);
                let mut delays: Vec<_> = (0..5)
                    .map(|_| {
                        let began = Instant::now();
                        let hogs = hogs(&runtime, 1, how);
                        let wedge = reports.recv().unwrap();
                        let delay = began.elapsed();
                        assert!(delay >= wedge_after && wedge.lasted >= wedge_after, "{wedge}");
                        hogs.release();
                        assert!(reports.recv().unwrap().is_over);
                        delay
                    })
                    .collect();
                delays.sort_unstable();
                println!("{wedge_after:?}, {ticker:?}, {how:?}: {delays:?}");
                assert!(delays[2] < wedge_after + SOON, "{delays:?}");
            });
        }
    }
}

#[test]
fn wedges_are_counted_without_a_hook() {
    on_each_size(|workers| {
        let runtime = common::runtime(workers);
        for (episode, how) in Hog::ALL.into_iter().enumerate() {
            let hogs = hogs(&runtime, 1, how);
            until(|| runtime.metrics().total().wedges == episode as u64 + 1);
            hogs.release();
            assert_eq!(runtime.metrics().total().wedges, episode as u64 + 1);
        }
    });
}

/// And each episode of the same worker is one.
#[test]
fn the_count_is_that_of_the_first_reports() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        let mut counts = vec![0; 2 * workers];
        for _ in 0..5 {
            let hogs = hogs(&runtime, 1, Hog::Waits);
            counts[reports.recv().unwrap().worker] += 1;
            hogs.release();
            assert!(reports.recv().unwrap().is_over);
        }
        let counted = runtime.metrics().workers.into_iter().map(|worker| worker.wedges);
        let counted: Vec<u64> = counted.chain(std::iter::repeat(0)).take(counts.len()).collect();
        assert_eq!(counted, counts);
    });
}

/// Three in the queue, and one in the slot.
#[test]
fn a_report_tells_how_many_tasks_were_stranded() {
    for how in Hog::ALL {
        watched(&format!("{how:?}"), move || {
            let (runtime, reports) = reporting(1);
            let gate = Gate::default();
            let entrance = gate.entrance();
            let place = Arc::new(Mutex::new(None::<Waker>));
            let (tell, told) = mpsc::channel();
            let (waits, tell_too) = (place.clone(), tell.clone());
            let mut waiting = false;
            let sleeper = poll_fn(move |cx| {
                if std::mem::replace(&mut waiting, true) {
                    tell_too.send(()).unwrap();
                    return Poll::Ready(());
                }
                *waits.lock().unwrap() = Some(cx.waker().clone());
                Poll::Pending
            });
            runtime.spawn(sleeper).detach();
            until(|| place.lock().unwrap().is_some());
            let hog = runtime.spawn_named("hog", async move {
                for _ in 0..3 {
                    let tell = tell.clone();
                    spawn(async move { tell.send(()).unwrap() }).detach();
                }
                place.lock().unwrap().take().unwrap().wake();
                entrance.pass(how);
            });
            let first = reports.recv().unwrap();
            assert_eq!(name(&first), "hog");
            assert!(first.stranded <= 4, "{first}");
            // There is one worker, and it is wedged.
            (0..4).for_each(|_| told.recv().unwrap());
            gate.open();
            let second = reports.recv().unwrap();
            assert!(second.is_over && second.stranded == 4, "{first}\n{second}");
            block_foreign(hog);
        });
    }
}

#[test]
fn several_wedges_at_once_are_each_reported() {
    for (workers, count) in [(2, 2), (4, 4), (4, 3)] {
        for how in Hog::ALL {
            watched(&format!("{count} of {workers} {how:?}"), move || {
                let (runtime, reports) = reporting(workers);
                let hogs = hogs(&runtime, count, how);
                let collect = |is_over: bool| {
                    let mut found: Vec<_> = (0..count)
                        .map(|_| {
                            let wedge = reports.recv().unwrap();
                            assert_eq!(wedge.is_over, is_over, "{wedge}");
                            (name(&wedge).to_owned(), wedge.worker)
                        })
                        .collect();
                    found.sort();
                    found
                };
                let found = collect(false);
                let names: Vec<_> = (0..count).map(|i| format!("hog {i}")).collect();
                assert_eq!(found.iter().map(|(name, _)| name).collect::<Vec<_>>(), {
                    names.iter().collect::<Vec<_>>()
                });
                let mut places: Vec<_> = found.iter().map(|(_, worker)| worker).collect();
                places.sort();
                places.dedup();
                assert_eq!(places.len(), count, "each on a worker of its own: {found:?}");
                hogs.release();
                assert_eq!(collect(true), found);
                drop(runtime);
                assert_eq!(reports.try_iter().count(), 0);
            });
        }
    }
}

/// The first one's place is made up for; then that one is wedged as well.
#[test]
fn a_spare_worker_that_is_wedged_is_reported_too() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        let first = hogs(&runtime, workers, Hog::Waits);
        (0..workers).for_each(|_| assert_eq!(reports.recv().map(|wedge| wedge.is_over), Ok(false)));
        let second = hogs(&runtime, 1, Hog::Waits);
        let wedge = reports.recv().unwrap();
        assert_eq!((name(&wedge), wedge.is_over), ("hog 0", false), "{wedge}");
        assert!(wedge.worker < runtime.metrics().workers.len(), "{wedge}");
        second.release();
        first.release();
        for _ in 0..=workers {
            assert_eq!(reports.recv().map(|wedge| wedge.is_over), Ok(true));
        }
    });
}

#[test]
fn the_future_of_block_on_is_reported_as_well_while_the_tasks_run() {
    on_each_size(|workers| {
        for how in Hog::ALL {
            let (runtime, reports) = reporting(workers);
            let (gate, reports) = (Gate::default(), Mutex::new(reports));
            let (tell, told) = mpsc::channel();
            let entrance = gate.entrance();
            thread::scope(|scope| {
                let (reports, gate) = (&reports, &gate);
                let watch = scope.spawn(move || {
                    let wedge = reports.lock().unwrap().recv().unwrap();
                    // They run although the thread that spawned them has not come back.
                    (0..3).for_each(|_| told.recv().unwrap());
                    gate.open();
                    wedge
                });
                let line = line!() + 1;
                runtime.block_on(async {
                    for _ in 0..3 {
                        let tell = tell.clone();
                        spawn(async move { tell.send(()).unwrap() }).detach();
                    }
                    entrance.pass(how);
                });
                let wedge = watch.join().unwrap();
                let task = wedge.task.as_ref().unwrap();
                assert_eq!((&task.name, task.spawned_at.line()), (&None, line), "{wedge}");
            });
            assert!(reports.lock().unwrap().recv().unwrap().is_over);
        }
    });
}

#[test]
fn a_destructor_that_blocks_is_reported() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        // At the end of the task's last poll.
        let (gate, (tell, told)) = (Gate::default(), mpsc::channel());
        let entrance = gate.entrance();
        let blocks = common::on_drop(move || {
            tell.send(()).unwrap();
            entrance.pass(Hog::Waits);
        });
        let task = runtime.spawn_named("ends", async move { drop(blocks) });
        told.recv().unwrap();
        let wedge = reports.recv().unwrap();
        assert_eq!((name(&wedge), wedge.is_over), ("ends", false), "{wedge}");
        gate.open();
        assert!(reports.recv().unwrap().is_over);
        block_foreign(task);

        // Of a task that is cancelled.
        let (gate, (tell, told)) = (Gate::default(), mpsc::channel());
        let entrance = gate.entrance();
        let waits = hand_made(
            |_| Poll::<()>::Pending,
            move || {
                tell.send(()).unwrap();
                entrance.pass(Hog::Waits);
            },
        );
        drop(runtime.spawn_named("cancelled", waits));
        told.recv().unwrap();
        let wedge = reports.recv().unwrap();
        assert!(["", "cancelled"].contains(&name(&wedge)) && !wedge.is_over, "{wedge}");
        gate.open();
        assert!(reports.recv().unwrap().is_over);
    });
}

#[test]
fn a_hook_that_panics_is_contained_and_the_ticker_lives_on() {
    on_each_size(|workers| {
        let (tell, told) = mpsc::channel();
        let hook = move |wedge: &Wedge| {
            tell.send(wedge.is_over).unwrap();
            silent_panic();
        };
        let runtime = Builder::new().worker_threads(workers).on_wedge(hook).build().unwrap();
        for _ in 0..3 {
            let hogs = hogs(&runtime, workers, Hog::Waits);
            (0..workers).for_each(|_| assert_eq!(told.recv(), Ok(false)));
            hogs.release();
            (0..workers).for_each(|_| assert_eq!(told.recv(), Ok(true)));
        }
        assert_eq!(runtime.block_on(async { spawn(async { 1 }).await }), 1);
    });
}

#[test]
fn each_runtime_tells_its_own_hook() {
    watched("", || {
        let ((one, of_one), (other, of_other)) = (reporting(1), reporting(1));
        let hogs = hogs(&one, 1, Hog::Waits);
        assert_eq!(name(&of_one.recv().unwrap()), "hog 0");
        block_foreign(other.spawn(async { yield_now().await }));
        hogs.release();
        assert!(of_one.recv().unwrap().is_over);
        assert_silent(other, &of_other);
    });
}

// What is refused.

#[test]
fn a_hook_without_a_ticker_and_a_wedge_after_nothing_are_refused_by_name() {
    let refused = |builder: Builder| {
        let error = builder.build().map(drop).expect_err("to be refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    let message = refused(Builder::new().wedge_after(Duration::ZERO));
    assert!(message.contains("wedge_after") && message.contains("longer than zero"), "{message}");
    let without = || Builder::new().ticker(Ticker::Off);
    let message = refused(without().on_wedge(|_| ()));
    assert!(message.contains("ticker") && message.contains("on_wedge"), "{message}");
    let message = refused(without().on_deadlock(|_| ()));
    assert!(message.contains("ticker") && message.contains("on_deadlock"), "{message}");
    assert!(without().build().is_ok());
}

// What is never reported.

/// For several times `wedge_after`.
fn block(how: Hog) {
    let end = Instant::now() + 4 * WEDGE_AFTER;
    match how {
        Hog::Waits | Hog::Sleeps => thread::sleep(4 * WEDGE_AFTER),
        Hog::Computes => compute_until(end),
    }
}

#[test]
fn jobs_that_are_unblocked_are_silent() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        let tasks: Vec<_> = [Hog::Waits, Hog::Computes]
            .into_iter()
            .cycle()
            .take(6)
            .map(|how| runtime.spawn(async move { unblock(move || block(how)).await }))
            .collect();
        runtime.block_on(async {
            unblock(|| block(Hog::Waits)).await;
            for task in tasks {
                task.await;
            }
        });
        assert_silent(runtime, &reports);
    });
}

#[test]
fn what_blocks_in_place_is_silent() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        let tasks: Vec<_> = [Hog::Waits, Hog::Computes]
            .into_iter()
            .cycle()
            .take(6)
            .map(|how| runtime.spawn(async move { block_in_place(|| block(how)) }))
            .collect();
        runtime.block_on(async {
            block_in_place(|| block_in_place(|| block(Hog::Waits)));
            for task in tasks {
                task.await;
            }
        });
        assert_silent(runtime, &reports);
    });
}

/// The thread has given its place away.
#[test]
fn a_nested_block_on_that_waits_is_silent() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        let handle = runtime.handle().clone();
        let nested = move || handle.block_on(sleep(4 * WEDGE_AFTER));
        let task = runtime.spawn(async move { nested() });
        runtime.block_on(task);
        assert_silent(runtime, &reports);
    });
}

/// What a runtime does all day: tasks that yield, talk, compute for a millisecond at a time, wait for
/// timers and sockets, and spawn others.
fn work_for(runtime: &Runtime, length: Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let goes_on = || {
        let stop = stop.clone();
        move || !stop.load(SeqCst)
    };
    let mut tasks = Vec::new();
    let _guard = runtime.handle().enter();
    for _ in 0..20 {
        let goes_on = goes_on();
        tasks.push(runtime.spawn(async move {
            while goes_on() {
                yield_now().await;
            }
        }));
    }
    for _ in 0..4 {
        tasks.extend(ping_pong(&stop));
        let (one, other) = (goes_on(), goes_on());
        tasks.push(runtime.spawn(async move {
            while one() {
                compute_until(Instant::now() + MS);
                yield_now().await;
            }
        }));
        tasks.push(runtime.spawn(async move {
            while other() {
                sleep(3 * MS).await;
                spawn(async { spawn(yield_now()).await }).await;
            }
        }));
    }
    let address = serve_echo(runtime);
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let goes_on = goes_on();
            thread::spawn(move || {
                let stream = TcpStream::connect(address).unwrap();
                while goes_on() {
                    round_trips(&stream, 1);
                }
            })
        })
        .collect();
    thread::sleep(length);
    stop.store(true, SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    tasks.into_iter().for_each(block_foreign);
}

#[test]
fn a_cooperative_load_is_silent() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        work_for(&runtime, 3_000 * MS);
        assert_silent(runtime, &reports);
    });
}

/// As above, and longer than a watched body may take.
#[test]
#[ignore = "takes two minutes: `cargo test --release --test wedge -- --ignored`"]
fn a_cooperative_load_is_silent_for_a_minute() {
    for workers in [1, 4] {
        let (runtime, reports) = reporting(workers);
        work_for(&runtime, 60_000 * MS);
        assert_silent(runtime, &reports);
    }
}

/// One after the other, on the same worker: the time of one poll is not added to that of the next.
#[test]
fn polls_shorter_than_wedge_after_are_silent() {
    on_each_size(|workers| {
        for how in [Hog::Sleeps, Hog::Computes] {
            let (runtime, reports) = reporting(workers);
            let task = runtime.spawn(async move {
                for _ in 0..50 {
                    match how {
                        Hog::Computes => compute_until(Instant::now() + WEDGE_AFTER / 4),
                        _ => thread::sleep(WEDGE_AFTER / 4),
                    }
                    yield_now().await;
                }
            });
            block_foreign(task);
            assert_silent(runtime, &reports);
        }
    });
}

#[test]
fn idle_workers_and_tasks_that_wait_are_silent() {
    on_each_size(|workers| {
        let (runtime, reports) = reporting(workers);
        let tasks: Vec<_> = (0..10).map(|_| runtime.spawn(sleep(4 * WEDGE_AFTER))).collect();
        runtime.block_on(async {
            sleep(4 * WEDGE_AFTER).await;
            for task in tasks {
                task.await;
            }
        });
        thread::sleep(2 * WEDGE_AFTER);
        assert_silent(runtime, &reports);
    });
}

#[cfg(target_os = "linux")]
mod alone {
    use super::*;
    use common::alone;

    /// Of this thread.
    fn cpu_time() -> Duration {
        // SAFETY: the clock is there, and the time a place for it.
        let time = unsafe {
            let mut time = std::mem::zeroed();
            assert_eq!(libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time), 0);
            time
        };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// This thread and all that it starts share one CPU.
    fn stay_on_one_cpu() {
        // SAFETY: the sets are plain data, and as large as is said.
        unsafe {
            let size = size_of::<libc::cpu_set_t>();
            let (mut all, mut one): (libc::cpu_set_t, _) = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size, &mut all), 0);
            let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &all));
            libc::CPU_SET(first.unwrap(), &mut one);
            assert_eq!(libc::sched_setaffinity(0, size, &one), 0);
        }
    }

    /// Polls that take a fifth of what would be a wedge, and much more while others have the CPU.
    #[test]
    fn a_poll_that_waits_for_a_cpu_is_silent() {
        alone("alone::a_poll_that_waits_for_a_cpu_is_silent", || {
            stay_on_one_cpu();
            let (runtime, reports) = reporting(2);
            let gate = Gate::default();
            thread::scope(|scope| {
                for _ in 0..12 {
                    let entrance = gate.entrance();
                    scope.spawn(move || entrance.pass(Hog::Computes));
                }
                let longest = runtime.spawn(async {
                    let mut longest = Duration::ZERO;
                    for _ in 0..20 {
                        let (before, used) = (Instant::now(), cpu_time());
                        while cpu_time() < used + WEDGE_AFTER / 5 {}
                        longest = longest.max(before.elapsed());
                        yield_now().await;
                    }
                    longest
                });
                let longest = block_foreign(longest);
                gate.open();
                assert!(longest > WEDGE_AFTER, "no poll was held up: {longest:?}");
            });
            assert_silent(runtime, &reports);
        });
    }
}
