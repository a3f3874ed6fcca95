//! What a user is told of a server whose evidence is refused: the same words in every language.

use std::fmt;

use confide_verifier::Reason;

/// A server whose evidence is refused: the check that failed, what it found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRefusal {
    /// The name of the check, as policies name it.
    pub check: String,
    /// The finding of the check: the wanted value and the one that came.
    pub text: String,
    /// The advice for the user.
    pub hint: &'static str,
}

impl PeerRefusal {
    /// A refusal by `check`; the other arguments are those of [`hint_for_check`].
    pub fn new(
        check: &str,
        text: impl fmt::Display,
        reason: Option<&Reason>,
        has_own_endorsements: bool,
    ) -> Self {
        let hint = hint_for_check(check, reason, has_own_endorsements);
        Self { check: check.to_owned(), text: text.to_string(), hint }
    }

    /// The whole sentence about `server`, and the hint on a second line.
    pub fn describe(&self, server: &str) -> String {
        format!("{}\nhint: {}", self.describe_without_hint(server), self.hint)
    }

    /// The same for a program that shows its hints in a way of its own.
    pub fn describe_without_hint(&self, server: &str) -> String {
        format!("{server} is not accepted: {self}")
    }
}

impl fmt::Display for PeerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "check `{}` failed: {}", self.check, self.text)
    }
}

/// A later connection to a server that promises something else than the first, which the user was shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guarantee has changed since the start: wanted {wanted}, got {got}")]
pub struct GuaranteeChanged {
    wanted: ConnectionPromise,
    got: ConnectionPromise,
}

/// The promise of a connection: the guarantee that was computed, and what the server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionPromise {
    /// The guarantee that was computed from the checks.
    pub guarantee: String,
    /// The guarantee that the server claims.
    pub claimed: Option<String>,
}

impl ConnectionPromise {
    /// Compares the promise of a later connection with this one, the first.
    ///
    /// # Errors
    /// [`GuaranteeChanged`] if they differ. A policy may admit several configurations.
    pub fn check_later(&self, later: Self) -> Result<(), GuaranteeChanged> {
        match *self == later {
            true => Ok(()),
            false => Err(GuaranteeChanged { wanted: self.clone(), got: later }),
        }
    }
}

impl fmt::Display for ConnectionPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (claimed: `{}`)", self.guarantee, self.claimed.as_deref().unwrap_or("-"))
    }
}

/// Returns the advice after a failed check of a server's evidence. `reason` is the verifier's, if the evidence reached
/// it; `has_own_endorsements` says that the user gave the endorsements, and not the server. Options are not named: each
/// language has its own.
pub fn hint_for_check(
    check: &str,
    reason: Option<&Reason>,
    has_own_endorsements: bool,
) -> &'static str {
    if let Some(Reason::OutsideWindow { .. }) = reason {
        return hint_for_expiry(check, has_own_endorsements);
    }
    match check {
        "root" => {
            "the policy does not trust the root of this evidence: do not use the server, or take the policy that \
             its operator publishes; simulated evidence is accepted only by the policy.toml that was made with it"
        }
        "measurements" => {
            "the server runs another program than the policy names: if the program was updated, take the policy \
             that its publisher has issued since; otherwise do not use the server"
        }
        "config_digest" => {
            "the server's configuration is not one that the policy pins: it may send prompts elsewhere. If the \
             operator has announced the change, pin it: `confide policy pin FILE --digest HEX`"
        }
        "gpu" => {
            "the GPU is not one that the policy accepts, or its evidence is missing: the server has to be started \
             with the GPU and --binding session; if the GPU was replaced, take the operator's new policy"
        }
        "scope" => {
            "pin the server's configuration and program: `confide policy pin FILE --digest HEX` with its \
             config_digest, and [workload] as `confide policy init` writes it; dangerous_scope = \"platform\" in \
             the policy accepts any program"
        }
        "binding" => {
            "the policy demands session binding: the server has to be started with --binding session, and the \
             client must not ask for key binding"
        }
        "debug" => "the host can read the memory of a TEE in debug mode: do not use the server",
        "collateral" => {
            "let the server's operator staple endorsements (`confide gateway --collateral-service URL`), or give \
             collateral of your own"
        }
        "evidence" => {
            "the server shows no readable evidence: check that it is an attested server, and its binding"
        }
        "channel_binding" => {
            "the evidence is of another connection: somebody may be in between, so do not use this network path"
        }
        "guarantee" => {
            "the server was replaced by one that claims something else: start anew to be shown its guarantee and \
             to accept it"
        }
        "report" => {
            "nothing was sent. The gateway needs --receipts --encrypted-bodies, and its configuration and program \
             have to be those of the policy"
        }
        "tcb_status" | "tcb_level" | "advisories" => {
            "the machine's firmware is older than the policy accepts: its operator has to update it"
        }
        _ => "do not use the server; `confide policy explain FILE` says what the policy demands",
    }
}

/// Returns the advice where something is valid at another time only, for whoever can renew it.
fn hint_for_expiry(check: &str, has_own_endorsements: bool) -> &'static str {
    match check {
        "key_validity" => {
            "check this machine's clock; if it is right, the server has not renewed its key in time, which a gateway \
             does by itself: do not use the server until its operator has found out why"
        }
        // A GPU's endorsements always come from the server.
        check if has_own_endorsements && check != "gpu" => {
            "check this machine's clock; if it is right, the collateral that you gave has to be renewed (`confide \
             collateral fetch`), or left out if the server staples its own"
        }
        _ => {
            "check this machine's clock; if it is right, the server shows endorsements that its operator has to \
             renew: `confide gateway --collateral-service URL` keeps them fresh"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_sentence_and_a_hint() {
        let refusal = PeerRefusal::new("root", "root is not trusted", None, false);
        let text = refusal.describe("https://h");
        let sentence =
            "https://h is not accepted: check `root` failed: root is not trusted\nhint: the policy";
        assert!(text.starts_with(sentence), "{text}");
    }

    #[test]
    fn endorsements_that_have_expired_are_their_own_hint_in_any_check() {
        let expired = Reason::OutsideWindow { subject: "root CRL", from: 1, until: 2, now: 3 };
        for check in ["root", "root_crl", "gpu"] {
            let hint = hint_for_check(check, Some(&expired), false);
            assert!(hint.contains("clock") && hint.contains("operator"), "{hint}");
            assert_ne!(hint, hint_for_check(check, None, false));
        }
    }

    #[test]
    fn advice_on_what_has_expired_is_for_the_one_who_can_renew_it() {
        let expired = |subject| Reason::OutsideWindow { subject, from: 1, until: 2, now: 3 };
        let (list, key) = (expired("root CRL"), expired("bound key"));
        for (check, reason, has_own_endorsements, words) in [
            ("root_crl", &list, false, "operator has to renew"),
            ("root_crl", &list, true, "the collateral that you gave"),
            ("gpu", &list, true, "operator has to renew"),
            ("key_validity", &key, false, "has not renewed its key"),
            ("key_validity", &key, true, "has not renewed its key"),
        ] {
            let hint = hint_for_check(check, Some(reason), has_own_endorsements);
            assert!(hint.contains(words), "{check}, {has_own_endorsements}: {hint}");
            assert!(hint.contains("clock"), "{hint}");
        }
    }

    #[test]
    fn a_connection_that_promises_something_else_than_the_first_is_refused() {
        let promise = |claimed: Option<&str>| ConnectionPromise {
            guarantee: "none (simulated)".into(),
            claimed: claimed.map(Into::into),
        };
        let first = promise(Some("operator is outside the TEE"));
        assert_eq!(first.check_later(first.clone()), Ok(()));
        let changed = first.check_later(promise(None)).unwrap_err();
        assert_eq!(
            changed.to_string(),
            "guarantee has changed since the start: wanted `none (simulated)` (claimed: `operator is outside the \
             TEE`), got `none (simulated)` (claimed: `-`)"
        );
    }
}
