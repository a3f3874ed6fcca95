//! Small pieces of markup. Every text from outside goes through [`escape`].

use std::fmt::Write;

use crate::rows::row::{Aa, Outcome, Row};

/// Text as HTML, also within double quotes. What cannot be seen but changes what is (controls,
/// changes of direction) becomes a mark: a record is written by others.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_invisible(c) => out.push('\u{fffd}'),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Controls but for tab and line feed, and what turns the direction of text.
pub(crate) fn is_invisible(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// `<span class="chip …">` with the sign of its class: colour is never the only one.
pub(super) fn chip(class: &str, text: &str) -> String {
    let sign = sign_of(class);
    format!(
        "<span class=\"chip {class}\"><span aria-hidden=\"true\">{sign}</span> {}</span>",
        words(text)
    )
}

/// Text with what stands between backticks as code.
pub(super) fn words(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split('`').peekable();
    let mut is_code = false;
    while let Some(part) = parts.next() {
        // A backtick that nothing closes is one.
        let _ = match (is_code, parts.peek()) {
            (true, None) => write!(out, "`{}", escape(part)),
            (true, Some(_)) => write!(out, "<code>{}</code>", escape(part)),
            (false, _) => write!(out, "{}", escape(part)),
        };
        is_code = !is_code;
    }
    out
}

/// One sign a class.
pub(super) fn sign_of(class: &str) -> &'static str {
    match class {
        "good" => "✓",
        "warn" => "▲",
        "bad" => "✗",
        "calm" => "▼",
        _ => "○",
    }
}

/// `<div class="scroll">` that the keyboard can scroll; close it with `</div>`.
pub(super) fn scroll(name: &str) -> String {
    format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">", escape(name))
}

/// ` data-name="…"` pairs that the filters read. Several values are set apart by line feeds.
pub(super) fn data(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, text): &(&str, &str)| format!(" data-{name}=\"{}\"", escape(text));
    pairs.iter().map(pair).collect()
}

/// The dashed mark that stands wherever something simulated shows.
pub(super) fn simulated(is: bool) -> &'static str {
    if is { " <span class=\"tag\">simulated</span>" } else { "" }
}

/// The class of a row's verdict.
pub(super) fn class_of(row: &Row) -> &'static str {
    if !row.has_interval() {
        return "mute";
    }
    match (row.aa, row.outcome) {
        (Some(Aa::OutsideMargin | Aa::ExcludesOne), _) => "bad",
        (Some(_), _) if row.twin => "good",
        (_, Outcome::WithinMargin) => "good",
        (_, Outcome::AboveMargin) => "warn",
        (_, Outcome::BelowMargin) => "calm",
        (_, Outcome::Undecided { .. } | Outcome::NotEvaluated) => "mute",
    }
}

/// A definition list.
pub(super) fn definitions(pairs: &[(String, String)]) -> String {
    let mut out = String::from("<dl>");
    for (name, text) in pairs.iter().filter(|(_, text)| !text.is_empty()) {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(text));
    }
    out + "</dl>\n"
}

/// UTC, to the minute, of unix seconds (civil-from-days, Hinnant 2013).
pub(crate) fn utc(unix_s: u64) -> String {
    let days = unix_s / 86_400;
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (unix_s / 3600 % 24, unix_s / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_backticks_is_code_and_escaped() {
        assert_eq!(words("run `a <b>` twice"), "run <code>a &lt;b&gt;</code> twice");
        assert_eq!(words("a ` alone"), "a ` alone");
    }

    #[test]
    fn markup_in_a_text_stays_text() {
        assert_eq!(escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        assert_eq!(escape("a\u{202e}b\u{1b}[0m\n"), "a\u{fffd}b\u{fffd}[0m\n");
    }

    #[test]
    fn dates_are_civil() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_769_509_141), "2026-01-27 10:19 UTC");
    }
}
