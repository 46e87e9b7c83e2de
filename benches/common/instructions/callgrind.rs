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

/// A directory with this program in it, gone with the value. Under a name of its own it is started the
/// same way from wherever it was built: its path is on the heap, whose layout malloc's counts depend on.
pub struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    pub fn new() -> io::Result<Self> {
        let place = Place(env::temp_dir().join(format!("instructions-{}", std::process::id())));
        fs::create_dir(&place.0)?;
        fs::copy(env::current_exe()?, place.0.join("instructions"))?;
        Ok(place)
    }

    /// Counts rounds, in an empty environment, so that this process's does not matter.
    pub fn count(&self, op: &str, arm: &str) -> io::Result<Counted> {
        let run = Command::new("valgrind")
            .args(["--tool=callgrind", &format!("--callgrind-out-file={op}-{arm}")])
            .args(["--dump-before=instructions_mark", "--cache-sim=no", "--quiet"])
            .args(["./instructions", "run", op, arm])
            .env_clear()
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&run.stdout);
        let operations = said.trim().parse().map_err(|_| {
            let error = String::from_utf8_lossy(&run.stderr);
            io::Error::other(format!("{op} of {arm}: {}: {said}{error}", run.status))
        })?;
        // The first is what came before the first mark.
        Ok(Counted { profile: self.0.join(format!("{op}-{arm}.2")), operations })
    }
}

/// Rounds that were counted.
pub struct Counted {
    /// What was executed between the two marks, as callgrind wrote it down.
    pub profile: PathBuf,
    operations: f64,
}

impl Counted {
    pub fn per_operation(&self) -> io::Result<f64> {
        let profile = fs::read_to_string(&self.profile)?;
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
