//! `confide gateway shape`: the price of an answer shape.

use std::process::ExitCode;

use confide_gateway::{AnswerShape, GatewayError};

use crate::{error::CliError, process};

/// What the bench measured for one shape (docs/traffic-shape.md, "The price"). The record names the
/// binary, which is that of the development profile.
const MEASURED: &str = "2048/50/32, 200 tokens at 100/s, a build without optimisation: 38.9 to 131 kB, \
                        first token +42 ms, last +16 ms, end +1160 ms (bench/records/2026-11-28-padding)";

/// The arguments of `confide gateway shape`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shape, as for --answer-shape
    #[arg(value_name = "BYTES/MS/SLOTS", value_parser = parse_answer_shape)]
    shape: AnswerShape,
}

/// Parses the shape of answers.
pub(super) fn parse_answer_shape(text: &str) -> Result<AnswerShape, GatewayError> {
    text.parse()
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    process::print_text(&describe_price(&args.shape))?;
    Ok(ExitCode::SUCCESS)
}

/// The price of a shape, in lines of text.
pub(super) fn describe_price(shape: &AnswerShape) -> String {
    let price = shape.price();
    format!(
        "answer shape {shape}: {} bytes every {} ms, slots in multiples of {}\n  \
         traffic: {:.0} bytes/s for each running stream, {} bytes for the shortest answer\n  \
         encrypted bodies: {:.0} bytes/s for each running stream\n  \
         speed: at most {:.0} bytes/s of events in one stream; a faster engine waits\n  \
         each token: waits {:.0} ms on average and {:.0} ms at most for its slot\n  \
         long events: {:.0} ms more for each further slot; {} bytes or more break the stream\n  \
         end of a stream: {:.0} ms later on average and {:.0} ms at most\n  \
         JSON answers: {:.0} ms later on average and {:.0} ms at most, in multiples of {} bytes\n  \
         measured: {MEASURED}\n",
        shape.record_bytes(),
        shape.interval_ms(),
        shape.slots_step(),
        price.wire_bytes_per_s,
        price.answer_bytes_min,
        price.encrypted_wire_bytes_per_s,
        price.event_bytes_per_s,
        price.event_wait_ms_max / 2.0,
        price.event_wait_ms_max,
        price.event_wait_ms_max,
        price.event_bytes_max,
        price.end_wait_ms_max / 2.0,
        price.end_wait_ms_max,
        price.end_wait_ms_max / 2.0,
        price.end_wait_ms_max,
        price.answer_bytes_min,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_names_bytes_and_milliseconds() {
        let text = describe_price(&"1024/50/64".parse().unwrap());
        for wanted in [
            "1024 bytes every 50 ms, slots in multiples of 64",
            "21060 bytes/s for each running stream, 65536 bytes for the shortest answer",
            "waits 25 ms on average and 50 ms at most",
            "encrypted bodies: 21460 bytes/s for each running stream",
            "long events: 50 ms more for each further slot; 262144 bytes or more break the stream",
            "end of a stream: 1600 ms later on average and 3200 ms at most",
            "JSON answers: 1600 ms later on average and 3200 ms at most, in multiples of 65536 bytes",
            "a build without optimisation",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
    }
}
