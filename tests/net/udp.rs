//! UDP.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use futures_lite::future;
use paceline::net::UdpSocket;
use paceline::{spawn, time, unconstrained};

use crate::{each, ready_now};

async fn socket() -> io::Result<UdpSocket> {
    UdpSocket::bind("127.0.0.1:0").await
}

#[test]
fn messages_go_to_and_fro() {
    each(async || {
        let (near, far) = (socket().await?, socket().await?);
        let addr = far.local_addr()?;
        let echo = spawn(async move {
            let mut buffer = [0; 64];
            for _ in 0..100 {
                let (count, from) = far.recv_from(&mut buffer).await?;
                far.send_to(&buffer[..count], from).await?;
            }
            io::Result::Ok(())
        });
        let mut buffer = [0; 64];
        for round in 0..100u8 {
            assert_eq!(near.send_to(&[round; 3], addr).await?, 3);
            assert_eq!(near.recv_from(&mut buffer).await?, (3, addr));
            assert_eq!(buffer[..3], [round; 3]);
        }
        echo.await
    });
}

#[test]
fn a_connected_socket_hears_its_peer_alone() {
    each(async || {
        let (near, far, stranger) = (socket().await?, socket().await?, socket().await?);
        assert_eq!(near.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        near.connect(far.local_addr()?).await?;
        assert_eq!(near.peer_addr()?, far.local_addr()?);
        stranger.send_to(b"stranger", near.local_addr()?).await?;
        far.send_to(b"peer", near.local_addr()?).await?;
        let mut buffer = [0; 16];
        assert_eq!(near.recv(&mut buffer).await?, 4);
        near.send(b"hello").await?;
        assert_eq!(far.recv(&mut buffer).await?, 5);
        Ok(())
    });
}

#[test]
fn a_peek_leaves_the_message_and_a_short_buffer_cuts_it() {
    each(async || {
        let (near, far) = (socket().await?, socket().await?);
        let from = near.local_addr()?;
        near.send_to(b"first", far.local_addr()?).await?;
        near.send_to(b"second", far.local_addr()?).await?;
        let mut buffer = [0; 16];
        assert_eq!(far.peek(&mut buffer).await?, 5);
        assert_eq!(far.peek_from(&mut buffer).await?, (5, from));
        assert_eq!(poll_fn(|cx| far.poll_peek(cx, &mut buffer)).await?, 5);
        assert_eq!(poll_fn(|cx| far.poll_peek_from(cx, &mut buffer)).await?, (5, from));
        assert_eq!(far.recv_from(&mut buffer[..2]).await?, (2, from));
        assert_eq!(poll_fn(|cx| far.poll_recv_from(cx, &mut buffer)).await?, (6, from));
        Ok(())
    });
}

#[test]
fn polled_calls_wait() {
    each(async || {
        let (near, far) = (socket().await?, socket().await?);
        near.connect(far.local_addr()?).await?;
        let mut buffer = [0; 16];
        {
            let mut receive = Box::pin(poll_fn(|cx| far.poll_recv(cx, &mut buffer)));
            assert!(ready_now(&mut receive).await.is_none());
            assert_eq!(poll_fn(|cx| near.poll_send(cx, b"one")).await?, 3);
            assert_eq!(receive.await?, 3);
        }
        let addr = far.local_addr()?;
        let stranger = socket().await?;
        assert_eq!(poll_fn(|cx| stranger.poll_send_to(cx, b"four", addr)).await?, 4);
        poll_fn(|cx| far.poll_readable(cx)).await?;
        assert_eq!(far.recv(&mut buffer).await?, 4);
        Ok(())
    });
}

/// async-io#156
#[test]
fn writable_is_prompt_beside_a_ticking_timer() {
    each(async || {
        let socket = socket().await?;
        let addr = socket.local_addr()?;
        let mut interval = time::interval(Duration::from_millis(1));
        interval.tick().await;
        for _ in 0..200 {
            let writable = async { poll_fn(|cx| socket.poll_writable(cx)).await.map(|()| true) };
            let tick = async {
                interval.tick().await;
                Ok(false)
            };
            // A spent slice would let a tick go first.
            let first = unconstrained(future::or(writable, tick)).await?;
            assert!(first, "a tick came first");
            socket.send_to(b"!", addr).await?;
        }
        Ok(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_peer_that_is_not_there_is_an_error_once() {
    each(async || {
        let (near, far) = (socket().await?, socket().await?);
        let addr = far.local_addr()?;
        near.connect(addr).await?;
        drop(far);
        near.send(b"anybody?").await?;
        let mut buffer = [0; 16];
        assert_eq!(near.recv(&mut buffer).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let mut receive = Box::pin(near.recv(&mut buffer));
        assert!(ready_now(&mut receive).await.is_none(), "the error has been told");
        let far = UdpSocket::bind(addr).await?;
        far.send_to(b"here", near.local_addr()?).await?;
        assert_eq!(receive.await?, 4);
        Ok(())
    });
}

#[test]
fn errors_name_the_address() {
    each(async || {
        let taken = socket().await?;
        let addr = taken.local_addr()?;
        let error = UdpSocket::bind(addr).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
        let nowhere: &[std::net::SocketAddr] = &[];
        for result in [taken.send_to(b"!", nowhere).await.map(drop), taken.connect(nowhere).await] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        Ok(())
    });
}

#[test]
fn options_are_kept() {
    each(async || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        socket.set_broadcast(true)?;
        socket.set_ttl(33)?;
        socket.set_multicast_loop_v4(false)?;
        socket.set_multicast_ttl_v4(5)?;
        assert_eq!((socket.broadcast()?, socket.ttl()?), (true, 33));
        assert_eq!((socket.multicast_loop_v4()?, socket.multicast_ttl_v4()?), (false, 5));
        assert!(socket.take_error()?.is_none());
        let group = Ipv4Addr::new(224, 0, 0, 123);
        // Where there is no route for it, there is an error.
        if socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).is_ok() {
            socket.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
        }
        if let Ok(socket) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await {
            socket.set_multicast_loop_v6(false)?;
            assert!(!socket.multicast_loop_v6()?);
        }
        Ok(())
    });
}

#[cfg(unix)]
#[test]
fn sockets_that_reuse_a_port_share_it_and_no_other_gets_it() {
    each(async || {
        let one = UdpSocket::bind_reuse_port("127.0.0.1:0").await?;
        let addr = one.local_addr()?;
        let other = UdpSocket::bind_reuse_port(addr).await?;
        assert_eq!(other.local_addr()?, addr);
        let error = UdpSocket::bind(addr).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let client = UdpSocket::bind("127.0.0.1:0").await?;
        client.send_to(b"hello", addr).await?;
        let (mut buffer, mut buffer_too) = ([0; 8], [0; 8]);
        let received = future::or(one.recv(&mut buffer), other.recv(&mut buffer_too)).await?;
        assert_eq!(received, 5);
        Ok(())
    });
}
