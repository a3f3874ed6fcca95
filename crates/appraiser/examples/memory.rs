//! `cargo run --release -p confide-appraiser --example memory [PLATFORMS]`: what it takes to know
//! that many platforms (simulated), in resident memory of this process.
//!
//! Every entry is learnt from an appraisal. The quote is one and the same; that it counts as so
//! many platforms is because each appraisal names it under a secret of its own.

use std::{env, error::Error, fs, time::Duration};

use confide_appraiser::{PLATFORMS_MAX, PlatformMemory};
use confide_evidence::ReportData;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};
use confide_verifier::{AwsLc, Endorsements, Evidence, LastPlatform, Policy, UnixTime};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

fn main() -> Result<(), Box<dyn Error>> {
    let platforms: usize = match env::args().nth(1) {
        Some(number) => number.parse()?,
        None => PLATFORMS_MAX,
    };
    let (seed, issued_at) = ([7; 32], NOW - 3_600);
    let options =
        FakeAttesterOptions { seed, tee: Tee::Tdx, debug: false, issued_at, mode: Mode::Raw };
    let attester = FakeAttester::new(options)?;
    let policy = Policy::from_toml(&attester.policy_toml())?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    let endorsements = Endorsements::parse(attester.collateral_json().as_bytes())?;
    let before = resident_bytes()?;
    let prepared = endorsements.prepare(&policy.roots, now, &AwsLc)?;
    let quote = attester.quote(&ReportData::ZERO);
    let evidence = Evidence { quote: &quote, ..Evidence::default() };
    let memory = PlatformMemory::new(platforms);
    for _ in 0..platforms {
        let empty = LastPlatform { secret: AwsLc::generate_tag_key(), pck: None, enclave: None };
        let (_, learned) = prepared.appraise(&evidence, &policy, now, &AwsLc, &empty)?;
        memory.keep(learned, prepared.endorsements_id());
    }
    let used = resident_bytes()?.saturating_sub(before);
    let (enclaves, pcks) = memory.entry_counts();
    println!("{enclaves} quoting enclaves and {pcks} PCK certificates held (simulated)");
    println!("{:.1} MB, {} bytes for each", used as f64 / 1e6, used / enclaves.max(1));
    Ok(())
}

fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    const PAGE_BYTES: usize = 4096;
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).ok_or("statm has a second field")?.parse()?;
    Ok(pages * PAGE_BYTES)
}
