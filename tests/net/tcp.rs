//! Connecting and accepting; one stream, its ends and its waits.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt, future};
use paceline::net::{TcpListener, TcpStream};
use paceline::{Async, spawn, unconstrained};

use crate::common::{Census, on_each};
use crate::{counted, each, listen, pair, ready_now, until};

/// Of a listener that was there.
async fn nobody_listens() -> io::Result<SocketAddr> {
    listen().await?.local_addr()
}

#[test]
fn fifty_waiters_on_one_listener_are_all_served() {
    each(async || {
        let listener = Arc::new(listen().await?);
        let polls = Arc::new(AtomicUsize::new(0));
        let waiters: Vec<_> = (0..50)
            .map(|_| {
                let (listener, polls) = (listener.clone(), polls.clone());
                spawn(async move { counted(&polls, listener.accept()).await })
            })
            .collect();
        until(|| polls.load(SeqCst) >= 50).await;
        let mut clients = Vec::new();
        for _ in 0..50 {
            clients.push(TcpStream::connect(listener.local_addr()?).await?.local_addr()?);
        }
        let mut served = Vec::new();
        for waiter in waiters {
            served.push(waiter.await?.1);
        }
        clients.sort();
        served.sort();
        assert_eq!(clients, served);
        Ok(())
    });
}

#[test]
fn an_acceptor_is_polled_once_and_once_for_each_connection() {
    each(async || {
        let listener = listen().await?;
        let (addr, polls) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let (tx, rx) = async_channel::unbounded();
        let acceptor = {
            let polls = polls.clone();
            let accept = async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tx.try_send(stream).expect("it is wanted");
                }
            };
            spawn(async move { unconstrained(counted(&polls, accept)).await })
        };
        until(|| polls.load(SeqCst) == 1).await;
        for _ in 0..5 {
            let _near = TcpStream::connect(addr).await?;
            let _far = rx.recv().await.expect("accepted");
        }
        drop(acceptor);
        assert!(polls.load(SeqCst) <= 6, "{polls:?}");
        Ok(())
    });
}

#[test]
fn several_streams_of_connections_share_a_listener() {
    each(async || {
        let listener = Arc::new(listen().await?);
        let (polls, (tx, rx)) = (Arc::new(AtomicUsize::new(0)), async_channel::unbounded());
        let acceptors: Vec<_> = (0..3)
            .map(|_| {
                let (listener, polls, tx) = (listener.clone(), polls.clone(), tx.clone());
                let accept = async move {
                    let mut incoming = listener.incoming();
                    while let Some(stream) = incoming.next().await {
                        tx.try_send(stream).expect("it is wanted");
                    }
                };
                spawn(async move { unconstrained(counted(&polls, accept)).await })
            })
            .collect();
        until(|| polls.load(SeqCst) == 3).await;
        for _ in 0..10 {
            let _near = TcpStream::connect(listener.local_addr()?).await?;
            rx.recv().await.expect("accepted")?;
        }
        drop(acceptors);
        // They do not wake one another.
        assert!(polls.load(SeqCst) <= 3 + 10 * 3, "{polls:?}");
        Ok(())
    });
}

#[test]
fn a_cancelled_accept_loses_no_connection() {
    each(async || {
        let listener = Arc::new(listen().await?);
        for _ in 0..20 {
            let (tx, rx) = async_channel::unbounded();
            // What a task returns is lost when it is cancelled in the middle of that poll.
            let [first, second] = [0, 1].map(|_| {
                let (listener, tx) = (listener.clone(), tx.clone());
                spawn(async move { tx.try_send(listener.accept().await) })
            });
            paceline::yield_now().await;
            let near = TcpStream::connect(listener.local_addr()?).await?;
            // Both are woken, or one has it already.
            first.cancel().await;
            let (_far, served) = rx.recv().await.expect("a task has the other end")?;
            assert_eq!(served, near.local_addr()?);
            second.cancel().await;
        }
        Ok(())
    });
}

#[test]
fn a_refused_connection_is_an_error_that_names_the_address() {
    each(async || {
        let addr = nobody_listens().await?;
        let error = TcpStream::connect(addr).await.expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
        Ok(())
    });
}

#[test]
fn the_second_address_is_tried_when_the_first_refuses() {
    each(async || {
        let (refuses, listener) = (nobody_listens().await?, listen().await?);
        let answers = listener.local_addr()?;
        let stream = TcpStream::connect(&[refuses, answers][..]).await?;
        assert_eq!(stream.peer_addr()?, answers);
        let error = TcpStream::connect([answers, refuses].as_slice()).await;
        assert!(error.is_ok(), "the first answers");
        let error = TcpStream::connect([refuses, nobody_listens().await?]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        Ok(())
    });
}

#[test]
fn no_address_at_all_is_an_error() {
    each(async || {
        let none: &[SocketAddr] = &[];
        for error in [
            TcpStream::connect(none).await.map(drop),
            TcpListener::bind(none).await.map(drop),
            TcpStream::connect("nonsense").await.map(drop),
        ] {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        Ok(())
    });
}

#[test]
fn a_listener_in_use_is_an_error_that_names_the_address() {
    each(async || {
        let listener = listen().await?;
        let addr = listener.local_addr()?;
        let error = TcpListener::bind(addr).await.expect_err("in use");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
        // The next address is tried.
        let other = TcpListener::bind(&[addr, "127.0.0.1:0".parse().unwrap()][..]).await?;
        assert_ne!(other.local_addr()?, addr);
        Ok(())
    });
}

#[test]
fn an_address_is_free_again_after_its_connections_have_closed() {
    each(async || {
        let listener = listen().await?;
        let addr = listener.local_addr()?;
        let mut near = TcpStream::connect(addr).await?;
        // The side that closes first keeps the port busy for a while.
        drop(listener.accept().await?);
        assert_eq!(near.read(&mut [0]).await?, 0);
        drop((near, listener));
        TcpListener::bind(addr).await.map(drop)
    });
}

#[cfg(unix)]
#[test]
fn to_register_a_descriptor_twice_is_an_error() {
    each(async || {
        let (mut near, mut far) = pair().await?;
        let twice = Async::new(std::os::fd::AsFd::as_fd(&near)).map(drop);
        assert_eq!(twice.unwrap_err().kind(), ErrorKind::AlreadyExists);
        // The first registration is as good as before.
        let echo = spawn(async move {
            let mut buffer = [0; 4];
            far.read_exact(&mut buffer).await?;
            far.write_all(&buffer).await
        });
        near.write_all(b"ping").await?;
        near.read_exact(&mut [0; 4]).await?;
        echo.await
    });
}

#[test]
fn the_end_of_one_direction_leaves_the_other() {
    each(async || {
        let (near, far) = pair().await?;
        for (mut closes, mut goes_on) in [(&near, &far), (&far, &near)] {
            let reader = async {
                let mut text = String::new();
                goes_on.read_to_string(&mut text).await.map(|_| text)
            };
            let writer = async {
                closes.write_all(b"last words").await?;
                closes.close().await
            };
            // The first closes; the second, whose own direction is still open, reads it.
            let (text, written) = future::zip(reader, writer).await;
            assert_eq!((text?.as_str(), written?), ("last words", ()));
            let error = closes.write(b"more").await.expect_err("closed");
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            // To close again is no error, whatever the peer has done.
            closes.close().await?;
        }
        Ok(())
    });
}

#[test]
fn a_shut_down_ends_the_read_that_waits() {
    each(async || {
        let (near, _far) = pair().await?;
        let near = Arc::new(near);
        let polls = Arc::new(AtomicUsize::new(0));
        let reader = {
            let (near, polls) = (near.clone(), polls.clone());
            spawn(async move { counted(&polls, (&*near).read(&mut [0; 8])).await })
        };
        until(|| polls.load(SeqCst) > 0).await;
        near.shutdown(Shutdown::Read)?;
        assert_eq!(reader.await?, 0);
        Ok(())
    });
}

#[test]
fn a_reset_by_the_peer_ends_reads_and_writes() {
    each(async || {
        let (near, far) = pair().await?;
        let near = Arc::new(near);
        let polls = Arc::new(AtomicUsize::new(0));
        let reader = {
            let (near, polls) = (near.clone(), polls.clone());
            spawn(async move { counted(&polls, (&*near).read(&mut [0; 8])).await })
        };
        until(|| polls.load(SeqCst) > 0).await;
        far.set_linger(Some(Duration::ZERO))?;
        assert_eq!(far.linger()?, Some(Duration::ZERO));
        drop(far);
        assert_eq!(reader.await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!((&*near).write(b"!").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!((&*near).read(&mut [0; 8]).await?, 0);
        near.readable().await?;
        near.writable().await
    });
}

#[test]
fn a_short_buffer_takes_what_is_there_piece_by_piece() {
    each(async || {
        let (mut near, mut far) = pair().await?;
        for round in 0..20 {
            far.write_all(b"0123456789").await?;
            let mut taken = Vec::new();
            while taken.len() < 10 {
                let mut buffer = [0; 4];
                let count = near.read(&mut buffer).await?;
                taken.extend_from_slice(&buffer[..count]);
            }
            assert_eq!(taken, b"0123456789", "round {round}");
            let (mut buffer, polls) = ([0; 4], AtomicUsize::new(0));
            let mut next = Box::pin(counted(&polls, near.read(&mut buffer)));
            assert!(ready_now(&mut next).await.is_none(), "nothing is left");
            far.write_all(b"!").await?;
            assert_eq!(next.await?, 1);
        }
        Ok(())
    });
}

#[test]
fn data_and_the_end_that_arrive_together_are_both_read() {
    each(async || {
        for waits in [false, true] {
            let (mut near, mut far) = pair().await?;
            let reader = async move {
                let mut buffer = [0; 64];
                let counts = [near.read(&mut buffer).await?, near.read(&mut buffer).await?];
                io::Result::Ok(counts)
            };
            let mut reader = Box::pin(reader);
            if waits {
                assert!(ready_now(&mut reader).await.is_none());
            }
            far.write_all(b"all").await?;
            drop(far);
            assert_eq!(reader.await?, [3, 0], "waits: {waits}");
        }
        Ok(())
    });
}

#[test]
fn an_end_before_the_first_read_is_read() {
    each(async || {
        let (mut near, far) = pair().await?;
        drop(far);
        // It has arrived.
        assert_eq!(near.peek(&mut [0]).await?, 0);
        assert_eq!(near.read(&mut [0; 8]).await?, 0);
        assert_eq!(near.read(&mut [0; 8]).await?, 0, "for ever");
        Ok(())
    });
}

#[test]
fn a_peek_leaves_what_it_sees() {
    each(async || {
        let (mut near, mut far) = pair().await?;
        far.write_all(b"twice").await?;
        let mut buffer = [0; 8];
        assert_eq!(near.peek(&mut buffer[..2]).await?, 2);
        near.read_exact(&mut buffer[..5]).await?;
        assert_eq!(&buffer[..5], b"twice");
        Ok(())
    });
}

/// The system splits what is read where urgent data were sent: not all of a short read is one.
#[cfg(unix)]
#[test]
fn data_behind_an_urgent_byte_are_read() {
    each(async || {
        for waits in [false, true] {
            let (mut near, mut far) = pair().await?;
            let reader = async move {
                let mut text = Vec::new();
                while text.len() < 6 {
                    let mut buffer = [0; 64];
                    let count = near.read(&mut buffer).await?;
                    text.extend_from_slice(&buffer[..count]);
                }
                assert_eq!(text, b"before");
                io::Result::Ok(near)
            };
            let mut reader = Box::pin(reader);
            if waits {
                assert!(ready_now(&mut reader).await.is_none());
            }
            far.write_all(b"bef").await?;
            socket2::SockRef::from(&far).send_out_of_band(b"!")?;
            far.write_all(b"ore").await?;
            reader.await?;
        }
        Ok(())
    });
}

#[test]
fn more_buffers_than_the_system_takes_are_no_short_count() {
    each(async || {
        let (near, far) = pair().await?;
        let bytes: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
        let writer = async {
            let mut slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
            let mut left = slices.as_mut_slice();
            while !left.is_empty() {
                let count = (&near).write_vectored(left).await?;
                IoSlice::advance_slices(&mut left, count);
            }
            io::Result::Ok(())
        };
        let reader = async {
            let (mut read, mut count) = (vec![0; 3000], 0);
            while count < read.len() {
                let mut slices: Vec<_> = read[count..].chunks_mut(1).map(IoSliceMut::new).collect();
                let more = (&far).read_vectored(&mut slices).await?;
                assert_ne!(more, 0);
                count += more;
            }
            assert!(read == bytes);
            io::Result::Ok(())
        };
        let (written, read) = future::zip(writer, reader).await;
        written.and(read)
    });
}

#[test]
fn a_stream_dropped_while_it_is_waited_for_lets_go_of_the_waker() {
    on_each(|runtime| {
        let census = Census::new();
        let waker = crate::common::waker_of_one(&runtime, &census);
        let (near, _far) = runtime.block_on(pair()).unwrap();
        let cx = &mut Context::from_waker(&waker);
        assert!(near.poll_readable(cx).is_pending(), "the system says that it is not");
        assert!(is_read_pending(&near, cx));
        drop(near);
        drop(waker);
        drop(runtime);
        assert_eq!((census.born(), census.dead()), (1, 1));
    });
}

fn is_read_pending(mut stream: &TcpStream, cx: &mut Context<'_>) -> bool {
    futures_lite::AsyncRead::poll_read(Pin::new(&mut stream), cx, &mut [0]).is_pending()
}

#[test]
fn descriptors_that_come_and_go_get_no_events_of_others() {
    each(async || {
        for _ in 0..300 {
            let (near, mut far) = pair().await?;
            assert!(is_read_pending(&near, &mut Context::from_waker(Waker::noop())));
            // Its events are under way while it is dropped, and another takes its place.
            let writer = spawn(async move { far.write_all(b"to whom?").await });
            drop(near);
            let (mut near, mut far) = pair().await?;
            let mut reader = Box::pin(async move { near.read(&mut [0; 8]).await });
            assert!(ready_now(&mut reader).await.is_none());
            far.write_all(b"you").await?;
            assert_eq!(reader.await?, 3);
            writer.await?;
        }
        Ok(())
    });
}

#[test]
fn options_and_addresses() {
    each(async || {
        let listener = listen().await?;
        listener.set_ttl(55)?;
        assert_eq!(listener.ttl()?, 55);
        let near = TcpStream::connect(listener.local_addr()?).await?;
        let (far, from) = listener.accept().await?;
        assert_eq!((near.local_addr()?, near.peer_addr()?), (from, listener.local_addr()?));
        assert_eq!(far.peer_addr()?, from);
        near.set_nodelay(true)?;
        near.set_ttl(44)?;
        assert_eq!((near.nodelay()?, near.ttl()?, near.linger()?), (true, 44, None));
        assert!(near.take_error()?.is_none() && listener.take_error()?.is_none());
        for (debug, addr) in [
            (format!("{near:?}"), from),
            (format!("{far:?}"), from),
            (format!("{listener:?}"), listener.local_addr()?),
        ] {
            assert!(debug.contains(&addr.to_string()), "{debug}");
        }
        Ok(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn sockets_are_closed_in_other_programs_and_do_not_block() {
    use std::os::fd::AsRawFd;
    each(async || {
        let (near, far) = pair().await?;
        for fd in [near.as_raw_fd(), far.as_raw_fd()] {
            // SAFETY: the flags of an open descriptor are read.
            let flags = unsafe { (libc::fcntl(fd, libc::F_GETFD), libc::fcntl(fd, libc::F_GETFL)) };
            assert_eq!(flags.0 & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
            assert_eq!(flags.1 & libc::O_NONBLOCK, libc::O_NONBLOCK);
        }
        Ok(())
    });
}

#[cfg(unix)]
#[test]
fn listeners_that_reuse_a_port_share_it_and_no_other_gets_it() {
    each(async || {
        let one = TcpListener::bind_reuse_port("127.0.0.1:0").await?;
        let addr = one.local_addr()?;
        let other = TcpListener::bind_reuse_port(addr).await?;
        assert_eq!(other.local_addr()?, addr);
        let error = TcpListener::bind(addr).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let mut accepted = [0, 0];
        // With a hash of the peers' ports, that one gets all is as likely as 64 heads in a row.
        for _ in 0..64 {
            let _client = TcpStream::connect(addr).await?;
            let first = async { one.accept().await.map(|_| 0) };
            let second = async { other.accept().await.map(|_| 1) };
            accepted[future::or(first, second).await?] += 1;
        }
        assert!(accepted.iter().sum::<i32>() == 64);
        assert!(!cfg!(target_os = "linux") || accepted.iter().all(|&count| count > 0));
        Ok(())
    });
}
