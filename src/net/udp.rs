//! UDP: datagrams over IP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdSocket};
use std::task::{Context, Poll};

use crate::Async;
use crate::net::addr::{ToSocketAddrs, first, no_addrs};

/// A UDP socket. Messages arrive whole, or not at all; a buffer that is too short cuts them.
///
/// # Examples
/// ```
/// use paceline::net::UdpSocket;
///
/// paceline::block_on(async {
///     let (near, far) = (UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind("127.0.0.1:0").await?);
///     near.send_to(b"ping", far.local_addr()?).await?;
///     let mut buffer = [0; 16];
///     let (count, from) = far.recv_from(&mut buffer).await?;
///     assert_eq!((&buffer[..count], from), (&b"ping"[..], near.local_addr()?));
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(Async<StdSocket>);

socket!(UdpSocket, StdSocket, SocketAddr);
readiness!(UdpSocket, SocketAddr);
datagram!(UdpSocket, SocketAddr);

impl UdpSocket {
    /// A socket at the first of the addresses that can be had. With port 0 the system chooses one.
    ///
    /// # Errors
    /// That of the last address, with its name; if there is none; if a name cannot be looked up; if
    /// the runtime has stopped.
    ///
    /// # Cancel safety
    /// If it is dropped, there is no socket.
    pub async fn bind(addrs: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let attempt = |addr| async move { StdSocket::bind(addr)?.try_into() };
        first("bind to", addrs.to_addrs(), attempt).await
    }

    /// As [`bind`](UdpSocket::bind), at an address that other sockets of the same user may have as well, if
    /// each was made so (`SO_REUSEPORT`).
    ///
    /// On Linux the system spreads the messages over the sockets, by a hash of the peer's address and its own:
    /// those of one peer reach the same one, as long as none comes or goes. Elsewhere one of them gets
    /// all, as a rule the last.
    ///
    /// # Errors
    /// As [`bind`](UdpSocket::bind).
    ///
    /// # Cancel safety
    /// If it is dropped, there is no socket.
    ///
    /// # Examples
    /// ```
    /// use paceline::net::UdpSocket;
    ///
    /// paceline::block_on(async {
    ///     let one = UdpSocket::bind_reuse_port("127.0.0.1:0").await?;
    ///     let other = UdpSocket::bind_reuse_port(one.local_addr()?).await?;
    ///     assert_eq!(one.local_addr()?, other.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
    pub async fn bind_reuse_port(addrs: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let attempt = |addr| async move {
            let socket = crate::net::socket::reuse_port(addr, socket2::Type::DGRAM, false)?;
            Async::new_nonblocking(StdSocket::from(socket)).map(UdpSocket)
        };
        first("bind to", addrs.to_addrs(), attempt).await
    }

    /// Makes the first of the addresses that can be reached the peer, to which
    /// [`send`](UdpSocket::send) sends, and from which alone this receives. Waits only for a name to
    /// be looked up.
    ///
    /// # Errors
    /// That of the last address, with its name; if there is none; if a name cannot be looked up.
    ///
    /// # Cancel safety
    /// The peer changes only when it is ready.
    pub async fn connect(&self, addrs: impl ToSocketAddrs) -> io::Result<()> {
        let attempt = |addr| async move { self.0.get_ref().connect(addr) };
        first("connect to", addrs.to_addrs(), attempt).await
    }

    /// Sends a message to the first of the addresses. Waits while the system has no room for it.
    ///
    /// # Errors
    /// Those of the system; if there is no address; if a name cannot be looked up; if the runtime has
    /// stopped.
    ///
    /// # Cancel safety
    /// If it is dropped, nothing was sent.
    pub async fn send_to(&self, message: &[u8], addrs: impl ToSocketAddrs) -> io::Result<usize> {
        let addr = addrs.to_addrs()?.resolve().await?.next().ok_or_else(|| no_addrs("send to"))?;
        self.0.write_with(|io| io.send_to(message, addr)).await
    }

    /// As [`send_to`](UdpSocket::send_to); the last task to call is woken.
    ///
    /// # Errors
    /// Those of the system; if the runtime has stopped.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        message: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_with(cx, |io| io.send_to(message, addr))
    }

    /// As [`recv`](UdpSocket::recv), but the message can be received again.
    ///
    /// # Errors
    /// As [`recv`](UdpSocket::recv).
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_with(|io| io.peek(buffer)).await
    }

    /// As [`recv_from`](UdpSocket::recv_from), but the message can be received again.
    ///
    /// # Errors
    /// As [`recv_from`](UdpSocket::recv_from).
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.read_with(|io| io.peek_from(buffer)).await
    }

    /// As [`peek`](UdpSocket::peek); the last task to call is woken.
    ///
    /// # Errors
    /// As [`recv`](UdpSocket::recv).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_read_with(cx, |io| io.peek(buffer))
    }

    /// As [`peek_from`](UdpSocket::peek_from); the last task to call is woken.
    ///
    /// # Errors
    /// As [`recv_from`](UdpSocket::recv_from).
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_read_with(cx, |io| io.peek_from(buffer))
    }

    /// Joins a multicast group, on the interface of that address, or on one that the system chooses
    /// if it is unspecified.
    ///
    /// # Errors
    /// Those of the system.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.get_ref().join_multicast_v4(group, interface)
    }

    /// Joins a multicast group, on the interface of that index, or on any with 0.
    ///
    /// # Errors
    /// Those of the system.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get_ref().join_multicast_v6(group, interface)
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// Those of the system.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.get_ref().leave_multicast_v4(group, interface)
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// Those of the system.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get_ref().leave_multicast_v6(group, interface)
    }
}

/// An option of the socket: how it is asked for, and set.
macro_rules! options {
    ($($get:ident, $set:ident: $type:ty, $what:literal;)*) => {
        impl UdpSocket {$(
            #[doc = concat!($what, ".\n\n# Errors\nThose of the system.")]
            pub fn $get(&self) -> io::Result<$type> {
                self.0.get_ref().$get()
            }

            #[doc = concat!("Sets: ", $what, ".\n\n# Errors\nThose of the system.")]
            pub fn $set(&self, value: $type) -> io::Result<()> {
                self.0.get_ref().$set(value)
            }
        )*}
    };
}

options! {
    broadcast, set_broadcast: bool, "whether it may send to broadcast addresses";
    ttl, set_ttl: u32, "how many routers an IP packet of its may pass";
    multicast_loop_v4, set_multicast_loop_v4: bool,
        "whether multicasts over IPv4 come back to this machine";
    multicast_loop_v6, set_multicast_loop_v6: bool,
        "whether multicasts over IPv6 come back to this machine";
    multicast_ttl_v4, set_multicast_ttl_v4: u32, "how many routers a multicast over IPv4 may pass";
}
