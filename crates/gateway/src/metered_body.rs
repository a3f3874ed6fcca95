//! A body that is counted while it passes.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use crate::{authorizer::Grant, token_report::TokenReport, usage_scanner::UsageScanner};

/// Passes frames on unchanged. If there is a meter, it reads them and ends with the body.
pub(crate) struct MeteredBody<B> {
    inner: B,
    meter: Option<Box<AnswerMeter>>,
}

/// Counts the tokens of an answer. When it is dropped, at the end of the answer or when its client
/// leaves, they are charged and reported.
struct AnswerMeter {
    scanner: Option<UsageScanner>,
    grant: Option<Grant>,
    report: Option<TokenReport>,
    is_complete: bool,
}

impl<B> MeteredBody<B> {
    /// A body of which nothing is counted.
    pub(crate) fn without_meter(inner: B) -> Self {
        Self { inner, meter: None }
    }
}

/// Counts the tokens of an answer for its grant and its report, if it has them.
pub(crate) fn meter_answer<B: Body>(
    mut grant: Option<Grant>,
    report: Option<TokenReport>,
    answer: Response<MeteredBody<B>>,
) -> Response<MeteredBody<B>> {
    if grant.is_none() && report.is_none() {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let is_generation = report.is_some() || grant.as_ref().is_some_and(Grant::is_generation);
    let is_read = is_generation && head.status.is_success();
    let scanner = if is_read { UsageScanner::for_answer(&head.headers) } else { None };
    if let Some(grant) = &mut grant {
        grant.read_answer_head(head.status, &mut head.headers);
        if is_read && scanner.is_none() {
            grant.mark_uncounted();
        }
    }
    let is_complete = body.inner.is_end_stream();
    let meter = AnswerMeter { scanner, grant, report, is_complete };
    let body = MeteredBody { inner: body.inner, meter: Some(Box::new(meter)) };
    Response::from_parts(head, body)
}

impl Drop for AnswerMeter {
    fn drop(&mut self) {
        let Some(scanner) = self.scanner.take() else { return };
        let usage = scanner.finish(self.is_complete);
        if self.is_complete
            && let Some(report) = &self.report
        {
            report.record(&usage);
        }
        if let Some(grant) = &mut self.grant {
            if !self.is_complete && usage.total_tokens() == 0 {
                grant.mark_uncounted();
            }
            grant.set_usage(usage);
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for MeteredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let poll = Pin::new(&mut this.inner).poll_frame(cx);
        let Some(meter) = &mut this.meter else { return poll };
        match &poll {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(scanner), Some(data)) = (&mut meter.scanner, frame.data_ref()) {
                    scanner.read_piece(data);
                }
                // A body whose length is known is not polled again at its end.
                meter.is_complete |= this.inner.is_end_stream();
            }
            Poll::Ready(Some(Err(_))) => {
                if let Some(grant) = &mut meter.grant {
                    grant.mark_failed();
                }
                this.meter = None;
            }
            Poll::Ready(None) => {
                meter.is_complete = true;
                this.meter = None;
            }
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
