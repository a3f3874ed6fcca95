//! A body that is counted while it passes.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use crate::{
    authorizer::Grant, hold_bytes::HoldBytes, receipt_draft::ReceiptDraft,
    token_report::TokenReport, usage_scanner::UsageScanner,
};

/// Passes frames on unchanged. If there is a meter, it reads them and ends with the body. If the client
/// leaves, it also counts what was held back: the model server has made it.
pub(crate) struct MeteredBody<B: HoldBytes> {
    inner: B,
    meter: Option<Box<AnswerMeter>>,
}

/// Counts the tokens of an answer, and hashes it for its receipt. When it is dropped, at the end of
/// the answer or when its client leaves, the tokens are charged and reported, and the receipt is
/// signed if it was not before.
struct AnswerMeter {
    scanner: Option<UsageScanner>,
    grant: Option<Grant>,
    report: Option<TokenReport>,
    receipt: Option<Box<ReceiptDraft>>,
    /// The identifier of the answer, once it was read.
    answer_id: Option<String>,
    is_complete: bool,
}

/// The uses of an answer while it passes.
#[derive(Default)]
pub(crate) struct AnswerUses {
    /// The grant that is charged for its tokens.
    pub(crate) grant: Option<Grant>,
    /// The metrics that its tokens are reported to.
    pub(crate) report: Option<TokenReport>,
    /// The receipt that is signed for it.
    pub(crate) receipt: Option<Box<ReceiptDraft>>,
}

impl<B: HoldBytes> MeteredBody<B> {
    /// A body of which nothing is counted.
    pub(crate) fn without_meter(inner: B) -> Self {
        Self { inner, meter: None }
    }

    /// The body itself. What is read from it directly is not counted.
    pub(crate) fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }
}

/// Counts the tokens of an answer for its grant and its report, and hashes it for its receipt, if it
/// has them.
pub(crate) fn meter_answer<B: Body + HoldBytes>(
    AnswerUses { mut grant, report, receipt }: AnswerUses,
    answer: Response<MeteredBody<B>>,
) -> Response<MeteredBody<B>> {
    if grant.is_none() && report.is_none() && receipt.is_none() {
        return answer;
    }
    let (mut head, mut body) = answer.into_parts();
    let is_generation =
        report.is_some() || receipt.is_some() || grant.as_ref().is_some_and(Grant::is_generation);
    let is_read = is_generation && head.status.is_success();
    let scanner = if is_read { UsageScanner::for_answer(&head.headers) } else { None };
    if let Some(grant) = &mut grant {
        grant.read_answer_head(head.status, &mut head.headers);
        if is_read && scanner.is_none() {
            grant.mark_uncounted();
        }
    }
    let is_complete = body.inner.is_end_stream();
    let mut meter = AnswerMeter { scanner, grant, report, receipt, answer_id: None, is_complete };
    meter.sign_if_complete();
    body.meter = Some(Box::new(meter));
    Response::from_parts(head, body)
}

impl AnswerMeter {
    /// Reads the next piece of the answer.
    fn read_piece(&mut self, piece: &[u8]) {
        let Some(receipt) = &mut self.receipt else {
            return self.scanner.iter_mut().for_each(|scanner| scanner.read_piece(piece));
        };
        receipt.read_piece(piece);
        let Some(scanner) = &mut self.scanner else { return };
        scanner.read_piece(piece);
        if self.answer_id.is_none() {
            self.answer_id = scanner.answer_id().map(str::to_owned);
            // Nothing else of the answer is of use if no tokens are counted.
            if self.answer_id.is_some() && self.grant.is_none() && self.report.is_none() {
                self.scanner = None;
            }
        }
    }

    /// Counts the tokens of a piece that the client does not get, and its receipt does not cover.
    fn count_held(&mut self, piece: &[u8]) {
        if let Some(scanner) = &mut self.scanner {
            scanner.read_piece(piece);
        }
    }

    /// Signs the receipt of an answer whose last byte was read: its client may ask for it as soon as
    /// it has that byte.
    fn sign_if_complete(&mut self) {
        if self.is_complete {
            self.sign_receipt();
        }
    }

    fn sign_receipt(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.finish(self.is_complete, self.answer_id.take());
        }
    }
}

impl<B: HoldBytes> Drop for MeteredBody<B> {
    fn drop(&mut self) {
        let Some(meter) = &mut self.meter else { return };
        self.inner.held_bytes().into_iter().for_each(|piece| meter.count_held(piece));
    }
}

impl Drop for AnswerMeter {
    fn drop(&mut self) {
        self.sign_receipt();
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

impl<B: Body<Data = Bytes> + HoldBytes + Unpin> Body for MeteredBody<B> {
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
                if let Some(data) = frame.data_ref() {
                    meter.read_piece(data);
                }
                // A body whose length is known is not polled again at its end.
                meter.is_complete |= this.inner.is_end_stream();
                meter.sign_if_complete();
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
