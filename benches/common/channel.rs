//! A channel of capacity 1 for one sender and one receiver: one lock around a value and a waker.
//! The smallest that does it, so that runtimes are compared and not channels.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

struct State<T> {
    value: Option<T>,
    /// Of whoever waits: the sender for room or the receiver for a value, never both.
    waiter: Option<Waker>,
    hung_up: bool,
}

pub struct Sender<T>(Arc<Mutex<State<T>>>);
pub struct Receiver<T>(Arc<Mutex<State<T>>>);

pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(Mutex::new(State { value: None, waiter: None, hung_up: false }));
    (Sender(state.clone()), Receiver(state))
}

impl<T> Sender<T> {
    pub async fn send(&mut self, value: T) {
        let mut value = Some(value);
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.value.is_some() {
                state.waiter = Some(cx.waker().clone());
                return Poll::Pending;
            }
            state.value = value.take();
            let waiter = state.waiter.take();
            drop(state);
            waiter.into_iter().for_each(Waker::wake);
            Poll::Ready(())
        })
        .await;
    }
}

impl<T> Receiver<T> {
    /// None once the sender has gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            let Some(value) = state.value.take() else {
                if state.hung_up {
                    return Poll::Ready(None);
                }
                state.waiter = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let waiter = state.waiter.take();
            drop(state);
            waiter.into_iter().for_each(Waker::wake);
            Poll::Ready(Some(value))
        })
        .await
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap();
        state.hung_up = true;
        let waiter = state.waiter.take();
        drop(state);
        waiter.into_iter().for_each(Waker::wake);
    }
}
