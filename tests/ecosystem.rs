//! Works with what the futures ecosystem brings: its `Spawn`, its combinators, its channels.

mod common;

use common::on_each;
use futures::stream::FuturesUnordered;
use futures::task::{Spawn, SpawnExt};
use futures::{FutureExt, StreamExt};
use paceline::{spawn, yield_if_due, yield_now};

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
fn async_channels_carry_messages_between_tasks_and_threads() {
    on_each(|runtime| {
        let (sender, receiver) = async_channel::bounded(4);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let sender = sender.clone();
                runtime.spawn(async move {
                    for i in 0..100 {
                        sender.send(i).await.unwrap();
                    }
                })
            })
            .collect();
        drop(sender);
        let mut sum = 0;
        while let Ok(i) = receiver.recv_blocking() {
            sum += i;
        }
        assert_eq!(sum, 8 * 4_950);
        tasks.into_iter().for_each(|task| runtime.block_on(task));
    });
}
