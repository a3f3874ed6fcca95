//! The judgement of a disclosure: openings and proofs, host and age, and the notary's evidence.

use std::{collections::BTreeSet, time::Duration};

use confide_disclosure::{
    Disclosure, FormatError, NOTARY_GUARANTEE, NotaryStatement, TextProofs, VerifiedDisclosure,
    VerifyError,
};
use confide_evidence::{EvidenceKind, UnixSeconds, claims::Claims, detect_kind};
use confide_verification::is_labelled_simulated;
use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Outcome, Policy, Reason, Rejection, RootKind, Roots,
    Scope, UnixTime, appraise, snp,
};
use serde::Deserialize;
use toml::{Table, Value};

/// How far a notary's clock may be ahead, in seconds.
const CLOCK_AHEAD_S_MAX: u64 = 60;

/// Default age of the oldest accepted statement, in seconds: endorsements live as long.
const AGE_DEFAULT_S_MAX: u64 = 30 * 24 * 3600;

/// The value of `hosts` that admits any host.
const DANGEROUS_ANY: &str = "dangerous-any";

/// The policy for a notary's evidence and for its statement.
pub(super) struct DisclosurePolicy {
    notary: Policy,
    statement: StatementPolicy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementPolicy {
    /// `HOST` (port 443) or `HOST:PORT`, or `dangerous-any`.
    hosts: AllowedHosts,
    #[serde(default = "default_age_s")]
    age_s_max: u64,
    #[serde(default)]
    dangerous_any_configuration: bool,
    /// Fields without which a disclosure is refused, by their names.
    #[serde(default)]
    must_show: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AllowedHosts {
    Single(String),
    AnyOf(BTreeSet<String>),
}

fn default_age_s() -> u64 {
    AGE_DEFAULT_S_MAX
}

impl DisclosurePolicy {
    /// The policy of the notary's evidence, with a table `[disclosure]`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "policy is not UTF-8".to_string())?;
        let invalid = |error: toml::de::Error| format!("policy is not valid: {error}");
        let mut table: Table = toml::from_str(text).map_err(invalid)?;
        let Some(statement) = table.remove("disclosure") else {
            return Err("policy has no table [disclosure], which names the hosts".into());
        };
        let notary: Policy = Value::Table(table).try_into().map_err(invalid)?;
        let notary = notary.validate().map_err(|error| error.to_string())?;
        let unusable = |error: String| format!("policy has no usable table [disclosure]: {error}");
        let statement: StatementPolicy =
            statement.try_into().map_err(|error: toml::de::Error| unusable(error.to_string()))?;
        statement.hosts.check_lower_case().map_err(unusable)?;
        // A demand on connections does not apply to the key that signs statements.
        Ok(Self { notary: Policy { binding: None, ..notary }, statement })
    }

    /// Trusts one root and no other.
    pub(super) fn trust_only_root(&mut self, root: &[u8]) {
        self.notary.roots = Roots::from_der(root);
    }
}

impl AllowedHosts {
    /// Checks the spelling: statements name hosts in lower case, so another spelling would never match.
    fn check_lower_case(&self) -> Result<(), String> {
        match self.names().find(|name| name.chars().any(char::is_uppercase)) {
            Some(got) => Err(format!("hosts: wanted lower case, got {got:?}")),
            None => Ok(()),
        }
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        let (single, several) = match self {
            AllowedHosts::Single(host) => (Some(host), None),
            AllowedHosts::AnyOf(hosts) => (None, Some(hosts)),
        };
        single.into_iter().chain(several.into_iter().flatten())
    }

    /// Whether the policy admits any host.
    fn accepts_any(&self) -> bool {
        matches!(self, AllowedHosts::Single(any) if any == DANGEROUS_ANY)
    }

    fn accepts(&self, statement: &NotaryStatement) -> bool {
        let NotaryStatement { host, port, .. } = statement;
        // An address of version 6 has colons of its own.
        let with_port =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let is_named = |wanted: &String| *wanted == with_port || *port == 443 && wanted == host;
        self.accepts_any() || self.names().any(is_named)
    }
}

/// A disclosure that may be relied on, and on whose word.
pub(super) struct AcceptedDisclosure {
    pub(super) verified: VerifiedDisclosure,
    pub(super) statement: JudgedStatement,
    /// Another session, with whose numbers some are equal.
    pub(super) other: Option<Box<AcceptedDisclosure>>,
}

impl AcceptedDisclosure {
    /// Whether any of the evidence is simulated.
    pub(super) fn is_simulated(&self) -> bool {
        self.statement.is_simulated || self.other.as_ref().is_some_and(|other| other.is_simulated())
    }
}

/// A statement that is a notary's, and about what the policy names.
pub(super) struct JudgedStatement {
    pub(super) notary: Appraised,
    is_simulated: bool,
    /// Whether the notary's configuration, its roots included, was compared.
    pub(super) is_configuration_known: bool,
    pub(super) any_host: bool,
    /// Age of the statement, in seconds.
    pub(super) age_s: u64,
}

/// Why a disclosure is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum RejectedDisclosure {
    #[error("{0}")]
    Format(#[from] FormatError),
    #[error("{0}")]
    Content(#[from] VerifyError),
    #[error("statement is about {got}, which the policy does not name")]
    Host { got: String },
    #[error("statement is {got} s old, wanted at most {wanted}")]
    Old { wanted: u64, got: u64 },
    #[error(
        "statement's time {} is after {}, the time of judgement",
        UnixSeconds(*time), UnixSeconds(*at)
    )]
    Early { time: u64, at: u64 },
    #[error("notary's evidence is refused: {}", .0.reason())]
    Evidence(Box<Rejection>),
    #[error("statement is not signed by the key in the notary's evidence")]
    Key,
    #[error("evidence is not a notary's: its guarantee is {got:?}")]
    Guarantee { got: String },
    #[error("statement's time {} is outside the life of the notary's key", UnixSeconds(*time))]
    KeyTime { time: u64 },
    #[error("{name} is not shown, although the policy demands it")]
    NotShown { name: String },
    #[error("policy does not say which program and configuration the notary must have")]
    Unpinned,
    #[error("other session: {0}")]
    OtherSession(Box<RejectedDisclosure>),
}

impl RejectedDisclosure {
    /// The code for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            RejectedDisclosure::Format(_) => "format",
            RejectedDisclosure::Content(error) => content_error_code(error),
            RejectedDisclosure::Host { .. } => "host",
            RejectedDisclosure::Old { .. } | RejectedDisclosure::Early { .. } => "time",
            RejectedDisclosure::Evidence(_) => "evidence",
            RejectedDisclosure::Key => "key",
            RejectedDisclosure::Guarantee { .. } => "guarantee",
            RejectedDisclosure::KeyTime { .. } => "key_time",
            RejectedDisclosure::NotShown { .. } => "not_shown",
            RejectedDisclosure::Unpinned => "notary_unpinned",
            RejectedDisclosure::OtherSession(rejected) => rejected.code(),
        }
    }

    /// Whether it could not be judged, rather than judged and rejected.
    pub(super) fn is_unreadable(&self) -> bool {
        match self {
            RejectedDisclosure::Format(_) => true,
            RejectedDisclosure::Content(error) => content_error_code(error) == NO_CIRCUITS,
            RejectedDisclosure::OtherSession(rejected) => rejected.is_unreadable(),
            RejectedDisclosure::Evidence(rejection) => rejection.reason().is_unreadable(),
            _ => false,
        }
    }

    /// What to try, where something can be done.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            RejectedDisclosure::Unpinned => Some(
                "add the notary's [workload] and config_digest to the policy: the notary's operator \
                 chooses the roots by which hosts are judged. `dangerous_any_configuration = true` \
                 in [disclosure] accepts any configuration",
            ),
            RejectedDisclosure::Host { .. } => {
                Some("list it in [disclosure]: hosts = [\"HOST\", \"HOST:PORT\"]")
            }
            RejectedDisclosure::Format(FormatError::Magic { .. }) => Some(
                "give the file that `confide disclose --out` wrote; the file of `confide notary \
                 fetch` holds secrets and is for its holder only",
            ),
            RejectedDisclosure::Old { .. } => {
                Some("raise age_s_max in [disclosure], or judge at another time with --at")
            }
            RejectedDisclosure::Evidence(_) => {
                Some("evidence is judged at the statement's time, under the policy's roots")
            }
            RejectedDisclosure::OtherSession(rejected) => rejected.hint(),
            _ => None,
        }
    }
}

/// The code where this program cannot judge a proof.
const NO_CIRCUITS: &str = "no_circuits";

fn content_error_code(error: &VerifyError) -> &'static str {
    match error {
        VerifyError::Signature(_) => "signature",
        VerifyError::Opening(_) => "opening",
        VerifyError::SameSession { .. } => "same_session",
        VerifyError::UnusedOtherSession => "other_unused",
        VerifyError::SameField { .. } => "same_field",
        VerifyError::Empty => "empty",
        VerifyError::NoCircuits { .. } => NO_CIRCUITS,
        VerifyError::OtherSession(error) => content_error_code(error),
        VerifyError::InvalidField { .. } | VerifyError::Proof { .. } => "proof",
    }
}

/// Judges a disclosure by rules; its age is measured at `at`.
pub(super) fn judge_disclosure(
    file: &[u8],
    rules: &DisclosurePolicy,
    texts: Option<&dyn TextProofs>,
    at: u64,
) -> Result<AcceptedDisclosure, RejectedDisclosure> {
    let disclosure = Disclosure::decode(file)?;
    let statement = judge_statement(&disclosure, rules, at)?;
    let other =
        disclosure.other_session().map(|other| judge_statement(other, rules, at)).transpose();
    let other = other.map_err(|rejected| RejectedDisclosure::OtherSession(Box::new(rejected)))?;
    let verified = disclosure.verify(texts)?;
    let is_shown = |name: &&String| verified.fields().iter().any(|field| field.path == **name);
    if let Some(name) = rules.statement.must_show.iter().find(|name| !is_shown(name)) {
        return Err(RejectedDisclosure::NotShown { name: name.clone() });
    }
    let other = other.zip(verified.other_session().cloned()).map(|(statement, verified)| {
        Box::new(AcceptedDisclosure { verified, statement, other: None })
    });
    Ok(AcceptedDisclosure { verified, statement, other })
}

fn judge_statement(
    disclosure: &Disclosure,
    rules: &DisclosurePolicy,
    at: u64,
) -> Result<JudgedStatement, RejectedDisclosure> {
    let statement = &disclosure.statement;
    // The signature comes first: nothing in an unsigned statement is of use.
    statement.verify(&disclosure.signature).map_err(VerifyError::Signature)?;
    if !rules.statement.hosts.accepts(statement) {
        let got = format!("{}:{}", statement.host, statement.port);
        return Err(RejectedDisclosure::Host { got });
    }
    let time = statement.time;
    if time > at.saturating_add(CLOCK_AHEAD_S_MAX) {
        return Err(RejectedDisclosure::Early { time, at });
    }
    let (wanted, age_s) = (rules.statement.age_s_max, at.saturating_sub(time));
    if age_s > wanted {
        return Err(RejectedDisclosure::Old { wanted, got: age_s });
    }
    let notary = appraise_notary(disclosure, rules)
        .map_err(|rejection| RejectedDisclosure::Evidence(Box::new(rejection)))?;
    let is_configuration_known = check_notary_key(&notary, statement, rules)?;
    let is_custom = notary.root().kind == RootKind::Custom;
    Ok(JudgedStatement {
        is_simulated: is_custom && is_labelled_simulated(&disclosure.evidence.endorsements),
        notary,
        is_configuration_known,
        any_host: rules.statement.hosts.accepts_any(),
        age_s,
    })
}

/// Appraises the notary's evidence at the time of its statement, when its key was valid; the
/// policy's `age_s_max` bounds how long ago that may be.
fn appraise_notary(
    disclosure: &Disclosure,
    rules: &DisclosurePolicy,
) -> Result<Appraised, Rejection> {
    let parts = &disclosure.evidence;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(disclosure.statement.time));
    let evidence =
        Evidence { quote: &parts.quote, claims: Some(&parts.claims), ..Evidence::default() };
    let malformed = |error| Rejection::before_checks(Reason::Malformed(error));
    match detect_kind(&parts.quote) {
        Some(EvidenceKind::SnpReport) => {
            let endorsements =
                snp::Endorsements::parse(&parts.endorsements).map_err(snp::reject_unreadable)?;
            snp::appraise(&evidence, &endorsements, &rules.notary, now, &AwsLc)
        }
        // Bytes of an unknown kind are parsed as a quote, whose parser says what is wrong.
        _ => {
            let endorsements = Endorsements::parse(&parts.endorsements).map_err(malformed)?;
            appraise(&evidence, &endorsements, &rules.notary, now, &AwsLc)
        }
    }
}

/// Checks that the evidence is a notary's, and for the key that signed; gives whether the notary's configuration was
/// compared.
fn check_notary_key(
    notary: &Appraised,
    statement: &NotaryStatement,
    rules: &DisclosurePolicy,
) -> Result<bool, RejectedDisclosure> {
    let Some(Claims { guarantee, not_after, not_before, pubkey_hash, .. }) = notary.claims() else {
        return Err(RejectedDisclosure::Key);
    };
    if *pubkey_hash != statement.spki_hash() {
        return Err(RejectedDisclosure::Key);
    }
    if guarantee != NOTARY_GUARANTEE {
        return Err(RejectedDisclosure::Guarantee { got: guarantee.clone() });
    }
    if !(*not_before..=*not_after).contains(&statement.time) {
        return Err(RejectedDisclosure::KeyTime { time: statement.time });
    }
    let is_passed = |name| {
        let mut checks = notary.checks().iter();
        checks.any(|check| check.name == name && check.outcome == Outcome::Passed)
    };
    match notary.scope() {
        Scope::Workload => Ok(true),
        _ if rules.statement.dangerous_any_configuration && is_passed("measurements") => Ok(false),
        _ => Err(RejectedDisclosure::Unpinned),
    }
}
