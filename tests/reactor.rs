//! Descriptors in the reactor: who drives it, whom an event wakes, what an always-ready one may not
//! do, how it ends. Sockets' protocols are in `net.rs`, timers in `time.rs`.
#![cfg(unix)]
#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

mod common;

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    compute_until, on_each, on_each_size, ping_pong, runtime, self_waker, until, waker_that,
    watched,
};
use futures::executor::block_on as block_foreign;
use futures::future::{join, join_all};
use futures::stream::FuturesUnordered;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, poll};
use paceline::time::{sleep, timeout};
use paceline::{Async, Builder, Handle, Runtime, Task, Ticker, spawn, unconstrained, yield_now};

const MS: Duration = Duration::from_millis(1);

type Socket = Async<UnixStream>;

/// Two connected sockets on the runtime of this thread.
fn pair() -> (Socket, Socket) {
    let (a, b) = UnixStream::pair().unwrap();
    (Async::new(a).unwrap(), Async::new(b).unwrap())
}

/// One on that runtime, and its peer, which blocks.
fn half_on(runtime: &Runtime) -> (Socket, UnixStream) {
    let _guard = runtime.handle().enter();
    let (near, far) = UnixStream::pair().unwrap();
    (Async::new(near).unwrap(), far)
}

async fn send(socket: &Socket, byte: u8) {
    assert_eq!(socket.write_with(|mut socket| socket.write(&[byte])).await.unwrap(), 1);
}

/// None at the end.
async fn receive(socket: &Socket) -> Option<u8> {
    let mut byte = [0];
    let count = socket.read_with(|mut socket| socket.read(&mut byte)).await.unwrap();
    (count == 1).then_some(byte[0])
}

/// Sends back what comes, until the end.
async fn echo(socket: Socket) {
    while let Some(byte) = receive(&socket).await {
        send(&socket, byte).await;
    }
}

/// Sends bytes, and receives each before the next.
async fn talk(socket: Socket, rounds: u32) {
    for round in 0..rounds {
        send(&socket, round as u8).await;
        assert_eq!(receive(&socket).await, Some(round as u8));
    }
}

/// Two tasks that talk through sockets, and one that sleeps; from wherever it is called.
fn start_traffic(runtime: &Runtime) -> [Task<()>; 3] {
    let _guard = runtime.handle().enter();
    let (a, b) = pair();
    let sleeps = async {
        for _ in 0..10 {
            sleep(MS / 2).await;
        }
    };
    [runtime.spawn(talk(a, 50)), runtime.spawn(echo(b)), runtime.spawn(sleeps)]
}

/// What does not need a worker: this thread waits itself.
fn wait_from_outside(runtime: &Runtime) {
    let _guard = runtime.handle().enter();
    let (a, b) = pair();
    block_foreign(join(talk(a, 20), echo(b)));
    block_foreign(async {
        for _ in 0..5 {
            sleep(MS / 2).await;
        }
    });
}

// Who drives.

/// Tasks that hold their workers until the gate is opened.
fn block_workers(runtime: &Runtime, count: usize) -> impl FnOnce() + use<> {
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let all_block = Arc::new(Barrier::new(count + 1));
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (gate, all_block) = (gate.clone(), all_block.clone());
            runtime.spawn(async move {
                all_block.wait();
                // A lock that another one holds blocks as well.
                gate.lock().unwrap().recv().unwrap_err();
            })
        })
        .collect();
    all_block.wait();
    move || {
        drop(open);
        tasks.into_iter().for_each(block_foreign);
    }
}

#[test]
fn tasks_are_woken_by_events_while_all_other_workers_are_blocked() {
    for workers in [2, 4] {
        watched("tasks", move || {
            let runtime = runtime(workers);
            for _ in 0..3 {
                let open = block_workers(&runtime, workers - 1);
                start_traffic(&runtime).into_iter().for_each(block_foreign);
                open();
            }
        });
    }
}

/// The workers block before anything is waited for, so that nothing made them be looked after.
#[test]
fn a_foreign_thread_is_woken_by_events_while_all_workers_but_one_are_blocked() {
    for workers in [2, 4] {
        for ticker in [Ticker::Adaptive, Ticker::Off] {
            watched("foreign", move || {
                for _ in 0..3 {
                    let runtime =
                        Builder::new().worker_threads(workers).ticker(ticker).build().unwrap();
                    let open = block_workers(&runtime, workers - 1);
                    wait_from_outside(&runtime);
                    open();
                }
            });
        }
    }
}

/// The thread that slept in the reactor is taken for a task that blocks, out of the blue: nothing was
/// scheduled on a worker that anybody would have to look after.
#[test]
fn a_foreign_thread_is_woken_by_events_although_the_one_that_drove_is_blocked() {
    for ticker in [Ticker::Adaptive, Ticker::Off] {
        watched("drove", move || {
            for workers in [2, 4] {
                let runtime =
                    Builder::new().worker_threads(workers).ticker(ticker).build().unwrap();
                for _ in 0..2 {
                    let (near, mut far) = half_on(&runtime);
                    let waits = thread::spawn(move || block_foreign(receive(&near)));
                    // For the ticker to fall asleep.
                    thread::sleep(150 * MS);
                    let open = block_workers(&runtime, workers - 1);
                    far.write_all(b"!").unwrap();
                    assert_eq!(waits.join().unwrap(), Some(b'!'));
                    open();
                }
            }
        });
    }
}

/// A worker waits for a timer and a socket, and blocks until another has been woken by them.
#[test]
fn what_a_worker_waited_for_wakes_others_while_it_blocks() {
    for workers in [2, 4] {
        watched("blocks", move || {
            let runtime = runtime(workers);
            for _ in 0..10 {
                let blocks = async {
                    let (tell, told) = mpsc::channel();
                    let tell_too = tell.clone();
                    let (a, b) = pair();
                    spawn(async move {
                        assert_eq!(receive(&a).await, Some(7));
                        tell.send(()).unwrap();
                    })
                    .detach();
                    spawn(async move {
                        sleep(MS).await;
                        send(&b, 7).await;
                        tell_too.send(()).unwrap();
                    })
                    .detach();
                    yield_now().await;
                    (0..2).for_each(|_| told.recv().unwrap());
                };
                runtime.block_on(blocks);
            }
        });
    }
}

#[test]
fn tasks_are_woken_by_events_beside_a_hundred_that_wake_themselves() {
    on_each(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..100).map(|_| runtime.spawn(self_waker(stop.clone()))).collect();
        start_traffic(&runtime).into_iter().for_each(|task| runtime.block_on(task));
        wait_from_outside(&runtime);
        stop.store(true, SeqCst);
        hogs.into_iter().for_each(|task| runtime.block_on(task));
    });
}

#[test]
fn tasks_are_woken_by_events_beside_a_pair_that_wakes_each_other() {
    on_each(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        runtime.block_on(async {
            let pair = ping_pong(&stop);
            for task in start_traffic(&runtime) {
                task.await;
            }
            stop.store(true, SeqCst);
            for task in pair {
                task.await;
            }
        });
    });
}

#[test]
fn a_foreign_thread_waits_for_descriptors_of_idle_runtimes() {
    on_each(|runtime| {
        wait_from_outside(&runtime);
        runtime.block_on(async {});
        wait_from_outside(&runtime);
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| wait_from_outside(&runtime))));
        });
    });
    watched("the default runtime", || {
        let (a, b) = pair();
        block_foreign(join(talk(a, 100), echo(b)));
    });
}

/// Whoever sees to it; the second time there is no ticker.
#[test]
fn traffic_goes_on_after_block_on_has_returned() {
    on_each_size(|workers| {
        for ticker in [Ticker::Adaptive, Ticker::Off] {
            for main_waits in [false, true] {
                let runtime =
                    Builder::new().worker_threads(workers).ticker(ticker).build().unwrap();
                let (tell, told) = mpsc::channel();
                let (c, mut far) = half_on(&runtime);
                runtime.block_on(async {
                    let (a, b) = pair();
                    spawn(async move { join(talk(a, 20), echo(b)).await }).detach();
                    spawn(async move {
                        talk(c, 20).await;
                        tell.send(()).unwrap();
                    })
                    .detach();
                    if main_waits {
                        let (e, f) = pair();
                        join(talk(e, 5), echo(f)).await;
                    }
                });
                let mut byte = [0];
                for _ in 0..20 {
                    far.read_exact(&mut byte).unwrap();
                    far.write_all(&byte).unwrap();
                }
                told.recv().unwrap();
            }
        }
    });
}

#[test]
fn a_nested_block_on_waits_for_descriptors() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        runtime.block_on(runtime.spawn(async move {
            handle.block_on(async {
                let (a, b) = pair();
                join(talk(a, 20), echo(b)).await;
                let (a, b) = pair();
                spawn(echo(b)).detach();
                talk(a, 20).await;
            });
        }));
    });
}

/// A task of one runtime that waits for a descriptor of another.
#[test]
fn a_task_waits_for_a_descriptor_of_another_runtime() {
    on_each_size(|workers| {
        let (home, away) = (runtime(workers), runtime(workers));
        let (near, mut far) = half_on(&home);
        let task = away.spawn(talk(near, 100));
        let mut byte = [0];
        for _ in 0..100 {
            far.read_exact(&mut byte).unwrap();
            far.write_all(&byte).unwrap();
        }
        away.block_on(task);
        assert_eq!((home.metrics().sources, away.metrics().sources), (0, 0));
    });
}

// Whom an event wakes, and how.

#[test]
fn wakes_by_events_and_timers_never_take_the_slot() {
    on_each(|runtime| {
        for _ in 0..5 {
            start_traffic(&runtime).into_iter().for_each(block_foreign);
        }
        runtime.block_on(async {
            let (a, b) = pair();
            join(talk(a, 50), echo(b)).await;
            sleep(MS).await;
        });
        let counted = runtime.metrics().total();
        assert_eq!((counted.slot_hits, counted.slot_displacements), (0, 0), "{counted:?}");
    });
}

/// A thread that blocks on the other side: events come from outside, at any moment.
#[test]
fn an_event_beside_the_wish_to_wait_is_not_lost() {
    on_each(|runtime| {
        let (near, mut far) = half_on(&runtime);
        let task = runtime.spawn(async move {
            let mut near = near;
            let mut bytes = [0; 64];
            let mut sum = 0;
            loop {
                // In turns with the two ways to wait.
                match near.read_with(|mut near| near.read(&mut bytes)).await.unwrap() {
                    0 => return sum,
                    count => sum += count,
                }
                match near.read(&mut bytes).await.unwrap() {
                    0 => return sum,
                    count => sum += count,
                }
            }
        });
        for i in 0..5_000 {
            far.write_all(&[0; 3]).unwrap();
            if i % 64 == 0 {
                thread::yield_now();
            }
        }
        drop(far);
        assert_eq!(runtime.block_on(task), 15_000);
    });
}

#[test]
fn all_who_wait_for_one_direction_are_woken() {
    const WAITERS: usize = 50;
    on_each(|runtime| {
        for at_once in [true, false] {
            let (near, mut far) = half_on(&runtime);
            let near = Arc::new(near);
            let waiting = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..WAITERS)
                .map(|_| {
                    let (near, waiting) = (near.clone(), waiting.clone());
                    runtime.spawn(async move {
                        let read = pin!(receive(&near));
                        waiting.fetch_add(1, SeqCst);
                        read.await
                    })
                })
                .collect();
            until(|| waiting.load(SeqCst) == WAITERS);
            if at_once {
                far.write_all(&[1; WAITERS]).unwrap();
            } else {
                (0..WAITERS).for_each(|_| far.write_all(&[1]).unwrap());
            }
            for task in tasks {
                assert_eq!(runtime.block_on(task), Some(1));
            }
            // Those who only want to know are woken as well; here by the end.
            let ready: Vec<_> = (0..WAITERS)
                .map(|_| {
                    let near = near.clone();
                    runtime.spawn(async move { near.readable().await })
                })
                .collect();
            drop(far);
            ready.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        }
    });
}

/// Empties it, and finds that reading would block.
fn drain(socket: &Socket) {
    let empties = poll_fn(|cx| {
        while socket.poll_read_with(cx, |mut socket| socket.read(&mut [0; 64])).is_ready() {}
        Poll::Ready(())
    });
    block_foreign(unconstrained(empties));
}

/// A waker that counts.
fn counting() -> (Waker, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    (waker_that(move || _ = counted.fetch_add(1, SeqCst)), count)
}

#[test]
fn the_last_to_poll_is_woken_and_the_one_before_is_told_to_ask_again() {
    on_each(|runtime| {
        let (near, mut far) = half_on(&runtime);
        drain(&near);
        let ((first, firsts), (second, seconds)) = (counting(), counting());
        let poll = |waker: &Waker| near.poll_readable(&mut Context::from_waker(waker));
        assert!(poll(&first).is_pending() && poll(&first).is_pending());
        assert_eq!(firsts.load(SeqCst), 0);
        assert!(poll(&second).is_pending());
        assert_eq!((firsts.load(SeqCst), seconds.load(SeqCst)), (1, 0));
        far.write_all(b"!").unwrap();
        until(|| seconds.load(SeqCst) == 1);
        assert_eq!(firsts.load(SeqCst), 1);
        assert!(poll(&first).is_ready() && poll(&second).is_ready());

        // Two tasks that poll both come to their end.
        drain(&near);
        let near = Arc::new(near);
        let tasks = [(); 2].map(|()| {
            let near = near.clone();
            runtime.spawn(async move { poll_fn(|cx| near.poll_readable(cx)).await })
        });
        far.write_all(b"!").unwrap();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

#[test]
fn a_wait_that_is_given_up_wakes_nobody_and_can_be_begun_again() {
    on_each(|runtime| {
        let (near, mut far) = half_on(&runtime);
        drain(&near);
        let (waker, wakes) = counting();
        for _ in 0..1_000 {
            let mut readable = pin!(near.readable());
            assert!(readable.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let (stays, stayed) = counting();
        let mut readable = pin!(near.readable());
        assert!(readable.as_mut().poll(&mut Context::from_waker(&stays)).is_pending());
        runtime.block_on(async { assert!(poll!(pin!(near.readable())).is_pending()) });
        far.write_all(b"!").unwrap();
        until(|| stayed.load(SeqCst) == 1);
        assert_eq!(wakes.load(SeqCst), 0);
        runtime.block_on(readable).unwrap();
        assert_eq!(runtime.block_on(receive(&near)), Some(b'!'));
    });
}

#[test]
fn the_end_of_the_peer_wakes() {
    on_each(|runtime| {
        let (near, far) = half_on(&runtime);
        let task = runtime.spawn(async move {
            let end = receive(&near).await;
            (end, near.write_with(|mut near| near.write(b"!")).await.unwrap_err().kind())
        });
        let (idle, other) = half_on(&runtime);
        let closes = runtime.spawn(async move { receive(&idle).await });
        other.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(runtime.block_on(closes), None);
        drop(far);
        assert_eq!(runtime.block_on(task), (None, io::ErrorKind::BrokenPipe));
    });
}

#[test]
fn one_stream_is_read_and_written_at_once() {
    const BYTES: usize = 2_000_000;
    async fn fill(socket: &Socket) {
        let mut writer = socket;
        writer.write_all(&vec![7; BYTES]).await.unwrap();
    }
    async fn empty(socket: &Socket) {
        let (mut reader, mut bytes) = (socket, vec![0; BYTES]);
        reader.read_exact(&mut bytes).await.unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
    on_each(|runtime| {
        // In one task, then in four.
        runtime.block_on(async {
            let (a, b) = pair();
            join(join(fill(&a), empty(&a)), join(fill(&b), empty(&b))).await;
        });
        let _guard = runtime.handle().enter();
        let (a, b) = pair();
        let tasks: Vec<_> = [Arc::new(a), Arc::new(b)]
            .into_iter()
            .flat_map(|socket| {
                let same = socket.clone();
                [
                    runtime.spawn(async move { fill(&socket).await }),
                    runtime.spawn(async move { empty(&same).await }),
                ]
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task));
    });
}

// What is always ready.

/// An operation that never blocks.
async fn always_ready(socket: &Socket, computing: Duration) {
    let op = |_: &UnixStream| {
        if !computing.is_zero() {
            compute_until(Instant::now() + computing);
        }
        Ok(())
    };
    socket.read_with(op).await.unwrap();
}

#[test]
fn an_always_ready_descriptor_does_not_hold_its_worker() {
    on_each(|runtime| {
        for computing in [Duration::ZERO, Duration::from_micros(30)] {
            let (socket, mut far) = half_on(&runtime);
            // Never read, so that it stays readable.
            far.write_all(b"!").unwrap();
            let yields_before = runtime.metrics().total().forced_yields;
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            let hog = runtime.spawn(async move {
                while !stopped.load(SeqCst) {
                    always_ready(&socket, computing).await;
                    socket.readable().await.unwrap();
                    poll_fn(|cx| socket.poll_writable(cx)).await.unwrap();
                }
            });
            start_traffic(&runtime).into_iter().for_each(|task| runtime.block_on(task));
            runtime.block_on(async { spawn(yield_now()).await });
            stop.store(true, SeqCst);
            runtime.block_on(hog);
            assert!(runtime.metrics().total().forced_yields > yields_before);
        }
    });
}

#[test]
fn a_timeout_ends_an_always_ready_descriptor() {
    on_each(|runtime| {
        for computing in [Duration::ZERO, Duration::from_micros(30)] {
            let hog = |(socket, _far): (Socket, UnixStream)| async move {
                let _far = _far;
                loop {
                    always_ready(&socket, computing).await;
                }
            };
            let hog = || timeout(2 * MS, hog(half_on(&runtime)));
            runtime.block_on(hog()).unwrap_err();
            runtime.block_on(runtime.spawn(hog())).unwrap_err();
            // Where there is no processor, there is no slice.
            block_foreign(hog()).unwrap_err();
            let (handle, nested) = (runtime.handle().clone(), hog());
            runtime.block_on(runtime.spawn(async move { handle.block_on(nested) })).unwrap_err();
            let open = block_workers(&runtime, runtime.handle().config().worker_threads());
            runtime.block_on(hog()).unwrap_err();
            open();
        }
    });
}

/// What a library does that reads by its own means.
#[test]
fn readiness_is_the_systems_also_when_somebody_else_reads() {
    on_each(|runtime| {
        let (near, far) = runtime.block_on(async { pair() });
        let (calls, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, wrote) = (calls.clone(), written.clone());
        let reader = runtime.spawn(async move {
            let mut read = 0;
            while read < 100 {
                near.readable().await.unwrap();
                counted.fetch_add(1, SeqCst);
                let mut socket = near.get_ref();
                read += socket.read(&mut [0; 1]).expect("ready, by what the system says");
                assert!(read <= wrote.load(SeqCst));
            }
        });
        runtime.block_on(async {
            for _ in 0..100 {
                written.fetch_add(1, SeqCst);
                far.write_with(|mut far| far.write(b"!")).await.unwrap();
                yield_now().await;
            }
            reader.await;
        });
        assert_eq!(calls.load(SeqCst), 100);
    });
}

#[test]
fn what_is_unconstrained_does_not_give_way() {
    for workers in [1, 4] {
        watched("unconstrained", move || {
            let runtime =
                Builder::new().worker_threads(workers).timeslice(Duration::ZERO).build().unwrap();
            let yields = |constrained: bool| {
                let (socket, _far) = half_on(&runtime);
                let before = runtime.metrics().total().forced_yields;
                let reads = async move {
                    for _ in 0..1_000 {
                        always_ready(&socket, Duration::ZERO).await;
                        sleep(Duration::ZERO).await;
                    }
                };
                if constrained {
                    runtime.block_on(runtime.spawn(reads));
                } else {
                    runtime.block_on(runtime.spawn(unconstrained(reads)));
                }
                runtime.metrics().total().forced_yields - before
            };
            assert_eq!(yields(false), 0);
            assert!(yields(true) > 0);
        });
    }
}

/// Polls it again whenever it has woken itself, as long as that takes.
async fn eagerly<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let woken = Arc::new(AtomicBool::new(false));
    poll_fn(move |cx| {
        loop {
            let (outer, flag) = (cx.waker().clone(), woken.clone());
            let waker = waker_that(move || {
                flag.store(true, SeqCst);
                outer.wake_by_ref();
            });
            let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
            if poll.is_ready() || !woken.swap(false, SeqCst) {
                return poll;
            }
        }
    })
    .await
}

/// Parts of tasks that poll others without giving way in between, on spent slices.
#[test]
fn combinators_of_always_ready_descriptors_come_to_their_end() {
    const PARTS: usize = 200;
    async fn reads(socket: &Socket) {
        for _ in 0..50 {
            always_ready(socket, Duration::ZERO).await;
        }
        for _ in 0..5 {
            always_ready(socket, Duration::from_micros(10)).await;
            sleep(Duration::ZERO).await;
        }
    }
    on_each(|runtime| {
        let in_a_task = |body: fn(Socket) -> Pin<Box<dyn Future<Output = ()> + Send>>| {
            let (socket, _far) = half_on(&runtime);
            runtime.block_on(runtime.spawn(body(socket)));
            let (socket, _far) = half_on(&runtime);
            runtime.block_on(body(socket));
        };
        in_a_task(|socket| {
            Box::pin(async move {
                let mut parts: FuturesUnordered<_> = (0..PARTS).map(|_| reads(&socket)).collect();
                while parts.next().await.is_some() {}
                drop(parts);
                join_all((0..PARTS).map(|_| reads(&socket))).await;
            })
        });
        in_a_task(|socket| {
            Box::pin(async move {
                let until = pin!(reads(&socket));
                futures::stream::repeat(()).take_until(until).for_each(|()| async {}).await;
            })
        });
        in_a_task(|socket| Box::pin(async move { eagerly(reads(&socket)).await }));
        in_a_task(|socket| Box::pin(async move { block_foreign(reads(&socket)) }));
    });
}

/// A set that is filled up as it empties is one task: it gives way as a whole.
#[test]
fn a_set_of_always_ready_descriptors_does_not_hold_its_worker() {
    watched("one worker", || {
        let runtime = runtime(1);
        for computing in [Duration::ZERO, Duration::from_micros(30)] {
            let (socket, _far) = half_on(&runtime);
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            let hog = runtime.spawn(async move {
                let part = || always_ready(&socket, computing);
                let mut parts: FuturesUnordered<_> = (0..100).map(|_| part()).collect();
                while parts.next().await.is_some() && !stopped.load(SeqCst) {
                    parts.push(part());
                }
            });
            runtime.block_on(runtime.spawn(async move { stop.store(true, SeqCst) }));
            runtime.block_on(hog);
        }
    });
}

// Coming and going.

#[test]
fn a_descriptor_is_registered_once_at_a_time() {
    on_each(|runtime| {
        let (near, mut far) = half_on(&runtime);
        {
            let _guard = runtime.handle().enter();
            let error = Async::new(near.get_ref()).expect_err("it is registered");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(runtime.metrics().sources, 1);
        far.write_all(b"!").unwrap();
        assert_eq!(runtime.block_on(receive(&near)), Some(b'!'));
        // Its duplicate is another descriptor.
        let duplicate = near.get_ref().try_clone().unwrap();
        let duplicate = runtime.block_on(async { Async::new(duplicate).unwrap() });
        far.write_all(b"?").unwrap();
        assert_eq!(runtime.block_on(receive(&duplicate)), Some(b'?'));
        drop((near, duplicate));
        assert_eq!(runtime.metrics().sources, 0);
    });
}

/// Registers a descriptor that the platform refuses.
#[cfg(target_os = "linux")]
fn be_refused(runtime: &Runtime) {
    let _guard = runtime.handle().enter();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let error = Async::new(file).expect_err("regular files are never waited for");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(runtime.metrics().sources, 0);
}

/// The first registration makes the poller, and who sleeps has to go there, even if it fails.
#[cfg(target_os = "linux")]
#[test]
fn a_regular_file_is_refused_and_a_socket_works_afterwards() {
    on_each_size(|workers| {
        for _ in 0..10 {
            let runtime = runtime(workers);
            block_foreign(runtime.spawn(async {}));
            // For a worker to fall asleep, without a poller.
            thread::sleep(5 * MS);
            be_refused(&runtime);
            wait_from_outside(&runtime);
            be_refused(&runtime);
            start_traffic(&runtime).into_iter().for_each(block_foreign);
        }
    });
}

#[test]
fn the_inner_value_is_given_back_and_can_be_registered_elsewhere() {
    on_each_size(|workers| {
        let (home, away) = (runtime(workers), runtime(workers));
        let (near, mut far) = half_on(&home);
        drain(&near);
        let (waker, wakes) = counting();
        assert!(near.poll_readable(&mut Context::from_waker(&waker)).is_pending());
        let mut near = near.into_inner().unwrap();
        assert_eq!(home.metrics().sources, 0);
        let error = near.read(&mut [0]).expect_err("still in non-blocking mode");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let near = away.block_on(async { Async::new_nonblocking(near).unwrap() });
        let read = away.spawn(async move { receive(&near).await });
        far.write_all(b"!").unwrap();
        assert_eq!(away.block_on(read), Some(b'!'));
        home.block_on(sleep(MS));
        assert_eq!(wakes.load(SeqCst), 0, "nobody waits there any more");
    });
}

#[test]
fn a_waker_may_drop_its_descriptor_and_others() {
    on_each(|runtime| {
        let sockets: Arc<Mutex<Vec<Socket>>> = Arc::default();
        let (tell, told) = mpsc::channel();
        let waker = {
            let sockets = sockets.clone();
            waker_that(move || {
                let gone = std::mem::take(&mut *sockets.lock().unwrap());
                drop(gone);
                let _ = tell.send(());
            })
        };
        for _ in 0..20 {
            let mut peers = Vec::new();
            for _ in 0..20 {
                let (near, far) = half_on(&runtime);
                drain(&near);
                assert!(near.poll_readable(&mut Context::from_waker(&waker)).is_pending());
                sockets.lock().unwrap().push(near);
                peers.push(far);
            }
            // A socket that has gone with the first event is not there for the others.
            peers.iter_mut().for_each(|far| _ = far.write(b"!"));
            told.recv().unwrap();
            until(|| runtime.metrics().sources == 0);
        }
    });
}

/// Numbers of descriptors, and keys of sources, are used again at once.
#[test]
fn descriptors_that_come_and_go_take_nothing_from_each_other() {
    on_each(|runtime| {
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                runtime.spawn(async {
                    for round in 0..200 {
                        let (a, b) = pair();
                        send(&b, 1).await;
                        if round % 3 == 0 {
                            // Reported, and gone before it is looked at.
                            continue;
                        }
                        spawn(echo(b)).detach();
                        assert_eq!(receive(&a).await, Some(1));
                        talk(a, 2).await;
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task));
        until(|| runtime.metrics().sources == 0);
    });
}

#[test]
fn many_threads_register_and_deregister_beside_traffic() {
    on_each(|runtime| {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let _guard = runtime.handle().enter();
                    while !stop.load(SeqCst) {
                        let (a, b) = pair();
                        drain(&a);
                        let _ = b.get_ref().write(b"!");
                        drop(b);
                        if !stop.load(SeqCst) {
                            assert_eq!(block_foreign(receive(&a)), Some(b'!'));
                        }
                    }
                });
            }
            for _ in 0..5 {
                start_traffic(&runtime).into_iter().for_each(|task| runtime.block_on(task));
            }
            stop.store(true, SeqCst);
        });
        assert_eq!(runtime.metrics().sources, 0);
    });
}

// The end.

#[test]
fn whoever_waits_for_a_descriptor_of_a_runtime_that_is_dropped_gets_an_error() {
    on_each_size(|workers| {
        let (home, away) = (runtime(workers), runtime(workers));
        let handle: Handle = home.handle().clone();
        let (near, mut far) = half_on(&home);
        drain(&near);
        let near = Arc::new(near);
        let begun = Arc::new(Barrier::new(4));
        let wait = |how: usize| {
            let (near, begun) = (near.clone(), begun.clone());
            async move {
                let mut begun = Some(begun);
                let mut begin = move || _ = begun.take().map(|begun| begun.wait());
                match how {
                    0 => {
                        let mut read = pin!(near.readable());
                        poll_fn(|cx| {
                            let poll = read.as_mut().poll(cx);
                            begin();
                            poll
                        })
                        .await
                    }
                    1 => {
                        let mut read = pin!(near.read_with(|mut near| near.read(&mut [0])));
                        poll_fn(|cx| {
                            let poll = read.as_mut().poll(cx);
                            begin();
                            poll.map_ok(drop)
                        })
                        .await
                    }
                    _ => {
                        poll_fn(|cx| {
                            let poll = near.poll_readable(cx);
                            begin();
                            poll
                        })
                        .await
                    }
                }
            }
        };
        let [first, second, third] = [0, 1, 2].map(wait);
        let foreign = thread::spawn(|| block_foreign(first));
        // Tasks of a runtime that lives on; on one worker, they wait for the barrier elsewhere.
        let other = runtime(1);
        let tasks = [away.spawn(second), other.spawn(third)];
        begun.wait();
        drop(home);
        let mut errors = vec![foreign.join().unwrap().unwrap_err()];
        errors.extend(tasks.map(|task| block_foreign(task).unwrap_err()));
        assert!(errors.iter().all(|error| error.to_string().contains("runtime")), "{errors:?}");

        // Nothing is read or written any more, even if it could be.
        far.write_all(b"!").unwrap();
        away.block_on(async {
            near.readable().await.unwrap_err();
            near.writable().await.unwrap_err();
            near.read_with(|mut near| near.read(&mut [0])).await.unwrap_err();
            near.write_with(|mut near| near.write(&[0])).await.unwrap_err();
        });
        let near = Arc::into_inner(near).expect("the others have ended");
        let mut near = near.into_inner().unwrap();
        {
            let _guard = handle.enter();
            Async::new(near.try_clone().unwrap()).expect_err("it has stopped");
        }
        assert_eq!(near.read(&mut [0]).unwrap(), 1);
        let near = away.block_on(async { Async::new(near).unwrap() });
        far.write_all(b"?").unwrap();
        assert_eq!(away.block_on(receive(&near)), Some(b'?'));
    });
}

/// Tasks with sockets are dropped with their runtime, whatever its reactor is doing.
#[test]
fn a_runtime_is_dropped_amid_traffic() {
    on_each_size(|workers| {
        for round in 0..50 {
            let runtime = runtime(workers);
            let (near, mut far) = half_on(&runtime);
            let stays = runtime.spawn(async move { receive(&near).await });
            for _ in 0..4 {
                start_traffic(&runtime).into_iter().for_each(Task::detach);
            }
            if round % 2 == 0 {
                runtime.block_on(sleep(MS / 4));
            }
            drop(runtime);
            assert!(block_foreign(stays.join()).is_err());
            assert!(matches!(far.read(&mut [0]), Ok(0)), "its peer is closed");
        }
    });
}

#[cfg(target_os = "linux")]
mod alone {
    use super::*;
    use common::{alone, assert_all_sleep, descriptors};
    use std::collections::{BTreeMap, BTreeSet};

    /// The threads of this process, with their names.
    fn threads() -> BTreeMap<u32, String> {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| {
                let task = task.unwrap();
                let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
                Some((task.file_name().to_str()?.parse().ok()?, name.trim().to_owned()))
            })
            .collect()
    }

    #[test]
    fn there_are_no_threads_but_workers_and_the_ticker() {
        alone("alone::there_are_no_threads_but_workers_and_the_ticker", || {
            for workers in [1, 4] {
                let before = threads();
                let runtime =
                    Builder::new().worker_threads(workers).thread_name("a-worker").build().unwrap();
                // A thread in `block_on` drives by itself.
                runtime.block_on(async {
                    let (a, b) = pair();
                    join(talk(a, 50), echo(b)).await;
                    sleep(MS).await;
                });
                for _ in 0..3 {
                    start_traffic(&runtime).into_iter().for_each(block_foreign);
                    wait_from_outside(&runtime);
                }
                let mut now = threads();
                now.retain(|thread, _| !before.contains_key(thread));
                let names: BTreeSet<_> = now.values().map(String::as_str).collect();
                assert!(names.is_subset(&["a-worker", "paceline-ticker"].into()), "{now:?}");
                // On a busy machine a worker may have been blocked for long enough to be made up for; a
                // spare one's thread may have ended since.
                assert!(now.len() <= 2 * workers + 1, "{now:?}");
                assert!(now.len() <= runtime.metrics().threads, "{now:?}");
            }
        });
    }

    #[test]
    fn a_thread_in_block_on_is_the_only_one_and_drives() {
        alone("alone::a_thread_in_block_on_is_the_only_one_and_drives", || {
            let runtime = Builder::new().worker_threads(1).ticker(Ticker::Off).build().unwrap();
            let before = threads().len();
            runtime.block_on(async {
                let (a, b) = pair();
                let echo = spawn(echo(b));
                talk(a, 50).await;
                echo.await;
                sleep(MS).await;
                spawn(sleep(MS)).await;
                assert_eq!(threads().len(), before);
            });
        });
    }

    /// 1,000 pairs, a task for each end, and 1,000 timers.
    #[test]
    fn an_idle_runtime_with_sockets_and_timers_sleeps() {
        alone("alone::an_idle_runtime_with_sockets_and_timers_sleeps", || {
            let runtime = Builder::new().worker_threads(4).build().unwrap();
            let tasks: Vec<_> = {
                let _guard = runtime.handle().enter();
                (0..1_000u64)
                    .flat_map(|i| {
                        let (a, b) = pair();
                        let far = Duration::from_secs(3_600 + i);
                        [runtime.spawn(echo(a)), runtime.spawn(echo(b)), runtime.spawn(sleep(far))]
                    })
                    .collect()
            };
            start_traffic(&runtime).into_iter().for_each(|task| runtime.block_on(task));
            assert_all_sleep(Duration::from_secs(5));
            let metrics = runtime.metrics();
            assert_eq!((metrics.sources, metrics.timers), (2_000, 1_000));
            // It has not slept in.
            start_traffic(&runtime).into_iter().for_each(block_foreign);
            drop(tasks);
            until(|| runtime.metrics().sources + runtime.metrics().timers == 0);
        });
    }

    #[test]
    fn a_dropped_runtime_leaves_no_descriptors_behind() {
        alone("alone::a_dropped_runtime_leaves_no_descriptors_behind", || {
            let before = descriptors();
            for round in 0..300 {
                let runtime = runtime(1 + round % 4);
                let traffic = start_traffic(&runtime);
                runtime.block_on(async { spawn(sleep(MS / 10)).await });
                if round % 2 == 0 {
                    traffic.into_iter().for_each(|task| runtime.block_on(task));
                }
                drop(runtime);
            }
            assert_eq!(descriptors(), before);
        });
    }

    extern "C" fn do_nothing(_: libc::c_int) {}

    #[test]
    fn signals_disturb_neither_descriptors_nor_timers() {
        alone("alone::signals_disturb_neither_descriptors_nor_timers", || {
            // SAFETY: a handler that does nothing; system calls are not restarted after it.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = do_nothing as *const () as usize;
                assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
            }
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let process = std::process::id();
                    while !stop.load(SeqCst) {
                        for thread in threads().into_keys() {
                            // SAFETY: a signal to a thread of ours; one that has ended gets none.
                            unsafe {
                                libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1);
                            }
                        }
                    }
                });
                for workers in [1, 4] {
                    let runtime = runtime(workers);
                    for _ in 0..5 {
                        start_traffic(&runtime).into_iter().for_each(block_foreign);
                        start_traffic(&runtime).into_iter().for_each(|t| runtime.block_on(t));
                        wait_from_outside(&runtime);
                    }
                }
                stop.store(true, SeqCst);
            });
        });
    }
}
