//! The processor: what it is called, how fast it may go, and what slows it down.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::root::{FileTree, field_value};

/// Facts beyond the model's name; what cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Cpu {
    pub(crate) vendor: Option<String>,
    /// The values `family model stepping`, in decimal as Linux shows them.
    pub(crate) family_model_stepping: Option<String>,
    pub(crate) microcode: Option<String>,
    /// The CPUs that this process may use, as `0-3,8`.
    pub(crate) allowed: Option<String>,
    pub(crate) sockets: Option<u64>,
    pub(crate) cores: Option<u64>,
    pub(crate) numa_nodes: Option<u64>,
    pub(crate) last_level_cache: Option<String>,
    pub(crate) frequency_driver: Option<String>,
    pub(crate) frequency_min_khz: Option<u64>,
    pub(crate) frequency_max_khz: Option<u64>,
    /// `on` or `off`; absent if the kernel does not tell.
    pub(crate) turbo: Option<String>,
    pub(crate) idle_driver: Option<String>,
    /// The vector and cipher instructions of the first CPU that change these figures.
    pub(crate) instructions: Vec<String>,
}

/// The CPU flags that are recorded: code here or in a peer chooses a path by them.
const INSTRUCTIONS: &str =
    "aes amx_int8 avx2 avx512_vnni avx512f avx512ifma avx_vnni gfni sha_ni vaes vpclmulqdq";

impl Cpu {
    pub(crate) fn read(root: &FileTree, cpuinfo: &str) -> Self {
        let text = |name: &str| field_value(cpuinfo, name).map(str::to_owned);
        let id = |name: &str| field_value(cpuinfo, name).unwrap_or("?");
        let policy = "/sys/devices/system/cpu/cpu0/cpufreq";
        let known = field_value(cpuinfo, "model").is_some();
        let flags: BTreeSet<&str> =
            field_value(cpuinfo, "flags").unwrap_or_default().split_whitespace().collect();
        Self {
            vendor: text("vendor_id"),
            family_model_stepping: known
                .then(|| format!("{} {} {}", id("cpu family"), id("model"), id("stepping"))),
            microcode: text("microcode"),
            allowed: root
                .read_text("/proc/self/status")
                .and_then(|status| field_value(&status, "Cpus_allowed_list").map(str::to_owned)),
            sockets: count_distinct(cpuinfo, &["physical id"]),
            cores: count_distinct(cpuinfo, &["physical id", "core id"]),
            numa_nodes: count_numa_nodes(root),
            last_level_cache: describe_last_level_cache(root),
            frequency_driver: root.read_value(&format!("{policy}/scaling_driver")),
            frequency_min_khz: root.read_number(&format!("{policy}/cpuinfo_min_freq")),
            frequency_max_khz: root.read_number(&format!("{policy}/cpuinfo_max_freq")),
            turbo: read_turbo_state(root),
            idle_driver: root.read_value("/sys/devices/system/cpu/cpuidle/current_driver"),
            instructions: INSTRUCTIONS
                .split(' ')
                .filter(|name| flags.contains(name))
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// Reads the entries of /sys/devices/system/cpu/vulnerabilities that are not "Not affected".
pub(crate) fn read_mitigations(root: &FileTree) -> BTreeMap<String, String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    root.list_names(folder)
        .into_iter()
        .filter_map(|name| {
            let text = root.read_value(&format!("{folder}/{name}"))?;
            (text != "Not affected").then_some((name, text))
        })
        .collect()
}

/// Counts the different values that the CPUs have for these fields together.
fn count_distinct(cpuinfo: &str, names: &[&str]) -> Option<u64> {
    let blocks = cpuinfo.split("\n\n").filter(|block| !block.trim().is_empty());
    let values: BTreeSet<Vec<&str>> = blocks
        .filter_map(|block| names.iter().map(|name| field_value(block, name)).collect())
        .collect();
    (!values.is_empty()).then_some(values.len() as u64)
}

fn count_numa_nodes(root: &FileTree) -> Option<u64> {
    let is_node =
        |name: &String| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let count =
        root.list_names("/sys/devices/system/node").iter().filter(|name| is_node(name)).count();
    (count > 0).then_some(count as u64)
}

/// Describes the last level cache: `32768K shared by 0-7`.
fn describe_last_level_cache(root: &FileTree) -> Option<String> {
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    let names = root.list_names(folder);
    let last = names.iter().rfind(|name| name.starts_with("index"))?;
    let size = root.read_value(&format!("{folder}/{last}/size"))?;
    let shared = root.read_value(&format!("{folder}/{last}/shared_cpu_list"));
    Some(shared.map_or_else(|| size.clone(), |cpus| format!("{size} shared by CPUs {cpus}")))
}

fn read_turbo_state(root: &FileTree) -> Option<String> {
    let cpu = "/sys/devices/system/cpu";
    let on = match root.read_number(&format!("{cpu}/intel_pstate/no_turbo")) {
        Some(no_turbo) => no_turbo == 0,
        None => root.read_number(&format!("{cpu}/cpufreq/boost"))? != 0,
    };
    Some(if on { "on" } else { "off" }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::FakeTree;

    /// Two sockets of two cores of one thread each, made by hand.
    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n\
        model\t\t: 143\nmodel name\t: X\nstepping\t: 8\nmicrocode\t: 0x2b\n\
        physical id\t: 0\ncore id\t: 0\nflags\t\t: fpu aes avx2\n\n\
        processor\t: 1\nphysical id\t: 0\ncore id\t: 1\n\n\
        processor\t: 2\nphysical id\t: 1\ncore id\t: 0\n\n\
        processor\t: 3\nphysical id\t: 1\ncore id\t: 1\n\n";

    #[test]
    fn cores_sockets_and_nodes_are_counted() {
        let tree = FakeTree::new(
            "cpu",
            &[
                ("/sys/devices/system/node/node0/x", ""),
                ("/sys/devices/system/node/node1/x", ""),
                ("/sys/devices/system/node/online", "0-1"),
                ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
                ("/sys/devices/system/cpu/cpu0/cache/index2/size", "2048K\n"),
                ("/sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n"),
                ("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-1\n"),
                ("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n"),
            ],
        );
        let cpu = Cpu::read(&tree.root, CPUINFO);
        assert_eq!((cpu.sockets, cpu.cores, cpu.numa_nodes), (Some(2), Some(4), Some(2)));
        assert_eq!(cpu.family_model_stepping.as_deref(), Some("6 143 8"));
        assert_eq!(cpu.turbo.as_deref(), Some("off"));
        assert_eq!(cpu.last_level_cache.as_deref(), Some("32768K shared by CPUs 0-1"));
        assert_eq!(cpu.frequency_max_khz, Some(3_500_000));
        assert_eq!(cpu.instructions, ["aes", "avx2"]);
    }

    #[test]
    fn an_empty_machine_is_absent_everywhere_and_zero_nowhere() {
        let tree = FakeTree::new("cpu-empty", &[]);
        assert_eq!(Cpu::read(&tree.root, ""), Cpu::default());
        assert!(read_mitigations(&tree.root).is_empty());
    }

    #[test]
    fn only_what_affects_this_processor_is_kept() {
        let folder = "/sys/devices/system/cpu/vulnerabilities";
        let tree = FakeTree::new(
            "vulnerabilities",
            &[
                (&format!("{folder}/meltdown"), "Not affected\n"),
                (&format!("{folder}/spectre_v2"), "Mitigation: Enhanced IBRS\n"),
            ],
        );
        let found = read_mitigations(&tree.root);
        assert_eq!(found.len(), 1);
        assert_eq!(found["spectre_v2"], "Mitigation: Enhanced IBRS");
    }
}
