//! A comparison for people: at a terminal, in Markdown, as a page; and JSON for programs.

use super::{
    CONFOUNDED, ClusteredEstimate, ComparedFigure, ComparedRow, Comparison, ComparisonResult,
    scope::FigureOrigin,
};
use crate::{
    disturbed::DRIFT_MAX,
    document::{
        Block, Cell, CellContent, Column, ListItem, Section, Table, html, markdown,
        text::{self, Terminal},
    },
    format::{format_number, format_value},
    page::{
        judgement::short_commit,
        plot::{Axis, RatioTrack},
    },
    rows::text::format_ratio,
    validity::Validity,
};

impl Comparison {
    /// Writes a table and what has to be known to read it; ends in a newline.
    pub fn text(&self) -> String {
        let sections = self.sections();
        let unnamed = sections.map(|section| Section { heading: String::new(), ..section });
        text::render_sections(&unnamed, Terminal::UNLIMITED)
    }

    /// Writes the same in Markdown.
    pub fn markdown(&self) -> String {
        markdown::render_sections(&self.sections(), "##")
    }

    /// Writes a page that works offline. It has no script, because there is nothing to filter.
    pub fn html(&self) -> String {
        let title = "Two machines, by their records";
        let introduction = "<p>Arms of one run are measured in the same blocks; these records were not. With one \
                            record on a side, the effect of the treatment cannot be separated from that \
                            of the machine: the figure is <i>confounded</i> and has no interval.</p>";
        let sections = html::render_sections(&self.sections());
        let body = format!("<main>\n<h1>{title}</h1>\n{introduction}\n{sections}</main>\n");
        html::render_page(title, "", &body)
    }

    /// Writes the whole comparison as indented JSON, ending in a newline.
    ///
    /// # Errors
    /// When a field cannot be written as JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    fn sections(&self) -> [Section; 3] {
        let costs = match self.rows.as_slice() {
            [] => vec![Block::Paragraph("Nothing was compared.".to_owned())],
            rows => vec![Block::Table(cost_table(rows))],
        };
        let notes = self.list_notes();
        let items =
            notes.into_iter().map(|text| ListItem { text, ..ListItem::default() }).collect();
        [
            Section::new("The records", vec![Block::Code(self.describe_sides().join("\n"))]),
            Section {
                about: "Cost of B divided by that of A: marks right of the line cost more. A bar is the 95 % \
                        interval over boots or machines; a square has no interval."
                    .to_owned(),
                ..Section::new("Costs", costs)
            },
            Section::new("How to read it", vec![Block::List(items)]),
        ]
    }

    /// Lists the records of both sides, then how fast their processors are.
    fn describe_sides(&self) -> Vec<String> {
        let sides = [("A", &self.a), ("B", &self.b)];
        let places = sides.iter().flat_map(|(side, places)| {
            places.iter().map(move |place| format!("{side}  {}", format_origin(place)))
        });
        let mut lines: Vec<String> = places.collect();
        let calibration = |places: &[FigureOrigin]| {
            let known: Vec<f64> = places.iter().filter_map(|place| place.calibration_us).collect();
            confide_estimate::mean(&known)
        };
        if let (Some(a), Some(b)) = (calibration(&self.a), calibration(&self.b)) {
            lines.push(format!(
                "calibration loop: {} µs on A, {} µs on B, x{:.3}: arithmetic alone, no memory and no \
                 device",
                format_number(a),
                format_number(b),
                b / a
            ));
            lines.extend(slower_side_warning(a, b));
        }
        lines
    }

    /// Lists refusals, A/A ratios and floors, one line each.
    fn list_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.says.clone();
        notes.extend(self.refused.iter().map(|refusal| format!("not compared: {refusal}")));
        notes.extend(self.rows.iter().flat_map(row_notes));
        if self.rows.iter().any(|row| matches!(row.result, ComparisonResult::Confounded { .. })) {
            notes.push(format!(
                "{CONFOUNDED}: one machine or boot on a side. The difference includes everything that \
                 differs between the two, not only the treatment, and has no interval. Give several \
                 records for each side (--a, --b), from several boots or machines"
            ));
        }
        if self.rows.iter().any(|row| matches!(row.result, ComparisonResult::Clustered { .. })) {
            notes.push(
                "intervals are over boots or machines, however many blocks each ran; boots of one machine \
                 on a side say nothing about other machines"
                    .to_owned(),
            );
        }
        for (side, place) in self.a.iter().map(|p| ("A", p)).chain(self.b.iter().map(|p| ("B", p)))
        {
            notes.extend(
                place.remarks.iter().map(|remark| format!("{side}, {}: {remark}", place.record)),
            );
        }
        if self.refused.is_empty() && !self.differs.is_empty() {
            notes.push(format!(
                "facts in which the first records differ, including the treatment: {}",
                self.differs.join("; ")
            ));
        }
        notes
    }
}

/// Flags the side whose processor was slower, or busy, by more than a quiet machine's drift.
fn slower_side_warning(a: f64, b: f64) -> Option<String> {
    let (side, times) = if b > a { ("B", b / a) } else { ("A", a / b) };
    (times > 1.0 + DRIFT_MAX).then(|| {
        format!(
            "WARNING: {side}'s processor was x{times:.2} slower at a fixed piece of arithmetic: it \
             was busy, throttled or is another model, and this affects every cost below"
        )
    })
}

fn row_notes(row: &ComparedRow) -> Vec<String> {
    let mut notes = match &row.result {
        ComparisonResult::Refused { reasons } => {
            reasons.iter().map(|refusal| format!("not compared: {refusal}")).collect()
        }
        ComparisonResult::Columns { reason } => vec![format!("no ratio: {reason}")],
        _ => Vec::new(),
    };
    notes.extend(row.says.iter().cloned());
    if let Some(floor) = &row.to_floor {
        notes.push(format!(
            "x{:.3} after each figure is divided by its own floor ({}: {} times the floor on A, {} on B)",
            floor.ratio,
            floor.name,
            format_number(floor.a),
            format_number(floor.b)
        ));
    }
    for (side, twins) in [("A", &row.a.twins), ("B", &row.b.twins)] {
        let twins: Vec<String> = twins.iter().map(|[v, l, h]| format_ratio(*v, *l, *h)).collect();
        if !twins.is_empty() && !matches!(row.result, ComparisonResult::Refused { .. }) {
            notes.push(format!("A/A on {side} {}", twins.join(", ")));
        }
    }
    notes.into_iter().map(|note| format!("{}: {note}", row.label)).collect()
}

fn format_origin(place: &FigureOrigin) -> String {
    let aa = match &place.validity {
        Validity::Valid { judged, failed } => {
            format!("A/A passed, {} of {judged}", judged - failed)
        }
        Validity::Invalid { .. } => "A/A FAILED".into(),
        Validity::NotJudged { .. } => "A/A not judged".into(),
    };
    format!(
        "{} ({}), commit {}, {}, {} CPUs, kernel {}, {aa}",
        place.record,
        place.suite,
        short_commit(&place.commit),
        place.processor,
        place.cpus,
        place.kernel
    )
}

fn cost_table(rows: &[ComparedRow]) -> Table {
    let columns = vec![
        Column::new_label("layer"),
        Column::new_number("A"),
        Column::new_number("B"),
        Column::new_text("cost of B over A").with_name("cost"),
        Column::new_text("drawn").with_name("").with_class("wide"),
        Column::new_text("n"),
    ];
    let mut table = Table::new("Costs of B over A", columns);
    let (mut low, mut high) = (0.95f64, 1.05f64);
    let ends = rows.iter().filter_map(ratio_interval).flat_map(|(ends, _)| ends);
    for end in ends.filter(|end| end.is_finite() && *end > 0.0) {
        (low, high) = (low.min(end), high.max(end));
    }
    let axis = Axis::from_ratios(low, high, 0.0);
    for row in rows {
        let figure = |side: &ComparedFigure| {
            side.value.map_or_else(|| "–".into(), |number| format_value(&row.metric, number))
        };
        let counts = |side: &ComparedFigure| match side.clusters {
            1 => format!("{}", side.blocks),
            clusters => format!("{} in {clusters}", side.blocks),
        };
        table.push(vec![
            Cell::from(row.label.clone()).with_note(format!("{}, {}", row.model, row.metric)),
            figure(&row.a).into(),
            figure(&row.b).into(),
            describe_cost(row).into(),
            Cell::new(CellContent::Markup, draw_ratio(row, &axis)),
            format!("{} and {}", counts(&row.a), counts(&row.b)).into(),
        ]);
    }
    table
}

fn describe_cost(row: &ComparedRow) -> String {
    match &row.result {
        ComparisonResult::Refused { reasons } => {
            let first = reasons.first().map(ToString::to_string).unwrap_or_default();
            format!("not compared ({})", first.split(':').next().unwrap_or_default())
        }
        ComparisonResult::Columns { .. } => "no ratio (different-hardware)".into(),
        ComparisonResult::Confounded { ratio, difference } => {
            let sign = if *difference < 0.0 { "-" } else { "+" };
            let difference = format!("{sign}{}", format_value(&row.metric, difference.abs()));
            let number = match ratio {
                Some(ratio) => format!("x{ratio:.3} ({difference})"),
                None => difference,
            };
            format!("{number}, {CONFOUNDED}, no interval")
        }
        ComparisonResult::Clustered { ratio: Some(spread), .. } => {
            let ClusteredEstimate { value, low, high, clusters: [a, b], few, .. } = *spread;
            let few = if few { ", too few to tell them apart" } else { "" };
            format!("{}, {a} and {b} clusters{few}", format_ratio(value, low, high))
        }
        ComparisonResult::Clustered { ratio: None, difference } => {
            let ends = [difference.value, difference.low, difference.high];
            let [middle, low, high] = ends.map(|number| format_value(&row.metric, number));
            let [a, b] = difference.clusters;
            format!("{middle} [{low}, {high}], {a} and {b} clusters")
        }
    }
}

/// Returns low, value and high of a ratio, and whether the ends are an interval.
fn ratio_interval(row: &ComparedRow) -> Option<([f64; 3], bool)> {
    match &row.result {
        ComparisonResult::Clustered { ratio: Some(spread), .. } => {
            Some(([spread.low, spread.value, spread.high], true))
        }
        ComparisonResult::Confounded { ratio: Some(ratio), .. } => Some(([*ratio; 3], false)),
        _ => None,
    }
}

fn draw_ratio(row: &ComparedRow, axis: &Axis) -> String {
    let ends = ratio_interval(row);
    let interval = ends.and_then(|([low, _, high], is)| is.then_some([low, high]));
    let mark = if interval.is_some() { "good" } else { "mute" };
    let value = ends.map(|([_, value, _], _)| value);
    RatioTrack { axis, colour: "calm", mark, band: None, hair: None, interval, value }.render()
}

#[cfg(test)]
mod tests {
    use confide_estimate::Random;

    use crate::{
        compare::{compare, scope::CompareOptions},
        loaded::LoadedRecord,
        selftest::synthetic::{Noise, SyntheticSuite, make_loaded_record, make_slices},
    };

    fn machines(seeds: std::ops::Range<u64>) -> Vec<LoadedRecord> {
        let arms = [("a", false, 0.0), ("a", true, 0.0), ("b", false, 0.1)];
        let machine = |seed: u64| {
            let slices = make_slices(&arms, 12, Noise::Quiet, &mut Random::new(seed));
            make_loaded_record(&SyntheticSuite::default(), 1_000 + seed, Vec::new(), slices)
                .unwrap()
        };
        seeds.map(machine).collect()
    }

    #[test]
    fn one_record_a_side_has_no_bar_and_many_have_one() {
        let options = CompareOptions::default();
        let one = compare(&machines(1..2), &machines(2..3), &options).html();
        assert!(one.contains("confounded: machine") && one.contains("dot mute"), "{one}");
        assert!(!one.contains("class=\"ci\"") && !one.contains("<script"));
        let many = compare(&machines(10..16), &machines(20..26), &options).html();
        assert!(many.contains("class=\"ci\"") && many.contains("dot good"));
    }

    #[test]
    fn what_is_refused_is_said_and_not_drawn() {
        let mut other = machines(1..2);
        other[0].record.partial = Some("<b>another".into());
        let page = compare(&machines(2..3), &other, &CompareOptions::default()).html();
        assert!(page.contains("Nothing was compared") && !page.contains("<b>another"), "{page}");
    }
}
