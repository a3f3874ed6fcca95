//! Bounce buffers: every byte of device traffic of most confidential VMs is copied through them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{kernel_log::KernelLog, root::FileTree};

/// A slab is 2 KiB (IO_TLB_SHIFT is 11).
const SLAB_BYTES: u64 = 1 << 11;

/// The bounce buffers, as far as they are known; what cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Swiotlb {
    /// The value of `swiotlb=` on the kernel's command line.
    pub(crate) asked: Option<String>,
    /// True where every device goes through them: asked for, or announced by the kernel.
    pub(crate) forced: Option<bool>,
    pub(crate) size_bytes: Option<u64>,
    /// The bytes that were used when this was read.
    pub(crate) used_bytes: Option<u64>,
    /// The source of the size: `debugfs` or `kernel log`.
    pub(crate) source: Option<String>,
}

impl Swiotlb {
    pub(crate) fn read(root: &FileTree, log: &KernelLog) -> Self {
        let command_line = root.read_value("/proc/cmdline").unwrap_or_default();
        let asked = command_line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("swiotlb="))
            .map(str::to_owned);
        let slabs = |name: &str| {
            let slabs = root.read_number(&format!("/sys/kernel/debug/swiotlb/{name}"))?;
            slabs.checked_mul(SLAB_BYTES)
        };
        let logged = log.find_line("software IO TLB: mapped").and_then(parse_mapped_bytes);
        let (size_bytes, source) = match (slabs("io_tlb_nslabs"), logged) {
            (Some(bytes), _) => (Some(bytes), Some("debugfs".to_owned())),
            (None, Some(bytes)) => (Some(bytes), Some("kernel log".to_owned())),
            (None, None) => (None, None),
        };
        Self {
            forced: is_forced(asked.as_deref(), log),
            size_bytes,
            used_bytes: slabs("io_tlb_used"),
            source,
            asked,
        }
    }
}

fn is_forced(asked: Option<&str>, log: &KernelLog) -> Option<bool> {
    let word = |wanted: &str| asked.is_some_and(|text| text.split(',').any(|w| w == wanted));
    if word("noforce") {
        return Some(false);
    }
    if word("force") || log.find_line("system is using DMA bounce buffers").is_some() {
        return Some(true);
    }
    // Without the whole log a silent kernel says nothing.
    (log.readable && log.whole).then_some(false)
}

/// Parses the size in `software IO TLB: mapped [mem 0x…-0x…] (64MB)`.
fn parse_mapped_bytes(line: &str) -> Option<u64> {
    let size = line.rsplit_once('(')?.1.strip_suffix("MB)")?;
    size.parse::<u64>().ok()?.checked_mul(1 << 20)
}

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    let _ = parse_mapped_bytes(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::FakeTree;

    #[test]
    fn a_forced_buffer_is_known_by_command_line_or_by_the_kernels_words() {
        let asked =
            FakeTree::new("swiotlb-asked", &[("/proc/cmdline", "quiet swiotlb=65536,force")]);
        let read = Swiotlb::read(&asked.root, &KernelLog::default());
        assert_eq!((read.forced, read.asked.as_deref()), (Some(true), Some("65536,force")));

        let guest = FakeTree::new("swiotlb-guest", &[("/proc/cmdline", "quiet")]);
        let log = KernelLog::parse(
            "5,0,0,-;Linux version 6.8\n\
             6,1,1,-;Memory encryption is active and system is using DMA bounce buffers\n\
             6,2,1,-;software IO TLB: mapped [mem 0x0-0x40000000] (1024MB)\n",
        );
        let read = Swiotlb::read(&guest.root, &log);
        assert_eq!((read.forced, read.size_bytes), (Some(true), Some(1 << 30)));
        assert_eq!(read.source.as_deref(), Some("kernel log"));
    }

    #[test]
    fn debugfs_is_believed_before_the_log() {
        let tree = FakeTree::new(
            "swiotlb-debug",
            &[
                ("/proc/cmdline", "swiotlb=noforce"),
                ("/sys/kernel/debug/swiotlb/io_tlb_nslabs", "32768\n"),
                ("/sys/kernel/debug/swiotlb/io_tlb_used", "10\n"),
            ],
        );
        let read = Swiotlb::read(&tree.root, &KernelLog::default());
        assert_eq!((read.size_bytes, read.used_bytes), (Some(64 << 20), Some(20 << 10)));
        assert_eq!(read.forced, Some(false));
    }

    #[test]
    fn a_silent_kernel_without_its_whole_log_says_nothing() {
        let tree = FakeTree::new("swiotlb-none", &[("/proc/cmdline", "quiet")]);
        assert_eq!(Swiotlb::read(&tree.root, &KernelLog::default()), Swiotlb::default());
        assert_eq!(parse_mapped_bytes("software IO TLB: mapped (xMB)"), None);
    }
}
