//! Numbers and names for people. Units come from the end of a metric's name.

use serde_json::Value;

use crate::suite::bench::{BetterDirection, Params, RunStatistic};

/// The unit of a metric's values, which the end of its name tells.
#[derive(Clone, Copy)]
enum Unit {
    /// A unit that is written after the number.
    Plain(&'static str),
    /// A unit of time: the milliseconds in one of it.
    Time(f64),
    /// A unit of memory: the bytes in one of it.
    Memory(f64),
    /// MiB per second.
    ByteRate,
    /// A quotient without a unit, whose zeros are kept: `1.00`.
    Quotient,
}

/// Ends of metric names with their units; where several fit, the first counts.
const UNITS: &[(&str, Unit)] = &[
    ("_ms_per_mib", Unit::Plain("ms/MiB")),
    ("_mib_per_s", Unit::ByteRate),
    ("_gbit_per_s", Unit::Plain("Gbit/s")),
    ("_tflop_per_s", Unit::Plain("TFLOP/s")),
    ("_top_per_s", Unit::Plain("TOP/s")),
    ("_per_s", Unit::Plain("/s")),
    ("_us", Unit::Time(1e-3)),
    ("_ms", Unit::Time(1.0)),
    ("_s", Unit::Time(1e3)),
    ("_bytes", Unit::Memory(1.0)),
    ("_mib", Unit::Memory((1 << 20) as f64)),
    ("_khz", Unit::Plain("kHz")),
    ("_ns", Unit::Plain("ns")),
    ("_mips", Unit::Plain("MIPS")),
    ("_w", Unit::Plain("W")),
    ("_ratio", Unit::Quotient),
];

fn metric_unit(metric: &str) -> Option<Unit> {
    let by_end = UNITS.iter().find(|(end, _)| metric.ends_with(end)).map(|(_, unit)| *unit);
    by_end.or_else(|| metric.starts_with("cpu_ms_per").then_some(Unit::Time(1.0)))
}

/// Formats a metric's value with its unit: `41.2 ms`, `1,240 /s`, `2.9 GiB/s`.
pub(crate) fn format_value(metric: &str, value: f64) -> String {
    match metric_unit(metric) {
        Some(Unit::Plain(unit)) => format!("{} {unit}", format_number(value)),
        Some(Unit::Time(_)) if value == 0.0 => "0".to_owned(),
        Some(Unit::Time(ms)) => {
            let (scale, unit) = display_scale_of_time(ms, value);
            format!("{} {unit}", format_three_digits(value * scale))
        }
        Some(Unit::Memory(each)) => format_bytes(value * each),
        Some(Unit::ByteRate) => format_byte_rate(value),
        Some(Unit::Quotient) if value.abs() < 1000.0 => format_three_digits(value),
        Some(Unit::Quotient) | None => format_number(value),
    }
}

/// True for a metric whose values are durations.
pub(crate) fn is_duration(metric: &str) -> bool {
    matches!(metric_unit(metric), Some(Unit::Time(_)))
}

/// The most digits that two figures get beyond three, where fewer would print them as equal.
const MORE_PLACES_MAX: usize = 2;

/// Formats two figures of a metric as [`format_value`] does, with up to two more digits where those keep
/// them apart: `1.000` and `1.002`, never `1` and `1`.
pub(crate) fn format_pair(metric: &str, pair: [f64; 2]) -> [String; 2] {
    let short = pair.map(|number| match metric_unit(metric) {
        Some(Unit::Plain(unit)) if number.fract() != 0.0 && number.abs() < 1000.0 => {
            format!("{} {unit}", format_significant(number))
        }
        _ => format_value(metric, number),
    });
    if short[0] != short[1] || pair[0] == pair[1] {
        return short;
    }
    let (scale, unit) = match metric_unit(metric) {
        Some(Unit::Memory(_)) => return short,
        Some(Unit::ByteRate) if pair[0].abs() >= 1024.0 => (1.0 / 1024.0, "GiB/s"),
        _ => display_scale(metric, pair[0].abs().max(pair[1].abs())),
    };
    let places = decimals_of_three_digits(pair[0] * scale);
    if (pair[0] * scale).abs() >= 1000.0 {
        return short;
    }
    let exact = |places: usize| {
        pair.map(|number| format!("{:.places$} {unit}", number * scale).trim_end().to_owned())
    };
    let mut longer = (places + 1..=places + MORE_PLACES_MAX).map(exact);
    longer.find(|[one, other]| one != other).unwrap_or(short)
}

/// Formats a ratio that has no interval with three digits, zeros among them: `x1.00`.
pub(crate) fn format_ratio_without_interval(ratio: f64) -> String {
    match ratio {
        0.0..1000.0 => format!("x{}", format_significant(ratio)),
        _ => format!("x{}", format_number(ratio)),
    }
}

/// Formats the labels of an axis as [`format_value`] does, with as many more places as keep them apart.
pub(crate) fn format_axis_labels(metric: &str, ticks: &[f64]) -> Vec<String> {
    let short: Vec<String> = ticks.iter().map(|tick| format_value(metric, *tick)).collect();
    let biggest = ticks.iter().fold(0.0, |biggest: f64, tick| biggest.max(tick.abs()));
    let (scale, unit) = match display_scale(metric, biggest) {
        (scale, "") if metric.ends_with("_bytes") => (scale, "B"),
        other => other,
    };
    let exact = |places: usize| -> Vec<String> {
        let label = |tick: &f64| format!("{:.places$} {unit}", tick * scale).trim_end().to_owned();
        ticks.iter().map(label).collect()
    };
    let distinct = |labels: &[String]| labels.windows(2).all(|pair| pair[0] != pair[1]);
    if distinct(&short) {
        return short;
    }
    (0..=PLACES_MAX).map(exact).find(|labels| distinct(labels)).unwrap_or(short)
}

/// The most places of an axis label; ticks that are closer are one value to a reader.
const PLACES_MAX: usize = 6;

/// Returns the decimals of a ratio: enough for its interval, no more.
pub(crate) fn ratio_decimals(low: f64, high: f64) -> usize {
    match high - low {
        width if width < 0.02 => 3,
        width if width < 1.0 => 2,
        width if width < 10.0 => 1,
        _ => 0,
    }
}

/// Names the statistic of a block and the better direction: `mean of a block, less is better`.
pub(crate) fn describe_statistic(stat: RunStatistic, better: BetterDirection) -> String {
    let stat = match stat {
        RunStatistic::Mean => "mean",
        RunStatistic::P50 => "median",
        RunStatistic::P95 => "p95",
        RunStatistic::P99 => "p99",
        RunStatistic::Min => "minimum",
        RunStatistic::Max => "maximum",
        RunStatistic::Sum => "sum",
    };
    let better = match better {
        BetterDirection::Higher => "more is better",
        BetterDirection::Lower => "less is better",
    };
    format!("{stat} of a block, {better}")
}

/// Makes words of a metric's id: without its unit, and without underscores.
pub(crate) fn id_to_words(id: &str) -> String {
    let unit = UNITS.iter().map(|(end, _)| *end).find(|end| id.ends_with(end)).unwrap_or_default();
    let stem = id.strip_suffix(unit).filter(|stem| !stem.is_empty()).unwrap_or(id);
    stem.replace('_', " ")
}

/// Fills `{param}` in a label; bytes and times get units.
pub(crate) fn fill_label(text: &str, params: &Params) -> String {
    let mut filled = text.to_owned();
    for (name, param) in params {
        let shown = match param {
            Value::Number(number) => format_param(name, number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        filled = filled.replace(&format!("{{{name}}}"), &shown);
    }
    filled
}

/// Formats three significant digits; from 1,000 on the whole number, with a thousands separator.
pub(crate) fn format_number(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 1000.0 => return group_thousands(value),
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn format_param(name: &str, number: f64) -> String {
    if name.ends_with("_bytes") {
        format_bytes(number)
    } else if name.ends_with("_ms") {
        format!("{} ms", format_number(number))
    } else {
        format_number(number)
    }
}

/// Formats three significant digits and keeps trailing zeros, so that columns of times line up.
fn format_three_digits(value: f64) -> String {
    let places = decimals_of_three_digits(value);
    format!("{value:.places$}")
}

/// Formats three significant digits, also below 1, and keeps trailing zeros.
fn format_significant(value: f64) -> String {
    match value.abs() {
        size if size < 0.01 => format!("{value:.5}"),
        size if size < 0.1 => format!("{value:.4}"),
        size if size < 0.9995 => format!("{value:.3}"),
        _ => format_three_digits(value),
    }
}

fn decimals_of_three_digits(value: f64) -> usize {
    match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    }
}

/// Returns the factor and the unit for a size in the metric's own unit.
pub(crate) fn display_scale(metric: &str, size: f64) -> (f64, &'static str) {
    match metric_unit(metric) {
        Some(Unit::Plain(unit)) => (1.0, unit),
        Some(Unit::Time(ms)) => display_scale_of_time(ms, size),
        Some(Unit::ByteRate) => (1.0, "MiB/s"),
        Some(Unit::Memory(_) | Unit::Quotient) | None => (1.0, ""),
    }
}

/// Returns the same for a time in a unit of `ms` milliseconds.
fn display_scale_of_time(ms: f64, size: f64) -> (f64, &'static str) {
    match (size * ms).abs() {
        size if size >= 10_000.0 => (ms / 1000.0, "s"),
        size if size >= 1.0 || size == 0.0 => (ms, "ms"),
        size if size >= 1e-3 => (ms * 1e3, "µs"),
        _ => (ms * 1e6, "ns"),
    }
}

fn format_byte_rate(mib_per_s: f64) -> String {
    if mib_per_s >= 1024.0 {
        format!("{} GiB/s", format_three_digits(mib_per_s / 1024.0))
    } else {
        format!("{} MiB/s", format_three_digits(mib_per_s))
    }
}

fn format_bytes(value: f64) -> String {
    for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if value >= size as f64 {
            return format!("{} {unit}", format_number(value / size as f64));
        }
    }
    format!("{} B", format_number(value))
}

fn group_thousands(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Begins a sentence with an upper-case letter, unless it begins with the name of a program.
pub(crate) fn capitalise(text: &str, names: &[String]) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !names.iter().any(|name| text.starts_with(name)) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_an_axis_differ_where_its_ticks_do() {
        assert_eq!(format_axis_labels("tpot_ms", &[10.0, 12.0]), ["10.0 ms", "12.0 ms"]);
        let close = format_axis_labels("tpot_ms", &[125.01, 125.02, 125.03]);
        assert_eq!(close, ["125.01 ms", "125.02 ms", "125.03 ms"]);
        assert_eq!(
            format_axis_labels("sent_bytes", &[1048576.0, 1048577.0]),
            ["1048576 B", "1048577 B"]
        );
        assert_eq!(format_axis_labels("requests_per_s", &[2.0, 2.0]), ["2 /s", "2 /s"]);
    }

    #[test]
    fn units_come_from_the_name() {
        assert_eq!(format_value("ttft_ms", 41.23), "41.2 ms");
        assert_eq!(format_value("ttft_ms", 0.0412), "41.2 µs");
        assert_eq!(format_value("total_ms", 12_345.0), "12.3 s");
        assert_eq!(format_value("b_ms", 0.00042), "420 ns");
        assert_eq!(format_value("ttft_ms", 0.0), "0");
        assert_eq!(format_value("wall_s", 0.5), "500 ms");
        assert_eq!(format_value("rate_per_s", 1240.4), "1,240 /s");
        assert_eq!(format_value("rate_mib_per_s", 2969.6), "2.90 GiB/s");
        assert_eq!(format_value("rate_mib_per_s", 100.725), "101 MiB/s");
        assert_eq!(format_value("cpu_ms_per_mib", 0.447), "0.447 ms/MiB");
        assert_eq!(format_value("cpu_ms_per_verify", 0.447), "447 µs");
        assert_eq!(format_value("payload_bytes", 16_777_216.0), "16 MiB");
        assert_eq!(format_value("chase_ns", 90.34), "90.3 ns");
        assert_eq!(format_value("rating_mips", 28_691.2), "28,691 MIPS");
        assert_eq!(format_value("received_gbit_per_s", 11.13), "11.1 Gbit/s");
        assert_eq!(format_value("bf16_tflop_per_s", 788.4), "788 TFLOP/s");
        assert_eq!(format_value("int8_top_per_s", 1500.0), "1,500 TOP/s");
        assert_eq!(format_value("power_w", 412.0), "412 W");
        assert_eq!(format_value("wire_per_app_ratio", 2.007), "2.01");
        assert_eq!(format_value("wire_per_app_ratio", 1.0), "1.00");
    }

    #[test]
    fn figures_that_differ_are_not_printed_as_equal() {
        assert_eq!(format_pair("wire_per_app_ratio", [1.0002, 1.0021]), ["1.000", "1.002"]);
        assert_eq!(format_pair("ttft_ms", [41.21, 41.23]), ["41.21 ms", "41.23 ms"]);
        assert_eq!(format_pair("ttft_ms", [0.0412, 3.5]), ["41.2 µs", "3.50 ms"]);
        assert_eq!(format_pair("rate_per_s", [184.0, 184.3]), ["184.0 /s", "184.3 /s"]);
        assert_eq!(format_pair("rate_per_s", [1840.0, 1840.3]), ["1,840 /s", "1,840 /s"]);
        assert_eq!(format_pair("rate_mib_per_s", [2969.6, 2970.6]), ["2.900 GiB/s", "2.901 GiB/s"]);
        assert_eq!(format_pair("ttft_ms", [41.2, 41.2]), ["41.2 ms", "41.2 ms"]);
        assert_eq!(format_pair("rate_per_s", [44.31, 44.02]), ["44.3 /s", "44.0 /s"]);
    }

    #[test]
    fn a_ratio_has_the_digits_that_say_something() {
        assert_eq!(
            [0.00301, 0.031, 0.82, 0.9996, 1.0, 25.01, 1_176.36, 2_138_462.2]
                .map(format_ratio_without_interval),
            ["x0.00301", "x0.0310", "x0.820", "x1.00", "x1.00", "x25.0", "x1,176", "x2,138,462"]
        );
    }

    #[test]
    fn labels_are_filled_from_the_params() {
        let params = Params::from([
            ("payload_bytes".to_owned(), Value::from(65536)),
            ("delay_ms".to_owned(), Value::from(20)),
            ("session".to_owned(), Value::from("new")),
        ]);
        let filled = fill_label("chat, {session} session, {delay_ms}, {payload_bytes}", &params);
        assert_eq!(filled, "chat, new session, 20 ms, 64 KiB");
    }

    #[test]
    fn large_numbers_are_set_apart() {
        assert_eq!(format_number(1_234_567.8), "1,234,568");
        assert_eq!(format_number(-1000.0), "-1,000");
        assert_eq!(format_number(12.34), "12.3");
        assert_eq!(format_number(0.5), "0.5");
        assert_eq!(format_number(0.0), "0");
    }
}
