//! fio's jobs: the seed's nine by their names and shapes, and one operation at a time.

use std::{path::PathBuf, process::Command};

use confide_arm_line::{Report, Run};
use confide_tools::fio::{self, Job, Side};
use serde_json::json;

use super::{
    Outcome, ToolHello, Watch,
    disk::{Disk, Scratch, direct_refused, memory_bytes, virtual_machine},
    metric, output, stdout, version,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the scratch file lies
    #[arg(long)]
    folder: PathBuf,
    /// How fio asks for I/O
    #[arg(long, default_value = "libaio")]
    engine: String,
    /// Through this machine's page cache instead of around it
    #[arg(long)]
    buffered: bool,
}

/// One job.
struct Shape {
    name: &'static str,
    rw: &'static str,
    block: &'static str,
    depth: u32,
    threads: u32,
    gives: Gives,
}

/// Which figures are taken of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    Operations,
    Bandwidth,
    Sequential,
    Mixed,
    /// Time at a queue of four.
    Latency,
    /// Time at a queue of one.
    Single,
}

const fn shape(
    name: &'static str,
    rw: &'static str,
    block: &'static str,
    depth: u32,
    gives: Gives,
) -> Shape {
    // As in the seed: four threads for what is sequential.
    let threads = if matches!(gives, Gives::Sequential) { 4 } else { 1 };
    Shape { name, rw, block, depth, threads, gives }
}

/// The first nine are those of InfraBuilder/docker-fio, which the seed ran.
const SHAPES: &[Shape] = &[
    shape("read_iops", "randread", "4k", 64, Gives::Operations),
    shape("write_iops", "randwrite", "4k", 64, Gives::Operations),
    shape("read_bw", "randread", "128k", 64, Gives::Bandwidth),
    shape("write_bw", "randwrite", "128k", 64, Gives::Bandwidth),
    shape("read_latency", "randread", "4k", 4, Gives::Latency),
    shape("write_latency", "randwrite", "4k", 4, Gives::Latency),
    shape("read_seq", "read", "1m", 16, Gives::Sequential),
    shape("write_seq", "write", "1m", 16, Gives::Sequential),
    shape("rw_mix", "randrw", "4k", 64, Gives::Mixed),
    shape("read_qd1", "randread", "4k", 1, Gives::Single),
    shape("write_qd1", "randwrite", "4k", 1, Gives::Single),
];

/// What of the suite's params is understood.
const PARAMS: &[&str] = &["job", "size_mib", "runtime_ms", "ramp_ms", "steady_percent"];
const MIB: f64 = 1_048_576.0;

pub(crate) fn run(args: &Args) -> Outcome {
    let disk = Disk::of(&args.folder);
    let made = std::fs::create_dir_all(&args.folder)
        .err()
        .map(|error| format!("{}: {error}", args.folder.display()));
    let refused = match args.buffered {
        true => None,
        false => direct_refused(&args.folder),
    };
    let way = if args.buffered { "through the page cache" } else { "direct" };
    let hello = ToolHello::new(
        format!("fio, {}, {way}", args.engine),
        version(Command::new("fio").arg("--version")),
        1,
    );
    let mut scratch: Option<Scratch> = None;
    hello.note(note(&disk)).cannot(made.or(refused)).speak(|run| {
        run.knows_only(PARAMS)?;
        let bytes = run.number("size_mib", 512)? << 20;
        // Laid out once: what is measured is the disk, not how a file grows.
        if scratch.as_ref().is_none_or(|scratch| scratch.bytes != bytes) {
            drop(scratch.take());
            scratch = Some(Scratch::make(&args.folder, bytes, run.seed)?);
        }
        let scratch = scratch.as_ref().ok_or("no scratch file")?;
        job(args, run, scratch, &disk)
    })
}

fn job(args: &Args, run: &Run, scratch: &Scratch, disk: &Disk) -> Outcome<Report> {
    let name = run.text("job", "")?;
    let shape = SHAPES.iter().find(|shape| shape.name == name);
    let shape = shape.ok_or_else(|| format!("param job: no job named {name}"))?;
    let watch = Watch::start();
    let mut command = Command::new("fio");
    command.args(words(args, run, shape, scratch)?);
    let job = fio::read(&stdout(&output(&mut command)?)).map_err(|error| error.to_string())?;
    if job.error != 0 {
        return Err(format!("fio ended {name} with error {}", job.error));
    }
    let mut report = watch.report();
    figures(&mut report, shape, &job);
    report.marks = marks(args, shape, &job, scratch, disk);
    report.answer = json!({ "job": name, "errors": job.error });
    Ok(report)
}

/// The seed's options, less what hides its errors: JSON instead of text, one process group.
fn words(args: &Args, run: &Run, shape: &Shape, scratch: &Scratch) -> Outcome<Vec<String>> {
    let runtime_ms = run.number("runtime_ms", 1500)?;
    let (ramp_ms, steady) = (run.number("ramp_ms", 300)?, run.number("steady_percent", 0)?);
    let mut size = scratch.bytes;
    let mut words = vec![
        format!("--name={}", shape.name),
        format!("--filename={}", scratch.path()),
        format!("--rw={}", shape.rw),
        format!("--bs={}", shape.block),
        format!("--iodepth={}", shape.depth),
        format!("--numjobs={}", shape.threads),
        format!("--ioengine={}", args.engine),
        format!("--direct={}", u8::from(!args.buffered)),
        format!("--runtime={runtime_ms}ms"),
        format!("--ramp_time={ramp_ms}ms"),
        format!("--randseed={}", run.seed),
        "--time_based".into(),
        "--randrepeat=0".into(),
        "--thread".into(),
        "--group_reporting".into(),
        "--end_fsync=1".into(),
        "--output-format=json+".into(),
    ];
    match shape.gives {
        Gives::Latency | Gives::Single => {
            words.extend(["--lat_percentiles=1".into(), "--clat_percentiles=0".into()]);
        }
        Gives::Sequential => {
            // 500M of 2G in the seed: 125 of 512, whatever the size. fio would let the file grow
            // by what the threads are apart; here the last thread ends where the file does.
            let apart = scratch.bytes / 512 * 125;
            size = scratch.bytes - 3 * apart;
            words.push(format!("--offset_increment={apart}"));
        }
        Gives::Operations | Gives::Bandwidth | Gives::Mixed => words.push("--gtod_reduce=1".into()),
    }
    if shape.gives == Gives::Mixed {
        words.push("--rwmixread=75".into());
    }
    words.push(format!("--size={size}"));
    if steady > 0 {
        let of = match shape.gives {
            Gives::Bandwidth | Gives::Sequential => "bw",
            _ => "iops",
        };
        words.push(format!("--steadystate={of}:{steady}%"));
        words.push(format!("--steadystate_duration={}s", (runtime_ms / 2000).max(1)));
    }
    Ok(words)
}

/// Each shape has metrics of its own name, so that no table sets unlike things beside each other.
fn figures(report: &mut Report, shape: &Shape, job: &Job) {
    let reads = shape.rw.ends_with("read");
    let side: &Side = if reads { &job.read } else { &job.write };
    match shape.gives {
        Gives::Operations => metric(report, "random_per_s", Some(side.per_s)),
        Gives::Bandwidth => metric(report, "random_mib_per_s", Some(side.bytes_per_s / MIB)),
        Gives::Sequential => metric(report, "sequential_mib_per_s", Some(side.bytes_per_s / MIB)),
        Gives::Mixed => {
            metric(report, "mixed_read_per_s", Some(job.read.per_s));
            metric(report, "mixed_write_per_s", Some(job.write.per_s));
        }
        Gives::Latency => metric(report, "latency_us", side.mean_us),
        Gives::Single => {
            metric(report, "single_us", side.mean_us);
            for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                let time_us = side.times_ns.quantile(q).map(|time_ns| time_ns / 1e3);
                metric(report, &format!("single_{name}_us"), time_us);
            }
        }
    }
}

/// What a reader of these figures must know.
fn marks(args: &Args, shape: &Shape, job: &Job, scratch: &Scratch, disk: &Disk) -> Vec<String> {
    let mut marks = Vec::new();
    let reads = shape.rw.ends_with("read");
    if args.buffered {
        marks.push("through the page cache".to_owned());
        if scratch.bytes < memory_bytes() {
            marks.push("the file fits into memory".to_owned());
        }
    } else if virtual_machine() {
        marks.push("may be served from the host's cache".to_owned());
    }
    // Half, because fio ends its count of the device a little before the job.
    let unseen = job.device.is_some_and(|device| device.reads < job.read.ios / 2);
    if !args.buffered && reads && unseen {
        marks.push("direct, but the device did not see the reads".to_owned());
    }
    if job.steady == Some(false) {
        marks.push("no steady state".to_owned());
    }
    let side = if reads { &job.read } else { &job.write };
    if !args.buffered && side.bytes_per_s / MIB > disk.mib_per_s_max {
        marks.push("faster than a disk of this kind can be: a cache".to_owned());
    }
    marks
}

fn note(disk: &Disk) -> String {
    let name = if disk.name.is_empty() { "no block device" } else { disk.name.as_str() };
    let cache = disk.cache.as_deref().unwrap_or("not told");
    let host = match virtual_machine() {
        true => "; a hypervisor is here: its cache cannot be seen",
        false => "",
    };
    format!("scratch on {name}, write cache {cache}, random bytes laid out beforehand{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Job {
        fio::read(include_str!("../../recorded/fio-read_iops.json")).expect("recorded")
    }

    fn args(buffered: bool) -> Args {
        Args { folder: std::env::temp_dir(), engine: "libaio".into(), buffered }
    }

    #[test]
    fn the_seeds_jobs_have_the_seeds_names_and_shapes() {
        let names: Vec<&str> = SHAPES.iter().take(9).map(|shape| shape.name).collect();
        let seed = "read_iops write_iops read_bw write_bw read_latency write_latency read_seq \
                    write_seq rw_mix";
        assert_eq!(names.join(" "), seed);
        let of = |name: &str| SHAPES.iter().find(|shape| shape.name == name).expect("a job");
        assert_eq!((of("read_latency").depth, of("read_seq").threads), (4, 4));
        assert_eq!((of("read_bw").block, of("rw_mix").rw), ("128k", "randrw"));
    }

    #[test]
    fn a_read_that_no_device_saw_and_one_that_no_disk_can_do_are_marked() {
        let scratch = Scratch::make(&std::env::temp_dir(), 1 << 20, 7).expect("a megabyte");
        let disk = Disk { name: "vda".into(), cache: None, mib_per_s_max: 100.0 };
        let mut job = recorded();
        job.device = Some(fio::Device::default());
        job.steady = Some(false);
        let all = marks(&args(false), &SHAPES[0], &job, &scratch, &disk).join(", ");
        for wanted in ["device did not see", "faster than a disk", "no steady state"] {
            assert!(all.contains(wanted), "{all}");
        }
        let quiet = Disk { mib_per_s_max: 1e6, ..disk };
        let all = marks(&args(true), &SHAPES[0], &recorded(), &scratch, &quiet).join(", ");
        assert_eq!(all, "through the page cache, the file fits into memory");
    }

    #[test]
    fn each_shape_gives_figures_of_its_own_name() {
        let mut seen = std::collections::BTreeSet::new();
        for shape in SHAPES {
            let mut report = Report::default();
            figures(&mut report, shape, &recorded());
            seen.extend(report.metrics.keys().cloned());
        }
        // The recording spared its clocks: it has no latency to give.
        let wanted = [
            "mixed_read_per_s",
            "mixed_write_per_s",
            "random_mib_per_s",
            "random_per_s",
            "sequential_mib_per_s",
        ];
        assert!(seen.iter().map(String::as_str).eq(wanted), "{seen:?}");
    }
}
