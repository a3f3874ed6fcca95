//! What was verified of an attested connection, and what to do where it is refused.

use confide_evidence::UnixSeconds;
use confide_verifier::Appraised;
use serde_json::{Value, json};

use crate::option_style::OptionStyle;

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

/// What to do after a failed check of a server's evidence.
pub fn hint_for_check(check: &str, style: OptionStyle) -> String {
    match check {
        "root" => {
            let hint = "the evidence does not lead to a root of the policy; simulated evidence \
                        needs its own policy.toml";
            match style {
                OptionStyle::Member => hint.to_owned(),
                _ => format!("{hint}, or its root.der with {}", style.format("root")),
            }
        }
        "config_digest" => {
            "the server's configuration is not one that the policy pins: it may send prompts \
             elsewhere"
                .into()
        }
        "scope" => {
            "pin the server's configuration and program: `confide policy pin FILE --digest HEX` \
             with its config_digest, and [workload] as `confide policy init` writes it; \
             dangerous_scope = \"platform\" in the policy accepts any program"
                .into()
        }
        "binding" => format!(
            "the policy demands session binding: start the server with --binding session, and omit \
             {} here",
            style.format("binding")
        ),
        "debug" => "the host can read the memory of a TEE in debug mode".into(),
        "collateral" => format!(
            "give {}, or let the gateway staple it",
            style.format_with_value("collateral", "FILE")
        ),
        "evidence" => {
            "the server shows no readable evidence: check that it is an attested server".into()
        }
        _ => "nothing was sent to it".into(),
    }
}
