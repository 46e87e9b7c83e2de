//! Unix sockets: streams and datagrams between processes of one machine.
//!
//! Paths are as [`std::os::unix::net`] takes them; what takes an address takes abstract names as well
//! (`std::os::linux::net::SocketAddrExt`). **A path stays behind** when its socket is dropped, and
//! cannot be bound to before it is removed.

use std::io;
use std::os::unix::net::{
    SocketAddr, UnixDatagram as StdDatagram, UnixListener as StdListener, UnixStream as StdStream,
};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use socket2::{Domain, SockAddr};

use crate::Async;
use crate::io::Readiness;
use crate::net::addr::explain;
use crate::net::socket;
use crate::time::sleep;

/// The first pause before a listener that had no room is asked again; each is twice the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// A Unix socket that waits for connections.
///
/// # Examples
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use paceline::net::unix::{UnixListener, UnixStream};
///
/// # let path = std::env::temp_dir().join(format!("paceline-doc-{}", std::process::id()));
/// paceline::block_on(async {
///     let listener = UnixListener::bind(&path)?;
///     let mut near = UnixStream::connect(&path).await?;
///     let (mut far, _) = listener.accept().await?;
///     near.write_all(b"hello").await?;
///     near.close().await?;
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener(Async<StdListener>);

socket!(UnixListener, StdListener, SocketAddr);

impl UnixListener {
    /// Listens at a path.
    ///
    /// # Errors
    /// Those of the system, with the path: it exists, say. If the runtime has stopped.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        let path = path.as_ref();
        at_path("listen at", path, StdListener::bind(path)).and_then(UnixListener::try_from)
    }

    /// Listens at an address, which may be an abstract name.
    ///
    /// # Errors
    /// Those of the system, with the address; if the runtime has stopped.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        at_addr("listen at", addr, StdListener::bind_addr(addr)).and_then(UnixListener::try_from)
    }

    /// Waits for the next connection. Returns it, and where it comes from: mostly an address without
    /// a name.
    ///
    /// # Errors
    /// The system's; the listener goes on working after them. With no descriptor left, every call
    /// fails at once and the connection goes on waiting: see to it that some are closed before the
    /// next, or pause. Also if the runtime has stopped.
    ///
    /// # Cancel safety
    /// No connection is lost if it is dropped.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        accepted(self.0.read_with(StdListener::accept).await)
    }

    /// As [`accept`](UnixListener::accept); the last task to call is woken.
    ///
    /// # Errors
    /// As [`accept`](UnixListener::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.0.poll_read_with(cx, StdListener::accept).map(accepted)
    }

    /// A stream of connections, which never ends. Its errors are those of
    /// [`accept`](UnixListener::accept).
    ///
    /// There may be any number of them for one listener.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, readiness: self.0.read_readiness() }
    }
}

fn accepted(result: io::Result<(StdStream, SocketAddr)>) -> io::Result<(UnixStream, SocketAddr)> {
    let (stream, addr) = result?;
    Ok((stream.try_into()?, addr))
}

/// The connections of a listener; from [`UnixListener::incoming`].
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a> {
    listener: &'a UnixListener,
    readiness: Readiness<'a>,
}

impl Stream for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Incoming { listener, readiness } = self.get_mut();
        let connection = listener.0.poll_with_readiness(readiness, cx, StdListener::accept);
        connection.map(|result| Some(accepted(result).map(|(stream, _)| stream)))
    }
}

impl std::fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Incoming").field(self.listener).finish()
    }
}

/// A connection between processes of one machine, or within one.
///
/// Two tasks can read and write it at the same time: through references, by
/// [`split`](UnixStream::split), or by [`into_split`](UnixStream::into_split). Closing it
/// (`AsyncWriteExt::close`) shuts down writing.
///
/// # Cancel safety
/// Reading and writing: if a call is dropped, nothing has been read or written by it. Of calls that
/// make several (`read_exact`, `write_all`), those that were ready have.
///
/// # Examples
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use paceline::net::unix::UnixStream;
///
/// paceline::block_on(async {
///     let (mut near, mut far) = UnixStream::pair()?;
///     near.write_all(b"ping").await?;
///     let mut buffer = [0; 4];
///     far.read_exact(&mut buffer).await?;
///     assert_eq!(&buffer, b"ping");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream(Async<StdStream>);

socket!(UnixStream, StdStream, SocketAddr);
readiness!(UnixStream, SocketAddr);
stream!(UnixStream);

impl UnixStream {
    /// Connects to a path. Waits if too many others do already: the listener is asked again after
    /// pauses of 1 to 64 ms then, for the system does not tell when it has room. There is no limit of
    /// time; see [`timeout`](crate::time::timeout).
    ///
    /// # Errors
    /// Those of the system, with the path; if the runtime has stopped.
    ///
    /// # Cancel safety
    /// If it is dropped, there is no connection.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let path = path.as_ref();
        at_path("connect to", path, UnixStream::connect_to(SockAddr::unix(path)).await)
    }

    /// As [`connect`](UnixStream::connect), to an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`connect`](UnixStream::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](UnixStream::connect).
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        at_addr("connect to", addr, UnixStream::connect_to(sock_addr(addr)).await)
    }

    async fn connect_to(addr: io::Result<SockAddr>) -> io::Result<UnixStream> {
        let (addr, mut socket) = (addr?, socket::stream(Domain::UNIX)?);
        let mut pause = FIRST_PAUSE;
        loop {
            match socket::begin(socket, &addr) {
                Ok(connecting) => return connecting.finish().await.map(UnixStream),
                Err((again, error)) if error.kind() == io::ErrorKind::WouldBlock => socket = again,
                Err((_, error)) => return Err(error),
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// Two that are connected to each other.
    ///
    /// # Errors
    /// Those of the system; if the runtime has stopped.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = StdStream::pair()?;
        Ok((a.try_into()?, b.try_into()?))
    }

    /// A short count does not tell here that nothing is left: it also comes of a message with
    /// descriptors, which the system does not join with the next.
    #[inline]
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        _len: usize,
        op: impl FnMut(&StdStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read_with(cx, op)
    }
}

/// A Unix socket for messages, which arrive whole, in order, and not at all if the peer has gone.
///
/// # Examples
/// ```
/// use paceline::net::unix::UnixDatagram;
///
/// paceline::block_on(async {
///     let (near, far) = UnixDatagram::pair()?;
///     near.send(b"ping").await?;
///     let mut buffer = [0; 16];
///     assert_eq!(far.recv(&mut buffer).await?, 4);
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram(Async<StdDatagram>);

socket!(UnixDatagram, StdDatagram, SocketAddr);
readiness!(UnixDatagram, SocketAddr);
datagram!(UnixDatagram, SocketAddr);

impl UnixDatagram {
    /// A socket at a path, to which others can send.
    ///
    /// # Errors
    /// Those of the system, with the path: it exists, say. If the runtime has stopped.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        let path = path.as_ref();
        at_path("bind to", path, StdDatagram::bind(path)).and_then(UnixDatagram::try_from)
    }

    /// A socket at an address, which may be an abstract name.
    ///
    /// # Errors
    /// Those of the system, with the address; if the runtime has stopped.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        at_addr("bind to", addr, StdDatagram::bind_addr(addr)).and_then(UnixDatagram::try_from)
    }

    /// A socket without an address: it can send, and be answered only on a [`pair`](Self::pair).
    ///
    /// # Errors
    /// Those of the system; if the runtime has stopped.
    pub fn unbound() -> io::Result<UnixDatagram> {
        StdDatagram::unbound()?.try_into()
    }

    /// Two that are connected to each other.
    ///
    /// # Errors
    /// Those of the system; if the runtime has stopped.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = StdDatagram::pair()?;
        Ok((a.try_into()?, b.try_into()?))
    }

    /// Makes a path the peer, to which [`send`](UnixDatagram::send) sends, and from which alone this
    /// receives. Does not wait.
    ///
    /// # Errors
    /// Those of the system, with the path.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        at_path("connect to", path, self.0.get_ref().connect(path))
    }

    /// As [`connect`](UnixDatagram::connect), to an address, which may be an abstract name.
    ///
    /// # Errors
    /// Those of the system, with the address.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        at_addr("connect to", addr, self.0.get_ref().connect_addr(addr))
    }

    /// Sends a message to a path, whole or not at all. Waits while this socket's buffer is full.
    ///
    /// # Errors
    /// Those of the system; if the runtime has stopped.
    ///
    /// # Cancel safety
    /// If it is dropped, nothing was sent.
    pub async fn send_to(&self, message: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(message, &SocketAddr::from_pathname(path)?).await
    }

    /// As [`send_to`](UnixDatagram::send_to), to an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`send_to`](UnixDatagram::send_to).
    ///
    /// # Cancel safety
    /// As [`send_to`](UnixDatagram::send_to).
    pub async fn send_to_addr(&self, message: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.0.write_with(|io| io.send_to_addr(message, addr)).await
    }

    /// As [`send_to_addr`](UnixDatagram::send_to_addr); the last task to call is woken.
    ///
    /// # Errors
    /// As [`send_to`](UnixDatagram::send_to).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        message: &[u8],
        addr: &SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_with(cx, |io| io.send_to_addr(message, addr))
    }

    /// Shuts down receiving, sending, or both.
    ///
    /// # Errors
    /// Those of the system.
    pub fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        self.0.get_ref().shutdown(how)
    }
}

/// As socket2 has it: an abstract name is a path that begins with a zero.
fn sock_addr(addr: &SocketAddr) -> io::Result<SockAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = std::os::linux::net::SocketAddrExt::as_abstract_name(addr) {
        let path = [b"\0", name].concat();
        return SockAddr::unix(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
            &path,
        ));
    }
    match addr.as_pathname() {
        Some(path) => SockAddr::unix(path),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no name")),
    }
}

/// An error with the path.
fn at_path<T>(what: &str, path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| explain(what, path.display(), &error))
}

/// An error with the address.
fn at_addr<T>(what: &str, addr: &SocketAddr, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| explain(what, format_args!("{addr:?}"), &error))
}
