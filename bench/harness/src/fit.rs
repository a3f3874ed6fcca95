//! How cost grows with work: a fixed part and a part for each unit, over the sizes of a grid.
//!
//! Least squares of the relative errors, so that the smallest size counts as much as the largest.
//! Two sizes cannot show whether the cost is a straight line, so the report then says that there
//! were two; from three sizes on it prints the largest error.

use serde_json::Value;

use crate::{
    format::{format_number, format_value},
    plan::{Effort, cases},
    record::Record,
    rows::row::PooledFigure,
    suite::bench::{Bench, CostPerWork},
};

impl CostPerWork {
    /// Returns the keys of the cases that the line goes through.
    fn case_keys(&self, bench: &Bench, effort: Effort) -> Vec<String> {
        let wanted = |(name, value): (&String, &Value)| {
            self.only.get(name).is_none_or(|values| values.contains(value))
        };
        let all = cases(bench, effort).into_iter();
        all.filter(|case| case.params.iter().all(wanted)).map(|case| case.key).collect()
    }
}

/// A fitted line in words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FitDescription {
    /// The bench and the arm.
    pub(crate) name: String,
    /// The metric that costs.
    pub(crate) cost: String,
    /// The line in words, or the reason why there is none.
    pub(crate) text: String,
    pub(crate) simulated: bool,
}

/// Computes every fit that the record's suite asks for, in its order.
pub(crate) fn fit_cost_lines(record: &Record) -> Vec<FitDescription> {
    let Ok(suite) = record.parse_suite() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for bench in &suite.benches {
        for fit in &bench.fits {
            for arm in fit.arms.as_ref().unwrap_or(&bench.arms) {
                let label = suite.arm(arm).map_or(arm.as_str(), |arm| arm.label.as_str());
                let works = fit.label.iter().map(|label| format!(", {label}")).collect::<String>();
                let name = format!("{}{works}, {label}", bench.name);
                all.extend(fit_arm_costs(record, bench, fit, arm, name));
            }
        }
    }
    all
}

/// Fits one arm; `None` if it was not measured at any of its points.
fn fit_arm_costs(
    record: &Record,
    bench: &Bench,
    fit: &CostPerWork,
    arm: &str,
    name: String,
) -> Option<FitDescription> {
    let through = fit.case_keys(bench, record.effort);
    let of = |metric: &str| -> Vec<&PooledFigure> {
        let mine = |figure: &&PooledFigure| {
            figure.bench == bench.name
                && figure.arm == arm
                && !figure.twin
                && figure.metric == metric
                && through.contains(&figure.case)
        };
        record.figures.iter().filter(mine).collect()
    };
    let (costs, works) = (of(&fit.cost), of(&fit.work));
    let points: Vec<(f64, f64)> = costs
        .iter()
        .filter_map(|cost| {
            let work = works.iter().find(|work| work.case == cost.case)?;
            (cost.mean > 0.0).then_some((work.mean, cost.mean))
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    let simulated = costs.iter().any(|figure| figure.simulated);
    let text = match fit_line(&points) {
        None => format!("no line: wanted two sizes or more, got {}", points.len()),
        Some(line) => describe_line(&line, fit, points.len()),
    };
    Some(FitDescription { name, cost: fit.cost.clone(), text, simulated })
}

fn describe_line(line: &FittedLine, fit: &CostPerWork, sizes: usize) -> String {
    let (fixed, each) = (format_value(&fit.cost, line.fixed), format_value(&fit.cost, line.each));
    let off = match sizes {
        2 => "from two sizes, which cannot show whether the cost is linear".to_owned(),
        _ => format!("{sizes} sizes, off by at most {} %", format_number(line.worst * 100.0)),
    };
    format!("{fixed} and {each} for each {} ({off})", fit.unit)
}

/// The line `fixed + each * x`, with the largest relative error at the points.
#[derive(Clone, Copy, Debug)]
struct FittedLine {
    fixed: f64,
    each: f64,
    worst: f64,
}

fn fit_line(points: &[(f64, f64)]) -> Option<FittedLine> {
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y) / (y * y)).sum::<f64>();
    let (w, wx, wy) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|_, y| y));
    let (wxx, wxy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
    let spread = w * wxx - wx * wx;
    // All points are of one size: no line goes through them, or every one does.
    if points.len() < 2 || spread <= f64::EPSILON * w * wxx {
        return None;
    }
    let each = (w * wxy - wx * wy) / spread;
    let fixed = (wy - each * wx) / w;
    let off = |&(x, y): &(f64, f64)| ((fixed + each * x) / y - 1.0).abs();
    let worst = points.iter().map(off).fold(0.0, f64::max);
    Some(FittedLine { fixed, each, worst })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::suite::Suite;

    #[test]
    fn points_on_a_line_give_it_back() {
        let points: Vec<(f64, f64)> =
            [308.0, 50_000.0, 423_373.0, 3e6].map(|x| (x, 3.9 + 35e-6 * x)).into();
        let line = fit_line(&points).unwrap();
        assert!((line.fixed - 3.9).abs() < 1e-6 && (line.each - 35e-6).abs() < 1e-12, "{line:?}");
        assert!(line.worst < 1e-9);
    }

    #[test]
    fn the_smallest_size_counts_as_much_as_the_largest() {
        // 1 % off at the large end must not move the fixed part by more than a little.
        let line = fit_line(&[(0.0, 4.0), (1e5, 7.5), (1e7, 354.0 * 1.01)]).unwrap();
        assert!((line.fixed - 4.0).abs() < 0.1, "{line:?}");
    }

    #[test]
    fn one_size_has_no_line() {
        assert!(fit_line(&[(5.0, 1.0)]).is_none());
        assert!(fit_line(&[(5.0, 1.0), (5.0, 2.0)]).is_none());
    }

    #[test]
    fn a_line_goes_through_the_points_it_names_only() {
        let suite = crate::find_suite("zk").unwrap();
        let suite = Suite::parse("zk", &suite.text).unwrap();
        let bench = suite.benches.iter().find(|bench| bench.name == "stages").unwrap();
        let mut fit = bench.fits.iter().find(|fit| !fit.only.is_empty()).unwrap().clone();
        let wanted = fit.only["work"].len();
        assert_eq!(fit.case_keys(bench, Effort::Full).len(), wanted);
        assert!(wanted < bench.grid["work"].len());
        fit.only.insert("work".to_owned(), vec!["no-such-work".into()]);
        assert!(fit.check(bench).is_err());
    }

    #[test]
    fn the_sentence_names_units_and_how_far_off_it_is() {
        let fit = CostPerWork {
            cost: "wall_s".to_owned(),
            work: "executed_cycles".to_owned(),
            unit: "cycle".to_owned(),
            arms: None,
            only: BTreeMap::new(),
            label: None,
        };
        let line = FittedLine { fixed: 3.9, each: 35.4e-6, worst: 0.061 };
        let text = describe_line(&line, &fit, 4);
        assert!(text.contains("35.4 µs for each cycle"), "{text}");
        assert!(text.contains("4 sizes") && text.contains("6.1 %"), "{text}");
        assert!(describe_line(&line, &fit, 2).contains("two sizes"));
    }
}
