//! Sockets: TCP, UDP, and those of Unix.
//!
//! Names and signatures are those of [`std::net`] where it has them; what may wait is `async`. Streams
//! have [`AsyncRead`](futures_io::AsyncRead) and [`AsyncWrite`](futures_io::AsyncWrite), and so have
//! references to them.
//!
//! **Which runtime.** A socket belongs to the one that the thread works for on which it is made, else
//! to the default one. Once that has stopped, whatever would wait is an error instead, also in tasks
//! of other runtimes.
//!
//! **Several tasks.** Any number of tasks may wait in the `async` functions of one socket. The `poll_`
//! functions, those of `AsyncRead` and `AsyncWrite` included, are for one task for each direction:
//! they wake the last that called.
//!
//! **Running out of descriptors** is an error of what needs one more ([`TcpListener::accept`],
//! [`TcpStream::connect`]); the socket it was asked of goes on working.
//!
//! Descriptors that this module does not know are what [`Async`](crate::Async) is for.

#[macro_use]
mod macros;
mod addr;
mod socket;
mod split;
mod tcp;
mod udp;
#[cfg(unix)]
pub mod unix;

pub use addr::{Addrs, ToSocketAddrs, lookup_host};
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
