//! The end of a runtime, and threads and types that are not its own.

#![allow(clippy::disallowed_methods)] // a foreign thread is a plain one

use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use paceline::net::{TcpListener, TcpStream, UdpSocket};
use paceline::{Async, Runtime};

use crate::common::{on_each, runtime, until};
use crate::{counted, each, listen, pair};

const STOPPED: &str = "has stopped";

fn is_stopped<T>(result: io::Result<T>) -> bool {
    match result {
        Ok(_) => panic!("the runtime has stopped"),
        Err(error) => error.to_string().contains(STOPPED),
    }
}

/// Waits on a thread of its own, and drops the runtime while it does.
fn stop_while<T: Send + 'static>(
    runtime: Runtime,
    wait: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let polls = Arc::new(AtomicUsize::new(0));
    let waiter = {
        let polls = polls.clone();
        thread::spawn(move || futures::executor::block_on(counted(&polls, wait)))
    };
    until(|| polls.load(SeqCst) > 0);
    drop(runtime);
    waiter.join().expect("no panic")
}

#[test]
fn who_waits_for_a_socket_of_a_dropped_runtime_is_told() {
    on_each(|runtime| {
        let (mut near, _far) = runtime.block_on(pair()).unwrap();
        assert!(is_stopped(stop_while(runtime, async move { near.read(&mut [0]).await })));
    });
    on_each(|runtime| {
        let listener = runtime.block_on(listen()).unwrap();
        assert!(is_stopped(stop_while(runtime, async move { listener.accept().await })));
    });
    on_each(|runtime| {
        let (near, _far) = runtime.block_on(pair()).unwrap();
        let (mut read, _write) = near.into_split();
        assert!(is_stopped(stop_while(runtime, async move {
            // By a poll function.
            read.read_exact(&mut [0; 10]).await
        })));
    });
}

#[test]
fn a_task_of_another_runtime_is_told_as_well() {
    on_each(|first| {
        let second = runtime(2);
        let (mut near, _far) = first.block_on(pair()).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let task = {
            let polls = polls.clone();
            second.spawn(async move { counted(&polls, near.read(&mut [0])).await })
        };
        until(|| polls.load(SeqCst) > 0);
        drop(first);
        assert!(is_stopped(second.block_on(task)));
    });
}

#[test]
fn sockets_that_outlive_their_runtime_are_of_no_use_and_do_no_harm() {
    on_each(|runtime| {
        let (listener, udp, (mut near, mut far)) = runtime
            .block_on(async {
                io::Result::Ok((
                    listen().await?,
                    UdpSocket::bind("127.0.0.1:0").await?,
                    pair().await?,
                ))
            })
            .unwrap();
        let (addr, handle) = (near.local_addr().unwrap(), runtime.handle().clone());
        drop(runtime);
        futures::executor::block_on(async {
            assert!(is_stopped(near.read(&mut [0]).await));
            assert!(is_stopped(near.write(&[0]).await));
            assert!(is_stopped(near.readable().await));
            assert!(is_stopped(near.writable().await));
            assert!(is_stopped(listener.accept().await));
            assert!(is_stopped(udp.recv(&mut [0]).await));
            assert!(is_stopped(udp.send_to(&[0], addr).await));
            // These do not wait.
            assert_eq!(near.local_addr().unwrap(), addr);
            far.close().await.unwrap();
        });
        // None can be made.
        let _guard = handle.enter();
        let late = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(is_stopped(TcpStream::try_from(late)));
        assert!(is_stopped(futures::executor::block_on(listen())));
        // Another runtime can have what this had.
        let mut near = near.into_std().unwrap();
        near.set_nonblocking(false).unwrap();
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn sockets_in_the_tasks_of_a_dropped_runtime_go_with_them() {
    on_each(|runtime| {
        let (mut near, far) = runtime.block_on(pair()).unwrap();
        let mut far = far.into_std().unwrap();
        far.set_nonblocking(false).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let reader = {
            let polls = polls.clone();
            async move { counted(&polls, near.read(&mut [0])).await }
        };
        runtime.spawn(reader).detach();
        until(|| polls.load(SeqCst) > 0);
        drop(runtime);
        assert_eq!(far.read(&mut [0]).unwrap(), 0, "the end");
    });
}

#[test]
fn a_foreign_thread_uses_the_default_runtime() {
    crate::common::watched("on a foreign executor", || {
        futures::executor::block_on(async {
            let (mut near, mut far) = pair().await?;
            let echo = async {
                let mut buffer = [0; 5];
                far.read_exact(&mut buffer).await?;
                far.write_all(&buffer).await
            };
            let call = async {
                near.write_all(b"hello").await?;
                near.read_exact(&mut [0; 5]).await
            };
            futures::try_join!(echo, call)?;
            let udp = UdpSocket::bind("localhost:0").await?;
            udp.send_to(b"!", udp.local_addr()?).await?;
            udp.recv(&mut [0]).await.map(drop)
        })
        .unwrap();
    });
}

#[test]
fn a_socket_of_one_runtime_works_in_another() {
    on_each(|first| {
        let second = runtime(1);
        let (mut near, mut far) = first.block_on(pair()).unwrap();
        let echo = second.spawn(async move {
            let mut buffer = [0; 5];
            far.read_exact(&mut buffer).await?;
            far.write_all(&buffer).await
        });
        first
            .block_on(async {
                near.write_all(b"hello").await?;
                near.read_exact(&mut [0; 5]).await
            })
            .unwrap();
        second.block_on(echo).unwrap();
    });
}

#[test]
fn sockets_of_the_standard_library_go_in_and_come_out() {
    each(async || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let near = std::net::TcpStream::connect(addr)?;
        let listener = TcpListener::try_from(listener)?;
        let (mut far, _) = listener.accept().await?;
        let mut near = TcpStream::try_from(near)?;
        near.write_all(b"in").await?;
        far.read_exact(&mut [0; 2]).await?;

        let mut near = near.into_std()?;
        near.set_nonblocking(false)?;
        far.write_all(b"out").await?;
        near.read_exact(&mut [0; 3])?;
        near.write_all(b"!")?;
        far.read_exact(&mut [0; 1]).await?;

        // And in again, by another door.
        let near: Async<std::net::TcpStream> = Async::new(near)?;
        near.write_with(|mut near| near.write(b"again")).await?;
        far.read_exact(&mut [0; 5]).await?;
        let near: Async<std::net::TcpStream> = TcpStream::from(near).into();
        drop(near);
        assert_eq!(far.read(&mut [0]).await?, 0);
        let udp = UdpSocket::bind("127.0.0.1:0").await?.into_std()?;
        UdpSocket::try_from(udp)?.into_std()?;
        listener.into_std().map(drop)
    });
}

/// As a program does that closes all descriptors it does not know.
#[cfg(target_os = "linux")]
#[test]
fn a_descriptor_closed_behind_its_back_is_an_error() {
    use std::os::fd::AsRawFd;
    on_each(|runtime| {
        let (near, _far) = runtime.block_on(pair()).unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: both are open. The number stands for another file from now on, so that nobody
        // else is given it.
        assert_ne!(unsafe { libc::dup2(other.as_raw_fd(), near.as_raw_fd()) }, -1);
        assert!(near.into_std().is_err());
    });
}
