//! The lines that describe a verdict on the evidence of a CPU.

use confide_verifier::{Appraised, Check, Outcome, RootKind, Scope};

use crate::verdict_lines::check_line;

/// The verdict where nothing is known of the program.
pub(super) const PLATFORM_ONLY: &str = "platform only";

/// Describes what the acceptance of evidence covers, or why it does not cover the program.
pub(super) fn describe_scope(appraised: &Appraised) -> &'static str {
    let is_passed = |name| {
        let mut checks = appraised.checks().iter();
        checks.any(|check| check.name == name && check.outcome == Outcome::Passed)
    };
    let (has_measurements, has_report_data) = (is_passed("measurements"), is_passed("report_data"));
    match appraised.scope() {
        Scope::Workload => "platform and program",
        _ if appraised.is_debug() => "the host can change the program at will",
        _ if !has_measurements => "which program runs there was not checked",
        _ if !has_report_data => "whether that program made this evidence for you was not checked",
        _ => "program and configuration were not checked completely",
    }
}

/// Describes a root that is not a vendor's; the text is empty for a vendor's.
pub(super) fn describe_root(appraised: &Appraised) -> &'static str {
    match appraised.root().kind {
        RootKind::Production => "",
        RootKind::Custom => "; the root is not a vendor's",
    }
}

/// Writes one line for each check.
pub(super) fn format_checks(checks: &[Check]) -> String {
    let line = |Check { name, outcome, detail }: &Check| check_line(name, outcome.as_str(), detail);
    checks.iter().map(line).collect()
}
