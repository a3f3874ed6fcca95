//! What is known of caches and pages, for the measurements of memory.

use std::{fs, path::Path};

/// The kernel's folder on the caches of the first CPU.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
/// Assumed where the kernel reports no size: more than the last cache of most machines.
const LAST_CACHE_BYTES: u64 = 64 << 20;

/// Size of the greatest cache in bytes, and whether the kernel reported it.
pub(crate) fn last_level_cache_bytes() -> (u64, bool) {
    let sizes = (0..8).filter_map(|index| {
        let text = fs::read_to_string(Path::new(CACHES).join(format!("index{index}/size"))).ok()?;
        parse_size(text.trim())
    });
    match sizes.max() {
        Some(bytes) => (bytes, true),
        None => (LAST_CACHE_BYTES, false),
    }
}

/// `wanted`, or an eighth of what is available where that is less: the machine has other work.
pub(crate) fn affordable_bytes(wanted: u64) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(wanted, |kib| wanted.min(kib.saturating_mul(1024) / 8))
}

/// The kind of pages that this process may get: `always`, `madvise` (not asked for here) or `never`.
pub(crate) fn huge_page_mode() -> String {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = fs::read_to_string(path).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen {
        Some((chosen, _)) => format!("transparent huge pages: {chosen}"),
        None => "transparent huge pages: unknown".to_owned(),
    }
}

/// Bytes of a size like `32K`, `1024K` or `32M`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let scale: u64 = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_have_units() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!((parse_size("32"), parse_size("K"), parse_size("2 M")), (None, None, None));
    }

    #[test]
    fn a_machine_has_a_last_cache_and_affords_a_page() {
        assert!(last_level_cache_bytes().0 > 0);
        assert_eq!(affordable_bytes(4096), 4096);
    }
}
