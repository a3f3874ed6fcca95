//! fio's jobs on a scratch file, and the marks and the note that concern the disk beneath it.

use std::path::PathBuf;

use confide_arm_line::{Hello, Outcome, Report, separate_unmet_need, serve_runs};
use confide_tools::ToolOutput;
use serde_json::Value;

use super::{
    disk::{Disk, ScratchFile, is_virtual_machine, memory_bytes, require_direct_io},
    tool::{ToolArm, ToolRun},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the scratch file
    #[arg(long)]
    folder: PathBuf,
    /// fio's I/O engine
    #[arg(long, default_value = "libaio")]
    engine: String,
    /// Go through this machine's page cache instead of around it
    #[arg(long)]
    buffered: bool,
}

const MIB: f64 = 1_048_576.0;

pub(crate) fn run(args: &Args) -> Outcome {
    let disk = Disk::of_folder(&args.folder);
    let path = if args.buffered { "through the page cache" } else { "direct" };
    let arm = ToolArm::new("fio", 1)?
        .with_setting("engine", &args.engine)
        .with_setting("direct", u8::from(!args.buffered))
        .with_setting("path", path);
    let mut hello = Hello { note: Some(describe_disk(&disk)), ..arm.hello()? };
    std::fs::create_dir_all(&args.folder)
        .map_err(|error| format!("cannot make {}: {error}", args.folder.display()))?;
    if !args.buffered {
        let need = separate_unmet_need(require_direct_io(&args.folder))?.err();
        hello.cannot = hello.cannot.or(need.map(|need| need.to_string()));
    }
    let mut scratch: Option<ScratchFile> = None;
    serve_runs(&hello, |run| {
        let job = arm.prepare_run(run)?;
        let bytes = job.integer_param("size_mib")? << 20;
        // Laid out once: what is measured is the disk, not how a file grows.
        if scratch.as_ref().is_none_or(|scratch| scratch.bytes != bytes) {
            drop(scratch.take());
            scratch = Some(ScratchFile::create(&args.folder, bytes, run.seed)?);
        }
        let scratch = scratch.as_ref().ok_or("no scratch file")?;
        measure(args.buffered, &arm, job, scratch, &disk)
    })
}

fn measure(
    buffered: bool,
    arm: &ToolArm,
    mut job: ToolRun,
    scratch: &ScratchFile,
    disk: &Disk,
) -> Outcome<Report> {
    // Report 003's threads start 500M of 2G apart: 125 of 512 parts, whatever the size. fio would let
    // the file grow by what they are apart; here the last thread ends where the file does.
    let increment = scratch.bytes / 512 * 125;
    for (name, value) in [
        ("scratch", scratch.path()),
        ("size", scratch.bytes.to_string()),
        ("increment", increment.to_string()),
        ("part", (scratch.bytes - 3 * increment).to_string()),
    ] {
        job.settings.insert(name.to_owned(), value);
    }
    job.more = steady_state_arguments(&job)?;
    let (mut report, readings) = arm.measure(&job)?;
    for reading in &readings {
        report.marks.extend(run_marks(buffered, &job.settings["job"], reading, scratch, disk));
    }
    Ok(report)
}

/// The criterion by which fio ends a job early, where one is asked for.
fn steady_state_arguments(job: &ToolRun) -> Outcome<Vec<String>> {
    let (percent, runtime_ms) =
        (job.integer_param("steady_percent")?, job.integer_param("runtime_ms")?);
    if percent == 0 {
        return Ok(Vec::new());
    }
    let name = &job.settings["job"];
    let quantity = if name.ends_with("_bw") || name.ends_with("_seq") { "bw" } else { "iops" };
    let seconds = (runtime_ms / 2000).max(1);
    Ok(vec![
        format!("--steadystate={quantity}:{percent}%"),
        format!("--steadystate_duration={seconds}s"),
    ])
}

/// Marks that a reader of these figures must know.
fn run_marks(
    buffered: bool,
    job: &str,
    reading: &ToolOutput,
    scratch: &ScratchFile,
    disk: &Disk,
) -> Vec<String> {
    let mut marks = Vec::new();
    let reads = job.starts_with("read");
    if buffered {
        marks.push("through the page cache".to_owned());
        if scratch.bytes < memory_bytes() {
            marks.push("the file fits into memory".to_owned());
        }
    } else if is_virtual_machine() {
        marks.push("may be served from the host's cache".to_owned());
    }
    // Half, because fio ends its count of the device a little before the job.
    let is_unseen = |device_reads| device_reads < reading.value("read_ios") / 2.0;
    if !buffered && reads && device_reads(&reading.document).is_some_and(is_unseen) {
        marks.push("direct, but the device did not see the reads".to_owned());
    }
    if reading.values.get("steady") == Some(&0.0) {
        marks.push("no steady state".to_owned());
    }
    let rate = if reads { "read_bytes_per_s" } else { "write_bytes_per_s" };
    if !buffered && reading.value(rate) / MIB > disk.mib_per_s_max {
        marks.push("faster than a disk of this kind can be: a cache".to_owned());
    }
    marks
}

/// Reads that the block devices beneath counted, merged ones included. Devices are stacked (a
/// partition's reads are its disk's), so the greatest count is taken.
fn device_reads(document: &Value) -> Option<f64> {
    let count = |device: &Value, name: &str| device[name].as_f64().unwrap_or(0.0);
    let devices = document["disk_util"].as_array()?.iter();
    let counts = devices.map(|device| count(device, "read_ios") + count(device, "read_merges"));
    counts.reduce(f64::max)
}

fn describe_disk(disk: &Disk) -> String {
    let name = if disk.name.is_empty() { "no block device" } else { disk.name.as_str() };
    let cache = disk.cache.as_deref().unwrap_or("unknown");
    let host =
        if is_virtual_machine() { "; a hypervisor is here: its cache cannot be seen" } else { "" };
    format!("scratch on {name}, write cache {cache}, random bytes laid out beforehand{host}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use confide_arm_line::Run;
    use confide_tools::{read_output, tool_table};
    use serde_json::json;

    use super::*;

    const RECORDED: &str = include_str!("../../recorded/fio-read_iops.json");

    fn reading() -> ToolOutput {
        let tool = &tool_table()["fio"];
        read_output(tool, &tool.shapes["read_iops"], 1, RECORDED).expect("recorded")
    }

    #[test]
    fn the_jobs_of_report_003_have_its_names_and_shapes() {
        let shapes = &tool_table()["fio"].shapes;
        let names = "read_iops write_iops read_bw write_bw read_latency write_latency read_seq \
                     write_seq rw_mix";
        assert!(names.split(' ').all(|name| shapes.contains_key(name)));
        let has =
            |name: &str, argument: &str| shapes[name].command.iter().any(|word| word == argument);
        assert!(has("read_latency", "--iodepth=4") && has("read_seq", "--numjobs=4"));
        assert!(has("read_bw", "--bs=128k") && has("rw_mix", "--rw=randrw"));
    }

    #[test]
    fn a_read_that_no_device_saw_and_one_that_no_disk_can_do_are_marked() {
        let scratch = ScratchFile::create(&std::env::temp_dir(), 1 << 20, 7).expect("a megabyte");
        let disk = Disk { name: "vda".into(), cache: None, mib_per_s_max: 100.0 };
        let mut unseen = reading();
        unseen.document["disk_util"] = json!([{ "read_ios": 0 }]);
        unseen.values.insert("steady".to_owned(), 0.0);
        let all = run_marks(false, "read_iops", &unseen, &scratch, &disk).join(", ");
        for wanted in ["device did not see", "faster than a disk", "no steady state"] {
            assert!(all.contains(wanted), "{all}");
        }
        let quiet = Disk { mib_per_s_max: 1e6, ..disk };
        let all = run_marks(true, "read_iops", &reading(), &scratch, &quiet).join(", ");
        assert_eq!(all, "through the page cache, the file fits into memory");
        assert_eq!(device_reads(&reading().document), Some(96_119.0));
    }

    #[test]
    fn each_kind_of_shape_has_figures_of_its_own_name() {
        let mut names = BTreeSet::new();
        for shape in tool_table()["fio"].shapes.values() {
            names.extend(shape.figures.keys().map(String::as_str));
        }
        let wanted = "latency_us mixed_read_per_s mixed_write_per_s random_mib_per_s random_per_s \
                      sequential_mib_per_s single_us";
        assert!(names.into_iter().eq(wanted.split(' ')));
    }

    #[test]
    fn a_steady_state_is_of_bandwidth_where_that_is_the_figure() {
        let arm = ToolArm::new("fio", 1).expect("a row");
        let arguments = |job: &str, percent: u64| {
            let params = json!({ "job": job, "steady_percent": percent, "runtime_ms": 6000 });
            let run = json!({ "id": 1, "params": params });
            let run: Run = serde_json::from_value(run).expect("a run");
            steady_state_arguments(&arm.prepare_run(&run).expect("params of the row"))
                .expect("numbers")
        };
        let wanted = ["--steadystate=bw:10%", "--steadystate_duration=3s"];
        assert_eq!(arguments("read_seq", 10), wanted);
        assert!(arguments("rw_mix", 10)[0].contains("iops"));
        assert!(arguments("read_seq", 0).is_empty());
    }
}
