//! The loop of the arms that the harness brings along: a hello, then an answer to every run.

use std::io::{BufRead, Write};

use crate::{
    error::BenchError,
    protocol::{ArmMessage, HarnessMessage, HelloMessage, PROTOCOL, ReportMessage},
    suite::bench::Params,
};

/// Says hello as `name`, then answers each run of `input` with the lines that `work` makes of its id, its number of
/// requests and its params, until the input ends or asks to end.
///
/// # Errors
/// When input or output fail.
pub(crate) fn answer_runs(
    name: String,
    input: impl BufRead,
    mut output: impl Write,
    work: impl Fn(u64, u32, &Params) -> Vec<ArmMessage>,
) -> Result<(), BenchError> {
    let mut write = |lines: &[ArmMessage]| {
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
    write(&[ArmMessage::Hello(HelloMessage {
        protocol: PROTOCOL,
        arm: name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        simulated: false,
        guarantee: Some("none".into()),
        threads: 1,
        note: None,
        warming: true,
        cannot: None,
    })])?;
    for line in input.lines() {
        let line = line.map_err(BenchError::io("read", "standard input"))?;
        let Ok(HarnessMessage::Run { id, requests, params, .. }) = serde_json::from_str(&line)
        else {
            return Ok(());
        };
        write(&work(id, requests, &params))?;
    }
    Ok(())
}

/// The last line of a run that tells no figure of the whole run.
pub(crate) fn empty_report(id: u64) -> ArmMessage {
    ArmMessage::Report(Box::new(ReportMessage { id, ..ReportMessage::default() }))
}
