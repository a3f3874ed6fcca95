//! The facts of a machine that stay the same over a run.

use std::{collections::BTreeMap, path::Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    cgroup::CgroupLimits,
    clock::Clock,
    cpu::{Cpu, read_mitigations},
    cpuid::{CpuidLeaves, register_name_to_text},
    disk::{Disk, FileSystem, find_file_system, list_disks},
    gpu::Gpus,
    kernel_log::KernelLog,
    programs::{self, Program, RunProgram},
    root::{FileTree, field_value},
    swiotlb::Swiotlb,
    tee::{signal::SignalMeaning, summary::TeeSummary},
};

/// The text of a fact that could not be read.
pub(crate) const UNKNOWN: &str = "unknown";

/// The machine as a record holds it. Fields that an older record lacks are empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Machine {
    pub(crate) cpu_model: String,
    pub(crate) cpus_online: u64,
    pub(crate) smt_active: String,
    pub(crate) memory_bytes: u64,
    pub(crate) swap_bytes: Option<u64>,
    pub(crate) kernel: String,
    pub(crate) kernel_command_line: String,
    pub(crate) clock_source: String,
    pub(crate) governor: String,
    pub(crate) transparent_hugepages: String,
    pub(crate) cgroup_cpu_max: String,
    pub(crate) cgroup_memory_max: String,
    /// The entries of /sys/devices/system/cpu/vulnerabilities that are not "Not affected".
    pub(crate) mitigations: BTreeMap<String, String>,
    /// Hints of virtualisation; an arm is protected only where its evidence was accepted.
    pub(crate) virtualisation_hints: Vec<String>,
    pub(crate) cpu: Cpu,
    /// The raw leaves of cpuid; absent if this is not an x86-64.
    pub(crate) cpuid: Option<CpuidLeaves>,
    pub(crate) limits: CgroupLimits,
    pub(crate) tee: TeeSummary,
    pub(crate) gpus: Gpus,
    pub(crate) swiotlb: Swiotlb,
    pub(crate) disks: Vec<Disk>,
    /// The file system of the output folder.
    pub(crate) output: Option<FileSystem>,
    pub(crate) clock: Clock,
    /// The programs that arms and services ran, by the last part of their path.
    pub(crate) programs: BTreeMap<String, Program>,
}

impl Machine {
    /// Reads this machine, and the file system that `output` lies on or would lie on.
    pub fn read(output: &Path) -> Self {
        let leaves = CpuidLeaves::read();
        Self::read_from(&FileTree::system(), leaves, output, &programs::run_program)
    }

    /// Names the processor and whether it has AVX-512, by which figures differ two- to eightfold:
    /// `AMD EPYC (family 25, model 1), AVX2 without AVX-512`.
    pub(crate) fn describe_processor(&self) -> String {
        let has = |name: &str| self.cpu.instructions.iter().any(|known| known == name);
        let vectors = match () {
            () if has("avx512f") => "with AVX-512",
            () if has("avx2") => "AVX2 without AVX-512",
            () if self.cpu.instructions.is_empty() => "vector instructions not recorded",
            () => "without AVX2",
        };
        let family = self.cpu.family_model_stepping.as_deref().unwrap_or_default();
        let family = match family.split_whitespace().collect::<Vec<_>>()[..] {
            [family, model, _] => format!(" (family {family}, model {model})"),
            _ => String::new(),
        };
        format!("{}{family}, {vectors}", self.cpu_model.trim())
    }

    /// Formats the machine as indented JSON, ending in a newline.
    ///
    /// # Errors
    /// When a field cannot be written as JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads the machine below `root`; what is not there is `unknown` or absent.
    pub(crate) fn read_from(
        root: &FileTree,
        cpuid: Option<CpuidLeaves>,
        output: &Path,
        ask: RunProgram<'_>,
    ) -> Self {
        let cpuinfo = root.read_text("/proc/cpuinfo").unwrap_or_default();
        let meminfo = root.read_text("/proc/meminfo").unwrap_or_default();
        let log = KernelLog::read(root);
        let limits = CgroupLimits::read(root);
        let tee = TeeSummary::read(root, cpuid.as_ref(), &log);
        let line = |path: &str| root.read_value(path).unwrap_or_else(|| UNKNOWN.into());
        Self {
            cpu_model: field_value(&cpuinfo, "model name").unwrap_or(UNKNOWN).to_owned(),
            cpus_online: count_online_cpus(root),
            smt_active: line("/sys/devices/system/cpu/smt/active"),
            memory_bytes: parse_kib_as_bytes(&meminfo, "MemTotal").unwrap_or(0),
            swap_bytes: parse_kib_as_bytes(&meminfo, "SwapTotal"),
            kernel: line("/proc/sys/kernel/osrelease"),
            kernel_command_line: select_speed_parameters(&line("/proc/cmdline")),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            transparent_hugepages: line("/sys/kernel/mm/transparent_hugepage/enabled"),
            cgroup_cpu_max: format_limit(limits.version.as_ref(), limits.cpus),
            cgroup_memory_max: format_limit(limits.version.as_ref(), limits.memory_bytes),
            mitigations: read_mitigations(root),
            virtualisation_hints: collect_virtualisation_hints(&tee, cpuid.as_ref()),
            cpu: Cpu::read(root, &cpuinfo),
            limits,
            gpus: Gpus::read(root, ask),
            swiotlb: Swiotlb::read(root, &log),
            disks: list_disks(root),
            output: find_file_system(root, output),
            clock: Clock::read(root, &cpuinfo, ask),
            programs: BTreeMap::new(),
            tee,
            cpuid,
        }
    }

    /// Hashes a program that an arm or service ran, under the last part of its path; `None` if it is known already
    /// or cannot be read.
    pub(crate) fn hash_unknown_program(&self, path: &Path) -> Option<(String, Program)> {
        let name = path.file_name()?.to_str()?;
        if self.programs.contains_key(name) {
            return None;
        }
        Some((name.to_owned(), Program::hash_file(path)?))
    }

    /// True where a hypervisor shows itself.
    pub(crate) fn is_virtual(&self) -> bool {
        self.cpuid.is_some_and(|leaves| leaves.hypervisor_present)
            || self.virtualisation_hints.iter().any(|hint| hint.contains("hypervisor"))
    }
}

/// Counts the CPUs that /sys/devices/system/cpu/online lists, else those that this process may use.
fn count_online_cpus(root: &FileTree) -> u64 {
    let listed =
        root.read_value("/sys/devices/system/cpu/online").and_then(|text| count_listed_cpus(&text));
    listed.unwrap_or_else(|| std::thread::available_parallelism().map_or(0, |n| n.get() as u64))
}

/// Counts the CPUs of a list: `0-3,8` is 5.
fn count_listed_cpus(list: &str) -> Option<u64> {
    list.split(',').try_fold(0u64, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn parse_kib_as_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let value = field_value(meminfo, name)?.split_whitespace().next()?;
    value.parse::<u64>().ok()?.checked_mul(1024)
}

fn format_limit(version: Option<&String>, limit: Option<impl ToString>) -> String {
    match (version, limit) {
        (None, _) => UNKNOWN.into(),
        (Some(_), None) => "max".into(),
        (Some(_), Some(limit)) => limit.to_string(),
    }
}

/// Returns the short list of older records: what was found, without judgement.
fn collect_virtualisation_hints(tee: &TeeSummary, cpuid: Option<&CpuidLeaves>) -> Vec<String> {
    let hypervisor = cpuid.and_then(|leaves| leaves.hypervisor);
    let first = hypervisor.map(|name| format!("hypervisor {}", register_name_to_text(name)));
    let guest = tee.signals.iter().filter(|signal| signal.says == SignalMeaning::Guest);
    let found = guest.map(|signal| format!("{}: {}", signal.source, signal.value));
    let dmi = tee.signals.iter().filter(|s| s.source == "dmi" && s.value != "none");
    first.into_iter().chain(found).chain(dmi.map(|signal| signal.value.clone())).collect()
}

/// Returns the parameters of a kernel command line that change speed. The others are private to the
/// machine and stay out of a record that is passed on.
fn select_speed_parameters(command_line: &str) -> String {
    let kept = |word: &&str| {
        let name = word.split('=').next().unwrap_or_default();
        SPEED_PARAMETERS.split(' ').any(|prefix| name.starts_with(prefix))
    };
    command_line.split_whitespace().filter(kept).collect::<Vec<_>>().join(" ")
}

/// The beginnings of the names of such parameters (kernel-parameters.txt).
const SPEED_PARAMETERS: &str = "amd_iommu amd_pstate clocksource cpuidle default_hugepagesz haltpoll hugepages idle \
    intel_idle intel_iommu intel_pstate iommu isolcpus kvm maxcpus mem_encrypt mitigations nohz nosmt \
    preempt processor.max_cstate psi rcu_nocbs spec swiotlb transparent_hugepage tsc";

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    let _ = (
        count_listed_cpus(text),
        parse_kib_as_bytes(text, "MemTotal"),
        select_speed_parameters(text),
    );
}

#[cfg(test)]
mod tests;
