//! hyper on paceline: [`Executor`] and [`Timer`] to hand to its builders, and its I/O traits for
//! paceline's streams and, through [`Io`], for any other. With the feature `hyper`.
//!
//! [`net::TcpStream`](crate::net::TcpStream) and `net::unix::UnixStream` implement
//! [`hyper::rt::Read`] and [`hyper::rt::Write`] themselves:
//! hand them to hyper as they are. They read straight into hyper's buffers, which need not be
//! initialised for that, and write a head and its body in one system call.
//!
//! # Examples
//! A server and a client, in one program. What hyper-util, axum and others want is the same three.
//! ```
//! use http_body_util::{BodyExt, Empty, Full};
//! use hyper::body::{Bytes, Incoming};
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use paceline::hyper::Timer;
//! use paceline::net::{TcpListener, TcpStream};
//!
//! async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
//!     Ok(Response::new(Full::new(Bytes::from("hello"))))
//! }
//!
//! async fn serve(listener: TcpListener) -> std::io::Result<()> {
//!     loop {
//!         let (stream, _) = listener.accept().await?;
//!         let connection = hyper::server::conn::http1::Builder::new()
//!             .timer(Timer::new()) // a client that never ends its request's head is sent away
//!             .serve_connection(stream, service_fn(hello));
//!         paceline::spawn(connection).detach();
//!     }
//! }
//!
//! paceline::block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let stream = TcpStream::connect(listener.local_addr()?).await?;
//!     let _server = paceline::spawn(serve(listener)); // ends when it is dropped
//!
//!     let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
//!     paceline::spawn(connection).detach();
//!     let response = sender.send_request(Request::new(Empty::<Bytes>::new())).await?;
//!     assert_eq!(response.collect().await?.to_bytes(), "hello");
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ::hyper::rt::{self, ReadBufCursor};
use futures_io::{AsyncRead, AsyncWrite};

use crate::runtime::Handle;
use crate::time::{Sleep, sleep, sleep_until};

/// hyper offers up to 400 KiB, and again at each read, even if nothing is there: filling a buffer
/// with zeros is to stay small beside reading into it.
const MAX_ZEROED_BYTES: usize = 64 * 1024;

/// Spawns what hyper wants to run beside a connection; HTTP/2 does.
///
/// A task that it spawned is nobody's to cancel: it ends by itself when its connection does, or
/// with the runtime.
///
/// # Examples
/// ```
/// use hyper::body::Incoming;
/// use hyper::server::conn::http2;
/// use paceline::hyper::{Executor, Timer};
/// let mut builder = http2::Builder::new(Executor::new());
/// builder.timer(Timer::new()).keep_alive_interval(std::time::Duration::from_secs(20));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Executor {
    /// None: the current one.
    handle: Option<Handle>,
}

impl Executor {
    /// Spawns where [`spawn`](crate::spawn) does: on the runtime that the thread works for at the
    /// time, else on the default one.
    pub fn new() -> Self {
        Executor::default()
    }

    /// Spawns on this runtime.
    ///
    /// # Examples
    /// ```
    /// use hyper::rt::Executor as _;
    /// let runtime = paceline::Runtime::new()?;
    /// let executor = paceline::hyper::Executor::of(runtime.handle());
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// executor.execute(async move { sender.send(1) });
    /// assert_eq!(receiver.recv(), Ok(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of(handle: &Handle) -> Self {
        Executor { handle: Some(handle.clone()) }
    }
}

impl<F> rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        match &self.handle {
            Some(handle) => handle.spawn(future).detach(),
            None => crate::spawn(future).detach(),
        }
    }
}

/// Paceline's clock and [`time::Sleep`](crate::time::Sleep), for hyper's timeouts.
///
/// Without a timer, hyper panics where a timeout was configured, and waits for ever where one is the
/// default.
///
/// # Examples
/// ```
/// let mut builder = hyper::server::conn::http1::Builder::new();
/// builder
///     .timer(paceline::hyper::Timer::new())
///     .header_read_timeout(std::time::Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer(());

impl Timer {
    /// There is nothing to set.
    pub fn new() -> Self {
        Timer(())
    }
}

impl rt::Sleep for Sleep {}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(sleep_until(deadline))
    }

    /// Without an allocation.
    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(sleep) => sleep.get_mut().reset(deadline),
            // Another timer made it.
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// A stream with the I/O traits of `futures-io` as one with hyper's.
///
/// For what paceline does not know, a TLS stream for instance; its own streams need no wrapper.
/// Before a read, what is not yet initialised of hyper's buffer, or of its first 64 KiB, is filled
/// with zeros.
///
/// hyper is told that writing several buffers at once is nothing gained, since `futures-io` does
/// not tell if it is; what hyper writes so all the same is passed on.
///
/// # Examples
/// ```
/// use futures_lite::{AsyncRead, AsyncWrite};
/// use http_body_util::Empty;
/// use hyper::body::{Bytes, Incoming};
/// use hyper::{Request, Response};
/// use paceline::hyper::Io;
///
/// async fn fetch(
///     stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
///     request: Request<Empty<Bytes>>,
/// ) -> hyper::Result<Response<Incoming>> {
///     let (mut sender, connection) = hyper::client::conn::http1::handshake(Io::new(stream)).await?;
///     paceline::spawn(connection).detach();
///     sender.send_request(request).await
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Io<T> {
    stream: T,
}

impl<T> Io<T> {
    /// Wraps a stream. One that is not `Unpin` can be pinned before: `Io::new(Box::pin(stream))`.
    pub fn new(stream: T) -> Self {
        Io { stream }
    }

    /// The stream.
    pub fn get_ref(&self) -> &T {
        &self.stream
    }

    /// The stream, mutably.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.stream
    }

    /// Gives the stream back.
    pub fn into_inner(self) -> T {
        self.stream
    }

    fn pinned(self: Pin<&mut Self>) -> Pin<&mut T>
    where
        T: Unpin,
    {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl<T: AsyncRead + Unpin> rt::Read for Io<T> {
    /// # Panics
    /// If the stream says that it has read more than fits.
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let len = cursor.remaining().min(MAX_ZEROED_BYTES);
        let buffer = cursor.initialize_unfilled_to(len);
        let count = ready!(self.pinned().poll_read(cx, buffer))?;
        // A stream is not unsafe to implement: it need not tell the truth.
        assert!(count <= len, "{count} bytes were read into a buffer of {len}");
        // SAFETY: that many bytes are there, and all are initialised.
        unsafe { cursor.advance(count) };
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> rt::Write for Io<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pinned().poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pinned().poll_write_vectored(cx, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_close(cx)
    }
}

/// hyper's traits for a stream of [`net`](crate::net).
macro_rules! hyper_io {
    ($stream:ty) => {
        impl rt::Read for $stream {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut cursor: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: the system writes what it has received; nothing is made uninitialised.
                let buffer = unsafe { cursor.as_mut() };
                let count = ready!(self.poll_read_uninit(cx, buffer))?;
                // SAFETY: the system has written that many bytes.
                unsafe { cursor.advance(count) };
                Poll::Ready(Ok(()))
            }
        }

        impl rt::Write for $stream {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                AsyncWrite::poll_write(self, cx, buffer)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            #[inline]
            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                AsyncWrite::poll_write_vectored(self, cx, buffers)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_flush(self, cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_close(cx)
            }
        }
    };
}

hyper_io!(crate::net::TcpStream);
#[cfg(unix)]
hyper_io!(crate::net::unix::UnixStream);
