//! The line between `confide` and `confide-prover`.
//!
//! ```text
//! confide-prover describe
//! confide-prover native  --guest NAME --input FILE --out FILE
//! confide-prover emulate --guest NAME --input FILE [--mode MODE] [--memory BYTES]
//! confide-prover prove   --guest NAME --input FILE --out FILE --mode MODE [--memory BYTES]
//! confide-prover check   --guest NAME --proof FILE --mode MODE
//! ```
//!
//! The input is the guest's own encoding (`guests/programs`). `native` writes the statement's
//! canonical encoding to `--out`, `prove` the body of the proof; both write to a temporary name in
//! the same folder and rename, so that nothing half-written stands under the name asked for.
//!
//! Standard output is JSON, one object a line, at most [`LINE_LENGTH_MAX`] bytes: any number of
//! `{"progress": …}`, then one `{"result": …}` (exit status 0) or `{"refused": …}` (exit status 1),
//! and nothing after it. `describe` prints one `{"description": …}`. Standard error is for people. Any
//! other end (a crash, a signal, status 2) is not an answer and never a yes. SIGINT and SIGTERM end it
//! within a second, without a line.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Version of this protocol; `describe` says it.
pub const PROTOCOL: u32 = 1;

/// The longest line: a description of a few dozen programs has some KiB.
pub const LINE_LENGTH_MAX: usize = 64 * 1024;

/// One line of `confide-prover`'s standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProverMessage {
    /// The progress of the work.
    Progress(Progress),
    /// The stage was done; for `check`: the proof holds.
    Result(StageResult),
    /// The stage was refused; for `check`: the proof does not hold.
    Refused(Refusal),
    /// The answer to `describe`.
    Description(ProverDescription),
}

impl ProverMessage {
    /// Encodes the line as it is printed, newline included.
    pub fn to_text(&self) -> String {
        // Maps with text keys, finite numbers, strings: nothing that JSON cannot hold.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// The answer to `describe`: the back end and its programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProverDescription {
    /// Version of the protocol: [`PROTOCOL`].
    pub protocol: u32,
    /// Name of the back end: `openvm`.
    pub backend: String,
    /// Version of the back end: `2.0.2`.
    pub version: String,
    /// Programs that can be proved and checked.
    pub programs: Vec<ProgramDescription>,
    /// Modes that are built in.
    pub modes: Vec<ProofMode>,
    /// Security of the back end's parameters.
    pub strength: ProofStrength,
}

/// A program of a description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramDescription {
    /// Name of guest and claim: `fibonacci`.
    pub claim: String,
    /// The back end's commitment to the program.
    pub program_digest: Digest,
    /// SHA-256 of the program's ELF.
    pub elf_sha256: Digest,
}

/// Security of a back end's parameters; from the back end, never from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofStrength {
    /// Bits that a published proof covers.
    pub proven_bits: u32,
    /// Bits under the conjectures that the back end's makers name.
    pub conjectured_bits: u32,
    /// Whether a proof hides the input: zero knowledge.
    pub zero_knowledge: bool,
}

/// A stage of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Runs the same program, compiled for this machine.
    Native,
    /// Runs the program in the zkVM's executor, without a proof.
    Emulate,
    /// Runs the program and proves the run.
    Prove,
    /// Checks a proof.
    Check,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 4] = [Self::Native, Self::Emulate, Self::Prove, Self::Check];

    /// The subcommand's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Emulate => "emulate",
            Self::Prove => "prove",
            Self::Check => "check",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kind of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofMode {
    /// One proof for each segment; its size grows with the work.
    App,
    /// Aggregated to one proof of constant size.
    Aggregated,
}

impl ProofMode {
    /// The mode's name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Aggregated => "aggregated",
        }
    }
}

impl fmt::Display for ProofMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProofMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "app" => Ok(Self::App),
            "aggregated" => Ok(Self::Aggregated),
            _ => Err(format!("mode is unknown: wanted app or aggregated, got {text:?}")),
        }
    }
}

/// The progress of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The phase that is under way.
    pub phase: Phase,
    /// Number of steps of this phase that are done.
    pub done: u32,
    /// Number of steps of this phase; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
}

/// The phases of a process's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Keys and tables that depend on the program only.
    SetUp,
    /// The program runs in the executor.
    Execute,
    /// Segments proved.
    Segment,
    /// Proofs of segments joined.
    Aggregate,
    /// The joined proof made small.
    Wrap,
}

impl Phase {
    /// The phase's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::Execute => "execution",
            Self::Segment => "segment",
            Self::Aggregate => "aggregation",
            Self::Wrap => "wrap",
        }
    }
}

/// The result of a stage that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageResult {
    /// The stage.
    pub stage: Stage,
    /// The program: for `check`, the one that the proof was found to be of.
    pub program_digest: Digest,
    /// SHA-256 of the statement: for `check`, as the proof has it.
    pub public_values: Digest,
    /// Cycles, from the executor only: absent for `native` and `check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Segments: absent for `native`, and for `check` where the proof does not show them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u32>,
    /// Kind of the proof: for `prove` and `check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProofMode>,
    /// Security of the proof, from its own parameters: for `prove` and `check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<ProofStrength>,
    /// Seconds of this process by part (`set_up_s`, `execute_s`, `prove_s`, `check_s`, …), wall clock.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, f64>,
}

/// Why a stage was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The reason, of a closed list.
    pub why: RefusalReason,
    /// Details for people: at most some hundred bytes, nothing of the input.
    pub detail: String,
}

/// Reasons to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// No program of that name is built in.
    UnknownGuest,
    /// The input is not the guest's encoding, or too long.
    MalformedInput,
    /// The program itself refused the input: the claim is not true of it.
    ClaimRefused,
    /// The work does not fit into `--memory`.
    Memory,
    /// The proof is not a proof of this back end, of this version and mode.
    MalformedProof,
    /// The proof is of another program.
    AnotherProgram,
    /// A segment is missing, swapped or doubled, or the run did not end well.
    Segments,
    /// The public values are not those that the proof binds.
    PublicValues,
    /// The parameters are not those that this back end checks with.
    Parameters,
    /// The proof does not hold, for a reason that is none of the others.
    Unsound,
    /// A fault of the back end or of this machine (disk, memory).
    Fault,
}

impl RefusalReason {
    /// All reasons, in the order of the variants.
    pub const ALL: [Self; 11] = [
        Self::UnknownGuest,
        Self::MalformedInput,
        Self::ClaimRefused,
        Self::Memory,
        Self::MalformedProof,
        Self::AnotherProgram,
        Self::Segments,
        Self::PublicValues,
        Self::Parameters,
        Self::Unsound,
        Self::Fault,
    ];

    /// The reason's name as on the line.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownGuest => "unknown_guest",
            Self::MalformedInput => "malformed_input",
            Self::ClaimRefused => "claim_refused",
            Self::Memory => "memory",
            Self::MalformedProof => "malformed_proof",
            Self::AnotherProgram => "another_program",
            Self::Segments => "segments",
            Self::PublicValues => "public_values",
            Self::Parameters => "parameters",
            Self::Unsound => "unsound",
            Self::Fault => "fault",
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// 32 bytes, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; 32];
        // One spelling only: the files that hold digests are compared byte by byte.
        let lower = text.bytes().all(|byte| !byte.is_ascii_uppercase());
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) if lower => Ok(Self(bytes)),
            _ => Err("digest is malformed: wanted 64 lower-case hexadecimal digits".to_string()),
        }
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_reads_back_as_it_was_written() {
        let strength =
            ProofStrength { proven_bits: 100, conjectured_bits: 128, zero_knowledge: false };
        let digest = Digest([0xab; 32]);
        let program = ProgramDescription {
            claim: "fibonacci".to_string(),
            program_digest: digest,
            elf_sha256: Digest([1; 32]),
        };
        let lines = [
            ProverMessage::Progress(Progress { phase: Phase::Segment, done: 1, of: Some(2) }),
            ProverMessage::Progress(Progress { phase: Phase::SetUp, done: 0, of: None }),
            ProverMessage::Refused(Refusal {
                why: RefusalReason::Segments,
                detail: "1 of 2".to_string(),
            }),
            ProverMessage::Description(ProverDescription {
                protocol: PROTOCOL,
                backend: "openvm".to_string(),
                version: "2.0.2".to_string(),
                programs: vec![program],
                modes: vec![ProofMode::App, ProofMode::Aggregated],
                strength,
            }),
            ProverMessage::Result(StageResult {
                stage: Stage::Prove,
                program_digest: digest,
                public_values: digest,
                cycles: Some(423_373),
                segments: Some(2),
                mode: Some(ProofMode::App),
                strength: Some(strength),
                parts: BTreeMap::from([("prove_s".to_string(), 18.6)]),
            }),
        ];
        for line in lines {
            let text = line.to_text();
            assert_eq!(text.matches('\n').count(), 1);
            assert_eq!(serde_json::from_str::<ProverMessage>(&text).unwrap(), line, "{text}");
        }
    }

    #[test]
    fn names_on_the_line_are_the_names_in_the_text() {
        for why in RefusalReason::ALL {
            assert_eq!(serde_json::to_value(why).unwrap(), why.name());
        }
        for stage in Stage::ALL {
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.name());
        }
        for mode in [ProofMode::App, ProofMode::Aggregated] {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
            assert_eq!(mode.name().parse::<ProofMode>().unwrap(), mode);
        }
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let text = "ab".repeat(32);
        assert_eq!(text.parse::<Digest>().unwrap().to_string(), text);
        for bad in ["", "ab", &"AB".repeat(32), &"ab".repeat(33), &"g".repeat(64)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
