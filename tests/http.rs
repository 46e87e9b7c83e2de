//! hyper on paceline: both versions of HTTP, its executor, its timer, its I/O traits.
#![cfg(not(paceline_loom))]

mod common;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use common::{Census, on_each, on_each_size, runtime, until, watched};
use futures::future::join_all;
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Executor as _, ReadBuf, Timer as _};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use paceline::hyper::{Executor, Io, Timer};
use paceline::net::{TcpListener, TcpStream};
use paceline::{Handle, spawn};

type Answer = Result<Response<Full<Bytes>>, Infallible>;

const MANY: usize = 100;
const LARGE: usize = 16 << 20;

fn answer(bytes: impl Into<Bytes>) -> Answer {
    Ok(Response::new(Full::new(bytes.into())))
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://here{path}")).body(Empty::new()).unwrap()
}

fn number(i: usize) -> String {
    format!("/{i}")
}

async fn path(request: Request<Incoming>) -> Answer {
    answer(request.uri().path().to_owned())
}

/// Sends the body back as it comes.
async fn mirror(request: Request<Incoming>) -> Result<Response<Incoming>, Infallible> {
    Ok(Response::new(request.into_body()))
}

async fn collect(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Two ends of a connection in memory, with futures-io's traits.
struct Duplex {
    reader: piper::Reader,
    writer: piper::Writer,
}

fn duplex() -> (Duplex, Duplex) {
    let ((reader, back), (there, writer)) = (piper::pipe(1_000), piper::pipe(1_000));
    (Duplex { reader, writer }, Duplex { reader: there, writer: back })
}

impl AsyncRead for Duplex {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_close(cx)
    }
}

/// Calls `$body` with a client and a server stream, of each kind that hyper can be handed.
macro_rules! on_each_stream {
    (|$client:ident, $server:ident| $body:expr) => {
        on_each(move |runtime| {
            runtime.block_on(async {
                let ($client, $server) = tcp_pair().await;
                $body.await;
                #[cfg(unix)]
                {
                    let ($client, $server) = paceline::net::unix::UnixStream::pair().unwrap();
                    $body.await;
                }
                let ($client, $server) = duplex();
                let ($client, $server) = (Io::new($client), Io::new($server));
                $body.await;
            })
        })
    };
}

/// Serves one connection with HTTP/1; the task is to be kept, or detached.
macro_rules! serve1 {
    ($stream:expr, $service:expr) => {
        spawn(server::conn::http1::Builder::new().serve_connection($stream, service_fn($service)))
    };
}

macro_rules! serve2 {
    ($stream:expr, $service:expr) => {
        spawn(
            server::conn::http2::Builder::new(Executor::new())
                .timer(Timer::new())
                .serve_connection($stream, service_fn($service)),
        )
    };
}

#[test]
fn http1_answers_several_requests_on_one_connection() {
    on_each_stream!(|client, server| async {
        let served = serve1!(server, path);
        let (mut sender, connection) = client::conn::http1::handshake(client).await.unwrap();
        let connection = spawn(connection);
        for i in 0..10 {
            sender.ready().await.unwrap();
            let response = sender.send_request(get(&number(i))).await.unwrap();
            assert_eq!(collect(response).await, number(i));
        }
        drop(sender);
        connection.await.unwrap();
        served.await.unwrap();
    });
}

/// Answers nobody before all have asked.
#[derive(Clone)]
struct Assembly {
    asked: Arc<AtomicUsize>,
    complete: Sender<Infallible>,
    completed: Receiver<Infallible>,
}

impl Assembly {
    fn new() -> Self {
        let (complete, completed) = async_channel::bounded(1);
        Assembly { asked: Arc::default(), complete, completed }
    }

    async fn join(self, request: Request<Incoming>) -> Answer {
        if self.asked.fetch_add(1, SeqCst) + 1 == MANY {
            self.complete.close();
        }
        let Err(_closed) = self.completed.recv().await;
        path(request).await
    }
}

#[test]
fn http2_has_many_requests_open_on_one_connection() {
    on_each_stream!(|client, server| async {
        let assembly = Assembly::new();
        let served = serve2!(server, move |request| assembly.clone().join(request));
        let (sender, connection) =
            client::conn::http2::handshake(Executor::new(), client).await.unwrap();
        let connection = spawn(connection);
        let requests = (0..MANY).map(|i| {
            let mut sender = sender.clone();
            spawn(async move {
                let response = sender.send_request(get(&number(i))).await.unwrap();
                assert_eq!(collect(response).await, number(i));
            })
        });
        join_all(requests.collect::<Vec<_>>()).await;
        drop(sender);
        connection.await.unwrap();
        // It may find the client gone when it says goodbye.
        let _ = served.await;
    });
}

#[test]
fn a_hundred_connections_are_served_at_once() {
    on_each(|runtime| {
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let assembly = Assembly::new();
            let served = spawn(async move {
                for _ in 0..MANY {
                    let (stream, _) = listener.accept().await.unwrap();
                    let assembly = assembly.clone();
                    serve1!(stream, move |request| assembly.clone().join(request)).detach();
                }
            });
            let request = async |i: usize| {
                let stream = TcpStream::connect(address).await.unwrap();
                let (mut sender, connection) =
                    client::conn::http1::handshake(stream).await.unwrap();
                spawn(connection).detach();
                let response = sender.send_request(get(&number(i))).await.unwrap();
                assert_eq!(collect(response).await, number(i));
            };
            join_all((0..MANY).map(request)).await;
            served.await;
        });
    });
}

/// Bytes that differ from place to place.
fn large() -> Bytes {
    (0..LARGE).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn upload(body: &Bytes) -> Request<Full<Bytes>> {
    Request::post("http://here/").body(Full::new(body.clone())).unwrap()
}

#[test]
fn a_large_body_goes_both_ways_with_http1() {
    let sent = large();
    on_each_stream!(|client, server| async {
        serve1!(server, mirror).detach();
        let (mut sender, connection) = client::conn::http1::handshake(client).await.unwrap();
        spawn(connection).detach();
        let response = sender.send_request(upload(&sent)).await.unwrap();
        assert!(collect(response).await == sent);
    });
}

#[test]
fn a_large_body_goes_both_ways_with_http2() {
    let sent = large();
    on_each_stream!(|client, server| async {
        serve2!(server, mirror).detach();
        let (mut sender, connection) =
            client::conn::http2::handshake(Executor::new(), client).await.unwrap();
        spawn(connection).detach();
        let response = sender.send_request(upload(&sent)).await.unwrap();
        assert!(collect(response).await == sent);
    });
}

#[test]
fn a_client_that_leaves_in_its_body_is_an_error_of_that_connection_alone() {
    on_each(|runtime| {
        runtime.block_on(async {
            let (mut leaving, server) = tcp_pair().await;
            let (told, bodies) = async_channel::unbounded();
            let served = serve1!(server, move |request: Request<Incoming>| {
                let told = told.clone();
                async move {
                    let body = request.into_body().collect().await;
                    told.send(body.is_err()).await.unwrap();
                    answer("")
                }
            });
            let half = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\nhalf";
            leaving.write_all(half).await.unwrap();
            drop(leaving);
            assert!(bodies.recv().await.unwrap(), "the body has no end");
            // Whether hyper says so of the connection too depends on who is told first.
            let _ = served.await;

            let (client, server) = tcp_pair().await;
            serve1!(server, path).detach();
            let (mut sender, connection) = client::conn::http1::handshake(client).await.unwrap();
            spawn(connection).detach();
            assert_eq!(collect(sender.send_request(get("/ok")).await.unwrap()).await, "/ok");
        });
    });
}

#[test]
fn a_client_that_leaves_cancels_its_handler() {
    on_each(|runtime| {
        let census = Census::new();
        let (asked, handlers) = async_channel::unbounded();
        let handler = {
            let census = census.clone();
            move |_: Request<Incoming>| {
                let (asked, one) = (asked.clone(), census.one());
                async move {
                    let _one = one;
                    asked.send(()).await.unwrap();
                    pending::<Answer>().await
                }
            }
        };
        runtime.block_on(async {
            let (mut leaving, server) = tcp_pair().await;
            let served = serve1!(server, handler.clone());
            leaving.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
            handlers.recv().await.unwrap();
            drop(leaving);
            assert!(served.await.is_err());
            assert_eq!(census.dead(), 1);

            let (client, server) = tcp_pair().await;
            let served = serve2!(server, handler);
            let (mut sender, connection) =
                client::conn::http2::handshake(Executor::new(), client).await.unwrap();
            let connection = spawn(connection);
            let request = spawn(async move { sender.send_request(get("/")).await });
            handlers.recv().await.unwrap();
            request.cancel().await;
            connection.cancel().await;
            let _ = served.await;
        });
        // By then a task of its own, which hyper only tells to end.
        until(|| census.dead() == 2);
    });
}

#[test]
fn a_server_of_hyper_util_speaks_both_versions_and_answers_what_it_has_before_it_ends() {
    on_each(|runtime| {
        runtime.block_on(async {
            let (open, gate) = async_channel::bounded::<Infallible>(1);
            let (asked, arrivals) = async_channel::unbounded();
            let slow = move |request: Request<Incoming>| {
                let (asked, gate) = (asked.clone(), gate.clone());
                async move {
                    asked.send(()).await.unwrap();
                    let Err(_closed) = gate.recv().await;
                    path(request).await
                }
            };
            let (mut server, graceful) =
                (auto::Builder::new(Executor::new()), GracefulShutdown::new());
            server.http1().timer(Timer::new());
            server.http2().timer(Timer::new());
            let serve = |stream| {
                let connection = server.serve_connection(stream, service_fn(slow.clone()));
                spawn(graceful.watch(connection.into_owned()))
            };

            let ((client1, server1), (client2, server2)) = (tcp_pair().await, tcp_pair().await);
            let served = [serve(server1), serve(server2)];
            let (mut sender1, connection1) = client::conn::http1::handshake(client1).await.unwrap();
            let (mut sender2, connection2) =
                client::conn::http2::handshake(Executor::new(), client2).await.unwrap();
            spawn(connection1).detach();
            spawn(connection2).detach();
            let answers =
                [spawn(sender1.send_request(get("/1"))), spawn(sender2.send_request(get("/2")))];
            arrivals.recv().await.unwrap();
            arrivals.recv().await.unwrap();
            let mut end = pin!(graceful.shutdown());
            assert!(futures::poll!(&mut end).is_pending());
            open.close();
            for (answer, expected) in answers.into_iter().zip(["/1", "/2"]) {
                assert_eq!(collect(answer.await.unwrap()).await, expected);
            }
            end.await;
            for connection in served {
                connection.await.unwrap();
            }
            assert!(sender1.send_request(get("/late")).await.is_err());
            assert!(sender2.send_request(get("/late")).await.is_err());
        });
    });
}

#[test]
fn a_head_that_does_not_end_is_not_waited_for() {
    on_each(|runtime| {
        runtime.block_on(async {
            let (mut client, server) = tcp_pair().await;
            let mut builder = server::conn::http1::Builder::new();
            builder.timer(Timer::new()).header_read_timeout(Duration::from_millis(50));
            let served = spawn(builder.serve_connection(server, service_fn(path)));
            // One that does end is answered, and the time begins anew.
            client.write_all(b"GET /one HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
            let mut head = [0; 17];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200 OK\r\n");
            client.write_all(b"GET /two HTTP/1.1\r\nho").await.unwrap();
            assert!(served.await.unwrap_err().is_timeout());
            client.read_to_end(&mut Vec::new()).await.unwrap();
        });
    });
}

#[test]
fn a_ping_that_is_not_answered_ends_an_http2_connection() {
    on_each(|runtime| {
        runtime.block_on(async {
            let (mut client, server) = tcp_pair().await;
            let mut builder = server::conn::http2::Builder::new(Executor::new());
            builder
                .timer(Timer::new())
                .keep_alive_interval(Duration::from_millis(10))
                .keep_alive_timeout(Duration::from_millis(10));
            let served = spawn(builder.serve_connection(server, service_fn(path)));
            // The preface and empty settings; then nothing.
            client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
            client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            let ended = served.await;
            assert!(ended.as_ref().is_err_and(hyper::Error::is_timeout), "{ended:?}");
        });
    });
}

#[test]
fn the_end_of_a_runtime_ends_its_connections() {
    on_each(|runtime| {
        let census = Census::new();
        let one = census.one();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let server = async move {
            let _one = one;
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                serve1!(stream, path).detach();
            }
        };
        runtime.spawn(server).detach();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
        client.read_exact(&mut [0; 17]).unwrap();
        drop(runtime);
        assert_eq!(census.dead(), 1);
        client.read_to_end(&mut Vec::new()).unwrap();
        assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
    });
}

/// An executor that is told where to, from anywhere, and one that finds out.
#[test]
fn an_executor_spawns_where_it_is_told_or_where_it_is() {
    on_each_size(|workers| {
        let (first, second) = (runtime(workers), runtime(workers + 1));
        let (sender, receiver) = async_channel::unbounded();
        let size = move || {
            let sender = sender.clone();
            async move { sender.send(Handle::current().config().worker_threads()).await }
        };
        Executor::of(second.handle()).execute(size());
        assert_eq!(receiver.recv_blocking(), Ok(workers + 1));
        let executor = Executor::new();
        first.block_on(async {
            executor.execute(size());
            assert_eq!(receiver.recv().await, Ok(workers));
            Executor::of(second.handle()).execute(size());
            assert_eq!(receiver.recv().await, Ok(workers + 1));
        });
        let entered = second.handle().enter();
        executor.execute(size());
        assert_eq!(receiver.recv_blocking(), Ok(workers + 1));
        drop(entered);
    });
}

#[test]
fn a_timer_resets_its_sleeps_in_place() {
    on_each(|runtime| {
        runtime.block_on(async {
            let hour = Duration::from_secs(3_600);
            let timer = Timer::new();
            let mut sleep = timer.sleep(hour);
            let place = |sleep: &Pin<Box<dyn hyper::rt::Sleep>>| (&raw const **sleep).addr();
            let before = place(&sleep);
            assert!(futures::poll!(&mut sleep).is_pending());
            timer.reset(&mut sleep, timer.now() + Duration::from_millis(1));
            sleep.as_mut().await;
            timer.reset(&mut sleep, timer.now() + hour);
            assert!(futures::poll!(&mut sleep).is_pending(), "also after it was ready");
            assert_eq!(place(&sleep), before);
            timer.sleep_until(Instant::now()).await;
        });
    });
}

/// A sleep of some other timer.
struct Foreign;

impl Future for Foreign {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl hyper::rt::Sleep for Foreign {}

#[test]
fn a_timer_replaces_sleeps_of_other_timers() {
    watched("", || {
        let mut sleep: Pin<Box<dyn hyper::rt::Sleep>> = Box::pin(Foreign);
        Timer::new().reset(&mut sleep, Instant::now());
        paceline::block_on(sleep);
    });
}

/// Says that it has read so much, whatever it has.
#[derive(Debug)]
struct Claims(usize);

impl AsyncRead for Claims {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        assert!(buffer.iter().all(|&byte| byte == 0));
        Poll::Ready(Ok(self.0))
    }
}

fn read(stream: impl AsyncRead + Unpin, buffer: &mut ReadBuf<'_>) -> usize {
    let cx = &mut Context::from_waker(Waker::noop());
    let before = buffer.filled().len();
    let mut io = Io::new(stream);
    assert!(hyper::rt::Read::poll_read(Pin::new(&mut io), cx, buffer.unfilled()).is_ready());
    buffer.filled().len() - before
}

#[test]
fn io_does_not_believe_in_more_bytes_than_fit() {
    let mut memory = [MaybeUninit::uninit(); 8];
    let mut buffer = ReadBuf::uninit(&mut memory);
    assert_eq!(read(Claims(3), &mut buffer), 3);
    assert_eq!(read(Claims(5), &mut buffer), 5);
    assert_eq!(read(Claims(0), &mut buffer), 0, "nothing fits any more");
    let mut memory = [MaybeUninit::uninit(); 8];
    let mut buffer = ReadBuf::uninit(&mut memory);
    let result = catch_unwind(AssertUnwindSafe(|| read(Claims(9), &mut buffer)));
    let message = *result.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(message, "9 bytes were read into a buffer of 8");
    assert_eq!(buffer.filled(), b"");
}

#[test]
fn io_passes_everything_on_to_its_stream() {
    let mut io = Io::new(Claims(1));
    assert_eq!(io.get_ref().0, 1);
    io.get_mut().0 = 2;
    assert_eq!(io.into_inner().0, 2);
}
