//! TLS over paceline's sockets, by futures-rustls: `cargo run --release --example tls_echo`.
//!
//! In one process: a server that sends back what it is sent; a client that trusts the server's
//! certificate, and one that takes the server for another one, which rustls does not let it. Prints what
//! came of both. The exit code is 1 if that is not what it should be.
//!
//! The certificate in `examples/tls` is its own authority; its key is known to everybody.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt, future};
use futures_rustls::client::TlsStream;
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use futures_rustls::{TlsAcceptor, TlsConnector};
use paceline::net::{TcpListener, TcpStream};
use paceline::time::timeout;

const CERTIFICATE: &[u8] = include_bytes!("tls/cert.pem");
const KEY: &[u8] = include_bytes!("tls/key.pem");

const SENT_BYTES: usize = 1 << 20;
/// Far more than it takes.
const LIMIT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    paceline::block_on(timeout(LIMIT, run()))?
}

async fn run() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (acceptor, connector) = (acceptor()?, connector()?);
    let _server = paceline::spawn(serve(listener, acceptor)); // ends when it is dropped

    let stream = connect(&connector, address, "localhost").await?;
    let version = stream.get_ref().1.protocol_version().ok_or("no version was agreed on")?;
    let sent: Vec<u8> = (0..SENT_BYTES).map(|i| (i * 31 + i / 251) as u8).collect();
    let received = exchange(stream, &sent).await?;
    if received != sent {
        return Err("what came back is not what was sent".into());
    }
    println!("tls_echo: {version:?}: {} bytes came back as they were sent", received.len());

    match connect(&connector, address, "example.org").await {
        Ok(_) => Err("a server was taken for example.org that is not".into()),
        Err(error) => {
            println!("tls_echo: as example.org: {error}");
            Ok(())
        }
    }
}

fn acceptor() -> Result<TlsAcceptor> {
    let (certificate, key) =
        (CertificateDer::from_pem_slice(CERTIFICATE)?, PrivateKeyDer::from_pem_slice(KEY)?);
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector() -> Result<TlsConnector> {
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_slice(CERTIFICATE)?)?;
    let config = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        // An error is of this connection alone, and the client is told.
        paceline::spawn(async move { echo(acceptor, stream).await }).detach();
    }
}

async fn echo(acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<()> {
    let (read, mut write) = futures_lite::io::split(acceptor.accept(stream).await?);
    futures_lite::io::copy(read, &mut write).await?;
    write.close().await
}

async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &'static str,
) -> Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    Ok(connector.connect(name.try_into()?, stream).await?)
}

/// Sends all and the end, while it reads all.
async fn exchange(stream: TlsStream<TcpStream>, sent: &[u8]) -> io::Result<Vec<u8>> {
    let (mut read, mut write) = futures_lite::io::split(stream);
    let send = async {
        write.write_all(sent).await?;
        write.close().await
    };
    let mut received = Vec::new();
    future::try_zip(send, read.read_to_end(&mut received)).await?;
    Ok(received)
}
