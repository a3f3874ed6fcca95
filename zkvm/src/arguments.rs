//! The command line. It is spoken by a program, so there are no abbreviations.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use confide_prover::line::ProofMode;
use confide_zkvm_machine::MEMORY_DEFAULT;

/// The usage text.
pub const USAGE: &str = "\
usage: confide-prover describe
       confide-prover native  --guest NAME --input FILE --out FILE
       confide-prover emulate --guest NAME --input FILE [--mode MODE] [--memory BYTES]
       confide-prover prove   --guest NAME --input FILE --out FILE --mode MODE [--memory BYTES]
       confide-prover check   --guest NAME --proof FILE --mode MODE
       confide-prover keys    --elf FOLDER --out FOLDER [--digests FILE]   (see zkvm/README.md)
hint: `confide prove` and `confide verify proof` call this program";

/// The work that is asked for.
pub enum ProverCommand {
    /// Describe the back end.
    Describe,
    /// Run the program, compiled for this machine.
    Native(StageOptions),
    /// Run the program in the executor.
    Emulate(StageOptions),
    /// Run the program and prove the run.
    Prove(StageOptions),
    /// Check a proof.
    Check(StageOptions),
    /// Make the keys again from the programs of a folder.
    Keys {
        /// Folder of the guests' ELFs.
        elf: PathBuf,
        /// Folder for the keys.
        out: PathBuf,
        /// List of the ELFs, to write the program digests into.
        digests: Option<PathBuf>,
    },
}

/// The files and options of a stage; those that a stage does not take are empty.
pub struct StageOptions {
    /// The guest's name.
    pub guest: String,
    /// File of the guest's input.
    pub input: PathBuf,
    /// File to write.
    pub out: PathBuf,
    /// File of a proof's body.
    pub proof: PathBuf,
    /// The proof's mode.
    pub mode: ProofMode,
    /// Bytes of memory that the work may take.
    pub memory: u64,
}

impl ProverCommand {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// A line for people: what is unknown, missing or given twice.
    pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = arguments;
        let command = arguments.next().ok_or("command is missing")?;
        let mut options = CommandLineOptions::parse(arguments)?;
        let request = match command.to_str() {
            Some("describe") => Self::Describe,
            Some("native") => Self::Native(StageOptions::parse(&mut options, &["input", "out"])?),
            Some("emulate") => {
                Self::Emulate(StageOptions::parse(&mut options, &["input", "mode?", "memory?"])?)
            }
            Some("prove") => Self::Prove(StageOptions::parse(
                &mut options,
                &["input", "out", "mode", "memory?"],
            )?),
            Some("check") => Self::Check(StageOptions::parse(&mut options, &["proof", "mode"])?),
            Some("keys") => Self::Keys {
                elf: options.take_path("elf")?,
                out: options.take_path("out")?,
                digests: options.take_text("digests")?.map(PathBuf::from),
            },
            _ => return Err(format!("command is unknown: {}", command.display())),
        };
        match options.0.keys().next() {
            None => Ok(request),
            Some(name) => Err(format!("option is not for this command: --{name}")),
        }
    }

    /// Whether a proof is to be judged.
    pub fn is_check(&self) -> bool {
        matches!(self, Self::Check(_))
    }
}

impl StageOptions {
    fn parse(options: &mut CommandLineOptions, takes: &[&str]) -> Result<Self, String> {
        let path = |options: &mut CommandLineOptions, name: &str| {
            if takes.contains(&name) { options.take_path(name) } else { Ok(PathBuf::new()) }
        };
        let (input, out, proof) =
            (path(options, "input")?, path(options, "out")?, path(options, "proof")?);
        let mode = match (takes.contains(&"mode"), takes.contains(&"mode?")) {
            (false, false) => ProofMode::App,
            (needed, _) => match options.take_text("mode")? {
                Some(mode) => mode.parse()?,
                None if needed => return Err("option is missing: --mode".into()),
                None => ProofMode::App,
            },
        };
        let memory = match takes.contains(&"memory?") {
            false => None,
            true => options.take_text("memory")?,
        };
        let memory = match memory {
            None => MEMORY_DEFAULT,
            Some(bytes) => bytes
                .parse()
                .map_err(|_| format!("memory is malformed: wanted bytes, got {bytes:?}"))?,
        };
        let guest = options.take_text("guest")?.ok_or("option is missing: --guest")?;
        Ok(Self { guest, input, out, proof, mode, memory })
    }
}

struct CommandLineOptions(BTreeMap<String, OsString>);

impl CommandLineOptions {
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut options = BTreeMap::new();
        while let Some(name) = arguments.next() {
            let name = name.to_str().and_then(|name| name.strip_prefix("--")).map(String::from);
            let name = name.ok_or("argument is no option: wanted --NAME VALUE")?;
            let value = arguments.next().ok_or(format!("option has no value: --{name}"))?;
            if options.insert(name.clone(), value).is_some() {
                return Err(format!("option is given twice: --{name}"));
            }
        }
        Ok(Self(options))
    }

    fn take_path(&mut self, name: &str) -> Result<PathBuf, String> {
        let value = self.0.remove(name).ok_or(format!("option is missing: --{name}"))?;
        Ok(PathBuf::from(value))
    }

    fn take_text(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        value.into_string().map(Some).map_err(|_| format!("option is not text: --{name}"))
    }
}
