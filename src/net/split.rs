//! The halves of a stream: one reads, one writes.
//! Knows of the stream only that both can be done through a reference.

use std::fmt;
use std::sync::Arc;

use futures_io::{AsyncRead, AsyncWrite};

use crate::net::TcpStream;
use crate::net::split::sealed::Duplex;

pub(crate) mod sealed {
    /// A stream whose directions can be shut down one by one.
    pub trait Duplex {
        /// Tells the peer of the end.
        fn shut_down_writing(&self) -> std::io::Result<()>;
    }
}

/// The reading half of a borrowed stream, from [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a, S = TcpStream>(&'a S);

/// The writing half of a borrowed stream, from [`TcpStream::split`]. To close it shuts down writing;
/// to drop it does nothing.
#[derive(Debug)]
pub struct WriteHalf<'a, S = TcpStream>(&'a S);

/// The reading half of a stream, from [`TcpStream::into_split`]. To drop it does nothing.
#[derive(Debug)]
pub struct OwnedReadHalf<S = TcpStream>(Arc<S>);

/// The writing half of a stream, from [`TcpStream::into_split`].
///
/// **When it is dropped, writing is shut down**, unless by [`forget`](OwnedWriteHalf::forget): the
/// peer reads the end.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Duplex = TcpStream> {
    stream: Arc<S>,
    shuts_down: bool,
}

pub(super) fn borrowed<S>(stream: &S) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
    (ReadHalf(stream), WriteHalf(stream))
}

pub(super) fn owned<S: Duplex>(stream: S) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream, shuts_down: true })
}

impl<S> AsRef<S> for ReadHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S> AsRef<S> for WriteHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S> AsRef<S> for OwnedReadHalf<S> {
    fn as_ref(&self) -> &S {
        &self.0
    }
}

impl<S: Duplex> AsRef<S> for OwnedWriteHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Duplex> OwnedReadHalf<S> {
    /// Makes one stream of the halves again.
    ///
    /// # Errors
    /// If they are not of the same stream. The error gives them back.
    ///
    /// # Examples
    /// ```
    /// use paceline::net::{TcpListener, TcpStream};
    /// paceline::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let stream = TcpStream::connect(listener.local_addr()?).await?;
    ///     let (read, write) = stream.into_split();
    ///     let stream = read.reunite(write).expect("halves of one stream");
    ///     stream.set_nodelay(true)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reunite(self, write: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        if !Arc::ptr_eq(&self.0, &write.stream) {
            return Err(ReuniteError(self, write));
        }
        write.forget();
        Ok(Arc::into_inner(self.0).expect("there are no more than two halves"))
    }
}

impl<S: Duplex> OwnedWriteHalf<S> {
    /// As [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    /// If they are not of the same stream. The error gives them back.
    pub fn reunite(self, read: OwnedReadHalf<S>) -> Result<S, ReuniteError<S>> {
        read.reunite(self)
    }

    /// Drops it without shutting down its direction.
    pub fn forget(mut self) {
        self.shuts_down = false;
    }
}

impl<S: Duplex> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.shuts_down {
            // Nobody is there to be told of an error.
            let _ = self.stream.shut_down_writing();
        }
    }
}

impl<S> AsyncRead for ReadHalf<'_, S>
where
    for<'a> &'a S: AsyncRead,
{
    delegate_read!(this => this.0);
}

impl<S> AsyncRead for OwnedReadHalf<S>
where
    for<'a> &'a S: AsyncRead,
{
    delegate_read!(this => &*this.0);
}

impl<S> AsyncWrite for WriteHalf<'_, S>
where
    for<'a> &'a S: AsyncWrite,
{
    delegate_write!(this => this.0);
}

impl<S: Duplex> AsyncWrite for OwnedWriteHalf<S>
where
    for<'a> &'a S: AsyncWrite,
{
    delegate_write!(this => &*this.stream);
}

/// The halves are not of the same stream; here they are.
pub struct ReuniteError<S: Duplex = TcpStream>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: Duplex> fmt::Debug for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReuniteError").finish_non_exhaustive()
    }
}

impl<S: Duplex> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these are halves of two streams: only those of one can be reunited")
    }
}

impl<S: Duplex> std::error::Error for ReuniteError<S> {}
