//! Whether a proof file is believed, check by check.

use std::fmt;

use confide_statement::{Statement, StatementError};

use crate::{
    file::{Header, ProofFile},
    line::{Digest, ProofMode, ProofStrength, ProverDescription, RefusalReason, StageResult},
    policy::{AllowedCheckers, ProofPolicy},
    stages::{Prover, ProverError, StageUsage},
};

/// A checker's expectations of a proof.
#[derive(Clone, Debug)]
pub struct ExpectedProof<'a> {
    /// SHA-256 of the `confide-prover` that will be asked.
    pub prover_sha256: Digest,
    /// The policy that the proof must meet.
    pub policy: &'a ProofPolicy,
    /// The statement, where it is known in advance.
    pub statement: Option<&'a Statement>,
    /// The program, where it is named in advance.
    pub program: Option<Digest>,
}

/// A proof that holds for what was expected. [`judge()`] alone makes one.
#[derive(Clone, Debug)]
pub struct CheckedProof {
    header: Header,
    statement: Statement,
    done: StageResult,
    used: StageUsage,
    checks: Vec<Check>,
}

impl CheckedProof {
    /// The file's header; each field that a check can tell was compared with the proof.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The statement that was proved.
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    /// The result of the back end's check.
    pub fn result(&self) -> &StageResult {
        &self.done
    }

    /// Time and memory that the back end's check took.
    pub fn usage(&self) -> StageUsage {
        self.used
    }

    /// Every check with its outcome.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }
}

/// A proof that is not believed.
#[derive(Clone, Debug)]
pub struct RejectedProof {
    /// The first reason.
    pub reason: RejectionReason,
    /// The checks up to it, with it.
    pub checks: Vec<Check>,
}

/// One check of a proof, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A fixed name in snake case.
    pub name: &'static str,
    /// The outcome of the check.
    pub outcome: Outcome,
    /// The value that was checked, for people.
    pub detail: String,
}

/// The outcome of a check. Only [`Outcome::Passed`] is a yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check passed.
    Passed,
    /// The check failed.
    Failed,
    /// The check was not asked for, or there was nothing to compare.
    NotEvaluated,
}

impl Outcome {
    /// The outcome's name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotEvaluated => "not_evaluated",
        }
    }
}

/// Why a proof is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RejectionReason {
    /// The policy does not say which `confide-prover` may check.
    #[error("policy pins no confide-prover: found {got}")]
    UnpinnedProver {
        /// SHA-256 of the one that was found.
        got: Digest,
    },
    /// The `confide-prover` at hand is not one that the policy names.
    #[error("confide-prover is not one that the policy pins: got {got}")]
    AnotherProver {
        /// SHA-256 of the one that was found.
        got: Digest,
    },
    /// The proof is of another back end, or of another version of it.
    #[error("proof is of another back end: wanted {wanted}, got {got}")]
    AnotherBackend {
        /// The back end at hand.
        wanted: String,
        /// The back end that the proof names.
        got: String,
    },
    /// The statement in the file is malformed.
    #[error("statement of the proof file is malformed: {0}")]
    MalformedStatement(StatementError),
    /// The statement is not the one expected, or not of the claim that the file names.
    #[error("proof is of another statement: wanted {wanted}, got {got}")]
    AnotherStatement {
        /// What was expected.
        wanted: String,
        /// What the file holds.
        got: String,
    },
    /// The program is not the one expected.
    #[error("proof is of another program: wanted {wanted} ({by}), got {got}")]
    AnotherProgram {
        /// Who demands it: the command line, the policy or the `confide-prover` at hand.
        by: &'static str,
        /// Digests of the programs that are allowed.
        wanted: String,
        /// Digest that the file or the proof has.
        got: String,
    },
    /// The policy does not take this kind of proof.
    #[error("mode is not one that the policy accepts: got {got}")]
    Mode {
        /// The proof's mode.
        got: ProofMode,
    },
    /// The parameters are weaker than the policy allows.
    #[error("parameters are weaker than the policy allows: wanted {wanted}, got {got}")]
    WeakerParameters {
        /// The strength that the policy demands.
        wanted: String,
        /// The strength that the proof or the back end has.
        got: String,
    },
    /// The statement is not what the proof binds.
    #[error("statement is not what was proved: its digest is {wanted}, the proof binds {got}")]
    PublicValues {
        /// Digest of the file's statement.
        wanted: Digest,
        /// Public values of the proof.
        got: Digest,
    },
    /// The header says something that the proof does not show.
    #[error("header and proof differ in {field}: wanted {shown}, got {said}")]
    Header {
        /// The header's field.
        field: &'static str,
        /// The value that the proof shows.
        shown: String,
        /// The value that the header states.
        said: String,
    },
    /// The back end refused the proof.
    #[error("proof is not valid: {why}: {detail}")]
    Refused {
        /// The reason, from the closed list.
        why: RefusalReason,
        /// Details for people.
        detail: String,
    },
}

impl RejectionReason {
    /// Name of the reason, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UnpinnedProver { .. } => "unpinned_prover",
            Self::AnotherProver { .. } => "another_prover",
            Self::AnotherBackend { .. } => "another_backend",
            Self::MalformedStatement(_) => "malformed_statement",
            Self::AnotherStatement { .. } => "another_statement",
            Self::AnotherProgram { .. } => "another_program",
            Self::Mode { .. } => "mode",
            Self::WeakerParameters { .. } => "weaker_parameters",
            Self::PublicValues { .. } => "public_values",
            Self::Header { .. } => "header",
            Self::Refused { why, .. } => why.name(),
        }
    }
}

/// Why a proof was not judged.
#[derive(Debug)]
pub enum JudgementError {
    /// The proof is not believed.
    Rejected(RejectedProof),
    /// The back end gave no answer.
    NotJudged(ProverError),
}

/// Judges a proof by the back end at hand, which is asked only when it is one that the policy takes.
///
/// # Errors
/// [`JudgementError`]: the first reason not to believe it, or why nobody could tell.
pub fn judge(
    file: &ProofFile,
    prover: &impl Prover,
    expected: &ExpectedProof<'_>,
) -> Result<CheckedProof, JudgementError> {
    let mut steps = CheckList::default();
    let checked = steps.check_all(file, prover, expected);
    checked.map_err(|verdict| match verdict {
        Failure::Rejected(reason) => {
            JudgementError::Rejected(RejectedProof { reason: *reason, checks: steps.checks })
        }
        Failure::Prover(error) => JudgementError::NotJudged(error),
    })
}

enum Failure {
    Rejected(Box<RejectionReason>),
    Prover(ProverError),
}

impl From<ProverError> for Failure {
    fn from(error: ProverError) -> Self {
        Self::Prover(error)
    }
}

#[derive(Default)]
struct CheckList {
    checks: Vec<Check>,
}

impl CheckList {
    fn check_all(
        &mut self,
        file: &ProofFile,
        prover: &impl Prover,
        expected: &ExpectedProof<'_>,
    ) -> Result<CheckedProof, Failure> {
        let header = &file.header;
        self.check_prover(expected)?;
        let statement = self.check_statement(header, expected)?;
        let description = prover.describe()?;
        self.check_backend(header, &description)?;
        self.check_program(header, &description, expected)?;
        self.check_strength(header.mode, description.strength, expected.policy)?;
        let (done, used) = self.check_proof(file, prover)?;
        let shown = done.program_digest;
        if shown != header.program_digest {
            let (by, wanted) = ("the proof", shown.to_string());
            let got = header.program_digest.to_string();
            return self.fail("proof", RejectionReason::AnotherProgram { by, wanted, got });
        }
        let (wanted, got) = (Digest(statement.digest()), done.public_values);
        if wanted != got {
            return self.fail("public_values", RejectionReason::PublicValues { wanted, got });
        }
        self.pass("public_values", got);
        self.check_header(header, &done, description.strength)?;
        let header = header.clone();
        let checks = std::mem::take(&mut self.checks);
        Ok(CheckedProof { header, statement, done, used, checks })
    }

    fn check_prover(&mut self, expected: &ExpectedProof<'_>) -> Result<(), Failure> {
        let got = expected.prover_sha256;
        match &expected.policy.prover_sha256 {
            AllowedCheckers::Absent => self.fail("prover", RejectionReason::UnpinnedProver { got }),
            AllowedCheckers::DangerousAny => {
                self.push_check("prover", Outcome::NotEvaluated, format!("not pinned: {got}"));
                Ok(())
            }
            AllowedCheckers::AnyOf(pins) if pins.contains(&got) => {
                self.pass("prover", got);
                Ok(())
            }
            AllowedCheckers::AnyOf(_) => {
                self.fail("prover", RejectionReason::AnotherProver { got })
            }
        }
    }

    fn check_statement(
        &mut self,
        header: &Header,
        expected: &ExpectedProof<'_>,
    ) -> Result<Statement, Failure> {
        const NAME: &str = "statement";
        let statement = match Statement::decode(&header.statement) {
            Ok(statement) => statement,
            Err(error) => return self.fail(NAME, RejectionReason::MalformedStatement(error)),
        };
        if statement.claim_name() != header.claim {
            let (wanted, got) = (header.claim.clone(), statement.claim_name().to_string());
            return self.fail(NAME, RejectionReason::AnotherStatement { wanted, got });
        }
        let digest = Digest(statement.digest());
        match expected.statement {
            None => {
                let detail = format!("not compared: {} {digest}", statement.claim_name());
                self.push_check(NAME, Outcome::NotEvaluated, detail);
            }
            Some(wanted) if *wanted == statement => self.pass(NAME, digest),
            Some(wanted) => {
                let wanted = format!("{} {}", wanted.claim_name(), Digest(wanted.digest()));
                let got = format!("{} {digest}", statement.claim_name());
                return self.fail(NAME, RejectionReason::AnotherStatement { wanted, got });
            }
        }
        Ok(statement)
    }

    fn check_backend(
        &mut self,
        header: &Header,
        description: &ProverDescription,
    ) -> Result<(), Failure> {
        let wanted = format!("{} {}", description.backend, description.version);
        let got = format!("{} {}", header.backend, header.backend_version);
        if wanted != got {
            return self.fail("backend", RejectionReason::AnotherBackend { wanted, got });
        }
        self.pass("backend", got);
        Ok(())
    }

    /// Checks the program against all that name one: the command line, the policy and
    /// `confide-prover`.
    fn check_program(
        &mut self,
        header: &Header,
        description: &ProverDescription,
        expected: &ExpectedProof<'_>,
    ) -> Result<(), Failure> {
        let got = header.program_digest;
        let built: Vec<Digest> = description
            .programs
            .iter()
            .filter(|program| program.claim == header.claim)
            .map(|program| program.program_digest)
            .collect();
        let policy = expected.policy.programs.as_ref();
        let by_policy = policy.map(|all| all.get(&header.claim).cloned().unwrap_or_default());
        for (by, allowed) in [
            ("--program", expected.program.map(|program| vec![program])),
            ("the policy", by_policy),
            ("confide-prover", Some(built)),
        ] {
            let Some(allowed) = allowed.filter(|allowed| !allowed.contains(&got)) else { continue };
            let all: Vec<String> = allowed.iter().map(Digest::to_string).collect();
            let wanted =
                if all.is_empty() { format!("no {}", header.claim) } else { all.join(" or ") };
            let got = got.to_string();
            return self.fail("program", RejectionReason::AnotherProgram { by, wanted, got });
        }
        self.pass("program", format!("{} {got}", header.claim));
        Ok(())
    }

    fn check_strength(
        &mut self,
        mode: ProofMode,
        got: ProofStrength,
        policy: &ProofPolicy,
    ) -> Result<(), Failure> {
        if !policy.modes.contains(&mode) {
            return self.fail("mode", RejectionReason::Mode { got: mode });
        }
        self.pass("mode", mode);
        let hiding = |yes| if yes { "zero-knowledge" } else { "not zero-knowledge" };
        for (wanted, least, bits) in [
            ("proven bits", policy.proven_bits_min, got.proven_bits),
            ("conjectured bits", policy.conjectured_bits_min, got.conjectured_bits),
        ] {
            if bits < least {
                let (wanted, got) = (format!("{least} {wanted}"), bits.to_string());
                return self.fail("parameters", RejectionReason::WeakerParameters { wanted, got });
            }
        }
        if policy.zero_knowledge && !got.zero_knowledge {
            let (wanted, got) = (hiding(true).to_string(), hiding(false).to_string());
            return self.fail("parameters", RejectionReason::WeakerParameters { wanted, got });
        }
        let ProofStrength { proven_bits, conjectured_bits, zero_knowledge } = got;
        let bits = format!("{proven_bits} bits proven, {conjectured_bits} conjectured");
        self.pass("parameters", format!("{bits}, {}", hiding(zero_knowledge)));
        Ok(())
    }

    fn check_proof(
        &mut self,
        file: &ProofFile,
        prover: &impl Prover,
    ) -> Result<(StageResult, StageUsage), Failure> {
        let header = &file.header;
        match prover.check_proof(&header.claim, header.mode, &file.body) {
            Ok(ran) => {
                self.pass("proof", format!("{} bytes", file.body.len()));
                Ok((ran.done, ran.used))
            }
            // A fault of disk or memory says nothing of the proof.
            Err(ProverError::Refused { why, detail, .. }) if why != RefusalReason::Fault => {
                self.fail("proof", RejectionReason::Refused { why, detail })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Compares the header with what the proof shows. An absent strength or mode is a failure.
    fn check_header(
        &mut self,
        header: &Header,
        done: &StageResult,
        known: ProofStrength,
    ) -> Result<(), Failure> {
        let shown = done.strength.unwrap_or(ProofStrength {
            proven_bits: 0,
            conjectured_bits: 0,
            zero_knowledge: false,
        });
        let said = header.strength;
        let mode = done.mode.map_or("none", ProofMode::name);
        let segments = done.segments.unwrap_or(header.segments);
        for (field, shown, said) in [
            ("mode", mode.to_string(), header.mode.to_string()),
            ("segments", segments.to_string(), header.segments.to_string()),
            ("proven_bits", shown.proven_bits.to_string(), said.proven_bits.to_string()),
            (
                "conjectured_bits",
                shown.conjectured_bits.to_string(),
                said.conjectured_bits.to_string(),
            ),
            ("zero_knowledge", shown.zero_knowledge.to_string(), said.zero_knowledge.to_string()),
        ] {
            if shown != said {
                return self.fail("header", RejectionReason::Header { field, shown, said });
            }
        }
        // The policy judged what the back end says of itself: the proof must have just that.
        if shown != known {
            let wanted = format!("{} proven bits", known.proven_bits);
            let got = shown.proven_bits.to_string();
            return self.fail("header", RejectionReason::WeakerParameters { wanted, got });
        }
        let unseen = match done.segments {
            Some(_) => "cycles are as claimed by the prover",
            None => "cycles and segments are as claimed by the prover",
        };
        self.pass("header", unseen);
        Ok(())
    }

    fn pass(&mut self, name: &'static str, detail: impl fmt::Display) {
        self.push_check(name, Outcome::Passed, detail.to_string());
    }

    fn fail<T>(&mut self, name: &'static str, reason: RejectionReason) -> Result<T, Failure> {
        self.push_check(name, Outcome::Failed, reason.to_string());
        Err(Failure::Rejected(Box::new(reason)))
    }

    fn push_check(&mut self, name: &'static str, outcome: Outcome, detail: String) {
        self.checks.push(Check { name, outcome, detail });
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
