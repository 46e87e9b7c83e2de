//! The end of a local runtime: everything is dropped, nothing hangs.

use super::*;
use common::Census;

#[test]
fn all_futures_are_dropped_when_drop_returns() {
    with(|_| {
        for turns in [0, 1] {
            let (census, runtime) = (Census::new(), local());
            let (tell, told) = mpsc::channel();
            for _ in 0..10 {
                let one = census.one();
                let tell = tell.clone();
                runtime
                    .spawn(async move {
                        let _one = one;
                        common::lend_waker(tell).await;
                    })
                    .detach();
                let one = census.one();
                runtime
                    .handle()
                    .spawn(async move {
                        let _one = one;
                        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                        futures::join!(sleep(Duration::from_secs(3600)), listener.accept()).0
                    })
                    .detach();
                let one = census.one();
                runtime
                    .spawn(async move {
                        let _one = one;
                        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                        futures::join!(sleep(Duration::from_secs(3600)), listener.accept()).0
                    })
                    .detach();
            }
            if turns > 0 {
                runtime.block_on(async {
                    for _ in 0..3 {
                        yield_now().await;
                        sleep(MILLISECOND).await;
                    }
                });
                assert_eq!(runtime.metrics().timers, 20);
            }
            drop(runtime);
            assert_eq!(census.dead(), 30);
            told.try_iter().for_each(std::task::Waker::wake);
        }
    });
}

#[test]
fn destructors_may_spawn_wake_and_arm() {
    with(|_| {
        let (census, runtime) = (Census::new(), local());
        let wakers = Arc::new(std::sync::Mutex::new(Vec::<std::task::Waker>::new()));
        let on_drop = {
            let (census, wakers) = (census.clone(), wakers.clone());
            move || {
                let (ones, wakers) = ([(); 4].map(|()| census.one()), wakers.clone());
                common::on_drop(move || {
                    let [one, other, third, fourth] = ones;
                    spawn_local(async move { drop(one) }).detach();
                    spawn(async move { drop(other) }).detach();
                    let again = common::on_drop(move || {
                        spawn_local(async move { drop(third) }).detach();
                        spawn(async move { drop(fourth) }).detach();
                    });
                    spawn_local(async move { drop(again) }).detach();
                    let wakers = std::mem::take(&mut *wakers.lock().unwrap());
                    wakers.into_iter().for_each(std::task::Waker::wake);
                    let mut timer = Box::pin(sleep(Duration::from_secs(3600)));
                    _ = common::poll_once(&mut timer, futures::task::noop_waker_ref());
                })
            }
        };
        for _ in 0..5 {
            let (held, keeps) = (on_drop(), wakers.clone());
            let waits = async move {
                let _held = held;
                std::future::poll_fn(|cx| {
                    keeps.lock().unwrap().push(cx.waker().clone());
                    std::task::Poll::<()>::Pending
                })
                .await
            };
            runtime.spawn(waits).detach();
            let held = on_drop();
            runtime
                .handle()
                .spawn(async move {
                    let _held = held;
                    sleep(Duration::from_secs(3600)).await
                })
                .detach();
        }
        runtime.block_on(async {
            yield_now().await;
            sleep(MILLISECOND).await;
        });
        drop(runtime);
        assert_eq!((census.born(), census.dead()), (40, 40));
    });
}

#[test]
fn handles_of_tasks_outlive_it_as_those_of_cancelled_tasks() {
    with(|_| {
        let runtime = local();
        let done = runtime.spawn(async { Rc::new(1) });
        runtime.block_on(yield_now());
        let local_task = runtime.spawn(std::future::pending::<()>());
        let task = runtime.handle().spawn(std::future::pending::<()>());
        let handle = runtime.handle().clone();
        drop(runtime);
        assert!(local_task.is_finished() && task.is_finished());
        let cancelled = |task: paceline::Task<()>| {
            let error = futures::executor::block_on(task.join()).unwrap_err();
            assert!(error.is_cancelled());
        };
        cancelled(local_task);
        cancelled(task);
        cancelled(handle.spawn(async {}));
        assert_eq!(*futures::executor::block_on(done), 1);
        assert_eq!(handle.block_on(async { 3 }), 3);
    });
}

#[test]
fn a_handle_that_another_thread_awaits_is_one_of_a_cancelled_task() {
    with(|_| {
        for _ in 0..50 {
            let runtime = local();
            let tasks = [
                runtime.spawn(std::future::pending::<()>()),
                runtime.handle().spawn(std::future::pending()),
            ];
            let waits = tasks.map(|task| {
                thread::spawn(move || futures::executor::block_on(task.join()).unwrap_err())
            });
            runtime.block_on(yield_now());
            drop(runtime);
            for waits in waits {
                assert!(waits.join().unwrap().is_cancelled());
            }
        }
    });
}

#[test]
fn sockets_of_a_dropped_one_give_errors_that_say_so() {
    with(|_| {
        let runtime = local();
        let socket = runtime
            .block_on(async { paceline::net::UdpSocket::bind("127.0.0.1:0").await.unwrap() });
        let said = {
            let mut buffer = [0; 1];
            let mut receives = Box::pin(socket.recv_from(&mut buffer));
            let waker = futures::task::noop_waker();
            assert!(common::poll_once(&mut receives, &waker).is_pending());
            drop(runtime);
            futures::executor::block_on(receives).unwrap_err().to_string()
        };
        assert!(said.contains("the runtime of this socket has stopped"), "{said}");
    });
}

#[test]
fn a_timer_of_a_dropped_one_goes_on_elsewhere() {
    with(|_| {
        let runtime = local();
        let mut timer = paceline::Timer::after(20 * MILLISECOND);
        let _guard = runtime.handle().enter();
        assert!(common::poll_once(&mut timer, futures::task::noop_waker_ref()).is_pending());
        drop(_guard);
        drop(runtime);
        futures::executor::block_on(timer);
    });
}

#[test]
fn it_can_be_dropped_while_threads_wake_and_spawn() {
    with(|_| {
        for _ in 0..50 {
            let runtime = local();
            let stop = Arc::<AtomicBool>::default();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (handle, stop) = (runtime.handle().clone(), stop.clone());
                    let (tell, told) = mpsc::channel();
                    runtime.spawn(common::lend_waker(tell)).detach();
                    thread::spawn(move || {
                        let waker = told.recv().unwrap();
                        while !stop.load(SeqCst) {
                            waker.wake_by_ref();
                            handle.spawn(sleep(MILLISECOND)).detach();
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            runtime.block_on(sleep(MILLISECOND));
            drop(runtime);
            stop.store(true, SeqCst);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    });
}

#[test]
fn one_in_a_thread_local_ends_with_its_thread() {
    thread_local! {
        static RUNTIME: LocalRuntime = local();
    }
    watched("", || {
        let census = Census::new();
        let (one, other) = (census.one(), census.one());
        let body = move || {
            RUNTIME.with(|runtime| {
                let waits = async move {
                    let _held = common::on_drop(move || spawn(async move { drop(other) }).detach());
                    sleep(Duration::from_secs(3600)).await;
                    drop(one);
                };
                runtime.spawn(waits).detach();
                runtime.block_on(round_trip());
            });
        };
        thread::spawn(body).join().unwrap();
        assert_eq!(census.dead(), 2);
    });
}

#[test]
fn a_callback_that_holds_a_handle_is_dropped_with_it() {
    with(|_| {
        let (census, runtime) = (Census::new(), local());
        let (handle, one) = (runtime.handle().clone(), census.one());
        runtime.on_ready(move || {
            let _both = (&handle, &one);
        });
        drop(runtime);
        assert_eq!(census.dead(), 1);
    });
}
