//! Where there is no wait but the `Poller`'s own; see `epoll.rs` for one.

use std::io;

use polling::Poller;

use crate::reactor::descriptor::Borrowed;
use crate::reactor::poll::Limit;
use crate::reactor::sources::Event;

pub(super) enum Direct {}

/// Always empty.
pub(super) struct Reports;

impl Reports {
    pub(super) fn new(_: usize) -> Self {
        Reports
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        std::iter::empty()
    }
}

impl Direct {
    pub(super) fn new(_: &Poller) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn add(&self, _: &Poller, _: Borrowed<'_>, _: usize) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn notify(&self) {
        match *self {}
    }

    pub(super) fn wait(&self, _: &Poller, _: &mut Reports, _: Limit) -> io::Result<()> {
        match *self {}
    }
}
