//! tokio's sockets and timers.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::{LOOPBACK, Net, Stream};
use crate::common::arms::Tokio;

/// A stream with tokio's traits.
pub struct ByTokio<T>(pub T);

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for ByTokio<T> {
    async fn read(&mut self, buffer: &mut [u8]) -> usize {
        self.0.read(buffer).await.unwrap()
    }

    async fn write_all(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }
}

impl Net for Tokio {
    type Listener = TcpListener;
    type Tcp = ByTokio<TcpStream>;
    #[cfg(unix)]
    type Unix = ByTokio<tokio::net::UnixStream>;
    type Udp = UdpSocket;

    async fn listen(at: SocketAddr) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn accept(listener: &TcpListener) -> Self::Tcp {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        ByTokio(stream)
    }

    async fn connect(to: SocketAddr) -> Self::Tcp {
        let stream = TcpStream::connect(to).await.unwrap();
        stream.set_nodelay(true).unwrap();
        ByTokio(stream)
    }

    #[cfg(unix)]
    fn unix_pair() -> (Self::Unix, Self::Unix) {
        let (one, other) = tokio::net::UnixStream::pair().unwrap();
        (ByTokio(one), ByTokio(other))
    }

    async fn bind_udp() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind(LOOPBACK).await.unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    async fn send_to(socket: &UdpSocket, message: &[u8], to: SocketAddr) {
        assert_eq!(socket.send_to(message, to).await.unwrap(), message.len());
    }

    async fn recv_from(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
        socket.recv_from(buffer).await.unwrap()
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep_until(deadline.into())
    }

    async fn timeout<T: Send>(
        limit: Duration,
        future: impl Future<Output = T> + Send,
    ) -> Option<T> {
        tokio::time::timeout(limit, future).await.ok()
    }
}
