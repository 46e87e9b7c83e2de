//! Sends back what it is sent, as in RFC 862: `cargo run --release --example echo 127.0.0.1:7000`.
//!
//! A task per connection. Ctrl-C stops it: it accepts no more, answers what has arrived, closes the
//! connections, and prints what it has counted.

mod service;

use std::io;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future};
use paceline::net::TcpStream;
use service::{Connections, Service, Stop};

const ECHO: Service = Service {
    name: "echo",
    usage: "\
usage: echo [ADDRESS]
Sends back what it is sent, until Ctrl-C.
  ADDRESS  where to listen: HOST:PORT, 127.0.0.1:7 if not given; port 0 for any that is free
  --help   print this",
};

const CHUNK_BYTES: usize = 16 * 1024;

static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    ECHO.run([Some("127.0.0.1:7")], serve)
}

async fn serve([address]: [String; 1], stop: Stop) -> Result<(), String> {
    let listener = ECHO.listen(&address).await?;
    let connections = Connections::new();
    while let Some((stream, peer)) = ECHO.accept(&listener, &stop).await {
        CONNECTIONS.fetch_add(1, Relaxed);
        let (open, stop) = (connections.open(), stop.clone());
        let connection = async move {
            if let Err(error) = echo(stream, &stop).await {
                eprintln!("echo: {peer}: {error}");
            }
            drop(open);
        };
        paceline::spawn(connection).detach();
    }
    drop(listener);
    ECHO.finish(connections.count(), connections.ended()).await;
    ECHO.report(&format!("connections: {CONNECTIONS:?}, bytes: {BYTES:?}"));
    Ok(())
}

async fn echo(mut stream: TcpStream, stop: &Stop) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut stopped = pin!(async {
        stop.requested().await;
        Ok(0)
    });
    loop {
        // In this order: what has arrived is answered before the end.
        let count = future::or(stream.read(&mut chunk), &mut stopped).await?;
        if count == 0 {
            return stream.close().await;
        }
        stream.write_all(&chunk[..count]).await?;
        BYTES.fetch_add(count as u64, Relaxed);
    }
}
