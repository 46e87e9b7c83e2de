//! Who a task is: its name, and where it was spawned; in one word, which a worker notes down before
//! every poll, and which anyone may read at any time. Knows no task and no worker.
//!
//! The word of an unnamed task points to its spawn location, which lives for ever. That of a named one
//! is a key into [`Names`], which says nothing once the task has gone.

use std::fmt;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

use slab::Slab;

use crate::sync::{Mutex, lock};

/// A task's name, if it was given one, and where it was spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Given to [`spawn_named`](crate::spawn_named).
    pub name: Option<Arc<str>>,
    /// Where `spawn` was called; of the future of a `block_on`, where that was called.
    pub spawned_at: &'static Location<'static>,
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "task {name:?}, spawned at {}", self.spawned_at),
            None => write!(f, "the task spawned at {}", self.spawned_at),
        }
    }
}

impl TaskInfo {
    /// Of whoever is at `spawned_at`.
    #[inline]
    pub(crate) fn at(spawned_at: &'static Location<'static>) -> Self {
        TaskInfo { name: None, spawned_at }
    }
}

/// A [`TaskInfo`] as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64);

/// Marks a key; locations are aligned.
const NAMED: u64 = 1;
const _: () = assert!(align_of::<Location<'static>>() > 1);

impl Identity {
    /// Of nobody.
    pub(crate) const NOBODY: Identity = Identity(0);

    #[inline]
    pub(crate) fn of(spawned_at: &'static Location<'static>) -> Self {
        Identity(ptr::from_ref(spawned_at).expose_provenance() as u64)
    }

    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        self.0
    }

    /// What [`to_word`](Self::to_word) gave.
    ///
    /// # Safety
    /// It did.
    pub(crate) unsafe fn from_word(word: u64) -> Self {
        Identity(word)
    }

    #[inline]
    fn is_named(self) -> bool {
        self.0 & NAMED != 0
    }
}

/// The named tasks of one scheduler.
#[derive(Default)]
pub(crate) struct Names(Mutex<Named>);

#[derive(Default)]
struct Named {
    /// Each with the identity that it was put in for.
    tasks: Slab<(Identity, TaskInfo)>,
    /// Tells apart those that had the same place one after the other; 31 bits.
    generation: u32,
}

impl Names {
    #[inline]
    pub(crate) fn identify(&self, info: TaskInfo) -> Identity {
        if info.name.is_none() { Identity::of(info.spawned_at) } else { self.insert(info) }
    }

    fn insert(&self, info: TaskInfo) -> Identity {
        let mut named = lock(&self.0);
        named.generation = (named.generation + 1) & (u32::MAX >> 1);
        let generation = u64::from(named.generation);
        let entry = named.tasks.vacant_entry();
        let place = u32::try_from(entry.key()).expect("fewer than 2^32 named tasks");
        let identity = Identity(generation << 33 | u64::from(place) << 1 | NAMED);
        entry.insert((identity, info));
        identity
    }

    /// The task has gone.
    #[inline]
    pub(crate) fn forget(&self, identity: Identity) {
        if identity.is_named() {
            // Dropped outside of the lock.
            let _gone = lock(&self.0).tasks.remove(Self::place(identity));
        }
    }

    /// Who that is; none if it is nobody, or has gone.
    pub(crate) fn look_up(&self, identity: Identity) -> Option<TaskInfo> {
        if identity.is_named() {
            let named = lock(&self.0);
            let (who, info) = named.tasks.get(Self::place(identity))?;
            return (*who == identity).then(|| info.clone());
        }
        let location: *const Location<'static> = ptr::with_exposed_provenance(identity.0 as usize);
        // SAFETY: an identity that is no key is null, or was made of a reference that lives for ever.
        unsafe { location.as_ref() }.map(TaskInfo::at)
    }

    fn place(identity: Identity) -> usize {
        (identity.0 >> 1) as u32 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> TaskInfo {
        TaskInfo { name: Some(name.into()), spawned_at: Location::caller() }
    }

    #[test]
    fn a_name_is_known_until_its_task_has_gone_and_is_not_taken_for_the_next_ones() {
        let names = Names::default();
        let first = names.identify(named("first"));
        assert_eq!(
            names.look_up(first).unwrap().to_string().split(',').next(),
            Some("task \"first\"")
        );
        names.forget(first);
        assert_eq!(names.look_up(first), None);
        let second = names.identify(named("second"));
        assert_eq!(Names::place(first), Names::place(second));
        assert_eq!(names.look_up(first), None);
        assert_eq!(names.look_up(second).unwrap().name.as_deref(), Some("second"));
    }

    #[test]
    fn an_unnamed_task_is_known_by_where_it_was_spawned() {
        let (names, here) = (Names::default(), Location::caller());
        let identity = names.identify(TaskInfo::at(here));
        names.forget(identity);
        // SAFETY: the word is an identity's.
        let again = unsafe { Identity::from_word(identity.to_word()) };
        assert_eq!(names.look_up(again), Some(TaskInfo::at(here)));
        assert_eq!(names.look_up(Identity::NOBODY), None);
    }
}
