//! The memory that proving needs.

use confide_prover::line::RefusalReason;

use crate::work::StageRefusal;

/// Peaks of 10.4 to 10.8 GiB were measured for runs of 0.2 to 0.4 M cycles; a shard of SP1 is longer
/// than any of them, so shorter runs take as much.
const NEEDED_GIB: u64 = 11;

/// Refuses where less is free: a proof that is cut short and a machine out of memory help nobody.
pub(crate) fn check_available() -> Result<(), StageRefusal> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(free_bytes) = available_bytes(&meminfo) else {
        let detail = "/proc/meminfo does not state how much memory is free".to_string();
        return Err(StageRefusal::new(RefusalReason::Memory, detail));
    };
    if free_bytes >= NEEDED_GIB << 30 {
        return Ok(());
    }
    let free_gib = free_bytes as f64 / f64::from(1 << 30);
    let detail = format!(
        "SP1's core prover takes about {NEEDED_GIB} GiB, of which {free_gib:.1} GiB are free"
    );
    Err(StageRefusal::new(RefusalReason::Memory, detail))
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::available_bytes;

    #[test]
    fn what_is_available_is_read_in_bytes() {
        let meminfo = "MemTotal:       24 kB\nMemAvailable:   16 kB\n";
        assert_eq!(available_bytes(meminfo), Some(16 * 1024));
        assert_eq!(available_bytes("MemTotal: 24 kB\n"), None);
    }
}
