//! Linux: waiting on the `Poller`'s own descriptor. One system call per wait, and a second one if
//! the wait has a new limit, where `Poller::wait` makes five.
//!
//! The wait is woken through an eventfd, and limited through a timerfd, both edge-triggered and
//! never read: nothing has to be cleared or asked for anew. (A timeout of `epoll_wait` counts
//! milliseconds; that of `epoll_pwait2` nanoseconds, but lets the kernel be late by a thousandth of
//! itself, and by 50 µs at least.)

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use polling::Poller;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::reactor::poll::Limit;
use crate::reactor::source::Both;
use crate::reactor::sources::Event;

/// No source has these keys: slab's are counted from zero. `usize::MAX` is the `Poller`'s own.
const NOTIFIED: u64 = u64::MAX - 1;
const TIMED_OUT: u64 = u64::MAX - 2;

/// What a wait has collected.
pub(super) struct Reports(Vec<epoll::Event>);

// SAFETY: an event's data is an integer here, never the pointer that it could be.
unsafe impl Send for Reports {}

impl Reports {
    pub(super) fn new(most: usize) -> Self {
        Reports(Vec::with_capacity(most))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.iter().filter_map(event)
    }
}

pub(super) struct Direct {
    alert: OwnedFd,
    timer: OwnedFd,
    /// The moment that the timer is set for; 0 if it is not set.
    set_for: AtomicU64,
}

impl Direct {
    /// None if the poller's descriptor does not behave as expected.
    pub(super) fn new(poller: &Poller) -> io::Result<Option<Self>> {
        let alert = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let direct = Direct { alert, timer, set_for: AtomicU64::new(0) };
        for (descriptor, key) in [(&direct.alert, NOTIFIED), (&direct.timer, TIMED_OUT)] {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(poller, descriptor, EventData::new_u64(key), flags)?;
        }
        Ok(direct.works(poller).then_some(direct))
    }

    /// A trial: each notification comes through, once, under its key.
    fn works(&self, poller: &Poller) -> bool {
        let mut events = Reports::new(4);
        (0..2).all(|_| {
            self.notify();
            self.wait(poller, &mut events, Limit::Now).is_ok()
                && events.0.iter().map(|event| event.data.u64()).eq([NOTIFIED])
        })
    }

    /// Both directions, each change reported once. Unlike `Poller::add`, with the peer's close as an
    /// event of its own.
    pub(super) fn add(
        &self,
        poller: &Poller,
        descriptor: BorrowedFd<'_>,
        key: usize,
    ) -> io::Result<()> {
        let flags =
            EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET;
        epoll::add(poller, descriptor, EventData::new_u64(key as u64), flags)?;
        Ok(())
    }

    pub(super) fn notify(&self) {
        // It fails only when the counter is full: then there is a notification already.
        let _ = rustix::io::write(&self.alert, &1u64.to_ne_bytes());
    }

    pub(super) fn wait(
        &self,
        poller: &Poller,
        Reports(events): &mut Reports,
        limit: Limit,
    ) -> io::Result<()> {
        events.clear();
        let mut timeout = None;
        match limit {
            Limit::Now => timeout = Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Limit::Until { left, moment } => self.set(left, moment)?,
            Limit::Never => {}
        }
        match epoll::wait(poller, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if events.iter().any(|event| event.data.u64() == TIMED_OUT) {
            self.set_for.store(0, Relaxed);
        }
        Ok(())
    }

    /// Sets the timer, unless it is set so already.
    fn set(&self, left: Duration, moment: u64) -> io::Result<()> {
        if self.set_for.swap(moment, Relaxed) == moment {
            return Ok(());
        }
        let value = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            // A value of zero would switch it off.
            tv_nsec: left.subsec_nanos().max(u32::from(left.is_zero())).into(),
        };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: once, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting).inspect_err(|_| {
            self.set_for.store(0, Relaxed);
        })?;
        Ok(())
    }
}

fn event(event: &epoll::Event) -> Option<Event> {
    let (flags, key) = (event.flags, event.data.u64());
    if key >= TIMED_OUT {
        return None;
    }
    let both = EventFlags::HUP | EventFlags::ERR;
    // Urgent data: a read stops at their place, so that a short count does not mean that nothing is
    // left, until an operation would block.
    let read = both | EventFlags::RDHUP | EventFlags::PRI;
    let (read_end, write_end) = (flags.intersects(read), flags.intersects(both));
    Some(Event {
        key: key as usize,
        ready: Both {
            read: read_end || flags.intersects(EventFlags::IN),
            write: write_end || flags.intersects(EventFlags::OUT),
        },
        ended: Both { read: read_end, write: write_end },
    })
}
