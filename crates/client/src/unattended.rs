//! An HTTP/1.1 connection without a task of its own: whoever waits for an answer moves its bytes. A task
//! would have to be woken for each piece of an answer, and would wake the waiting one in turn.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1::SendRequest},
};
use tokio::runtime::Handle;

/// Moves the bytes of a connection until its end.
type Transport = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An HTTP/1.1 connection whose bytes move only while one of its methods is polled.
pub(crate) struct UnattendedConnection<B> {
    sender: SendRequest<B>,
    /// `None` once the connection has ended, or has a task of its own.
    transport: Option<Transport>,
    runtime: Handle,
}

impl<B> UnattendedConnection<B> {
    /// A connection whose requests are given to `sender` and whose bytes `transport` moves. Must be
    /// called inside a runtime.
    pub(crate) fn new(
        sender: SendRequest<B>,
        transport: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { sender, transport: Some(Box::pin(transport)), runtime: Handle::current() }
    }

    /// Moves the bytes that can be moved now.
    pub(crate) fn poll_transport(&mut self, cx: &mut Context<'_>) {
        if let Some(transport) = &mut self.transport
            && transport.as_mut().poll(cx).is_ready()
        {
            self.transport = None;
        }
    }

    /// Gives the connection a task of its own, for a caller who keeps it apart from its answers.
    pub(crate) fn attend(&mut self) {
        if let Some(transport) = self.transport.take() {
            drop(self.runtime.spawn(transport));
        }
    }

    /// Waits until the connection has ended.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_transport(cx);
        if self.is_closed() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether the connection has ended, as far as somebody has looked.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// The runtime in which the connection was opened.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Does some work that needs the bytes of this connection.
    pub(crate) async fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.poll_transport(cx);
            work.as_mut().poll(cx)
        })
        .await
    }
}

impl<B: Body + 'static> UnattendedConnection<B> {
    /// Waits until the connection can take a request.
    ///
    /// # Errors
    /// hyper's, if the connection has ended.
    pub(crate) async fn ready(&mut self) -> hyper::Result<()> {
        poll_fn(|cx| {
            self.poll_transport(cx);
            self.sender.poll_ready(cx)
        })
        .await
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// hyper's, with the request if no byte of it was sent.
    pub(crate) async fn try_send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        let answered = self.sender.try_send_request(request);
        self.run(answered).await
    }
}

/// The connection ends as the protocols want it, which takes a moment.
impl<B> Drop for UnattendedConnection<B> {
    fn drop(&mut self) {
        self.attend();
    }
}
