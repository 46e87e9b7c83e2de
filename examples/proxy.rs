//! Passes TCP connections on: `cargo run --release --example proxy 127.0.0.1:8080 example.org:80`.
//!
//! A task per connection, with a future for each direction. The end of one direction is passed on,
//! and the other goes on. Ctrl-C stops it: it accepts no more, gives the open connections a little
//! time, and prints what it has counted.

mod service;

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt, future};
use paceline::net::TcpStream;
use paceline::time::timeout;
use service::{Connections, Service, Stop};

const PROXY: Service = Service {
    name: "proxy",
    usage: "\
usage: proxy LISTEN TARGET
Accepts connections and passes them on, until Ctrl-C.
  LISTEN  where to listen: HOST:PORT; port 0 for any that is free
  TARGET  where to connect to: HOST:PORT
  --help  print this",
};

const CHUNK_BYTES: usize = 16 * 1024;

/// How long the target may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
static BYTES_TO_TARGET: AtomicU64 = AtomicU64::new(0);
static BYTES_BACK: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    PROXY.run([None, None], serve)
}

async fn serve([listen, target]: [String; 2], stop: Stop) -> Result<(), String> {
    let listener = PROXY.listen(&listen).await?;
    let connections = Connections::new();
    while let Some((client, peer)) = PROXY.accept(&listener, &stop).await {
        CONNECTIONS.fetch_add(1, Relaxed);
        let (open, target) = (connections.open(), target.clone());
        let connection = async move {
            if let Err(error) = pass_on(client, &target).await {
                FAILED.fetch_add(1, Relaxed);
                eprintln!("proxy: {peer} to {target}: {error}");
            }
            drop(open);
        };
        paceline::spawn(connection).detach();
    }
    drop(listener);
    PROXY.finish(connections.count(), connections.ended()).await;
    PROXY.report(&format!(
        "connections: {CONNECTIONS:?}, failed: {FAILED:?}, \
         bytes to the target: {BYTES_TO_TARGET:?}, back: {BYTES_BACK:?}"
    ));
    Ok(())
}

async fn pass_on(client: TcpStream, target: &str) -> io::Result<()> {
    let target = timeout(PATIENCE, TcpStream::connect(target)).await??;
    let there = copy(&client, &target, &BYTES_TO_TARGET);
    let back = copy(&target, &client, &BYTES_BACK);
    future::try_zip(there, back).await?;
    Ok(())
}

/// One direction, until its end.
///
/// # Errors
/// If `from` cannot be read: it is gone, so that the other direction is useless as well. If `to`
/// takes no more, that is only the end: what it has sent before may still be on its way.
async fn copy(mut from: &TcpStream, mut to: &TcpStream, bytes: &AtomicU64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            // Nothing is to be told to who has closed already.
            let _ = to.close().await;
            return Ok(());
        }
        if to.write_all(&chunk[..count]).await.is_err() {
            return Ok(());
        }
        bytes.fetch_add(count as u64, Relaxed);
    }
}
