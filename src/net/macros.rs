//! What each type of socket is given: all of them, those that carry data, streams, datagrams.
//! The types' own files have the rest.

/// What every socket has: `$name` holds an [`Async`](crate::Async) of `$std`.
macro_rules! socket {
    ($name:ident, $std:ty, $addr:ty) => {
        impl $name {
            /// Its own address.
            ///
            /// # Errors
            /// Those of the system.
            pub fn local_addr(&self) -> std::io::Result<$addr> {
                self.0.get_ref().local_addr()
            }

            /// The error that is pending on the socket, which is none afterwards.
            ///
            /// # Errors
            /// Those of asking for it.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.0.get_ref().take_error()
            }

            /// The socket of the standard library, still in non-blocking mode.
            ///
            /// # Errors
            /// If the poller does not know it (any more): somebody closed its descriptor.
            pub fn into_std(self) -> std::io::Result<$std> {
                crate::Async::<$std>::from(self).into_inner()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.0.get_ref(), f)
            }
        }

        /// Puts it into non-blocking mode, and registers it with this thread's runtime or the default
        /// one. An error if it is registered already or that runtime has stopped.
        impl TryFrom<$std> for $name {
            type Error = std::io::Error;

            fn try_from(socket: $std) -> std::io::Result<Self> {
                // One system call, where socket2's way takes two.
                socket.set_nonblocking(true)?;
                crate::Async::new_nonblocking(socket).map($name)
            }
        }

        impl From<crate::Async<$std>> for $name {
            fn from(socket: crate::Async<$std>) -> Self {
                $name(socket)
            }
        }

        impl From<$name> for crate::Async<$std> {
            fn from(socket: $name) -> Self {
                socket.0
            }
        }

        #[cfg(unix)]
        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.get_ref().as_fd()
            }
        }

        #[cfg(unix)]
        impl std::os::fd::AsRawFd for $name {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.get_ref().as_raw_fd()
            }
        }

        #[cfg(windows)]
        impl std::os::windows::io::AsSocket for $name {
            fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
                self.0.get_ref().as_socket()
            }
        }

        #[cfg(windows)]
        impl std::os::windows::io::AsRawSocket for $name {
            fn as_raw_socket(&self) -> std::os::windows::io::RawSocket {
                self.0.get_ref().as_raw_socket()
            }
        }
    };
}

/// What sockets have that carry data.
macro_rules! readiness {
    ($name:ident, $addr:ty) => {
        impl $name {
            /// The address of the peer.
            ///
            /// # Errors
            /// [`NotConnected`](std::io::ErrorKind::NotConnected) if there is none.
            pub fn peer_addr(&self) -> std::io::Result<$addr> {
                self.0.get_ref().peer_addr()
            }

            /// Waits until it can be read from, has ended, or has an error to tell; as
            /// [`Async::readable`](crate::Async::readable).
            ///
            /// # Errors
            /// If the runtime has stopped.
            ///
            /// # Cancel safety
            /// Nothing is lost if it is dropped.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.0.readable().await
            }

            /// Waits until it can be written to, or has an error to tell; as
            /// [`Async::writable`](crate::Async::writable).
            ///
            /// # Errors
            /// If the runtime has stopped.
            ///
            /// # Cancel safety
            /// Nothing is lost if it is dropped.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.0.writable().await
            }

            #[doc = concat!("As [`readable`](", stringify!($name), "::readable); the last task to")]
            /// call is woken.
            ///
            /// # Errors
            /// If the runtime has stopped.
            pub fn poll_readable(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.0.poll_readable(cx)
            }

            #[doc = concat!("As [`writable`](", stringify!($name), "::writable); the last task to")]
            /// call is woken.
            ///
            /// # Errors
            /// If the runtime has stopped.
            pub fn poll_writable(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.0.poll_writable(cx)
            }
        }
    };
}

/// What stream sockets have. `$name` has `poll_recv`, which knows whether a short count means that
/// nothing is left.
macro_rules! stream {
    ($name:ident) => {
        impl $name {
            /// Shuts down reading, writing, or both. Waiting operations of that direction end: reads
            /// with 0 bytes, writes with an error.
            ///
            /// # Errors
            /// [`NotConnected`](std::io::ErrorKind::NotConnected) if the peer has gone, on some
            /// platforms.
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.0.get_ref().shutdown(how)
            }

            /// Splits it for two borrowers, one that reads and one that writes.
            pub fn split(
                &mut self,
            ) -> (crate::net::ReadHalf<'_, Self>, crate::net::WriteHalf<'_, Self>) {
                crate::net::split::borrowed(self)
            }

            /// Splits it for two owners, one that reads and one that writes.
            ///
            /// **The writing half shuts down its direction when it is dropped**: the peer reads the end
            /// then. [`OwnedWriteHalf::forget`](crate::net::OwnedWriteHalf::forget) prevents that.
            pub fn into_split(
                self,
            ) -> (crate::net::OwnedReadHalf<Self>, crate::net::OwnedWriteHalf<Self>) {
                crate::net::split::owned(self)
            }

            /// Reads into memory that need not be initialised; the count is how many bytes are,
            /// from the first on.
            #[cfg_attr(not(any(feature = "hyper", feature = "tokio-io")), allow(dead_code))]
            #[inline]
            pub(crate) fn poll_read_uninit(
                &self,
                cx: &mut std::task::Context<'_>,
                buffer: &mut [std::mem::MaybeUninit<u8>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.poll_recv(cx, buffer.len(), |io| crate::net::socket::recv_uninit(io, buffer))
            }
        }

        impl crate::net::split::sealed::Duplex for $name {
            fn shut_down_writing(&self) -> std::io::Result<()> {
                let result = self.shutdown(std::net::Shutdown::Write);
                crate::net::socket::ignore_not_connected(result)
            }
        }

        impl futures_io::AsyncRead for &$name {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.poll_recv(cx, buffer.len(), |io| crate::net::socket::recv(io, buffer))
            }

            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let most = buffers.len().min(crate::net::socket::MOST_BUFFERS);
                let buffers = &mut buffers[..most];
                let len = buffers.iter().map(|buffer| buffer.len()).sum();
                self.poll_recv(cx, len, |mut io| std::io::Read::read_vectored(&mut io, buffers))
            }
        }

        impl futures_io::AsyncWrite for &$name {
            #[inline]
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write_stream(cx, buffer.len(), |io| crate::net::socket::send(io, buffer))
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let buffers = &buffers[..buffers.len().min(crate::net::socket::MOST_BUFFERS)];
                let len = buffers.iter().map(|buffer| buffer.len()).sum();
                let write = |mut io: &_| std::io::Write::write_vectored(&mut io, buffers);
                self.0.poll_write_stream(cx, len, write)
            }

            /// The system sends what it has been given without being asked.
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            /// Shuts down writing.
            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(crate::net::split::sealed::Duplex::shut_down_writing(*self))
            }
        }

        impl futures_io::AsyncRead for $name {
            delegate_read!(this => &*this);
        }

        impl futures_io::AsyncWrite for $name {
            delegate_write!(this => &*this);
        }
    };
}

/// What sockets have whose messages have boundaries.
macro_rules! datagram {
    ($name:ident, $addr:ty) => {
        impl $name {
            /// Waits for a message. Returns its length, and where it comes from. What does not fit
            /// into `buffer` is lost.
            ///
            /// # Errors
            /// Those of the system; if the runtime has stopped.
            ///
            /// # Cancel safety
            /// No message is lost if it is dropped.
            pub async fn recv_from(&self, buffer: &mut [u8]) -> std::io::Result<(usize, $addr)> {
                self.0.read_with(|io| io.recv_from(buffer)).await
            }

            /// Waits for a message. Returns its length. What does not fit into `buffer` is lost.
            ///
            /// # Errors
            /// Those of the system; if the runtime has stopped.
            ///
            /// # Cancel safety
            /// No message is lost if it is dropped.
            pub async fn recv(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read_with(|io| io.recv(buffer)).await
            }

            /// Sends a message to the peer that it is connected to, whole or not at all. Waits while
            /// the system has no room for it.
            ///
            /// # Errors
            /// Those of the system; if the runtime has stopped.
            ///
            /// # Cancel safety
            /// If it is dropped, nothing was sent.
            pub async fn send(&self, message: &[u8]) -> std::io::Result<usize> {
                self.0.write_with(|io| io.send(message)).await
            }

            #[doc = concat!("As [`recv_from`](", stringify!($name), "::recv_from); the last task to")]
            /// call is woken.
            ///
            /// # Errors
            /// Those of the system; if the runtime has stopped.
            pub fn poll_recv_from(
                &self,
                cx: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<(usize, $addr)>> {
                self.0.poll_read_with(cx, |io| io.recv_from(buffer))
            }

            #[doc = concat!("As [`recv`](", stringify!($name), "::recv); the last task to")]
            /// call is woken.
            ///
            /// # Errors
            /// Those of the system; if the runtime has stopped.
            pub fn poll_recv(
                &self,
                cx: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read_with(cx, |io| io.recv(buffer))
            }

            #[doc = concat!("As [`send`](", stringify!($name), "::send); the last task to")]
            /// call is woken.
            ///
            /// # Errors
            /// Those of the system; if the runtime has stopped.
            pub fn poll_send(
                &self,
                cx: &mut std::task::Context<'_>,
                message: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write_with(cx, |io| io.send(message))
            }
        }
    };
}

/// The methods of `AsyncRead`, by those of what `$this` leads to.
macro_rules! delegate_read {
    ($this:ident => $inner:expr) => {
        #[inline]
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            buffer: &mut [u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let $this = self.get_mut();
            futures_io::AsyncRead::poll_read(std::pin::Pin::new(&mut $inner), cx, buffer)
        }

        fn poll_read_vectored(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            buffers: &mut [std::io::IoSliceMut<'_>],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let $this = self.get_mut();
            futures_io::AsyncRead::poll_read_vectored(std::pin::Pin::new(&mut $inner), cx, buffers)
        }
    };
}

/// Those of `AsyncWrite`.
macro_rules! delegate_write {
    ($this:ident => $inner:expr) => {
        #[inline]
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            buffer: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_write(std::pin::Pin::new(&mut $inner), cx, buffer)
        }

        fn poll_write_vectored(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            buffers: &[std::io::IoSlice<'_>],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_write_vectored(
                std::pin::Pin::new(&mut $inner),
                cx,
                buffers,
            )
        }

        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_flush(std::pin::Pin::new(&mut $inner), cx)
        }

        fn poll_close(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            let $this = self.get_mut();
            futures_io::AsyncWrite::poll_close(std::pin::Pin::new(&mut $inner), cx)
        }
    };
}
