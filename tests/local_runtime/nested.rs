//! A local runtime inside of other runtimes and executors, and they inside of it.

use super::*;

/// Sockets and timers.
async fn both() {
    round_trip().await;
    sleep(MILLISECOND).await;
}

/// As [`both`], of a runtime in whose tasks there is no `spawn_local`.
async fn both_outside() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = spawn(async move { listener.accept().await.unwrap() });
    let _client = TcpStream::connect(address).await.unwrap();
    server.await;
    sleep(MILLISECOND).await;
}

#[test]
fn inside_of_a_runtimes_task_both_go_on() {
    common::on_each(|runtime| {
        runtime.block_on(async {
            let beside = spawn(async {
                for _ in 0..20 {
                    both_outside().await;
                }
            });
            let nested = spawn(async {
                let (sender, receiver) = oneshot::channel();
                // The outer one works meanwhile: this comes from one of its tasks.
                spawn(async move {
                    both_outside().await;
                    sender.send(()).unwrap();
                })
                .detach();
                local().block_on(async {
                    for _ in 0..20 {
                        both().await;
                    }
                    receiver.await.unwrap();
                });
                both_outside().await;
            });
            nested.await;
            beside.await;
        });
    });
}

#[test]
fn inside_of_the_default_runtimes_block_on_both_go_on() {
    watched("", || {
        paceline::block_on(async {
            let outer = spawn(both_outside());
            local().block_on(async {
                both().await;
                outer.await;
            });
            both_outside().await;
        });
    });
}

#[test]
fn the_default_runtimes_block_on_inside_of_a_local_task_only_blocks() {
    with(|runtime| {
        runtime.block_on(async {
            spawn_local(async {
                let there = paceline::block_on(async {
                    both_outside().await;
                    spawn(async { thread::current().id() }).await
                });
                assert_ne!(there, thread::current().id());
                both().await;
            })
            .await;
            both().await;
        });
    });
}

#[test]
fn its_own_block_on_and_turns_inside_of_its_task_panic_and_say_why() {
    watched("", || {
        let runtime = Rc::new(local());
        let check = |runtime: Rc<LocalRuntime>| async move {
            let said = [
                message(|| runtime.block_on(async {})),
                message(|| _ = runtime.run_until_stalled(MILLISECOND)),
                message(|| paceline::block_on(async { runtime.block_on(async {}) })),
                message(|| local().block_on(async { runtime.block_on(async {}) })),
            ];
            for said in said {
                assert!(said.contains("inside one of its own tasks"), "{said}");
                assert!(said.contains("Await the future"), "{said}");
            }
            both().await;
        };
        runtime.block_on(check(runtime.clone()));
        runtime.block_on(runtime.spawn(check(runtime.clone())));
        let in_turns = runtime.spawn(check(runtime.clone()));
        while !in_turns.is_finished() {
            runtime.run_until_stalled(MILLISECOND);
        }
        runtime.block_on(in_turns);
    });
}

#[test]
fn two_of_one_thread_nested_in_one_another_keep_their_tasks_apart() {
    with(|outer| {
        let inner = local();
        let log = Rc::new(RefCell::new(Vec::new()));
        let logs = |what: &'static str| {
            let log = log.clone();
            async move { log.borrow_mut().push(what) }
        };
        outer.block_on(async {
            let waits = spawn_local(logs("outer"));
            let timer = spawn_local(sleep(MILLISECOND));
            spawn_local(async {
                both().await;
            })
            .await;
            let _held = spawn_local(std::future::pending::<()>());
            inner.block_on(async {
                spawn_local(logs("inner")).await;
                both().await;
                let handle = paceline::Handle::current();
                assert_eq!(handle.spawn(async { 1 }).await, 1);
            });
            waits.await;
            timer.await;
            let task = inner.spawn(logs("inner turn"));
            assert!(inner.run_until_stalled(Duration::from_secs(10)));
            assert!(task.is_finished());
            spawn_local(logs("outer again")).await;
            assert_eq!(spawn(async { 2 }).await, 2);
            both().await;
        });
        assert_eq!(*log.borrow(), ["outer", "inner", "inner turn", "outer again"]);
    });
}

#[test]
fn other_executors_run_inside() {
    with(|runtime| {
        runtime.block_on(async {
            let (executor, locals) = (paceline::Executor::new(), paceline::LocalExecutor::new());
            let one = executor.spawn(async { sleep(MILLISECOND).await });
            let other = locals.spawn(async { both().await });
            futures::join!(executor.run(one), locals.run(other));
            let (executor, locals) = (async_executor::Executor::new(), Rc::new(Cell::new(0)));
            let task = executor.spawn(async {
                sleep(MILLISECOND).await;
                1
            });
            locals.set(executor.run(task).await);
            assert_eq!(locals.get(), 1);
        });
    });
}

#[test]
fn a_handle_that_was_entered_on_it_means_the_other_runtime() {
    with(|runtime| {
        let other = common::runtime(1);
        let here = thread::current().id();
        runtime.block_on(async {
            let there = {
                let _guard = other.handle().enter();
                spawn(async { thread::current().id() })
            };
            assert_ne!(there.await, here);
            assert_eq!(spawn(async { thread::current().id() }).await, here);
        });
        // And the other way round: timers and sockets of this runtime, for who has entered it.
        let _guard = runtime.handle().enter();
        let mut timer = Box::pin(sleep(MILLISECOND));
        assert!(common::poll_once(&mut timer, futures::task::noop_waker_ref()).is_pending());
        assert_eq!(runtime.metrics().timers, 1);
        runtime.block_on(timer);
    });
}
