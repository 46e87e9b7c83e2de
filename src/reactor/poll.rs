//! Where a thread waits for events: the seam between the reactor and the platform.
//!
//! On Linux the wait goes to the `Poller`'s own descriptor ([`super::direct`]); elsewhere, and where
//! that does not work as expected, it is the `Poller`'s.

use std::io;
use std::time::Duration;

use polling::{Events, PollMode, Poller};

use crate::reactor::descriptor::{Borrowed, Raw};
use crate::reactor::direct::{Direct, Reports};
use crate::reactor::source::Both;
use crate::reactor::sources::Event;

/// The most events of one wait; the next brings the others.
const BATCH: usize = 1024;

/// How long a wait may last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// Only what has happened is collected.
    Now,
    /// A relative time, and the moment that it stands for: two waits for the same one are known.
    Until {
        left: Duration,
        moment: u64,
    },
    Never,
}

pub(crate) struct Poll {
    poller: Poller,
    /// Whether an event is reported once, or needs to be asked for anew each time.
    pub(crate) edge: bool,
    direct: Option<Direct>,
}

/// What a wait collects; kept, so that it need not be allocated each time.
pub(crate) struct Collected {
    portable: Events,
    direct: Reports,
}

impl Collected {
    pub(crate) fn new() -> Self {
        Collected { portable: Events::new(), direct: Reports::new(BATCH) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        let portable = self.portable.iter().map(|event| Event {
            key: event.key,
            ready: Both { read: event.readable, write: event.writable },
            ended: Both::default(),
        });
        portable.chain(self.direct.iter())
    }
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        Ok(Poll {
            edge: poller.supports_edge() && !cfg!(paceline_reactor = "oneshot"),
            direct: Direct::new(&poller)?,
            poller,
        })
    }

    /// Whether the wait tells that a peer has closed: then a short read of a stream leaves nothing
    /// behind that no event would tell of.
    pub(crate) fn tells_ends(&self) -> bool {
        self.direct.is_some()
    }

    fn mode(&self) -> PollMode {
        if self.edge { PollMode::Edge } else { PollMode::Oneshot }
    }

    /// Registers a descriptor, for both directions in edge mode, else for none.
    ///
    /// # Safety
    /// It must be [deleted](Self::delete) before it is closed.
    pub(crate) unsafe fn add(&self, descriptor: Borrowed<'_>, key: usize) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            return direct.add(&self.poller, descriptor, key);
        }
        let interest = polling::Event::new(key, self.edge, self.edge);
        let raw = super::descriptor::raw(descriptor);
        // SAFETY: the caller deletes it in time.
        let added = unsafe { self.poller.add_with_mode(raw, interest, self.mode()) };
        if added.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
            // What the system refused may still be in the poller's own books.
            let _ = self.poller.delete(descriptor);
        }
        added
    }

    /// Without edge mode: asks for the next event of these directions.
    ///
    /// # Safety
    /// The descriptor must be registered.
    pub(crate) unsafe fn rearm(&self, raw: Raw, key: usize, wanted: Both) -> io::Result<()> {
        let interest = polling::Event::new(key, wanted.read, wanted.write);
        // SAFETY: what is registered is open.
        let descriptor = unsafe { Borrowed::borrow_raw(raw) };
        self.poller.modify_with_mode(descriptor, interest, self.mode())
    }

    pub(crate) fn delete(&self, descriptor: Borrowed<'_>) -> io::Result<()> {
        self.poller.delete(descriptor)
    }

    /// Ends a wait of another thread, or the next one.
    pub(crate) fn notify(&self) {
        if let Some(direct) = &self.direct {
            return direct.notify();
        }
        // It fails only if the poller is broken, which the wait finds as well.
        let _ = self.poller.notify();
    }

    #[cfg(unix)]
    pub(crate) fn descriptor(&self) -> Borrowed<'_> {
        use std::os::fd::AsFd;
        self.poller.as_fd()
    }

    /// Waits for events, a notification, or the limit; it may return early. By one thread at a time.
    pub(crate) fn wait(&self, collected: &mut Collected, limit: Limit) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            return direct.wait(&self.poller, &mut collected.direct, limit);
        }
        let timeout = match limit {
            Limit::Now => Some(Duration::ZERO),
            Limit::Until { left, .. } => Some(left),
            Limit::Never => None,
        };
        collected.portable.clear();
        match self.poller.wait(&mut collected.portable, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Instant;

    fn wait(poll: &Poll, limit: Limit) -> Vec<(usize, bool)> {
        let mut collected = Collected::new();
        poll.wait(&mut collected, limit).unwrap();
        collected.iter().map(|event| (event.key, event.ready.read)).collect()
    }

    fn until(left: Duration, moment: u64) -> Limit {
        Limit::Until { left, moment }
    }

    #[test]
    fn a_notification_ends_a_wait_again_and_again() {
        let poll = Poll::new().unwrap();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                scope.spawn(|| poll.notify());
                assert_eq!(wait(&poll, Limit::Never), []);
            });
        }
    }

    #[test]
    fn a_limit_ends_a_wait_and_not_too_soon() {
        let poll = Poll::new().unwrap();
        for moment in [7, 7, 8] {
            let (start, length) = (Instant::now(), Duration::from_millis(3));
            assert_eq!(wait(&poll, until(length, moment)), []);
            assert!(start.elapsed() >= length, "{:?}", start.elapsed());
        }
        assert_eq!(wait(&poll, Limit::Now), []);
    }

    #[cfg(unix)]
    #[test]
    fn what_can_be_read_is_reported_under_its_key() {
        let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let poll = Poll::new().unwrap();
        let descriptor = crate::reactor::descriptor::borrow(&far);
        // SAFETY: it is deleted below.
        unsafe { poll.add(descriptor, 77) }.unwrap();
        near.write_all(b"!").unwrap();
        if !poll.edge {
            let read = Both { read: true, write: false };
            let raw = crate::reactor::descriptor::raw(descriptor);
            // SAFETY: it is registered.
            unsafe { poll.rearm(raw, 77, read) }.unwrap();
        }
        assert_eq!(wait(&poll, Limit::Never), [(77, true)]);
        poll.delete(descriptor).unwrap();
        near.write_all(b"!").unwrap();
        assert_eq!(wait(&poll, Limit::Now), []);
    }
}
