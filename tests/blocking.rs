//! `unblock`: what becomes of a job, whoever awaits it or does not, and of the threads that run them.
//! `block_in_place` is in `compensate.rs`.

#![allow(clippy::disallowed_methods)] // what is tested here is code that blocks

mod common;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use common::{
    Census, Gate, Hog, on_drop, on_each, on_each_size, poll_once, runtime, silent_panic, until,
    waker_that, watched,
};
use futures::future::{join_all, select};
use futures_lite::future::block_on as block_foreign;
use paceline::net::{TcpListener, TcpStream, lookup_host};
use paceline::{Handle, Runtime, Unblock, block_in_place, spawn, unblock, yield_now};

const MS: Duration = Duration::from_millis(1);

/// A job that has begun, and waits for the gate.
fn begun<T: Send + 'static>(output: T) -> (Unblock<T>, Gate) {
    let (gate, (tell, told)) = (Gate::default(), mpsc::channel());
    let entrance = gate.entrance();
    let job = unblock(move || {
        tell.send(()).unwrap();
        entrance.pass(Hog::Waits);
        output
    });
    told.recv().unwrap();
    (job, gate)
}

#[test]
fn the_output_is_that_of_the_closure() {
    on_each(|runtime| {
        let main = runtime.block_on(unblock(|| "main"));
        let task = runtime.block_on(runtime.spawn(async { unblock(|| "task").await }));
        assert_eq!((main, task), ("main", "task"));
        // Not `Copy`, and larger than a word.
        let bytes = runtime.block_on(unblock(|| vec![[7_u64; 4]; 1_000]));
        assert_eq!(bytes.into_iter().flatten().sum::<u64>(), 28_000);
    });
}

#[test]
fn it_runs_on_a_thread_that_is_none_of_the_runtimes() {
    on_each_size(|workers| {
        let runtime =
            Runtime::builder().worker_threads(workers).thread_name("mine").build().unwrap();
        let task = runtime.spawn(async {
            assert_eq!(thread::current().name(), Some("mine"));
            unblock(|| thread::current().name() != Some("mine")).await
        });
        assert!(block_foreign(task));
    });
}

#[test]
fn it_works_outside_of_a_runtime() {
    watched("", || {
        assert_eq!(block_foreign(unblock(|| 1)), 1);
        assert!(block_foreign(unblock(|| Handle::try_current().is_none())));
        let jobs = (0..100).map(|i| unblock(move || i));
        assert_eq!(block_foreign(join_all(jobs)).into_iter().sum::<u64>(), 99 * 100 / 2);
    });
}

#[test]
fn it_is_awaited_on_another_runtime() {
    on_each_size(|workers| {
        let (home, away) = (runtime(workers), runtime(workers));
        let (tell, told) = mpsc::channel();
        home.spawn(async move { tell.send(begun(5)).unwrap() }).detach();
        let (mut job, gate) = told.recv().unwrap();
        // It waits there before the job is over, and again where it has moved to.
        let first = away.block_on(poll_fn(|cx| Poll::Ready(poll_once(&mut job, cx.waker()))));
        assert_eq!(first, Poll::Pending);
        let task = away.spawn(job);
        away.block_on(yield_now());
        gate.open();
        assert_eq!(away.block_on(task), 5);
        drop(home);
    });
}

#[test]
fn a_panic_is_resumed_in_whoever_awaits_it() {
    on_each(|runtime| {
        for _ in 0..20 {
            let task = runtime.spawn(async { unblock(|| silent_panic()).await });
            let payload = runtime.block_on(task.join()).map(|()| "none").unwrap_err().into_panic();
            assert_eq!(payload.downcast_ref(), Some(&"silent"));
        }
        // Nobody minds that one, and its thread runs others.
        unblock(|| silent_panic()).detach();
        assert_eq!(runtime.block_on(unblock(|| 1)), 1);
    });
}

#[test]
fn whether_it_is_finished_can_be_asked() {
    watched("", || {
        let (job, gate) = begun(1);
        assert!(!job.is_finished());
        gate.open();
        until(|| job.is_finished());
        assert_eq!(block_foreign(job), 1);
        let job = unblock(|| silent_panic());
        until(|| job.is_finished());
        drop(job);
    });
}

#[test]
fn whoever_polled_last_is_woken() {
    watched("", || {
        let (mut job, gate) = begun(1);
        let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for count in &counts {
            let count = count.clone();
            let waker = waker_that(move || {
                count.fetch_add(1, SeqCst);
            });
            assert_eq!(poll_once(&mut job, &waker), Poll::Pending);
        }
        gate.open();
        until(|| counts[1].load(SeqCst) == 1);
        assert_eq!(poll_once(&mut job, Waker::noop()), Poll::Ready(1));
        assert_eq!(counts.map(|count| count.load(SeqCst)), [0, 1]);
    });
}

#[test]
fn a_waker_that_panics_harms_no_other_job() {
    watched("", || {
        let (mut job, gate) = begun(1);
        assert_eq!(poll_once(&mut job, &waker_that(|| silent_panic())), Poll::Pending);
        gate.open();
        until(|| job.is_finished());
        assert_eq!(block_foreign(job), 1);
        assert_eq!(block_foreign(unblock(|| 2)), 2);
    });
}

#[test]
fn a_job_goes_on_when_its_future_is_dropped_and_its_output_is_dropped() {
    on_each(|runtime| {
        let census = Census::new();
        let (job, gate) = begun(census.one());
        runtime.block_on(async { drop(job) });
        assert_eq!(census.dead(), 0, "it has begun");
        gate.open();
        until(|| census.dead() == 1);
        // And if the future is dropped with the task that awaits it.
        let (job, gate) = begun(census.one());
        let task = runtime.spawn(job);
        runtime.block_on(async {
            yield_now().await;
            task.cancel().await
        });
        gate.open();
        until(|| census.dead() == 2);
    });
}

#[test]
fn a_job_that_loses_a_race_leaves_nothing_behind() {
    on_each(|runtime| {
        let census = Census::new();
        for _ in 0..200 {
            let (held, output) = (census.one(), census.one());
            runtime.block_on(async {
                let job = pin!(unblock(move || {
                    let _held = held;
                    output
                }));
                drop(select(job, pin!(yield_now())).await);
            });
        }
        until(|| census.dead() == 400);
    });
}

#[test]
fn a_detached_job_runs() {
    on_each(|runtime| {
        let (tell, told) = mpsc::channel();
        runtime.block_on(async {
            for i in 0..100 {
                let tell = tell.clone();
                unblock(move || tell.send(i).unwrap()).detach();
            }
        });
        drop(tell);
        drop(runtime);
        assert_eq!(told.iter().sum::<u64>(), 99 * 100 / 2);
    });
}

/// None of them waits for another: each ends only when all have begun.
#[test]
fn five_hundred_jobs_run_at_once() {
    on_each(|runtime| {
        const JOBS: usize = 500;
        let all = Arc::new(Barrier::new(JOBS));
        let jobs = (0..JOBS).map(|_| {
            let all = all.clone();
            unblock(move || all.wait().is_leader())
        });
        let outputs = runtime.block_on(join_all(jobs));
        assert_eq!(outputs.into_iter().filter(|is_leader| *is_leader).count(), 1);
    });
}

#[test]
fn more_jobs_than_there_may_be_threads_come_to_their_end() {
    on_each(|runtime| {
        let jobs = (0..2_000).map(|i: u64| {
            unblock(move || {
                thread::sleep(MS);
                i
            })
        });
        assert_eq!(runtime.block_on(join_all(jobs)).into_iter().sum::<u64>(), 1_999 * 1_000);
    });
}

#[test]
fn jobs_may_be_nested() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        let job = unblock(move || {
            let inner = block_foreign(unblock(|| block_foreign(unblock(|| 1)) + 1));
            // A runtime's tasks can be waited for as well.
            inner + handle.block_on(async { spawn(async { unblock(|| 1).await }).await })
        });
        assert_eq!(runtime.block_on(job), 3);
    });
}

#[test]
fn tasks_go_on_while_jobs_run() {
    on_each(|runtime| {
        let jobs: Vec<_> = (0..20).map(|_| begun(())).collect();
        runtime.block_on(async {
            for _ in 0..100 {
                spawn(yield_now()).await;
            }
        });
        for (job, gate) in jobs {
            assert!(!job.is_finished());
            gate.open();
            runtime.block_on(job);
        }
    });
}

#[test]
fn a_job_spawned_in_place_is_awaited_there() {
    on_each(|runtime| {
        let task = runtime.spawn(async { block_in_place(|| block_foreign(unblock(|| 1))) });
        assert_eq!(runtime.block_on(task), 1);
    });
}

/// It does not wait for them, nor they for it.
#[test]
fn a_runtime_is_dropped_while_jobs_run() {
    on_each_size(|workers| {
        let (runtime, census) = (runtime(workers), Census::new());
        let (tell, told) = mpsc::channel();
        let gate = Gate::default();
        for _ in 0..5 {
            let (entrance, tell) = (gate.entrance(), tell.clone());
            let (held, output) = (census.one(), census.one());
            let job = move || {
                let _held = held;
                tell.send(()).unwrap();
                entrance.pass(Hog::Waits);
                output
            };
            runtime.spawn(async move { drop(unblock(job).await) }).detach();
        }
        (0..5).for_each(|_| told.recv().unwrap());
        let handle = runtime.handle().clone();
        drop(runtime);
        assert_eq!((census.dead(), handle.metrics().live_tasks), (0, 0));
        gate.open();
        until(|| census.dead() == 10);
        // Threads are there for others.
        let again = common::runtime(workers);
        assert_eq!(again.block_on(unblock(|| 1)), 1);
    });
}

/// The last thing that a job drops may be the runtime itself.
#[test]
fn a_job_drops_a_runtime() {
    on_each_size(|workers| {
        let (runtime, census) = (runtime(workers), Census::new());
        let one = census.one();
        let hold = async move {
            let _one = one;
            std::future::pending::<()>().await;
        };
        runtime.spawn(hold).detach();
        block_foreign(unblock(move || drop(runtime)));
        assert_eq!(census.dead(), 1);
    });
}

#[test]
fn names_are_looked_up_while_jobs_block() {
    on_each(|runtime| {
        let jobs: Vec<_> = (0..20).map(|_| begun(())).collect();
        runtime.block_on(async {
            let listener = TcpListener::bind("localhost:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let lookups = (0..50).map(|_| lookup_host(("localhost", port)));
            for found in join_all(lookups).await {
                assert!(found.unwrap().iter().any(|address| address.ip().is_loopback()));
            }
            let accepts = spawn(async move { listener.accept().await.map(drop) });
            TcpStream::connect(("localhost", port)).await.unwrap();
            accepts.await.unwrap();
            let error = lookup_host("nowhere.invalid:1").await.unwrap_err();
            assert!(error.to_string().contains("nowhere.invalid"), "{error}");
        });
        drop(jobs);
    });
}

/// From the closure as well as from the destructor of what it has captured.
#[test]
fn a_job_wakes_and_spawns() {
    on_each(|runtime| {
        let (tell, told) = mpsc::channel();
        let (handle, tell_too) = (runtime.handle().clone(), tell.clone());
        let spawns = on_drop({
            let handle = handle.clone();
            move || handle.spawn(async move { tell_too.send(1).unwrap() }).detach()
        });
        let job = unblock(move || {
            handle.spawn(async move { tell.send(2).unwrap() }).detach();
            drop(spawns);
        });
        runtime.block_on(job);
        assert_eq!(told.iter().sum::<u64>(), 3);
    });
}

#[cfg(target_os = "linux")]
mod alone {
    //! What is counted, or fails, by the process.

    use super::*;
    use common::{alone, assert_all_sleep};

    /// The most jobs that run at once.
    const MOST: usize = 512;

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    /// The closure of a job that has not begun is dropped, and not run; at the latest when its turn
    /// would have come.
    #[test]
    fn a_job_that_is_dropped_before_it_begins_never_runs() {
        alone("alone::a_job_that_is_dropped_before_it_begins_never_runs", || {
            for in_runtime in [false, true] {
                let running: Vec<_> = (0..MOST).map(|_| begun(())).collect();
                let (census, ran) = (Census::new(), Arc::new(AtomicBool::new(false)));
                let job = || {
                    let (held, ran) = (census.one(), ran.clone());
                    unblock(move || {
                        let _held = held;
                        ran.store(true, SeqCst);
                    })
                };
                if in_runtime {
                    runtime(1).block_on(async {
                        let polled = pin!(job());
                        let _ = select(polled, pin!(yield_now())).await;
                        drop(job());
                    });
                } else {
                    (0..2).for_each(|_| drop(job()));
                }
                for (job, gate) in running {
                    gate.open();
                    block_foreign(job);
                }
                until(|| census.dead() == 2);
                assert!(!ran.load(SeqCst));
            }
        });
    }

    #[test]
    fn threads_run_one_job_after_the_other_and_are_at_most_so_many() {
        alone("alone::threads_run_one_job_after_the_other_and_are_at_most_so_many", || {
            let before = threads();
            for _ in 0..1_000 {
                block_foreign(unblock(|| ()));
            }
            // One that has just told of its end may not be asleep yet when the next job comes; but
            // there are not as many threads as there were jobs.
            assert!(threads() < before + 50, "{} threads", threads() - before);
            let running: Vec<_> = (0..MOST).map(|_| begun(())).collect();
            let late: Vec<_> = (0..100).map(|i| unblock(move || i)).collect();
            assert!(threads() <= before + MOST, "{} threads", threads() - before);
            assert!(late.iter().all(|job| !job.is_finished()));
            drop(running);
            assert_eq!(block_foreign(join_all(late)), (0..100).collect::<Vec<_>>());
        });
    }

    /// They sleep at once, and have ended some time later.
    #[test]
    fn threads_without_jobs_sleep_and_end() {
        alone("alone::threads_without_jobs_sleep_and_end", || {
            let before = threads();
            let all = Arc::new(Barrier::new(100));
            let jobs = (0..100).map(|_| {
                let all = all.clone();
                unblock(move || {
                    all.wait();
                })
            });
            block_foreign(join_all(jobs));
            assert_all_sleep(Duration::from_secs(2));
            until(|| {
                thread::sleep(100 * MS);
                threads() <= before
            });
            // Others are started in their place.
            assert_eq!(block_foreign(unblock(|| 1)), 1);
        });
    }

    /// The address space that is left is too small for the stack of a thread.
    fn without_room<R>(body: impl FnOnce() -> R) -> R {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap();
        let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        let limit = |bytes| {
            // SAFETY: plain data, in and out.
            unsafe {
                let mut limit: libc::rlimit = std::mem::zeroed();
                assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut limit), 0);
                let before = std::mem::replace(&mut limit.rlim_cur, bytes);
                assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
                before
            }
        };
        let before = limit((kilobytes + 512) * 1024);
        let result = body();
        limit(before);
        result
    }

    fn panic_message(run: impl FnOnce()) -> String {
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
        payload.downcast_ref::<String>().cloned().expect("a formatted message")
    }

    #[track_caller]
    fn assert_says_how_to_mend(message: &str) {
        assert!(message.contains("no thread could be started"), "{message}");
        assert!(message.contains("ulimit"), "{message}");
    }

    #[test]
    fn a_thread_that_cannot_be_started_is_an_error_that_says_how_to_mend_it() {
        alone(
            "alone::a_thread_that_cannot_be_started_is_an_error_that_says_how_to_mend_it",
            || {
                let (runtime, census) = (runtime(1), Census::new());
                let one = census.one();
                let (message, error) = without_room(|| {
                    let message = panic_message(|| unblock(move || drop(one)).detach());
                    let error = runtime.block_on(lookup_host("localhost:1")).unwrap_err();
                    (message, error.to_string())
                });
                assert_says_how_to_mend(&message);
                assert_says_how_to_mend(&error);
                assert_eq!(census.dead(), 1, "the job was dropped");
                // There was no thread, and so there was nothing that could not be mended.
                assert_eq!(runtime.block_on(unblock(|| 1)), 1);
                assert!(runtime.block_on(lookup_host("localhost:1")).is_ok());
            },
        );
    }

    #[test]
    fn where_no_other_thread_can_be_started_the_one_that_is_there_runs_all_jobs() {
        alone(
            "alone::where_no_other_thread_can_be_started_the_one_that_is_there_runs_all_jobs",
            || {
                let (first, gate) = begun(());
                let jobs: Vec<_> = without_room(|| {
                    (0..10).map(|i| unblock(move || i)).collect::<Vec<Unblock<u64>>>()
                });
                assert!(jobs.iter().all(|job| !job.is_finished()));
                gate.open();
                block_foreign(first);
                assert_eq!(block_foreign(join_all(jobs)).into_iter().sum::<u64>(), 45);
            },
        );
    }

    /// A task that blocks in place where there is no thread to take over: others wait for it.
    #[test]
    fn what_blocks_in_place_runs_although_no_other_thread_can_be_started() {
        alone("alone::what_blocks_in_place_runs_although_no_other_thread_can_be_started", || {
            // No machine has that much memory for a stack.
            let runtime = Runtime::builder().worker_threads(1).thread_stack_size(1 << 60).build();
            let sum = runtime.unwrap().block_on(async {
                let other = spawn(async { 1 });
                let blocks = spawn(async { block_in_place(|| block_in_place(|| 2)) });
                other.await + blocks.await + block_in_place(|| 3)
            });
            assert_eq!(sum, 6);
        });
    }
}
