//! Workloads of sockets. Both ends of every connection are tasks of the runtime, and they are
//! connected before the first round; an echo is a message of 64 bytes there and back.

use std::future::Future;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Runner, primes};
use crate::common::arms::Arm;
use crate::common::measure::{Histogram, Sample, measured};
use crate::common::net::{LOOPBACK, Net, Stream};

const MESSAGE: usize = 64;

/// Larger than a message, as a server's buffer is.
const BUFFER: usize = 1_024;

/// Both ends of each connection.
type Ends<S> = Vec<(S, S)>;

async fn tcp<A: Net>(connections: usize) -> Ends<A::Tcp> {
    let (listener, address) = A::listen(LOOPBACK).await;
    let mut ends = Vec::with_capacity(connections);
    for _ in 0..connections {
        let client = A::connect(address).await;
        ends.push((client, A::accept(&listener).await));
    }
    ends
}

/// Sends back what comes in, until that was so many echoes.
async fn serve<S: Stream>(mut stream: S, echoes: usize) -> S {
    let mut buffer = [0; BUFFER];
    let mut left = echoes * MESSAGE;
    while left > 0 {
        let count = stream.read(&mut buffer).await;
        assert_ne!(count, 0, "the other end hung up");
        stream.write_all(&buffer[..count]).await;
        left -= count;
    }
    stream
}

/// Sends the message and waits for it to come back.
async fn echo<'a>(
    stream: &mut impl Stream,
    message: &[u8; MESSAGE],
    buffer: &'a mut [u8; BUFFER],
) -> &'a [u8] {
    stream.write_all(message).await;
    let mut came = 0;
    while came < MESSAGE {
        let count = stream.read(&mut buffer[came..]).await;
        assert_ne!(count, 0, "the other end hung up");
        came += count;
    }
    &buffer[..came]
}

async fn call<S: Stream>(mut stream: S, echoes: usize) -> S {
    let mut buffer = [0; BUFFER];
    for _ in 0..echoes {
        black_box(echo(&mut stream, &[7; MESSAGE], &mut buffer).await);
    }
    stream
}

/// The same, noting how long each takes.
async fn timed_call<S: Stream>(mut stream: S, echoes: usize, took: Arc<Mutex<Histogram>>) -> S {
    let (mut buffer, mut mine) = ([0; BUFFER], Histogram::new());
    let mut now = Instant::now();
    for _ in 0..echoes {
        black_box(echo(&mut stream, &[7; MESSAGE], &mut buffer).await);
        let before = std::mem::replace(&mut now, Instant::now());
        mine.add(now - before);
    }
    took.lock().unwrap().merge(&mine);
    stream
}

/// One round: a task per end, which give the ends back.
async fn round<A, S, C>(
    ends: Ends<S>,
    echoes: usize,
    client: impl Fn(S, usize) -> C + Send,
) -> Ends<S>
where
    A: Arm,
    S: Stream,
    C: Future<Output = S> + Send + 'static,
{
    let tasks: Vec<_> = ends
        .into_iter()
        .map(|(near, far)| (A::spawn(client(near, echoes)), A::spawn(serve(far, echoes))))
        .collect();
    let mut ends = Vec::with_capacity(tasks.len());
    for (near, far) in tasks {
        ends.push((near.await, far.await));
    }
    ends
}

/// Rounds of `operations` in all, of so many echoes per connection.
fn rounds<A, S, C>(
    arm: A,
    mut ends: Ends<S>,
    operations: usize,
    echoes: usize,
    client: impl Fn(S, usize) -> C + Clone + Send + 'static,
) -> Runner
where
    A: Arm,
    S: Stream,
    C: Future<Output = S> + Send + 'static,
{
    Box::new(move || {
        let taken = std::mem::take(&mut ends);
        measured(operations as u64, || {
            ends = arm.in_task(round::<A, S, C>(taken, echoes, client.clone()));
        })
    })
}

/// Echoes over so many TCP connections at once.
pub fn echo_tcp<A: Net, const CONNECTIONS: usize>(arm: A) -> Runner {
    raise_file_limit();
    let echoes = echoes_over(CONNECTIONS);
    let ends = arm.in_task(tcp::<A>(CONNECTIONS));
    rounds(arm, ends, CONNECTIONS * echoes, echoes, call)
}

/// Of each connection; enough for a round of tens of milliseconds.
fn echoes_over(connections: usize) -> usize {
    (16_000 / connections).clamp(20, 4_000)
}

/// The same for a number that is known later; watched is how long an echo takes.
pub fn timed_echo_tcp<A: Net>(arm: A, connections: usize) -> Runner {
    raise_file_limit();
    let echoes = echoes_over(connections);
    let ends = arm.in_task(tcp::<A>(connections));
    let took = Arc::new(Mutex::new(Histogram::new()));
    let client = {
        let took = took.clone();
        move |stream, echoes| timed_call(stream, echoes, took.clone())
    };
    watching(took, rounds(arm, ends, connections * echoes, echoes, client))
}

/// Watches the echoes that a round notes.
fn watching(took: Arc<Mutex<Histogram>>, mut round: Runner) -> Runner {
    Box::new(move || {
        let sample = round();
        let took = std::mem::replace(&mut *took.lock().unwrap(), Histogram::new());
        Sample { watched: Some(took.watched("echo")), ..sample }
    })
}

/// Echoes over one pair of Unix sockets.
#[cfg(unix)]
pub fn echo_unix<A: Net>(arm: A) -> Runner {
    const ECHOES: usize = 4_000;
    let ends = arm.in_task(async { vec![A::unix_pair()] });
    rounds(arm, ends, ECHOES, ECHOES, call)
}

/// Echoes between one pair of UDP sockets.
pub fn echo_udp<A: Net>(arm: A) -> Runner {
    const ECHOES: usize = 4_000;
    let mut sockets = Some(arm.in_task(async { (A::bind_udp().await, A::bind_udp().await) }));
    Box::new(move || {
        let (near, far) = sockets.take().unwrap();
        let (from, to) = (near.1, far.1);
        measured(ECHOES as u64, || {
            sockets = Some(arm.in_task(async move {
                let server = A::spawn(serve_datagrams::<A>(far.0, ECHOES));
                let client = A::spawn(call_by_datagram::<A>(near.0, to, ECHOES));
                ((client.await, from), (server.await, to))
            }));
        })
    })
}

async fn serve_datagrams<A: Net>(socket: A::Udp, echoes: usize) -> A::Udp {
    let mut buffer = [0; BUFFER];
    for _ in 0..echoes {
        let (count, from) = A::recv_from(&socket, &mut buffer).await;
        A::send_to(&socket, &buffer[..count], from).await;
    }
    socket
}

async fn call_by_datagram<A: Net>(socket: A::Udp, to: SocketAddr, echoes: usize) -> A::Udp {
    let mut buffer = [0; BUFFER];
    for _ in 0..echoes {
        A::send_to(&socket, &[7; MESSAGE], to).await;
        assert_eq!(A::recv_from(&socket, &mut buffer).await, (MESSAGE, to));
    }
    socket
}

/// 200 tasks 20 times: an echo that is parsed, a sleep of 1 ms, an echo, and some computing; an
/// operation is one of these 4,000. Watched is how long the first echo takes.
pub fn mixed<A: Net>(arm: A) -> Runner {
    const TASKS: usize = 200;
    const TIMES: usize = 20;

    async fn client<A: Net>(
        mut stream: A::Tcp,
        echoes: usize,
        took: Arc<Mutex<Histogram>>,
    ) -> A::Tcp {
        let (mut buffer, mut mine) = ([0; BUFFER], Histogram::new());
        for time in 0..echoes as u64 / 2 {
            let start = Instant::now();
            let reply = echo(&mut stream, &request(time), &mut buffer).await;
            mine.add(start.elapsed());
            let limit = parsed(reply);
            assert_eq!(limit, time + 200);
            A::sleep_until(Instant::now() + Duration::from_millis(1)).await;
            echo(&mut stream, &request(time), &mut buffer).await;
            black_box(primes(0..limit));
        }
        took.lock().unwrap().merge(&mine);
        stream
    }

    raise_file_limit();
    let ends = arm.in_task(tcp::<A>(TASKS));
    let took = Arc::new(Mutex::new(Histogram::new()));
    let client = {
        let took = took.clone();
        move |stream, echoes| client::<A>(stream, echoes, took.clone())
    };
    watching(took, rounds(arm, ends, TASKS * TIMES, 2 * TIMES, client))
}

/// A line of names and values, with blanks after it.
fn request(time: u64) -> [u8; MESSAGE] {
    let mut message = [b' '; MESSAGE];
    let line = format!("GET time={time} offset=200 check=off");
    message[..line.len()].copy_from_slice(line.as_bytes());
    message
}

/// The sum of the line's values that are numbers.
fn parsed(line: &[u8]) -> u64 {
    let words = std::str::from_utf8(line).unwrap().split_ascii_whitespace();
    let values = words.filter_map(|word| word.split_once('='));
    values.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

/// As many files as the system lets this process have: a thousand connections of four arms are more
/// than the usual 1,024.
#[cfg(unix)]
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the first call fills `limit`, the second reads it.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    assert!(done, "the limit of open files: {}", std::io::Error::last_os_error());
}

#[cfg(not(unix))]
fn raise_file_limit() {}
