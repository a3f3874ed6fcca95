//! A proof is accepted only where every check passes.

use std::{collections::BTreeMap, time::Duration};

use confide_statement::Fibonacci;

use super::*;
use crate::{
    line::{PROTOCOL, ProgramDescription, Stage},
    stages::{ProofPlan, StageRun},
};

#[test]
fn a_proof_of_what_was_expected_is_believed() {
    let case = Case::new();
    let statement = fibonacci(10);
    let expected = ExpectedProof {
        statement: Some(&statement),
        program: Some(PROGRAM),
        ..expected_proof(&case.policy)
    };
    let checked = judge(&case.file, &case.back, &expected).unwrap();
    assert_eq!(checked.statement(), &statement);
    assert!(checked.checks().iter().all(|check| check.outcome == Outcome::Passed));
}

#[test]
fn what_was_not_asked_for_is_not_a_yes() {
    let case = Case::new();
    let policy = ProofPolicy::with_any_prover();
    let checked = judge(&case.file, &case.back, &expected_proof(&policy)).unwrap();
    let open = |name| {
        let mut checks = checked.checks().iter();
        checks.any(|check| check.name == name && check.outcome == Outcome::NotEvaluated)
    };
    assert!(open("prover") && open("statement"));
}

#[test]
fn a_prover_that_the_policy_does_not_name_is_never_started() {
    let mut case = Case::new();
    case.back.answer = Answer::Panic;
    case.policy.prover_sha256 = AllowedCheckers::Absent;
    assert_eq!(case.rejection_name(), "unpinned_prover");
    case.policy.prover_sha256 = AllowedCheckers::AnyOf(vec![Digest([0; 32])]);
    assert_eq!(case.rejection_name(), "another_prover");
}

#[test]
fn another_program_is_refused_whoever_names_it() {
    let mut case = Case::new();
    case.policy.programs = Some(BTreeMap::from([("fibonacci".to_string(), vec![OTHER])]));
    assert_eq!(case.rejection_name(), "another_program");
    case.policy.programs = Some(BTreeMap::from([("sort".to_string(), vec![PROGRAM])]));
    assert_eq!(case.rejection_name(), "another_program");

    let case = Case::new();
    let expected = ExpectedProof { program: Some(OTHER), ..expected_proof(&case.policy) };
    assert_eq!(name(judge(&case.file, &case.back, &expected)), "another_program");

    // A header that names a program which `confide-prover` does not have.
    let mut case = Case::new();
    case.file.header.program_digest = OTHER;
    assert_eq!(case.rejection_name(), "another_program");

    // A proof that is of another program than its header says.
    let mut case = Case::new();
    case.back.done.program_digest = OTHER;
    assert_eq!(case.rejection_name(), "another_program");
}

#[test]
fn another_statement_is_refused_and_a_changed_one_as_well() {
    let case = Case::new();
    let other = fibonacci(11);
    let expected = ExpectedProof { statement: Some(&other), ..expected_proof(&case.policy) };
    assert_eq!(name(judge(&case.file, &case.back, &expected)), "another_statement");

    let mut case = Case::new();
    case.file.header.statement = other.encode();
    assert_eq!(case.rejection_name(), "public_values");
    case.file.header.statement.push(0);
    assert_eq!(case.rejection_name(), "malformed_statement");

    let mut case = Case::new();
    case.file.header.claim = "sort".to_string();
    assert_eq!(case.rejection_name(), "another_statement");

    let mut case = Case::new();
    case.back.done.public_values = OTHER;
    assert_eq!(case.rejection_name(), "public_values");
}

#[test]
fn parameters_and_modes_below_the_policy_are_refused() {
    let mut case = Case::new();
    case.policy.proven_bits_min = 101;
    assert_eq!(case.rejection_name(), "weaker_parameters");

    let mut case = Case::new();
    case.policy.conjectured_bits_min = 121;
    assert_eq!(case.rejection_name(), "weaker_parameters");

    let mut case = Case::new();
    case.policy.zero_knowledge = true;
    assert_eq!(case.rejection_name(), "weaker_parameters");

    let mut case = Case::new();
    case.policy.modes = vec![ProofMode::Aggregated];
    assert_eq!(case.rejection_name(), "mode");

    // The proof has weaker ones than the back end says of itself; its header agrees with it.
    let mut case = Case::new();
    let weak = ProofStrength { proven_bits: 40, ..STRENGTH };
    case.back.done.strength = Some(weak);
    case.file.header.strength = weak;
    assert_eq!(case.rejection_name(), "weaker_parameters");
}

#[test]
fn a_header_that_says_more_than_the_proof_shows_is_refused() {
    let mut case = Case::new();
    case.file.header.strength.zero_knowledge = true;
    assert_eq!(case.rejection_name(), "header");

    let mut case = Case::new();
    case.file.header.strength.proven_bits = 128;
    assert_eq!(case.rejection_name(), "header");

    let mut case = Case::new();
    case.file.header.segments = 1;
    assert_eq!(case.rejection_name(), "header");

    let mut case = Case::new();
    case.file.header.mode = ProofMode::Aggregated;
    assert_eq!(case.rejection_name(), "header");

    // A back end that says nothing of its proof has not accepted it.
    for forget in
        [|done: &mut StageResult| done.strength = None, |done: &mut StageResult| done.mode = None]
    {
        let mut case = Case::new();
        forget(&mut case.back.done);
        assert_eq!(case.rejection_name(), "header");
    }
}

#[test]
fn another_back_end_or_version_is_refused() {
    let mut case = Case::new();
    case.file.header.backend_version = "2.0.1".to_string();
    assert_eq!(case.rejection_name(), "another_backend");
}

#[test]
fn what_the_back_end_refuses_keeps_its_name_and_a_fault_is_no_judgement() {
    for why in RefusalReason::ALL {
        let mut case = Case::new();
        case.back.answer = Answer::Refuse(why);
        let verdict = judge(&case.file, &case.back, &expected_proof(&case.policy)).unwrap_err();
        match verdict {
            JudgementError::Rejected(rejected) => assert_eq!(rejected.reason.name(), why.name()),
            JudgementError::NotJudged(_) => assert_eq!(why, RefusalReason::Fault),
        }
    }
}

const PROGRAM: Digest = Digest([7; 32]);
const OTHER: Digest = Digest([8; 32]);
const PROVER: Digest = Digest([9; 32]);
const STRENGTH: ProofStrength =
    ProofStrength { proven_bits: 100, conjectured_bits: 120, zero_knowledge: false };

struct Case {
    file: ProofFile,
    back: Back,
    policy: ProofPolicy,
}

struct Back {
    done: StageResult,
    answer: Answer,
}

enum Answer {
    Accept,
    Refuse(RefusalReason),
    Panic,
}

impl Case {
    fn new() -> Self {
        let statement = fibonacci(10);
        let done = StageResult {
            stage: Stage::Check,
            program_digest: PROGRAM,
            public_values: Digest(statement.digest()),
            cycles: None,
            segments: Some(2),
            mode: Some(ProofMode::App),
            strength: Some(STRENGTH),
            parts: BTreeMap::new(),
        };
        let header = Header {
            statement: statement.encode(),
            claim: statement.claim_name().to_string(),
            program_digest: PROGRAM,
            backend: "stand-in".to_string(),
            backend_version: "1".to_string(),
            mode: ProofMode::App,
            strength: STRENGTH,
            segments: 2,
            cycles: 1000,
        };
        let policy = ProofPolicy {
            prover_sha256: AllowedCheckers::AnyOf(vec![PROVER]),
            ..ProofPolicy::default()
        };
        let file = ProofFile { header, body: vec![1; 10] };
        Self { file, back: Back { done, answer: Answer::Accept }, policy }
    }

    fn rejection_name(&self) -> &'static str {
        let expected = expected_proof(&self.policy);
        name(judge(&self.file, &self.back, &expected))
    }
}

fn expected_proof(policy: &ProofPolicy) -> ExpectedProof<'_> {
    ExpectedProof { prover_sha256: PROVER, policy, statement: None, program: None }
}

fn name(judged: Result<CheckedProof, JudgementError>) -> &'static str {
    match judged.unwrap_err() {
        JudgementError::Rejected(rejected) => {
            let last = rejected.checks.last().unwrap();
            assert_eq!(last.outcome, Outcome::Failed);
            rejected.reason.name()
        }
        JudgementError::NotJudged(error) => panic!("not judged: {error}"),
    }
}

fn fibonacci(n: u32) -> Statement {
    Statement::Fibonacci(Fibonacci { n, value: 55 })
}

impl Prover for Back {
    fn describe(&self) -> Result<ProverDescription, ProverError> {
        assert!(!matches!(self.answer, Answer::Panic), "it was started");
        let program = |claim: &str| ProgramDescription {
            claim: claim.to_string(),
            program_digest: PROGRAM,
            elf_sha256: Digest([1; 32]),
        };
        Ok(ProverDescription {
            protocol: PROTOCOL,
            backend: "stand-in".to_string(),
            version: "1".to_string(),
            programs: vec![program("fibonacci"), program("sort")],
            modes: vec![ProofMode::App, ProofMode::Aggregated],
            strength: STRENGTH,
        })
    }

    fn check_proof(&self, _: &str, _: ProofMode, _: &[u8]) -> Result<StageRun<()>, ProverError> {
        let used = StageUsage {
            wall: Duration::from_millis(1),
            cpu: Duration::from_millis(1),
            peak_rss_bytes: 1,
            peak_is_at_most: false,
        };
        match self.answer {
            Answer::Refuse(why) => {
                Err(ProverError::Refused { stage: Stage::Check, why, detail: String::new() })
            }
            _ => Ok(StageRun { done: self.done.clone(), output: (), used }),
        }
    }

    fn run_native(&self, _: &str, _: &[u8]) -> Result<StageRun<Vec<u8>>, ProverError> {
        panic!("a checker runs nothing")
    }

    fn emulate(&self, _: &str, _: &[u8], _: ProofPlan) -> Result<StageRun<()>, ProverError> {
        panic!("a checker runs nothing")
    }

    fn prove(&self, _: &str, _: &[u8], _: ProofPlan) -> Result<StageRun<Vec<u8>>, ProverError> {
        panic!("a checker proves nothing")
    }
}
