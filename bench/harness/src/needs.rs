//! The needs of an arm, and the packages that hold what is missing.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{
    host::root::{FileTree, field_value},
    programs::find_in_path,
};

/// The folders where Debian keeps programs that a user's PATH may lack.
const ALSO_IN: &[&str] = &["/usr/sbin", "/sbin"];

/// The conditions that a machine must meet before an arm is asked; without one the arm is left out
/// by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineRequirements {
    /// A file or folder that must be there.
    path: Option<String>,
    /// The message where `path` is missing, which says how it comes to be there.
    otherwise: Option<String>,
    /// A program that must be in PATH, under any one of these names.
    program: Option<ProgramNames>,
    /// The Debian package that holds `program`.
    package: Option<String>,
    /// The CPUs that this process must be allowed to use.
    cpus: Option<usize>,
    /// The memory that must be free, in GiB: an arm that would be killed for want of memory is not
    /// started.
    memory_gib: Option<u64>,
}

/// The requirements of an arm: all of them must be met.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "NeedsForm")]
pub(crate) struct ArmNeeds(Vec<MachineRequirements>);

/// The forms in which a suite writes the requirements of an arm.
#[derive(Deserialize)]
#[serde(untagged, expecting = "wanted a table of requirements, or a list of such tables")]
enum NeedsForm {
    Single(MachineRequirements),
    All(Vec<MachineRequirements>),
}

/// One name, or several of which one is enough.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum ProgramNames {
    Single(String),
    Any(Vec<String>),
}

/// A program that an arm of a suite needs and this machine lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingProgram {
    /// The program's name, the first of several.
    pub program: String,
    /// The Debian package that contains it.
    pub package: String,
}

impl From<NeedsForm> for ArmNeeds {
    fn from(form: NeedsForm) -> Self {
        match form {
            NeedsForm::Single(needs) => Self(vec![needs]),
            NeedsForm::All(needs) => Self(needs),
        }
    }
}

impl ArmNeeds {
    /// Returns what this machine does not meet, joined by semicolons; `None` if it meets everything.
    pub(crate) fn unmet_reason(&self) -> Option<String> {
        let reasons: Vec<_> = self.0.iter().filter_map(MachineRequirements::unmet_reason).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns the first mistake in the keys; `None` if there is no mistake.
    pub(crate) fn find_key_mistake(&self) -> Option<String> {
        self.0.iter().find_map(MachineRequirements::find_key_mistake)
    }

    /// Finds the programs that it names, which are the tools that the arm will run.
    pub(crate) fn find_tools(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.0.iter().filter_map(MachineRequirements::find_tool)
    }

    /// Lists the programs that are not here.
    pub(crate) fn missing_programs(&self) -> impl Iterator<Item = MissingProgram> + '_ {
        self.0.iter().filter_map(MachineRequirements::missing_program)
    }

    /// Returns the GiB of memory that must be free, if it names any.
    pub(crate) fn memory_gib(&self) -> Option<u64> {
        self.0.iter().filter_map(|needs| needs.memory_gib).max()
    }
}

impl MachineRequirements {
    /// Returns the reason why this machine does not meet it; `None` if it does.
    fn unmet_reason(&self) -> Option<String> {
        if let (Some(path), Some(otherwise)) = (&self.path, &self.otherwise)
            && !Path::new(path).exists()
        {
            return Some(otherwise.clone());
        }
        if let Some(MissingProgram { program, package }) = self.missing_program() {
            return Some(format!(
                "the program {program} is missing: install Debian's package {package}, or use --install"
            ));
        }
        let here = usable_cpus();
        if let Some(wanted) = self.cpus.filter(|wanted| *wanted > here) {
            return Some(format!("needs {wanted} CPUs, this machine has {here}"));
        }
        let wanted = self.memory_gib?;
        match read_available_gib() {
            Some(free) if free >= wanted as f64 => None,
            Some(free) => {
                Some(format!("needs {wanted} GiB of free memory, this machine has {free:.1}"))
            }
            None => Some(format!(
                "needs {wanted} GiB of free memory, but this machine does not report how much is free"
            )),
        }
    }

    /// Returns the mistake in its keys; `None` if there is no mistake.
    fn find_key_mistake(&self) -> Option<String> {
        let pairs = self.path.is_some() == self.otherwise.is_some()
            && self.program.is_some() == self.package.is_some();
        let any = self.path.is_some()
            || self.program.is_some()
            || self.cpus.is_some()
            || self.memory_gib.is_some();
        let named = self.program.as_ref().is_none_or(|names| !names.as_slice().is_empty());
        let wanted =
            "needs takes `path` with `otherwise`, `program` with `package`, `cpus` or `memory_gib`";
        (!pairs || !any || !named).then(|| wanted.to_owned())
    }

    /// Finds the program that it names, which is the tool that the arm will run.
    fn find_tool(&self) -> Option<PathBuf> {
        self.program.as_ref()?.as_slice().iter().find_map(|name| find_in_path(name, ALSO_IN))
    }

    fn missing_program(&self) -> Option<MissingProgram> {
        let (names, package) = (self.program.as_ref()?.as_slice(), self.package.as_ref()?);
        if names.iter().any(|name| find_in_path(name, ALSO_IN).is_some()) {
            return None;
        }
        Some(MissingProgram { program: names.first()?.clone(), package: package.clone() })
    }
}

impl ProgramNames {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::Single(name) => std::slice::from_ref(name),
            Self::Any(names) => names,
        }
    }
}

/// Counts the CPUs that this process may use: affinity and cgroup limits count.
fn usable_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the GiB of memory that can be had without swapping; `None` if the kernel does not
/// tell.
fn read_available_gib() -> Option<f64> {
    let meminfo = FileTree::system().read_text("/proc/meminfo")?;
    let kib: f64 =
        field_value(&meminfo, "MemAvailable")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::BenchError,
        suite::{Suite, tests::SMALL},
    };

    fn parse_with_needs(needs: &str) -> Result<Suite, BenchError> {
        let text = SMALL.replacen("name = \"b\"", &format!("name = \"b\"\nneeds = {needs}"), 1);
        Suite::parse("small", &text)
    }

    fn unmet_reason(needs: &str) -> Option<String> {
        parse_with_needs(needs).unwrap().arm("b").unwrap().unavailable_reason()
    }

    #[test]
    fn a_missing_program_is_named_with_the_package_that_holds_it() {
        let needs = r#"{ program = ["no-such-program", "nor-this"], package = "some-package" }"#;
        let reason = unmet_reason(needs).unwrap();
        assert!(reason.contains("no-such-program") && reason.contains("some-package"), "{reason}");
        let suite = parse_with_needs(needs).unwrap();
        let wanted = MissingProgram {
            program: "no-such-program".to_owned(),
            package: "some-package".to_owned(),
        };
        assert_eq!(suite.missing_programs(), [wanted]);
        assert_eq!(
            unmet_reason(r#"{ program = ["no-such-program", "sh"], package = "dash" }"#),
            None
        );
    }

    #[test]
    fn all_requirements_of_a_list_must_be_met_and_each_unmet_one_is_named() {
        let needs = r#"[
            { program = "sh", package = "dash" },
            { program = "no-such-program", package = "some-package" },
            { path = "/no/such", otherwise = "no such path" },
        ]"#;
        let reason = unmet_reason(needs).unwrap();
        assert!(reason.contains("some-package") && reason.contains("no such path"), "{reason}");
        assert_eq!(parse_with_needs(needs).unwrap().missing_programs().len(), 1);
        assert_eq!(unmet_reason("[{ cpus = 1 }, { memory_gib = 0 }]"), None);
        let error = parse_with_needs("[{ cpus = 1 }, { path = \"/\" }]").unwrap_err();
        assert!(matches!(error, BenchError::SuiteMeaning { .. }), "{error}");
    }

    #[test]
    fn cpus_memory_and_paths_are_counted_and_looked_for() {
        assert_eq!(unmet_reason("{ cpus = 1 }"), None);
        assert!(unmet_reason("{ cpus = 1000000 }").unwrap().contains("1000000"));
        assert_eq!(unmet_reason("{ memory_gib = 0 }"), None);
        assert!(unmet_reason("{ memory_gib = 1000000 }").unwrap().contains("1000000 GiB"));
        assert!(
            parse_with_needs("{ memory_gib = 7 }")
                .unwrap()
                .describe_memory_needs()
                .concat()
                .contains("needs 7 GiB")
        );
        assert_eq!(unmet_reason(r#"{ path = "/", otherwise = "no root" }"#), None);
        assert_eq!(unmet_reason(r#"{ path = "/no/such", otherwise = "why" }"#).unwrap(), "why");
    }

    #[test]
    fn needs_that_say_half_are_an_error() {
        for needs in [
            r#"{ path = "/" }"#,
            r#"{ program = "sh" }"#,
            r#"{ program = [], package = "dash" }"#,
            r#"{ package = "dash" }"#,
            "{ }",
        ] {
            let error = parse_with_needs(needs).unwrap_err();
            assert!(matches!(error, BenchError::SuiteMeaning { .. }), "{needs}: {error}");
        }
    }
}
