//! The census of deadlocks: when it is taken, whom it lists, what a hook that panics does; and what is
//! never taken for a deadlock.

#![allow(clippy::disallowed_methods)] // what is tested here is also code that blocks, and time

mod common;

use std::future::{pending, poll_fn};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Gate, Hog, compute_until, hogs, listener, on_each_size, ping_pong, round_trips, self_waker,
    serve_echo, watched,
};
use futures::channel::{mpsc as channel, oneshot};
use futures::executor::block_on as block_foreign;
use futures::future::{join, join_all, select};
use futures::{FutureExt, StreamExt};
use paceline::net::{TcpListener, UdpSocket};
use paceline::time::{interval, sleep, timeout};
use paceline::{Builder, Census, Handle, Runtime, block_in_place, spawn, unblock, yield_now};

const MS: Duration = Duration::from_millis(1);
/// Many times what a census takes to be fired.
const LONG: Duration = Duration::from_millis(700);

fn watching(workers: usize) -> (Runtime, mpsc::Receiver<Census>) {
    let (hook, censuses) = listener();
    (Builder::new().worker_threads(workers).on_deadlock(hook).build().unwrap(), censuses)
}

/// The names and lines of the tasks, and the lines of the `block_on`s, in order.
fn lines(census: &Census) -> (Vec<(String, u32)>, Vec<u32>) {
    let line = |at: &std::panic::Location<'_>| {
        assert_eq!(at.file(), file!());
        at.line()
    };
    let mut tasks: Vec<_> = census
        .tasks
        .iter()
        .map(|task| (task.name.as_deref().unwrap_or("").to_owned(), line(task.spawned_at)))
        .collect();
    tasks.sort();
    (tasks, census.block_ons.iter().map(|at| line(at)).collect())
}

// Deadlocks.

#[test]
fn tasks_that_wait_for_each_other_are_listed_with_names_and_places() {
    on_each_size(|workers| {
        let (runtime, censuses) = watching(workers);
        let (to_left, left_waits) = oneshot::channel::<()>();
        let (to_right, right_waits) = oneshot::channel();
        let (release, gate) = oneshot::channel::<()>();
        let left_at = line!() + 1;
        let left = runtime.spawn_named("left", async move {
            left_waits.await.unwrap();
            to_right.send(()).unwrap();
        });
        let right_at = line!() + 1;
        let right = runtime.spawn(async move {
            right_waits.await.unwrap();
            to_left.send(()).unwrap();
        });
        thread::scope(|scope| {
            let main_at = line!() + 1;
            let main = scope.spawn(|| drop(runtime.block_on(select(join(left, right), gate))));
            let census = censuses.recv().unwrap();
            let tasks = vec![("".to_owned(), right_at), ("left".to_owned(), left_at)];
            assert_eq!(lines(&census), (tasks, vec![main_at]));
            let text = census.to_string();
            for place in [left_at, right_at, main_at] {
                assert!(text.contains(&format!("tests/deadlock.rs:{place}:")), "{text}");
            }
            assert!(text.contains("\"left\""), "{text}");
            // Whom only another thread wakes is taken for deadlocked, and goes on all the same.
            release.send(()).unwrap();
            main.join().unwrap();
        });
    });
}

#[test]
fn a_deadlock_is_told_once_and_again_after_something_has_happened() {
    on_each_size(|workers| {
        let (runtime, censuses) = watching(workers);
        let (to_task, mut task_waits) = channel::unbounded::<()>();
        let (to_main, mut main_waits) = channel::unbounded::<()>();
        let task = runtime.spawn(async move { while task_waits.next().await.is_some() {} });
        thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(async { while main_waits.next().await.is_some() {} }));
            for wakes_main in [true, false, false, true] {
                let census = censuses.recv().unwrap();
                assert_eq!((census.tasks.len(), census.block_ons.len()), (1, 1));
                thread::sleep(LONG);
                assert!(censuses.try_recv().is_err(), "nothing has happened since");
                let wakes = if wakes_main { &to_main } else { &to_task };
                wakes.unbounded_send(()).unwrap();
            }
            drop((to_task, to_main));
        });
        runtime.block_on(task);
        drop(runtime);
        assert!(censuses.try_iter().count() <= 1, "after the last message");
    });
}

/// Nothing was ever spawned, so that nobody had to look after anything.
#[test]
fn a_block_on_that_waits_alone_is_a_deadlock() {
    on_each_size(|workers| {
        let (runtime, censuses) = watching(workers);
        let (release, gate) = oneshot::channel::<()>();
        thread::scope(|scope| {
            let main_at = line!() + 1;
            let main = scope.spawn(|| runtime.block_on(gate));
            assert_eq!(lines(&censuses.recv().unwrap()), (vec![], vec![main_at]));
            release.send(()).unwrap();
            main.join().unwrap().unwrap();
        });
    });
}

/// Panics without a word from the panic hook.
fn fail(_: &Census) {
    resume_unwind(Box::new(7_u32));
}

fn failing(workers: usize) -> Runtime {
    Builder::new().worker_threads(workers).on_deadlock(fail).build().unwrap()
}

/// The payload of the hook.
#[track_caller]
fn assert_fails(run: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7_u32));
}

#[test]
fn a_panic_of_the_hook_comes_out_of_block_on() {
    on_each_size(|workers| {
        let runtime = failing(workers);
        assert_fails(|| runtime.block_on(pending()));
        // Everything works afterwards, this as well.
        for _ in 0..3 {
            assert_eq!(runtime.block_on(async { spawn(async { 1 }).await }), 1);
            runtime.block_on(sleep(MS));
            assert_fails(|| runtime.block_on(pending()));
            let task = runtime.spawn(pending());
            assert_fails(|| runtime.block_on(task));
        }
    });
}

#[test]
fn a_sender_that_was_leaked_is_found_out() {
    on_each_size(|workers| {
        let runtime = failing(workers);
        assert_fails(|| {
            runtime.block_on(async {
                let (sender, receiver) = oneshot::channel::<()>();
                spawn(async { std::mem::forget(sender) }).await;
                let _ = receiver.await;
            });
        });
    });
}

/// A lock that is held by whoever waits for it.
#[test]
fn locks_in_the_wrong_order_are_found_out() {
    on_each_size(|workers| {
        let (hook, censuses) = listener();
        let hook = move |census: &Census| {
            hook(census);
            fail(census);
        };
        let runtime = Builder::new().worker_threads(workers).on_deadlock(hook).build().unwrap();
        type Fork = Arc<futures::lock::Mutex<()>>;
        let [one, other] = [(); 2].map(|()| Fork::default());
        let both_hold = Arc::new(AtomicUsize::new(0));
        let philosopher = |name, forks: [&Fork; 2]| {
            let [first, second] = forks.map(Arc::clone);
            let hold = both_hold.clone();
            runtime.spawn_named(name, async move {
                let _first = first.lock().await;
                hold.fetch_add(1, SeqCst);
                while hold.load(SeqCst) < 2 {
                    yield_now().await;
                }
                let _second = second.lock().await;
            })
        };
        let tasks = [philosopher("Plato", [&one, &other]), philosopher("Kant", [&other, &one])];
        assert_fails(|| drop(runtime.block_on(join_all(tasks))));
        let census = censuses.recv().unwrap();
        let names: Vec<_> = lines(&census).0.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Kant", "Plato"]);
    });
}

/// Of two the one that waits longer; the other one is told of, too.
#[test]
fn the_block_on_that_waits_longest_panics() {
    on_each_size(|workers| {
        let (hook, censuses) = listener();
        let hook = move |census: &Census| {
            hook(census);
            if census.block_ons.len() == 2 {
                fail(census);
            }
        };
        let runtime = Builder::new().worker_threads(workers).on_deadlock(hook).build().unwrap();
        let (release, gate) = oneshot::channel::<()>();
        thread::scope(|scope| {
            let first_at = line!() + 1;
            let first = scope.spawn(|| assert_fails(|| runtime.block_on(pending())));
            assert_eq!(lines(&censuses.recv().unwrap()).1, [first_at]);
            let second_at = line!() + 1;
            let second = scope.spawn(|| runtime.block_on(gate));
            assert_eq!(lines(&censuses.recv().unwrap()).1, [first_at, second_at]);
            first.join().unwrap();
            assert_eq!(lines(&censuses.recv().unwrap()).1, [second_at]);
            release.send(()).unwrap();
            second.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_nested_block_on_that_waits_is_a_deadlock() {
    on_each_size(|workers| {
        let (runtime, censuses) = watching(workers);
        let handle = runtime.handle().clone();
        // In the future of another one.
        let (release, gate) = oneshot::channel::<()>();
        thread::scope(|scope| {
            let main = scope.spawn(|| runtime.block_on(async { handle.block_on(gate) }));
            censuses.recv().unwrap();
            release.send(()).unwrap();
            main.join().unwrap().unwrap();
        });
        // In a task.
        let (release, gate) = oneshot::channel::<()>();
        let nested = handle.clone();
        let task = runtime.spawn_named("nested", async move { nested.block_on(gate) });
        thread::scope(|scope| {
            let main = scope.spawn(|| runtime.block_on(task));
            censuses.recv().unwrap();
            release.send(()).unwrap();
            main.join().unwrap().unwrap();
        });
    });
}

/// A nested one that panics.
#[test]
fn a_panic_of_the_hook_comes_out_of_a_nested_block_on() {
    on_each_size(|workers| {
        let runtime = failing(workers);
        let handle = runtime.handle().clone();
        assert_fails(|| runtime.block_on(async { handle.block_on(pending()) }));
        assert_eq!(runtime.block_on(async { spawn(async { 1 }).await }), 1);
    });
}

#[test]
fn what_ended_before_does_not_keep_a_deadlock_from_being_found() {
    on_each_size(|workers| {
        let runtime = failing(workers);
        let address = serve_and_stop(&runtime);
        assert!(TcpStream::connect(address).is_err(), "it listens no more");
        runtime.block_on(async {
            unblock(|| ()).await;
            unblock(|| ()).detach();
            block_in_place(|| ());
            timeout(LONG * 100, yield_now()).await.unwrap();
            drop(sleep(LONG * 100));
            spawn(timeout(LONG * 100, yield_now())).await.unwrap();
            let waits = spawn(sleep(LONG * 100));
            yield_now().await;
            waits.cancel().await;
        });
        assert_fails(|| runtime.block_on(pending()));
    });
}

/// A socket that nobody waits for.
#[test]
fn a_descriptor_that_nobody_waits_for_does_not_keep_a_deadlock_from_being_found() {
    on_each_size(|workers| {
        let runtime = failing(workers);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        runtime.block_on(async {
            let mut accept = pin!(listener.accept());
            assert!((&mut accept).now_or_never().is_none());
        });
        assert_fails(|| runtime.block_on(pending()));
        drop(listener);
    });
}

fn serve_and_stop(runtime: &Runtime) -> std::net::SocketAddr {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let serves = runtime.spawn(async move { listener.accept().await.map(drop) });
    drop(TcpStream::connect(address).unwrap());
    runtime.block_on(serves).unwrap();
    address
}

/// As long as the one computes, it may do something for the other.
#[test]
fn a_deadlock_of_one_is_found_when_the_other_block_on_waits_as_well_or_has_ended() {
    on_each_size(|workers| {
        let (runtime, censuses) = watching(workers);
        let (release, gate) = oneshot::channel::<()>();
        thread::scope(|scope| {
            let waits = scope.spawn(|| runtime.block_on(gate));
            let computes =
                scope.spawn(|| runtime.block_on(async { compute_until(Instant::now() + LONG) }));
            let begun = Instant::now();
            let mut early = 0;
            while !computes.is_finished() {
                early += censuses.try_iter().count();
                thread::yield_now();
            }
            computes.join().unwrap();
            assert!(early <= 1, "before that had begun: {early} until {:?}", begun.elapsed());
            assert_eq!(censuses.recv().unwrap().block_ons.len(), 1);
            release.send(()).unwrap();
            waits.join().unwrap().unwrap();
        });
    });
}

// No deadlocks.

/// Does that on a runtime of each size; it must not be taken for a deadlock meanwhile.
#[track_caller]
fn assert_no_deadlock(body: impl Fn(&Runtime) + Send + Sync + 'static) {
    on_each_size(move |workers| {
        let (runtime, censuses) = watching(workers);
        body(&runtime);
        drop(runtime);
        let found: Vec<_> = censuses.try_iter().map(|census| census.to_string()).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
}

/// Lengths about that after which a census is taken.
fn lengths() -> impl Iterator<Item = Duration> {
    (50..130).step_by(6).map(Duration::from_millis)
}

#[test]
fn whoever_sleeps_is_not_deadlocked() {
    assert_no_deadlock(|runtime| {
        runtime.block_on(sleep(LONG));
        let tasks: Vec<_> = (0..3).map(|_| runtime.spawn(sleep(LONG))).collect();
        runtime.block_on(join_all(tasks));
        for length in lengths() {
            runtime.block_on(async { spawn(sleep(length)).await });
        }
    });
}

#[test]
fn an_interval_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        for period in [MS, 30 * MS, 100 * MS, 300 * MS] {
            runtime.block_on(async {
                let mut ticks = interval(period);
                let end = Instant::now() + LONG;
                while Instant::now() < end {
                    ticks.next().await;
                }
            });
        }
    });
}

#[test]
fn whoever_waits_for_a_connection_is_not_deadlocked() {
    assert_no_deadlock(|runtime| {
        let address = serve_echo(runtime);
        let client = thread::spawn(move || {
            let stream = TcpStream::connect(address).unwrap();
            for length in lengths() {
                thread::sleep(length);
                round_trips(&stream, 1);
                round_trips(&TcpStream::connect(address).unwrap(), 1);
            }
        });
        let (tell, told) = oneshot::channel();
        let waits = thread::spawn(move || {
            client.join().unwrap();
            tell.send(()).unwrap();
        });
        runtime.block_on(told).unwrap();
        waits.join().unwrap();
        // In `block_on` itself.
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            thread::sleep(LONG);
            TcpStream::connect(address).unwrap()
        });
        runtime.block_on(listener.accept()).unwrap();
        drop(client.join().unwrap());
    });
}

#[test]
fn whoever_waits_for_a_datagram_is_not_deadlocked() {
    assert_no_deadlock(|runtime| {
        let socket = runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        let address = socket.local_addr().unwrap();
        let sender = thread::spawn(move || {
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for length in lengths() {
                thread::sleep(length);
                sender.send_to(b"!", address).unwrap();
            }
        });
        for i in 0..lengths().count() {
            if i % 2 == 0 {
                runtime.block_on(socket.recv_from(&mut [0])).unwrap();
            } else {
                runtime.block_on(async { socket.readable().await }).unwrap();
                runtime.block_on(socket.recv_from(&mut [0])).unwrap();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_job_that_runs_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        // Made inside of it, and outside.
        runtime.block_on(async { unblock(|| thread::sleep(LONG)).await });
        runtime.block_on(unblock(|| thread::sleep(LONG)));
        // One after the other, on other threads than the one in `block_on`; and detached ones.
        let jobs = || async {
            for length in lengths() {
                unblock(move || thread::sleep(length)).await;
                let (tell, told) = oneshot::channel();
                unblock(move || {
                    thread::sleep(length);
                    tell.send(()).unwrap();
                })
                .detach();
                told.await.unwrap();
            }
        };
        runtime.block_on(async { spawn(jobs()).await });
    });
}

/// Always somebody runs, but seldom on a worker.
#[test]
fn jobs_that_follow_one_another_are_no_deadlock() {
    assert_no_deadlock(|runtime| {
        let end = Instant::now() + LONG;
        let hops = || async move {
            while Instant::now() < end {
                unblock(|| ()).await;
            }
        };
        runtime.block_on(async {
            let tasks: Vec<_> = (0..3).map(|_| spawn(hops())).collect();
            join(hops(), join_all(tasks)).await;
        });
    });
}

#[test]
fn what_blocks_in_place_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        runtime.block_on(async {
            block_in_place(|| thread::sleep(LONG));
            for length in lengths() {
                spawn(async move { block_in_place(|| thread::sleep(length)) }).await;
            }
            let (tell, told) = oneshot::channel();
            spawn(async move {
                block_in_place(|| thread::sleep(LONG));
                tell.send(()).unwrap();
            })
            .detach();
            told.await.unwrap();
        });
    });
}

#[test]
fn tasks_that_yield_are_no_deadlock() {
    assert_no_deadlock(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = [runtime.spawn(self_waker(stop.clone())), {
            let stop = stop.clone();
            runtime.spawn(async move {
                while !stop.load(SeqCst) {
                    spawn(yield_now()).await;
                }
            })
        }];
        thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(join_all(tasks)));
            thread::sleep(LONG);
            stop.store(true, SeqCst);
        });
    });
}

#[test]
fn tasks_that_hand_over_to_each_other_are_no_deadlock() {
    assert_no_deadlock(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                runtime.block_on(async {
                    let pairs: Vec<_> = (0..3).flat_map(|_| ping_pong(&stop)).collect();
                    join_all(pairs).await;
                });
            });
            thread::sleep(LONG);
            stop.store(true, SeqCst);
        });
    });
}

/// Two runtimes, each of whose tasks waits for the other's: seldom does anybody run on the one that is
/// looked at, but somebody will.
#[test]
fn a_main_that_hands_over_to_another_worker_all_the_time_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        let (ping, mut pings) = channel::unbounded();
        let (pong, mut pongs) = channel::unbounded();
        let task = runtime.spawn(async move {
            while pings.next().await.is_some() {
                // The worker is asleep when the next one comes.
                sleep(MS).await;
                pong.unbounded_send(()).unwrap();
            }
        });
        runtime.block_on(async move {
            let end = Instant::now() + LONG;
            while Instant::now() < end {
                ping.unbounded_send(()).unwrap();
                pongs.next().await.unwrap();
            }
        });
        runtime.block_on(task);
    });
}

#[test]
fn tasks_that_wait_for_ever_are_no_deadlock_where_nobody_waits_for_them() {
    assert_no_deadlock(|runtime| {
        (0..5).for_each(|_| runtime.spawn(pending::<()>()).detach());
        thread::sleep(LONG);
        // Nor when a `block_on` has come and gone.
        runtime.block_on(async { spawn(yield_now()).await });
        thread::sleep(LONG);
        // Nor for a thread that waits in another executor.
        let (release, gate) = oneshot::channel::<()>();
        let task = runtime.spawn(gate);
        let waits = thread::spawn(|| block_foreign(task));
        thread::sleep(LONG);
        release.send(()).unwrap();
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn a_main_that_computes_or_blocks_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        (0..5).for_each(|_| runtime.spawn(pending::<()>()).detach());
        runtime.block_on(async { compute_until(Instant::now() + LONG) });
        runtime.block_on(async { thread::sleep(LONG) });
    });
}

#[test]
fn a_task_that_computes_or_blocks_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        for how in Hog::ALL {
            let (gate, (tell, told)) = (Gate::default(), oneshot::channel());
            let entrance = gate.entrance();
            let task = runtime.spawn(async move {
                entrance.pass(how);
                tell.send(()).unwrap();
            });
            thread::scope(|scope| {
                scope.spawn(|| runtime.block_on(told).unwrap());
                thread::sleep(LONG);
                gate.open();
            });
            runtime.block_on(task);
        }
    });
}

/// Those who make up for the wedged ones have nothing to do in between.
#[test]
fn wedged_workers_are_no_deadlock() {
    assert_no_deadlock(|runtime| {
        let workers = runtime.handle().config().worker_threads();
        let hogs = hogs(runtime, workers, Hog::Waits);
        runtime.block_on(async { spawn(yield_now()).await });
        let (release, gate) = oneshot::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(gate).unwrap());
            thread::sleep(LONG);
            release.send(()).unwrap();
        });
        hogs.release();
    });
}

#[test]
fn a_timer_of_a_thread_outside_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        let ((tell, told), (armed, is_armed)) = (oneshot::channel(), mpsc::channel());
        let handle = runtime.handle().clone();
        let outside = thread::spawn(move || {
            let _guard = handle.enter();
            block_foreign(async {
                let mut sleep = pin!(sleep(LONG));
                assert!((&mut sleep).now_or_never().is_none());
                armed.send(()).unwrap();
                sleep.await;
            });
            tell.send(()).unwrap();
        });
        is_armed.recv().unwrap();
        runtime.block_on(told).unwrap();
        outside.join().unwrap();
    });
}

/// The end of a runtime while a `block_on` waits: what wakes it is the end itself.
#[test]
fn the_end_of_a_runtime_is_no_deadlock() {
    watched("", || {
        for workers in [1, 4] {
            for _ in 0..20 {
                let (runtime, censuses) = watching(workers);
                let handle = runtime.handle().clone();
                let waits = runtime.spawn(pending::<()>());
                let (tell, told) = mpsc::channel();
                let main = thread::spawn(move || {
                    tell.send(()).unwrap();
                    handle.block_on(waits.join()).unwrap_err().is_cancelled()
                });
                told.recv().unwrap();
                drop(runtime);
                assert!(main.join().unwrap());
                assert!(censuses.try_recv().is_err());
            }
        }
    });
}

/// Seeded by nothing but the machine: timers, sockets, jobs and tasks, with pauses of all lengths about
/// that after which a census is taken.
#[test]
fn a_storm_with_pauses_is_no_deadlock() {
    assert_no_deadlock(|runtime| {
        let address = serve_echo(runtime);
        let handle = Handle::clone(runtime.handle());
        runtime.block_on(async {
            for (i, length) in lengths().enumerate() {
                let (tell, told) = oneshot::channel();
                let nested = handle.clone();
                match i % 5 {
                    0 => drop(thread::spawn(move || {
                        // It is the runtime's: a descriptor is waited for.
                        let stream = TcpStream::connect(address).unwrap();
                        thread::sleep(length);
                        round_trips(&stream, 1);
                    })),
                    1 => spawn(async move { nested.block_on(sleep(length)) }).await,
                    2 => spawn(async move { unblock(move || thread::sleep(length)).await }).await,
                    3 => drop(timeout(length, pending::<()>()).await),
                    _ => spawn(async { block_in_place(|| thread::sleep(MS)) }).await,
                }
                spawn(async move {
                    sleep(length / 2).await;
                    tell.send(()).unwrap();
                })
                .detach();
                let mut polls = 0;
                let twice = poll_fn(|cx| {
                    polls += 1;
                    cx.waker().wake_by_ref();
                    if polls > 2 { Poll::Ready(()) } else { Poll::Pending }
                });
                join(twice, told).await.1.unwrap();
            }
        });
    });
}
