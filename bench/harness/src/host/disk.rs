//! Disks and the file system of the output folder: what a cached write means here.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::root::FileTree;

/// One block device; what cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) model: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    /// `write back` or `write through`, as the kernel treats it.
    pub(crate) write_cache: Option<String>,
    /// `cache_type` of a virtio disk, as the device says.
    pub(crate) cache_type: Option<String>,
    /// True where the disk has forced unit access: a write that does not stop in the cache.
    pub(crate) fua: Option<bool>,
    pub(crate) scheduler: Option<String>,
    pub(crate) rotational: Option<bool>,
    pub(crate) queues: Option<u64>,
    pub(crate) requests: Option<u64>,
}

/// The file system that the run writes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct FileSystem {
    pub(crate) kind: String,
    /// The name of the block device below it, partitions resolved to their disk.
    pub(crate) disk: Option<String>,
    /// The mount options that change speed.
    pub(crate) options: Vec<String>,
}

/// The most disks that are listed.
const DISKS_MAX: usize = 64;
/// Devices that hold no data of their own.
const SKIPPED: &[&str] = &["loop", "ram", "sr", "fd"];
/// The mount options that are kept, because they change speed; one that ends in `=` or `_` is the
/// beginning of a name. Others may hold addresses or user names.
const SPEED_OPTIONS: &str = "ro rw sync async dirsync noatime relatime strictatime lazytime discard nodiscard barrier \
    nobarrier data= commit= journal_ delalloc nodelalloc dioread_ stripe= compress ssd nossd space_cache \
    datacow nodatacow logbufs= logbsize= noquota inode64 volatile metacopy= cache= rsize= wsize= vers= \
    hard soft dax size= huge=";

/// Lists every disk that holds data.
pub(crate) fn list_disks(root: &FileTree) -> Vec<Disk> {
    let skipped = |name: &String| {
        SKIPPED.iter().any(|kind| {
            name.strip_prefix(kind).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
        })
    };
    let names = root.list_names("/sys/block").into_iter().filter(|name| !skipped(name));
    names.take(DISKS_MAX).map(|name| read_disk(root, name)).collect()
}

fn read_disk(root: &FileTree, name: String) -> Disk {
    let at = |file: &str| format!("/sys/block/{name}/{file}");
    let flag = |file: &str| root.read_number(&at(file)).map(|number| number != 0);
    let queues = root.list_names(&at("mq")).len() as u64;
    Disk {
        model: root.read_value(&at("device/model")),
        // Always in sectors of 512 bytes, whatever the disk's own are.
        size_bytes: root.read_number(&at("size")).and_then(|sectors| sectors.checked_mul(512)),
        write_cache: root.read_value(&at("queue/write_cache")),
        cache_type: root.read_value(&at("cache_type")),
        fua: flag("queue/fua"),
        scheduler: root.read_choice(&at("queue/scheduler")),
        rotational: flag("queue/rotational"),
        queues: (queues > 0).then_some(queues),
        requests: root.read_number(&at("queue/nr_requests")),
        name,
    }
}

/// Finds the file system below a folder of this machine, or below the nearest one that is there.
pub(crate) fn find_file_system(root: &FileTree, folder: &Path) -> Option<FileSystem> {
    let there = |folder: &Path| folder.ancestors().find_map(|above| above.canonicalize().ok());
    // A relative path whose first part is not there lies in the working folder.
    let folder = there(folder).or_else(|| Path::new(".").canonicalize().ok())?;
    let device = folder.metadata().ok().map(|metadata| metadata.dev());
    let mounts = root.read_text("/proc/self/mountinfo")?;
    file_system_from_mounts(root, &mounts, &folder, device)
}

/// Finds the mount by the device of the folder, else by the longest mount point above it.
fn file_system_from_mounts(
    root: &FileTree,
    mountinfo: &str,
    folder: &Path,
    device: Option<u64>,
) -> Option<FileSystem> {
    let mounts: Vec<Mount> = mountinfo.lines().filter_map(Mount::parse).collect();
    let above = |mount: &&Mount| folder.starts_with(&mount.point);
    let deepest = |mounts: Vec<&Mount>| -> Option<Mount> {
        // Of two mounts at one point the later one is seen.
        mounts.into_iter().max_by_key(|mount| mount.point.as_os_str().len()).cloned()
    };
    let same = mounts.iter().filter(above).filter(|mount| device == Some(mount.device()));
    let mount =
        deepest(same.collect()).or_else(|| deepest(mounts.iter().filter(above).collect()))?;
    let kept = |option: &&String| {
        SPEED_OPTIONS.split(' ').any(|known| {
            option.split('=').next() == Some(known)
                || known.ends_with(['=', '_']) && option.starts_with(known)
        })
    };
    let mut options: Vec<String> = Vec::new();
    for option in mount.options.iter().filter(kept) {
        if !options.contains(option) {
            options.push(option.clone());
        }
    }
    Some(FileSystem {
        disk: disk_of_device(root, mount.major, mount.minor),
        kind: mount.kind,
        options,
    })
}

#[derive(Clone, Debug)]
struct Mount {
    major: u64,
    minor: u64,
    point: PathBuf,
    kind: String,
    options: Vec<String>,
}

impl Mount {
    /// Parses a line of /proc/pid/mountinfo (proc(5)).
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        let (major, minor) = fields.get(2)?.split_once(':')?;
        let mut after = after.split(' ');
        let kind = after.next()?.to_owned();
        let of_file_system = after.nth(1).unwrap_or_default();
        let options = fields.get(5)?.split(',').chain(of_file_system.split(','));
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            // A space in a path is written \040.
            point: fields.get(4)?.replace("\\040", " ").into(),
            kind,
            options: options.map(str::to_owned).collect(),
        })
    }

    fn device(&self) -> u64 {
        nix::libc::makedev(self.major as u32, self.minor as u32)
    }
}

/// Returns the disk of a device: `/sys/dev/block/259:2` leads to `…/block/nvme0n1/nvme0n1p2`, and
/// the part behind `block` is the disk.
fn disk_of_device(root: &FileTree, major: u64, minor: u64) -> Option<String> {
    let link = root.read_link(&format!("/sys/dev/block/{major}:{minor}"))?;
    let parts: Vec<&str> = link.iter().filter_map(|part| part.to_str()).collect();
    let block = parts.iter().rposition(|part| *part == "block")?;
    parts.get(block + 1).map(|name| (*name).to_owned())
}

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    for mount in text.lines().filter_map(Mount::parse) {
        let _ = mount.device();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::FakeTree;

    #[test]
    fn cache_and_scheduler_of_a_disk_are_read() {
        let tree = FakeTree::new(
            "disk",
            &[
                ("/sys/block/vda/queue/write_cache", "write back\n"),
                ("/sys/block/vda/queue/fua", "0\n"),
                ("/sys/block/vda/queue/scheduler", "[none] mq-deadline\n"),
                ("/sys/block/vda/queue/rotational", "1\n"),
                ("/sys/block/vda/cache_type", "write through\n"),
                ("/sys/block/vda/size", "2048\n"),
                ("/sys/block/vda/mq/0/x", ""),
                ("/sys/block/vda/mq/1/x", ""),
                ("/sys/block/vda/serial", "SECRET"),
                ("/sys/block/loop0/size", "0\n"),
            ],
        );
        let disks = list_disks(&tree.root);
        assert_eq!(disks.len(), 1);
        let disk = &disks[0];
        assert_eq!((disk.name.as_str(), disk.size_bytes), ("vda", Some(1 << 20)));
        assert_eq!(disk.write_cache.as_deref(), Some("write back"));
        assert_eq!(disk.cache_type.as_deref(), Some("write through"));
        assert_eq!((disk.fua, disk.rotational, disk.queues), (Some(false), Some(true), Some(2)));
        assert_eq!(disk.scheduler.as_deref(), Some("none"));
        assert!(!serde_json::to_string(disk).unwrap().contains("SECRET"));
    }

    #[test]
    fn a_folder_lies_on_the_deepest_mount_and_its_options_name_nobody() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resuid=65534\n\
            40 27 0:40 / /out rw,noatime - cifs //host/share rw,vers=3.0,username=anna,cache=none\n";
        let tree = FakeTree::new("mounts", &[("/sys/devices/block/vda/vda1/x", "")]);
        let link = tree.root.path("/sys/dev/block/254:0");
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("../../devices/block/vda/vda1", link).unwrap();
        let of = |folder: &str| {
            file_system_from_mounts(&tree.root, mounts, Path::new(folder), None).unwrap()
        };
        let out = of("/out/run");
        assert_eq!(out.kind, "cifs");
        assert_eq!(out.options, ["rw", "noatime", "vers=3.0", "cache=none"]);
        assert_eq!(out.disk, None);
        let system = of("/somewhere");
        assert_eq!((system.kind.as_str(), system.disk.as_deref()), ("ext4", Some("vda")));
        assert_eq!(system.options, ["rw", "relatime", "discard"]);
    }

    #[test]
    fn what_is_no_mount_line_is_passed_over() {
        for line in ["", " - ", "1 2 x:y / / rw - ext4 a b", "1 2 3 - ext4"] {
            assert!(Mount::parse(line).is_none(), "{line:?}");
        }
    }
}
