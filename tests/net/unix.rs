//! Unix sockets.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt};
use paceline::net::unix::{UnixDatagram, UnixListener, UnixStream};
use paceline::spawn;

use crate::{counted, each, ready_now, until};

/// A path that nobody else uses; removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("paceline-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        Place(std::env::temp_dir().join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn greet(mut near: UnixStream, mut far: UnixStream) -> io::Result<()> {
    near.write_all(b"hello").await?;
    near.close().await?;
    let mut text = String::new();
    far.read_to_string(&mut text).await?;
    assert_eq!(text, "hello");
    Ok(())
}

#[test]
fn streams_by_path() {
    each(async || {
        let place = Place::new();
        let listener = UnixListener::bind(&place.0)?;
        let near = UnixStream::connect(&place.0).await?;
        let (far, from) = listener.accept().await?;
        assert!(from.is_unnamed() && near.local_addr()?.is_unnamed());
        assert_eq!(near.peer_addr()?.as_pathname(), Some(&*place.0));
        assert_eq!(listener.local_addr()?.as_pathname(), Some(&*place.0));
        greet(near, far).await?;
        let addr = SocketAddr::from_pathname(&place.0)?;
        let (near, far) =
            (UnixStream::connect_addr(&addr).await?, listener.incoming().next().await);
        greet(near, far.expect("never ends")?).await
    });
}

#[cfg(target_os = "linux")]
#[test]
fn streams_by_abstract_name() {
    use std::os::linux::net::SocketAddrExt;
    each(async || {
        let name = Place::new().0.clone();
        let addr = SocketAddr::from_abstract_name(name.as_os_str().as_encoded_bytes())?;
        let error = UnixStream::connect_addr(&addr).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("paceline"), "{error}");
        let listener = UnixListener::bind_addr(&addr)?;
        assert_eq!(UnixListener::bind_addr(&addr).unwrap_err().kind(), ErrorKind::AddrInUse);
        let near = UnixStream::connect_addr(&addr).await?;
        assert_eq!(near.peer_addr()?.as_abstract_name(), addr.as_abstract_name());
        greet(near, listener.accept().await?.0).await
    });
}

#[test]
fn errors_name_the_path() {
    each(async || {
        let place = Place::new();
        let path = place.0.display().to_string();
        let absent = UnixStream::connect(&place.0).await.unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
        drop(UnixListener::bind(&place.0)?);
        let stale = UnixStream::connect(&place.0).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::ConnectionRefused);
        let in_use = UnixListener::bind(&place.0).unwrap_err();
        assert_eq!(in_use.kind(), ErrorKind::AddrInUse);
        let taken = UnixDatagram::bind(&place.0).unwrap_err();
        for error in [absent, stale, in_use, taken] {
            assert!(error.to_string().contains(&path), "{error}");
        }
        let long = "x".repeat(200);
        let error = UnixStream::connect(&long).await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains(&long));
        Ok(())
    });
}

/// EPOLLHUP
#[test]
fn a_peer_that_has_gone_ends_every_wait() {
    each(async || {
        let (near, far) = UnixStream::pair()?;
        let near = Arc::new(near);
        let polls = Arc::new(AtomicUsize::new(0));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (near, polls) = (near.clone(), polls.clone());
                spawn(async move { counted(&polls, near.readable()).await })
            })
            .collect();
        let reader = {
            let (near, polls) = (near.clone(), polls.clone());
            spawn(async move { counted(&polls, (&*near).read(&mut [0])).await })
        };
        until(|| polls.load(SeqCst) >= 3).await;
        drop(far);
        assert_eq!(reader.await?, 0);
        for reader in readers {
            reader.await?;
        }
        near.writable().await?;
        assert_eq!((&*near).write(b"!").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!((&*near).read(&mut [0]).await?, 0);
        Ok(())
    });
}

#[test]
fn a_peer_that_goes_ends_the_write_that_waits() {
    each(async || {
        let (near, far) = UnixStream::pair()?;
        let polls = Arc::new(AtomicUsize::new(0));
        let writer = {
            let polls = polls.clone();
            let write = async move { (&near).write_all(&vec![0; 16 << 20]).await };
            spawn(async move { counted(&polls, write).await })
        };
        until(|| polls.load(SeqCst) > 0).await;
        drop(far);
        assert!(writer.await.is_err());
        Ok(())
    });
}

/// The system tells nobody when there is room.
#[cfg(target_os = "linux")]
#[test]
fn a_listener_without_room_is_waited_for() {
    each(async || {
        let place = Place::new();
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.bind(&socket2::SockAddr::unix(&place.0)?)?;
        socket.listen(0)?;
        let listener = std::os::unix::net::UnixListener::from(std::os::fd::OwnedFd::from(socket));
        let listener = UnixListener::try_from(listener)?;
        let mut connected = Vec::new();
        let waits = loop {
            let path = place.0.clone();
            let mut connect = Box::pin(async move { UnixStream::connect(path).await });
            match ready_now(&mut connect).await {
                Some(stream) => connected.push(stream?),
                None => break spawn(connect),
            }
            assert!(connected.len() < 10, "it has no room for that many");
        };
        for _ in 0..connected.len() {
            listener.accept().await?;
        }
        connected.push(waits.await?);
        listener.accept().await.map(drop)
    });
}

/// Sends with a descriptor, which is lost where it is only read.
fn send_with_descriptor(stream: &UnixStream, text: &[u8]) -> io::Result<()> {
    let mut space = [0u64; 4];
    // SAFETY: `control` points into `space`, which is aligned as control messages are, and large
    // enough for one with a descriptor; the system reads all of it during the call.
    let sent = unsafe {
        let mut slice = IoSlice::new(text);
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = (&raw mut slice).cast();
        message.msg_iovlen = 1;
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as _;
        let control = libc::CMSG_FIRSTHDR(&message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as _;
        let number = stream.as_raw_fd();
        libc::CMSG_DATA(control).cast::<libc::c_int>().write_unaligned(number);
        libc::sendmsg(stream.as_fd().as_raw_fd(), &message, 0)
    };
    if sent == text.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The system does not join them in one read: not all of a short read is one.
#[test]
fn data_behind_a_message_with_a_descriptor_are_read() {
    each(async || {
        for waits in [false, true] {
            let (mut near, mut far) = UnixStream::pair()?;
            let reader = async move {
                let mut text = Vec::new();
                while text.len() < 9 {
                    let mut buffer = [0; 64];
                    let count = near.read(&mut buffer).await?;
                    text.extend_from_slice(&buffer[..count]);
                }
                assert_eq!(text, b"onetwosix");
                io::Result::Ok(near)
            };
            let mut reader = Box::pin(reader);
            if waits {
                assert!(ready_now(&mut reader).await.is_none());
            }
            far.write_all(b"one").await?;
            send_with_descriptor(&far, b"two")?;
            far.write_all(b"six").await?;
            reader.await?;
        }
        Ok(())
    });
}

#[test]
fn datagrams_by_path() {
    each(async || {
        let (here, there) = (Place::new(), Place::new());
        let (near, far) = (UnixDatagram::bind(&here.0)?, UnixDatagram::bind(&there.0)?);
        let mut buffer = [0; 16];
        near.send_to(b"hello", &there.0).await?;
        let (count, from) = far.recv_from(&mut buffer).await?;
        assert_eq!((count, from.as_pathname()), (5, Some(&*here.0)));
        far.connect(&here.0)?;
        far.send(b"yes?").await?;
        assert_eq!(near.recv(&mut buffer).await?, 4);
        assert_eq!(far.peer_addr()?.as_pathname(), Some(&*here.0));
        let stranger = UnixDatagram::unbound()?;
        assert!(stranger.send_to(b"!", &there.0).await.is_err(), "it hears its peer alone");
        stranger.connect_addr(&SocketAddr::from_pathname(&here.0)?)?;
        stranger.send(b"stranger").await?;
        assert_eq!(near.recv_from(&mut buffer).await?.0, 8);
        drop(near);
        assert_eq!(far.send(b"gone?").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        Ok(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn datagrams_by_abstract_name() {
    use std::os::linux::net::SocketAddrExt;
    each(async || {
        let name = Place::new().0.clone();
        let addr = SocketAddr::from_abstract_name(name.as_os_str().as_encoded_bytes())?;
        let (near, far) = (UnixDatagram::unbound()?, UnixDatagram::bind_addr(&addr)?);
        near.send_to_addr(b"hello", &addr).await?;
        assert_eq!(far.recv(&mut [0; 16]).await?, 5);
        std::future::poll_fn(|cx| near.poll_send_to(cx, b"hello", &addr)).await?;
        assert_eq!(far.recv(&mut [0; 16]).await?, 5);
        Ok(())
    });
}

#[test]
fn a_sender_waits_while_the_receiver_has_no_room() {
    each(async || {
        let (near, far) = UnixDatagram::pair()?;
        let (near, sent) = (Arc::new(near), Arc::new(AtomicUsize::new(0)));
        let sender = {
            let (near, sent) = (near.clone(), sent.clone());
            spawn(async move {
                for _ in 0..5_000 {
                    near.send(&[1; 100]).await?;
                    sent.fetch_add(1, SeqCst);
                }
                near.shutdown(std::net::Shutdown::Write)
            })
        };
        let mut buffer = [0; 200];
        for _ in 0..5_000 {
            assert_eq!(far.recv(&mut buffer).await?, 100);
        }
        sender.await?;
        assert_eq!(sent.load(SeqCst), 5_000);
        assert!(near.send(b"!").await.is_err());
        Ok(())
    });
}
