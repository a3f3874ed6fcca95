//! A notary whose evidence was accepted: the channel's and that of its signing key.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use confide_channel::{Binding, ChannelError};
use confide_client::{
    AppraisalError, Blame, ClientError, ClientLimits, Connector, Endpoint, HttpClient,
    PolicyAppraiser, RequestBody, SharedAppraisal, no_body, whole_body, with_causes,
};
use confide_evidence::collateral::COLLATERAL_LENGTH_MAX;
use confide_notary::{
    AnswerReader, FETCH_PATH, FetchRequest, GUARANTEE, HolderError, KEY_EVIDENCE_BYTES_MAX,
    KEY_PATH, KeyEvidence, MEDIA_TYPE, Received, Refusal,
};
use confide_verifier::{BindingLevel, Evidence, Policy};
use http::{
    HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Limited};
use zeroize::Zeroizing;

use super::fetch::BindingName;
use crate::{
    attest::chosen::{AttesterArgs, client_evidence},
    connect,
    error::{CliError, read_file},
    features::NO_ATTESTER_HINT,
    policy, process,
};

/// The evidence was judged and refused, or what was signed is not what was sent and received.
pub(super) const STATUS_REFUSED: u8 = 1;

/// A credential is at most 64 bytes; a line end after it is no part of it.
const CREDENTIAL_BYTES_MAX: u64 = 66;

/// Said of itself by a client that attests.
const CLIENT_CLAIM: &str = "client of a notary";

/// A refusal in place of an answer.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;

/// Whom to ask, and what is demanded of it.
#[derive(clap::Args)]
pub(super) struct NotaryArgs {
    /// The notary: https://HOST[:PORT]
    #[arg(long, value_name = "URL")]
    via: String,
    /// What is demanded of it, as TOML
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Trust this root certificate (DER) beside the policy's
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Use these endorsements instead of what the notary staples
    #[arg(long, value_name = "FILE", conflicts_with = "collateral_service")]
    collateral: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Evidence of this end, for a notary that demands it")]
    attester: AttesterArgs,
    /// What a notary that serves listed clients knows this one by: a file with its credential
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
    /// How the notary ties evidence to connections; else as the policy says, and `session` where
    /// this end attests
    #[arg(long, value_enum)]
    binding: Option<BindingName>,
    /// Milliseconds that TCP, and after it handshake and evidence, may take
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    deadline_ms: u64,
}

/// A verified notary: the connection is kept for several fetches.
pub(super) struct Verified {
    via: String,
    client: HttpClient,
    /// `Bearer` and the credential, for a notary that serves listed clients.
    authorization: Option<HeaderValue>,
    /// Judges the signing key's evidence.
    appraiser: PolicyAppraiser,
    key: BoundKey,
}

/// A signing key whose evidence was accepted.
pub(super) struct BoundKey {
    pub(super) bound: KeyEvidence,
    pub(super) appraised: SharedAppraisal,
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub(super) hash: [u8; 32],
    /// From its claims.
    pub(super) validity: RangeInclusive<u64>,
}

impl Verified {
    /// Opens the channel and verifies both keys. Nothing of a request has left before.
    pub(super) async fn open(args: &NotaryArgs) -> Result<Self, CliError> {
        let authorization = args.credential.as_deref().map(authorization).transpose()?;
        let endpoint = Endpoint::parse(&args.via)
            .map_err(|error| CliError::new(error).hint("for instance https://127.0.0.1:8443"))?;
        let policy = policy::file::read_notary(&args.policy)?;
        let policy = connect::with_root(policy, args.root.as_deref())?;
        // It comes over the channel, but a third party judges it without one.
        let of_key = appraiser(args, Policy { binding: None, ..policy.clone() })?;
        let own = args.attester.open(None)?;
        let demands_session = policy.binding == Some(BindingLevel::Session) || own.is_some();
        let of_channel = Arc::new(appraiser(args, policy)?);
        let deadline = Duration::from_millis(args.deadline_ms);
        let limits = ClientLimits { dial: deadline, channel: deadline, ..ClientLimits::default() };
        let binding = match (args.binding, demands_session) {
            (Some(name), _) => name.into(),
            (None, true) => Binding::Session,
            (None, false) => Binding::Key,
        };
        let connector = Connector::with_appraiser(endpoint, None, binding, of_channel, limits)
            .and_then(|connector| match own {
                None => Ok(connector),
                Some(own) => connector.with_evidence(client_evidence(own, CLIENT_CLAIM)),
            })
            .map_err(|error| CliError::new(with_causes(&error)))?;
        let client = HttpClient::new(connector, limits, process::unix_now);
        let opened = client.open().await.map_err(|error| channel_refused(&args.via, &error))?;
        let claimed = opened.0.as_ref().and_then(|by| by.claimed_guarantee().map(str::to_owned));
        if claimed.as_deref() != Some(GUARANTEE) {
            return Err(not_a_notary(&args.via, claimed.as_deref()));
        }
        let via = args.via.clone();
        let key = bound_key(&via, &client, &of_key).await?;
        Ok(Self { via, client, authorization, appraiser: of_key, key })
    }

    /// The key that will sign.
    pub(super) fn key(&self) -> &BoundKey {
        &self.key
    }

    /// Sends one request and reads the whole answer; `seen` gets each piece of the body as it
    /// comes. A key that was renewed meanwhile is verified like the first one.
    pub(super) async fn fetch(
        &mut self,
        request: FetchRequest,
        mut seen: impl FnMut(&[u8]) -> Result<(), CliError>,
    ) -> Result<(FetchRequest, Received), CliError> {
        let mut request = request.signed_by(self.key.hash);
        let mut is_first = true;
        loop {
            let body = request.encode().map_err(|error| {
                CliError::new(error).hint("docs/notary.md says what a request may hold")
            })?;
            let answer = self.post(whole_body(body)).await?;
            if answer.status() == StatusCode::CONFLICT && is_first {
                is_first = false;
                self.key = bound_key(&self.via, &self.client, &self.appraiser).await?;
                request = request.signed_by(self.key.hash);
                continue;
            }
            if answer.status() != StatusCode::OK {
                return Err(refused(&self.via, answer.into_body()).await);
            }
            let mut body = answer.into_body();
            let mut reader = AnswerReader::default();
            while let Some(frame) = body.frame().await {
                let broken = |error| CliError::new(format!("{}: {error}", self.via));
                let Ok(piece) = frame.map_err(|error| broken(with_causes(&error)))?.into_data()
                else {
                    continue;
                };
                seen(reader.push(&piece).map_err(|error| no_statement(&self.via, &error))?)?;
            }
            let received = reader.finish().map_err(|error| no_statement(&self.via, &error))?;
            return Ok((request, received));
        }
    }

    async fn post(
        &self,
        body: RequestBody,
    ) -> Result<http::Response<confide_client::AnswerBody>, CliError> {
        let mut request = Request::post(FETCH_PATH);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        send(&self.via, &self.client, request, body).await
    }
}

/// It leaves only once the notary is verified, and reaches no other host.
fn authorization(path: &Path) -> Result<HeaderValue, CliError> {
    let credential = Zeroizing::new(read_file(path, CREDENTIAL_BYTES_MAX)?);
    let field = Zeroizing::new([b"Bearer ", credential.trim_ascii_end()].concat());
    let value = HeaderValue::from_bytes(&field).ok().filter(|_| field.is_ascii());
    let mut value = value.ok_or_else(|| {
        CliError::new(format!("{}: wanted one line of visible ASCII", path.display()))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn send(
    via: &str,
    client: &HttpClient,
    request: http::request::Builder,
    body: RequestBody,
) -> Result<http::Response<confide_client::AnswerBody>, CliError> {
    let request = request.header(CONTENT_TYPE, MEDIA_TYPE).body(body);
    let request = request.map_err(|error| CliError::new(format!("{via}: {error}")))?;
    let answer = client.request(request).await.map_err(|error| channel_refused(via, &error))?;
    Ok(answer.response)
}

fn appraiser(args: &NotaryArgs, policy: Policy) -> Result<PolicyAppraiser, CliError> {
    if let Some(source) = args.attester.service.start(&policy.roots)? {
        return Ok(PolicyAppraiser::with_source(policy, source, process::unix_now));
    }
    let own = match &args.collateral {
        None => None,
        Some(path) => Some(read_file(path, COLLATERAL_LENGTH_MAX as u64)?),
    };
    PolicyAppraiser::new(policy, own.as_deref(), process::unix_now).map_err(CliError::new)
}

/// Asks for the signing key and judges its evidence as a third party will.
async fn bound_key(
    via: &str,
    client: &HttpClient,
    appraiser: &PolicyAppraiser,
) -> Result<BoundKey, CliError> {
    let answer = send(via, client, Request::get(KEY_PATH), no_body()).await?;
    if answer.status() != StatusCode::OK {
        return Err(refused(via, answer.into_body()).await);
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
        appraiser.judge(&evidence, stapled).map_err(|error| key_refused(via, &error))?;
    let hash = bound.spki_hash();
    let claims = appraised.verdict().claims();
    let Some(claims) = claims.filter(|claims| claims.pubkey_hash == hash) else {
        let text = format!("{via} is not accepted: its evidence is over another signing key");
        return Err(CliError::new(text).hint("nothing was sent to it").status(STATUS_REFUSED));
    };
    if claims.guarantee != GUARANTEE {
        return Err(not_a_notary(via, Some(&claims.guarantee)));
    }
    let validity = claims.not_before..=claims.not_after;
    Ok(BoundKey { bound, appraised, hash, validity })
}

fn channel_refused(via: &str, error: &ClientError) -> CliError {
    let text = error.rejection().map_or_else(|| with_causes(error), ToString::to_string);
    match (error.blame(), error.failed_check(), error) {
        (Blame::Evidence, check, _) => {
            let check = check.unwrap_or("evidence");
            CliError::new(format!("{via} is not accepted: check `{check}` failed: {text}"))
                .hint(hint_for(check))
                .status(STATUS_REFUSED)
        }
        (_, _, ClientError::Channel { source: ChannelError::Tls(_), .. }) => {
            CliError::new(format!("{via} could not be judged: {text}"))
                .hint("is that a confide notary, and with the same --binding?")
        }
        (_, _, ClientError::Channel { source: ChannelError::NoAttester { .. }, .. }) => {
            CliError::new(format!("{via} demands evidence of this end, which has none"))
                .hint(NO_ATTESTER_HINT)
        }
        (Blame::Local, ..) => CliError::new(text),
        _ => CliError::new(format!("{via} could not be judged: {text}"))
            .hint("is the notary running there? its ready line names the address"),
    }
}

fn key_refused(via: &str, error: &AppraisalError) -> CliError {
    let check = error.failed_check();
    let text = format!(
        "{via} is not accepted: check `{check}` of its signing key's evidence failed: {error}"
    );
    CliError::new(text).hint(hint_for(check)).status(STATUS_REFUSED)
}

fn hint_for(check: &str) -> &'static str {
    match check {
        "scope" | "binding" => connect::hint_for(check),
        _ => "nothing was sent to it",
    }
}

fn not_a_notary(via: &str, claimed: Option<&str>) -> CliError {
    let got = claimed.unwrap_or("nothing");
    let text = format!(
        "{via} is not accepted: check `guarantee` failed: wanted `{GUARANTEE}`, got `{got}`"
    );
    CliError::new(text).hint("is that a confide notary?").status(STATUS_REFUSED)
}

async fn refused(via: &str, body: confide_client::AnswerBody) -> CliError {
    let read = Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map(|body| body.to_bytes());
    let refusal = read.ok().and_then(|bytes| serde_json::from_slice::<Refusal>(&bytes).ok());
    match refusal {
        Some(refusal) => no_statement(via, &HolderError::Refused(refusal)),
        None => CliError::new(format!("{via} gave neither an answer nor a refusal"))
            .hint("is that a confide notary of this version?"),
    }
}

fn no_statement(via: &str, error: &HolderError) -> CliError {
    let failure = CliError::new(format!("{via}: {}", shown(error)));
    let HolderError::Refused(refusal) = error else { return failure };
    match refusal.code.as_str() {
        "host_refused" => failure.hint("its operator lists the hosts in the notary's policy"),
        "address_refused" => {
            failure.hint("its operator names private addresses in the notary's policy")
        }
        "certificate_refused" => {
            failure.hint("the host's certificate does not end in a root of the notary's policy")
        }
        "busy" => failure.hint("try again later"),
        "client_busy" => failure.hint(
            "other fetches of this client are running; its operator sets \
             limits.exchanges_per_client in the notary's policy",
        ),
        "client_unknown" => failure
            .hint("--credential FILE; its operator lists the clients (notary serve --clients)"),
        _ => failure,
    }
}

/// A peer's words on a terminal, where a control character is a command.
fn shown(error: &HolderError) -> String {
    error.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
