//! Many connections, and no descriptors.

use std::io;
use std::sync::Arc;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use paceline::net::TcpStream;
use paceline::spawn;

use crate::common::{alone, on_each, on_each_size};
use crate::{listen, pair};

#[cfg(target_os = "linux")]
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// One connection: says a word, and hears it again.
async fn call(addr: std::net::SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    let mut buffer = [0; 4];
    stream.write_all(b"word").await?;
    stream.read_exact(&mut buffer).await?;
    assert_eq!(&buffer, b"word");
    stream.close().await?;
    assert_eq!(stream.read(&mut buffer).await?, 0);
    Ok(())
}

/// Says everything that it hears, until the end.
async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 64];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

#[cfg(target_os = "linux")]
#[test]
fn ten_thousand_connections_come_and_go_and_leave_no_descriptor() {
    const CALLERS: usize = 100;
    const CALLS: usize = 100;
    alone("limits::ten_thousand_connections_come_and_go_and_leave_no_descriptor", || {
        on_each(|runtime| {
            // The poller's own.
            runtime.block_on(pair()).unwrap();
            let before = open_descriptors();
            let served = runtime.block_on(async {
                let listener = listen().await?;
                let addr = listener.local_addr()?;
                let callers: Vec<_> = (0..CALLERS)
                    .map(|_| {
                        spawn(async move {
                            for _ in 0..CALLS {
                                call(addr).await?;
                            }
                            io::Result::Ok(())
                        })
                    })
                    .collect();
                let mut served = Vec::new();
                for _ in 0..CALLERS * CALLS {
                    served.push(spawn(echo(listener.accept().await?.0)));
                }
                for caller in callers {
                    caller.await?;
                }
                io::Result::Ok(served)
            });
            runtime.block_on(async {
                for served in served.expect("no error") {
                    served.await.expect("no error");
                }
            });
            assert_eq!(open_descriptors(), before);
            drop(runtime);
            assert!(open_descriptors() < before, "the poller's own are closed as well");
        });
    });
}

#[cfg(target_os = "linux")]
#[test]
fn connections_that_are_cancelled_leave_no_descriptor() {
    alone("limits::connections_that_are_cancelled_leave_no_descriptor", || {
        on_each(|runtime| {
            runtime.block_on(pair()).unwrap();
            let before = open_descriptors();
            runtime
                .block_on(async {
                    let listener = Arc::new(listen().await?);
                    let addr = listener.local_addr()?;
                    for _ in 0..100 {
                        let accept = {
                            let listener = listener.clone();
                            spawn(async move { listener.accept().await })
                        };
                        let tasks = [0; 5].map(|_| spawn(call(addr)));
                        accept.await?;
                        for task in tasks {
                            task.cancel().await;
                        }
                    }
                    io::Result::Ok(())
                })
                .unwrap();
            assert_eq!(open_descriptors(), before);
        });
    });
}

/// Runs `body` while this process can have no descriptor but those it has, and one more.
#[cfg(target_os = "linux")]
fn with_one_descriptor_left<R>(body: impl FnOnce() -> R) -> R {
    use std::os::fd::AsRawFd;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes to `limit`.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    // The lowest that is free, which the next to be opened is given.
    let next = std::fs::File::open("/dev/null").expect("there are enough now").as_raw_fd();
    let lowered = libc::rlimit { rlim_cur: next as libc::rlim_t + 1, ..limit };
    // SAFETY: it reads `lowered`.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &lowered) }, 0);
    let result = body();
    // SAFETY: it reads `limit`.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    result
}

#[cfg(target_os = "linux")]
#[test]
fn an_accept_without_a_descriptor_is_an_error_and_the_next_with_one_is_not() {
    let name = "limits::an_accept_without_a_descriptor_is_an_error_and_the_next_with_one_is_not";
    let is_exhausted = |error: &io::Error| error.raw_os_error() == Some(libc::EMFILE);
    alone(name, move || {
        on_each(move |runtime| {
            let listener = Arc::new(runtime.block_on(listen()).unwrap());
            let addr = listener.local_addr().unwrap();
            let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            let (client, late) = (client.unwrap(), std::net::TcpStream::connect(addr).unwrap());
            // One is there before; the other comes when there is nothing left.
            let accepted = runtime.block_on(listener.accept()).unwrap();
            let waits = {
                let listener = listener.clone();
                let (tells, tried) = std::sync::mpsc::channel();
                let waits = runtime.spawn(async move {
                    let mut accept = std::pin::pin!(listener.accept());
                    let accepted = std::future::poll_fn(|cx| {
                        let polled = accept.as_mut().poll(cx);
                        tells.send(()).expect("it is listened to below, or no more");
                        polled
                    });
                    accepted.await.map(drop)
                });
                // The system takes a descriptor for each try, also for one that would block: it must
                // not be the one that is counted as the lowest free.
                tried.recv().unwrap();
                (waits, tried)
            };
            let (waits, _tried) = waits;
            let accepts = with_one_descriptor_left(|| {
                let spare = std::fs::File::open("/dev/null").expect("the last");
                client.connect(&addr.into()).unwrap();
                let error = runtime.block_on(waits).expect_err("none is left");
                assert!(is_exhausted(&error), "{error}");
                for _ in 0..3 {
                    let error = runtime.block_on(listener.accept()).expect_err("none is left");
                    assert!(is_exhausted(&error), "{error}");
                    let refused = runtime.block_on(TcpStream::connect(addr)).expect_err("likewise");
                    assert!(refused.to_string().contains(&addr.to_string()), "{refused}");
                }
                drop(spare);
                runtime.block_on(listener.accept())
            });
            accepts.expect("a descriptor is free");
            drop((accepted, late, client));
        });
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_runtime_that_can_have_no_poller_says_so() {
    alone("limits::a_runtime_that_can_have_no_poller_says_so", || {
        on_each_size(|workers| {
            let runtime = crate::common::runtime(workers);
            runtime.block_on(runtime.spawn(async {}));
            let bind = || runtime.block_on(listen());
            let error = with_one_descriptor_left(bind).expect_err("the socket has the last");
            assert!(error.to_string().contains("ulimit"), "{error}");
            // There are some again.
            bind().expect("a poller can be made");
        });
    });
}
