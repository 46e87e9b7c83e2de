//! futures: its `Spawn`, its combinators of futures and of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::future::{Aborted, Either, abortable, select};
use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use futures::task::{Spawn, SpawnExt};
use futures::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, FutureExt};
use paceline::time::{interval, sleep};
use paceline::{spawn, yield_if_due, yield_now};

use crate::common::{Census, on_each};
use crate::{Crowd, each, in_tasks, pair};

#[test]
fn spawn_of_futures_reaches_the_runtime_and_tells_when_it_has_stopped() {
    on_each(|runtime| {
        let by_runtime = runtime.spawn_with_handle(async { 1 }).unwrap();
        let handle = runtime.handle().clone();
        let by_handle = handle.spawn_with_handle(async { 2 }).unwrap();
        assert_eq!(runtime.block_on(async { by_runtime.await + by_handle.await }), 3);
        assert!(handle.status().is_ok());
        drop(runtime);
        assert!(handle.status().is_err());
        assert!(handle.spawn_obj(Box::pin(async {}).into()).unwrap_err().is_shutdown());
    });
}

/// Polls the same futures again and again if one of them gives way at every poll: each must come
/// to its end all the same.
#[test]
fn combinators_are_not_livelocked_by_tasks_that_give_way() {
    on_each(|runtime| {
        let sum = runtime.block_on(async {
            spawn(async {
                let mut all: FuturesUnordered<_> = (0..1_000u32)
                    .map(|i| async move {
                        for _ in 0..i % 10 {
                            yield_if_due().await;
                            yield_now().await;
                        }
                        i
                    })
                    .collect();
                let mut sum = 0;
                while let Some(i) = all.next().await {
                    sum += i;
                }
                sum
            })
            .await
        });
        assert_eq!(sum, 499_500);
    });
}

#[test]
fn join_all_select_and_buffered_streams_run() {
    on_each(|runtime| {
        runtime.block_on(async {
            let all = futures::future::join_all((0..100).map(|i| spawn(async move { i }))).await;
            assert_eq!(all, (0..100).collect::<Vec<_>>());
            let mut task = spawn(async { 7 });
            let mut never = std::future::pending::<()>().boxed().fuse();
            let first = futures::select! {
                seven = (&mut task).fuse() => seven,
                () = never => unreachable!(),
            };
            assert_eq!(first, 7);
            let doubled: Vec<_> = futures::stream::iter(0..100)
                .map(|i| spawn(async move { 2 * i }))
                .buffer_unordered(10)
                .collect()
                .await;
            assert_eq!(doubled.into_iter().sum::<i32>(), 9_900);
        });
    });
}

#[test]
fn buffered_streams_run_so_many_at_once_and_keep_their_order() {
    each(async || {
        let crowd = Crowd::default();
        let one = |i: usize| {
            let crowd = crowd.clone();
            spawn(async move {
                crowd.enter();
                for _ in 0..i % 7 {
                    yield_now().await;
                }
                crowd.leave();
                i
            })
        };
        let all: Vec<_> = futures::stream::iter(0..200).map(one).buffered(10).collect().await;
        assert_eq!(all, (0..200).collect::<Vec<_>>());
        assert!(crowd.most() <= 10, "{}", crowd.most());

        let failed = futures::stream::iter(0..200)
            .map(|i| spawn(async move { if i == 150 { Err(i) } else { Ok(i) } }))
            .buffer_unordered(10)
            .try_fold(0, async |sum, i| Ok(sum + i))
            .await;
        assert_eq!(failed, Err(150));
    });
}

/// Dropping the future that was aborted cancels the task in it.
#[test]
fn what_is_aborted_is_woken_and_drops_what_it_has() {
    each(async || {
        let census = Census::new();
        let one = census.one();
        let task = spawn(async move {
            let _one = one;
            std::future::pending::<()>().await;
        });
        let (waits, handle) = abortable(task);
        let waits = spawn(waits);
        yield_now().await;
        handle.abort();
        assert_eq!(waits.await, Err(Aborted));
        crate::until(|| census.dead() == 1).await;
    });
}

#[test]
fn a_shared_task_runs_once_and_tells_all_who_wait() {
    each(async || {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let shared = spawn(async move {
            yield_now().await;
            counted.fetch_add(1, SeqCst)
        })
        .shared();
        assert_eq!(in_tasks(100, |_| shared.clone()).await, [0; 100]);
        assert_eq!((shared.await, runs.load(SeqCst)), (0, 1));
    });
}

#[test]
fn a_select_with_a_sleep_is_a_timeout() {
    each(async || {
        let (never, limit) = (std::future::pending::<()>(), sleep(Duration::from_millis(1)));
        assert!(matches!(select(never, limit).await, Either::Right(_)));
        let (soon, limit) = (spawn(yield_now()), sleep(Duration::from_secs(3600)));
        assert!(matches!(select(soon, limit).await, Either::Left(_)));
    });
}

/// Each branch of the `select!` has its turn, and none of what they bring is lost.
#[test]
fn select_in_a_loop_takes_from_a_ticker_a_channel_and_a_socket() {
    each(async || {
        let (near, far) = pair().await.unwrap();
        let (sender, receiver) = async_channel::bounded(1);
        let bytes = spawn(async move {
            let mut near = near;
            for _ in 0..100 {
                near.write_all(b"byte\n").await.unwrap();
                yield_now().await;
            }
        });
        let messages = spawn(async move {
            for i in 0..100 {
                sender.send(i).await.unwrap();
            }
        });
        let mut lines = futures::io::BufReader::new(far).lines().fuse();
        let mut receiver = Box::pin(receiver).fuse();
        let mut ticks = interval(Duration::from_micros(100)).take(10).fuse();
        let mut seen = [0; 3];
        loop {
            futures::select! {
                line = lines.select_next_some() => {
                    assert_eq!(line.unwrap(), "byte");
                    seen[0] += 1;
                }
                i = receiver.select_next_some() => {
                    assert_eq!(i, seen[1]);
                    seen[1] += 1;
                }
                _ = ticks.select_next_some() => seen[2] += 1,
                complete => break,
            }
        }
        assert_eq!(seen, [100, 100, 10]);
        futures::join!(bytes, messages);
    });
}

#[test]
fn halves_of_futures_and_its_copy_send_back_what_comes() {
    each(async || {
        let (near, far) = pair().await.unwrap();
        let echo = spawn(async move {
            let (read, mut write) = far.split();
            let count = futures::io::copy(read, &mut write).await?;
            write.close().await?;
            std::io::Result::Ok(count)
        });
        let (mut read, mut write) = near.split();
        let sent = vec![7; 300_000];
        let send = async {
            write.write_all(&sent).await?;
            write.close().await
        };
        let mut received = Vec::new();
        let (sent_all, received_all) = futures::join!(send, read.read_to_end(&mut received));
        sent_all.unwrap();
        received_all.unwrap();
        assert!(received == sent);
        assert_eq!(echo.await.unwrap(), 300_000);
    });
}
