//! `confide-arm zk`: one stage of the zkVM, one process of `confide-prover` for each sample.
//!
//! Every arm answers with the public values, the cycles (from the executor only), the mode and the
//! segments of its work: another count in another arm is another work, and voids the pair.

mod kept;
mod work;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use confide_arm_line::{Hello, Report, Run, Sample, speak};
use confide_prover::{
    External, Plan, Prover, ProverError, StageUsage, StopHandle,
    line::{Description, Mode, Progress, Stage, StageResult},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::{
    kept::{Known, ProofCache},
    work::{DcapFiles, Work},
};
use crate::Outcome;

/// Name of the program, and what builds it.
const PROGRAM: (&str, &str) = ("confide-prover", "make prover");

/// Parts of a stage that depend on the back end and the program only, and that a service would do once.
const SET_UP: [&str; 2] = ["start_s", "set_up_s"];

/// Dollars that an hour of this machine costs; without it no price is told.
const PRICE: &str = "CONFIDE_DOLLARS_PER_HOUR";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The stage that is measured: native, emulate, prove or check.
    #[arg(long)]
    stage: String,
    /// The back end; without it, the confide-prover beside this program.
    #[arg(long, conflicts_with = "peer")]
    prover: Option<PathBuf>,
    /// Another back end beside this program, which speaks the same lines: confide-peer-NAME.
    #[arg(long)]
    peer: Option<String>,
    /// Where proofs are kept for the arm that checks them.
    #[arg(long)]
    folder: PathBuf,
    #[command(flatten)]
    dcap: DcapFiles,
}

/// A hello of an arm whose every sample is a process of its own: nothing is to be warmed.
#[derive(Serialize)]
struct ZkHello {
    #[serde(flatten)]
    hello: Hello,
    warming: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot: Option<String>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let stage = Stage::ALL.into_iter().find(|stage| stage.name() == args.stage);
    let stage = stage.ok_or("--stage: wanted native, emulate, prove or check")?;
    let (name, builder) = match &args.peer {
        None => (PROGRAM.0.to_string(), PROGRAM.1.to_string()),
        Some(peer) => (format!("confide-peer-{peer}"), format!("make peers-{peer}")),
    };
    // Each back end checks its own proofs only.
    let kept = args.folder.join(&name);
    let folder = kept.join(stage.name());
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let program = program_path(args.prover, &name)?;
    let quiet = |_: Stage, _: Progress| ();
    let back = External::new(&program, &folder, StopHandle::default(), &quiet);
    let described = match back.describe() {
        Err(ProverError::Missing { .. }) => {
            Err(format!("{name} is not built: {builder} builds it"))
        }
        other => other.map_err(|error| error.to_string()),
    };
    let hello = hello(&name, stage, &described);
    let arm = Arm { stage, back, kept: ProofCache::new(kept), dcap: args.dcap, price: price()? };
    speak(&hello, |run| arm.measure(run)).map_err(|error| error.to_string())
}

fn program_path(given: Option<PathBuf>, name: &str) -> Outcome<PathBuf> {
    match given {
        Some(path) => Ok(path),
        None => env::current_exe()
            .map(|here| here.with_file_name(name))
            .map_err(|error| format!("cannot tell where this program is: {error}")),
    }
}

fn price() -> Outcome<Option<f64>> {
    let Ok(text) = env::var(PRICE) else { return Ok(None) };
    let price = text.parse::<f64>().ok().filter(|price| price.is_finite() && *price > 0.0);
    price.map(Some).ok_or_else(|| format!("{PRICE}: wanted a price above 0, got {text:?}"))
}

fn hello(name: &str, stage: Stage, described: &Outcome<Description>) -> ZkHello {
    let (version, guarantee) = match described {
        Err(_) => (String::new(), None),
        Ok(known) => {
            let bits = known.strength;
            let (proven, conjectured) = (bits.proven_bits, bits.conjectured_bits);
            let hides = match bits.zero_knowledge {
                true => "the input is hidden from whoever checks (zero-knowledge: yes)",
                false => "nothing is hidden by promise (zero-knowledge: no)",
            };
            let guarantee = match stage {
                Stage::Native | Stage::Emulate => "none: this stage proves nothing".to_string(),
                _ => format!("{proven} bits proven, {conjectured} conjectured; {hides}"),
            };
            (format!("{} {}", known.backend, known.version), Some(guarantee))
        }
    };
    ZkHello {
        hello: Hello {
            arm: format!("{name} {stage}"),
            version,
            simulated: false,
            guarantee,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            note: None,
        },
        warming: false,
        cannot: described.as_ref().err().cloned(),
    }
}

struct Arm<'a> {
    stage: Stage,
    back: External<'a>,
    kept: ProofCache,
    dcap: DcapFiles,
    price: Option<f64>,
}

impl Arm<'_> {
    fn measure(&self, run: &Run) -> Outcome<Report> {
        run.knows_only(&["work", "mode", "memory_mib", "machines"])?;
        let work = Work::named(&run.text("work", "")?, &self.dcap)?;
        let mode: Mode = run.text("mode", "app")?.parse()?;
        let memory_bytes = match run.number("memory_mib", 0)? {
            0 => None,
            mib => Some(mib.saturating_mul(1 << 20)),
        };
        let plan = Plan { mode, memory_bytes };
        // Cycles and segments of unlike machines are no measure of each other.
        let alike = match run.text("machines", "alike")?.as_str() {
            "alike" => true,
            "unlike" => false,
            other => return Err(format!("param machines: wanted alike or unlike, got {other:?}")),
        };
        let known = self.known(&work, plan)?;
        let mut report = Report::default();
        for _ in 0..run.requests {
            let (done, used, proof) = self.measure_once(&work, plan)?;
            let mut sample = self.sample(&known, plan, &done, used, proof);
            if let (false, Some(answer)) = (alike, sample.answer.as_object_mut()) {
                answer.retain(|name, _| name == "public_values");
            }
            report.samples.push(sample);
            report.wall_s += used.wall.as_secs_f64();
            report.cpu_s += used.cpu.as_secs_f64();
            report.peak_memory_bytes = report.peak_memory_bytes.max(Some(used.peak_rss_bytes));
            if used.peak_is_at_most {
                // Of one figure in many: no mark on the rows of all others.
                let below = "its peak memory is below what the arm itself had: an upper bound";
                report.note = Some(below.to_string());
            }
        }
        Ok(report)
    }

    /// What the executor says of the work, and for the check a proof of it: not measured.
    fn known(&self, work: &Work, plan: Plan) -> Outcome<Known> {
        let emulated = self
            .back
            .emulate(work.guest, &work.input, plan)
            .map_err(|error| error.to_string())?
            .done;
        let known = Known {
            public_values: emulated.public_values,
            cycles: emulated.cycles.ok_or("the executor told no cycles")?,
            segments: emulated.segments,
        };
        if self.stage == Stage::Check && self.kept.read(work, plan).is_none() {
            self.proved(work, plan)?;
        }
        Ok(known)
    }

    fn proved(&self, work: &Work, plan: Plan) -> Outcome<(StageResult, StageUsage, usize)> {
        let ran =
            self.back.prove(work.guest, &work.input, plan).map_err(|error| error.to_string())?;
        self.kept.write(work, plan, &ran.output)?;
        Ok((ran.done, ran.used, ran.output.len()))
    }

    /// The measured stage, with the proof's length where there is one.
    fn measure_once(
        &self,
        work: &Work,
        plan: Plan,
    ) -> Outcome<(StageResult, StageUsage, Option<usize>)> {
        let text = |error: confide_prover::ProverError| error.to_string();
        match self.stage {
            Stage::Native => {
                let ran = self.back.native(work.guest, &work.input).map_err(text)?;
                Ok((ran.done, ran.used, None))
            }
            Stage::Emulate => {
                let ran = self.back.emulate(work.guest, &work.input, plan).map_err(text)?;
                Ok((ran.done, ran.used, None))
            }
            Stage::Prove => {
                let (done, used, length) = self.proved(work, plan)?;
                Ok((done, used, Some(length)))
            }
            Stage::Check => {
                let body = self.kept.read(work, plan).ok_or("the proof is gone")?;
                let ran = self.back.check(work.guest, plan.mode, &body).map_err(text)?;
                Ok((ran.done, ran.used, Some(body.len())))
            }
        }
    }

    fn sample(
        &self,
        known: &Known,
        plan: Plan,
        done: &StageResult,
        used: StageUsage,
        proof: Option<usize>,
    ) -> Sample {
        // What a stage says itself counts; what it cannot say is the executor's.
        let cycles = done.cycles.unwrap_or(known.cycles);
        let answer = json!({
            "public_values": done.public_values,
            "cycles": cycles,
            "mode": plan.mode,
            "segments": done.segments.or(known.segments),
        });
        let mut sample =
            Sample { metrics: metrics(done, used, proof), answer, ..Sample::default() };
        let wall_s = used.wall.as_secs_f64();
        sample.metrics.insert("executed_cycles".into(), cycles.into());
        // A check executes nothing: a rate of cycles would mean nothing.
        if self.stage != Stage::Check && wall_s > 0.0 {
            sample.metrics.insert("rate_khz".into(), (cycles as f64 / wall_s / 1e3).into());
        }
        if let Some(price) = self.price {
            sample.metrics.insert("price_dollars".into(), (price * wall_s / 3600.0).into());
        }
        if done.public_values != known.public_values {
            sample.error = Some("the executor gave other public values".to_string());
        }
        sample
    }
}

fn metrics(done: &StageResult, used: StageUsage, proof: Option<usize>) -> Map<String, Value> {
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

/// A path as a name that a file may have.
fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// Writes beside the place and renames: another arm never reads half a proof.
fn write(path: &Path, bytes: &[u8]) -> Outcome {
    let part = path.with_extension(format!("part-{}", std::process::id()));
    fs::write(&part, bytes)
        .and_then(|()| fs::rename(&part, path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}
