//! tokio's I/O traits for the streams of [`crate::net`], their halves and [`Async`]. With the feature
//! `tokio-io`. Knows nothing else of tokio's, its runtime least of all.
//!
//! What users are told of it stands at [`crate::net`].

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Async;
#[cfg(unix)]
use crate::net::unix::UnixStream;
use crate::net::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, TcpStream, WriteHalf};
use crate::reactor::descriptor::AsDescriptor;
use crate::reactor::source::Direction;

/// The methods of `AsyncRead`, by those of the reference that `$this` leads to.
macro_rules! read_by_reference {
    ($this:ident => $stream:expr) => {
        #[inline]
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let $this = self.get_mut();
            AsyncRead::poll_read(Pin::new(&mut $stream), cx, buffer)
        }
    };
}

/// Those of `AsyncWrite` that `futures-io` has as well, by its methods of the same reference.
macro_rules! write_by_futures {
    ($this:ident => $stream:expr) => {
        #[inline]
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_write(Pin::new(&mut $stream), cx, buffer)
        }

        #[inline]
        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffers: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_write_vectored(Pin::new(&mut $stream), cx, buffers)
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_flush(Pin::new(&mut $stream), cx)
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_close(Pin::new(&mut $stream), cx)
        }
    };
}

/// What hands something to be written on to a stream of paceline's.
macro_rules! write_by_stream {
    ($writer:ty, $this:ident => $stream:expr) => {
        /// With the feature `tokio-io`. Several buffers go out in one system call.
        impl AsyncWrite for $writer {
            write_by_futures!($this => $stream);

            fn is_write_vectored(&self) -> bool {
                true
            }
        }
    };
}

/// The traits for a stream of [`crate::net`], references to it, and its halves.
macro_rules! tokio_io {
    ($stream:ty) => {
        /// With the feature `tokio-io`. Reads into memory that need not be initialised.
        impl AsyncRead for &$stream {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: the system writes what it has received; nothing is made uninitialised.
                let unfilled = unsafe { buffer.unfilled_mut() };
                let count = ready!(self.poll_read_uninit(cx, unfilled))?;
                // SAFETY: the system has written that many bytes.
                unsafe { buffer.assume_init(count) };
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
        }

        /// With the feature `tokio-io`. Reads into memory that need not be initialised.
        impl AsyncRead for $stream {
            read_by_reference!(this => &*this);
        }

        /// With the feature `tokio-io`. Reads into memory that need not be initialised.
        impl AsyncRead for ReadHalf<'_, $stream> {
            read_by_reference!(this => (*this).as_ref());
        }

        /// With the feature `tokio-io`. Reads into memory that need not be initialised.
        impl AsyncRead for OwnedReadHalf<$stream> {
            read_by_reference!(this => (*this).as_ref());
        }

        write_by_stream!(&$stream, this => *this);
        write_by_stream!($stream, this => &*this);
        write_by_stream!(WriteHalf<'_, $stream>, this => (*this).as_ref());
        write_by_stream!(OwnedWriteHalf<$stream>, this => (*this).as_ref());
    };
}

tokio_io!(TcpStream);
#[cfg(unix)]
tokio_io!(UnixStream);

/// `Read` writes only to what is initialised: the unfilled part is, once for each buffer, and not
/// before there seems to be something to read.
///
/// # Panics
/// If `read` says that it has read more than fits.
fn read(io: &mut impl Read, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
    let count = io.read(buffer.initialize_unfilled())?;
    buffer.advance(count);
    Ok(())
}

/// With the feature `tokio-io`. What is not initialised of a buffer is filled with zeros first.
impl<T: AsDescriptor + Read> AsyncRead for Async<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_with_mut(Direction::Read, cx, |io| read(io, buffer))
    }
}

/// With the feature `tokio-io`. What is not initialised of a buffer is filled with zeros first.
impl<T: AsDescriptor> AsyncRead for &Async<T>
where
    for<'a> &'a T: Read,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_with(cx, |mut io| read(&mut io, buffer))
    }
}

/// With the feature `tokio-io`. Whether several buffers are better than one is not known of `T`, so
/// that [`is_write_vectored`](AsyncWrite::is_write_vectored) is false; those that are written all the
/// same are passed on. Shutting down flushes; how to tell the peer of the end is `T`'s matter.
impl<T: AsDescriptor + Write> AsyncWrite for Async<T> {
    write_by_futures!(this => *this);
}

/// With the feature `tokio-io`; as for [`Async`] itself.
impl<T: AsDescriptor> AsyncWrite for &Async<T>
where
    for<'a> &'a T: Write,
{
    write_by_futures!(this => *this);
}
