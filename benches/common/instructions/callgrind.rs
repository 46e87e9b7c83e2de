//! A round of an operation, by itself and under callgrind.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::clock;
use super::ops::{self, OPS};
use crate::common::workloads::Start;

/// Callgrind writes down what was executed since the last time whenever this is called.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn instructions_mark() {
    std::hint::black_box(());
}

/// At least so many operations are counted, so that a thread that starts among them does not matter.
const LEAST: u64 = 10_000;

/// In the process that is counted: a round that warms up, and others between two marks. Prints how many
/// operations they did.
pub fn run(start: &Start) {
    ops::settle();
    let mut round = start.1();
    clock::stop();
    round();
    instructions_mark();
    let mut operations = 0;
    while operations < LEAST {
        operations += round().ops;
    }
    instructions_mark();
    println!("{operations}");
}

/// Rounds that were counted. Their directory is gone with the value.
pub struct Counted {
    directory: PathBuf,
    operations: f64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Counted {
    /// Neither environment nor working directory is this process's, so that they do not
    /// matter.
    pub fn new(op: &str, arm: &str) -> io::Result<Self> {
        let name = format!("instructions-{}-{op}-{arm}", std::process::id());
        let mut counted = Counted { directory: env::temp_dir().join(name), operations: 0.0 };
        fs::create_dir(&counted.directory)?;
        let run = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=out"])
            .args(["--dump-before=instructions_mark", "--cache-sim=no", "--quiet"])
            .arg(env::current_exe()?)
            .args(["run", op, arm])
            .env_clear()
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .current_dir(&counted.directory)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&run.stdout);
        counted.operations = said.trim().parse().map_err(|_| {
            let error = String::from_utf8_lossy(&run.stderr);
            io::Error::other(format!("{op} of {arm}: {}: {said}{error}", run.status))
        })?;
        Ok(counted)
    }

    /// What was executed between the two marks, as callgrind wrote it down.
    pub fn profile(&self) -> PathBuf {
        self.directory.join("out.2")
    }

    pub fn per_operation(&self) -> io::Result<f64> {
        let profile = fs::read_to_string(self.profile())?;
        let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
        let total = total.and_then(|total| total.trim().parse::<f64>().ok());
        Ok(total.ok_or_else(|| io::Error::other("callgrind gave no total"))? / self.operations)
    }
}

/// The operation of that name, and its arm.
pub fn find(op: &str, arm: &str) -> Option<&'static Start> {
    OPS.iter().find(|each| each.name == op)?.arms.iter().find(|start| start.0 == arm)
}

/// Whether there is a valgrind.
pub fn is_there() -> bool {
    Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// Where the instructions of a profile went.
pub fn annotate(profile: &Path) -> io::Result<()> {
    // What was entered before the first mark and has not returned is written down as called no times,
    // which callgrind_annotate cannot read.
    let text = fs::read_to_string(profile)?.replace("\ncalls=0 ", "\ncalls=1 ");
    fs::write(profile, text)?;
    let arguments = ["--auto=no", "--threshold=95"];
    Command::new("callgrind_annotate").args(arguments).arg(profile).status().map(|_| ())
}
