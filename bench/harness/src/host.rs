//! The machine: what it is, and how quiet it was while a slice ran.

use std::{collections::BTreeMap, fs, hint::black_box, path::Path, time::Instant};

use serde::{Deserialize, Serialize};

/// What stays the same over a run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu_model: String,
    pub(crate) cpus_online: u64,
    pub(crate) smt_active: String,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) kernel_command_line: String,
    pub(crate) clock_source: String,
    pub(crate) governor: String,
    pub(crate) transparent_hugepages: String,
    pub(crate) cgroup_cpu_max: String,
    pub(crate) cgroup_memory_max: String,
    /// From /sys/devices/system/cpu/vulnerabilities, what is not "Not affected".
    pub(crate) mitigations: BTreeMap<String, String>,
    /// Hints only: a protected arm is one whose evidence was accepted.
    pub(crate) virtualisation_hints: Vec<String>,
}

impl Machine {
    /// Reads it from /proc and /sys; what is not there is `unknown`.
    pub(crate) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = field(&meminfo, "MemTotal")
            .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            cpu_model: field(&cpuinfo, "model name").unwrap_or_else(unknown),
            cpus_online: std::thread::available_parallelism().map_or(0, |n| n.get() as u64),
            smt_active: line("/sys/devices/system/cpu/smt/active"),
            memory_bytes: kilobytes.unwrap_or(0) * 1024,
            kernel: line("/proc/sys/kernel/osrelease"),
            kernel_command_line: of_speed(&line("/proc/cmdline")),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            transparent_hugepages: line("/sys/kernel/mm/transparent_hugepage/enabled"),
            cgroup_cpu_max: line("/sys/fs/cgroup/cpu.max"),
            cgroup_memory_max: line("/sys/fs/cgroup/memory.max"),
            mitigations: mitigations(),
            virtualisation_hints: hints(&cpuinfo),
        }
    }
}

/// How quiet the machine was around one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Quiet {
    /// Share of the slice in which some task waited for a CPU (PSI); absent without PSI.
    pub(crate) psi_cpu: Option<f64>,
    /// Share in which some task waited for memory.
    pub(crate) psi_memory: Option<f64>,
    /// Share of all CPU time that the hypervisor gave to others.
    pub(crate) steal: Option<f64>,
    /// A fixed piece of arithmetic just before the slice.
    pub(crate) calibration_us: f64,
}

/// Counters at the start of a slice.
pub(crate) struct Watch {
    started: Instant,
    psi_cpu: Option<f64>,
    psi_memory: Option<f64>,
    cpu: Option<(f64, f64)>,
    calibration_us: f64,
}

impl Watch {
    /// Runs the calibration loop and reads the counters.
    pub(crate) fn start() -> Self {
        let calibration_us = calibrate();
        Self {
            started: Instant::now(),
            psi_cpu: psi("/proc/pressure/cpu"),
            psi_memory: psi("/proc/pressure/memory"),
            cpu: cpu_ticks(),
            calibration_us,
        }
    }

    /// Reads them again.
    pub(crate) fn stop(self) -> Quiet {
        let wall_us = self.started.elapsed().as_secs_f64() * 1e6;
        let share = |from: Option<f64>, path| -> Option<f64> {
            Some(((psi(path)? - from?) / wall_us).clamp(0.0, 1.0))
        };
        let steal = self.cpu.zip(cpu_ticks()).and_then(|((all, steal), (all_now, steal_now))| {
            (all_now > all).then(|| (steal_now - steal) / (all_now - all))
        });
        Quiet {
            psi_cpu: share(self.psi_cpu, "/proc/pressure/cpu"),
            psi_memory: share(self.psi_memory, "/proc/pressure/memory"),
            steal,
            calibration_us: self.calibration_us,
        }
    }
}

/// CPU seconds of a process and its ended threads so far.
pub(crate) fn cpu_seconds(id: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name may hold spaces and brackets; what follows the last bracket does not.
    let after = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // USER_HZ is 100 on every Linux port that is left.
    Some(ticks / 100.0)
}

/// The work `calibrate` times: about 0.2 ms optimised.
const CALIBRATION_STEPS: u32 = 100_000;

fn calibrate() -> f64 {
    let started = Instant::now();
    black_box(spin(CALIBRATION_STEPS));
    started.elapsed().as_secs_f64() * 1e6
}

/// Arithmetic that nothing can shorten: each step needs the last.
pub(crate) fn spin(steps: u32) -> u64 {
    let mut x = black_box(0x9e37_79b9_7f4a_7c15u64);
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x)
}

fn psi(path: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split("total=").nth(1)?.trim().parse().ok()
}

/// All ticks and stolen ticks of all CPUs.
fn cpu_ticks() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|value| value.parse().ok())
        .collect();
    Some((ticks.iter().sum(), *ticks.get(7)?))
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned())
}

/// The parameters of a kernel command line that change speed. The others are the machine's own
/// affair and stay out of a record that is passed on.
fn of_speed(command_line: &str) -> String {
    let kept = |word: &&str| {
        let name = word.split('=').next().unwrap_or_default();
        OF_SPEED.iter().any(|prefix| name.starts_with(prefix))
    };
    command_line.split_whitespace().filter(kept).collect::<Vec<_>>().join(" ")
}

/// How the names of such parameters begin (kernel-parameters.txt).
const OF_SPEED: &[&str] = &[
    "amd_iommu",
    "amd_pstate",
    "clocksource",
    "cpuidle",
    "default_hugepagesz",
    "haltpoll",
    "hugepages",
    "idle",
    "intel_idle",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "isolcpus",
    "kvm",
    "maxcpus",
    "mem_encrypt",
    "mitigations",
    "nohz",
    "nosmt",
    "preempt",
    "processor.max_cstate",
    "psi",
    "rcu_nocbs",
    "spec",
    "swiotlb",
    "transparent_hugepage",
    "tsc",
];

fn unknown() -> String {
    "unknown".into()
}

fn mitigations() -> BTreeMap<String, String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let text = fs::read_to_string(entry.path()).ok()?.trim().to_owned();
            let name = entry.file_name().into_string().ok()?;
            (text != "Not affected").then_some((name, text))
        })
        .collect()
}

fn hints(cpuinfo: &str) -> Vec<String> {
    let mut hints = Vec::new();
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    for flag in ["hypervisor", "tdx_guest", "sev_snp", "sev_es"] {
        if flags.split_whitespace().any(|known| known == flag) {
            hints.push(format!("cpu flag {flag}"));
        }
    }
    for path in ["/dev/tdx_guest", "/dev/sev-guest", "/sys/kernel/config/tsm/report"] {
        if Path::new(path).exists() {
            hints.push(path.to_owned());
        }
    }
    for path in ["/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"] {
        let text = line(path);
        if text != "unknown" && !text.is_empty() {
            hints.push(text);
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_speed_is_kept_of_the_kernel_command_line() {
        let line = "root=/dev/vda swiotlb=force mitigations=auto,nosmt token=secret quiet";
        assert_eq!(of_speed(line), "swiotlb=force mitigations=auto,nosmt");
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::read();
        assert!(machine.cpus_online > 0);
        assert!(!machine.kernel.is_empty());
    }

    #[test]
    fn a_watched_slice_has_shares_between_0_and_1() {
        let watch = Watch::start();
        black_box(spin(1000));
        let quiet = watch.stop();
        assert!(quiet.calibration_us > 0.0);
        for share in [quiet.psi_cpu, quiet.psi_memory, quiet.steal].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&share));
        }
    }

    #[test]
    fn the_cpu_time_of_this_process_is_known() {
        assert!(cpu_seconds(std::process::id()).is_some());
        assert!(cpu_seconds(u32::MAX).is_none());
    }
}
