//! A comparison for people: a table at a terminal, the same in Markdown, and JSON.

use std::fmt::Write;

use super::{CONFOUNDED, ComparedRow, Comparison, Outcome, Spread, scope::Place};
use crate::{
    format::{digits, ratio_places, value},
    text_table::TextTable,
    validity::Validity,
};

const HEAD: [&str; 5] = ["layer", "A", "B", "cost of B over A", "n"];

impl Comparison {
    /// A table and what has to be known to read it; ends in a newline.
    pub fn text(&self) -> String {
        let mut out = self.sides();
        if self.refused.is_empty() {
            out.push('\n');
            out.push_str(&self.text_table(|cell| cell).columns(&[]));
        }
        out + &self.notes("")
    }

    /// The same in Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("```\n{}```\n\n", self.sides());
        if self.refused.is_empty() {
            let table = self.text_table(|cell| cell.replace('|', "\\|"));
            out.push_str(&table.markdown(&[1, 2]));
        }
        out + &self.notes("- ")
    }

    /// Everything, for programs.
    ///
    /// # Errors
    /// serde_json's, where a field cannot be JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(crate) fn sides(&self) -> String {
        let mut out = String::new();
        for (side, places) in [("A", &self.a), ("B", &self.b)] {
            for place in places {
                let _ = writeln!(out, "{side}  {}", describe_place(place));
            }
        }
        let calibration = |places: &[Place]| {
            let known: Vec<f64> = places.iter().filter_map(|place| place.calibration_us).collect();
            confide_estimate::mean(&known)
        };
        if let (Some(a), Some(b)) = (calibration(&self.a), calibration(&self.b)) {
            let _ = writeln!(
                out,
                "calibration loop: {} us on A, {} us on B, x{:.3}: arithmetic alone, no memory and \
                 no device",
                digits(a),
                digits(b),
                b / a
            );
        }
        out
    }

    /// The rows under their head, each cell as `escape` writes it.
    fn text_table(&self, escape: impl Fn(String) -> String) -> TextTable {
        let mut table = TextTable::new(&HEAD);
        self.rows.iter().for_each(|row| table.push(line(row).map(&escape)));
        table
    }

    pub(crate) fn lines(&self) -> Vec<[String; 5]> {
        let mut lines = vec![HEAD.map(str::to_owned)];
        lines.extend(self.rows.iter().map(line));
        lines
    }

    pub(crate) fn notes(&self, bullet: &str) -> String {
        let mut out = String::from("\n");
        for refusal in &self.refused {
            let _ = writeln!(out, "{bullet}not compared: {refusal}");
        }
        for row in &self.rows {
            let mut say = |text: String| {
                let _ = writeln!(out, "{bullet}{}: {text}", row.label);
            };
            match &row.result {
                Outcome::Refused { reasons } => {
                    for refusal in reasons {
                        say(format!("not compared: {refusal}"));
                    }
                }
                Outcome::Columns { reason } => say(format!("no ratio: {reason}")),
                _ => {}
            }
            row.says.iter().cloned().for_each(&mut say);
            if let Some(floor) = &row.to_floor {
                say(format!(
                    "x{:.3} after each is divided by its own floor ({}: {} of it on A, {} on B)",
                    floor.ratio,
                    floor.name,
                    digits(floor.a),
                    digits(floor.b)
                ));
            }
            for (side, twins) in [("A", &row.a.twins), ("B", &row.b.twins)] {
                let shown: Vec<String> = twins.iter().map(|[v, l, h]| ratio(*v, *l, *h)).collect();
                if !shown.is_empty() && !matches!(row.result, Outcome::Refused { .. }) {
                    say(format!("A/A on {side} {}", shown.join(", ")));
                }
            }
        }
        if self.rows.iter().any(|row| matches!(row.result, Outcome::Confounded { .. })) {
            let _ = writeln!(
                out,
                "{bullet}{CONFOUNDED}: one machine or boot on a side. The difference is theirs, with \
                 everything that differs between them, not the treatment's; it has no interval. \
                 Give several records a side (--a, --b), of several boots or machines"
            );
        }
        if self.rows.iter().any(|row| matches!(row.result, Outcome::Clustered { .. })) {
            let _ = writeln!(
                out,
                "{bullet}intervals are over boots or machines, however many blocks each ran; boots \
                 of one machine on a side say nothing about other machines"
            );
        }
        if self.refused.is_empty() && !self.differs.is_empty() {
            let _ = writeln!(
                out,
                "{bullet}what the first records tell differently, the treatment among it: {}",
                self.differs.join("; ")
            );
        }
        out
    }
}

fn describe_place(place: &Place) -> String {
    let aa = match &place.validity {
        Validity::Valid { judged, failed } => {
            format!("A/A passed, {} of {judged}", judged - failed)
        }
        Validity::Invalid { .. } => "A/A FAILED".into(),
        Validity::NotJudged { .. } => "A/A not judged".into(),
    };
    format!(
        "{} ({}), {} with {} CPUs, kernel {}, {aa}",
        place.record, place.suite, place.cpu_model, place.cpus, place.kernel
    )
}

fn line(row: &ComparedRow) -> [String; 5] {
    let figure = |side: &super::Side| {
        side.value.map_or_else(|| "–".into(), |number| value(&row.metric, number))
    };
    let counts = |side: &super::Side| match side.clusters {
        1 => format!("{}", side.blocks),
        clusters => format!("{} in {clusters}", side.blocks),
    };
    let cost = match &row.result {
        Outcome::Refused { reasons } => {
            let first = reasons.first().map(ToString::to_string).unwrap_or_default();
            format!("not compared ({})", first.split(':').next().unwrap_or_default())
        }
        Outcome::Columns { .. } => "no ratio (different-hardware)".into(),
        Outcome::Confounded { ratio, difference } => {
            let sign = if *difference < 0.0 { "-" } else { "+" };
            let difference = format!("{sign}{}", value(&row.metric, difference.abs()));
            let number = match ratio {
                Some(ratio) => format!("x{ratio:.3} ({difference})"),
                None => difference,
            };
            format!("{number}, {CONFOUNDED}, no interval")
        }
        Outcome::Clustered { ratio: Some(spread), .. } => clustered(spread),
        Outcome::Clustered { ratio: None, difference } => format!(
            "{} [{}, {}], {} and {} clusters",
            value(&row.metric, difference.value),
            value(&row.metric, difference.low),
            value(&row.metric, difference.high),
            difference.clusters[0],
            difference.clusters[1]
        ),
    };
    let n = format!("{} and {}", counts(&row.a), counts(&row.b));
    [row.label.clone(), figure(&row.a), figure(&row.b), cost, n]
}

fn clustered(spread: &Spread) -> String {
    let [x, y] = spread.clusters;
    let few = if spread.few { ", too few to tell them apart" } else { "" };
    format!("{}, {x} and {y} clusters{few}", ratio(spread.value, spread.low, spread.high))
}

fn ratio(value: f64, low: f64, high: f64) -> String {
    let places = ratio_places(low, high);
    format!("x{value:.places$} [{low:.places$}, {high:.places$}]")
}
