//! `confide-arm zk`: one stage of the zkVM, one process of `confide-prover` for each sample.
//!
//! Every arm answers with the public values, the cycles (from the executor only), the mode and the
//! segments of its work: another count in another arm is another work, and voids the pair.

mod proof_cache;
mod work;

use std::{env, fs, path::PathBuf};

use confide_arm_line::{Hello, Outcome, Report, Run, Sample, serve_runs};
use confide_prover::{
    ExternalProver, ProofPlan, Prover, ProverError, StageUsage, StopHandle,
    line::{Progress, ProofMode, ProverDescription, Stage, StageResult},
};
use serde_json::{Map, Value, json};

use self::{
    proof_cache::{ExecutionResult, ProofCache},
    work::{DcapFiles, GuestWork},
};

/// Name of the program, and the command that builds it.
const PROGRAM: (&str, &str) = ("confide-prover", "make prover");

/// Parts of a stage that depend on the back end and the program only; a service would do them once.
const SET_UP: [&str; 2] = ["start_s", "set_up_s"];

/// The environment variable with the dollars that an hour of this machine costs; without it there is
/// no price.
const PRICE: &str = "CONFIDE_DOLLARS_PER_HOUR";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The stage that is measured: native, emulate, prove or check.
    #[arg(long)]
    stage: String,
    /// The back end; without it, the confide-prover next to this program.
    #[arg(long, conflicts_with = "peer")]
    prover: Option<PathBuf>,
    /// Another back end next to this program, which speaks the same lines: confide-peer-NAME.
    #[arg(long)]
    peer: Option<String>,
    /// Folder that keeps proofs for the arm that checks them.
    #[arg(long)]
    folder: PathBuf,
    #[command(flatten)]
    dcap: DcapFiles,
}

pub(crate) fn run(args: Args) -> Outcome {
    let stage = Stage::ALL.into_iter().find(|stage| stage.name() == args.stage);
    let stage = stage.ok_or("--stage: wanted native, emulate, prove or check")?;
    let (name, builder) = match &args.peer {
        None => (PROGRAM.0.to_string(), PROGRAM.1.to_string()),
        Some(peer) => (format!("confide-peer-{peer}"), format!("make peers-{peer}")),
    };
    // Each back end checks its own proofs only.
    let proofs = args.folder.join(&name);
    let folder = proofs.join(stage.name());
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let program = program_path(args.prover, &name)?;
    let quiet = |_: Stage, _: Progress| ();
    let back = ExternalProver::new(&program, &folder, StopHandle::default(), &quiet);
    let described = match back.describe() {
        Err(ProverError::Missing { .. }) => {
            Err(format!("{name} is not built: {builder} builds it"))
        }
        described => Ok(described?),
    };
    let hello = make_hello(&name, stage, &described);
    let arm = ZkArm {
        stage,
        back,
        proofs: ProofCache::new(proofs),
        dcap: args.dcap,
        price: read_machine_price()?,
    };
    serve_runs(&hello, |run| arm.measure(run))
}

fn program_path(given: Option<PathBuf>, name: &str) -> Outcome<PathBuf> {
    match given {
        Some(path) => Ok(path),
        None => {
            let this = env::current_exe()
                .map_err(|error| format!("cannot find this program's own path: {error}"))?;
            Ok(this.with_file_name(name))
        }
    }
}

fn read_machine_price() -> Outcome<Option<f64>> {
    let Ok(text) = env::var(PRICE) else { return Ok(None) };
    let price = text.parse::<f64>().ok().filter(|price| price.is_finite() && *price > 0.0);
    Ok(price.map(Some).ok_or_else(|| format!("{PRICE}: wanted a price above 0, got {text:?}"))?)
}

fn make_hello(name: &str, stage: Stage, described: &Result<ProverDescription, String>) -> Hello {
    let (version, guarantee) = match described {
        Err(_) => (String::new(), None),
        Ok(known) => {
            let bits = known.strength;
            let (proven, conjectured) = (bits.proven_bits, bits.conjectured_bits);
            let hides = if bits.zero_knowledge {
                "the input is hidden from the verifier (zero-knowledge: yes)"
            } else {
                "hiding the input is not promised (zero-knowledge: no)"
            };
            let guarantee = match stage {
                Stage::Native | Stage::Emulate => "none: this stage proves nothing".to_string(),
                _ => format!("{proven} bits proven, {conjectured} conjectured; {hides}"),
            };
            (format!("{} {}", known.backend, known.version), Some(guarantee))
        }
    };
    Hello {
        guarantee,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        warming: false,
        cannot: described.as_ref().err().cloned(),
        ..Hello::new(format!("{name} {stage}"), version)
    }
}

struct ZkArm<'a> {
    stage: Stage,
    back: ExternalProver<'a>,
    proofs: ProofCache,
    dcap: DcapFiles,
    price: Option<f64>,
}

impl ZkArm<'_> {
    fn measure(&self, run: &Run) -> Outcome<Report> {
        run.refuse_unknown_params(&["work", "mode", "memory_mib", "machines"])?;
        let work = GuestWork::from_name(&run.text_param("work", "")?, &self.dcap)?;
        let mode: ProofMode = run.text_param("mode", "app")?.parse()?;
        let memory_bytes = match run.integer_param("memory_mib", 0)? {
            0 => None,
            mib => Some(mib.saturating_mul(1 << 20)),
        };
        let plan = ProofPlan { mode, memory_bytes };
        // Cycles and segments of unlike machines are no measure of each other.
        let alike = match run.text_param("machines", "alike")?.as_str() {
            "alike" => true,
            "unlike" => false,
            other => {
                return Err(format!("param machines: wanted alike or unlike, got {other:?}").into());
            }
        };
        let execution = self.execute(&work, plan)?;
        let mut report = Report::default();
        for _ in 0..run.requests {
            let (done, used, proof) = self.measure_stage(&work, plan)?;
            let mut sample = self.stage_sample(&execution, plan, &done, used, proof);
            if let (false, Some(answer)) = (alike, sample.answer.as_object_mut()) {
                answer.retain(|name, _| name == "public_values");
            }
            report.samples.push(sample);
            report.wall_s += used.wall.as_secs_f64();
            report.cpu_s += used.cpu.as_secs_f64();
            report.peak_memory_bytes = report.peak_memory_bytes.max(Some(used.peak_rss_bytes));
            if used.peak_is_at_most {
                // A note and no mark: it concerns one figure among many.
                let below =
                    "its peak memory is below that of the arm itself: the figure is an upper bound";
                report.note = Some(below.to_string());
            }
        }
        Ok(report)
    }

    /// Runs the executor, and for the check makes a proof: neither is measured.
    fn execute(&self, work: &GuestWork, plan: ProofPlan) -> Outcome<ExecutionResult> {
        let emulated = self.back.emulate(work.guest, &work.input, plan)?.done;
        let execution = ExecutionResult {
            public_values: emulated.public_values,
            cycles: emulated.cycles.ok_or("the executor reported no cycles")?,
            segments: emulated.segments,
        };
        if self.stage == Stage::Check && self.proofs.read(work, plan).is_none() {
            self.prove(work, plan)?;
        }
        Ok(execution)
    }

    fn prove(
        &self,
        work: &GuestWork,
        plan: ProofPlan,
    ) -> Outcome<(StageResult, StageUsage, usize)> {
        let ran = self.back.prove(work.guest, &work.input, plan)?;
        self.proofs.write(work, plan, &ran.output)?;
        Ok((ran.done, ran.used, ran.output.len()))
    }

    /// The measured stage, with the proof's length where there is one.
    fn measure_stage(
        &self,
        work: &GuestWork,
        plan: ProofPlan,
    ) -> Outcome<(StageResult, StageUsage, Option<usize>)> {
        match self.stage {
            Stage::Native => {
                let ran = self.back.run_native(work.guest, &work.input)?;
                Ok((ran.done, ran.used, None))
            }
            Stage::Emulate => {
                let ran = self.back.emulate(work.guest, &work.input, plan)?;
                Ok((ran.done, ran.used, None))
            }
            Stage::Prove => {
                let (done, used, length) = self.prove(work, plan)?;
                Ok((done, used, Some(length)))
            }
            Stage::Check => {
                let body = self.proofs.read(work, plan).ok_or("the proof is missing")?;
                let ran = self.back.check_proof(work.guest, plan.mode, &body)?;
                Ok((ran.done, ran.used, Some(body.len())))
            }
        }
    }

    fn stage_sample(
        &self,
        execution: &ExecutionResult,
        plan: ProofPlan,
        done: &StageResult,
        used: StageUsage,
        proof: Option<usize>,
    ) -> Sample {
        // The stage's own count comes first; where it has none, the executor's holds.
        let cycles = done.cycles.unwrap_or(execution.cycles);
        let answer = json!({
            "public_values": done.public_values,
            "cycles": cycles,
            "mode": plan.mode,
            "segments": done.segments.or(execution.segments),
        });
        let mut sample =
            Sample { metrics: stage_metrics(done, used, proof), answer, ..Sample::default() };
        let wall_s = used.wall.as_secs_f64();
        sample.metrics.insert("executed_cycles".into(), cycles.into());
        // A check executes nothing: a rate of cycles would mean nothing.
        if self.stage != Stage::Check && wall_s > 0.0 {
            sample.metrics.insert("rate_khz".into(), (cycles as f64 / wall_s / 1e3).into());
        }
        if let Some(price) = self.price {
            sample.metrics.insert("price_dollars".into(), (price * wall_s / 3600.0).into());
        }
        if done.public_values != execution.public_values {
            sample.error = Some("the executor gave other public values".to_string());
        }
        sample
    }
}

fn stage_metrics(done: &StageResult, used: StageUsage, proof: Option<usize>) -> Map<String, Value> {
    let mut metrics = Map::new();
    let mut tell = |name: &str, value: Value| metrics.insert(name.to_string(), value);
    tell("wall_s", used.wall.as_secs_f64().into());
    tell("cpu_s", used.cpu.as_secs_f64().into());
    tell("peak_rss_mib", (used.peak_rss_bytes as f64 / f64::from(1 << 20)).into());
    if let Some(segments) = done.segments {
        tell("segments", segments.into());
    }
    if let Some(length) = proof {
        tell("proof_bytes", length.into());
    }
    if let Some(strength) = done.strength {
        tell("proven_bits", strength.proven_bits.into());
        tell("conjectured_bits", strength.conjectured_bits.into());
        tell("zero_knowledge", u8::from(strength.zero_knowledge).into());
    }
    for (part, seconds) in &done.parts {
        tell(&format!("part_{part}"), (*seconds).into());
    }
    let work = done.parts.iter().filter(|(part, _)| !SET_UP.contains(&part.as_str()));
    let own = match done.stage {
        Stage::Prove => "proving_s",
        Stage::Check => "checking_s",
        Stage::Native | Stage::Emulate => return metrics,
    };
    metrics.insert(own.to_string(), work.map(|(_, seconds)| seconds).sum::<f64>().into());
    metrics
}
