//! An HTTP server over a runtime of choice, for the load that `benches/http` makes.
//! Arguments: the arm, `--addr ADDRESS:PORT` (any port of this host without), `--workers N` (2). It
//! prints its address and serves until it is killed. Without an arm, or with `--test`, each arm
//! answers one request to itself.

mod common;

use std::convert::Infallible;
use std::net::SocketAddr;

use common::arms::{Paceline, SlotOff, Smol, Tokio, WithSlot};
use common::net::{LOOPBACK, Net, Stream};
use common::workloads;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

const BODY: &str = "Hello, world!";

/// An arm whose streams hyper reads and writes.
trait Http: Net {
    type Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static;

    fn io(stream: Self::Tcp) -> Self::Io;
}

impl<const SLOT: bool> Http for WithSlot<SLOT> {
    type Io = paceline::net::TcpStream;

    fn io(stream: Self::Tcp) -> Self::Io {
        stream.0
    }
}

impl Http for Tokio {
    type Io = hyper_util::rt::TokioIo<tokio::net::TcpStream>;

    fn io(stream: Self::Tcp) -> Self::Io {
        hyper_util::rt::TokioIo::new(stream.0)
    }
}

impl Http for Smol {
    type Io = smol_hyper::rt::FuturesIo<async_net::TcpStream>;

    fn io(stream: Self::Tcp) -> Self::Io {
        smol_hyper::rt::FuturesIo::new(stream.0)
    }
}

async fn greet(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from(BODY)))
}

async fn serve<A: Http>(listener: A::Listener) {
    loop {
        let stream = A::accept(&listener).await;
        A::launch(async move {
            let connection =
                http1::Builder::new().serve_connection(A::io(stream), service_fn(greet));
            // An error is a client that hung up.
            let _ = connection.await;
        });
    }
}

/// Prints the address and serves.
fn run<A: Http>(workers: usize, address: SocketAddr) {
    A::new(workers).in_task(async move {
        let (listener, address) = A::listen(address).await;
        println!("{address}");
        serve::<A>(listener).await;
    });
}

/// One request, answered.
fn check<A: Http>() {
    let reply = A::new(workloads::workers()).in_task(async {
        let (listener, address) = A::listen(LOOPBACK).await;
        A::launch(serve::<A>(listener));
        let mut client = A::connect(address).await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").await;
        let (mut reply, mut buffer) = (Vec::new(), [0; 1_024]);
        loop {
            match client.read(&mut buffer).await {
                0 => break String::from_utf8(reply).unwrap(),
                count => reply.extend_from_slice(&buffer[..count]),
            }
        }
    });
    let is_right = reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with(BODY);
    assert!(is_right, "{} answered {reply:?}", A::NAME);
    println!("{}: answered", A::NAME);
}

/// An arm's name, its server and its check.
type Server = (&'static str, fn(usize, SocketAddr), fn());

const fn server<A: Http>() -> Server {
    (A::NAME, run::<A>, check::<A>)
}

const SERVERS: [Server; 4] =
    [server::<Paceline>(), server::<Tokio>(), server::<Smol>(), server::<SlotOff>()];

fn main() {
    let (mut chosen, mut address, mut workers) = (None, LOOPBACK, workloads::workers());
    let mut test = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--addr" => {
                let given = arguments.next().and_then(|a| a.parse().ok());
                address = given.expect("--addr wants ADDRESS:PORT");
            }
            "--workers" => {
                let number = arguments.next().and_then(|n| n.parse().ok());
                workers = number.filter(|&n| n > 0).expect("--workers wants a number above zero");
            }
            "--test" => test = true,
            "--bench" => {}
            name => {
                let arms = SERVERS.map(|server| server.0);
                let server = SERVERS.into_iter().find(|server| server.0 == name);
                chosen =
                    Some(server.unwrap_or_else(|| panic!("no arm {name:?}; there are {arms:?}")));
            }
        }
    }
    match chosen {
        Some((_, run, _)) if !test => run(workers, address),
        _ => SERVERS.iter().for_each(|(_, _, check)| check()),
    }
}
