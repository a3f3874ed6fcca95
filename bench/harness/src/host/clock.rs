//! The clocks: which one times the figures, and how far the wall clock is off.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    programs::RunProgram,
    root::{FileTree, field_value},
};

/// The clocks of the machine, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Clock {
    pub(crate) available: Option<String>,
    /// The flags of the time stamp counter, of those that the kernel shows.
    pub(crate) tsc: Vec<String>,
    /// The seconds by which the wall clock is ahead (above 0) or behind, as chrony has it.
    pub(crate) offset_s: Option<f64>,
    /// The source of the offset, or the reason why there is none.
    pub(crate) offset_source: Option<String>,
}

impl Clock {
    pub(crate) fn read(root: &FileTree, cpuinfo: &str, ask: RunProgram<'_>) -> Self {
        let flags = field_value(cpuinfo, "flags").unwrap_or_default();
        let of_tsc = ["constant_tsc", "nonstop_tsc", "tsc_known_freq", "tsc_reliable"];
        let has = |name: &&&str| flags.split_whitespace().any(|flag| flag == **name);
        let answer = ask("chronyc", &["-n", "-c", "tracking"]);
        let offset_s = answer.as_deref().and_then(parse_chrony_offset_s);
        let source = match (&answer, offset_s) {
            (None, _) => "not known: chronyc is missing or has no daemon",
            (Some(_), None) => "not known: chrony is not synchronised",
            (Some(_), Some(_)) => "chrony",
        };
        Self {
            available: root
                .read_value("/sys/devices/system/clocksource/clocksource0/available_clocksource"),
            tsc: of_tsc.iter().filter(has).map(|name| (*name).to_owned()).collect(),
            offset_s,
            offset_source: Some(source.to_owned()),
        }
    }
}

/// Parses the fifth field of `chronyc -c tracking`, unless the last says that no source is
/// followed. The first two are addresses and are not kept.
fn parse_chrony_offset_s(csv: &str) -> Option<f64> {
    let fields: Vec<&str> = csv.lines().next()?.trim().split(',').collect();
    if fields.len() < 14 || fields.last() == Some(&"Not synchronised") {
        return None;
    }
    // chrony shows how much the clock is to be corrected: above 0 if it is slow.
    let offset: f64 = fields[4].parse().ok()?;
    offset.is_finite().then_some(-offset)
}

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    let _ = parse_chrony_offset_s(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by hand in the format of chronyc(1), TRACKING, with `-c`.
    const TRACKING: &str = "C0000201,192.0.2.1,3,1700000000.000000000,-0.000012345,0.000001,\
        0.000020,-12.3,0.001,0.02,0.001,0.0005,64.2,Normal\n";

    #[test]
    fn the_offset_of_chrony_is_read_and_its_servers_are_not() {
        assert_eq!(parse_chrony_offset_s(TRACKING), Some(0.000012345));
        let lost = TRACKING.replace("Normal", "Not synchronised");
        assert_eq!(parse_chrony_offset_s(&lost), None);
        for text in ["", "a,b", "\u{fffd},,,,nan,,,,,,,,,Normal"] {
            assert_eq!(parse_chrony_offset_s(text), None, "{text:?}");
        }
    }

    #[test]
    fn without_chrony_the_reason_stands_in_its_place() {
        let clock = Clock::read(&FileTree::system(), "flags : constant_tsc x\n", &|_, _| None);
        assert_eq!(
            (clock.offset_s, clock.tsc.as_slice()),
            (None, &["constant_tsc".to_owned()][..])
        );
        assert!(clock.offset_source.unwrap().starts_with("not known"));
    }
}
