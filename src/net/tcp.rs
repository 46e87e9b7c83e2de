//! TCP: listeners and streams.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use socket2::{Domain, SockAddr, SockRef};

use crate::Async;
use crate::io::Readiness;
use crate::net::addr::{ToSocketAddrs, first};
use crate::net::socket;

/// A TCP socket that waits for connections.
///
/// # Examples
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use paceline::net::{TcpListener, TcpStream};
///
/// paceline::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let addr = listener.local_addr()?;
///     let server = paceline::spawn(async move {
///         let (mut stream, _) = listener.accept().await?;
///         stream.write_all(b"good morning").await
///     });
///     let mut stream = TcpStream::connect(addr).await?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text).await?;
///     assert_eq!(text, "good morning");
///     server.await
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener(Async<StdListener>);

socket!(TcpListener, StdListener, SocketAddr);

/// How many connections may wait to be accepted, as with the standard library's listeners; the system
/// has a limit of its own.
#[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
const BACKLOG: i32 =
    match cfg!(any(target_os = "linux", target_os = "freebsd", target_vendor = "apple")) {
        true => -1,
        false => 128,
    };

impl TcpListener {
    /// Listens at the first of the addresses that can be had. With port 0 the system chooses one.
    ///
    /// On Unix, an address that only connections of the past still use can be had (`SO_REUSEADDR`).
    ///
    /// # Errors
    /// That of the last address, with its name; if there is none; if a name cannot be looked up; if
    /// the runtime has stopped.
    ///
    /// # Cancel safety
    /// If it is dropped, nobody listens.
    pub async fn bind(addrs: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let attempt = |addr| async move { StdListener::bind(addr)?.try_into() };
        first("listen at", addrs.to_addrs(), attempt).await
    }

    /// As [`bind`](TcpListener::bind), at an address that other listeners of the same user may have as well,
    /// if each was made so (`SO_REUSEPORT`).
    ///
    /// On Linux the system spreads the connections over the listeners, by a hash of the peer's address and
    /// its own: each gets about as many, and keeps those that wait for it, which are lost when it is closed. So a
    /// server has one for each thread with a [`LocalRuntime`](crate::LocalRuntime). FreeBSD has another option for
    /// that (`SO_REUSEPORT_LB`); there, on macOS and elsewhere one of the listeners may get all.
    ///
    /// # Errors
    /// As [`bind`](TcpListener::bind).
    ///
    /// # Cancel safety
    /// If it is dropped, nobody listens.
    ///
    /// # Examples
    /// ```
    /// use paceline::net::{TcpListener, TcpStream};
    ///
    /// paceline::block_on(async {
    ///     let one = TcpListener::bind_reuse_port("127.0.0.1:0").await?;
    ///     let other = TcpListener::bind_reuse_port(one.local_addr()?).await?;
    ///     let _client = TcpStream::connect(one.local_addr()?).await?;
    ///     futures_lite::future::or(one.accept(), other.accept()).await?;
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
    pub async fn bind_reuse_port(addrs: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let attempt = |addr| async move {
            let socket = socket::reuse_port(addr, socket2::Type::STREAM, true)?;
            socket.listen(BACKLOG)?;
            Async::new_nonblocking(StdListener::from(socket)).map(TcpListener)
        };
        first("listen at", addrs.to_addrs(), attempt).await
    }

    /// Waits for the next connection. Returns it, and where it comes from.
    ///
    /// # Errors
    /// The system's; the listener goes on working after them. Some are of one connection that ended
    /// too soon. With no descriptor left, every call fails at once and the connection goes on waiting:
    /// see to it that some are closed before the next, or pause. Also if the runtime has stopped.
    ///
    /// # Cancel safety
    /// No connection is lost if it is dropped.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        accepted(self.0.read_with(accept).await)
    }

    /// As [`accept`](TcpListener::accept); the last task to call is woken.
    ///
    /// # Errors
    /// As [`accept`](TcpListener::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.0.poll_read_with(cx, accept).map(accepted)
    }

    /// A stream of connections, which never ends. Its errors are those of
    /// [`accept`](TcpListener::accept).
    ///
    /// There may be any number of them for one listener.
    ///
    /// # Examples
    /// ```
    /// use futures_lite::{AsyncWriteExt, StreamExt};
    /// use paceline::net::{TcpListener, TcpStream};
    ///
    /// paceline::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let _client = TcpStream::connect(listener.local_addr()?).await?;
    ///     while let Some(stream) = listener.incoming().next().await {
    ///         stream?.write_all(b"hello").await?;
    /// #       break;
    ///     }
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, readiness: self.0.read_readiness() }
    }

    /// How many routers an IP packet of its may pass.
    ///
    /// # Errors
    /// Those of the system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get_ref().ttl()
    }

    /// Sets how many routers an IP packet of its may pass.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get_ref().set_ttl(ttl)
    }
}

/// One system call: the socket is in non-blocking mode from the beginning.
#[cfg(target_os = "linux")]
fn accept(listener: &StdListener) -> io::Result<(StdStream, SocketAddr)> {
    use rustix::net::{SocketFlags, acceptfrom_with};

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (descriptor, addr) = acceptfrom_with(listener, flags)?;
    let addr = addr.and_then(|addr| SocketAddr::try_from(addr).ok());
    let addr = addr.ok_or(io::ErrorKind::InvalidData)?;
    Ok((descriptor.into(), addr))
}

#[cfg(not(target_os = "linux"))]
fn accept(listener: &StdListener) -> io::Result<(StdStream, SocketAddr)> {
    let (stream, addr) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream, addr))
}

fn accepted(result: io::Result<(StdStream, SocketAddr)>) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, addr) = result?;
    Ok((TcpStream(Async::new_nonblocking(stream)?), addr))
}

/// The connections of a listener; from [`TcpListener::incoming`].
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    readiness: Readiness<'a>,
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Incoming { listener, readiness } = self.get_mut();
        let connection = listener.0.poll_with_readiness(readiness, cx, accept);
        connection.map(|result| Some(accepted(result).map(|(stream, _)| stream)))
    }
}

impl std::fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Incoming").field(self.listener).finish()
    }
}

/// A TCP connection. What is written goes out at once, as far as the peer keeps up; see
/// [`set_nodelay`](TcpStream::set_nodelay) for how small portions are.
///
/// Two tasks can read and write it at the same time: through references, by
/// [`split`](TcpStream::split), or by [`into_split`](TcpStream::into_split). Closing it
/// (`AsyncWriteExt::close`) shuts down writing.
///
/// # Cancel safety
/// Reading and writing: if a call is dropped, nothing has been read or written by it. Of calls that
/// make several (`read_exact`, `write_all`), those that were ready have.
///
/// # Examples
/// See [`TcpListener`].
pub struct TcpStream(Async<StdStream>);

socket!(TcpStream, StdStream, SocketAddr);
readiness!(TcpStream, SocketAddr);
stream!(TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that answers; they are tried one after the other.
    ///
    /// # Errors
    /// That of the last address, with its name; if there is none; if a name cannot be looked up; if
    /// the runtime has stopped. There is no limit of time but the system's: see
    /// [`timeout`](crate::time::timeout).
    ///
    /// # Cancel safety
    /// If it is dropped, there is no connection.
    pub async fn connect(addrs: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first("connect to", addrs.to_addrs(), TcpStream::connect_to).await
    }

    async fn connect_to(addr: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket::stream(Domain::for_address(addr))?;
        let connecting =
            socket::begin(socket, &SockAddr::from(addr)).map_err(|(_, error)| error)?;
        connecting.finish().await.map(TcpStream)
    }

    /// Waits until there is something to read, or the end, and reads it without taking it away.
    /// Returns how many bytes.
    ///
    /// # Errors
    /// Those of the connection; if the runtime has stopped.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_with(|io| io.peek(buffer)).await
    }

    /// As [`peek`](TcpStream::peek); the last task to call is woken.
    ///
    /// # Errors
    /// As [`peek`](TcpStream::peek).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_read_with(cx, |io| io.peek(buffer))
    }

    /// Whether small portions go out at once.
    ///
    /// # Errors
    /// Those of the system.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get_ref().nodelay()
    }

    /// Sets whether small portions go out at once (`TCP_NODELAY`), rather than together with what is
    /// written until the peer has acknowledged what came before.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get_ref().set_nodelay(nodelay)
    }

    /// How many routers an IP packet of its may pass.
    ///
    /// # Errors
    /// Those of the system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get_ref().ttl()
    }

    /// Sets how many routers an IP packet of its may pass.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get_ref().set_ttl(ttl)
    }

    /// How long the system goes on sending what was written when the stream is dropped.
    ///
    /// # Errors
    /// Those of the system.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self.0.get_ref()).linger()
    }

    /// Sets how long the system goes on sending what was written when the stream is dropped
    /// (`SO_LINGER`, in seconds). With zero, dropping it resets the connection. **Dropping it blocks
    /// the thread** so long with anything else but zero and `None`, the default.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        SockRef::from(self.0.get_ref()).set_linger(linger)
    }

    #[inline]
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        op: impl FnMut(&StdStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read_stream(cx, len, op)
    }
}
