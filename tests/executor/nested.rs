//! Executors in executors, and in runtimes: each polls its own tasks, and only while it is polled itself.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::{AsyncReadExt, AsyncWriteExt};
use futures_lite::future::{block_on, zip};
use paceline::net::{TcpListener, TcpStream};
use paceline::time::{sleep, timeout};

use crate::common::{on_each, watched};
use crate::either::{Puppet, idle_run, yields};
use crate::{Drive, Ex, driven, ex};

thread_local! {
    /// Whose `run` is being polled, the innermost of them.
    static POLLED: Cell<&'static str> = const { Cell::new("nobody") };
}

/// Polls `run` under that name.
async fn named<F: Future>(name: &'static str, run: F) -> F::Output {
    let mut run = pin!(run);
    poll_fn(|cx| {
        let outer = POLLED.replace(name);
        let poll = run.as_mut().poll(cx);
        assert_eq!(POLLED.replace(outer), name);
        poll
    })
    .await
}

/// Polled by nobody but the executor of that name.
async fn only_by<F: Future>(name: &'static str, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        assert_eq!(POLLED.get(), name);
        future.as_mut().poll(cx)
    })
    .await
}

#[test]
fn two_executors_polled_on_one_thread_share_no_work() {
    watched("", || {
        let [first, second] = [Ex::new(), Ex::new()];
        let [mut run, mut other] = [Puppet::new(idle_run(&first)), Puppet::new(idle_run(&second))];
        assert!(run.settle().is_pending() && other.settle().is_pending());
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        first
            .spawn(async move {
                counted.fetch_add(1, SeqCst);
                pending::<()>().await;
            })
            .detach();
        assert!(run.is_woken() && !other.is_woken());
        assert!(other.poll().is_pending());
        assert!(!second.try_tick());
        assert_eq!(polls.load(SeqCst), 0);
        assert!(run.poll().is_pending());
        assert_eq!(polls.load(SeqCst), 1);
    });
}

/// Fifty pairs of tasks, one on each executor, that wake each other.
fn chatting<'a>(
    [(first, first_name), (second, second_name)]: [(&Ex<'a>, &'static str); 2],
) -> Vec<ex::Task<()>> {
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let (ping, pings) = async_channel::bounded(1);
        let (pong, pongs) = async_channel::bounded(1);
        tasks.push(first.spawn(only_by(first_name, async move {
            for i in 0..20 {
                ping.send(i).await.unwrap();
                assert_eq!(pongs.recv().await, Ok(i));
            }
        })));
        tasks.push(second.spawn(only_by(second_name, async move {
            while let Ok(i) = pings.recv().await {
                pong.send(i).await.unwrap();
            }
        })));
    }
    tasks
}

async fn all(tasks: Vec<ex::Task<()>>) {
    for task in tasks {
        task.await;
    }
}

#[test]
fn executors_side_by_side_poll_their_own_tasks_only() {
    watched("", || {
        let [first, second] = [Ex::new(), Ex::new()];
        let tasks = chatting([(&first, "first"), (&second, "second")]);
        let (tell, told) = oneshot::channel();
        let main = async {
            all(tasks).await;
            tell.send(()).unwrap();
        };
        let (_, end) =
            block_on(zip(named("first", first.run(main)), named("second", second.run(told))));
        assert_eq!(end, Ok(()));
    });
}

#[test]
fn executors_within_each_other_poll_their_own_tasks_only() {
    watched("", || {
        let [outer, middle, inner] = [Ex::new(), Ex::new(), Ex::new()];
        let tasks = chatting([(&outer, "outer"), (&middle, "middle")]);
        let more = chatting([(&middle, "middle"), (&inner, "inner")]);
        let still_more = chatting([(&inner, "inner"), (&outer, "outer")]);
        let innermost = only_by("inner", async {
            all(tasks).await;
            all(more).await;
            all(still_more).await;
        });
        let run = named("middle", middle.run(named("inner", inner.run(innermost))));
        block_on(named("outer", outer.run(run)));
        assert!(outer.is_empty() && middle.is_empty() && inner.is_empty());
    });
}

#[test]
fn executors_run_in_each_others_tasks_three_deep() {
    watched("", || {
        let [outer, middle, inner] = [(); 3].map(|()| Arc::new(Ex::new()));
        let (m, i) = (middle.clone(), inner.clone());
        let task = outer.spawn(only_by("outer", async move {
            let i = i.clone();
            let task = m.spawn(only_by("middle", async move {
                let task = i.spawn(only_by("inner", async {
                    yields(10).await;
                    1
                }));
                1 + named("inner", i.run(task)).await
            }));
            yields(10).await;
            1 + named("middle", m.run(task)).await
        }));
        assert_eq!(block_on(named("outer", outer.run(task))), 3);
    });
}

/// On several threads; all tasks of the inner one are run by tasks of the outer one.
#[test]
fn several_tasks_of_one_executor_run_another_one() {
    watched("", || {
        let (inner, outer) = (Arc::new(Ex::new()), Ex::new());
        driven(&outer, Drive::Run, 2, || {
            let tasks: Vec<_> = (0..1_000).map(|i| inner.spawn(yields(i % 5))).collect();
            let runs = [0; 3].map(|_| {
                let inner = inner.clone();
                outer.spawn(async move {
                    while !inner.is_empty() {
                        inner.run(yields(20)).await;
                        yields(1).await;
                    }
                })
            });
            runs.into_iter().for_each(block_on);
            tasks.into_iter().for_each(block_on);
        });
    });
}

#[test]
fn a_local_executor_runs_inside_run_and_the_other_way_round() {
    watched("", || {
        let (shared, local) = (Ex::new(), ex::LocalExecutor::new());
        let (tell, told) = oneshot::channel();
        let there = shared.spawn(only_by("shared", async move {
            yields(3).await;
            tell.send(1).unwrap();
        }));
        let here = local.spawn(only_by("local", async {
            there.await;
            let one = told.await.unwrap();
            yields(3).await;
            one + 1
        }));
        let inside = named("shared", shared.run(named("local", local.run(here))));
        assert_eq!(block_on(inside), 2);

        let here = local.spawn(only_by("local", yields(3)));
        let there = shared.spawn(only_by("shared", yields(3)));
        let both = async {
            here.await;
            there.await;
        };
        block_on(named("local", local.run(named("shared", shared.run(both)))));
        assert!(shared.is_empty() && local.is_empty());
    });
}

#[test]
fn a_local_executor_lives_in_one_poll_of_an_executors_task() {
    watched("", || {
        let ex = Ex::new();
        driven(&ex, Drive::Run, 2, || {
            let tasks: Vec<_> = (0..100)
                .map(|i| {
                    ex.spawn(async move {
                        yields(1).await;
                        let local = ex::LocalExecutor::new();
                        block_on(local.run(local.spawn(async move {
                            yields(2).await;
                            i
                        })))
                    })
                })
                .collect();
            assert!(tasks.into_iter().map(block_on).eq(0..100));
        });
    });
}

/// Over TCP, with a rest in between.
async fn echo_once() -> io::Result<[u8; 5]> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut near = TcpStream::connect(listener.local_addr()?).await?;
    let (mut far, _) = listener.accept().await?;
    let mut bytes = [0; 5];
    near.write_all(b"hello").await?;
    sleep(Duration::from_millis(1)).await;
    far.read_exact(&mut bytes).await?;
    far.write_all(&bytes).await?;
    bytes = [0; 5];
    near.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Sockets and timers in the tasks, and beside `run`.
async fn uses_sockets_and_timers(ex: &Ex<'_>) {
    let mut tasks = Vec::new();
    ex.spawn_many((0..20).map(|_| echo_once()), &mut tasks);
    let naps = (0..20).map(|i| async move {
        let (begin, length) = (Instant::now(), Duration::from_millis(i % 4));
        paceline::Timer::after(length).await;
        assert!(begin.elapsed() >= length);
    });
    let mut sleepers = Vec::new();
    ex.spawn_many(naps, &mut sleepers);
    let main = async {
        sleep(Duration::from_millis(2)).await;
        for task in tasks {
            assert_eq!(task.await.unwrap(), *b"hello");
        }
        for task in sleepers {
            task.await;
        }
    };
    let (_, beside) = zip(ex.run(main), echo_once()).await;
    assert_eq!(beside.unwrap(), *b"hello");
    assert!(ex.is_empty());
}

#[test]
fn embedded_tasks_use_sockets_and_timers_in_a_foreign_block_on() {
    watched("", || block_on(uses_sockets_and_timers(&Ex::new())));
}

#[test]
fn embedded_tasks_use_sockets_and_timers_in_block_on() {
    watched("on the default runtime", || {
        paceline::block_on(uses_sockets_and_timers(&Ex::new()));
        let ex = Ex::new();
        paceline::block_on(ex.run(uses_sockets_and_timers(&Ex::new())));
    });
    on_each(|runtime| runtime.block_on(uses_sockets_and_timers(&Ex::new())));
}

#[test]
fn embedded_tasks_use_sockets_and_timers_in_a_task() {
    on_each(|runtime| {
        let task = || runtime.spawn(async { uses_sockets_and_timers(&Ex::new()).await });
        let tasks = [0; 4].map(|_| task());
        runtime.block_on(async {
            for task in tasks {
                task.await;
            }
        });
    });
}

#[test]
fn embedded_tasks_use_sockets_and_timers_while_tasks_of_a_runtime_run_them() {
    on_each(|runtime| {
        let ex = Arc::new(Ex::new());
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let runs = [0; 3].map(|_| {
            let (ex, stopped) = (ex.clone(), stopped.clone());
            runtime.spawn(async move { _ = ex.run(stopped.recv()).await })
        });
        let mut tasks = Vec::new();
        ex.spawn_many((0..50).map(|_| echo_once()), &mut tasks);
        for task in tasks {
            assert_eq!(block_on(task).unwrap(), *b"hello");
        }
        drop(stop);
        runtime.block_on(async {
            for run in runs {
                run.await;
            }
        });
    });
}

#[test]
fn a_local_executors_tasks_use_sockets_and_timers_in_block_on() {
    on_each(|runtime| {
        let local = ex::LocalExecutor::new();
        let mut tasks = Vec::new();
        local.spawn_many((0..20).map(|_| echo_once()), &mut tasks);
        runtime.block_on(local.run(async {
            for task in tasks {
                assert_eq!(task.await.unwrap(), *b"hello");
            }
        }));
    });
}

#[test]
fn tasks_of_a_runtime_and_of_an_embedded_executor_wake_each_other() {
    on_each(|runtime| {
        let ex = Arc::new(Ex::new());
        let mut theirs = Vec::new();
        let ours: Vec<_> = (0..50)
            .map(|_| {
                let (ping, pings) = async_channel::bounded(1);
                let (pong, pongs) = async_channel::bounded(1);
                theirs.push(ex.spawn(async move {
                    while let Ok(i) = pings.recv().await {
                        pong.send(i).await.unwrap();
                    }
                }));
                runtime.spawn(async move {
                    for i in 0..50 {
                        ping.send(i).await.unwrap();
                        assert_eq!(pongs.recv().await, Ok(i));
                    }
                })
            })
            .collect();
        runtime.block_on(ex.run(async {
            for task in ours {
                task.await;
            }
            for task in theirs {
                task.await;
            }
        }));
    });
}

/// What a runtime has for its tasks: each does its work in embedded ones, too.
async fn uses_what_runtimes_have(ex: &Ex<'_>) {
    let task = |i: usize| async move {
        for _ in 0..i % 5 {
            paceline::yield_now().await;
            paceline::yield_if_due().await;
        }
        let unblocked = paceline::unblock(move || i).await;
        let in_place = paceline::block_in_place(|| 1);
        let in_time = timeout(Duration::from_secs(60), async { 1 }).await.unwrap();
        let too_late = timeout(Duration::from_millis(1), pending::<()>()).await.is_err();
        unblocked + in_place + in_time + usize::from(too_late)
    };
    let mut tasks = Vec::new();
    ex.spawn_many((0..50).map(task), &mut tasks);
    let main = async {
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await, i + 3);
        }
    };
    ex.run(main).await;
}

#[test]
fn embedded_tasks_use_what_runtimes_have() {
    watched("in a foreign block_on", || block_on(uses_what_runtimes_have(&Ex::new())));
    on_each(|runtime| {
        runtime.block_on(uses_what_runtimes_have(&Ex::new()));
        let task = runtime.spawn(async { uses_what_runtimes_have(&Ex::new()).await });
        runtime.block_on(task);
    });
}

#[test]
fn an_embedded_task_spawns_on_the_runtime_that_runs_it_and_awaits_it() {
    on_each(|runtime| {
        let ex = Ex::new();
        let tasks: Vec<_> = (0..100)
            .map(|i| {
                let handle = runtime.handle().clone();
                ex.spawn(async move {
                    let here = handle.spawn(async move {
                        paceline::yield_now().await;
                        i
                    });
                    yields(i % 3).await;
                    here.await
                })
            })
            .collect();
        let sum = runtime.block_on(ex.run(async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        }));
        assert_eq!(sum, 4_950);
    });
}

#[test]
fn an_embedded_task_blocks_on_the_runtime_that_runs_it() {
    on_each(|runtime| {
        let (ex, handle) = (Ex::new(), runtime.handle().clone());
        let task = ex.spawn(async move {
            yields(1).await;
            handle.block_on(handle.spawn(async { 5 }))
        });
        assert_eq!(runtime.block_on(ex.run(task)), 5);
    });
}

#[test]
fn an_executor_is_run_by_another_runtimes_tasks() {
    watched("tokio's", || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let ex = Arc::new(Ex::new());
        let tasks: Vec<_> = (0..1_000).map(|i| ex.spawn(yields(i % 3))).collect();
        let runs = [0; 2].map(|_| {
            let ex = ex.clone();
            runtime.spawn(async move { ex.run(pending::<()>()).await })
        });
        tasks.into_iter().for_each(block_on);
        runs.into_iter().for_each(|run| run.abort());
    });
}
