//! Waiting for descriptors and timers: one reactor per scheduler, driven by whoever is idle.
//! Knows no worker: who drives brings its bed, and delivers what it collected itself.
//!
//! **Who drives.** One thread at a time has the *role*. An idle thread that finds it free sleeps in
//! the reactor instead of in its bed ([`Reactor::sleep`]); a busy one looks in every so many polls,
//! and whenever it has nothing else to do ([`Reactor::look`]). As long as a source or a timer is
//! there, one of these holds: somebody sleeps in the reactor; a thread holds a processor, and will
//! look, or sleep here; or a thread is on its way. So whoever gives up a processor, or arms something
//! without one, asks [`Reactor::needs_driver`] afterwards; and the ticker does when a poll lasts.
//!
//! **What an event becomes.** The driver collects the wakers of all that is due, gives up the role,
//! takes a processor, and calls them there. A task that is woken so goes to the worker that polled it
//! last, if that one is awake ([`crate::inbox`]), since the task and its socket are in that core's
//! cache; else to the driver's own queue.

mod alarm;
pub(crate) mod descriptor;
#[cfg(all(target_os = "linux", not(paceline_reactor), not(paceline_loom)))]
#[path = "epoll.rs"]
mod direct;
#[cfg(not(any(all(target_os = "linux", not(paceline_reactor)), paceline_loom)))]
#[path = "no_direct.rs"]
mod direct;
#[cfg(not(paceline_loom))]
mod poll;
mod role;
pub(crate) mod source;
pub(crate) mod sources;
pub(crate) mod timers;

#[cfg(not(paceline_loom))]
pub(crate) use driven::{Due, NOWHERE, Reactor, Registered, Waiter};

#[cfg(not(paceline_loom))]
mod driven;
