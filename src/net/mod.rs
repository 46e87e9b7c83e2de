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
//!
//! # With tokio's traits
//! With the feature `tokio-io`, streams, references to them, their halves and [`Async`](crate::Async)
//! have tokio's `AsyncRead` and `AsyncWrite` as well, so that they can be handed to what is written for
//! those. It takes the traits from tokio, and nothing of its runtime. A stream reads straight into
//! tokio's buffers, which need not be initialised for that, and writes several buffers in one system
//! call.
//!
//! A stream has a `shutdown` of its own ([`TcpStream::shutdown`]), so that tokio's, which shuts down
//! writing, is `AsyncWriteExt::shutdown(&mut stream)`. Where extension traits of tokio and of futures are
//! both in scope, `stream.read(..)` is ambiguous: import those of one kind, or write that out as well.
//!
//! ```
//! # #[cfg(feature = "tokio-io")] {
//! use paceline::net::{TcpListener, TcpStream};
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
//!
//! paceline::block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let mut near = TcpStream::connect(listener.local_addr()?).await?;
//!     let (far, _) = listener.accept().await?;
//!     near.write_all(b"one\ntwo\n").await?;
//!     AsyncWriteExt::shutdown(&mut near).await?;
//!     let mut lines = BufReader::new(far).lines();
//!     assert_eq!(lines.next_line().await?.as_deref(), Some("one"));
//!     assert_eq!(lines.next_line().await?.as_deref(), Some("two"));
//!     assert_eq!(lines.next_line().await?, None);
//!     std::io::Result::Ok(())
//! })?;
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```

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
