//! Halves of streams.

use std::io;

use futures_lite::{AsyncReadExt, AsyncWriteExt, future};
use paceline::spawn;

use crate::{each, pair, ready_now};

#[test]
fn borrowed_halves_read_and_write_at_once() {
    each(async || {
        let ((mut near, mut far), text) = (pair().await?, [7; 100_000]);
        {
            let ((mut read, mut write), mut other) = (near.split(), &far);
            let echo = async {
                let mut buffer = vec![0; text.len()];
                other.read_exact(&mut buffer).await?;
                other.write_all(&buffer).await
            };
            let mut buffer = vec![0; text.len()];
            let both = future::zip(write.write_all(&text), read.read_exact(&mut buffer));
            let (echoed, (written, read)) = future::zip(echo, both).await;
            echoed.and(written).and(read)?;
            assert_eq!(buffer, text);
        }
        // Dropping them closed nothing.
        near.write_all(b"!").await?;
        far.read_exact(&mut [0]).await
    });
}

#[test]
fn owned_halves_go_to_two_tasks() {
    each(async || {
        let (near, mut far) = pair().await?;
        let (mut read, mut write) = near.into_split();
        let writer = spawn(async move {
            write.write_all(b"question").await?;
            // And drops it, which the peer reads as the end.
            io::Result::Ok(())
        });
        let reader = spawn(async move {
            let mut text = String::new();
            read.read_to_string(&mut text).await.map(|_| text)
        });
        let mut text = String::new();
        far.read_to_string(&mut text).await?;
        far.write_all(b"answer").await?;
        drop(far);
        writer.await?;
        assert_eq!((text.as_str(), reader.await?.as_str()), ("question", "answer"));
        Ok(())
    });
}

#[test]
fn a_forgotten_half_does_not_tell_of_the_end() {
    each(async || {
        let (near, mut far) = pair().await?;
        let (read, write) = near.into_split();
        let addr = read.as_ref().local_addr()?;
        assert_eq!(write.as_ref().local_addr()?, addr);
        write.forget();
        // An end would have come before this does.
        read.as_ref().write_all(b"!").await?;
        assert_eq!(far.read(&mut [0; 8]).await?, 1);
        let mut buffer = [0; 8];
        assert!(ready_now(&mut Box::pin(far.peek(&mut buffer))).await.is_none());
        drop(read);
        assert_eq!(far.read(&mut [0; 1]).await?, 0, "the stream is closed with its last half");
        Ok(())
    });
}

#[test]
fn halves_of_one_stream_reunite_and_others_do_not() {
    each(async || {
        let ((near, mut far), (other, _peer)) = (pair().await?, pair().await?);
        let ((read, write), (other_read, other_write)) = (near.into_split(), other.into_split());
        let error = read.reunite(other_write).expect_err("of two streams");
        assert!(error.to_string().contains("two streams"), "{error} {error:?}");
        let (read, other_write) = (error.0, error.1);
        let mut near = write.reunite(read).expect("of one");
        other_read.reunite(other_write).expect("of one");
        // Reunited without an end.
        near.write_all(b"whole").await?;
        far.write_all(b"again").await?;
        near.read_exact(&mut [0; 5]).await?;
        far.read_exact(&mut [0; 5]).await
    });
}
