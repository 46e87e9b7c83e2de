//! What the platforms call a descriptor: a file descriptor or a socket.

#[cfg(unix)]
pub(crate) use std::os::fd::{
    AsFd as AsDescriptor, BorrowedFd as Borrowed, OwnedFd as Owned, RawFd as Raw,
};
#[cfg(windows)]
pub(crate) use std::os::windows::io::{
    AsSocket as AsDescriptor, BorrowedSocket as Borrowed, OwnedSocket as Owned, RawSocket as Raw,
};

#[cfg(unix)]
use crate::reactor::source::Direction;

/// The descriptor of `io`, borrowed.
pub(crate) fn borrow<T: AsDescriptor>(io: &T) -> Borrowed<'_> {
    #[cfg(unix)]
    return io.as_fd();
    #[cfg(windows)]
    return io.as_socket();
}

/// Its number.
pub(crate) fn raw(descriptor: Borrowed<'_>) -> Raw {
    #[cfg(unix)]
    return std::os::fd::AsRawFd::as_raw_fd(&descriptor);
    #[cfg(windows)]
    return std::os::windows::io::AsRawSocket::as_raw_socket(&descriptor);
}

/// Whether an operation of that direction would not block now.
#[cfg(unix)]
pub(crate) fn is_ready(descriptor: Borrowed<'_>, direction: Direction) -> std::io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let flags = match direction {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::from_borrowed_fd(descriptor, flags)], Some(&now))? > 0)
}
