//! The saturation of the reference arm: measured once, written down, read by every arm.
//!
//! A service and not an arm: it measures when it is first started and then keeps its word, so
//! that all blocks of a run have the same absolute rates.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use confide_arm_line::{Outcome, read_file};
use confide_load::{
    Arrivals, ClientBound, ConnectionReuse, GoodputLimits, LoadOptions, Plan, Summary, Target,
    TokenLengths, Transport, Workload, run as load,
};
use serde_json::{Value, json};

use super::route::{Route, RouteArgs};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    route: RouteArgs,
    /// The model's name in requests.
    #[arg(long, default_value = "sim")]
    model: String,
    /// File for the measured rate; if it exists, nothing is measured.
    #[arg(long)]
    file: PathBuf,
    /// Users of the closed loop: twice the server's slots.
    #[arg(long)]
    users: u32,
    /// Total number of requests.
    #[arg(long)]
    requests: usize,
    /// Tokens of each prompt.
    #[arg(long)]
    prompt_tokens: u32,
    /// Tokens of each answer.
    #[arg(long)]
    output_tokens: u32,
}

pub(crate) fn run(args: Args) -> Outcome {
    if !args.file.exists() {
        let measured = measure_saturation(&args)?;
        std::fs::write(&args.file, measured.to_string())
            .map_err(|error| format!("cannot write {}: {error}", args.file.display()))?;
    }
    let rate_per_s = read_saturation_rate(&args.file)?;
    let file = args.file.to_string_lossy();
    println!("{}", json!({ "ready": true, "rate_per_s": rate_per_s, "file": file }));
    // Ended by a signal, as every service.
    loop {
        std::thread::park();
    }
}

/// The rate that a file holds, in answers a second.
pub(super) fn read_saturation_rate(file: &Path) -> Outcome<f64> {
    let value: Value = serde_json::from_slice(&read_file(file)?)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let rate = value["rate_per_s"].as_f64().filter(|rate| rate.is_finite() && *rate > 0.0);
    Ok(rate.ok_or_else(|| format!("{}: wanted a rate_per_s above 0", file.display()))?)
}

fn measure_saturation(args: &Args) -> Outcome<Value> {
    let workload = Workload {
        arrivals: Arrivals::Closed { users: args.users, ramp_s: 0.0 },
        requests: args.requests,
        duration_s: None,
        prompt_tokens: TokenLengths::of_tokens(args.prompt_tokens),
        output_tokens: TokenLengths::of_tokens(args.output_tokens),
        seed: 1,
    };
    let plan = Arc::new(Plan::new(&workload)?);
    let url = format!("http://{}", args.route.server());
    let target = Target::parse(&url, &args.model)?;
    let transport: Arc<dyn Transport> = Arc::new(Route::new(&args.route)?);
    let options =
        LoadOptions { sessions: ConnectionReuse::Reused { first: 0 }, ..LoadOptions::default() };
    let stop = AtomicBool::new(false);
    let outcome = load(&plan, &Arc::new(target), &transport, &options, &stop, &mut |_| {})?;
    let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
    if summary.complete != summary.requests {
        let error = outcome.events.iter().find_map(|event| event.error.clone());
        return Err(format!("saturation: a request failed: {}", error.unwrap_or_default()).into());
    }
    let bounds = ClientBound::find_all(&summary, &outcome.client);
    Ok(json!({
        "rate_per_s": summary.qps,
        "by": "closed loop: answers divided by the time from the first request to the last byte",
        "transport": transport.describe(),
        "users": args.users,
        "requests": args.requests,
        "prompt_tokens": args.prompt_tokens,
        "output_tokens": args.output_tokens,
        "streams_mean": summary.streams_mean,
        "client_bound": ClientBound::describe_all(&bounds),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_rate_is_refused() {
        let file = std::env::temp_dir().join(format!("confide-rate-{}", std::process::id()));
        for (text, rate) in [
            ("{\"rate_per_s\": 44.5}", Some(44.5)),
            ("{\"rate_per_s\": 0}", None),
            ("{}", None),
            ("x", None),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read_saturation_rate(&file).ok(), rate, "{text}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(read_saturation_rate(&file).is_err());
    }
}
