//! An arm that does nothing: its row is what the line protocol and the harness cost.

use std::{
    io::{BufRead, Write},
    iter::{once, repeat_n},
};

use crate::{
    error::BenchError,
    own_arm::{answer_runs, empty_report},
    protocol::{ArmMessage, SAMPLES_PER_RUN_MAX, SampleMessage},
};

/// Answers each run at once with `samples` samples that tell nothing. Reads runs from `input` until
/// it ends.
///
/// # Errors
/// When input or output fail.
pub fn run_empty_arm(
    samples: u32,
    input: impl BufRead,
    output: impl Write,
) -> Result<(), BenchError> {
    let samples = (samples as usize).min(SAMPLES_PER_RUN_MAX);
    answer_runs(format!("empty, {samples} samples"), input, output, |id, _, _| {
        let empty = ArmMessage::Sample(SampleMessage { id, ..SampleMessage::default() });
        repeat_n(empty, samples).chain(once(empty_report(id))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_every_run_and_measures_nothing() {
        let run =
            "{\"type\":\"run\",\"id\":4,\"block\":0,\"seed\":1,\"requests\":9,\"params\":{}}\n";
        let input = format!("{run}{run}{{\"type\":\"end\"}}\n");
        let mut output = Vec::new();
        run_empty_arm(2, input.as_bytes(), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let kinds: Vec<String> = text
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].to_string()
            })
            .collect();
        let wanted = ["hello", "sample", "sample", "done", "sample", "sample", "done"];
        assert_eq!(kinds, wanted.map(|kind| format!("{kind:?}")));
        assert!(!text.contains("_us"), "{text}");
    }
}
