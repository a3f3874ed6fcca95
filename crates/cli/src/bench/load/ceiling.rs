//! What `confide bench load --ceiling` prints.

use std::fmt::Write;

use confide_load::{Ceiling, CeilingFigures, ClientFigures};
use serde_json::json;

use crate::error::CliError;

pub(super) fn ceiling_json(figures: &CeilingFigures) -> Result<String, CliError> {
    let value = json!({ "measured": figures, "stated": Ceiling::STATED });
    Ok(serde_json::to_string_pretty(&value).map_err(CliError::new)? + "\n")
}

pub(super) fn render_ceiling(figures: &CeilingFigures) -> String {
    let (measured, stated) = (figures.ceiling, Ceiling::STATED);
    let mut out = String::from(
        "What one thread of this client can do, against loopback servers whose CPU time is not counted.\n\n",
    );
    let _ = writeln!(
        out,
        "{:<36}{:>10}{:>10}{:>10}",
        "per CPU second of the client", "measured", "stated", "CPU s"
    );
    for (name, measured, stated, client) in [
        (
            "requests, kept connections",
            measured.requests_per_cpu_s,
            stated.requests_per_cpu_s,
            &figures.kept,
        ),
        (
            "new connections, without requests",
            measured.connections_per_cpu_s,
            stated.connections_per_cpu_s,
            &figures.new,
        ),
        (
            "tokens that arrive one by one",
            measured.tokens_per_cpu_s,
            stated.tokens_per_cpu_s,
            &figures.tokens,
        ),
    ] {
        let [measured, stated] = [measured, stated].map(format_thousands);
        let _ = writeln!(out, "{name:<36}{measured:>10}{stated:>10}{:>10.2}", client.cpu_s);
    }
    out + &loop_delay_line(&figures.tokens) + &slow_client_warning(measured, stated)
}

fn loop_delay_line(tokens: &ClientFigures) -> String {
    let mean_ms = tokens.loop_delay.mean_ms.unwrap_or(0.0);
    let busy = tokens.busiest_ratio * 1e2;
    format!(
        "\nwhile tokens arrived: {busy:.0} % busy, loop delay {mean_ms:.3} ms in the mean\n\
         A run above 80 % of its ceiling is client-bound. Runs are judged by the stated ceiling, or by the\n\
         measured one if --ceiling is given with the URL.\n"
    )
}

/// A warning if this machine does less than the stated ceiling.
fn slow_client_warning(measured: Ceiling, stated: Ceiling) -> String {
    let is_below = measured.requests_per_cpu_s < stated.requests_per_cpu_s
        || measured.connections_per_cpu_s < stated.connections_per_cpu_s
        || measured.tokens_per_cpu_s < stated.tokens_per_cpu_s;
    let text = "This machine, or this build, does less than the stated ceiling: give --ceiling with each run.\n";
    if is_below { text.to_owned() } else { String::new() }
}

/// A whole number with a comma before each three digits.
pub(super) fn format_thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_below_the_stated_ceiling_is_told_so() {
        let ceiling = Ceiling { is_measured: true, ..Ceiling::STATED };
        let client = ClientFigures::default();
        let [kept, new, tokens] = [client.clone(), client.clone(), client];
        let mut figures = CeilingFigures { ceiling, kept, new, tokens };
        let text = render_ceiling(&figures);
        assert!(text.contains("50,000    50,000"), "{text}");
        assert!(!text.contains("less than the stated"), "{text}");
        figures.ceiling.tokens_per_cpu_s = 1_234_567.0;
        figures.ceiling.requests_per_cpu_s = 999.0;
        let text = render_ceiling(&figures);
        assert!(text.contains("1,234,567") && text.contains("less than the stated"), "{text}");
    }
}
