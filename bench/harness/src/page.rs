//! The report: one page that works offline, of one record or of many.
//!
//! `layers` and `words` say what the rows mean; `markdown` and `terminal` say the same without
//! markup. Everything of a record is somebody else's text: it reaches the page through
//! [`html::escape`] and nothing else.

mod charts;
mod compared;
mod curves;
mod download;
pub(crate) mod environment;
mod filters;
mod forest;
pub(crate) mod html;
pub(crate) mod judgement;
pub(crate) mod layer;
pub(crate) mod layers;
mod machines;
mod overview;
mod plot;
mod published;
mod stages;
mod tables;
mod took;
pub(crate) mod view;
pub(crate) mod words;

use layers::MissingSuite;
use view::RecordView;

/// The whole page.
pub(crate) fn render(shown: &[RecordView<'_>], absent: &[MissingSuite]) -> String {
    let many = shown.len() != 1;
    let title = match shown {
        [one] => one.record.suite.title.clone(),
        _ => format!("What protection costs here: {} records", shown.len()),
    };
    let attached = download::attach(shown);
    let mut body = format!(
        "<a class=\"skip\" href=\"#overview\">Skip to the answers</a>\n<header>\n{}</header>\n<main>\n",
        judgement::header(shown, &title, &attached),
    );
    body.push_str(&filters::form(shown));
    body.push_str(&overview::section(shown, absent));
    if many {
        body.push_str(&judgement::records(shown, &attached));
    }
    for (index, one) in shown.iter().enumerate() {
        body.push_str(&section(one, index, many, &attached[index]));
    }
    body.push_str("</main>\n");
    body.push_str(&footer());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src '{}'; base-uri 'none'; form-action 'none'\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}<script>{}</script>\n\
         </body>\n</html>\n",
        filters::script_hash(),
        html::escape(&title),
        include_str!("page/style.css"),
        filters::SCRIPT,
    )
}

/// Everything of one record.
fn section(
    shown: &RecordView<'_>,
    index: usize,
    many: bool,
    attached: &download::Attached,
) -> String {
    let record = shown.record;
    let mut out = format!("<section class=\"record group\" id=\"r{index}\">\n");
    if many {
        out.push_str(&judgement::of_one(shown));
    }
    let parts = [
        tables::headline(shown, index),
        tables::growth_section(shown),
        published::answers(record),
        published::quoted(record),
        forest::section(shown, index),
        curves::section(shown, index),
        stages::section(shown, index),
        charts::section(shown, index, many),
        compared::section(record),
        tables::every_comparison(shown, index),
        tables::every_figure(shown),
        environment::section(shown, attached, many),
    ];
    out.extend(parts);
    out + "</section>\n"
}

fn footer() -> String {
    "<footer><p class=\"soft\">Definitions of every number are in bench/MODELS.md under the id that \
     stands beside it, methods in bench/METHODOLOGY.md. This page loads nothing and sends nothing; \
     without its script everything stays readable, only filters and sorting are gone.</p></footer>\n"
        .to_owned()
}

#[cfg(test)]
mod tests;
