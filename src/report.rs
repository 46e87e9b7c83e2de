//! What the ticker reports to its hooks: wedged workers and deadlocks.
//! Knows nothing of how they are found; see [`crate::ticker`].

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::identity::TaskInfo;

/// A worker is in a poll that lasts longer than [`wedge_after`](crate::Builder::wedge_after); or the
/// poll is over. Given to the hook of [`on_wedge`](crate::Builder::on_wedge).
///
/// Its `Display` is one line, such as
/// `worker 0 has been stuck for 51ms in task "hog", spawned at src/main.rs:9:5; its thread is blocked; 3 tasks wait behind it`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wedge {
    /// Which worker, as an index into [`Metrics::workers`](crate::Metrics::workers).
    pub worker: usize,
    /// Which task is being polled. None if it has ended meanwhile (in a destructor, say).
    pub task: Option<TaskInfo>,
    /// For how long the poll has lasted, exact to a tick.
    pub lasted: Duration,
    /// How many runnable tasks were found behind it, in its wake slot and queue, and moved on to where
    /// other workers find them. On recovery: in the whole episode.
    pub stranded: usize,
    /// What the worker's thread does.
    pub thread: ThreadState,
    /// The poll has returned: this is the second report of an episode, and `lasted` is its dwell.
    pub is_over: bool,
}

/// What a thread does, as the operating system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadState {
    /// It computes, or waits for a CPU.
    Running,
    /// It waits in a system call: for a lock, a sleep, a file.
    Blocked,
    /// The system does not say; so it is on recovery, and everywhere but on Linux.
    Unknown,
}

impl fmt::Display for Wedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wedge { worker, lasted, stranded, .. } = self;
        match self.is_over {
            false => write!(f, "worker {worker} has been stuck for {lasted:.0?} in ")?,
            true => write!(f, "worker {worker} is back after {lasted:.0?} in ")?,
        }
        match &self.task {
            Some(task) => write!(f, "{task}")?,
            None => write!(f, "a task that has ended")?,
        }
        match self.thread {
            ThreadState::Running => write!(f, "; its thread is running")?,
            ThreadState::Blocked => write!(f, "; its thread is blocked")?,
            ThreadState::Unknown => {}
        }
        match (stranded, self.is_over) {
            (0, _) => Ok(()),
            (1, false) => write!(f, "; 1 task waits behind it"),
            (1, true) => write!(f, "; 1 task had to be moved on"),
            (_, false) => write!(f, "; {stranded} tasks wait behind it"),
            (_, true) => write!(f, "; {stranded} tasks had to be moved on"),
        }
    }
}

/// Nothing can happen any more, yet a `block_on` waits. Given to the hook of
/// [`on_deadlock`](crate::Builder::on_deadlock).
///
/// Its `Display` lists the tasks, one a line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Census {
    /// Where the `block_on`s that wait were called, the oldest first.
    pub block_ons: Vec<&'static Location<'static>>,
    /// The tasks that wait.
    pub tasks: Vec<TaskInfo>,
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mains, tasks) = (self.block_ons.len(), self.tasks.len());
        write!(
            f,
            "deadlock: nothing can wake the {mains} `block_on` and {tasks} tasks that wait:"
        )?;
        for main in &self.block_ons {
            write!(f, "\n  `block_on` at {main}")?;
        }
        for task in &self.tasks {
            write!(f, "\n  {task}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_sentences() {
        let task = TaskInfo::at(Location::caller());
        let at = task.spawned_at;
        let mut wedge = Wedge {
            worker: 1,
            task: Some(task.clone()),
            lasted: Duration::from_micros(51_300),
            stranded: 3,
            thread: ThreadState::Blocked,
            is_over: false,
        };
        assert_eq!(
            wedge.to_string(),
            format!(
                "worker 1 has been stuck for 51ms in the task spawned at {at}; its thread is \
                 blocked; 3 tasks wait behind it"
            )
        );
        (wedge.is_over, wedge.thread, wedge.stranded) = (true, ThreadState::Unknown, 0);
        let line = wedge.to_string();
        assert_eq!(line, format!("worker 1 is back after 51ms in the task spawned at {at}"));
        let census = Census { block_ons: vec![at], tasks: vec![task] };
        assert_eq!(census.to_string().lines().count(), 3);
    }
}
