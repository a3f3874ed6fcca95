//! Processes as stages: what they say, how they end, what they cost. The programs are shell scripts
//! that say the lines of a back end; nothing is proved here.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use confide_prover::{
    APP_SEGMENTS_MAX, BODY_BYTES_MAX, ExternalProver, ProofPlan, Prover, ProverError, StopHandle,
    line::{
        Digest, PROTOCOL, Phase, Progress, ProofMode, ProofStrength, ProverMessage, Refusal,
        RefusalReason, Stage, StageResult,
    },
};

const PLAN: ProofPlan = ProofPlan { mode: ProofMode::App, memory_bytes: Some(1 << 30) };

#[test]
fn a_stage_gives_its_result_its_output_and_what_it_used() {
    let case = Case::new("result");
    let segment = Progress { phase: Phase::Segment, done: 1, of: Some(2) };
    let script = format!(
        "echo '{}'\nwhile [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; \
         [ \"$1\" = --input ] && in=$2; shift; done\n\
         i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done\n\
         cat \"$in\" \"$in\" > \"$out\"\necho '{}'",
        text(&ProverMessage::Progress(segment)),
        text(&ProverMessage::Result(stage_result(Stage::Prove)))
    );
    let seen = Mutex::new(Vec::new());
    let told = |stage, progress| seen.lock().unwrap().push((stage, progress));
    let ran =
        case.with_script(&script, &told, |back| back.prove("fibonacci", b"in", PLAN)).unwrap();
    assert_eq!(ran.output, b"inin");
    assert_eq!(ran.done, stage_result(Stage::Prove));
    assert_eq!(*seen.lock().unwrap(), [(Stage::Prove, segment)]);
    assert!(ran.used.cpu > Duration::ZERO && ran.used.wall >= ran.used.cpu / 2);
    assert!(ran.used.peak_rss_bytes > 100_000, "{:?}", ran.used);
    // Neither an input, which may be a secret, nor a proof stays behind.
    assert!(fs::read_dir(case.work()).unwrap().next().is_none());
}

#[test]
fn the_words_of_the_command_line_are_those_of_the_protocol() {
    let case = Case::new("words");
    let line = text(&ProverMessage::Result(stage_result(Stage::Check)));
    let script = format!("echo \"$@\" > {}/words\necho '{line}'", case.dir.display());
    case.run(&script, |back| back.check_proof("sort", ProofMode::Aggregated, b"proof")).unwrap();
    let words = fs::read_to_string(case.dir.join("words")).unwrap();
    let (proof, mode) = words.rsplit_once(" --mode ").unwrap();
    // A descriptor of this process: nothing that it reads is ever in a file.
    let proof = proof.strip_prefix("check --guest sort --proof ").unwrap();
    assert!(proof.starts_with(&format!("/proc/{}/fd/", std::process::id())), "{proof}");
    assert_eq!(mode, "aggregated\n");
}

#[test]
fn a_refusal_keeps_its_name() {
    let case = Case::new("refusal");
    let refusal = Refusal { why: RefusalReason::Segments, detail: "1 of 2\u{7}".to_string() };
    let script = format!("echo '{}'\nexit 1", text(&ProverMessage::Refused(refusal)));
    let error =
        case.run(&script, |back| back.check_proof("sort", ProofMode::App, b"")).unwrap_err();
    let ProverError::Refused { stage: Stage::Check, why: RefusalReason::Segments, detail } = error
    else {
        panic!("{error}")
    };
    assert_eq!(detail, "1 of 2", "a terminal is told nothing but text");
}

#[test]
fn an_end_without_an_answer_is_no_yes() {
    let case = Case::new("ends");
    let yes = text(&ProverMessage::Result(stage_result(Stage::Check)));
    for script in [
        "exit 0".to_string(),
        "echo broken >&2; exit 3".to_string(),
        "kill -9 $$".to_string(),
        // A yes on the line and a status that is none.
        format!("echo '{yes}'\nexit 1"),
        format!("echo '{yes}'\nkill -9 $$"),
    ] {
        let error =
            case.run(&script, |back| back.check_proof("sort", ProofMode::App, b"")).unwrap_err();
        assert!(matches!(error, ProverError::NoAnswer { .. }), "{script}: {error}");
        let broken = script.contains("broken");
        assert_eq!(error.to_string().contains("broken"), broken, "what it says to people is kept");
    }
}

#[test]
fn what_is_not_of_the_protocol_is_refused() {
    let case = Case::new("nonsense");
    let yes = text(&ProverMessage::Result(stage_result(Stage::Check)));
    let prove = text(&ProverMessage::Result(stage_result(Stage::Prove)));
    for script in [
        "echo yes".to_string(),
        format!("echo '{yes}'\necho '{yes}'"),
        format!("echo '{prove}'"),
        "head -c 70000 /dev/zero".to_string(),
        // It would go on for ever.
        "while :; do echo no; done".to_string(),
        "echo no\nexec sleep 1000".to_string(),
    ] {
        let error =
            case.run(&script, |back| back.check_proof("sort", ProofMode::App, b"")).unwrap_err();
        assert!(matches!(error, ProverError::Protocol { .. }), "{script}: {error}");
    }
    let description = format!(
        r#"{{"description":{{"protocol":{},"backend":"b","version":"1","programs":[],"modes":[],
        "strength":{{"proven_bits":1,"conjectured_bits":1,"zero_knowledge":false}}}}}}"#,
        PROTOCOL + 1
    )
    .replace('\n', "");
    let error = case.run(&format!("echo '{description}'"), |back| back.describe()).unwrap_err();
    assert!(matches!(error, ProverError::Protocol { .. }), "{error}");
}

#[test]
fn an_output_beyond_its_limit_is_not_read_whole() {
    let case = Case::new("long");
    let script = format!(
        "while [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; shift; done\n\
         head -c 70000 /dev/zero > \"$out\"\necho '{}'",
        text(&ProverMessage::Result(stage_result(Stage::Native)))
    );
    let error = case.run(&script, |back| back.run_native("sort", b"")).unwrap_err();
    assert!(matches!(error, ProverError::Protocol { .. }), "{error}");
}

#[test]
fn a_run_of_more_segments_than_an_app_proof_holds_is_refused_at_the_first_stage() {
    let case = Case::new("segments");
    let emulated = |segments| {
        let done = StageResult { segments: Some(segments), ..stage_result(Stage::Emulate) };
        format!("echo '{}'", text(&ProverMessage::Result(done)))
    };
    let most = APP_SEGMENTS_MAX;
    case.run(&emulated(most), |back| back.emulate("sort", b"", PLAN)).unwrap();
    let refused = case.run(&emulated(most + 1), |back| back.emulate("sort", b"", PLAN));
    let Err(ProverError::TooManySegments { segments, limit }) = refused else { panic!() };
    assert_eq!((segments, limit), (most + 1, most));
    // One proof of constant size joins as many as there are.
    let joined = ProofPlan { mode: ProofMode::Aggregated, ..PLAN };
    case.run(&emulated(most + 1), |back| back.emulate("sort", b"", joined)).unwrap();
}

#[test]
fn a_proof_that_no_file_holds_is_named_so_and_not_a_fault_of_the_protocol() {
    let case = Case::new("body");
    let script = format!(
        "while [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; shift; done\n\
         truncate -s {} \"$out\"\necho '{}'",
        BODY_BYTES_MAX + 1,
        text(&ProverMessage::Result(stage_result(Stage::Prove)))
    );
    let error = case.run(&script, |back| back.prove("sort", b"", PLAN)).unwrap_err();
    assert!(matches!(error, ProverError::ProofTooLong { limit: BODY_BYTES_MAX }), "{error}");
}

#[test]
fn only_what_is_not_there_or_may_not_be_run_is_missing() {
    let case = Case::new("causes");
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    // It is there and may be run, and its interpreter is not there.
    let program = case.write("exit 0");
    fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    let told = |_, _| ();
    let back = ExternalProver::new(&program, case.work(), StopHandle::default(), &told);
    let error = back.describe().unwrap_err();
    assert!(matches!(error, ProverError::NotStarted { .. }), "{error}");
    assert!(!error.to_string().contains("missing"), "{error}");
    let beneath =
        ExternalProver::new(program.join("prover"), case.work(), StopHandle::default(), &told);
    assert!(matches!(beneath.sha256(), Err(ProverError::Missing { .. })));
}

#[test]
fn a_missing_program_is_named() {
    let case = Case::new("missing");
    let told = |_, _| ();
    let back =
        ExternalProver::new(case.dir.join("absent"), case.work(), StopHandle::default(), &told);
    assert!(matches!(back.sha256(), Err(ProverError::Missing { .. })));
    let error = back.describe().unwrap_err();
    assert!(matches!(&error, ProverError::Missing { path, .. } if path.ends_with("absent")));
}

#[test]
fn every_stage_runs_the_program_that_was_hashed_whatever_becomes_of_its_file() {
    let case = Case::new("exchanged");
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let yes = format!("echo '{}'", text(&ProverMessage::Result(stage_result(Stage::Check))));
    let program = case.write(&yes);
    let told = |_, _| ();
    let back = ExternalProver::new(&program, case.work(), StopHandle::default(), &told);
    let hashed = back.sha256().unwrap();
    back.check_proof("sort", ProofMode::App, b"").unwrap();
    // Written over in its place, then replaced by another, then gone.
    let no = Refusal { why: RefusalReason::Unsound, detail: String::new() };
    case.write(&format!("echo '{}'\nexit 1", text(&ProverMessage::Refused(no))));
    back.check_proof("sort", ProofMode::App, b"").unwrap();
    let other = case.dir.join("other");
    fs::write(&other, "#!/bin/false\n").unwrap();
    fs::rename(&other, &program).unwrap();
    back.check_proof("sort", ProofMode::App, b"").unwrap();
    fs::remove_file(&program).unwrap();
    back.check_proof("sort", ProofMode::App, b"").unwrap();
    assert_eq!(back.sha256().unwrap(), hashed);
    // Anyone who comes later finds what is there later.
    let later = ExternalProver::new(&program, case.work(), StopHandle::default(), &told);
    assert!(matches!(later.sha256(), Err(ProverError::Missing { .. })));
}

#[test]
fn a_file_that_nobody_may_run_is_not_run() {
    let case = Case::new("mode");
    let program = case.write("exit 0");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let told = |_, _| ();
    for path in [program, case.work()] {
        let back = ExternalProver::new(path, case.work(), StopHandle::default(), &told);
        assert!(matches!(back.describe(), Err(ProverError::Missing { .. })));
    }
}

#[test]
fn stopping_ends_the_process_and_lets_no_other_start() {
    let case = Case::new("stop");
    // It ignores the polite signal.
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let program = case.write("trap '' TERM\nwhile :; do sleep 0.1; done");
    let (stop, told) = (StopHandle::default(), |_, _| ());
    let back = ExternalProver::new(&program, case.work(), stop.clone(), &told);
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            stop.stop();
        });
        let error = back.prove("sort", b"", PLAN).unwrap_err();
        assert!(matches!(error, ProverError::Interrupted { stage: "prove" }), "{error}");
    });
    assert!(started.elapsed() < Duration::from_secs(60));
    assert!(fs::read_dir(case.work()).unwrap().next().is_none());
    assert!(matches!(back.describe(), Err(ProverError::Interrupted { .. })));
}

/// A test writes its script while no other starts a process: a child between fork and exec would
/// hold the file open for writing, and the kernel starts no such file.
static STARTING: Mutex<()> = Mutex::new(());

struct Case {
    dir: PathBuf,
}

impl Case {
    fn new(name: &str) -> Self {
        let name = format!("confide-prover-{name}-{}", std::process::id());
        let case = Self { dir: std::env::temp_dir().join(name) };
        fs::create_dir_all(case.work()).unwrap();
        case
    }

    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    fn write(&self, script: &str) -> PathBuf {
        let program = self.dir.join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    fn run<T>(&self, script: &str, work: impl Fn(&ExternalProver<'_>) -> T) -> T {
        self.with_script(script, &|_, _| (), work)
    }

    fn with_script<T>(
        &self,
        script: &str,
        told: &(dyn Fn(Stage, Progress) + Sync),
        work: impl Fn(&ExternalProver<'_>) -> T,
    ) -> T {
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let program = self.write(script);
        work(&ExternalProver::new(program, self.work(), StopHandle::default(), told))
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn stage_result(stage: Stage) -> StageResult {
    StageResult {
        stage,
        program_digest: Digest([1; 32]),
        public_values: Digest([2; 32]),
        cycles: Some(1000),
        segments: Some(2),
        mode: Some(ProofMode::App),
        strength: Some(ProofStrength {
            proven_bits: 1,
            conjectured_bits: 2,
            zero_knowledge: false,
        }),
        parts: [("prove_s".to_string(), 0.5)].into(),
    }
}

fn text(line: &ProverMessage) -> String {
    line.to_text().trim_end().to_string()
}
