//! smol's sockets and timers: async-net and async-io.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use async_io::Timer;
use async_net::{TcpListener, TcpStream, UdpSocket};

use super::{ByFutures, LOOPBACK, Net};
use crate::common::arms::Smol;

impl Net for Smol {
    type Listener = TcpListener;
    type Tcp = ByFutures<TcpStream>;
    #[cfg(unix)]
    type Unix = ByFutures<async_net::unix::UnixStream>;
    type Udp = UdpSocket;

    async fn listen(at: SocketAddr) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn accept(listener: &TcpListener) -> Self::Tcp {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        ByFutures(stream)
    }

    async fn connect(to: SocketAddr) -> Self::Tcp {
        let stream = TcpStream::connect(to).await.unwrap();
        stream.set_nodelay(true).unwrap();
        ByFutures(stream)
    }

    #[cfg(unix)]
    fn unix_pair() -> (Self::Unix, Self::Unix) {
        let (one, other) = async_net::unix::UnixStream::pair().unwrap();
        (ByFutures(one), ByFutures(other))
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

    async fn sleep_until(deadline: Instant) {
        Timer::at(deadline).await;
    }

    /// As smol's documentation puts it together.
    async fn timeout<T: Send>(
        limit: Duration,
        future: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let expired = async {
            Timer::after(limit).await;
            None
        };
        futures_lite::future::or(async { Some(future.await) }, expired).await
    }
}
