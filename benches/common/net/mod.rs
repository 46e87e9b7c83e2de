//! Sockets and timers of the arms, each through its runtime's own interface. Errors panic.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};

use super::arms::Arm;

mod paceline;
mod smol;
mod tokio;

/// Any port of this host.
pub const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A runtime with I/O. TCP streams do not wait to fill segments (`TCP_NODELAY`).
pub trait Net: Arm {
    type Listener: Send + Sync + 'static;
    type Tcp: Stream;
    #[cfg(unix)]
    type Unix: Stream;
    type Udp: Send + Sync + 'static;

    fn listen(at: SocketAddr) -> impl Future<Output = (Self::Listener, SocketAddr)> + Send;

    fn accept(listener: &Self::Listener) -> impl Future<Output = Self::Tcp> + Send;

    fn connect(to: SocketAddr) -> impl Future<Output = Self::Tcp> + Send;

    /// Call it inside the runtime.
    #[cfg(unix)]
    fn unix_pair() -> (Self::Unix, Self::Unix);

    fn bind_udp() -> impl Future<Output = (Self::Udp, SocketAddr)> + Send;

    fn send_to(
        socket: &Self::Udp,
        message: &[u8],
        to: SocketAddr,
    ) -> impl Future<Output = ()> + Send;

    fn recv_from(
        socket: &Self::Udp,
        buffer: &mut [u8],
    ) -> impl Future<Output = (usize, SocketAddr)> + Send;

    /// Call it inside the runtime.
    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static;

    /// None if the limit passed. Call it inside the runtime.
    fn timeout<T: Send>(
        limit: Duration,
        future: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Option<T>> + Send;
}

/// One end of a connection.
pub trait Stream: Send + 'static {
    /// How many bytes came; none at the end of the stream.
    fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = usize> + Send;

    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = ()> + Send;
}

/// A stream with the traits of futures-io.
pub struct ByFutures<T>(pub T);

impl<T> Stream for ByFutures<T>
where
    T: futures_lite::AsyncRead + futures_lite::AsyncWrite + Unpin + Send + 'static,
{
    async fn read(&mut self, buffer: &mut [u8]) -> usize {
        self.0.read(buffer).await.unwrap()
    }

    async fn write_all(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }
}
