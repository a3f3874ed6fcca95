//! A fetch through a notary whose evidence was judged before.

use std::{ops::RangeInclusive, path::Path, sync::Arc, time::Instant};

use confide_arm_line::Outcome;
use confide_channel::Binding;
use confide_client::{
    ClientLimits, Connector, Endpoint, HttpClient, RequestBody, empty_body, error_chain, whole_body,
};
use confide_notary::{AnswerReader, FETCH_PATH, FetchRequest, GUARANTEE, KEY_PATH, KeyEvidence};
use confide_verifier::Evidence;
use http::{Request, StatusCode, request::Builder};
use http_body_util::BodyExt;

use super::answer::{DEADLINE, FetchedAnswer};
use crate::{clock::unix_now, trust::open_appraiser};

pub(super) struct NotarisedFetcher {
    host: String,
    client: HttpClient,
    key: KeyEvidence,
    validity: RangeInclusive<u64>,
    simulated: bool,
}

impl NotarisedFetcher {
    /// Opens the attested channel, judges the signing key as a third party will.
    pub(super) async fn open(host: &str, notary: &str, policy: &Path) -> Outcome<Self> {
        let appraiser = Arc::new(open_appraiser(policy, None)?);
        let endpoint = Endpoint::parse(&format!("https://{notary}"))?;
        let limits = ClientLimits { dial: DEADLINE, channel: DEADLINE, ..ClientLimits::default() };
        let connector =
            Connector::with_appraiser(endpoint, None, Binding::Key, appraiser.clone(), limits)
                .map_err(|error| error_chain(&error))?;
        let client = HttpClient::new(connector, limits, unix_now);
        let key = send_request(&client, Request::get(KEY_PATH), empty_body()).await?;
        let key = KeyEvidence::decode(&key)?;
        let evidence = Evidence {
            quote: &key.evidence.quote,
            claims: Some(&key.evidence.claims),
            ..Evidence::default()
        };
        let appraised = appraiser
            .judge(&evidence, Some(&key.evidence.endorsements))
            .map_err(|error| error_chain(&error))?;
        let claims = appraised.verdict().claims();
        let claims = claims.filter(|claims| claims.pubkey_hash == key.spki_hash());
        let claims = claims.ok_or("the notary's evidence is over another key")?;
        let validity = claims.not_before..=claims.not_after;
        let simulated = appraised.is_simulated();
        Ok(Self { host: host.into(), client, key, validity, simulated })
    }

    pub(super) fn guarantee(&self) -> String {
        let simulated =
            if self.simulated { " (simulated evidence: it protects nothing)" } else { "" };
        format!("{GUARANTEE}{simulated}")
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.simulated
    }

    pub(super) async fn fetch(&mut self, path: &str) -> Outcome<FetchedAnswer> {
        let fields = vec![("accept".to_owned(), "*/*".to_owned())];
        let url = format!("https://{}{path}", self.host);
        let request = FetchRequest::new("GET", &url, fields, Vec::new(), self.key.spki_hash())?;
        let encoded = request.encode()?;
        let answer =
            send_request(&self.client, Request::post(FETCH_PATH), whole_body(encoded)).await?;
        let mut reader = AnswerReader::default();
        let read = reader.push(&answer).map(drop).and_then(|()| reader.finish());
        let received = read?;
        let (body, began) = (received.body.clone(), Instant::now());
        received.check(&request, self.key.clone(), &self.validity)?;
        let check_ms = began.elapsed().as_secs_f64() * 1e3;
        Ok(FetchedAnswer { body, figures: vec![("holder_check_ms", check_ms)] })
    }
}

async fn send_request(
    client: &HttpClient,
    request: Builder,
    body: RequestBody,
) -> Outcome<Vec<u8>> {
    let request = request.body(body)?;
    let answer = client.request(request).await.map_err(|error| error_chain(&error))?.response;
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(|error| error_chain(&error))?;
    let bytes = body.to_bytes().to_vec();
    match status {
        StatusCode::OK => Ok(bytes),
        _ => Err(format!("the notary sent {status}: {}", String::from_utf8_lossy(&bytes)).into()),
    }
}
