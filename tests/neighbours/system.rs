//! Files, processes and signals: by smol's crates, and on paceline's own reactor and pool.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;

use async_process::Command;
use async_signal::{Signal, Signals};
use futures::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, StreamExt};
use paceline::net::unix::UnixStream;
use paceline::{Async, spawn, unblock};

use crate::common::{alone, runtime};
use crate::{each, pair};

/// A folder of its own for each, which is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("paceline-{name}-{}", std::process::id()));
        // Of an earlier run that ended in its middle, and had this number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn async_fs_writes_reads_and_lists_files_in_many_tasks() {
    each(async || {
        let folder = Folder::new("fs");
        let path = folder.0.clone();
        crate::in_tasks(20, |i| {
            let path = path.join(format!("{i}"));
            async move {
                async_fs::write(&path, vec![i as u8; 10_000]).await.unwrap();
                assert_eq!(async_fs::read(&path).await.unwrap(), vec![i as u8; 10_000]);
            }
        })
        .await;
        let mut names = BTreeSet::new();
        let mut entries = async_fs::read_dir(&path).await.unwrap();
        while let Some(entry) = entries.next().await {
            names.insert(entry.unwrap().file_name().into_string().unwrap());
        }
        assert_eq!(names, (0..20).map(|i| i.to_string()).collect());
        let missing = async_fs::read(path.join("none")).await.expect_err("there is none");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn a_file_of_async_fs_is_sent_through_a_socket() {
    each(async || {
        let folder = Folder::new("send");
        let path = folder.0.join("file");
        let text: Vec<u8> = (0..1_000_000).map(|i| (i * 31 / 7) as u8).collect();
        let mut file = async_fs::OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .await
            .unwrap();
        file.write_all(&text).await.unwrap();
        file.flush().await.unwrap();
        file.seek(io::SeekFrom::Start(0)).await.unwrap();
        let (mut near, mut far) = pair().await.unwrap();
        let send = spawn(async move {
            futures::io::copy(file, &mut near).await?;
            near.close().await
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        send.await.unwrap();
        assert!(received == text);
    });
}

#[test]
fn unblock_does_what_async_fs_does() {
    each(async || {
        let folder = Folder::new("unblock");
        let path = folder.0.join("file");
        let text = unblock(move || {
            fs::write(&path, b"text")?;
            fs::read_to_string(&path)
        });
        assert_eq!(text.await.unwrap(), "text");
    });
}

#[test]
fn async_process_pipes_waits_and_kills() {
    each(async || {
        let mut cat =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        let sent = vec![7; 300_000];
        let write = async {
            stdin.write_all(&sent).await.unwrap();
            drop(stdin);
        };
        let mut received = Vec::new();
        let (_, read) = futures::join!(write, stdout.read_to_end(&mut received));
        assert_eq!(read.unwrap(), sent.len());
        assert!(received == sent);
        assert!(cat.status().await.unwrap().success());

        let status = Command::new("sh").args(["-c", "exit 7"]).status().await.unwrap();
        assert_eq!(status.code(), Some(7));
        let mut sleep = Command::new("sleep").arg("3600").spawn().unwrap();
        assert_eq!(sleep.try_status().unwrap(), None);
        sleep.kill().unwrap();
        assert_eq!(sleep.status().await.unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn many_processes_of_async_process_run_at_once() {
    each(async || {
        let outputs = crate::in_tasks(8, |i| async move {
            let output = Command::new("echo").arg(format!("{i}")).output().await.unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        let expected: Vec<_> = (0..8).map(|i| format!("{i}\n")).collect();
        assert_eq!(outputs.await, expected);
    });
}

/// The standard library's child: its pipes are descriptors as any others, and waiting for its end is a
/// job that blocks.
async fn through_cat(sent: &[u8]) -> Vec<u8> {
    let mut command = std::process::Command::new("cat");
    let mut cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = Async::new(cat.stdin.take().unwrap()).unwrap();
    let mut stdout = Async::new(cat.stdout.take().unwrap()).unwrap();
    let write = async {
        stdin.write_all(sent).await.unwrap();
        drop(stdin);
    };
    let mut received = Vec::new();
    let (_, read) = futures::join!(write, stdout.read_to_end(&mut received));
    read.unwrap();
    assert!(unblock(move || cat.wait()).await.unwrap().success());
    received
}

#[test]
fn pipes_to_a_process_wait_in_pacelines_reactor() {
    each(async || {
        let sent = vec![7; 300_000];
        assert!(through_cat(&sent).await == sent);
    });
}

fn raise(signal: i32) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

#[test]
fn async_signal_tells_of_signals() {
    alone("system::async_signal_tells_of_signals", || {
        let runtime = runtime(2);
        runtime.block_on(spawn(async {
            let mut signals = Signals::new([Signal::Usr1, Signal::Usr2]).unwrap();
            for (raised, expected) in [(libc::SIGUSR1, Signal::Usr1), (libc::SIGUSR2, Signal::Usr2)]
            {
                raise(raised);
                assert_eq!(signals.next().await.unwrap().unwrap(), expected);
            }
        }));
    });
}

/// Writes a byte for each of the signals to a socket; the other end of it.
fn signals_as_bytes(signal: i32) -> UnixStream {
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    signal_hook::low_level::pipe::register(signal, far).unwrap();
    UnixStream::try_from(near).unwrap()
}

#[test]
fn signals_wait_in_pacelines_reactor_as_bytes_in_a_socket() {
    alone("system::signals_wait_in_pacelines_reactor_as_bytes_in_a_socket", || {
        let runtime = runtime(2);
        runtime.block_on(spawn(async {
            let mut signals = signals_as_bytes(libc::SIGUSR1);
            for _ in 0..3 {
                raise(libc::SIGUSR1);
                signals.read_exact(&mut [0]).await.unwrap();
            }
        }));
    });
}

/// What README says of threads. Each in a process of its own.
#[cfg(target_os = "linux")]
mod threads {
    use super::*;

    use crate::expect_foreign_threads;

    #[test]
    fn async_fs_has_a_pool_and_no_reactor() {
        const NAME: &str = "system::threads::async_fs_has_a_pool_and_no_reactor";
        alone(NAME, || {
            runtime(2).block_on(async { async_fs::read("Cargo.toml").await }).unwrap();
            expect_foreign_threads(NAME, &["blocking-1"]);
        });
    }

    #[test]
    fn async_process_has_a_reactor_and_a_thread_that_drives_it() {
        const NAME: &str =
            "system::threads::async_process_has_a_reactor_and_a_thread_that_drives_it";
        alone(NAME, || {
            let status = runtime(2).block_on(async { Command::new("true").status().await });
            assert!(status.unwrap().success());
            expect_foreign_threads(NAME, &["async-io", "async-process"]);
        });
    }

    #[test]
    fn async_process_that_is_driven_by_a_task_has_a_reactor() {
        const NAME: &str = "system::threads::async_process_that_is_driven_by_a_task_has_a_reactor";
        alone(NAME, || {
            runtime(2).block_on(async {
                let mut driver = Box::pin(async_process::driver());
                // It counts from its first poll on.
                assert!(futures::poll!(&mut driver).is_pending());
                let _driver = spawn(driver);
                for _ in 0..10 {
                    assert!(Command::new("true").status().await.unwrap().success());
                }
            });
            expect_foreign_threads(NAME, &["async-io"]);
        });
    }

    #[test]
    fn async_signal_has_a_reactor() {
        const NAME: &str = "system::threads::async_signal_has_a_reactor";
        alone(NAME, || {
            runtime(2).block_on(async {
                let mut signals = Signals::new([Signal::Usr1]).unwrap();
                raise(libc::SIGUSR1);
                signals.next().await.unwrap().unwrap();
            });
            expect_foreign_threads(NAME, &["async-io"]);
        });
    }

    #[test]
    fn pacelines_own_ways_have_neither() {
        const NAME: &str = "system::threads::pacelines_own_ways_have_neither";
        alone(NAME, || {
            runtime(2).block_on(async {
                unblock(|| fs::read("Cargo.toml")).await.unwrap();
                assert_eq!(through_cat(b"text").await, b"text");
                let mut signals = signals_as_bytes(libc::SIGUSR1);
                raise(libc::SIGUSR1);
                signals.read_exact(&mut [0]).await.unwrap();
            });
            expect_foreign_threads(NAME, &[]);
        });
    }
}
