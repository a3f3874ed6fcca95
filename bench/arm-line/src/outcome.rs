//! Results of an arm's work, and how its process ends.

use std::{error::Error, fmt, fs, path::Path, process::ExitCode};

/// An arm's error: a text for the person who reads the arm's log.
pub type ArmError = Box<dyn Error + Send + Sync>;

/// A result of an arm's work.
pub type Outcome<T = ()> = Result<T, ArmError>;

/// The error of an arm that needs a program, a privilege or a feature that this machine does not have. Such an arm is
/// left out by name ([`crate::Hello::cannot`]); any other error is a fault that must be seen.
#[derive(Debug)]
pub struct UnmetNeed(pub String);

impl fmt::Display for UnmetNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UnmetNeed {}

/// Separates an unmet need from the other errors.
///
/// # Errors
/// Any error but [`UnmetNeed`].
pub fn separate_unmet_need<T>(outcome: Outcome<T>) -> Outcome<Result<T, UnmetNeed>> {
    match outcome.map_err(|error| error.downcast::<UnmetNeed>()) {
        Ok(result) => Ok(Ok(result)),
        Err(Ok(need)) => Ok(Err(*need)),
        Err(Err(error)) => Err(error),
    }
}

/// The exit status of an arm's process: 0 after success; after a failure 2, with the reason printed on
/// standard error.
pub fn exit_code(program: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::from(2)
        }
    }
}

/// Reads a whole file.
///
/// # Errors
/// When it cannot be read; the path is named.
pub fn read_file(path: &Path) -> Outcome<Vec<u8>> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_told_from_a_fault() {
        let need = separate_unmet_need::<()>(Err(UnmetNeed("no program tc".into()).into()));
        assert_eq!(need.unwrap().unwrap_err().to_string(), "no program tc");
        let fault = separate_unmet_need::<()>(Err("the far end did not listen".into()));
        assert_eq!(fault.unwrap_err().to_string(), "the far end did not listen");
        assert_eq!(separate_unmet_need(Ok(1)).unwrap().unwrap(), 1);
    }
}
