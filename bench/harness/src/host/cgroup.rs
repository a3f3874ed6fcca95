//! The limits of this process's control group, in cgroup version 1 and 2.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::root::FileTree;

/// The limits of the group and of every group above it: the lowest counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(rename = "Limits")]
pub(crate) struct CgroupLimits {
    /// `v1`, `v2` or `v1 and v2`; absent without cgroups.
    pub(crate) version: Option<String>,
    /// The CPU time in CPUs; absent if there is no limit.
    pub(crate) cpus: Option<f64>,
    /// The memory in bytes; absent if there is no limit.
    pub(crate) memory_bytes: Option<u64>,
    /// The CPUs that the group is confined to, as `0-3`; `cpuset_nodes` names the memory nodes.
    pub(crate) cpuset: Option<String>,
    pub(crate) cpuset_nodes: Option<String>,
    /// The share relative to other groups: `cpu.weight`, or `cpu.shares` of version 1.
    pub(crate) weight: Option<u64>,
}

/// Version 1 writes "no limit" as a number near 2^63, rounded to a page.
const NO_LIMIT_BYTES: u64 = 1 << 62;
/// The depth beyond which groups are not walked.
const DEPTH_MAX: usize = 32;

impl CgroupLimits {
    pub(crate) fn read(root: &FileTree) -> Self {
        let own = root.read_text("/proc/self/cgroup").unwrap_or_default();
        let mounts = root.read_text("/proc/self/mountinfo").unwrap_or_default();
        let mut limits = Self::default();
        let mut versions = Vec::new();
        for line in own.lines() {
            // hierarchy:controllers:path, the version 2 hierarchy being `0::path`.
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let version = if controllers.is_empty() { "v2" } else { "v1" };
            let Some(mount) = find_mount_point(&mounts, controllers) else { continue };
            let groups = group_folders(root, &mount, path);
            let before = limits.clone();
            if controllers.is_empty() {
                limits.add_version_2_limits(root, &groups);
            } else {
                limits.add_version_1_limits(root, controllers, &groups);
            }
            let tells = limits != before || ["cpu", "memory"].contains(&controllers);
            if (tells || version == "v2") && !versions.contains(&version) {
                versions.push(version);
            }
        }
        versions.sort_unstable();
        limits.version = (!versions.is_empty()).then(|| versions.join(" and "));
        limits
    }

    fn add_version_2_limits(&mut self, root: &FileTree, groups: &[String]) {
        for group in groups {
            if let Some(text) = root.read_value(&format!("{group}/cpu.max")) {
                self.lower_cpu_limit(parse_cpu_max(&text));
            }
            self.lower_memory_limit(root.read_number(&format!("{group}/memory.max")));
        }
        let own = |name: &str| groups.iter().find_map(|g| root.read_value(&format!("{g}/{name}")));
        self.cpuset = own("cpuset.cpus.effective").or(self.cpuset.take());
        self.cpuset_nodes = own("cpuset.mems.effective").or(self.cpuset_nodes.take());
        self.weight = own("cpu.weight").and_then(|text| text.parse().ok()).or(self.weight);
    }

    fn add_version_1_limits(&mut self, root: &FileTree, controllers: &str, groups: &[String]) {
        let has = |name: &str| controllers.split(',').any(|controller| controller == name);
        let own = |name: &str| groups.iter().find_map(|g| root.read_value(&format!("{g}/{name}")));
        if has("cpu") {
            for group in groups {
                let quota = root.read_value(&format!("{group}/cpu.cfs_quota_us"));
                let period = root.read_number(&format!("{group}/cpu.cfs_period_us"));
                let quota = quota.and_then(|quota| quota.parse::<f64>().ok());
                let cpus = quota.zip(period).filter(|(quota, period)| *quota > 0.0 && *period > 0);
                self.lower_cpu_limit(cpus.map(|(quota, period)| quota / period as f64));
            }
            self.weight = root.read_number(&format!("{}/cpu.shares", first_group(groups)));
        }
        if has("memory") {
            for group in groups {
                self.lower_memory_limit(
                    root.read_number(&format!("{group}/memory.limit_in_bytes")),
                );
            }
        }
        if has("cpuset") {
            self.cpuset = own("cpuset.effective_cpus").or_else(|| own("cpuset.cpus"));
            self.cpuset_nodes = own("cpuset.effective_mems").or_else(|| own("cpuset.mems"));
        }
    }

    fn lower_cpu_limit(&mut self, cpus: Option<f64>) {
        self.cpus = self.cpus.into_iter().chain(cpus).min_by(f64::total_cmp);
    }

    fn lower_memory_limit(&mut self, bytes: Option<u64>) {
        let bytes = bytes.filter(|bytes| *bytes < NO_LIMIT_BYTES);
        self.memory_bytes = self.memory_bytes.into_iter().chain(bytes).min();
    }
}

/// Parses a limit of CPU time: `150000 100000` is 1.5 CPUs; `max 100000` is not a limit.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Finds where a hierarchy is mounted: `cgroup2`, or the `cgroup` whose options name the
/// controllers.
fn find_mount_point(mountinfo: &str, controllers: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        let mut words = after.split(' ');
        let (kind, options) = (words.next()?, words.nth(1)?);
        let is_named = |name: &str| options.split(',').any(|option| option == name);
        let is_mount = match controllers {
            "" => kind == "cgroup2",
            names => kind == "cgroup" && names.split(',').all(is_named),
        };
        is_mount.then(|| point.to_owned())
    })
}

/// Returns the group's folder and those above it; in a container that shows its own group as the
/// root, the mount point alone.
fn group_folders(root: &FileTree, mount: &str, path: &str) -> Vec<String> {
    let mut groups = Vec::new();
    let mut path = path.trim_end_matches('/');
    while !path.is_empty() && groups.len() < DEPTH_MAX {
        let folder = format!("{mount}{path}");
        if root.exists(&folder) {
            groups.push(folder);
        }
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    groups.push(mount.to_owned());
    groups
}

fn first_group(groups: &[String]) -> &str {
    groups.first().map_or("", String::as_str)
}

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    let _ =
        (parse_cpu_max(text), find_mount_point(text, ""), find_mount_point(text, "cpu,cpuacct"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::FakeTree;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

    #[test]
    fn in_version_2_the_least_limit_on_the_way_up_counts() {
        let tree = FakeTree::new(
            "cgroup-2",
            &[
                ("/proc/self/cgroup", "0::/a/b\n"),
                ("/proc/self/mountinfo", V2),
                ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
                ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
                ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("/sys/fs/cgroup/a/b/cpu.weight", "100\n"),
                ("/sys/fs/cgroup/a/b/cpuset.cpus.effective", "0-1\n"),
            ],
        );
        let limits = CgroupLimits::read(&tree.root);
        assert_eq!(limits.version.as_deref(), Some("v2"));
        assert_eq!((limits.cpus, limits.memory_bytes), (Some(1.5), Some(1 << 30)));
        assert_eq!((limits.cpuset.as_deref(), limits.weight), (Some("0-1"), Some(100)));
    }

    #[test]
    fn in_version_1_each_controller_has_its_own_tree() {
        let tree = FakeTree::new(
            "cgroup-1",
            &[
                ("/proc/self/cgroup", "4:memory:/m\n3:cpuset:/\n1:cpu,cpuacct:/c\n"),
                ("/proc/self/mountinfo", V1),
                ("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n"),
                ("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n"),
                ("/sys/fs/cgroup/cpu/c/cpu.shares", "1024\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                ("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n"),
                ("/sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-3\n"),
            ],
        );
        let limits = CgroupLimits::read(&tree.root);
        assert_eq!(limits.version.as_deref(), Some("v1"));
        assert_eq!((limits.cpus, limits.memory_bytes), (Some(0.5), None));
        assert_eq!((limits.cpuset.as_deref(), limits.weight), (Some("0-3"), Some(1024)));
    }

    #[test]
    fn a_container_that_sees_only_its_own_group_reads_the_mount_point() {
        let tree = FakeTree::new(
            "cgroup-container",
            &[
                ("/proc/self/cgroup", "0::/not/shown/here\n"),
                ("/proc/self/mountinfo", V2),
                ("/sys/fs/cgroup/cpu.max", "200000 100000\n"),
            ],
        );
        assert_eq!(CgroupLimits::read(&tree.root).cpus, Some(2.0));
    }

    #[test]
    fn without_cgroups_nothing_is_claimed() {
        let tree = FakeTree::new("cgroup-none", &[]);
        assert_eq!(CgroupLimits::read(&tree.root), CgroupLimits::default());
        assert_eq!(parse_cpu_max("nonsense"), None);
        assert_eq!(parse_cpu_max("1 0"), None);
    }
}
