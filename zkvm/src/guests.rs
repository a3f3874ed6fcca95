//! The programs that are built in, each with the machine that it runs on.

use confide_guest_programs::host;
use confide_prover::line::RefusalReason;
use confide_statement::Statement;
use confide_zkvm_machine::Blueprint;

use crate::answer::StageRefusal;

macro_rules! guest {
    ($name:literal, $blueprint:expr, $machine:literal, $native:ident) => {
        Guest {
            name: $name,
            blueprint: $blueprint,
            elf: include_bytes!(concat!("../../guests/elf/", $name, ".elf")),
            keys: include_bytes!(concat!("../keys/", $machine, ".keys")),
            native: $native,
        }
    };
}

/// A program that is built in.
pub struct Guest {
    /// Name of guest and claim.
    pub name: &'static str,
    /// The program's machine.
    pub blueprint: Blueprint,
    /// The program's ELF.
    pub elf: &'static [u8],
    /// Keys of the machine.
    pub keys: &'static [u8],
    /// Runs the same program, compiled for this machine. Takes the guest's name too.
    pub native: fn(&str, &[u8]) -> Result<Statement, StageRefusal>,
}

/// rv32im, and SHA-256 for the statement's digest: tables that no instruction uses are left out of
/// a proof, so a program that hashes little pays little.
const BASE: Blueprint =
    Blueprint { name: "base", log_height: 20, sha2: true, int256: false, p256: false };
/// The table of 256-bit carries has 2^21 rows.
const INTEGERS: Blueprint = Blueprint { name: "integers", log_height: 21, int256: true, ..BASE };
const CURVE: Blueprint = Blueprint { name: "curve", p256: true, ..BASE };

/// All programs that are built in.
pub const GUESTS: &[Guest] = &[
    guest!("fibonacci", BASE, "base", run_native_program),
    guest!("sort", BASE, "base", run_native_program),
    guest!("sha256", BASE, "base", run_native_program),
    guest!("transcript", BASE, "base", run_native_program),
    guest!("rsa2048", INTEGERS, "integers", run_native_program),
    guest!("dcap", CURVE, "curve", run_native_dcap),
];

impl Guest {
    /// Finds the program of a name.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::UnknownGuest`].
    pub fn from_name(name: &str) -> Result<&'static Self, StageRefusal> {
        let known = GUESTS.iter().find(|guest| guest.name == name);
        known.ok_or_else(|| {
            StageRefusal::new(RefusalReason::UnknownGuest, "no program of that name is built in")
        })
    }
}

fn run_native_program(name: &str, input: &[u8]) -> Result<Statement, StageRefusal> {
    let run = host::run(name, input).ok_or_else(|| {
        StageRefusal::new(RefusalReason::UnknownGuest, "it has no native program")
    })?;
    run.map_err(|error| StageRefusal::new(RefusalReason::ClaimRefused, error))
}

fn run_native_dcap(_: &str, input: &[u8]) -> Result<Statement, StageRefusal> {
    confide_guest_dcap::run(input, &confide_verifier::AwsLc)
        .map_err(|error| StageRefusal::new(RefusalReason::ClaimRefused, error))
}

/// Refuses to run on a processor that lacks the instructions that this program was built for
/// (`.cargo/config.toml`): it would die of the first of them, without a word.
///
/// # Errors
///
/// A fault that names the instructions.
pub fn check_processor() -> Result<(), StageRefusal> {
    #[cfg(target_arch = "x86_64")]
    for (built_for, has, name) in [
        (cfg!(target_feature = "avx2"), is_x86_feature_detected!("avx2"), "AVX2"),
        (cfg!(target_feature = "avx512f"), is_x86_feature_detected!("avx512f"), "AVX-512"),
    ] {
        if built_for && !has {
            let text = format!("built for a processor with {name}: build it here (make prover)");
            return Err(StageRefusal::new(RefusalReason::Fault, text));
        }
    }
    Ok(())
}
