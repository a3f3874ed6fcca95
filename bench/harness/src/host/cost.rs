//! What a slice cost: CPU time and memory of the arm, of the services and of the harness itself.

use std::{collections::BTreeMap, fs, time::Duration};

use nix::{
    time::{ClockId, clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    quiet::TICKS_PER_S,
    root::{FileTree, field_value},
};

/// What arm, services and harness used while a slice ran.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct SliceUsage {
    /// The seconds from the run's line to its end.
    pub(crate) wall_s: f64,
    /// The arm's process and every process below it.
    pub(crate) arm: ProcessUsage,
    /// All services together; absent if none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) services: Option<ProcessUsage>,
    /// The harness, which reads lines meanwhile.
    pub(crate) harness: ProcessUsage,
}

/// What some processes used over one slice; what /proc does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(rename = "Usage")]
pub(crate) struct ProcessUsage {
    pub(crate) cpu_s: Option<f64>,
    /// The sum over processes of their peaks in memory, in bytes: never less than the peak of their
    /// sum.
    pub(crate) peak_bytes: Option<u64>,
    /// True where the peaks are of this slice alone, false if they are of each process since it
    /// started.
    pub(crate) peak_of_slice: bool,
    pub(crate) processes: u64,
    pub(crate) threads: u64,
    /// How often threads gave their CPU away, of threads that live at the end.
    pub(crate) voluntary_switches: Option<u64>,
    /// How often a CPU was taken from a thread.
    pub(crate) involuntary_switches: Option<u64>,
    pub(crate) major_faults: Option<u64>,
}

impl SliceUsage {
    /// Sums the CPU seconds of arm, services and harness.
    pub(crate) fn total_cpu_s(&self) -> Option<f64> {
        let services = self.services.map_or(Some(0.0), |services| services.cpu_s);
        Some(self.arm.cpu_s? + services? + self.harness.cpu_s?)
    }
}

/// The counters at the start of a slice.
pub(crate) struct UsageMeter {
    arm: ProcessTree,
    services: Option<ProcessTree>,
    harness: ProcessTree,
    harness_cpu_s: Option<f64>,
}

impl UsageMeter {
    /// Restarts the peaks and reads the counters.
    pub(crate) fn start(arm: Option<u32>, services: &[u32]) -> Self {
        let root = FileTree::system();
        let arm = ProcessTree::read(&root, arm.as_slice(), true);
        let services = (!services.is_empty()).then(|| ProcessTree::read(&root, services, true));
        let harness = ProcessTree::read_harness(&root, true);
        Self { arm, services, harness, harness_cpu_s: read_own_cpu_s() }
    }

    /// Reads the counters again and returns what was used meanwhile.
    pub(crate) fn stop(self) -> SliceUsage {
        let root = FileTree::system();
        // First, so that the reading is not in it.
        let harness_cpu_s = read_own_cpu_s();
        let after =
            |group: &ProcessTree| ProcessTree::read(&root, &group.first, false).usage_since(group);
        let harness = ProcessTree::read_harness(&root, false).usage_since(&self.harness);
        let used = harness_cpu_s.zip(self.harness_cpu_s).map(|(now, was)| now - was);
        SliceUsage {
            wall_s: 0.0,
            arm: after(&self.arm),
            services: self.services.as_ref().map(after),
            harness: ProcessUsage { cpu_s: used, ..harness },
        }
    }
}

/// Reads the CPU seconds of one process and its ended threads so far, to the nanosecond where the
/// kernel tells, else to the tick.
pub(crate) fn read_process_cpu_s(id: u32) -> Option<f64> {
    let clock = || clock_getcpuclockid(Pid::from_raw(i32::try_from(id).ok()?)).ok();
    let precise = clock().and_then(|clock| clock_gettime(clock).ok()).map(timespec_to_seconds);
    precise.or_else(|| ProcStat::read(&FileTree::system(), id).map(|stat| stat.own_s))
}

fn read_own_cpu_s() -> Option<f64> {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok().map(timespec_to_seconds)
}

fn timespec_to_seconds(time: nix::sys::time::TimeSpec) -> f64 {
    Duration::from(time).as_secs_f64()
}

/// The most processes below one arm that are followed.
const PROCESSES_MAX: usize = 4096;
/// The most threads of a process whose switches are read; reading them all would disturb what is
/// measured.
const THREADS_MAX: usize = 256;

/// The counters of some processes and of all that descend from them.
#[derive(Clone, Debug, Default)]
struct ProcessTree {
    first: Vec<u32>,
    processes: BTreeMap<u32, ProcessCounters>,
    /// True where the peak was restarted in every process.
    reset: bool,
}

#[derive(Clone, Debug, Default)]
struct ProcessCounters {
    cpu_s: f64,
    peak_bytes: Option<u64>,
    threads: u64,
    major_faults: u64,
    /// The voluntary and involuntary switches by thread; `None` beyond [`THREADS_MAX`].
    switches: Option<BTreeMap<u32, (u64, u64)>>,
}

impl ProcessTree {
    /// Reads the processes with these ids and their descendants; `reset` restarts their peaks.
    fn read(root: &FileTree, first: &[u32], reset: bool) -> Self {
        let ids = list_process_tree(root, first);
        Self::read_processes(root, first, &ids, reset)
    }

    /// Reads the harness itself, without its children, which are arms and services.
    fn read_harness(root: &FileTree, reset: bool) -> Self {
        let own = [std::process::id()];
        Self::read_processes(root, &own, &own, reset)
    }

    fn read_processes(root: &FileTree, first: &[u32], ids: &[u32], reset: bool) -> Self {
        // proc(5): writing 5 to clear_refs sets the peak to what is used now.
        let begin = |id: &u32| fs::write(root.path(&format!("/proc/{id}/clear_refs")), "5").is_ok();
        let reset = reset && !ids.is_empty() && ids.iter().all(begin);
        let read = |id: &u32| Some((*id, ProcessCounters::read(root, *id)?));
        Self { first: first.to_vec(), processes: ids.iter().filter_map(read).collect(), reset }
    }

    fn usage_since(&self, was: &Self) -> ProcessUsage {
        let processes = &self.processes;
        if processes.is_empty() {
            return ProcessUsage::default();
        }
        let sum = |group: &Self| group.processes.values().map(|p| p.cpu_s).sum::<f64>();
        let faults = |group: &Self| group.processes.values().map(|p| p.major_faults).sum::<u64>();
        let switches = self.context_switches_since(was);
        let peaks: Option<Vec<u64>> =
            processes.values().map(|process| process.peak_bytes).collect();
        ProcessUsage {
            // A child that ended unseen by its parent takes its time with it.
            cpu_s: Some((sum(self) - sum(was)).max(0.0)),
            peak_bytes: peaks.map(|peaks| peaks.iter().sum()),
            peak_of_slice: was.reset,
            processes: processes.len() as u64,
            threads: processes.values().map(|process| process.threads).sum(),
            voluntary_switches: switches.map(|(voluntary, _)| voluntary),
            involuntary_switches: switches.map(|(_, involuntary)| involuntary),
            major_faults: Some(faults(self).saturating_sub(faults(was))),
        }
    }

    fn context_switches_since(&self, was: &Self) -> Option<(u64, u64)> {
        let mut sum = (0u64, 0u64);
        for (id, process) in &self.processes {
            let before = was.processes.get(id).and_then(|process| process.switches.as_ref());
            for (thread, (voluntary, involuntary)) in process.switches.as_ref()? {
                let known = before.and_then(|before| before.get(thread)).copied();
                let (v, i) = known.unwrap_or_default();
                sum.0 += voluntary.saturating_sub(v);
                sum.1 += involuntary.saturating_sub(i);
            }
        }
        Some(sum)
    }
}

impl ProcessCounters {
    fn read(root: &FileTree, id: u32) -> Option<Self> {
        let stat = ProcStat::read(root, id)?;
        let status = root.read_text(&format!("/proc/{id}/status")).unwrap_or_default();
        let peak_kib =
            field_value(&status, "VmHWM").and_then(|text| text.split(' ').next()?.parse().ok());
        let threads: u64 =
            field_value(&status, "Threads").and_then(|t| t.parse().ok()).unwrap_or(1);
        Some(Self {
            cpu_s: read_process_cpu_s(id).unwrap_or(stat.own_s) + stat.children_s,
            peak_bytes: peak_kib.map(|kib: u64| kib.saturating_mul(1024)),
            threads,
            major_faults: stat.major_faults,
            switches: (threads <= THREADS_MAX as u64).then(|| read_context_switches(root, id)),
        })
    }
}

/// Reads the switches of each thread from /proc/ID/task/THREAD/status.
fn read_context_switches(root: &FileTree, id: u32) -> BTreeMap<u32, (u64, u64)> {
    let of = |thread: u32| {
        let status = root.read_text(&format!("/proc/{id}/task/{thread}/status"))?;
        let number = |name: &str| field_value(&status, name)?.parse::<u64>().ok();
        let counts = (number("voluntary_ctxt_switches")?, number("nonvoluntary_ctxt_switches")?);
        Some((thread, counts))
    };
    let threads = root.list_names(&format!("/proc/{id}/task"));
    threads.iter().filter_map(|name| of(name.parse().ok()?)).take(THREADS_MAX).collect()
}

/// Lists these processes and all below them that have not left their parents.
fn list_process_tree(root: &FileTree, first: &[u32]) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let mut open = first.to_vec();
    while let Some(id) = open.pop() {
        if found.contains(&id) || found.len() >= PROCESSES_MAX {
            continue;
        }
        found.push(id);
        for thread in root.list_names(&format!("/proc/{id}/task")).iter().take(THREADS_MAX) {
            let children = root.read_text(&format!("/proc/{id}/task/{thread}/children"));
            let children = children.unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    found
}

/// The fields of /proc/ID/stat that count time and faults (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcStat {
    major_faults: u64,
    own_s: f64,
    /// The CPU seconds of children that ended and were waited for, with those of their children.
    children_s: f64,
}

impl ProcStat {
    fn read(root: &FileTree, id: u32) -> Option<Self> {
        Self::parse(&root.read_text(&format!("/proc/{id}/stat"))?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold spaces and brackets; what follows the last bracket does not.
        let after = text.rsplit_once(')')?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let seconds =
            |a: usize, b: usize| Some((number(a)?.checked_add(number(b)?)?) as f64 / TICKS_PER_S);
        Some(Self {
            major_faults: number(9)?.checked_add(number(10)?)?,
            own_s: seconds(11, 12)?,
            children_s: seconds(13, 14)?,
        })
    }
}

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    let _ = ProcStat::parse(text);
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_cpu_time_of_this_process_is_known() {
        assert!(read_process_cpu_s(std::process::id()).unwrap() > 0.0);
        assert!(read_process_cpu_s(u32::MAX).is_none());
    }

    #[test]
    fn a_name_with_brackets_does_not_hide_the_counters() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 0 10 20 3 4 150 50 25 75 20 0 1 0 9\n";
        let stat = ProcStat::parse(text).unwrap();
        assert_eq!((stat.own_s, stat.children_s, stat.major_faults), (2.0, 1.0, 7));
        for text in ["", "7 (a", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 0 1 1 1 1 x 1 1 1"] {
            assert_eq!(ProcStat::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn work_of_children_that_ended_is_counted_with_their_parent() {
        // The shell's child works and ends while the meter runs; `read` keeps the shell alive.
        let script = "read go; awk 'BEGIN{while(i<3000000)i++}'; echo done; read stay";
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let meter = UsageMeter::start(Some(child.id()), &[]);
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        use std::io::{Read, Write};
        stdin.write_all(b"go\n").unwrap();
        let mut answer = [0; 5];
        stdout.read_exact(&mut answer).unwrap();
        let cost = meter.stop();
        drop(stdin);
        child.wait().unwrap();
        assert!(cost.arm.cpu_s.unwrap() >= 0.02, "{cost:?}");
        assert!(cost.arm.peak_bytes.unwrap() > 100 << 10, "{cost:?}");
        assert_eq!((cost.arm.processes, cost.services), (1, None));
        assert!(cost.arm.voluntary_switches.unwrap() > 0, "{cost:?}");
        assert!(cost.total_cpu_s().is_some());
    }

    #[test]
    fn a_process_that_is_gone_costs_nothing_that_is_known() {
        let cost = UsageMeter::start(Some(u32::MAX), &[]).stop();
        assert_eq!(cost.arm, ProcessUsage::default());
        assert!(cost.harness.cpu_s.unwrap() >= 0.0 && cost.harness.peak_bytes.unwrap() > 0);
    }
}
