//! `LocalRuntime`: a runtime of one thread.

use std::time::Duration;

use paceline::{LocalRuntime, spawn_local};

#[test]
fn timers_and_sockets_work_on_the_one_thread() {
    let runtime = LocalRuntime::new().unwrap();
    runtime.block_on(async {
        let listener = paceline::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = spawn_local(async move {
            let (stream, _) = listener.accept().await.unwrap();
            futures::io::copy(&stream, &mut &stream).await.unwrap()
        });
        use futures::{AsyncReadExt, AsyncWriteExt};
        let mut client = paceline::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let mut buffer = [0; 5];
        client.read_exact(&mut buffer).await.unwrap();
        paceline::time::sleep(Duration::from_millis(3)).await;
        drop(client);
        assert_eq!(server.await, 5);
    });
}
