//! async-compat: tokio's own timers, sockets and tasks in futures that paceline runs.

use std::io;
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use async_compat::{Compat, CompatExt};
use futures::channel::oneshot;
use futures::future::{Either, select};
use paceline::{Runtime, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Census, runtime, watched};
use crate::{each, pair, until};

const SLEEP: Duration = Duration::from_millis(2);

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn tokios_timers_wake_tasks_of_paceline() {
    each(async || {
        let tasks = crate::in_tasks(20, |_| {
            async {
                let start = Instant::now();
                tokio::time::sleep(SLEEP).await;
                start.elapsed()
            }
            .compat()
        });
        assert!(tasks.await.into_iter().all(|slept| slept >= SLEEP));
        let never = std::future::pending::<()>();
        let limit = Compat::new(async { tokio::time::timeout(SLEEP, never).await });
        limit.await.expect_err("it never ends");
    });
}

/// A server and a client with tokio's sockets. What polls them are paceline's threads.
#[test]
fn tokios_sockets_wake_tasks_of_paceline() {
    watched("", || {
        let runtime = runtime(2);
        let (sent, echoed) = runtime
            .block_on(spawn(Compat::new(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let server = spawn(Compat::new(async move {
                    let (mut stream, _) = listener.accept().await?;
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                }));
                let mut stream = tokio::net::TcpStream::connect(address).await?;
                let sent = vec![7; 100_000];
                let (mut read, mut write) = stream.split();
                let mut received = Vec::new();
                let write_all = async {
                    write.write_all(&sent).await?;
                    write.shutdown().await
                };
                let (written, read) = futures::join!(write_all, read.read_to_end(&mut received));
                assert!(written.and(read)? == sent.len() && received == sent);
                assert!(thread_name().starts_with("paceline-"), "{}", thread_name());
                io::Result::Ok((sent.len() as u64, server.await?))
            })))
            .expect("no error");
        assert_eq!(sent, echoed);
    });
}

#[test]
fn what_tokio_spawns_runs_on_a_thread_of_tokios_and_wakes_who_awaits_it() {
    each(async || {
        let here = async {
            let spawned = tokio::spawn(async {
                tokio::time::sleep(SLEEP).await;
                thread_name()
            });
            let blocking = tokio::task::spawn_blocking(thread_name);
            let (spawned, blocking) = futures::join!(spawned, blocking);
            let panicked = tokio::spawn(async { crate::common::silent_panic() }).await;
            assert!(panicked.expect_err("a panic").is_panic());
            (spawned.unwrap(), blocking.unwrap())
        };
        let (spawned, blocking) = here.compat().await;
        assert_eq!(spawned, "async-compat/tokio-1");
        assert!(!blocking.starts_with("paceline-"), "{blocking}");
    });
}

/// What is in it is dropped in tokio's context as well: a timer of its needs that.
#[test]
fn a_task_in_compat_is_cancelled_as_any_other() {
    each(async || {
        let (census, (tell, told)) = (Census::new(), oneshot::channel());
        let one = census.one();
        let task = spawn(Compat::new(async move {
            let _one = one;
            let mut sleep = pin!(tokio::time::sleep(Duration::from_secs(3600)));
            tell.send(futures::poll!(&mut sleep)).expect("somebody wants to know");
            sleep.await;
        }));
        assert_eq!(told.await, Ok(Poll::Pending));
        drop(task);
        until(|| census.dead() == 1).await;
    });
}

/// As README says: nobody counts what foreign threads will do.
#[test]
fn who_waits_for_tokios_thread_alone_is_taken_for_deadlocked() {
    watched("", || {
        let (tell, told) = async_channel::bounded(1);
        let hook = move |census: &paceline::Census| drop(tell.try_send(census.to_string()));
        let runtime = Runtime::builder().worker_threads(1).on_deadlock(hook).build().unwrap();
        let waits = Compat::new(async { tokio::time::sleep(Duration::from_secs(3600)).await });
        let census = runtime.block_on(async {
            match select(pin!(waits), pin!(told.recv())).await {
                Either::Left(_) => panic!("it slept for an hour"),
                Either::Right((census, _)) => census.unwrap(),
            }
        });
        assert!(census.contains("tests/neighbours/compat.rs"), "{census}");
    });
}

/// Streams of either kind in the hands of the other's functions, without the feature `tokio-io`.
#[test]
fn streams_are_adapted_in_both_directions() {
    each(async || {
        let (near, far) = pair().await.unwrap();
        let (mut near, mut far) = (near.compat(), far.compat());
        tokio::io::AsyncWriteExt::write_u32(&mut near, 0xfeed).await.unwrap();
        assert_eq!(tokio::io::AsyncReadExt::read_u32(&mut far).await.unwrap(), 0xfeed);

        let (mut near, mut far) = {
            let (near, far) = tokio::io::duplex(16);
            (near.compat(), far.compat())
        };
        let write = async {
            futures::AsyncWriteExt::write_all(&mut near, &[7; 1_000]).await?;
            futures::AsyncWriteExt::close(&mut near).await
        };
        let mut all = Vec::new();
        let read = futures::AsyncReadExt::read_to_end(&mut far, &mut all);
        let (written, read) = futures::join!(write, read);
        written.unwrap();
        assert_eq!((read.unwrap(), all), (1_000, vec![7; 1_000]));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn compat_starts_one_thread_at_its_first_use() {
    const NAME: &str = "compat::compat_starts_one_thread_at_its_first_use";
    crate::common::alone(NAME, || {
        let runtime = runtime(2);
        runtime.block_on(spawn(async {}));
        crate::expect_foreign_threads(NAME, &[]);
        for _ in 0..3 {
            let sleep = async { tokio::time::sleep(SLEEP).await };
            runtime.block_on(spawn(sleep.compat()));
            crate::expect_foreign_threads(NAME, &["async-compat/to"]);
        }
    });
}
