//! The scratch file of a storage arm, and what is known of the disk beneath it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    num::NonZeroU64,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

use rustix::fs::{Advice, OFlags, fadvise, statvfs};

use confide_arm_line::{Outcome, UnmetNeed};

/// A file system that is nearly full is slow, and others need it too.
const LEFT_FREE_BYTES: u64 = 256 << 20;
/// Bytes of one write while the scratch file is laid out.
const CHUNK_BYTES: usize = 1 << 20;
/// The limit of one disk on four lanes of PCIe 5.0: no single disk is faster today.
const DISK_MIB_PER_S_MAX: f64 = 15_000.0;
/// The limit of SATA and SAS for one disk with a spindle.
const SPINDLE_MIB_PER_S_MAX: f64 = 600.0;

/// A file of random bytes that has no name: the kernel frees it with the last process that has it
/// open, however that ends, so that an interrupted run leaves nothing behind.
pub(crate) struct ScratchFile {
    file: File,
    pub(crate) bytes: u64,
}

impl ScratchFile {
    /// Writes `bytes` bytes that do not compress, and puts them on the disk.
    pub(crate) fn create(folder: &Path, bytes: u64, seed: u64) -> Outcome<Self> {
        let free = free_bytes(folder)?;
        if free < bytes.saturating_add(LEFT_FREE_BYTES) {
            let (free, wanted) = (free >> 20, bytes >> 20);
            return Err(format!(
                "{}: wanted {wanted} MiB and 256 MiB to spare, {free} MiB are free; give another \
                 folder with --var scratch=DIR",
                folder.display()
            )
            .into());
        }
        let text = |error: io::Error| format!("{}: {error}", folder.display());
        let mut file = open_unnamed_file(folder, 0).map_err(text)?;
        let mut noise = NoiseGenerator(seed);
        let mut chunk = vec![0_u8; CHUNK_BYTES];
        let mut left = bytes;
        while left > 0 {
            noise.fill(&mut chunk);
            let count = left.min(CHUNK_BYTES as u64);
            file.write_all(&chunk[..count as usize]).map_err(text)?;
            left -= count;
        }
        file.sync_all().map_err(text)?;
        // Otherwise the first buffered reads would be of what was just written.
        let _ = fadvise(&file, 0, NonZeroU64::new(bytes), Advice::DontNeed);
        Ok(Self { file, bytes })
    }

    /// A path by which another process opens it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Tries direct I/O in this folder with one page, written and read back.
///
/// # Errors
/// [`UnmetNeed`] where the file system has no direct I/O, and any fault.
pub(crate) fn require_direct_io(folder: &Path) -> Outcome {
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    let tried = open_unnamed_file(folder, flags).and_then(write_and_read_page);
    tried.map_err(|error| {
        let text = format!("{}: no direct I/O: {error}", folder.display());
        match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unsupported => UnmetNeed(text).into(),
            _ => text.into(),
        }
    })
}

/// Writes and reads one aligned page.
fn write_and_read_page(mut file: File) -> io::Result<()> {
    const PAGE: usize = 4096;
    let mut room = vec![0x5a_u8; 2 * PAGE];
    let at = room.as_ptr().align_offset(PAGE);
    let page = &mut room[at..at + PAGE];
    file.write_all(page)?;
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(page)
}

/// Properties of the disk beneath a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Disk {
    /// `vda`, `nvme0n1`; empty if the folder lies on no block device.
    pub(crate) name: String,
    /// `write back` or `write through`: what the guest sees of its cache.
    pub(crate) cache: Option<String>,
    /// The greatest rate at which its link or kind could read.
    pub(crate) mib_per_s_max: f64,
}

impl Disk {
    /// The disk of the device that holds `folder`.
    pub(crate) fn of_folder(folder: &Path) -> Self {
        let unknown = Self { mib_per_s_max: DISK_MIB_PER_S_MAX, ..Self::default() };
        let Ok(about) = fs::metadata(folder) else { return unknown };
        let (major, minor) = (rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
        let Ok(device) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
            return unknown;
        };
        // A partition has no queue of its own.
        let whole = device.ancestors().find(|path| path.join("queue").is_dir());
        let Some(whole) = whole else { return unknown };
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
        let spindle = read_line(&whole.join("queue/rotational")).as_deref() == Some("1");
        let mib_per_s_max = match pcie_mib_per_s(whole) {
            Some(link) => link,
            // A virtual disk calls itself rotational unless it was told otherwise.
            None if spindle && !is_virtual_machine() => SPINDLE_MIB_PER_S_MAX,
            None => DISK_MIB_PER_S_MAX,
        };
        Self {
            name: name.unwrap_or_default(),
            cache: read_line(&whole.join("queue/write_cache")),
            mib_per_s_max,
        }
    }
}

/// Whether a hypervisor says that it is one: then a host may cache what this machine does not.
pub(crate) fn is_virtual_machine() -> bool {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpu.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
        || Path::new("/sys/hypervisor/type").exists()
}

/// Memory of this machine in bytes; 0 if the kernel does not report it.
pub(crate) fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// The rate of a disk with PCIe lanes of its own: transfers in a second, times lanes.
fn pcie_mib_per_s(whole: &Path) -> Option<f64> {
    if !whole.file_name()?.to_string_lossy().starts_with("nvme") {
        return None;
    }
    let port = whole.ancestors().find(|path| path.join("current_link_speed").is_file())?;
    let speed = read_line(&port.join("current_link_speed"))?;
    let lanes: f64 = read_line(&port.join("current_link_width"))?.parse().ok()?;
    let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    // 8 bits of payload in 10 up to 5 GT/s, 128 in 130 from 8 GT/s (PCI Express Base, 4.2).
    let payload = if transfers < 8.0 { 0.8 } else { 128.0 / 130.0 };
    Some(transfers * 1e9 * payload * lanes / 8.0 / f64::from(1 << 20)).filter(|rate| *rate > 0.0)
}

fn open_unnamed_file(folder: &Path, flags: i32) -> io::Result<File> {
    let path = folder.join(format!(".confide-scratch-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    let opened = options.open(&path);
    let removed = fs::remove_file(&path);
    let file = opened?;
    removed?;
    Ok(file)
}

fn free_bytes(folder: &Path) -> Outcome<u64> {
    let about = statvfs(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

fn read_line(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Bytes that do not compress (splitmix64, Steele, Lea and Flood 2014).
struct NoiseGenerator(u64);

impl NoiseGenerator {
    fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..word.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("confide-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for tests");
        folder
    }

    #[test]
    fn a_scratch_file_is_read_by_its_path_and_has_no_name() {
        let folder = folder("scratch");
        let scratch = ScratchFile::create(&folder, (1 << 20) + 5, 7).expect("a megabyte");
        let seen = fs::read(scratch.path()).expect("by its descriptor");
        assert_eq!(seen.len() as u64, scratch.bytes);
        assert!(seen.iter().any(|byte| *byte != seen[0]));
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
        fs::remove_dir(&folder).expect("empty");
    }

    #[test]
    fn more_than_is_free_is_refused() {
        let refused = ScratchFile::create(&std::env::temp_dir(), 1 << 60, 7);
        assert!(refused.is_err_and(|error| error.to_string().contains("--var scratch=")));
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_fault_and_not_a_lack_of_direct_io() {
        let fault = require_direct_io(Path::new("/no/such/folder")).unwrap_err();
        assert!(!fault.is::<UnmetNeed>(), "{fault}");
    }

    #[test]
    fn a_disk_has_a_limit_even_where_nothing_is_known_of_it() {
        assert!(Disk::of_folder(&std::env::temp_dir()).mib_per_s_max > 0.0);
        assert_eq!(Disk::of_folder(Path::new("/no/such/folder")).mib_per_s_max, DISK_MIB_PER_S_MAX);
    }
}
