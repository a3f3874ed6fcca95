//! `confide-arm adapter-chat`: report 003's query to `confide serve`, run after run.

use std::time::Instant;

use confide_arm_line::{Hello, Report, Run, Sample, Stopwatch, speak};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    Outcome,
    conversation::{Link, post},
};

/// The query of report 003, in every run.
pub(crate) const QUERY: &str = "What is a savings account?";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where `confide serve` listens.
    #[arg(long)]
    server: String,
    /// The model, or the name of an adapter.
    #[arg(long)]
    model: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    // The first answer says who is protected from whom; it is not measured.
    let first = runtime.block_on(ask(&args, 1))?;
    let guarantee = first.answer["confide"]["guarantee"].as_str().map(str::to_owned);
    let hello = Hello {
        arm: format!("chat completions, model {}", args.model),
        version: format!("confide {}", env!("CARGO_PKG_VERSION")),
        simulated: false,
        guarantee: Some(guarantee.unwrap_or_else(|| "none".into())),
        threads: 1,
        note: None,
    };
    speak(&hello, |order| runtime.block_on(answer(&args, order))).map_err(|e| e.to_string())
}

/// A whole answer and what it took.
struct Answer {
    answer: Value,
    tokens: u64,
    total_ms: f64,
}

async fn answer(args: &Args, order: &Run) -> Outcome<Report> {
    order.knows_only(&["tokens"])?;
    let tokens = order.number("tokens", 16)?;
    let watch = Stopwatch::start();
    let mut report = Report::default();
    for _ in 0..order.requests {
        let told = ask(args, tokens).await?;
        let mut sample = rates(told.tokens, told.total_ms);
        sample.answer = json!({ "tokens": told.tokens });
        report.samples.push(sample);
    }
    (report.wall_s, report.cpu_s) = watch.stop();
    best(&mut report);
    Ok(report)
}

/// `token_ms` and `tokens_per_s` of one answer.
pub(crate) fn rates(tokens: u64, total_ms: f64) -> Sample {
    let mut sample = Sample::default();
    let token_ms = total_ms / tokens.max(1) as f64;
    sample.metrics.insert("token_ms".into(), json!(token_ms));
    sample.metrics.insert("tokens_per_s".into(), json!(1e3 / token_ms));
    sample
}

/// `best_tokens_per_s` of a run, as report 003 has it beside the average.
pub(crate) fn best(report: &mut Report) {
    let rate = |sample: &Sample| sample.metrics["tokens_per_s"].as_f64().unwrap_or(0.0);
    let best = report.samples.iter().map(rate).fold(0.0, f64::max);
    report.metrics.insert("best_tokens_per_s".into(), json!(best));
}

async fn ask(args: &Args, tokens: u64) -> Outcome<Answer> {
    let mut link = Link::plain(&args.server).await?;
    let body = json!({
        "model": args.model, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
        "messages": [{ "role": "user", "content": QUERY }],
    });
    let began = Instant::now();
    let answer = post(&mut link, "/v1/chat/completions", &body).await?;
    let total_ms = began.elapsed().as_secs_f64() * 1e3;
    let tokens = answer["usage"]["completion_tokens"].as_u64();
    let tokens = tokens.ok_or_else(|| format!("the answer has no usage: {answer}"))?;
    Ok(Answer { answer, tokens, total_ms })
}
