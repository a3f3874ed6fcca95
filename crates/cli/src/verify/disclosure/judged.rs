//! The judgement: openings and proofs, host and age, and the notary's evidence.

use std::{collections::BTreeSet, time::Duration};

use confide_disclosure::{
    Disclosure, FormatError, NOTARY_GUARANTEE, NotaryStatement, VerifiedDisclosure, VerifyError,
};
use confide_evidence::{Kind, UnixSeconds, claims::Claims, detect, pem};
use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Outcome, Policy, Reason, Rejection, RootKind, Roots,
    Scope, UnixTime, appraise, snp,
};
use serde::Deserialize;
use toml::{Table, Value};

/// How far a notary's clock may be ahead.
const CLOCK_AHEAD_S_MAX: u64 = 60;

/// Oldest statement that is accepted unless the policy says otherwise: endorsements live as long.
const AGE_DEFAULT_S_MAX: u64 = 30 * 24 * 3600;

/// How a policy spells that any host will do.
const DANGEROUS_ANY: &str = "dangerous-any";

/// What a notary has to be, and what its statement has to be about.
pub(super) struct Rules {
    notary: Policy,
    statement: StatementRules,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementRules {
    /// `HOST` (port 443) or `HOST:PORT`, or `dangerous-any`.
    hosts: Hosts,
    #[serde(default = "age_default")]
    age_s_max: u64,
    #[serde(default)]
    dangerous_any_configuration: bool,
    /// Fields without which a disclosure is refused, by their names.
    #[serde(default)]
    must_show: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Hosts {
    One(String),
    AnyOf(BTreeSet<String>),
}

fn age_default() -> u64 {
    AGE_DEFAULT_S_MAX
}

impl Rules {
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
        let statement: StatementRules =
            statement.try_into().map_err(|error: toml::de::Error| unusable(error.to_string()))?;
        statement.hosts.check().map_err(unusable)?;
        // What it demands of connections: the key that signs statements has none.
        Ok(Self { notary: Policy { binding: None, ..notary }, statement })
    }

    /// Trusts one root and no other.
    pub(super) fn trust(&mut self, root: &[u8]) {
        self.notary.roots = Roots::from_der(root);
    }
}

impl Hosts {
    /// Statements name hosts in lower case: another spelling would match none, and say nothing.
    fn check(&self) -> Result<(), String> {
        match self.names().find(|name| name.chars().any(char::is_uppercase)) {
            Some(got) => Err(format!("hosts: wanted lower case, got {got:?}")),
            None => Ok(()),
        }
    }

    fn names(&self) -> Box<dyn Iterator<Item = &String> + '_> {
        match self {
            Hosts::One(host) => Box::new(std::iter::once(host)),
            Hosts::AnyOf(hosts) => Box::new(hosts.iter()),
        }
    }

    fn accepts(&self, statement: &NotaryStatement) -> bool {
        let NotaryStatement { host, port, .. } = statement;
        // An address of version 6 has colons of its own.
        let with_port = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let named = |wanted: &str| wanted == with_port || *port == 443 && wanted == host;
        match self {
            Hosts::One(any) if any == DANGEROUS_ANY => true,
            _ => self.names().any(|host| named(host)),
        }
    }
}

/// A yes, or a no.
pub(super) enum Judged {
    Accepted(Box<Accepted>),
    Rejected(Box<Rejected>),
}

/// What may be relied on, and on whose word.
pub(super) struct Accepted {
    pub(super) verified: VerifiedDisclosure,
    pub(super) notary: Appraised,
    /// Another session, with whose numbers some are equal.
    pub(super) other: Option<Box<Accepted>>,
    is_simulated: bool,
    /// Whether the notary's configuration, its roots among it, was compared.
    pub(super) is_configuration_known: bool,
    pub(super) any_host: bool,
    pub(super) age_s: u64,
}

impl Accepted {
    /// Whether any of the evidence is.
    pub(super) fn is_simulated(&self) -> bool {
        self.is_simulated || self.other.as_ref().is_some_and(|other| other.is_simulated())
    }
}

/// Why a disclosure is not believed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Rejected {
    #[error("{0}")]
    Format(#[from] FormatError),
    #[error("{0}")]
    Content(#[from] VerifyError),
    #[error("statement is about {got}, which the policy does not name")]
    Host { got: String },
    #[error("statement is {got} s old, wanted at most {wanted}")]
    Old { wanted: u64, got: u64 },
    #[error(
        "statement's time {} is after {}, the time to judge at",
        UnixSeconds(*time), UnixSeconds(*at)
    )]
    Early { time: u64, at: u64 },
    #[error("notary's evidence is refused: {}", .0.reason())]
    Evidence(Box<Rejection>),
    #[error("statement is signed by another key than the notary's evidence names")]
    Key,
    #[error("evidence is of no notary: it says {got:?}")]
    Guarantee { got: String },
    #[error("statement's time {} is outside the life of the notary's key", UnixSeconds(*time))]
    KeyTime { time: u64 },
    #[error("{name} is not shown, which the policy demands")]
    NotShown { name: String },
    #[error("policy does not say which program and configuration the notary has to be")]
    Unpinned,
    #[error("other session: {0}")]
    Other(Box<Rejected>),
}

impl Rejected {
    /// One word for programs.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Rejected::Format(_) => "format",
            Rejected::Content(refused) => content_name(refused),
            Rejected::Host { .. } => "host",
            Rejected::Old { .. } | Rejected::Early { .. } => "time",
            Rejected::Evidence(_) => "evidence",
            Rejected::Key => "key",
            Rejected::Guarantee { .. } => "guarantee",
            Rejected::KeyTime { .. } => "key_time",
            Rejected::NotShown { .. } => "not_shown",
            Rejected::Unpinned => "notary_unpinned",
            Rejected::Other(rejected) => rejected.name(),
        }
    }

    /// Whether it could not be judged at all, rather than judged and refused.
    pub(super) fn is_unjudged(&self) -> bool {
        match self {
            Rejected::Format(_) => true,
            Rejected::Content(refused) => content_name(refused) == NO_CIRCUITS,
            Rejected::Other(rejected) => rejected.is_unjudged(),
            Rejected::Evidence(rejection) => rejection.reason().is_unreadable(),
            _ => false,
        }
    }

    /// What to do about it, where something can be done.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Rejected::Unpinned => Some(
                "a policy needs the notary's [workload] and its config_digest: its operator \
                 chooses the roots by which hosts are judged. `dangerous_any_configuration = true` \
                 in [disclosure] goes without",
            ),
            Rejected::Host { .. } => Some("hosts = [\"HOST\", \"HOST:PORT\"] in [disclosure]"),
            Rejected::Format(FormatError::Magic { .. }) => Some(
                "wanted the file that `confide disclose --out` wrote; that of `confide notary \
                 fetch` holds secrets and is its holder's",
            ),
            Rejected::Old { .. } => Some("age_s_max in [disclosure], or --at"),
            Rejected::Evidence(_) => {
                Some("evidence is judged as of the statement's time, under the policy's roots")
            }
            Rejected::Other(rejected) => rejected.hint(),
            _ => None,
        }
    }
}

/// How it is said that a proof cannot be judged by this program.
const NO_CIRCUITS: &str = "no_circuits";

fn content_name(refused: &VerifyError) -> &'static str {
    match refused {
        VerifyError::Signature(_) => "signature",
        VerifyError::Opening(_) => "opening",
        VerifyError::SameSession { .. } => "same_session",
        VerifyError::OtherUnused => "other_unused",
        VerifyError::SameField { .. } => "same_field",
        VerifyError::Empty => "empty",
        VerifyError::NoCircuits { .. } => NO_CIRCUITS,
        VerifyError::OtherSession(refused) => content_name(refused),
        VerifyError::Subject { .. } | VerifyError::Proof { .. } => "proof",
    }
}

/// Judges a file by rules; its age counts from `at`.
pub(super) fn judge(file: &[u8], rules: &Rules, at: u64) -> Judged {
    match accept(file, rules, at) {
        Ok(accepted) => Judged::Accepted(Box::new(accepted)),
        Err(rejected) => Judged::Rejected(Box::new(rejected)),
    }
}

fn accept(file: &[u8], rules: &Rules, at: u64) -> Result<Accepted, Rejected> {
    let disclosure = Disclosure::decode(file)?;
    let signed = believed(&disclosure, rules, at)?;
    let other = disclosure.other_session().map(|other| believed(other, rules, at)).transpose();
    let other = other.map_err(|rejected| Rejected::Other(Box::new(rejected)))?;
    let verified = disclosure.verify(super::text_proofs())?;
    let is_shown = |name: &&String| verified.fields().iter().any(|field| field.path == **name);
    if let Some(name) = rules.statement.must_show.iter().find(|name| !is_shown(name)) {
        return Err(Rejected::NotShown { name: name.clone() });
    }
    let other = other.zip(verified.other_session().cloned());
    let other = other.map(|(believed, verified)| Box::new(believed.accepted(verified, None)));
    Ok(signed.accepted(verified, other))
}

/// A statement that is believed to be a notary's and about what the policy names.
struct Believed {
    notary: Appraised,
    is_simulated: bool,
    is_configuration_known: bool,
    any_host: bool,
    age_s: u64,
}

impl Believed {
    fn accepted(self, verified: VerifiedDisclosure, other: Option<Box<Accepted>>) -> Accepted {
        let Self { notary, is_simulated, is_configuration_known, any_host, age_s } = self;
        Accepted { verified, notary, other, is_simulated, is_configuration_known, any_host, age_s }
    }
}

fn believed(disclosure: &Disclosure, rules: &Rules, at: u64) -> Result<Believed, Rejected> {
    let statement = &disclosure.statement;
    // Who signed comes first: what is said of an unsigned statement helps nobody.
    statement.verify(&disclosure.signature).map_err(VerifyError::Signature)?;
    if !rules.statement.hosts.accepts(statement) {
        return Err(Rejected::Host { got: format!("{}:{}", statement.host, statement.port) });
    }
    let time = statement.time;
    if time > at.saturating_add(CLOCK_AHEAD_S_MAX) {
        return Err(Rejected::Early { time, at });
    }
    let (wanted, age_s) = (rules.statement.age_s_max, at.saturating_sub(time));
    if age_s > wanted {
        return Err(Rejected::Old { wanted, got: age_s });
    }
    let notary = appraised(disclosure, rules).map_err(|no| Rejected::Evidence(Box::new(no)))?;
    let is_configuration_known = check_key(&notary, statement, rules)?;
    let is_custom = notary.root().kind == RootKind::Custom;
    Ok(Believed {
        is_simulated: is_custom && says_simulated(&disclosure.evidence.endorsements),
        notary,
        is_configuration_known,
        any_host: matches!(&rules.statement.hosts, Hosts::One(any) if any == DANGEROUS_ANY),
        age_s,
    })
}

/// The notary's evidence as of the time that it states: its key lived then. How far that may lie
/// back, the policy's `age_s_max` bounds.
fn appraised(disclosure: &Disclosure, rules: &Rules) -> Result<Appraised, Rejection> {
    let parts = &disclosure.evidence;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(disclosure.statement.time));
    let evidence =
        Evidence { quote: &parts.quote, claims: Some(&parts.claims), ..Evidence::default() };
    let malformed = |error| Rejection::before_checks(Reason::Malformed(error));
    match detect(&parts.quote) {
        Some(Kind::SnpReport) => {
            let endorsements =
                snp::Endorsements::parse(&parts.endorsements).map_err(snp::unreadable)?;
            snp::appraise(&evidence, &endorsements, &rules.notary, now, &AwsLc)
        }
        // Bytes of no known kind go the way of a quote, whose parser says what is wrong.
        _ => {
            let endorsements = Endorsements::parse(&parts.endorsements).map_err(malformed)?;
            appraise(&evidence, &endorsements, &rules.notary, now, &AwsLc)
        }
    }
}

/// Whether the evidence is of a notary, and of the key that signed; gives whether its
/// configuration was compared.
fn check_key(
    notary: &Appraised,
    statement: &NotaryStatement,
    rules: &Rules,
) -> Result<bool, Rejected> {
    let Some(Claims { guarantee, not_after, not_before, pubkey_hash, .. }) = notary.claims() else {
        return Err(Rejected::Key);
    };
    if *pubkey_hash != statement.spki_hash() {
        return Err(Rejected::Key);
    }
    if guarantee != NOTARY_GUARANTEE {
        return Err(Rejected::Guarantee { got: guarantee.clone() });
    }
    if !(*not_before..=*not_after).contains(&statement.time) {
        return Err(Rejected::KeyTime { time: statement.time });
    }
    let passed = |name| {
        let mut checks = notary.checks().iter();
        checks.any(|check| check.name == name && check.outcome == Outcome::Passed)
    };
    match notary.scope() {
        Scope::Workload => Ok(true),
        _ if rules.statement.dangerous_any_configuration && passed("measurements") => Ok(false),
        _ => Err(Rejected::Unpinned),
    }
}

/// Whether a certificate among the endorsements says of itself that it is simulated: a label only.
fn says_simulated(endorsements: &[u8]) -> bool {
    const SIMULATED: &[u8] = b"SIMULATED";
    let Ok(serde_json::Value::Object(parts)) = serde_json::from_slice(endorsements) else {
        return false;
    };
    let chains = parts.values().filter_map(serde_json::Value::as_str);
    let chains = chains.filter_map(|text| pem::decode_chain("chain", text.as_bytes()).ok());
    chains.flatten().any(|der| der.windows(SIMULATED.len()).any(|part| part == SIMULATED))
}
