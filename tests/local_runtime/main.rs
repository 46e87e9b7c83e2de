//! `LocalRuntime`: a runtime of one thread. What its tasks can do is here; each other file has one kind of
//! behaviour.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

#[path = "../common/mod.rs"]
mod common;

mod end;
mod host;
mod nested;
mod turns;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::watched;
use futures::channel::oneshot;
use futures::{AsyncReadExt, AsyncWriteExt};
use paceline::net::{TcpListener, TcpStream};
use paceline::time::sleep;
use paceline::{LocalRuntime, spawn, spawn_local, yield_now};

const MILLISECOND: Duration = Duration::from_millis(1);

fn local() -> LocalRuntime {
    LocalRuntime::new().unwrap()
}

/// Runs `body` with a local runtime on a thread of its own.
#[track_caller]
fn with(body: impl FnOnce(&LocalRuntime) + Send + 'static) {
    watched("", || body(&local()));
}

/// Sends back what it is sent, on each connection, for ever.
async fn serve(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        spawn_local(async move {
            futures::io::copy(&stream, &mut &stream).await.unwrap();
        })
        .detach();
    }
}

/// An echo server in local tasks, and a round trip to it.
async fn round_trip() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _server = spawn_local(serve(listener));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let mut buffer = [0; 5];
    client.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"hello");
}

/// What a panic says.
fn message(body: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_err();
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn timers_and_sockets_work_on_the_one_thread() {
    with(|runtime| {
        runtime.block_on(async {
            round_trip().await;
            sleep(3 * MILLISECOND).await;
        });
    });
}

#[test]
fn sixty_four_connections_are_served_at_once_in_futures_that_are_not_send() {
    with(|runtime| {
        let total = Rc::new(Cell::new(0));
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let _server = spawn_local(serve(listener));
            let clients: Vec<_> = (0..64u32)
                .map(|number| {
                    let total = total.clone();
                    spawn_local(async move {
                        let mut client = TcpStream::connect(address).await.unwrap();
                        for round in 0..20 {
                            let sent = (number * 1000 + round).to_be_bytes();
                            client.write_all(&sent).await.unwrap();
                            let mut back = [0; 4];
                            client.read_exact(&mut back).await.unwrap();
                            assert_eq!(back, sent);
                            total.set(total.get() + 1);
                        }
                    })
                })
                .collect();
            for client in clients {
                client.await;
            }
        });
        assert_eq!(total.get(), 64 * 20);
    });
}

#[test]
fn datagrams_arrive() {
    with(|runtime| {
        runtime.block_on(async {
            let bind = || paceline::net::UdpSocket::bind("127.0.0.1:0");
            let (one, other) = (bind().await.unwrap(), bind().await.unwrap());
            let address = other.local_addr().unwrap();
            let answer = spawn_local(async move {
                let (mut buffer, from) = ([0; 16], one.local_addr().unwrap());
                one.send_to(b"question", address).await.unwrap();
                let (count, _) = one.recv_from(&mut buffer).await.unwrap();
                (buffer[..count].to_vec(), from)
            });
            let mut buffer = [0; 16];
            let (count, from) = other.recv_from(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..count], b"question");
            other.send_to(b"answer", from).await.unwrap();
            assert_eq!(answer.await, (b"answer".to_vec(), from));
        });
    });
}

#[cfg(unix)]
#[test]
fn unix_streams_work() {
    with(|runtime| {
        runtime.block_on(async {
            let (mut near, far) = paceline::net::unix::UnixStream::pair().unwrap();
            let echo =
                spawn_local(async move { futures::io::copy(&far, &mut &far).await.unwrap() });
            near.write_all(b"hello").await.unwrap();
            near.read_exact(&mut [0; 5]).await.unwrap();
            drop(near);
            assert_eq!(echo.await, 5);
        });
    });
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines() {
    with(|runtime| {
        let order = Rc::new(RefCell::new(Vec::new()));
        runtime.block_on(async {
            let start = Instant::now() + 5 * MILLISECOND;
            let tasks: Vec<_> = [3u32, 1, 4, 0, 2]
                .map(|place| {
                    let order = order.clone();
                    spawn_local(async move {
                        paceline::Timer::at(start + place * 3 * MILLISECOND).await;
                        order.borrow_mut().push(place);
                    })
                })
                .into();
            for task in tasks {
                task.await;
            }
        });
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
    });
}

/// Each round, a thread sends once `local` has told it that it waits (or is about to).
#[track_caller]
fn wakes_arrive(meanwhile: impl AsyncFn() + Copy + 'static) {
    const ROUNDS: usize = 300;
    let runtime = local();
    let (ask, asked) = mpsc::channel::<oneshot::Sender<usize>>();
    let answers = thread::spawn(move || {
        for (number, sender) in asked.into_iter().enumerate() {
            sender.send(number).unwrap();
        }
    });
    runtime.block_on(async move {
        let other = spawn_local(async move { meanwhile().await });
        for round in 0..ROUNDS {
            let (sender, receiver) = oneshot::channel();
            let task = spawn_local(receiver);
            ask.send(sender).unwrap();
            assert_eq!(task.await, Ok(round));
        }
        drop(other);
    });
    answers.join().unwrap();
}

#[test]
fn wakes_from_a_thread_reach_it_while_it_sleeps() {
    watched("in bed", || wakes_arrive(async || {}));
    watched("until a timer is due", || {
        wakes_arrive(async || sleep(Duration::from_secs(3600)).await);
    });
    watched("for a socket", || {
        wakes_arrive(async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.accept().await.unwrap();
        });
    });
}

#[test]
fn wakes_from_a_thread_reach_it_while_it_is_busy() {
    let busy = async || loop {
        yield_now().await;
    };
    watched("with a local task", move || wakes_arrive(busy));
    watched("with a task that is Send", || {
        wakes_arrive(async || {
            spawn(async {
                loop {
                    yield_now().await;
                }
            })
            .await
        });
    });
}

#[test]
fn wakes_from_a_thread_between_two_block_ons_are_kept() {
    with(|runtime| {
        for round in 0..300 {
            let (sender, receiver) = oneshot::channel();
            let task = runtime.spawn(receiver);
            if round % 2 == 0 {
                runtime.block_on(yield_now());
            }
            let sends = thread::spawn(move || sender.send(round).unwrap());
            if round % 3 == 0 {
                sends.join().unwrap();
            }
            assert_eq!(runtime.block_on(task), Ok(round));
        }
    });
}

#[test]
fn spawn_means_the_local_runtimes_own_thread() {
    with(|runtime| {
        let here = thread::current().id();
        let beside = Rc::new(Cell::new(0));
        runtime.block_on(async {
            for round in 0..100 {
                let local = spawn_local({
                    let beside = beside.clone();
                    async move {
                        // Also from inside of a local task.
                        assert_eq!(spawn(async { thread::current().id() }).await, here);
                        beside.set(beside.get() + 1);
                    }
                });
                let id = spawn(async move {
                    yield_now().await;
                    spawn(async { thread::current().id() }).await
                });
                assert_eq!(id.await, here);
                local.await;
                assert_eq!(beside.get(), round + 1);
            }
        });
    });
}

#[test]
fn a_task_that_is_send_can_spawn_local_ones() {
    with(|runtime| {
        let answer = runtime.block_on(async {
            spawn(async { spawn_local(async { Rc::new(5).as_ref() + 1 }).detach() }).await;
            spawn(async {
                let (tell, told) = oneshot::channel();
                spawn_local(async move { tell.send(*Rc::new(7)).unwrap() }).detach();
                told.await.unwrap()
            })
            .await
        });
        assert_eq!(answer, 7);
    });
}

#[test]
fn tasks_that_threads_spawn_through_the_handle_run_on_its_thread_as_soon_as_it_works() {
    with(|runtime| {
        let here = thread::current().id();
        let ids = || {
            let handle = runtime.handle().clone();
            let spawns = move || {
                let id = || async { thread::current().id() };
                (0..50).map(|_| handle.spawn(id())).collect::<Vec<_>>()
            };
            thread::spawn(spawns)
        };
        let all = async |tasks: thread::JoinHandle<Vec<paceline::Task<_>>>| {
            for task in tasks.join().unwrap() {
                assert_eq!(task.await, here);
            }
        };
        // Before, during and after.
        let before = ids();
        runtime.block_on(all(before));
        runtime.block_on(async {
            let (tell, told) = oneshot::channel();
            let handle = runtime.handle().clone();
            let spawns = thread::spawn(move || {
                handle.spawn(async move { tell.send(thread::current().id()) }).detach();
            });
            assert_eq!(told.await, Ok(here));
            spawns.join().unwrap();
        });
        let after = ids();
        runtime.block_on(all(after));
    });
}

#[test]
fn a_thread_in_block_on_of_its_handle_only_waits() {
    with(|runtime| {
        let (here, handle) = (thread::current().id(), runtime.handle().clone());
        let (tell, told) = oneshot::channel();
        let waits = thread::spawn(move || {
            handle.block_on(async {
                for _ in 0..100 {
                    let id = spawn(async { thread::current().id() }).await;
                    assert_eq!(id, here);
                    sleep(MILLISECOND / 10).await;
                }
            });
            tell.send(()).unwrap();
        });
        runtime.block_on(told).unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn block_on_of_the_handle_on_its_own_thread_panics_and_says_what_to_call() {
    with(|runtime| {
        let said = message(|| runtime.handle().block_on(async {}));
        assert!(said.contains("`LocalRuntime::block_on`"), "{said}");
    });
}

#[test]
fn unblock_and_block_in_place_work_inside() {
    with(|runtime| {
        runtime.block_on(async {
            let here = thread::current().id();
            let there = paceline::unblock(|| thread::current().id()).await;
            assert_ne!(here, there);
            let local = spawn_local(async { paceline::block_in_place(|| thread::current().id()) });
            assert_eq!(local.await, here);
            let task = spawn(async { paceline::block_in_place(|| thread::current().id()) });
            assert_eq!(task.await, here);
            round_trip().await;
            sleep(MILLISECOND).await;
        });
    });
}

#[test]
fn spawn_local_elsewhere_panics_and_says_where_to_call_it() {
    with(|runtime| {
        let spawns = || spawn_local(async {}).detach();
        let outside = message(spawns);
        assert!(outside.contains("inside of `LocalRuntime::block_on`"), "{outside}");
        runtime.block_on(async {
            spawns();
            assert_eq!(thread::spawn(move || message(spawns)).join().unwrap(), outside);
        });
        assert_eq!(message(spawns), outside);
        let said = message(|| runtime.block_on(async { common::silent_panic() }));
        assert_eq!(said, "silent");
        assert_eq!(message(spawns), outside, "after a panic");
    });
}

#[test]
fn panics_of_tasks_reach_who_awaits_them_and_nobody_else() {
    with(|runtime| {
        runtime.block_on(async {
            let local = spawn_local(async { common::silent_panic() });
            let send = spawn(async { common::silent_panic() });
            assert!(local.join().await.unwrap_err().is_panic());
            assert!(send.join().await.unwrap_err().is_panic());
            round_trip().await;
        });
    });
}

#[test]
fn libraries_can_spawn_through_the_traits() {
    use futures::task::{LocalSpawnExt, SpawnExt};
    with(|runtime| {
        let local = runtime.spawn_local_with_handle(async { *Rc::new(1) }).unwrap();
        let send = SpawnExt::spawn_with_handle(runtime, async { 2 }).unwrap();
        let other = SpawnExt::spawn_with_handle(runtime.handle(), async { 3 }).unwrap();
        let sum = runtime.block_on(async { local.await + send.await + other.await });
        assert_eq!(sum, 6);
    });
}

#[test]
fn eight_runtimes_on_eight_threads_talk_to_one_another() {
    watched("", || {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..8).map(|_| async_channel::unbounded::<u32>()).unzip();
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(index, receiver)| {
                let next = senders[(index + 1) % 8].clone();
                thread::spawn(move || {
                    local().block_on(async {
                        round_trip().await;
                        while let Ok(hops) = receiver.recv().await {
                            let next = next.clone();
                            // The last 8 hops tell all to leave.
                            spawn_local(async move { _ = next.send(hops.saturating_sub(1)).await })
                                .await;
                            if hops <= 8 {
                                break;
                            }
                        }
                    });
                })
            })
            .collect();
        senders[0].try_send(2000).unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn settings_that_need_a_ticker_or_threads_are_refused_by_name() {
    let builder = paceline::Builder::new;
    let refused = |builder: paceline::Builder, name: &str, accepted: &str| {
        let error = builder.build_local().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.starts_with(name) && text.contains(accepted), "{text}");
    };
    refused(
        builder().worker_threads(2),
        "worker_threads is 2, ",
        "1 where the runtime is a local one",
    );
    refused(
        builder().worker_threads(0),
        "worker_threads is 0, ",
        "1 where the runtime is a local one",
    );
    refused(
        builder().on_wedge(|_| ()),
        "on_wedge is set, ",
        "unset where the runtime is a local one",
    );
    refused(builder().on_deadlock(|_| ()), "on_deadlock is set, ", "unset where");
    refused(builder().thread_name("\0"), "thread_name ", "NUL");
    assert!(builder().worker_threads(1).build_local().is_ok());
}

#[test]
fn each_setting_leaves_the_runtime_working() {
    let builder = paceline::Builder::new;
    let builders = [
        builder().wake_slot(false),
        builder().timeslice(Duration::ZERO),
        builder().timeslice(Duration::from_secs(1)),
        builder().spin(paceline::Spin::Off),
        builder().spin(paceline::Spin::Adaptive),
        builder().ticker(paceline::Ticker::Every(MILLISECOND)),
    ];
    for (number, builder) in builders.into_iter().enumerate() {
        watched(&format!("with setting {number}"), move || {
            let runtime = builder.build_local().unwrap();
            runtime.block_on(async {
                for _ in 0..20 {
                    round_trip().await;
                    let (sender, receiver) = async_channel::bounded(1);
                    let ping = spawn_local({
                        let receiver = receiver.clone();
                        async move { receiver.recv().await.unwrap() }
                    });
                    spawn(async move { sender.send(1).await.unwrap() }).await;
                    assert_eq!(ping.await, 1);
                    sleep(MILLISECOND / 10).await;
                }
            });
        });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_thread_is_ever_started_and_idleness_takes_no_cpu_time() {
    common::alone("no_thread_is_ever_started_and_idleness_takes_no_cpu_time", || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let runtime = local();
        let listener = runtime.block_on(async {
            round_trip().await;
            spawn(sleep(MILLISECOND)).await;
            spawn_local(sleep(MILLISECOND)).await;
            paceline::block_in_place(|| ());
            TcpListener::bind("127.0.0.1:0").await.unwrap()
        });
        while !runtime.run_until_stalled(MILLISECOND) {}
        assert_eq!(threads(), before);
        let cpu_time = || {
            // SAFETY: the pointer is to a local.
            let time = unsafe {
                let mut time = std::mem::zeroed::<libc::timespec>();
                libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
                time
            };
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let _accepts = runtime.spawn(async move { listener.accept().await.map(drop) });
        runtime.block_on(yield_now());
        let (began, parks) = (cpu_time(), runtime.metrics().total().parks);
        runtime.block_on(sleep(Duration::from_secs(1)));
        let (used, parked) = (cpu_time() - began, runtime.metrics().total().parks - parks);
        assert!(
            used < Duration::from_millis(200) && parked <= 4,
            "{used:?}, parked {parked} times"
        );
        assert_eq!(threads(), before);
        drop(runtime);
        assert_eq!(threads(), before);
    });
}

#[cfg(unix)]
#[test]
fn a_forked_child_is_told_so_and_may_drop_it() {
    common::alone("a_forked_child_is_told_so_and_may_drop_it", || {
        let runtime = local();
        runtime.block_on(round_trip());
        let (_far, near) = paceline::net::unix::UnixStream::pair().unwrap();
        let waits = runtime.spawn(async move { (&near).read(&mut [0]).await.map(drop) });
        runtime.block_on(yield_now());
        // SAFETY: the child runs on its only thread, which holds no lock, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let said = [
                message(|| runtime.block_on(async {})),
                message(|| _ = runtime.run_until_stalled(MILLISECOND)),
            ];
            let fine = said.iter().all(|said| said.contains("forked"));
            drop(runtime);
            local().block_on(round_trip());
            // SAFETY: it has no preconditions.
            unsafe { libc::_exit(i32::from(!fine)) };
        }
        let mut status = 0;
        // SAFETY: the pointer is to a local.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
        runtime.block_on(round_trip());
        assert!(!waits.is_finished());
    });
}
