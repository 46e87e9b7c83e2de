//! Counts the words of files and folders, with a paceline task per file. Without arguments it
//! counts paceline's own source: `cargo run --release --example wordcount`.
//!
//! A word is a maximal run of non-whitespace bytes, as for POSIX's `wc -w` in the C locale.
//! Links to folders are followed if named as arguments, but not inside of folders: a loop of links
//! ends. What cannot be counted is reported on stderr, and the rest still counted. The exit code
//! is 0 if everything was counted, 1 if not, 2 if the command line is wrong.
//!
//! Reading blocks the worker that does it: paceline leaves file I/O to others.

use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use async_channel::Sender;
use paceline::{Handle, Metrics, Task};

const USAGE: &str = "\
usage: wordcount [--panic-on NAME] [FILE | FOLDER]...
Counts the words of files and of all files in folders; of paceline's `src` if none is named.
  --panic-on NAME  panic in the task of each file called NAME, to see how that is reported
  --help           print this";

/// Between two chunks a task lets others go first, if its timeslice is spent.
const CHUNK_BYTES: u64 = 16 * 1024;

/// A task that lets others go first keeps its file open, and a process may open only so many.
const MAX_RUNNING: usize = 128;

type Counts = Vec<(PathBuf, u64)>;
/// What was not counted, and why.
type Failures = Vec<(PathBuf, String)>;
type Tasks = VecDeque<(PathBuf, Task<()>)>;

enum Request {
    Help,
    Count { paths: Vec<PathBuf>, panic_on: Option<OsString> },
}

fn main() -> ExitCode {
    match parse(env::args_os().skip(1)) {
        Ok(Request::Help) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Request::Count { paths, panic_on }) => run(paths, panic_on.as_deref()),
        Err(complaint) => {
            eprintln!("wordcount: {complaint}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Request, String> {
    let mut paths = Vec::new();
    let mut panic_on = None;
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--help") => return Ok(Request::Help),
            Some("--panic-on") => panic_on = Some(args.next().ok_or("--panic-on needs a NAME")?),
            Some(option) if option.starts_with('-') => {
                return Err(format!("unknown option {option}"));
            }
            _ => paths.push(PathBuf::from(arg)),
        }
    }
    if paths.is_empty() {
        paths.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    }
    Ok(Request::Count { paths, panic_on })
}

fn run(paths: Vec<PathBuf>, panic_on: Option<&OsStr>) -> ExitCode {
    let start = Instant::now();
    let mut failures = Failures::new();
    let mut files = Vec::new();
    for path in paths {
        find_files(path, &mut files, &mut failures);
    }
    let counts = paceline::block_on(count_files(files, panic_on, &mut failures));
    let elapsed = start.elapsed();
    if let Err(error) = print_counts(&counts) {
        failures.push((PathBuf::from("stdout"), error.to_string()));
    }
    // Not before the last task has ended: panicking, it would print its message in between.
    failures.sort();
    for (path, reason) in &failures {
        eprintln!("wordcount: {}: {reason}", path.display());
    }
    // The current runtime is the default one here, as it was for `block_on`.
    print_metrics(elapsed, &Handle::current().metrics());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn find_files(path: PathBuf, files: &mut Vec<PathBuf>, failures: &mut Failures) {
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => files.push(path),
        Ok(metadata) if metadata.is_dir() => {
            if let Err(error) = walk(&path, files, failures) {
                failures.push((path, error.to_string()));
            }
        }
        // To read from a pipe or a device might never end.
        Ok(_) => failures.push((path, "neither a file nor a folder".to_string())),
        Err(error) => failures.push((path, error.to_string())),
    }
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>, failures: &mut Failures) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !(path.is_symlink() && path.is_dir()) {
            find_files(path, files, failures);
        }
    }
    Ok(())
}

/// The main future: spawns the tasks, receives what they send, and sees which of them panicked.
async fn count_files(
    files: Vec<PathBuf>,
    panic_on: Option<&OsStr>,
    failures: &mut Failures,
) -> Counts {
    let (sender, results) = async_channel::unbounded();
    let mut tasks = Tasks::new();
    for path in files {
        join_all_but(MAX_RUNNING - 1, &mut tasks, failures).await;
        let panics = panic_on.is_some_and(|name| path.file_name() == Some(name));
        let task = paceline::spawn(count_file(path.clone(), panics, sender.clone()));
        tasks.push_back((path, task));
    }
    // The channel closes with its last sender. A task drops its own, even if it panics.
    drop(sender);
    let mut counts = Counts::new();
    while let Ok((path, result)) = results.recv().await {
        match result {
            Ok(words) => counts.push((path, words)),
            Err(error) => failures.push((path, error.to_string())),
        }
    }
    join_all_but(0, &mut tasks, failures).await;
    counts.sort();
    counts
}

/// Waits for the oldest tasks, until only `rest` are left.
async fn join_all_but(rest: usize, tasks: &mut Tasks, failures: &mut Failures) {
    while tasks.len() > rest {
        let Some((path, task)) = tasks.pop_front() else { return };
        // `task.await` would panic as the task did.
        if let Err(error) = task.join().await {
            failures.push((path, error.to_string()));
        }
    }
}

/// A task: counts the words of one file and sends the result.
async fn count_file(path: PathBuf, panics: bool, sender: Sender<(PathBuf, io::Result<u64>)>) {
    assert!(!panics, "as --panic-on asked");
    let result = count_words(&path).await;
    // It fails only if the main future is gone, and then nobody wants to know.
    let _ = sender.send((path, result)).await;
}

async fn count_words(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut chunk = Vec::new();
    let mut words = 0;
    // Outlives the chunk: a word may go on in the next one.
    let mut in_word = false;
    while (&file).take(CHUNK_BYTES).read_to_end(&mut chunk)? > 0 {
        for byte in chunk.drain(..) {
            let was_in_word = in_word;
            // As C's `isspace`; Rust's `is_ascii_whitespace` leaves out the vertical tab.
            in_word = !(byte.is_ascii_whitespace() || byte == b'\x0b');
            words += u64::from(in_word && !was_in_word);
        }
        paceline::yield_if_due().await;
    }
    Ok(words)
}

fn print_counts(counts: &[(PathBuf, u64)]) -> io::Result<()> {
    // Not `println!`, which panics if the reader, `head` for instance, has gone.
    let mut out = BufWriter::new(io::stdout().lock());
    for (path, words) in counts {
        writeln!(out, "{words:>8} {}", path.display())?;
    }
    let total: u64 = counts.iter().map(|(_, words)| words).sum();
    writeln!(out, "{total:>8} total")?;
    out.flush()
}

fn print_metrics(elapsed: Duration, metrics: &Metrics) {
    eprintln!("\ncounted in {elapsed:.1?}; {} threads started, ticker included", metrics.threads);
    eprintln!("worker      polls  slot hits     stolen      parks");
    for (index, worker) in metrics.workers.iter().enumerate() {
        let counters = [worker.polls, worker.slot_hits, worker.stolen, worker.parks];
        eprintln!("{index:>6} {}", counters.map(|counter| format!("{counter:>10}")).join(" "));
    }
}
