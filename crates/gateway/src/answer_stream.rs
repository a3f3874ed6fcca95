//! The body of an upstream's answer, with the connection that it comes from.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::{
    answer_fault::AnswerFault,
    connection::{Connection, OpenAnswer},
    server_group::ServerPermit,
};

/// The body of an answer. Reading it to its end returns the connection to the pool; dropping it
/// earlier closes the connection, so that the upstream stops working. Either ends the permission to
/// run the request.
pub(crate) struct AnswerStream {
    lease: Option<AnswerLease>,
    /// The reason why the body was cut, until it is reported.
    fault: Option<AnswerFault>,
}

/// A running answer.
struct AnswerLease {
    answer: OpenAnswer,
    permit: ServerPermit,
    /// The longest time for which the connection is kept after the answer.
    idle_limit: Duration,
}

impl AnswerStream {
    pub(crate) fn new(answer: OpenAnswer, permit: ServerPermit, headers: &HeaderMap) -> Self {
        let idle_limit = permit.pool().idle_limit(headers);
        let mut stream =
            Self { lease: Some(AnswerLease { answer, permit, idle_limit }), fault: None };
        stream.return_connection_at_end();
        stream
    }

    fn return_connection_at_end(&mut self) {
        let is_complete = |lease: &mut AnswerLease| lease.answer.is_end_stream();
        if let Some(AnswerLease { answer, permit, idle_limit }) = self.lease.take_if(is_complete) {
            // The connection is back before the next request is admitted.
            if let Some(connection) = Connection::from_answer(answer) {
                permit.pool().keep_idle(connection, idle_limit);
            }
        }
    }
}

impl Body for AnswerStream {
    type Data = Bytes;
    type Error = AnswerFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerFault>>> {
        if let Some(fault) = self.fault.take() {
            return Poll::Ready(Some(Err(fault)));
        }
        let Some(lease) = &mut self.lease else { return Poll::Ready(None) };
        match ready!(Pin::new(&mut lease.answer).poll_frame(cx)) {
            Some(Err(fault)) => {
                self.lease = None;
                // What came before has to be on its way to the client first: whoever writes it does
                // so when nothing more is ready, and throws it away at an error.
                self.fault = Some(fault);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            frame => {
                self.return_connection_at_end();
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none() && self.fault.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.lease
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), |lease| lease.answer.size_hint())
    }
}
