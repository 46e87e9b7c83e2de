//! How sockets are made, connected, read and written without blocking. Knows no protocol.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::Async;
use crate::reactor::descriptor::{AsDescriptor, Owned};

/// More buffers than this are not taken by one call: that is no short count.
#[cfg(unix)]
pub(super) const MOST_BUFFERS: usize = 1024;
/// There is no such limit.
#[cfg(not(unix))]
pub(super) const MOST_BUFFERS: usize = usize::MAX;

/// A new stream socket, in non-blocking mode.
pub(super) fn stream(domain: Domain) -> io::Result<Socket> {
    #[cfg(target_os = "linux")]
    return Socket::new(domain, Type::STREAM.nonblocking(), None);
    #[cfg(not(target_os = "linux"))]
    {
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// A new socket at that address, which others may have as well, in non-blocking mode.
#[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
pub(super) fn reuse_port(
    addr: std::net::SocketAddr,
    kind: Type,
    reuse_address: bool,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), kind, None)?;
    socket.set_nonblocking(true)?;
    // Otherwise the connections of a listener that has gone keep the address for a while.
    socket.set_reuse_address(reuse_address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// A connection that is being made.
pub(super) enum Connecting {
    Done(Socket),
    UnderWay(Socket),
}

/// Begins to connect.
pub(super) fn begin(socket: Socket, to: &SockAddr) -> Result<Connecting, (Socket, io::Error)> {
    match socket.connect(to) {
        Ok(()) => Ok(Connecting::Done(socket)),
        Err(error) if is_under_way(&error) => Ok(Connecting::UnderWay(socket)),
        Err(error) => Err((socket, error)),
    }
}

#[cfg(unix)]
fn is_under_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

#[cfg(windows)]
fn is_under_way(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

impl Connecting {
    /// Registers the socket, and waits until it is connected.
    pub(super) async fn finish<T: AsDescriptor + From<Owned>>(self) -> io::Result<Async<T>> {
        match self {
            Connecting::Done(socket) => Async::new_nonblocking(T::from(socket.into())),
            Connecting::UnderWay(socket) => {
                let io = Async::new_nonblocking(T::from(socket.into()))?;
                io.write_with(check_connected).await?;
                Ok(io)
            }
        }
    }
}

/// That a socket can be written to may come from before it was told to connect.
fn check_connected<T: AsDescriptor>(io: &T) -> io::Result<()> {
    let socket = SockRef::from(io);
    match socket.take_error()? {
        Some(error) => Err(error),
        None => match socket.peer_addr() {
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                Err(ErrorKind::WouldBlock.into())
            }
            // Another error means that the peer has gone already: the first read tells.
            _ => Ok(()),
        },
    }
}

/// A peer that has gone needs not be told of the end.
pub(super) fn ignore_not_connected(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}

/// Receives from a stream. On Linux without the C library, whose calls are cancellation points: that
/// takes it two locked operations each.
#[cfg(target_os = "linux")]
#[inline]
pub(super) fn recv(io: &impl AsDescriptor, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(io, buffer, rustix::net::RecvFlags::empty())?.0)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn recv(io: &impl AsDescriptor, buffer: &mut [u8]) -> io::Result<usize> {
    io::Read::read(&mut &*SockRef::from(io), buffer)
}

/// As [`recv`]; the count is how many bytes are initialised.
#[cfg(target_os = "linux")]
#[inline]
pub(super) fn recv_uninit(
    io: &impl AsDescriptor,
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<usize> {
    let ((filled, _), _) = rustix::net::recv(io, buffer, rustix::net::RecvFlags::empty())?;
    Ok(filled.len())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn recv_uninit(
    io: &impl AsDescriptor,
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<usize> {
    SockRef::from(io).recv(buffer)
}

/// Sends to a stream; as [`recv`].
#[cfg(target_os = "linux")]
#[inline]
pub(super) fn send(io: &impl AsDescriptor, buffer: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(io, buffer, rustix::net::SendFlags::NOSIGNAL)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn send(io: &impl AsDescriptor, buffer: &[u8]) -> io::Result<usize> {
    io::Write::write(&mut &*SockRef::from(io), buffer)
}
