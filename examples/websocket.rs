//! WebSockets over paceline's sockets, by async-tungstenite: `cargo run --release --example websocket`.
//!
//! In one process: a server that sends back what it is sent, with a task per connection, and some
//! clients at once that send it texts, a large message and a ping, and close. Prints what came of it. The
//! exit code is 1 if that is not what it should be.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use async_tungstenite::tungstenite::protocol::CloseFrame;
use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use async_tungstenite::tungstenite::{self, Message};
use async_tungstenite::{accept_async, client_async};
use futures_lite::StreamExt;
use paceline::net::{TcpListener, TcpStream};
use paceline::time::timeout;

const CLIENTS: usize = 10;
const LARGE_BYTES: usize = 1 << 20;
/// Far more than it takes.
const LIMIT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    paceline::block_on(timeout(LIMIT, run()))?
}

async fn run() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let _server = paceline::spawn(serve(listener)); // ends when it is dropped

    let clients: Vec<_> = (0..CLIENTS).map(|i| paceline::spawn(client(i, address))).collect();
    let mut messages = 0;
    for client in clients {
        messages += client.await?;
    }
    println!("websocket: {messages} messages of {CLIENTS} clients came back as they were sent");
    Ok(())
}

async fn serve(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        let connection = async move {
            if let Err(error) = echo(stream).await {
                eprintln!("websocket: {peer}: {error}");
            }
        };
        paceline::spawn(connection).detach();
    }
}

/// Until the client closes. That and pings are answered underneath.
async fn echo(stream: TcpStream) -> tungstenite::Result<()> {
    let mut socket = accept_async(stream).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

/// How many messages came back.
async fn client(i: usize, address: SocketAddr) -> Result<usize> {
    let stream = TcpStream::connect(address).await?;
    let (mut socket, response) = client_async("ws://localhost/echo", stream).await?;
    if response.status() != 101 {
        return Err(format!("the answer was {}", response.status()).into());
    }
    let large: Vec<u8> = (0..LARGE_BYTES).map(|n| (n * 31 + i) as u8).collect();
    let ping = Message::Ping("still there?".into());
    let messages =
        [Message::text(format!("client {i}")), Message::binary(large), ping, Message::text("")];
    for message in &messages {
        socket.send(message.clone()).await?;
        let expected = match message {
            Message::Ping(text) => Message::Pong(text.clone()),
            message => message.clone(),
        };
        if socket.next().await.transpose()? != Some(expected) {
            return Err(format!("client {i}: something else came back").into());
        }
    }
    let bye = CloseFrame { code: CloseCode::Normal, reason: "bye".into() };
    socket.close(Some(bye.clone())).await?;
    match socket.next().await.transpose()? {
        Some(Message::Close(Some(frame))) if frame == bye => Ok(messages.len()),
        other => Err(format!("client {i}: instead of the end came {other:?}").into()),
    }
}
