//! The receipt of an answer that is still running.

use std::sync::Arc;

use bytes::Bytes;
use confide_evidence::weights_claim::{MeasuredWeights, NOT_MEASURED};
use confide_receipt::{
    BodyDigest, CONFIGURATION_EVENT, Event, ExchangeDigests, FORWARDED_EVENT, Json, MODEL_EVENT,
    RECEIVED_EVENT, RETURNED_EVENT, Receipt, digest_text,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};
use sha2::{Digest, Sha256};

use crate::{
    openable_receipt::{CommittedBodies, OpenableDraft},
    receipt_book::{FinishedReceipt, KeptExchange, ReceiptOwner},
    receipt_client::ReceiptClient,
    receipt_signer::ReceiptSigner,
    request_facts::{DescribedBody, RequestFacts},
    request_model::describe_body,
};

/// The field of an answer that names its receipt.
const RECEIPT_ID: HeaderName = HeaderName::from_static("x-receipt-id");
/// The event of this project with what the request asks for.
const REQUEST_EVENT: &str = "confide.request";

/// The model server that answers, as a receipt describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweringServer {
    /// The digest of the model's manifest that the server states, if it was attested.
    pub(crate) manifest_sha256: Option<[u8; 32]>,
    /// The weights of the server, if the gateway measured them.
    pub(crate) weights: Option<MeasuredWeights>,
    /// Whether the server runs on the gateway's machine.
    pub(crate) is_local: bool,
}

impl AnsweringServer {
    /// Notes the server in the head of its answer, for the receipt. Removes the identifier of a
    /// receipt of the server's own.
    pub(crate) fn note(self, head: &mut response::Parts) {
        head.extensions.insert(self);
        head.headers.remove(RECEIPT_ID);
    }
}

/// A receipt from the request to the end of its answer, whose bytes it hashes.
#[derive(Clone)]
pub(crate) struct ReceiptDraft {
    signer: Arc<ReceiptSigner>,
    receipt_id: String,
    owner: ReceiptOwner,
    endpoint: String,
    request_sha256: [u8; 32],
    forwarded_sha256: [u8; 32],
    facts: Option<RequestFacts>,
    server: Option<AnsweringServer>,
    status: StatusCode,
    answer: Sha256,
    /// The second receipt, if the client wants to show parts of the bodies.
    openable: Option<OpenableDraft>,
}

impl ReceiptDraft {
    /// Begins the receipt of a request whose body was read whole. `forwarded` is the body that is sent
    /// on, unless it is sent on as it came.
    pub(crate) async fn begin(
        signer: Arc<ReceiptSigner>,
        client: ReceiptClient,
        headers: &HeaderMap,
        endpoint: &str,
        body: &Bytes,
        forwarded: Option<&[u8]>,
    ) -> Self {
        let ReceiptClient { owner, openable } = client;
        let DescribedBody { sha256: request_sha256, facts, commitment } =
            describe_body(headers, body, openable.clone()).await;
        let openable = openable.zip(commitment);
        Self {
            signer,
            receipt_id: confide_receipt::new_receipt_id(),
            owner,
            endpoint: endpoint.to_owned(),
            request_sha256,
            forwarded_sha256: forwarded.map_or(request_sha256, |body| Sha256::digest(body).into()),
            facts,
            server: None,
            status: StatusCode::OK,
            answer: Sha256::new(),
            openable: openable.map(|(wanted, request)| OpenableDraft::new(wanted, request)),
        }
    }

    /// Takes the receipt out of the head of its answer, which then names it for the client.
    pub(crate) fn take_from<B>(answer: &mut Response<B>) -> Option<Box<Self>> {
        let server = answer.extensions_mut().remove();
        let mut draft = answer.extensions_mut().remove::<Box<Self>>()?;
        (draft.status, draft.server) = (answer.status(), server);
        let id = HeaderValue::from_str(&draft.receipt_id).ok()?;
        answer.headers_mut().insert(RECEIPT_ID, id);
        Some(draft)
    }

    /// Hashes the next bytes of the answer.
    pub(crate) fn read_piece(&mut self, piece: &[u8]) {
        self.answer.update(piece);
        if let Some(openable) = &mut self.openable {
            openable.read_piece(piece);
        }
    }

    /// Signs and keeps the receipt. `is_complete` says whether the answer came to its own end,
    /// `chat_id` is the identifier in it.
    pub(crate) fn finish(mut self: Box<Self>, is_complete: bool, chat_id: Option<String>) {
        let openable = self.openable.take();
        let answer = BodyDigest { sha256: self.answer.clone().finalize().into(), is_complete };
        let events = self.list_events(&answer);
        let signer = self.signer.clone();
        let facts = self.facts.as_ref();
        let signing = match signer.current() {
            Ok(signing) => signing,
            Err(error) => return tracing::error!(%error, "an answer got no receipt"),
        };
        let receipt = Receipt {
            receipt_id: &self.receipt_id,
            chat_id: chat_id.as_deref(),
            model: facts.and_then(|facts| facts.model.as_deref()),
            keyset_digest: signing.keyset.digest(),
            endpoint: &self.endpoint,
            method: "POST",
            served_at: signer.book().now(),
            events,
        };
        let whole = signing.key.sign(&receipt).into();
        let openable = openable.and_then(|openable| {
            let receipt_id = openable.receipt_id.clone();
            let events = self.list_openable_events(openable.finish(is_complete)?);
            // Whatever follows from a body stays out, and so does the way to the whole receipt.
            let (receipt_id, chat_id, model) = (&*receipt_id, None, None);
            let receipt = Receipt { receipt_id, chat_id, model, events, ..receipt };
            Some(signing.key.sign(&receipt).into())
        });
        let (request, response) = (self.request_sha256, answer.sha256);
        let exchange = is_complete.then_some(ExchangeDigests { request, response });
        let kept = KeptExchange { receipt: whole, openable, exchange };
        let Self { receipt_id, owner, .. } = *self;
        // A shown part with the answer's identifier must not lead to the digests of the rest.
        let chat_id = chat_id.filter(|_| kept.openable.is_none());
        signer.keep(FinishedReceipt { receipt_id, chat_id, owner, kept });
    }

    /// The events of the openable receipt: commitments to the bodies in place of their digests, and
    /// nothing else that follows from them.
    fn list_openable_events(&self, bodies: CommittedBodies) -> Vec<Event> {
        let CommittedBodies { received, returned } = bodies;
        let mut events = vec![received, self.describe_configuration(), self.describe_model()];
        if !self.signer.context().is_direct {
            events.push(self.describe_upstream(None));
        }
        events.push(returned.with_member("status", self.status.as_u16().into()));
        events
    }

    fn describe_configuration(&self) -> Event {
        let digest = digest_text(&self.signer.context().config_digest);
        Event::new(CONFIGURATION_EVENT, [("config_digest", Json::from(digest))])
    }

    fn list_events(&self, answer: &BodyDigest) -> Vec<Event> {
        let received = BodyDigest { sha256: self.request_sha256, is_complete: true };
        let forwarded = BodyDigest { sha256: self.forwarded_sha256, is_complete: true };
        let mut events = vec![
            Event::of_body(RECEIVED_EVENT, &received),
            Event::of_body(FORWARDED_EVENT, &forwarded),
            self.describe_configuration(),
        ];
        if let Some(facts) = &self.facts {
            let sampling = facts.sampling.iter().map(|(name, text)| (*name, text.clone().into()));
            events.push(Event::new(REQUEST_EVENT, [("sampling", Json::object(sampling))]));
        }
        events.push(self.describe_model());
        if !self.signer.context().is_direct {
            let model = self.facts.as_ref().and_then(|facts| facts.model.as_deref());
            events.push(self.describe_upstream(model));
        }
        let returned = Event::of_body(RETURNED_EVENT, answer);
        events.push(returned.with_member("status", self.status.as_u16().into()));
        events
    }

    /// What is known of the model: the weights that the gateway measured, or else the manifest that
    /// the model server states.
    fn describe_model(&self) -> Event {
        let weights = self.server.and_then(|server| server.weights);
        let manifest = self.server.and_then(|server| server.manifest_sha256);
        let provenance = match (weights, manifest) {
            (Some(weights), _) => weights.source.as_str(),
            (None, Some(_)) => "stated by the model server",
            (None, None) => NOT_MEASURED,
        };
        let mut event = Event::new(MODEL_EVENT, [("weights", provenance.into())]);
        if let Some(manifest) = manifest {
            event = event.with_member("manifest_sha256", hex::encode(manifest).into());
        }
        match weights {
            Some(weights) => {
                event.with_member("weights_sha256", hex::encode(weights.digest).into())
            }
            None => event,
        }
    }

    /// The event about the hop to the model server, which an aggregator's receipts have. No model
    /// server is attested yet.
    fn describe_upstream(&self, model: Option<&str>) -> Event {
        let is_local = self.server.is_some_and(|server| server.is_local);
        let reason = match is_local {
            true => "the model server runs on the attested machine and has no evidence of its own",
            false => "the model server is on another machine and is not attested",
        };
        let members = [
            ("result", Json::from("failed")),
            ("required", false.into()),
            ("model_id", model.unwrap_or_default().into()),
            ("reason", reason.into()),
        ];
        Event::new("upstream.verified", members)
    }
}
