//! `confide-arm adapter-chat`: report 003's query to `confide serve`, run after run.

use std::time::Instant;

use confide_arm_line::{Hello, Outcome, Report, Run, Sample, Stopwatch, serve_runs};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::conversation::{HttpConnection, post_json};
use crate::version::VERSION;

/// The query of report 003, in every run.
pub(crate) const QUERY: &str = "What is a savings account?";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address of `confide serve`.
    #[arg(long)]
    server: String,
    /// The model, or the name of an adapter.
    #[arg(long)]
    model: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Runtime::new()?;
    // The first answer says who is protected from whom; it is not measured.
    let first = runtime.block_on(request_answer(&args, 1))?;
    let guarantee = first.answer["confide"]["guarantee"].as_str().map(str::to_owned);
    let hello = Hello {
        guarantee: Some(guarantee.unwrap_or_else(|| "none".into())),
        ..Hello::new(format!("chat completions, model {}", args.model), VERSION)
    };
    serve_runs(&hello, |order| runtime.block_on(measure(&args, order)))
}

/// A whole answer, and the time from request to its end.
struct Answer {
    answer: Value,
    tokens: u64,
    total_ms: f64,
}

async fn measure(args: &Args, order: &Run) -> Outcome<Report> {
    order.refuse_unknown_params(&["tokens"])?;
    let tokens = order.integer_param("tokens", 16)?;
    let mut samples = Vec::new();
    let watch = Stopwatch::start();
    for _ in 0..order.requests {
        let answer = request_answer(args, tokens).await?;
        let mut sample = rate_sample(answer.tokens, answer.total_ms);
        sample.answer = json!({ "tokens": answer.tokens });
        samples.push(sample);
    }
    Ok(with_best_rate(Report { samples, ..watch.report() }))
}

/// `token_ms` and `tokens_per_s` of one answer.
pub(crate) fn rate_sample(tokens: u64, total_ms: f64) -> Sample {
    let token_ms = total_ms / tokens.max(1) as f64;
    Sample::new([("token_ms", token_ms), ("tokens_per_s", 1e3 / token_ms)])
}

/// Adds `best_tokens_per_s` to a run, as report 003 gives it next to the average.
pub(crate) fn with_best_rate(mut report: Report) -> Report {
    let rate = |sample: &Sample| sample.metrics["tokens_per_s"].as_f64().unwrap_or(0.0);
    let best = report.samples.iter().map(rate).fold(0.0, f64::max);
    report.set("best_tokens_per_s", best);
    report
}

async fn request_answer(args: &Args, tokens: u64) -> Outcome<Answer> {
    let mut link = HttpConnection::open_plain(&args.server).await?;
    let body = json!({
        "model": args.model, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
        "messages": [{ "role": "user", "content": QUERY }],
    });
    let began = Instant::now();
    let answer = post_json(&mut link, "/v1/chat/completions", &body).await?;
    let total_ms = began.elapsed().as_secs_f64() * 1e3;
    let tokens = answer["usage"]["completion_tokens"].as_u64();
    let tokens = tokens.ok_or_else(|| format!("the answer has no usage: {answer}"))?;
    Ok(Answer { answer, tokens, total_ms })
}
