//! Tells on standard error how far a run has come: a line that is written over on a terminal, elsewhere a
//! line for each workload.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

pub struct Progress {
    started: Instant,
    launches: usize,
    done: usize,
    is_terminal: bool,
    /// When the line was last written over.
    shown: Option<Instant>,
}

/// Between two times that it is: what is measured shares the CPUs with the terminal.
const REST: Duration = Duration::from_millis(200);

impl Progress {
    /// Of so many processes.
    pub fn new(launches: usize) -> Self {
        Progress {
            started: Instant::now(),
            launches,
            done: 0,
            is_terminal: stderr().is_terminal(),
            shown: None,
        }
    }

    /// What the process that runs now is at.
    pub fn at(&mut self, what: &str) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < REST) {
            return;
        }
        self.shown = Some(Instant::now());
        let Progress { launches, done, .. } = *self;
        let rest =
            self.rest().map_or(String::new(), |rest| format!(", about {} left", clock(rest)));
        let elapsed = clock(self.started.elapsed());
        eprint!("\r\x1b[2K[{done}/{launches}] {what}, {elapsed} elapsed{rest}");
        // An error is a terminal that has gone.
        let _ = stderr().flush();
    }

    pub fn launch_is_done(&mut self) {
        self.done += 1;
    }

    /// A workload has been measured.
    pub fn tell(&self, line: &str) {
        let Progress { launches, done, .. } = self;
        if self.is_terminal {
            eprint!("\r\x1b[2K");
            return;
        }
        let rest =
            self.rest().map_or(String::new(), |rest| format!(", about {} left", clock(rest)));
        let elapsed = clock(self.started.elapsed());
        eprintln!("[{done}/{launches}] {line}; {elapsed} elapsed{rest}");
    }

    fn rest(&self) -> Option<Duration> {
        let each = self.started.elapsed().checked_div(self.done as u32)?;
        Some(each * (self.launches - self.done) as u32)
    }
}

/// Minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
