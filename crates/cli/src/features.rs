//! The Cargo features of this build, and the answers where one was left out.

use std::{fmt::Write as _, sync::LazyLock};

/// A Cargo feature and whether this build has it.
macro_rules! features {
    ($($name:literal),*) => { &[$(($name, cfg!(feature = $name))),*] };
}

/// Every feature of this program; `crates/cli/Cargo.toml` describes them.
const FEATURES: &[(&str, bool)] = features![
    "bench",
    "circuits",
    "colour",
    "databases",
    "native",
    "prove",
    "report-003",
    "serve",
    "services",
    "simulate"
];

/// Whether this is `confide-operator`, which can neither forge evidence nor measure.
const IS_OPERATORS: bool = cfg!(feature = "operator");

/// The name of this build.
const BUILD: &str = match (IS_OPERATORS, cfg!(feature = "services")) {
    (true, _) => "operator",
    (false, true) => "developer",
    (false, false) => "caller",
};

/// The text that `confide --version` prints after the program's name.
pub(crate) fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let list = |wanted: bool| {
            let names = FEATURES.iter().filter(|(_, is_built)| *is_built == wanted);
            names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        let mut text = format!("{}\nbuild: {BUILD}", env!("CARGO_PKG_VERSION"));
        for (title, names) in [("built in", list(true)), ("left out", list(false))] {
            if !names.is_empty() {
                let _ = write!(text, "\n{title}: {names}");
            }
        }
        text
    });
    &TEXT
}

/// The hint for an attested server without an attester.
pub(crate) const NO_ATTESTER_HINT: &str = if cfg!(feature = "simulate") {
    "on a machine with a device give --attester device; else make a simulated one with `confide \
     attest --simulate tdx --out DIR` and give --simulate DIR"
} else {
    "give --attester device; `confide attest --detect` says whether this machine has one"
};

#[cfg(not(feature = "simulate"))]
mod no_simulator {
    use std::{
        ffi::OsString,
        path::{Path, PathBuf},
        sync::Arc,
    };

    use confide_evidence::{Attest, ReportData};

    use crate::error::CliError;

    /// The refusal of `--simulate`.
    pub(crate) fn missing_simulator_error() -> CliError {
        CliError::new("--simulate: this build of confide has no simulated attester").with_hint(
            if super::IS_OPERATORS {
                "it is the operator's build, which cannot forge evidence: use --attester device, \
                 or the developer's build"
            } else {
                "it was built without the feature `simulate`; `confide --version` lists what is \
                 in this one"
            },
        )
    }

    /// The argument of `confide attest --simulate`, which this build only refuses.
    #[derive(clap::Args)]
    pub(crate) struct SimulationArgs {
        /// Make simulated evidence: not in this build
        #[arg(long, value_name = "TEE", hide = true)]
        simulate: Option<OsString>,
    }

    impl SimulationArgs {
        /// Whether `--simulate` was given.
        pub(crate) fn is_given(&self) -> bool {
            self.simulate.is_some()
        }

        /// Refuses to simulate evidence.
        pub(crate) fn write_simulated_attester(
            &self,
            _: Option<ReportData>,
            _: &Path,
        ) -> Result<(), CliError> {
            Err(missing_simulator_error())
        }
    }

    /// Refuses to load a simulated attester.
    pub(crate) fn load_simulated(_: &PathBuf) -> Result<Arc<dyn Attest>, CliError> {
        Err(missing_simulator_error())
    }
}
#[cfg(not(feature = "simulate"))]
pub(crate) use no_simulator::{SimulationArgs, load_simulated, missing_simulator_error};

/// Stands in for a command that this build leaves out: it accepts any arguments and says so.
macro_rules! absent_command {
    ($feature:literal, $module:ident, $command:literal) => {
        absent_command!($feature, $module, $command, not(feature = $feature));
    };
    ($feature:literal, $module:ident, $command:literal, $absent:meta) => {
        #[cfg($absent)]
        pub(crate) mod $module {
            use std::{ffi::OsString, process::ExitCode};

            use crate::error::CliError;

            /// Arguments, none of which is read.
            #[derive(clap::Args)]
            #[command(disable_help_flag = true)]
            pub(crate) struct Args {
                #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
                _arguments: Vec<OsString>,
            }

            /// Reports that the command is missing, and how to get it.
            pub(crate) fn run(_: Args) -> Result<ExitCode, CliError> {
                let text = concat!("this build of confide has no `confide ", $command, "`");
                Err(CliError::new(text).with_hint(concat!(
                    "it was built without the feature `",
                    $feature,
                    "`: `cargo build --release -p confide-cli` builds the developer's confide, which \
                     has it, on Linux; `confide --version` lists what is in this one"
                )))
            }
        }
    };
}

absent_command!("bench", bench, "bench");
absent_command!("native", model, "model");
absent_command!(
    "native` or `report-003",
    split,
    "split",
    not(all(feature = "native", feature = "report-003"))
);
absent_command!(
    "native",
    train,
    "adapter train",
    all(feature = "services", not(feature = "native"))
);
absent_command!("prove", proof, "verify proof");
absent_command!("prove", prove, "prove");
absent_command!("serve", serve, "serve");
absent_command!("services", adapter, "adapter");
absent_command!("services", attestation_service, "verify serve");
absent_command!("services", collateral_service, "collateral serve");
absent_command!("services", gateway, "gateway");
absent_command!("services", notary_service, "notary serve");
absent_command!("services", tunnel, "tunnel");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_every_feature_once() {
        let text = long_version();
        for (name, is_built) in FEATURES {
            let title = if *is_built { "built in: " } else { "left out: " };
            let line = text.lines().find_map(|line| line.strip_prefix(title)).unwrap_or_default();
            assert!(line.split(", ").any(|word| word == *name), "{name} in {text}");
        }
    }

    #[test]
    fn every_feature_of_the_manifest_is_listed() {
        let manifest: toml::Table = include_str!("../Cargo.toml").parse().expect("the manifest");
        let declared = manifest["features"].as_table().expect("features").keys();
        let declared: Vec<&str> = declared
            .map(String::as_str)
            .filter(|name| !["default", "operator"].contains(name))
            .collect();
        let listed: Vec<&str> = FEATURES.iter().map(|(name, _)| *name).collect();
        assert_eq!(declared, listed);
    }
}
