//! Finds the devices of a machine, and says how they are recognised.

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    device_calls,
    tdx_guest::TDX_GUEST,
    tsm::{self, TSM_ROOT},
};

/// The deadline of a tree that is asked for its provider; one that does not answer in time is not
/// used.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// The bytes read of `/proc/cpuinfo`: enough for one processor, and all have the same flags.
const CPUINFO_READ_MAX: u64 = 16 * 1024;
const DMI_READ_MAX: u64 = 256;

/// A device that can attest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The kernel's common interface for TDX and SEV-SNP guests.
    ConfigfsTsm,
    /// The device of the TDX guest driver, with the quote generation service behind it.
    TdxGuest,
    /// The device of the SEV-SNP guest driver.
    SevGuest,
    /// An NVIDIA GPU through its management library.
    NvidiaGpu,
}

impl Device {
    /// A short name, for programs and people.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigfsTsm => "configfs-tsm",
            Self::TdxGuest => "tdx-guest",
            Self::SevGuest => "sev-guest",
            Self::NvidiaGpu => "nvidia-gpu",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One device that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedDevice {
    /// The device that was looked for.
    pub device: Device,
    /// Whether the device is there and answers.
    pub present: bool,
    /// What was looked at and what was found, one line each.
    pub because: Vec<String>,
}

/// Looks for each device below `root`, which is `/` for this machine.
///
/// Reads files, and makes and removes one entry in a configfs-tsm tree to learn its provider.
pub fn detect_devices(root: &Path) -> Vec<DetectedDevice> {
    detect_devices_with_tsm(root, &path_below(root, TSM_ROOT))
}

/// As [`detect_devices`], with the configfs-tsm tree in another place.
pub fn detect_devices_with_tsm(root: &Path, tsm: &Path) -> Vec<DetectedDevice> {
    vec![
        detect_configfs_tsm(root, tsm),
        detect_tdx_guest(root),
        detect_sev_guest(root),
        detect_nvidia_gpu(root),
    ]
}

fn detect_configfs_tsm(root: &Path, tree: &Path) -> DetectedDevice {
    let reports = tree.join("report");
    let mut because = vec![describe_presence(&reports)];
    let present = if reports.is_dir() {
        because.push(match device_calls::is_configfs(&reports) {
            Ok(true) => "its file system is configfs".into(),
            Ok(false) => {
                "its file system is not configfs, so its evidence counts as simulated, not as a \
                 device's"
                    .into()
            }
            Err(error) => format!("its file system could not be determined: {error}"),
        });
        match tsm::read_provider(tree, PROBE_DEADLINE) {
            Ok(provider) => {
                because.push(format!("provider is {}", provider.name()));
                true
            }
            Err(error) => {
                because.push(error.to_string());
                false
            }
        }
    } else {
        because.push(describe_configfs_mount(root));
        false
    };
    because.extend(describe_guest_flags(root));
    DetectedDevice { device: Device::ConfigfsTsm, present, because }
}

/// The reason for which there may be no tree.
fn describe_configfs_mount(root: &Path) -> String {
    match fs::read_to_string(path_below(root, "/proc/mounts")) {
        Ok(mounts) if mounts.lines().any(|line| line.split(' ').nth(2) == Some("configfs")) => {
            "configfs is mounted, but the kernel has no tsm module or this is not a confidential guest"
                .into()
        }
        Ok(_) => "configfs is not mounted".into(),
        Err(error) => format!("/proc/mounts: {error}"),
    }
}

fn detect_tdx_guest(root: &Path) -> DetectedDevice {
    let path = path_below(root, TDX_GUEST);
    let mut because = vec![describe_presence(&path)];
    if path.exists() {
        because.push("quotes come from the host's service, which was not contacted".into());
    }
    because.extend(describe_flag(root, "tdx_guest"));
    DetectedDevice { device: Device::TdxGuest, present: path.exists(), because }
}

fn detect_sev_guest(root: &Path) -> DetectedDevice {
    let path = path_below(root, "/dev/sev-guest");
    let mut because = vec![describe_presence(&path)];
    if path.exists() {
        because.push("its reports are taken through configfs-tsm, not through this device".into());
    }
    because.extend(describe_flag(root, "sev_snp"));
    because.extend(describe_platform(root));
    DetectedDevice { device: Device::SevGuest, present: path.exists(), because }
}

/// The paths at which distributions and container runtimes put the management library.
const NVML: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
];

fn detect_nvidia_gpu(root: &Path) -> DetectedDevice {
    let control = path_below(root, "/dev/nvidiactl");
    let mut because = vec![describe_presence(&control)];
    let library = NVML.iter().map(|path| path_below(root, path)).find(|path| path.exists());
    because.push(match &library {
        Some(path) => format!("{} exists", path.display()),
        None => "libnvidia-ml.so.1 was not found in its usual folders".into(),
    });
    if let Some(version) = read_first_line(&path_below(root, "/proc/driver/nvidia/version")) {
        because.push(format!("/proc/driver/nvidia/version: {version}"));
    }
    DetectedDevice {
        device: Device::NvidiaGpu,
        present: control.exists() && library.is_some(),
        because,
    }
}

fn describe_guest_flags(root: &Path) -> Vec<String> {
    ["tdx_guest", "sev_snp"].iter().filter_map(|name| describe_flag(root, name)).collect()
}

/// Whether the kernel lists `name` among the processor's flags, as a line for people.
fn describe_flag(root: &Path, name: &str) -> Option<String> {
    let text = read_start(&path_below(root, "/proc/cpuinfo"), CPUINFO_READ_MAX)?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    let has = flags.split_whitespace().any(|flag| flag == name);
    Some(format!("/proc/cpuinfo: flag {name} is {}", if has { "set" } else { "not set" }))
}

fn describe_platform(root: &Path) -> Option<String> {
    let field = |name: &str| read_first_line(&path_below(root, "/sys/class/dmi/id").join(name));
    let (vendor, product) = (field("sys_vendor"), field("product_name"));
    let known: Vec<String> = [vendor, product].into_iter().flatten().collect();
    (!known.is_empty()).then(|| format!("/sys/class/dmi/id: {}", known.join(", ")))
}

fn describe_presence(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(_) => format!("{} exists", path.display()),
        Err(error) => format!("{}: {error}", path.display()),
    }
}

fn read_first_line(path: &Path) -> Option<String> {
    let text = read_start(path, DMI_READ_MAX)?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

fn read_start(path: &Path, limit: u64) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn path_below(root: &Path, absolute: &str) -> PathBuf {
    root.join(absolute.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("confide-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = path_below(&root, path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_plain_machine_has_no_device_and_each_absence_has_a_reason() {
        let root = machine(
            "plain",
            &[("/proc/mounts", "none /sys sysfs rw 0 0\n"), ("/proc/cpuinfo", "flags\t: fpu\n")],
        );
        let found = detect_devices(&root);
        assert_eq!(found.len(), 4);
        for detected in &found {
            assert!(!detected.present, "{detected:?}");
            assert!(!detected.because.is_empty(), "{detected:?}");
        }
        let because = found[0].because.join("\n");
        assert!(because.contains("configfs is not mounted"), "{because}");
        assert!(because.contains("flag tdx_guest is not set"), "{because}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn devices_are_found_by_their_files() {
        let root = machine(
            "full",
            &[
                ("/dev/tdx_guest", ""),
                ("/dev/sev-guest", ""),
                ("/dev/nvidiactl", ""),
                ("/usr/lib64/libnvidia-ml.so.1", ""),
                ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu tdx_guest\n"),
                ("/sys/class/dmi/id/sys_vendor", "Example\n"),
            ],
        );
        let found = detect_devices(&root);
        let present: Vec<Device> =
            found.iter().filter(|found| found.present).map(|found| found.device).collect();
        assert_eq!(present, [Device::TdxGuest, Device::SevGuest, Device::NvidiaGpu]);
        assert!(found[1].because.iter().any(|line| line.contains("flag tdx_guest is set")));
        assert!(found[2].because.iter().any(|line| line.contains("Example")));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_tree_that_is_no_tree_is_not_a_device() {
        // An ordinary folder takes the entry and has no provider.
        let root = machine("folder", &[("/sys/kernel/config/tsm/report/x", "")]);
        let found = &detect_devices(&root)[0];
        assert!(!found.present, "{found:?}");
        assert!(found.because.iter().any(|line| line.contains("not configfs")), "{found:?}");
        fs::remove_dir_all(root).unwrap();
    }
}
