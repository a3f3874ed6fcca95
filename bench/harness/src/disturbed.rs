//! Disturbances of slices: labels that say what disturbed one, never a reason to drop it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::quiet::InterferenceReading;

/// A gate of quiet that a slice did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Disturbed")]
pub(crate) struct DetectedDisturbance {
    pub(crate) by: Disturbance,
    /// The value of the slice: a share, or a number of pages.
    pub(crate) value: f64,
    /// The most that was allowed, in the same unit.
    pub(crate) limit: f64,
}

/// The kind of a disturbance.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, Serialize,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Disturbance {
    /// The hypervisor gave CPU time to others.
    Steal,
    /// The calibration loop took longer, or less long, after the slice than before it.
    CalibrationDrift,
    /// A busy thread lost time that it should have had.
    CalibrationLost,
    /// Processes worked that belong neither to the arm, nor to its services, nor to the harness.
    OtherProcesses,
    /// Tasks waited for a CPU while other processes worked.
    PsiCpu,
    /// Tasks waited for memory.
    PsiMemory,
    /// Pages went to swap or came from there.
    Swap,
}

impl Disturbance {
    /// Returns the name that a table shows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Steal => "stolen CPU time",
            Self::CalibrationDrift => "calibration drift",
            Self::CalibrationLost => "time lost in calibration",
            Self::OtherProcesses => "other processes",
            Self::PsiCpu => "waiting for a CPU",
            Self::PsiMemory => "waiting for memory",
            Self::Swap => "swapping",
        }
    }
}

/// The share of disturbed runs from which on the figures of a record are indicative only.
pub(crate) const DISTURBED_WARNS: f64 = 0.2;
/// The share of disturbed runs beyond which a check gives no verdict.
pub(crate) const DISTURBED_MOST: f64 = 0.5;

/// The most CPU time that may be stolen, as a share; pairing within a block takes care of less.
const STEAL_MAX: f64 = 0.01;
/// The most that the calibration loop may drift: on a machine that is left alone, clock rates and
/// caches change it by less.
pub(crate) const DRIFT_MAX: f64 = 0.05;
const LOST_MAX: f64 = 0.1;
/// The most that other processes may use, as a share of all CPUs' time; kernel threads and daemons
/// of an idle machine use less.
const OTHERS_MAX: f64 = 0.05;
/// The most waiting for a CPU, as a share of the slice. It counts only when other processes work
/// too, because an arm and its services on few CPUs wait for each other.
const PSI_CPU_MAX: f64 = 0.1;
const PSI_CPU_WITH_OTHERS: f64 = 0.02;
const PSI_MEMORY_MAX: f64 = 0.01;
/// The most pages that may be swapped: 1 MiB in pages of 4 KiB.
const SWAPPED_PAGES_MAX: f64 = 256.0;

/// Finds the gates that a slice did not pass. What the machine does not tell passes. PSI of disks
/// is shown but is not a gate, because a bench of disks causes it itself.
pub(crate) fn find_disturbances(quiet: &InterferenceReading) -> Vec<DetectedDisturbance> {
    // A slice shorter than the kernel's tick does not tell who else worked. What an arm and its own
    // services make each other wait is then no disturbance, and the calibration sees competitors.
    let others = quiet.others_cpu.is_some_and(|share| share > PSI_CPU_WITH_OTHERS);
    let gates = [
        (Disturbance::Steal, quiet.steal, STEAL_MAX),
        (Disturbance::CalibrationDrift, quiet.calibration_drift(), DRIFT_MAX),
        (Disturbance::CalibrationLost, quiet.calibration_lost, LOST_MAX),
        (Disturbance::OtherProcesses, quiet.others_cpu, OTHERS_MAX),
        (Disturbance::PsiCpu, quiet.psi_cpu.filter(|_| others), PSI_CPU_MAX),
        (Disturbance::PsiMemory, quiet.psi_memory, PSI_MEMORY_MAX),
        (Disturbance::Swap, quiet.swapped_pages.map(|pages| pages as f64), SWAPPED_PAGES_MAX),
    ];
    gates
        .into_iter()
        .filter_map(|(by, value, limit)| {
            let value = value.filter(|value| value.abs() > limit)?;
            Some(DetectedDisturbance { by, value, limit })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds_of(quiet: InterferenceReading) -> Vec<Disturbance> {
        find_disturbances(&quiet).into_iter().map(|disturbed| disturbed.by).collect()
    }

    #[test]
    fn a_quiet_slice_passes_and_so_does_one_of_which_nothing_is_known() {
        assert!(find_disturbances(&InterferenceReading::default()).is_empty());
        let quiet = InterferenceReading {
            steal: Some(0.005),
            calibration_us: 200.0,
            calibration_after_us: Some(205.0),
            others_cpu: Some(0.01),
            psi_cpu: Some(0.9),
            ..InterferenceReading::default()
        };
        assert!(find_disturbances(&quiet).is_empty());
    }

    #[test]
    fn each_gate_marks_with_its_reason() {
        let quiet = |change: fn(&mut InterferenceReading)| {
            let mut quiet =
                InterferenceReading { calibration_us: 200.0, ..InterferenceReading::default() };
            change(&mut quiet);
            kinds_of(quiet)
        };
        assert_eq!(quiet(|q| q.steal = Some(0.02)), [Disturbance::Steal]);
        // Faster after the slice than before it is a drift too.
        for after in [180.0, 220.0] {
            let slice = InterferenceReading {
                calibration_us: 200.0,
                calibration_after_us: Some(after),
                ..InterferenceReading::default()
            };
            assert_eq!(kinds_of(slice), [Disturbance::CalibrationDrift]);
        }
        assert_eq!(quiet(|q| q.calibration_lost = Some(0.2)), [Disturbance::CalibrationLost]);
        assert_eq!(quiet(|q| q.others_cpu = Some(0.3)), [Disturbance::OtherProcesses]);
        assert_eq!(quiet(|q| q.psi_memory = Some(0.3)), [Disturbance::PsiMemory]);
        assert_eq!(quiet(|q| q.swapped_pages = Some(1000)), [Disturbance::Swap]);
    }

    #[test]
    fn waiting_for_a_cpu_counts_only_where_others_are_known_to_work() {
        let psi = |others_cpu| InterferenceReading {
            psi_cpu: Some(0.5),
            others_cpu,
            ..InterferenceReading::default()
        };
        assert!(kinds_of(psi(None)).is_empty());
        assert_eq!(kinds_of(psi(Some(0.03))), [Disturbance::PsiCpu]);
        assert!(kinds_of(psi(Some(0.0))).is_empty());
    }
}
