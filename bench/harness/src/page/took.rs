//! What the runs behind a row took, and whether anything else ran beside them.

use confide_estimate::quantile;

use super::Shown;
use crate::{
    format::value,
    host::{Cost, Quiet},
    rows::Row,
    samples::Slice,
};

/// Of all CPU time, by others than arm, services and harness: of two CPUs a fifth of one.
const OTHERS_CPU: f64 = 0.1;
/// Of all CPU time, by the hypervisor: half of the margin that most rows have.
const STEAL: f64 = 0.01;
/// How much the calibration loop may change from before a run to after it.
const CALIBRATION_DRIFT: f64 = 0.1;

/// The same in words.
pub(super) const DISTURBED_MEANS: &str = "others used over 10 % of all CPU time, the hypervisor \
                                          took over 1 %, or the calibration loop changed by over \
                                          10 % from before the run to after it";

/// Whether something beside the run may have changed it.
pub(super) fn is_disturbed(quiet: &Quiet) -> bool {
    quiet.others_cpu.is_some_and(|share| share > OTHERS_CPU)
        || quiet.steal.is_some_and(|share| share > STEAL)
        || quiet.calibration_drift().is_some_and(|drift| drift.abs() > CALIBRATION_DRIFT)
}

/// Medians over the runs of both arms: CPU, memory, the harness's own share; and how many were
/// disturbed. Nothing for a record that did not count them.
pub(super) fn of_row(shown: &Shown<'_>, row: &Row) -> Vec<String> {
    let of = |arm: &str, twin: bool| -> Vec<&Slice> {
        let mine = |slice: &&Slice| {
            let place = &slice.place;
            place.bench == row.bench
                && place.case == row.case
                && place.arm == arm
                && place.twin == twin
                && !slice.warmup
                && slice.void.is_none()
        };
        shown.slices.iter().filter(mine).collect()
    };
    let (reference, mine) = (of(&row.reference, false), of(&row.arm, row.twin));
    let mut out: Vec<String> = cost(&reference, &mine).into_iter().collect();
    let both = || reference.iter().chain(&mine);
    let disturbed = both().filter(|slice| is_disturbed(&slice.quiet)).count();
    if disturbed > 0 {
        out.push(format!("{disturbed} of {} runs disturbed", both().count()));
    }
    out
}

fn cost(reference: &[&Slice], mine: &[&Slice]) -> Option<String> {
    let median = |slices: &[&Slice], of: fn(&Cost) -> Option<f64>| {
        let values: Vec<f64> =
            slices.iter().filter_map(|slice| of(slice.cost.as_deref()?)).collect();
        quantile(&values, 0.5)
    };
    let pair = |metric: &str, of: fn(&Cost) -> Option<f64>| {
        let (clear, protected) = (median(reference, of)?, median(mine, of)?);
        Some(format!("{} → {}", value(metric, clear), value(metric, protected)))
    };
    let parts = [
        pair("cpu_s", |cost| cost.arm.cpu_s).map(|text| format!("{text} CPU")),
        pair("cpu_s", |cost| cost.services.and_then(|usage| usage.cpu_s))
            .map(|text| format!("{text} CPU of services")),
        pair("peak_bytes", |cost| cost.arm.peak_bytes.map(|bytes| bytes as f64))
            .map(|text| format!("{text} memory at most")),
        pair("cpu_s", |cost| cost.harness.cpu_s).map(|text| format!("{text} CPU of the harness")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("a run of an arm took {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_disturbed_by_others_by_theft_or_by_a_slower_loop() {
        let quiet = Quiet { calibration_us: 100.0, ..Quiet::default() };
        assert!(!is_disturbed(&quiet));
        assert!(is_disturbed(&Quiet { others_cpu: Some(0.2), ..quiet }));
        assert!(is_disturbed(&Quiet { steal: Some(0.02), ..quiet }));
        assert!(is_disturbed(&Quiet { calibration_after_us: Some(150.0), ..quiet }));
        assert!(!is_disturbed(&Quiet { calibration_after_us: Some(101.0), ..quiet }));
    }
}
