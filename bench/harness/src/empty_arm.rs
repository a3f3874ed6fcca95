//! An arm that does nothing: its row is what the line protocol and the harness cost.

use std::io::{BufRead, Write};

use crate::{
    error::BenchError,
    protocol::{Done, FromArm, Hello, PROTOCOL, SAMPLES_PER_RUN_MAX, SampleMessage, ToArm},
};

/// Answers each run at once with `samples` samples that tell nothing. Reads runs from `input` until
/// it ends.
///
/// # Errors
/// When the input is no line of the protocol, or input or output fail.
pub fn empty_arm(
    samples: u32,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<(), BenchError> {
    let samples = samples.min(SAMPLES_PER_RUN_MAX as u32);
    let mut say = |lines: &[FromArm]| {
        let mut text = String::new();
        for line in lines {
            let line = serde_json::to_string(line)
                .map_err(|error| BenchError::io("write", "standard output")(error.into()))?;
            text.push_str(&line);
            text.push('\n');
        }
        // One write: an arm that prints after it has measured does not pay for each line either.
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush())
            .map_err(BenchError::io("write", "standard output"))
    };
    say(&[FromArm::Hello(hello(samples))])?;
    for line in input.lines() {
        let line = line.map_err(BenchError::io("read", "standard input"))?;
        let Ok(ToArm::Run { id, .. }) = serde_json::from_str(&line) else { return Ok(()) };
        let mut lines: Vec<FromArm> = (0..samples).map(|_| FromArm::Sample(empty(id))).collect();
        lines.push(FromArm::Done(Box::new(Done { id, ..Done::default() })));
        say(&lines)?;
    }
    Ok(())
}

fn hello(samples: u32) -> Hello {
    Hello {
        protocol: PROTOCOL,
        arm: format!("empty, {samples} samples"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        simulated: false,
        guarantee: Some("none".into()),
        threads: 1,
        note: None,
        warming: true,
        cannot: None,
    }
}

fn empty(id: u64) -> SampleMessage {
    SampleMessage { id, ..SampleMessage::default() }
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
        empty_arm(2, input.as_bytes(), &mut output).unwrap();
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
