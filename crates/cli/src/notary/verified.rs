//! A notary whose evidence was accepted: the channel's and that of its signing key.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use confide_channel::{Binding, ChannelError};
use confide_client::{
    AppraisalError, ClientError, ClientLimits, Connector, Endpoint, HttpClient, PolicyAppraiser,
    RequestBody, SharedAppraisal, empty_body, error_chain, whole_body,
};
use confide_notary::{
    AnswerReader, FETCH_PATH, FetchRequest, GUARANTEE, KEY_EVIDENCE_BYTES_MAX, KEY_PATH,
    KeyEvidence, MEDIA_TYPE, ReceivedAnswer, Refusal, StatementCheckError,
};
use confide_verification::hint_for_check;
use confide_verifier::{BindingLevel, Evidence, Policy, Rejection};
use http::{
    HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Limited};
use zeroize::Zeroizing;

use crate::{
    attest::arguments::{AttesterArgs, client_evidence},
    binding::EvidenceBinding,
    error::CliError,
    features::NO_ATTESTER_HINT,
    files::read_credential,
    policy,
    printable::escape_line,
    process,
    refusal::{PeerHints, explain_client_error, failed_check_error},
};

/// The claim of a client that attests.
const CLIENT_CLAIM: &str = "client of a notary";

/// The longest refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;

/// The notary, and what is demanded of it.
#[derive(clap::Args)]
pub(super) struct NotaryArgs {
    /// The notary: https://HOST[:PORT]
    #[arg(long, value_name = "URL")]
    via: String,
    /// The policy that the notary must satisfy, TOML
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Trust this root certificate (DER) in addition to the policy's
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Use these endorsements instead of those that the notary staples
    #[arg(long, value_name = "FILE", conflicts_with = "collateral_service")]
    collateral: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Evidence of this end, for a notary that demands it")]
    attester: AttesterArgs,
    /// File with this client's credential, for a notary that serves listed clients
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
    /// How the notary binds evidence to connections; by default `session` if the policy demands it or this
    /// end attests, else `key`
    #[arg(long, value_enum)]
    binding: Option<EvidenceBinding>,
    /// Milliseconds for the TCP connection, and as many again for handshake and evidence
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    deadline_ms: u64,
}

/// A verified notary: the connection is kept for several fetches.
pub(super) struct VerifiedNotary {
    via: String,
    client: HttpClient,
    /// `Bearer` and the credential, for a notary that serves listed clients.
    authorization: Option<HeaderValue>,
    /// The appraiser of the signing key's evidence.
    appraiser: PolicyAppraiser,
    key: VerifiedKey,
}

/// A signing key whose evidence was accepted.
pub(super) struct VerifiedKey {
    pub(super) bound: KeyEvidence,
    pub(super) appraised: SharedAppraisal,
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub(super) hash: [u8; 32],
    /// The life of the key by its claims, in Unix seconds.
    pub(super) validity: RangeInclusive<u64>,
}

impl VerifiedNotary {
    /// Opens the channel and verifies both keys, before anything of a request is sent.
    pub(super) async fn connect(args: &NotaryArgs) -> Result<Self, CliError> {
        let authorization = args.credential.as_deref().map(read_authorization).transpose()?;
        let endpoint = Endpoint::parse(&args.via).map_err(|error| {
            CliError::new(error).with_hint("for instance https://127.0.0.1:8443")
        })?;
        let policy = policy::file::read_notary_policy(&args.policy)?;
        let policy = policy::file::add_root(policy, args.root.as_deref())?;
        let (service, collateral) = (&args.attester.service, args.collateral.as_deref());
        // The key's evidence arrives over the channel, but a third party judges it without one.
        let unbound = Policy { binding: None, ..policy.clone() };
        let appraiser = service.build_appraiser(unbound, collateral)?;
        let own = args.attester.open_attester(None)?;
        let demands_session = policy.binding == Some(BindingLevel::Session) || own.is_some();
        let channel_appraiser = Arc::new(service.build_appraiser(policy, collateral)?);
        let deadline = Duration::from_millis(args.deadline_ms);
        let limits = ClientLimits { dial: deadline, channel: deadline, ..ClientLimits::default() };
        let binding = match (args.binding, demands_session) {
            (Some(name), _) => name.into(),
            (None, true) => Binding::Session,
            (None, false) => Binding::Key,
        };
        let connector =
            Connector::with_appraiser(endpoint, None, binding, channel_appraiser, limits)
                .and_then(|connector| match own {
                    None => Ok(connector),
                    Some(own) => connector.with_evidence(client_evidence(own, CLIENT_CLAIM)),
                })
                .map_err(|error| CliError::new(error_chain(&error)))?;
        let client = HttpClient::new(connector, limits, process::unix_now);
        let opened = client
            .open_connection()
            .await
            .map_err(|error| explain_channel_error(&args.via, &error))?;
        let claimed = opened.0.as_ref().and_then(|by| by.claimed_guarantee().map(str::to_owned));
        if claimed.as_deref() != Some(GUARANTEE) {
            return Err(guarantee_error(&args.via, claimed.as_deref()));
        }
        let via = args.via.clone();
        let key = fetch_key(&via, &client, &appraiser).await?;
        Ok(Self { via, client, authorization, appraiser, key })
    }

    /// The key that will sign.
    pub(super) fn key(&self) -> &VerifiedKey {
        &self.key
    }

    /// Sends one request and reads the whole answer; `on_piece` gets each piece of the body as it
    /// arrives. A key that was renewed in the meantime is verified like the first one.
    pub(super) async fn fetch(
        &mut self,
        request: FetchRequest,
        mut on_piece: impl FnMut(&[u8]) -> Result<(), CliError>,
    ) -> Result<(FetchRequest, ReceivedAnswer), CliError> {
        let mut request = request.with_signing_key(self.key.hash);
        let mut is_first = true;
        loop {
            let body = request.encode().map_err(|error| {
                CliError::new(error).with_hint("docs/notary.md says what a request may hold")
            })?;
            let answer = self.post_fetch_request(whole_body(body)).await?;
            if answer.status() == StatusCode::CONFLICT && is_first {
                is_first = false;
                self.key = fetch_key(&self.via, &self.client, &self.appraiser).await?;
                request = request.with_signing_key(self.key.hash);
                continue;
            }
            if answer.status() != StatusCode::OK {
                return Err(read_refusal(&self.via, answer.into_body()).await);
            }
            let mut body = answer.into_body();
            let mut reader = AnswerReader::default();
            while let Some(frame) = body.frame().await {
                let explain = |error| CliError::new(format!("{}: {error}", self.via));
                let Ok(piece) = frame.map_err(|error| explain(error_chain(&error)))?.into_data()
                else {
                    continue;
                };
                on_piece(
                    reader.push(&piece).map_err(|error| explain_answer_error(&self.via, &error))?,
                )?;
            }
            let received =
                reader.finish().map_err(|error| explain_answer_error(&self.via, &error))?;
            return Ok((request, received));
        }
    }

    async fn post_fetch_request(
        &self,
        body: RequestBody,
    ) -> Result<http::Response<confide_client::AnswerBody>, CliError> {
        let mut request = Request::post(FETCH_PATH);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        send_request(&self.via, &self.client, request, body).await
    }
}

/// Reads the value of the field `authorization`, which is sent to the notary alone, once it is verified.
fn read_authorization(path: &Path) -> Result<HeaderValue, CliError> {
    let credential = read_credential(path)?;
    let field = Zeroizing::new([b"Bearer ", &credential[..]].concat());
    let value = HeaderValue::from_bytes(&field).ok().filter(|_| field.is_ascii());
    let wanted = "wanted one line of visible ASCII";
    let mut value = value.ok_or_else(|| CliError::in_file(path)(wanted))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn send_request(
    via: &str,
    client: &HttpClient,
    request: http::request::Builder,
    body: RequestBody,
) -> Result<http::Response<confide_client::AnswerBody>, CliError> {
    let request = request.header(CONTENT_TYPE, MEDIA_TYPE).body(body);
    let request = request.map_err(|error| CliError::new(format!("{via}: {error}")))?;
    let answer =
        client.request(request).await.map_err(|error| explain_channel_error(via, &error))?;
    Ok(answer.response)
}

/// Asks for the signing key and judges its evidence as a third party will.
async fn fetch_key(
    via: &str,
    client: &HttpClient,
    appraiser: &PolicyAppraiser,
) -> Result<VerifiedKey, CliError> {
    let answer = send_request(via, client, Request::get(KEY_PATH), empty_body()).await?;
    if answer.status() != StatusCode::OK {
        return Err(read_refusal(via, answer.into_body()).await);
    }
    let read = Limited::new(answer.into_body(), KEY_EVIDENCE_BYTES_MAX).collect().await;
    let bytes = read.map_err(|error| CliError::new(format!("{via}: {error}")))?.to_bytes();
    let bound =
        KeyEvidence::decode(&bytes).map_err(|error| CliError::new(format!("{via}: {error}")))?;
    let evidence = Evidence {
        quote: &bound.evidence.quote,
        claims: Some(&bound.evidence.claims),
        ..Evidence::default()
    };
    let stapled = Some(bound.evidence.endorsements.as_slice()).filter(|bytes| !bytes.is_empty());
    let appraised =
        appraiser.judge(&evidence, stapled).map_err(|error| explain_key_error(via, &error))?;
    let hash = bound.spki_hash();
    let claims = appraised.verdict().claims();
    let Some(claims) = claims.filter(|claims| claims.pubkey_hash == hash) else {
        let reason = "its evidence is for another signing key";
        return Err(failed_check_error(via, reason, "nothing was sent to it"));
    };
    if claims.guarantee != GUARANTEE {
        return Err(guarantee_error(via, Some(&claims.guarantee)));
    }
    let validity = claims.not_before..=claims.not_after;
    Ok(VerifiedKey { bound, appraised, hash, validity })
}

fn explain_channel_error(via: &str, error: &ClientError) -> CliError {
    let network = |error: &ClientError| {
        let hint = match error {
            ClientError::Channel { source: ChannelError::Tls(_), .. } => {
                "check that a confide notary runs there, with the same --binding"
            }
            _ => "check that the notary runs there: its ready line names the address",
        };
        hint.to_owned()
    };
    let hints = PeerHints { attester: NO_ATTESTER_HINT, network: &network };
    explain_client_error(via, error, &hints)
}

fn explain_key_error(via: &str, error: &AppraisalError) -> CliError {
    let check = error.failed_check();
    let reason = format!("check `{check}` of its signing key's evidence failed: {error}");
    let rejected = error.rejection().map(Rejection::reason);
    let hint = hint_for_check(check, rejected, error.has_own_endorsements());
    failed_check_error(via, &reason, hint)
}

fn guarantee_error(via: &str, claimed: Option<&str>) -> CliError {
    let got = claimed.unwrap_or("nothing");
    let reason = format!("check `guarantee` failed: wanted `{GUARANTEE}`, got `{got}`");
    failed_check_error(via, &reason, "check that a confide notary runs there")
}

async fn read_refusal(via: &str, body: confide_client::AnswerBody) -> CliError {
    let read = Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map(|body| body.to_bytes());
    let refusal = read.ok().and_then(|bytes| serde_json::from_slice::<Refusal>(&bytes).ok());
    match refusal {
        Some(refusal) => explain_answer_error(via, &StatementCheckError::Refused(refusal)),
        None => CliError::new(format!("{via} sent neither an answer nor a refusal"))
            .with_hint("check that a confide notary of this version runs there"),
    }
}

fn explain_answer_error(via: &str, error: &StatementCheckError) -> CliError {
    let failure = CliError::new(format!("{via}: {}", escape_line(&error.to_string())));
    let StatementCheckError::Refused(refusal) = error else { return failure };
    let hint = match refusal.code.as_str() {
        "host_refused" => "the notary's operator lists the hosts in the notary's policy",
        "address_refused" => "the notary's operator lists private addresses in the notary's policy",
        "certificate_refused" => {
            "the host's certificate does not lead to a root of the notary's policy"
        }
        "busy" => "try again later",
        "client_busy" => {
            "wait for this client's other fetches; the notary's operator sets \
             limits.exchanges_per_client in the notary's policy"
        }
        "client_unknown" => {
            "give --credential FILE; the notary's operator lists the clients (notary serve --clients)"
        }
        _ => return failure,
    };
    failure.with_hint(hint)
}
