//! The example `wordcount`, run as a process: what it prints where, and its exit codes.
//!
//! Cargo builds examples before it runs tests, but not if it was told to build one test only:
//! `cargo test --test wordcount` runs the binary that is there.
#![cfg(not(paceline_loom))]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Beyond the example's bound on tasks at a time, so that it is reached.
const MANY: usize = 300;

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("wordcount-{test}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file, and the folders above it.
    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        // Part by part, so that it is spelled as the example spells it where `/` is not the
        // separator.
        self.0.join(name.split('/').collect::<PathBuf>())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder left behind is no reason to fail, nor to panic in a panic.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a run of the example came to.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    #[track_caller]
    fn expect_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{self:?}");
    }

    /// Expects one line per file, and the total.
    #[track_caller]
    fn expect_counts(&self, counts: &[(PathBuf, u64)]) {
        let total = counts.iter().map(|(_, words)| words).sum::<u64>();
        let lines = counts.iter().map(|(path, words)| format!("{words:>8} {}\n", path.display()));
        assert_eq!(self.stdout, lines.collect::<String>() + &format!("{total:>8} total\n"));
    }

    /// Expects that these paths are reported, for these reasons, and no others.
    #[track_caller]
    fn expect_failures(&self, failures: &[(&Path, &str)]) {
        let mut expected: Vec<_> = failures
            .iter()
            .map(|(path, reason)| format!("wordcount: {}: {reason}", path.display()))
            .collect();
        let lines = self.stderr.lines().filter(|line| line.starts_with("wordcount: "));
        expected.sort();
        assert_eq!(lines.collect::<Vec<_>>(), expected, "{self:?}");
    }

    #[track_caller]
    fn expect_metrics(&self, workers: usize) {
        let lines: Vec<_> =
            self.stderr.lines().skip_while(|line| !line.starts_with("counted in ")).collect();
        assert_eq!(lines.len(), 2 + workers, "{self:?}");
        assert!(lines[0].contains(" threads started"), "{self:?}");
        let header: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!(header, ["worker", "polls", "slot", "hits", "stolen", "parks"]);
        for (index, line) in lines[2..].iter().enumerate() {
            let row: Vec<u64> =
                line.split_whitespace().map(|number| number.parse().unwrap()).collect();
            assert_eq!(row.len(), 5, "{self:?}");
            assert_eq!(row[0], index as u64, "{self:?}");
        }
    }
}

/// The example, beside the `deps` folder that this test is in.
fn wordcount() -> Command {
    let test = env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let binary = profile.join("examples").join(format!("wordcount{}", env::consts::EXE_SUFFIX));
    assert!(
        binary.is_file(),
        "{} is missing: run `cargo build --example wordcount` or all of `cargo test`",
        binary.display()
    );
    let mut command = Command::new(binary);
    command.env("PACELINE_WORKERS", "2").env("RUST_BACKTRACE", "0");
    command
}

#[track_caller]
fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What the system says of a path that cannot be looked at.
fn os_error(path: &Path) -> String {
    fs::metadata(path).unwrap_err().to_string()
}

#[test]
fn counts_files_and_folders() {
    let folder = Folder::new("counts");
    // Sorted as paths: part by part.
    let mut counts = vec![
        (folder.write("edges.txt", "\n\n  first line\t\r\nlast"), 3),
        (folder.write("empty.txt", ""), 0),
        (folder.write("not-utf-8.bin", b"\xff\xfe one\0two \x80"), 3),
        (folder.write("spaces.txt", " \t\r\n\x0b\x0c "), 0),
        (folder.write("sub/deep/er.txt", "a b"), 2),
        (folder.write("sub/one.txt", "vertical\x0btab form\x0cfeed"), 4),
    ];
    let alone = Folder::new("counts-alone");
    counts.push((alone.write("file.txt", "named itself"), 2));
    counts.sort();

    let ran = run(wordcount().arg(&folder.0).arg(alone.path("file.txt")));
    ran.expect_code(0);
    ran.expect_counts(&counts);
    ran.expect_failures(&[]);
    ran.expect_metrics(2);
}

#[test]
fn words_go_on_in_the_next_chunk() {
    let folder = Folder::new("chunks");
    let counts = [
        (folder.write("one-word.txt", "x".repeat(1 << 20)), 1),
        // Five bytes each, so that they do not end where chunks end.
        (folder.write("words.txt", "word ".repeat(100_000)), 100_000),
    ];
    let ran = run(wordcount().arg(&folder.0));
    ran.expect_code(0);
    ran.expect_counts(&counts);
}

#[test]
fn many_files_on_any_number_of_workers() {
    let folder = Folder::new("many");
    let mut counts: Vec<_> = (0..MANY)
        .map(|i| (folder.write(&format!("{}/{i:03}.txt", i % 7), "w ".repeat(i)), i as u64))
        .collect();
    counts.sort();
    for workers in [1, 2, 5] {
        let ran = run(wordcount().arg(&folder.0).env("PACELINE_WORKERS", workers.to_string()));
        ran.expect_code(0);
        ran.expect_counts(&counts);
        ran.expect_metrics(workers);
    }
}

#[test]
fn a_missing_path_is_reported_and_the_rest_counted() {
    let folder = Folder::new("missing");
    let here = folder.write("here.txt", "one two three");
    let missing = folder.path("missing.txt");
    let ran = run(wordcount().arg(&missing).arg(&here));
    ran.expect_code(1);
    ran.expect_counts(&[(here, 3)]);
    ran.expect_failures(&[(&missing, &os_error(&missing))]);
    ran.expect_metrics(2);
}

#[test]
fn a_panicking_task_is_reported_and_the_rest_counted() {
    let folder = Folder::new("panics");
    let mut counts = Vec::new();
    let mut failures = Vec::new();
    // Some of them panic early, and some when the bound on tasks has been reached.
    for i in 0..MANY {
        counts.push((folder.write(&format!("{i:03}/fine.txt"), "one two"), 2));
        if i % 50 == 0 {
            failures.push(folder.write(&format!("{i:03}/odd.txt"), "not counted"));
        }
    }
    let ran = run(wordcount().args(["--panic-on", "odd.txt"]).arg(&folder.0));
    ran.expect_code(1);
    ran.expect_counts(&counts);
    let failures: Vec<_> = failures
        .iter()
        .map(|path| (path.as_path(), "task panicked: as --panic-on asked"))
        .collect();
    ran.expect_failures(&failures);
    ran.expect_metrics(2);
}

#[test]
fn nothing_can_be_counted() {
    let folder = Folder::new("nothing");
    let missing = folder.path("missing.txt");
    let odd = folder.write("odd.txt", "not counted");
    let ran = run(wordcount().args(["--panic-on", "odd.txt"]).arg(&missing).arg(&odd));
    ran.expect_code(1);
    ran.expect_counts(&[]);
    ran.expect_failures(&[
        (&missing, &os_error(&missing)),
        (&odd, "task panicked: as --panic-on asked"),
    ]);
}

#[cfg(unix)]
#[test]
fn links_are_followed_to_files_and_dangling_ones_reported() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new("links");
    let file = folder.write("file.txt", "one two");
    let [link, dangling, itself] = ["link", "dangling", "itself"].map(|name| folder.path(name));
    symlink("file.txt", &link).unwrap();
    symlink("nowhere", &dangling).unwrap();
    symlink("itself", &itself).unwrap();
    let ran = run(wordcount().arg(&folder.0));
    ran.expect_code(1);
    ran.expect_counts(&[(file, 2), (link, 2)]);
    ran.expect_failures(&[(&dangling, &os_error(&dangling)), (&itself, &os_error(&itself))]);
}

#[cfg(unix)]
#[test]
fn a_loop_of_links_ends() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new("loop");
    let file = folder.write("top/sub/file.txt", "one two");
    symlink("..", folder.path("top/sub/up")).unwrap();
    let ran = run(wordcount().arg(folder.path("top")));
    ran.expect_code(0);
    ran.expect_counts(&[(file, 2)]);

    // A link to a folder is followed if it is named.
    symlink("top/sub", folder.path("link")).unwrap();
    let ran = run(wordcount().arg(folder.path("link")));
    ran.expect_code(0);
    ran.expect_counts(&[(folder.path("link/file.txt"), 2)]);
}

#[cfg(unix)]
#[test]
fn a_device_is_reported() {
    let device = Path::new("/dev/zero");
    let ran = run(wordcount().arg(device));
    ran.expect_code(1);
    ran.expect_counts(&[]);
    ran.expect_failures(&[(device, "neither a file nor a folder")]);
}

#[test]
fn by_default_the_crate_counts_itself_from_anywhere() {
    let elsewhere = Folder::new("elsewhere");
    let ran = run(wordcount().current_dir(&elsewhere.0));
    ran.expect_code(0);
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join("lib.rs");
    let suffix = format!(" {}", lib.display());
    assert!(ran.stdout.lines().any(|line| line.ends_with(&suffix)), "{ran:?}");
    assert!(ran.stdout.ends_with(" total\n"), "{ran:?}");
}

#[test]
fn help_goes_to_stdout() {
    let ran = run(wordcount().args(["file", "--help"]));
    ran.expect_code(0);
    assert!(ran.stdout.starts_with("usage: wordcount "), "{ran:?}");
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_wrong_command_line_is_answered_with_the_usage() {
    let cases: [(&[&str], &str); 2] = [
        (&["src", "--frobnicate"], "unknown option --frobnicate"),
        (&["--panic-on"], "--panic-on needs a NAME"),
    ];
    for (args, complaint) in cases {
        let ran = run(wordcount().args(args));
        ran.expect_code(2);
        assert_eq!(ran.stdout, "");
        let expected = format!("wordcount: {complaint}\nusage: wordcount ");
        assert!(ran.stderr.starts_with(&expected), "{ran:?}");
    }
}
