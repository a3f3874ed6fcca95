//! The answers of a *simulated* service: documents under a fake root, and faults on purpose.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::{DocumentSource, Service, internal_error_answer, no_data};
use crate::{
    answer::Answer,
    document_store::Freshness,
    faults::{Fate, Faults},
    request::{DocumentRequest, Refusal},
    simulation::Simulation,
};

impl Service {
    /// What the faults make of a request for a document: its answer and whether the body is to end
    /// in the middle, or nothing at all.
    pub(super) async fn simulated_answer(
        &self,
        simulation: &Arc<Simulation>,
        wanted: &DocumentRequest,
        held: Option<&HeaderValue>,
    ) -> Option<(Answer, bool)> {
        let (latency, fate) = simulation.next();
        if fate != Fate::Answer {
            self.metrics.faults.inc();
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match fate {
            Fate::Hang => None,
            Fate::Fail => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Some((Answer::text(status, "simulated failure"), false))
            }
            Fate::TooMany { retry_after_s } => {
                let answer = Answer::text(StatusCode::TOO_MANY_REQUESTS, "simulated limit");
                Some((answer.retry_after(retry_after_s), false))
            }
            Fate::Answer | Fate::Truncate => {
                let answer = self.simulated_document(simulation, wanted, held).await;
                Some((answer, fate == Fate::Truncate))
            }
        }
    }

    async fn simulated_document(
        &self,
        simulation: &Arc<Simulation>,
        wanted: &DocumentRequest,
        held: Option<&HeaderValue>,
    ) -> Answer {
        let (simulation, asked, now) = (Arc::clone(simulation), wanted.clone(), (self.clock)());
        // A set that is issued again is signed first.
        let finding = tokio::task::spawn_blocking(move || simulation.find(&asked, now));
        match finding.await {
            Ok(Ok(Some(document))) => {
                Answer::document(&document, wanted.encoding(), Freshness::Fresh, held)
            }
            Ok(Ok(None)) => no_data(),
            Ok(Err(error)) => internal_error_answer(&error),
            Err(error) => internal_error_answer(&error.to_string()),
        }
    }

    /// The route `/simulate`: shows the faults, and sets those of a POST.
    pub(super) async fn simulate(&self, request: Request<Incoming>) -> Answer {
        let DocumentSource::Simulated(simulation) = &self.source else {
            return Refusal::NotFound.into();
        };
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::POST => {
                let reading = Limited::new(request.into_body(), self.limits.body_bytes).collect();
                let Ok(Ok(body)) = tokio::time::timeout(self.limits.head_wait, reading).await
                else {
                    let limit = self.limits.body_bytes;
                    let text = format!("body: wanted at most {limit} bytes, all of them in time");
                    return Answer::text(StatusCode::BAD_REQUEST, text);
                };
                match Faults::from_json(&body.to_bytes()) {
                    Ok(faults) => simulation.set_faults(faults),
                    Err(error) => return Answer::text(StatusCode::BAD_REQUEST, error.to_string()),
                }
            }
            _ => {
                let answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST");
                return answer.allow("GET, HEAD, POST");
            }
        }
        match serde_json::to_vec(&simulation.faults()) {
            Ok(text) => Answer::new(StatusCode::OK, "application/json", text),
            Err(error) => internal_error_answer(&error.to_string()),
        }
    }
}
