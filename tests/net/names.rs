//! Names and addresses.

use std::io::ErrorKind;
use std::net::SocketAddr;

use paceline::net::{TcpListener, TcpStream, UdpSocket, lookup_host};

use crate::each;

#[test]
fn localhost_is_looked_up_and_connected_to() {
    each(async || {
        let addrs = lookup_host("localhost:80").await?;
        assert!(!addrs.is_empty());
        assert!(addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 80), "{addrs:?}");
        assert_eq!(lookup_host(("localhost", 80)).await?, addrs);
        let listener = TcpListener::bind("localhost:0").await?;
        let port = listener.local_addr()?.port();
        let stream = TcpStream::connect(("localhost".to_owned(), port)).await?;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        Ok(())
    });
}

#[test]
fn a_literal_is_its_own_address() {
    each(async || {
        let addr: SocketAddr = "[::1]:80".parse().unwrap();
        assert_eq!(lookup_host("[::1]:80").await?, [addr]);
        assert_eq!(lookup_host(&&addr).await?, [addr]);
        assert_eq!(lookup_host(Vec::<SocketAddr>::new()).await?, []);
        Ok(())
    });
}

#[test]
fn a_bad_name_is_an_error_that_says_it() {
    each(async || {
        // No resolver asks others for it.
        let name = "a bad name";
        let address = format!("{name}:80");
        for result in [
            lookup_host(&address).await.map(drop),
            TcpStream::connect((name, 80)).await.map(drop),
            UdpSocket::bind(&address).await.map(drop),
        ] {
            let error = result.unwrap_err();
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
        let error = lookup_host("no port").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}
