//! paceline's sockets and timers.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use paceline::net::{TcpListener, TcpStream, UdpSocket};

use super::{ByFutures, LOOPBACK, Net};
use crate::common::arms::WithSlot;

impl<const SLOT: bool> Net for WithSlot<SLOT> {
    type Listener = TcpListener;
    type Tcp = ByFutures<TcpStream>;
    #[cfg(unix)]
    type Unix = ByFutures<paceline::net::unix::UnixStream>;
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
        let (one, other) = paceline::net::unix::UnixStream::pair().unwrap();
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

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        paceline::time::sleep_until(deadline)
    }

    async fn timeout<T: Send>(
        limit: Duration,
        future: impl Future<Output = T> + Send,
    ) -> Option<T> {
        paceline::time::timeout(limit, future).await.ok()
    }
}
