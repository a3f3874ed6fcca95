//! Two machines on one page: what `confide bench compare` came to. No script: there is nothing to
//! filter.

use std::fmt::Write;

use super::html::{escape, scroll};
use crate::compare::{ComparedRow, Comparison, Outcome};

impl Comparison {
    /// One page that works offline.
    pub fn html(&self) -> String {
        let title = "Two machines, by their records";
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
             <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
             <p>Arms of one run met in the same blocks; these never did. With one record on a side \
             nothing tells the treatment from the machine: the figure is <i>confounded</i> and has \
             no interval.</p>\n<pre>{}</pre>\n{}{}</main>\n</body>\n</html>\n",
            include_str!("style.css"),
            escape(self.sides().trim_end()),
            self.table(),
            self.describe(),
        )
    }

    fn table(&self) -> String {
        let lines = self.lines();
        let Some((head, rows)) = lines.split_first() else { return String::new() };
        if rows.is_empty() {
            return "<p><b>Nothing was compared.</b></p>\n".to_owned();
        }
        let axis = Axis::over(&self.rows);
        let mut out = format!(
            "<h2>Costs</h2>\n<p class=\"soft\">Of B over A: right of the line is dearer. A bar is the \
             95 % interval over boots or machines; a square has none.</p>\n{}<table \
             class=\"cards\"><thead><tr>",
            scroll("Costs of B over A"),
        );
        for (index, name) in head.iter().enumerate() {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escape(name));
            if index == 3 {
                out.push_str(
                    "<th scope=\"col\" class=\"wide\"><span class=\"unseen\">drawn</span></th>",
                );
            }
        }
        out.push_str("</tr></thead><tbody>\n");
        for (cells, row) in rows.iter().zip(&self.rows) {
            let [label, a, b, cost, n] = cells.each_ref().map(|cell| escape(cell));
            let _ = writeln!(
                out,
                "<tr><td class=\"layer\">{label}<small class=\"soft\">{}</small></td>\
                 <td data-name=\"A\">{a}</td><td data-name=\"B\">{b}</td>\
                 <td data-name=\"cost\">{cost}</td><td class=\"wide\">{}</td>\
                 <td data-name=\"n\">{n}</td></tr>",
                escape(&[row.model.as_str(), &row.metric].join(", ")),
                axis.track(row),
            );
        }
        out + "</tbody></table></div>\n"
    }

    /// Refusals, A/A ratios, floors: line by line, as at a terminal.
    fn describe(&self) -> String {
        let notes = self.notes("");
        let lines: Vec<String> = notes
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| format!("<li>{}</li>", escape(line)))
            .collect();
        if lines.is_empty() {
            return String::new();
        }
        format!(
            "<h2>What has to be known to read it</h2>\n<ul class=\"absent\">{}</ul>\n",
            lines.concat()
        )
    }
}

/// Logarithmic, 1 within it.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(rows: &[ComparedRow]) -> Self {
        let ends = rows.iter().filter_map(ends).flat_map(|(low, _, high, _)| [low, high]);
        let (mut low, mut high) = (0.95f64, 1.05f64);
        for end in ends.filter(|end| end.is_finite() && *end > 0.0) {
            (low, high) = (low.min(end), high.max(end));
        }
        Self { low: low.ln(), high: high.ln() }
    }

    fn place(&self, ratio: f64) -> f64 {
        let share = (ratio.max(1e-12).ln() - self.low) / (self.high - self.low);
        (share * 100.0).clamp(0.0, 100.0)
    }

    fn track(&self, row: &ComparedRow) -> String {
        let one = format!("<i class=\"one\" style=\"left:{:.2}%\"></i>", self.place(1.0));
        let drawn = ends(row).map_or_else(String::new, |(low, value, high, interval)| {
            let (from, to) = (self.place(low), self.place(high));
            let bar = format!(
                "<i class=\"ci\" style=\"left:{from:.2}%;width:{:.2}%\"></i>",
                (to - from).max(0.0)
            );
            format!(
                "{}<i class=\"dot {}\" style=\"left:{:.2}%\"></i>",
                if interval { bar } else { String::new() },
                if interval { "good" } else { "mute" },
                self.place(value),
            )
        });
        format!("<div class=\"track c-calm\" aria-hidden=\"true\">{one}{drawn}</div>")
    }
}

/// Low, value, high of a ratio, and whether the ends are an interval.
fn ends(row: &ComparedRow) -> Option<(f64, f64, f64, bool)> {
    match &row.result {
        Outcome::Clustered { ratio: Some(spread), .. } => {
            Some((spread.low, spread.value, spread.high, true))
        }
        Outcome::Confounded { ratio: Some(ratio), .. } => Some((*ratio, *ratio, *ratio, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use confide_estimate::Random;

    use crate::{
        compare::{compare, scope::CompareOptions},
        loaded::Loaded,
        selftest::synthetic::{Noise, Shape, blocks, make_loaded},
    };

    fn machines(seeds: std::ops::Range<u64>) -> Vec<Loaded> {
        let arms = [("a", false, 0.0), ("a", true, 0.0), ("b", false, 0.1)];
        let machine = |seed: u64| {
            let slices = blocks(&arms, 12, Noise::Quiet, &mut Random::new(seed));
            make_loaded(&Shape::default(), 1_000 + seed, Vec::new(), slices).unwrap()
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
