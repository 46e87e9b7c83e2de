//! The examples `echo`, `proxy`, `http` and `thread_per_core`, run as processes, with clients that know nothing of
//! paceline: what they answer, how they stop, their exit codes. And what those tell that need no clients:
//! `supervisor`, `watchdog`, `tls_echo`, `websocket`, `embed`.
//!
//! Cargo builds examples before it runs tests, but not if it was told to build one test only:
//! `cargo test --test examples` runs the binaries that are there.
#![cfg(not(paceline_loom))]

mod common;

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use common::watched;

const ANY: &str = "127.0.0.1:0";
const PATIENCE: Duration = Duration::from_secs(20);

/// The example, beside the `deps` folder that this test is in.
fn example(name: &str) -> Command {
    let test = env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let binary = profile.join("examples").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    assert!(
        binary.is_file(),
        "{} is missing: run `cargo build --examples --all-features`, or all of `cargo test`",
        binary.display()
    );
    let mut command = Command::new(binary);
    command.env("PACELINE_WORKERS", "2").env("RUST_BACKTRACE", "0");
    command
}

/// A service that runs; killed when dropped.
struct Running {
    name: &'static str,
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Running {
    /// Starts it, and waits until it listens.
    fn start(name: &'static str, args: &[&str]) -> Running {
        let mut command = example(name);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut running = Running { name, child, stdout, address };
        running.address = running.expect_line("listening on ").parse().unwrap();
        running
    }

    fn connect(&self) -> TcpStream {
        patient(TcpStream::connect(self.address).unwrap())
    }

    /// The next line on stdout, which begins so, without that.
    #[track_caller]
    fn expect_line(&mut self, begin: &str) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let rest = line.strip_prefix(&format!("{}: {begin}", self.name));
        rest.unwrap_or_else(|| panic!("expected {begin:?}, but got {line:?}")).trim().to_owned()
    }

    #[cfg(unix)]
    fn press_ctrl_c(&self) {
        // SAFETY: no memory is involved; the child has not been waited for, so that it is the one
        // that has this number.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) }, 0);
    }

    /// Expects the last words: the counters' line, and paceline's metrics.
    #[cfg(unix)]
    #[track_caller]
    fn expect_end(&mut self, counters: &str) {
        assert_eq!(self.expect_line(""), counters);
        let metrics = self.expect_line("polls: ");
        assert!(metrics.contains(", threads started: "), "{metrics}");
        self.expect_code(0);
        assert_eq!(self.stdout.read_line(&mut String::new()).unwrap(), 0);
    }

    #[cfg(unix)]
    #[track_caller]
    fn expect_code(&mut self, code: i32) {
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.stderr());
    }

    /// Once it has ended.
    #[cfg(unix)]
    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that hangs is to fail before the watchdog sees it: then its service is killed.
fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn accept(listener: &TcpListener) -> TcpStream {
    patient(listener.accept().unwrap().0)
}

fn read_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Bytes that differ from place to place, and from seed to seed.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251 + seed * 7) % 256) as u8).collect()
}

/// Sends all and the end, while it reads all.
fn exchange(stream: &TcpStream, sent: &[u8]) -> Vec<u8> {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = stream;
            writer.write_all(sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        read_all(stream)
    })
}

/// Writes what is never read, until nothing more fits.
#[cfg(unix)]
fn clog(mut stream: &TcpStream) {
    let chunk = vec![0; 1 << 20];
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    while stream.write(&chunk).is_ok() {}
}

fn output(name: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = example(name).args(args).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.code(), stdout, stderr)
}

#[test]
fn wrong_command_lines_are_answered_with_the_usage() {
    let mut cases: Vec<(&str, &[&str], &str)> = vec![
        ("echo", &["--frobnicate"], "unknown option --frobnicate"),
        ("echo", &["localhost"], "an address is HOST:PORT, and localhost is not"),
        ("echo", &["localhost:70000"], "an address is HOST:PORT, and localhost:70000 is not"),
        ("echo", &[ANY, "localhost:1"], "what is localhost:1 for?"),
        ("proxy", &[], "an address is missing"),
        ("proxy", &[ANY], "an address is missing"),
        ("proxy", &[ANY, ANY, ANY], "what is 127.0.0.1:0 for?"),
    ];
    if cfg!(feature = "hyper") {
        cases.push(("http", &["here"], "an address is HOST:PORT, and here is not"));
    }
    for (name, args, complaint) in cases {
        let (code, stdout, stderr) = output(name, args);
        assert_eq!((code, &*stdout), (Some(2), ""), "{stderr}");
        assert!(stderr.starts_with(&format!("{name}: {complaint}\nusage: {name} ")), "{stderr}");
    }
}

#[test]
fn help_goes_to_stdout() {
    for name in ["echo", "proxy"] {
        let (code, stdout, stderr) = output(name, &["--help"]);
        assert_eq!((code, &*stderr), (Some(0), ""));
        assert!(stdout.starts_with(&format!("usage: {name} ")), "{stdout}");
    }
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let taken = TcpListener::bind(ANY).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (name, args) in [("echo", vec![&*address]), ("proxy", vec![&*address, ANY])] {
        let (code, stdout, stderr) = output(name, &args);
        assert_eq!((code, &*stdout), (Some(1), ""), "{stderr}");
        assert!(stderr.starts_with(&format!("{name}: cannot listen at {address}: ")), "{stderr}");
    }
}

#[test]
fn the_supervisor_keeps_its_worker_alive_until_that_panics_too_often() {
    watched("", || {
        let (code, stdout, stderr) = output("supervisor", &[]);
        assert_eq!(code, Some(0), "{stderr}");
        let lines: Vec<_> =
            stdout.lines().map(|line| line.strip_prefix("supervisor: ").unwrap()).collect();
        let expected = [
            "worker 1 starts",
            "worker 1 has finished job 1",
            "worker 1 has finished job 2",
            "worker 2 starts",
            "worker 2 has finished job 3",
            "worker 2 has finished job 4",
            "worker 2 has finished job 5",
            "worker 3 starts",
            "worker 4 starts",
            "worker 5 starts",
            "\"worker\" is given up after 4 restarts: task panicked: job 6 makes no sense",
            "jobs left: [6, 7]",
        ];
        assert_eq!(lines, expected);
        assert_eq!(stderr.matches("job 3 went wrong").count(), 1, "{stderr}");
        assert_eq!(stderr.matches("job 6 makes no sense").count(), 4, "{stderr}");
    });
}

#[test]
fn tls_brings_back_what_was_sent_and_refuses_a_server_of_another_name() {
    watched("", || {
        let (code, stdout, stderr) = output("tls_echo", &[]);
        assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
        let lines: Vec<_> = stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{stdout}");
        assert_eq!(lines[0], "tls_echo: TLSv1_3: 1048576 bytes came back as they were sent");
        let refused = "tls_echo: as example.org: invalid peer certificate: ";
        assert!(lines[1].starts_with(refused), "{stdout}");
    });
}

#[test]
fn web_sockets_bring_back_every_message() {
    watched("", || {
        let (code, stdout, stderr) = output("websocket", &[]);
        let expected = "websocket: 40 messages of 10 clients came back as they were sent\n";
        assert_eq!((code, &*stdout, &*stderr), (Some(0), expected, ""));
    });
}

/// All that it says, in order; none of it depends on how fast it is.
#[test]
fn the_watchdog_names_the_culprits_while_the_heart_goes_on_beating() {
    watched("", || {
        let (code, stdout, stderr) = output("watchdog", &[]);
        assert_eq!((code, &*stderr), (Some(1), ""), "{stdout}");
        let lines: Vec<_> = stdout.lines().map(|line| line.trim_start()).collect();
        let find = |what: &str| {
            let found = lines.iter().position(|line| line.contains(what));
            found.unwrap_or_else(|| panic!("no {what:?} in {stdout}"))
        };
        let beats = (1..=8).map(|beat| find(&format!("watchdog: beat {beat}")));
        assert!(beats.clone().is_sorted(), "{stdout}");
        let [begin, stuck, ready, back] =
            ["the report begins", "has been stuck", "the report is ready", "is back"].map(find);
        assert!(begin < stuck && stuck < ready && stuck < back, "{stdout}");
        assert!(beats.into_iter().any(|beat| stuck < beat && beat < ready), "{stdout}");
        for report in [lines[stuck], lines[back]] {
            let place = "in task \"report\", spawned at examples/watchdog.rs:";
            assert!(report.contains(place), "{report}");
        }
        assert!(cfg!(not(target_os = "linux")) || lines[stuck].contains("its thread is blocked"));
        let census = &lines[find("watchdog: deadlock")..];
        assert_eq!(census.len(), 5, "{stdout}");
        for (line, what) in census[1..].iter().zip(["`block_on`", "task", "task", "task"]) {
            assert!(line.starts_with(what) && line.contains("examples/watchdog.rs:"), "{stdout}");
        }
        for name in ["service", "ledger", "cash"] {
            assert!(census.iter().any(|line| line.contains(&format!("{name:?}"))), "{stdout}");
        }
    });
}

mod echo {
    use super::*;

    #[test]
    fn sends_back_what_many_clients_send_at_once() {
        watched("", || {
            let echo = Running::start("echo", &[ANY]);
            thread::scope(|scope| {
                for client in 0..20 {
                    let stream = echo.connect();
                    scope.spawn(move || {
                        let sent = bytes(client, 300_000);
                        assert!(exchange(&stream, &sent) == sent, "client {client}");
                    });
                }
            });
        });
    }

    #[test]
    fn a_client_that_resets_its_connection_harms_no_other() {
        watched("", || {
            let echo = Running::start("echo", &[ANY]);
            let rude = echo.connect();
            (&rude).write_all(b"never mind").unwrap();
            socket2::SockRef::from(&rude).set_linger(Some(Duration::ZERO)).unwrap();
            drop(rude);
            assert_eq!(exchange(&echo.connect(), b"still there?"), b"still there?");
        });
    }

    #[cfg(unix)]
    #[test]
    fn ctrl_c_ends_idle_connections_after_what_has_arrived_is_answered() {
        watched("", || {
            let mut echo = Running::start("echo", &[ANY]);
            let [first, second] = [echo.connect(), echo.connect()];
            let mut answer = [0; 5];
            for mut stream in [&first, &second] {
                stream.write_all(b"hello").unwrap();
                stream.read_exact(&mut answer).unwrap();
            }
            echo.press_ctrl_c();
            // How many there are then depends on how fast they end.
            echo.expect_line("stopping");
            assert_eq!(read_all(&first), b"");
            assert_eq!(read_all(&second), b"");
            echo.expect_end("connections: 2, bytes: 10");
            assert_eq!(echo.stderr(), "");
        });
    }

    #[cfg(unix)]
    #[test]
    fn ctrl_c_cuts_off_a_client_that_does_not_read() {
        watched("", || {
            let mut echo = Running::start("echo", &[ANY]);
            let stream = echo.connect();
            clog(&stream);
            echo.press_ctrl_c();
            echo.expect_line("stopping; open connections: 1, ");
            echo.expect_line("some have not ended");
            echo.expect_line("connections: 1, bytes: ");
            echo.expect_line("polls: ");
            echo.expect_code(0);
        });
    }

    #[cfg(unix)]
    #[test]
    fn a_second_ctrl_c_ends_it_at_once() {
        watched("", || {
            let mut echo = Running::start("echo", &[ANY]);
            let stream = echo.connect();
            clog(&stream);
            echo.press_ctrl_c();
            echo.expect_line("stopping");
            echo.press_ctrl_c();
            echo.expect_code(130);
        });
    }
}

mod proxy {
    use super::*;

    /// A target of its own, and the proxy before it.
    fn start() -> (TcpListener, Running) {
        let target = TcpListener::bind(ANY).unwrap();
        let address = target.local_addr().unwrap().to_string();
        (target, Running::start("proxy", &[ANY, &address]))
    }

    #[test]
    fn the_end_of_what_the_client_sends_is_passed_on_and_the_answer_still_comes() {
        watched("", || {
            let (target, proxy) = start();
            let mut client = proxy.connect();
            client.write_all(b"question").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut server = accept(&target);
            // It knows the question to be complete since it has seen its end.
            assert_eq!(read_all(&server), b"question");
            server.write_all(b"answer").unwrap();
            drop(server);
            assert_eq!(read_all(&client), b"answer");
        });
    }

    #[test]
    fn the_end_of_what_the_target_sends_is_passed_on_and_it_still_hears_the_client() {
        watched("", || {
            let (target, proxy) = start();
            let mut client = proxy.connect();
            let mut server = accept(&target);
            server.write_all(b"that is all").unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&client), b"that is all");
            client.write_all(b"thanks").unwrap();
            drop(client);
            assert_eq!(read_all(&server), b"thanks");
        });
    }

    #[test]
    fn much_goes_both_ways_at_once() {
        watched("", || {
            const LEN: usize = 8 << 20;
            let (target, proxy) = start();
            let client = proxy.connect();
            let server = accept(&target);
            let (there, back) = (bytes(1, LEN), bytes(2, LEN));
            let (at_client, at_server) = thread::scope(|scope| {
                let at_server = scope.spawn(|| exchange(&server, &back));
                (exchange(&client, &there), at_server.join().unwrap())
            });
            assert!(at_client == back && at_server == there);
        });
    }

    /// As an HTTP server does that refuses a body before it has read it.
    #[test]
    fn an_answer_arrives_although_the_target_reads_no_more() {
        watched("", || {
            let (target, proxy) = start();
            let client = proxy.connect();
            let mut server = accept(&target);
            server.write_all(b"too large").unwrap();
            server.shutdown(Shutdown::Both).unwrap();
            let mut answer = Vec::new();
            // It may also be told that its body has not arrived, but not before the answer.
            let _ = (&client).write_all(&bytes(0, 100_000));
            let _ = (&client).read_to_end(&mut answer);
            assert_eq!(answer, b"too large");
        });
    }

    #[test]
    fn a_target_that_refuses_does_not_end_the_proxy() {
        watched("", || {
            let (target, proxy) = start();
            let address = target.local_addr().unwrap();
            drop(target);
            let refused = (&proxy.connect()).read(&mut [0]);
            let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
            assert!(matches!(refused, Ok(0)) || refused.as_ref().is_err_and(reset), "{refused:?}");
            let target = TcpListener::bind(address).unwrap();
            let client = proxy.connect();
            let server = accept(&target);
            drop(server);
            assert_eq!(read_all(&client), b"");
        });
    }

    #[test]
    fn a_reset_by_the_client_ends_the_connection_to_the_target_and_no_other() {
        watched("", || {
            let (target, proxy) = start();
            let [rude, other] = [proxy.connect(), proxy.connect()];
            let (mut first, mut second) = (accept(&target), accept(&target));
            // Which of them was accepted first is not said.
            (&rude).write_all(b"r").unwrap();
            (&other).write_all(b"o").unwrap();
            let mut letter = [0];
            first.read_exact(&mut letter).unwrap();
            if letter == *b"o" {
                std::mem::swap(&mut first, &mut second);
            }
            socket2::SockRef::from(&rude).set_linger(Some(Duration::ZERO)).unwrap();
            drop(rude);
            while first.read(&mut letter).is_ok_and(|count| count > 0) {}
            second.write_all(b"fine").unwrap();
            drop(second);
            assert_eq!(read_all(&other), b"fine");
        });
    }

    #[cfg(unix)]
    #[test]
    fn ctrl_c_lets_open_connections_end_and_prints_the_counters() {
        watched("", || {
            let (target, mut proxy) = start();
            let client = proxy.connect();
            let mut server = accept(&target);
            (&client).write_all(b"question").unwrap();
            server.read_exact(&mut [0; 8]).unwrap();
            proxy.press_ctrl_c();
            proxy.expect_line("stopping; open connections: 1, ");
            server.write_all(b"answer").unwrap();
            drop(server);
            let mut answer = [0; 6];
            (&client).read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer");
            drop(client);
            proxy.expect_end("connections: 1, failed: 0, bytes to the target: 8, back: 6");
        });
    }
}

#[cfg(feature = "hyper")]
mod http {
    use super::*;

    use ureq::{Agent, Body, http::Response};

    fn start() -> (Running, Agent) {
        (Running::start("http", &[ANY]), agent())
    }

    /// With a connection of its own, which it keeps.
    fn agent() -> Agent {
        Agent::config_builder().http_status_as_error(false).build().into()
    }

    impl Running {
        fn url(&self, path: &str) -> String {
            format!("http://{}{path}", self.address)
        }
    }

    #[track_caller]
    fn expect(mut response: Response<Body>, status: u16, body: &str) {
        assert_eq!(response.status(), status);
        assert_eq!(response.body_mut().read_to_string().unwrap(), body);
    }

    #[test]
    fn every_route_answers() {
        watched("", || {
            let (http, agent) = start();
            let get = |path| agent.get(http.url(path)).call().unwrap();
            expect(get("/"), 200, "Hello from paceline\n");
            expect(get("/slow/1"), 200, "done after 1 ms\n");
            expect(get("/slow/60000"), 504, "that takes too long\n");
            expect(get("/slow/soon"), 400, "Invalid URL: Cannot parse `soon` to a `u64`");
            expect(get("/nowhere"), 404, "");
            let shout = agent.post(http.url("/shout"));
            expect(shout.send("quiet, please").unwrap(), 200, "QUIET, PLEASE");

            let mut metrics = get("/metrics");
            assert_eq!(metrics.headers()["content-type"], "application/json");
            let text = metrics.body_mut().read_to_string().unwrap();
            assert!(text.starts_with(r#"{"parks":"#) && text.contains(r#""polls":"#), "{text}");

            let stream = get("/stream");
            assert_eq!(stream.headers()["transfer-encoding"], "chunked");
            expect(stream, 200, "line 1\nline 2\nline 3\nline 4\nline 5\n");
        });
    }

    #[test]
    fn many_clients_are_served_at_once() {
        watched("", || {
            let (http, _) = start();
            thread::scope(|scope| {
                for _ in 0..20 {
                    scope.spawn(|| {
                        let agent = agent();
                        for _ in 0..20 {
                            let response = agent.get(http.url("/")).call().unwrap();
                            expect(response, 200, "Hello from paceline\n");
                        }
                    });
                }
            });
        });
    }

    #[cfg(unix)]
    #[test]
    fn ctrl_c_ends_idle_connections_and_lets_a_body_be_sent_to_its_end() {
        watched("", || {
            let (mut http, _) = start();
            let [idle, streaming] = [http.connect(), http.connect()];
            let mut lines = BufReader::new(&streaming).lines();
            (&streaming).write_all(b"GET /stream HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
            assert!(lines.any(|line| line.unwrap() == "line 1"));
            http.press_ctrl_c();
            http.expect_line("stopping");
            // It has sent nothing, and waits for nothing.
            assert_eq!(read_all(&idle), b"");
            assert!(lines.any(|line| line.unwrap() == "line 5"));
            assert!(lines.all(|line| !line.unwrap().contains("line")), "nothing more comes");
            http.expect_end("connections: 2, requests: 1");
        });
    }
}

#[cfg(unix)]
mod thread_per_core {
    use super::*;

    #[test]
    fn connections_are_served_by_whichever_thread_and_all_are_counted() {
        watched("", || {
            let mut server = Running::start("thread_per_core", &[ANY, "2"]);
            for number in 0..40 {
                let client = server.connect();
                assert!(exchange(&client, &bytes(number, 1000)) == bytes(number, 1000));
            }
            // One that is open is let end.
            let mut client = server.connect();
            client.write_all(b"hello").unwrap();
            client.read_exact(&mut [0; 5]).unwrap();
            server.press_ctrl_c();
            client.write_all(b"there").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&client), b"there");
            let mut total = [0, 0];
            for thread in 0..2 {
                let line = server.expect_line(&format!("thread {thread}"));
                let (_, counts) = line.split_once("connections: ").unwrap();
                let counts = counts.split(", bytes: ").map(|count| count.parse::<u64>().unwrap());
                total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
            }
            assert_eq!(total, [41, 40_010]);
            server.expect_code(0);
        });
    }

    #[test]
    fn a_wrong_command_line_is_explained() {
        watched("", || {
            for args in [&["nowhere"][..], &[ANY, "0"], &[ANY, "1", "more"]] {
                let output = example("thread_per_core").args(args).output().unwrap();
                assert_eq!(output.status.code(), Some(2));
                assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "));
            }
        });
    }

    #[test]
    fn an_address_that_is_taken_is_an_error_that_says_so() {
        watched("", || {
            let taken = TcpListener::bind(ANY).unwrap();
            let address = taken.local_addr().unwrap().to_string();
            let output = example("thread_per_core").args([&address, "2"]).output().unwrap();
            assert_eq!(output.status.code(), Some(1));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(&format!("cannot listen at {address}")), "{said}");
        });
    }
}

#[cfg(unix)]
#[test]
fn embed_runs_to_its_end_and_all_has_happened_that_should() {
    watched("", || {
        let output = example("embed").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("embed: woken by a message of its own"), "{said}");
        assert!(said.ends_with("embed: echoed 25, computed 10\n"), "{said}");
    });
}
