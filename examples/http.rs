//! An HTTP service: axum's routes, served by hyper on paceline.
//! `cargo run --release --features hyper --example http`, and then
//! `curl http://127.0.0.1:8000/stream`.
//!
//! A task per connection, HTTP/1 or HTTP/2 (`curl --http2-prior-knowledge`). Ctrl-C stops it: it
//! accepts no more, answers the requests that it has, and prints what it has counted.

mod service;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use futures_lite::StreamExt;
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use paceline::Handle;
use paceline::hyper::{Executor, Timer};
use paceline::time::{interval, sleep, timeout};
use service::{Service, Stop};

const HTTP: Service = Service {
    name: "http",
    usage: "\
usage: http [ADDRESS]
Serves HTTP/1 and HTTP/2, until Ctrl-C.
  ADDRESS  where to listen: HOST:PORT, 127.0.0.1:8000 if not given; port 0 for any that is free
  --help   print this
Routes:
  GET  /             a text
  GET  /metrics      what paceline has counted, as JSON
  GET  /stream       a few lines, one after the other
  GET  /slow/MILLIS  an answer after so long, but no later than after 500
  POST /shout        the text that is sent, in capitals",
};

/// How long a handler may take.
const LIMIT: Duration = Duration::from_millis(500);

const LINES: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    HTTP.run([Some("127.0.0.1:8000")], serve)
}

async fn serve([address]: [String; 1], stop: Stop) -> Result<(), String> {
    let listener = HTTP.listen(&address).await?;
    let service = TowerToHyperService::new(routes());
    let mut server = auto::Builder::new(Executor::new());
    server.http1().timer(Timer::new()).header_read_timeout(HEAD_LIMIT);
    server.http2().timer(Timer::new());
    let connections = GracefulShutdown::new();
    while let Some((stream, peer)) = HTTP.accept(&listener, &stop).await {
        CONNECTIONS.fetch_add(1, Relaxed);
        let connection = server.serve_connection(stream, service.clone()).into_owned();
        let connection = connections.watch(connection);
        let connection = async move {
            if let Err(error) = connection.await {
                eprintln!("http: {peer}: {error}");
            }
        };
        paceline::spawn(connection).detach();
    }
    drop(listener);
    HTTP.finish(connections.count(), connections.shutdown()).await;
    HTTP.report(&format!("connections: {CONNECTIONS:?}, requests: {REQUESTS:?}"));
    Ok(())
}

fn routes() -> Router {
    Router::new()
        .route("/", get(async || "Hello from paceline\n"))
        .route("/metrics", get(metrics))
        .route("/stream", get(stream))
        .route("/slow/{millis}", get(slow))
        .route("/shout", post(async |text: String| text.to_uppercase()))
        .layer(middleware::map_request(count))
}

async fn count(request: Request) -> Request {
    REQUESTS.fetch_add(1, Relaxed);
    request
}

async fn metrics() -> Json<BTreeMap<&'static str, u64>> {
    let metrics = Handle::current().metrics();
    let total = metrics.total();
    Json(BTreeMap::from([
        ("polls", total.polls),
        ("slot_hits", total.slot_hits),
        ("stolen", total.stolen),
        ("parks", total.parks),
        ("sources", metrics.sources as u64),
        ("timers", metrics.timers as u64),
    ]))
}

/// Each line is sent when it is there: the client need not wait for the last to see the first.
async fn stream() -> Body {
    let lines = interval(PAUSE).take(LINES).enumerate();
    let lines = lines.map(|(i, _)| Ok::<_, Infallible>(Bytes::from(format!("line {}\n", i + 1))));
    Body::from_stream(lines)
}

async fn slow(Path(millis): Path<u64>) -> Result<String, (StatusCode, &'static str)> {
    let work = async {
        sleep(Duration::from_millis(millis)).await;
        format!("done after {millis} ms\n")
    };
    timeout(LIMIT, work).await.map_err(|_| (StatusCode::GATEWAY_TIMEOUT, "that takes too long\n"))
}
