//! [`Async`]: a descriptor that waits in the reactor instead of blocking its thread.
//! Knows no protocol; see [`crate::net`].

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use futures_io::{AsyncRead, AsyncWrite};

use crate::contain::contain;
use crate::cooperate::poll_if_due;
use crate::current;
use crate::reactor::descriptor::{AsDescriptor, borrow};
use crate::reactor::source::{Direction, Number, Seen, Wait};
use crate::reactor::{NOWHERE, Registered, Waiter};
use crate::runtime::Handle;
use crate::shared::Shared;
use crate::sync::Arc;

/// The place of a descriptor in its runtime's reactor.
struct Registration {
    shared: Arc<Shared>,
    key: usize,
    registered: Arc<Registered>,
}

/// A socket, pipe or other descriptor in non-blocking mode, registered with a runtime.
///
/// For what [`net`](crate::net) does not have: `T` is any type with a descriptor that the platform's
/// poller takes (on Linux not a regular file). Methods of `T` that do not block are reached through
/// [`get_ref`](Async::get_ref); those that may, through [`read_with`](Async::read_with) and
/// [`write_with`](Async::write_with).
///
/// It belongs to the runtime that the thread works for on which it is made, else to the default one.
/// Once that has stopped, every operation that would wait is an error. Any number of tasks may wait
/// for the same `Async` with its async methods; its `poll_` functions, those of `AsyncRead` and
/// `AsyncWrite` included, wake the last task that called for each direction.
///
/// **Do not put the descriptor back into blocking mode, and do not close it behind its back.**
///
/// # Examples
/// ```
/// # #[cfg(unix)] {
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// paceline::block_on(async {
///     let (a, b) = UnixStream::pair()?;
///     let (a, b) = (paceline::Async::new(a)?, paceline::Async::new(b)?);
///     a.write_with(|mut a| a.write(b"ping")).await?;
///     let mut buffer = [0; 16];
///     assert_eq!(b.read_with(|mut b| b.read(&mut buffer)).await?, 4);
///     std::io::Result::Ok(())
/// })?;
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Async<T: AsDescriptor> {
    /// Dropped after the registration; taken by `into_inner`.
    io: ManuallyDrop<T>,
    registration: ManuallyDrop<Registration>,
}

impl<T: AsDescriptor> UnwindSafe for Async<T> {}
impl<T: AsDescriptor> RefUnwindSafe for Async<T> {}

impl<T: AsDescriptor> Async<T> {
    /// Puts `io` into non-blocking mode and registers it. Its descriptor must stay the same, and open,
    /// until this is dropped; other kinds of `io` break no memory, but wait for what is not theirs.
    ///
    /// # Errors
    /// If the platform's poller does not take it, if its descriptor is registered already, if no
    /// poller can be made, if the runtime has stopped, or if it was made before this process forked.
    pub fn new(io: T) -> io::Result<Self> {
        socket2::SockRef::from(&io).set_nonblocking(true)?;
        Self::new_nonblocking(io)
    }

    /// As [`new`](Async::new), for what is in non-blocking mode already.
    ///
    /// # Errors
    /// As [`new`](Async::new).
    pub fn new_nonblocking(io: T) -> io::Result<Self> {
        let shared = Handle::current().shared;
        if shared.origin.is_elsewhere() {
            return Err(io::Error::other(crate::fork::MESSAGE));
        }
        // SAFETY: it is deregistered in `deregister`, before `io` is dropped or given back.
        let (key, registered) = unsafe { shared.reactor.register(borrow(&io)) }?;
        let registration = Registration { shared, key, registered };
        Ok(Async { io: ManuallyDrop::new(io), registration: ManuallyDrop::new(registration) })
    }

    /// The inner value.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// Deregisters it and gives it back, still in non-blocking mode.
    ///
    /// # Errors
    /// If the poller does not know it (any more): somebody closed its descriptor.
    pub fn into_inner(self) -> io::Result<T> {
        let mut this = ManuallyDrop::new(self);
        this.deregister()?;
        // SAFETY: taken once, since `this` is not dropped.
        Ok(unsafe { ManuallyDrop::take(&mut this.io) })
    }

    /// To be called once.
    fn deregister(&mut self) -> io::Result<()> {
        // SAFETY: taken once, here.
        let Registration { shared, key, registered } =
            unsafe { ManuallyDrop::take(&mut self.registration) };
        drop(registered);
        if shared.origin.is_elsewhere() {
            // The poller is the parent's as well, whose registration this is.
            return Ok(());
        }
        shared.reactor.deregister(borrow(&*self.io), key)
    }

    /// Waits until it can be read from, has ended, or has an error to tell. It asks the system
    /// whether that is so now: a loop may read by other means than this type's, as long as it comes
    /// back here when reading would block.
    ///
    /// # Errors
    /// If the runtime has stopped.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Direction::Read).await
    }

    /// Waits until it can be written to, or has an error to tell; as [`readable`](Async::readable).
    ///
    /// # Errors
    /// If the runtime has stopped.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Direction::Write).await
    }

    async fn ready(&self, direction: Direction) -> io::Result<()> {
        // Where the system cannot be asked, events are told as long as it is ready, so that the next
        // one after this call will do.
        let mut waited = false;
        self.with(direction, |io| self.check_ready(io, direction, &mut waited)).await
    }

    #[cfg(unix)]
    fn check_ready(&self, io: &T, direction: Direction, _: &mut bool) -> io::Result<()> {
        let ready = crate::reactor::descriptor::is_ready(borrow(io), direction)?;
        if ready { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    #[cfg(not(unix))]
    fn check_ready(&self, _: &T, _: Direction, waited: &mut bool) -> io::Result<()> {
        let ready = std::mem::replace(waited, true);
        if ready { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// As [`readable`](Async::readable); the last task to call is woken.
    ///
    /// # Errors
    /// If the runtime has stopped.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waited = true;
        self.poll_read_with(cx, |io| self.check_ready(io, Direction::Read, &mut waited))
    }

    /// As [`writable`](Async::writable); the last task to call is woken.
    ///
    /// # Errors
    /// If the runtime has stopped.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waited = true;
        self.poll_write_with(cx, |io| self.check_ready(io, Direction::Write, &mut waited))
    }

    /// Calls `op` until it does not fail with [`WouldBlock`](io::ErrorKind::WouldBlock), and waits
    /// until this can be read before each further call.
    ///
    /// # Errors
    /// Those of `op`; if the runtime has stopped.
    ///
    /// # Cancel safety
    /// If it is dropped, `op` has not succeeded.
    pub async fn read_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.with(Direction::Read, op).await
    }

    /// As [`read_with`](Async::read_with), for operations that wait until this can be written to.
    ///
    /// # Errors
    /// Those of `op`; if the runtime has stopped.
    ///
    /// # Cancel safety
    /// If it is dropped, `op` has not succeeded.
    pub async fn write_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.with(Direction::Write, op).await
    }

    async fn with<R>(
        &self,
        direction: Direction,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut readiness = Readiness::new(&self.registration, direction);
        poll_fn(|cx| self.poll_with_readiness(&mut readiness, cx, &mut op)).await
    }

    /// A place among those that wait until it can be read from, for
    /// [`poll_with_readiness`](Self::poll_with_readiness).
    pub(crate) fn read_readiness(&self) -> Readiness<'_> {
        Readiness::new(&self.registration, Direction::Read)
    }

    /// As [`read_with`](Async::read_with), by one of several who poll, each with its own place.
    pub(crate) fn poll_with_readiness<R>(
        &self,
        readiness: &mut Readiness<'_>,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let seen = ready!(Pin::new(&mut *readiness).poll(cx))?;
            let result = op(&self.io);
            if let Some(result) = self.registration.settled(readiness.direction, seen, result) {
                return Poll::Ready(result);
            }
        }
    }

    /// As [`read_with`](Async::read_with); the last task to call is woken.
    ///
    /// # Errors
    /// Those of `op`; if the runtime has stopped.
    pub fn poll_read_with<R>(
        &self,
        cx: &mut Context<'_>,
        op: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_with(Direction::Read, cx, op).map_ok(|(result, _)| result)
    }

    /// As [`write_with`](Async::write_with); the last task to call is woken.
    ///
    /// # Errors
    /// Those of `op`; if the runtime has stopped.
    pub fn poll_write_with<R>(
        &self,
        cx: &mut Context<'_>,
        op: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_with(Direction::Write, cx, op).map_ok(|(result, _)| result)
    }

    #[inline]
    fn poll_with<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<(R, Seen)>> {
        loop {
            let seen = ready!(self.registration.poll_ready(direction, cx))?;
            let result = op(&self.io);
            if let Some(result) = self.registration.settled(direction, seen, result) {
                return Poll::Ready(result.map(|result| (result, seen)));
            }
        }
    }

    /// Reads from a stream socket up to `len` bytes: fewer mean that nothing is left, so that the
    /// next call can wait without a try.
    #[inline]
    pub(crate) fn poll_read_stream(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        op: impl FnMut(&T) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(Direction::Read, cx, len, op)
    }

    /// Likewise: fewer bytes written than given mean that nothing more fits.
    #[inline]
    pub(crate) fn poll_write_stream(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        op: impl FnMut(&T) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(Direction::Write, cx, len, op)
    }

    #[inline]
    fn poll_stream(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        len: usize,
        op: impl FnMut(&T) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let (count, seen) = ready!(self.poll_with(direction, cx, op))?;
        if 0 < count && count < len && self.registration.shared.reactor.tells_ends() {
            self.registration.registered.source.drained(direction, seen);
        }
        Poll::Ready(Ok(count))
    }
}

impl<T: AsDescriptor> Drop for Async<T> {
    fn drop(&mut self) {
        // An error means that the descriptor is not registered any more, which is what is wanted.
        let _ = self.deregister();
        // SAFETY: dropped once, here; `into_inner` does not come here.
        unsafe { ManuallyDrop::drop(&mut self.io) };
    }
}

impl<T: AsDescriptor + fmt::Debug> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Async").field(&*self.io).finish()
    }
}

impl Registration {
    #[inline]
    fn poll_ready(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<io::Result<Seen>> {
        match self.registered.source.ready(direction) {
            Some(seen) => self.try_on(seen, cx),
            None => self.wait(direction, cx),
        }
    }

    /// A try is worth it, unless all is over: then readiness means only that.
    #[inline]
    fn try_on(&self, seen: Seen, cx: &mut Context<'_>) -> Poll<io::Result<Seen>> {
        ready!(poll_if_due(cx));
        Poll::Ready(self.shared.reactor.check_open().map(|()| seen))
    }

    /// What came of a try on that evidence; None if another one is to be made.
    #[inline]
    fn settled<R>(
        &self,
        direction: Direction,
        seen: Seen,
        result: io::Result<R>,
    ) -> Option<io::Result<R>> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.registered.source.blocked(direction, seen);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            result => Some(result),
        }
    }

    fn wait(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<io::Result<Seen>> {
        let source = &self.registered.source;
        let home = self.home();
        self.wait_with(direction, cx, |waker, arm| {
            let is_same = |old: &Waiter| old.home == home && old.waker.will_wake(waker);
            let waiter = || Waiter { waker: waker.clone(), home };
            let (wait, old) = source.wait_polled(direction, is_same, waiter, arm);
            if let Some(old) = old.filter(|old| !old.waker.will_wake(waker)) {
                // Another task that polled: it is to ask again, rather than to wait for nothing.
                contain(|| old.waker.wake());
            }
            wait
        })
    }

    /// The processor on which this thread waits.
    fn home(&self) -> usize {
        current::lease(&*self.shared).map_or(NOWHERE, |lease| lease.processor.index)
    }

    fn wait_with(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut wait: impl FnMut(&Waker, Arm<'_>) -> Wait,
    ) -> Poll<io::Result<Seen>> {
        loop {
            let mut armed = Ok(());
            let arm: Arm<'_> = &mut |wanted| {
                armed = self.shared.reactor.arm(self.key, self.registered.kept, wanted);
            };
            let outcome = wait(cx.waker(), arm);
            armed?;
            if outcome == Wait::Armed {
                see_to_driver(&self.shared);
                return Poll::Pending;
            }
            if let Some(seen) = self.registered.source.ready(direction) {
                return self.try_on(seen, cx);
            }
        }
    }
}

/// Who waits asks for the next event through this.
type Arm<'a> = &'a mut dyn FnMut(crate::reactor::source::Both);

/// Something was armed: whoever holds a processor drives, or is watched; else somebody must.
#[inline]
pub(crate) fn see_to_driver(shared: &Shared) {
    match current::lease(shared) {
        Some(lease) => lease.call_watch(),
        None => shared.see_to_driver(),
    }
}

/// A future that waits for a direction, beside any number of others.
pub(crate) struct Readiness<'a> {
    registration: &'a Registration,
    direction: Direction,
    number: Option<Number>,
}

impl<'a> Readiness<'a> {
    fn new(registration: &'a Registration, direction: Direction) -> Self {
        Readiness { registration, direction, number: None }
    }
}

impl Future for Readiness<'_> {
    type Output = io::Result<Seen>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Readiness { registration, direction, ref mut number } = *self.get_mut();
        let source = &registration.registered.source;
        match source.ready(direction) {
            Some(seen) => registration.try_on(seen, cx),
            None => registration.wait_with(direction, cx, |waker, arm| {
                let waiter = Waiter { waker: waker.clone(), home: registration.home() };
                source.wait_numbered(direction, number, waiter, arm).0
            }),
        }
    }
}

impl Drop for Readiness<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            drop(self.registration.registered.source.forget(self.direction, number));
        }
    }
}

/// It is never pinned: what is pinned are references to it, if at all.
impl<T: AsDescriptor> Unpin for Async<T> {}

impl<T: AsDescriptor> Async<T> {
    /// As [`poll_with`](Self::poll_with), for operations that want a mutable reference.
    pub(crate) fn poll_with_mut<R>(
        &mut self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&mut T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let seen = ready!(self.registration.poll_ready(direction, cx))?;
            let result = op(&mut self.io);
            if let Some(result) = self.registration.settled(direction, seen, result) {
                return Poll::Ready(result);
            }
        }
    }
}

impl<T: AsDescriptor + Read> AsyncRead for Async<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_mut(Direction::Read, cx, |io| io.read(buffer))
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_mut(Direction::Read, cx, |io| io.read_vectored(buffers))
    }
}

impl<T: AsDescriptor> AsyncRead for &Async<T>
where
    for<'a> &'a T: Read,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_read_with(cx, |mut io| io.read(buffer))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_read_with(cx, |mut io| io.read_vectored(buffers))
    }
}

impl<T: AsDescriptor + Write> AsyncWrite for Async<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_mut(Direction::Write, cx, |io| io.write(buffer))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_mut(Direction::Write, cx, |io| io.write_vectored(buffers))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with_mut(Direction::Write, cx, |io| io.flush())
    }

    /// Flushes; how to tell the peer of the end is `T`'s matter.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl<T: AsDescriptor> AsyncWrite for &Async<T>
where
    for<'a> &'a T: Write,
{
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |mut io| io.write(buffer))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |mut io| io.write_vectored(buffers))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with(cx, |mut io| io.flush())
    }

    /// Flushes; how to tell the peer of the end is `T`'s matter.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
