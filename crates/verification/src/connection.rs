//! What was verified of an attested connection.

use confide_evidence::UnixSeconds;
use confide_verifier::Appraised;
use serde_json::{Value, json};

/// The facts about a connection that its appraisal does not know.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionFacts<'a> {
    /// The address of the attested end.
    pub url: &'a str,
    /// The address of the tunnel that leads to it.
    pub via: Option<&'a str>,
    /// The name of the binding: `key` or `session`.
    pub binding: &'a str,
}

/// The verification document of a connection, without its guarantee. `is_simulated` is what the root says of itself.
pub fn describe_connection(
    facts: &ConnectionFacts<'_>,
    appraised: &Appraised,
    is_simulated: bool,
) -> Value {
    let mut document = describe_appraisal(appraised, is_simulated);
    document["endpoint"] = facts.url.into();
    document["via"] = facts.via.into();
    document["binding"] = facts.binding.into();
    document
}

/// What was verified of the peer, apart from how it was reached.
pub fn describe_appraisal(appraised: &Appraised, is_simulated: bool) -> Value {
    let mut verdict = appraised.to_json();
    let mut take = |name: &str| verdict[name].take();
    let claims = take("claims");
    json!({
        "simulated": is_simulated,
        "scope": take("scope"),
        "root": take("root"),
        "tcb_status": take("tcb_status"),
        "advisories": take("advisories"),
        "config_digest": claims["config_digest"],
        "weights": claims["weights"],
        "claimed_guarantee": claims["guarantee"],
        "not_after": appraised.not_after(),
        "not_after_utc": UnixSeconds(appraised.not_after()).utc().to_string(),
        "checks": take("checks"),
    })
}
