//! The answers of a *simulated* service: documents under a fake root, and deliberate faults.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::{DocumentSource, Service, internal_error_answer, no_data_answer};
use crate::{
    answer::Answer,
    document_store::Freshness,
    faults::{Faults, SimulatedOutcome},
    request::{DocumentRequest, DocumentRequestError},
    simulation::Simulation,
};

impl Service {
    /// The answer to a request for a document, and whether its body breaks off in the middle;
    /// `None` if the faults let the request hang.
    pub(super) async fn simulated_answer(
        &self,
        simulation: &Arc<Simulation>,
        wanted: &DocumentRequest,
        held: Option<&HeaderValue>,
    ) -> Option<(Answer, bool)> {
        let (latency, outcome) = simulation.next_outcome();
        if outcome != SimulatedOutcome::Answer {
            self.metrics.faults.inc();
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match outcome {
            SimulatedOutcome::Hang => None,
            SimulatedOutcome::Fail => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Some((Answer::text(status, "simulated failure"), false))
            }
            SimulatedOutcome::TooMany { retry_after_s } => {
                let answer = Answer::text(StatusCode::TOO_MANY_REQUESTS, "simulated limit");
                Some((answer.with_retry_after(retry_after_s), false))
            }
            SimulatedOutcome::Answer | SimulatedOutcome::Truncate => {
                let answer = self.simulated_document(simulation, wanted, held).await;
                Some((answer, outcome == SimulatedOutcome::Truncate))
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
        // This may sign a document, which blocks.
        let finding = tokio::task::spawn_blocking(move || simulation.find_or_issue(&asked, now));
        match finding.await {
            Ok(Ok(Some(document))) => {
                Answer::from_document(&document, wanted.encoding(), Freshness::Fresh, held)
            }
            Ok(Ok(None)) => no_data_answer(),
            Ok(Err(error)) => internal_error_answer(&error),
            Err(error) => internal_error_answer(&error.to_string()),
        }
    }

    /// Answers on the route `/simulate`: a POST sets the faults, and the answer lists them.
    pub(super) async fn answer_simulate_route(&self, request: Request<Incoming>) -> Answer {
        let DocumentSource::Simulated(simulation) = &self.source else {
            return DocumentRequestError::NotFound.into();
        };
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::POST => {
                let reading = Limited::new(request.into_body(), self.limits.body_bytes).collect();
                let Ok(Ok(body)) = tokio::time::timeout(self.limits.head_wait, reading).await
                else {
                    let limit = self.limits.body_bytes;
                    let text = format!("body: wanted at most {limit} bytes before the deadline");
                    return Answer::text(StatusCode::BAD_REQUEST, text);
                };
                match Faults::from_json(&body.to_bytes()) {
                    Ok(faults) => simulation.set_faults(faults),
                    Err(error) => return Answer::text(StatusCode::BAD_REQUEST, error.to_string()),
                }
            }
            _ => {
                let answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST");
                return answer.with_allow("GET, HEAD, POST");
            }
        }
        match serde_json::to_vec(&simulation.faults()) {
            Ok(text) => Answer::new(StatusCode::OK, "application/json", text),
            Err(error) => internal_error_answer(&error.to_string()),
        }
    }
}
