//! `report.html`: one file that works offline, drawn here, without a script.

mod charts;
mod compared;
mod environment;
mod forest;
mod html;
mod published;
mod summary;

use crate::{
    Record,
    samples::{Sample, Slice},
};

/// The whole page.
pub(crate) fn render(record: &Record, samples: &[Sample], slices: &[Slice]) -> String {
    let title = html::escape(&record.suite.title);
    let body = [
        summary::header(record),
        summary::judgement(record),
        summary::headline(record),
        published::answers(record),
        published::quoted(record),
        forest::section(record),
        compared::section(record),
        charts::section(record, samples, slices),
        summary::every_comparison(record),
        summary::every_figure(record),
        environment::section(record, slices),
    ]
    .concat();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        include_str!("page/style.css"),
    )
}
