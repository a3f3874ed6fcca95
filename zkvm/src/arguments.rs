//! The command line. It is spoken by a program, so there are no abbreviations.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use confide_prover::line::Mode;
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
pub enum Request {
    /// Describe the back end.
    Describe,
    /// Run the program, compiled for this machine.
    Native(Work),
    /// Run the program in the executor.
    Emulate(Work),
    /// Run the program and prove the run.
    Prove(Work),
    /// Check a proof.
    Check(Work),
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
pub struct Work {
    /// The guest's name.
    pub guest: String,
    /// File of the guest's input.
    pub input: PathBuf,
    /// File to write.
    pub out: PathBuf,
    /// File of a proof's body.
    pub proof: PathBuf,
    /// The proof's mode.
    pub mode: Mode,
    /// Bytes of memory that the work may take.
    pub memory: u64,
}

impl Request {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// A line for people: what is unknown, missing or given twice.
    pub fn read(arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = arguments;
        let command = arguments.next().ok_or("command is missing")?;
        let mut options = Options::read(arguments)?;
        let request = match command.to_str() {
            Some("describe") => Self::Describe,
            Some("native") => Self::Native(Work::read(&mut options, &["input", "out"])?),
            Some("emulate") => {
                Self::Emulate(Work::read(&mut options, &["input", "mode?", "memory?"])?)
            }
            Some("prove") => {
                Self::Prove(Work::read(&mut options, &["input", "out", "mode", "memory?"])?)
            }
            Some("check") => Self::Check(Work::read(&mut options, &["proof", "mode"])?),
            Some("keys") => Self::Keys {
                elf: options.path("elf")?,
                out: options.path("out")?,
                digests: options.text("digests")?.map(PathBuf::from),
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

impl Work {
    fn read(options: &mut Options, takes: &[&str]) -> Result<Self, String> {
        let path = |options: &mut Options, name: &str| {
            if takes.contains(&name) { options.path(name) } else { Ok(PathBuf::new()) }
        };
        let (input, out, proof) =
            (path(options, "input")?, path(options, "out")?, path(options, "proof")?);
        let mode = match (takes.contains(&"mode"), takes.contains(&"mode?")) {
            (false, false) => Mode::App,
            (needed, _) => match options.text("mode")? {
                Some(mode) => mode.parse()?,
                None if needed => return Err("option is missing: --mode".into()),
                None => Mode::App,
            },
        };
        let memory = match takes.contains(&"memory?") {
            false => None,
            true => options.text("memory")?,
        };
        let memory = match memory {
            None => MEMORY_DEFAULT,
            Some(bytes) => bytes
                .parse()
                .map_err(|_| format!("memory is malformed: wanted bytes, got {bytes:?}"))?,
        };
        let guest = options.text("guest")?.ok_or("option is missing: --guest")?;
        Ok(Self { guest, input, out, proof, mode, memory })
    }
}

struct Options(BTreeMap<String, OsString>);

impl Options {
    fn read(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
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

    fn path(&mut self, name: &str) -> Result<PathBuf, String> {
        let value = self.0.remove(name).ok_or(format!("option is missing: --{name}"))?;
        Ok(PathBuf::from(value))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        value.into_string().map(Some).map_err(|_| format!("option is not text: --{name}"))
    }
}
