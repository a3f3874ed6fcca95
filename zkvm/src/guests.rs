//! The programs that are built in, each with the machine that it runs on.

use confide_prover::line::Why;
use confide_zkvm_machine::Blueprint;

use crate::answer::Refused;

/// A program.
pub struct Guest {
    /// Name of guest and claim.
    pub name: &'static str,
    /// Its machine.
    pub blueprint: Blueprint,
    /// The program for the machine.
    pub elf: &'static [u8],
    /// Keys of the machine.
    pub keys: &'static [u8],
    /// The same program, compiled for this one. Gives the statement's encoding.
    pub native: fn(&[u8]) -> Result<Vec<u8>, Refused>,
}

/// rv32im and nothing else.
const PLAIN: Blueprint =
    Blueprint { name: "plain", log_height: 20, sha2: false, int256: false, p256: false };

/// All programs.
pub const GUESTS: &[Guest] = &[];

impl Guest {
    /// The program of a name.
    ///
    /// # Errors
    ///
    /// [`Why::UnknownGuest`].
    pub fn named(name: &str) -> Result<&'static Self, Refused> {
        let known = GUESTS.iter().find(|guest| guest.name == name);
        known.ok_or_else(|| Refused::new(Why::UnknownGuest, "no program of that name is built in"))
    }
}

/// Refuses to run on a processor that lacks the instructions that this program was built for
/// (`.cargo/config.toml`): it would die of the first of them, without a word.
///
/// # Errors
///
/// A fault that names the instructions.
pub fn processor_suffices() -> Result<(), Refused> {
    #[cfg(target_arch = "x86_64")]
    for (built_for, has, name) in [
        (cfg!(target_feature = "avx2"), is_x86_feature_detected!("avx2"), "AVX2"),
        (cfg!(target_feature = "avx512f"), is_x86_feature_detected!("avx512f"), "AVX-512"),
    ] {
        if built_for && !has {
            let text = format!("built for a processor with {name}: build it here (make prover)");
            return Err(Refused::new(Why::Fault, text));
        }
    }
    Ok(())
}
