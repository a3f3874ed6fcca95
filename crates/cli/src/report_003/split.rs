//! `confide split`: the transformer runs at a server, tokenizer, LM head and sampling run here.
//!
//! The server never computes a token, but it reads all of them: token numbers say what the text is,
//! and embeddings are rows of a public table. Noise on the embeddings hides them as far as its
//! epsilon says, at the cost of the answer's quality.

mod noise;
mod remote;

use std::{path::PathBuf, process::ExitCode};

use confide_engine::{EngineError, Message, Prompt, Request, Role, Sampling};
use confide_report_003::split_mode::{
    ClientHead, ForwardResult, SplitCompletion, TimedToken, generate_split,
};
use serde_json::{Value, json};

use super::head::ModelHead;
use crate::{
    error::CliError,
    process::{print_bytes, print_text},
};
use noise::{Noise, NoiseArgs};
use remote::{RemoteTransformer, TokenInput};

/// Generates with the transformer of a server (`WS /api/v1/split/stream`) and the LM head of a
/// model's folder here.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server, as `http://HOST:PORT`.
    #[arg(long, value_name = "URL")]
    server: String,
    /// Folder of the model: its tokenizer, embeddings and output matrix are read.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The adapter at the server; by default the base model.
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// The longest answer, in tokens.
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_tokens: u32,
    /// Sampling temperature; 0 takes the likeliest token.
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    temperature: f32,
    /// Sample among the likeliest tokens whose probabilities together reach this sum (top-p).
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    top_p: f32,
    /// The same seed gives the same answer.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Send embeddings instead of token numbers. The server can recover the tokens from either.
    #[arg(long)]
    embeddings: bool,
    #[command(flatten)]
    noise: NoiseArgs,
    /// Print a JSON line for each token and one at the end, instead of the text.
    #[arg(long)]
    json: bool,
    /// The prompt.
    prompt: String,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    crate::threads::reexec_with_thread_counts(
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    crate::model_folder::check_folder(&args.model)?;
    let head = ModelHead::load(&args.model).map_err(|error| {
        let dir = args.model.display();
        CliError::new(format!("cannot load the LM head in {dir}: {error}"))
    })?;
    let mut remote = RemoteTransformer::connect(&args.server, args.adapter.as_deref())?;
    remote.check_width(head.width())?;
    if !args.noise.table.is_empty() {
        return noise::print_noise_costs(&args.noise, &head, &mut remote, &build_request(&args));
    }
    let mut noise = args.noise.build_noise(&head)?;
    eprintln!("guarantee: {}", guarantee(noise.as_ref()));
    let Some(ended) = generate(&args, &head, &mut remote, &mut noise)? else {
        return Ok(ExitCode::SUCCESS);
    };
    print_summary(&args, &ended, &remote, noise.as_ref())?;
    // An answer that the base model gave in part is not a success.
    let status = if is_adapter_lost(remote.label.as_ref()) { LOST_STATUS } else { 0 };
    Ok(status.into())
}

/// Exit status of an answer that the base model gave in part, because the adapter was lost.
const LOST_STATUS: u8 = 3;

fn build_request(args: &Args) -> Request {
    let message = Message { role: Role::User, content: args.prompt.clone() };
    Request {
        max_tokens: Some(args.max_tokens),
        sampling: Sampling { temperature: args.temperature, top_p: args.top_p, seed: args.seed },
        ..Request::new("", Prompt::Chat(vec![message]))
    }
}

/// Generates and prints the tokens; gives `None` if nobody reads them any longer.
fn generate(
    args: &Args,
    head: &ModelHead,
    remote: &mut RemoteTransformer,
    noise: &mut Option<Noise>,
) -> Result<Option<SplitCompletion>, CliError> {
    let context_tokens = remote.context_tokens;
    // Both closures use the account; they never run at the same time.
    let account = std::cell::Cell::new(noise.as_ref().map(Noise::privacy_loss));
    let mut printed = Ok(true);
    let mut is_loss_reported = false;
    let mut index = 0u64;
    let label = std::cell::RefCell::new(None::<Value>);
    let mut forward = |ids: &[u32]| {
        let sent = match noise.as_mut() {
            None if !args.embeddings => TokenInput::Ids(ids.to_vec()),
            None => TokenInput::Rows(head.embed(ids)?),
            Some(noise) => TokenInput::Rows(noise.add_noise(head.embed(ids)?)?),
        };
        account.set(noise.as_ref().map(Noise::privacy_loss));
        let hidden = remote.forward(sent)?;
        label.replace(remote.label.clone());
        Ok(ForwardResult { hidden, adapter: None })
    };
    let mut each = |step: TimedToken| {
        let lost = is_adapter_lost(label.borrow().as_ref());
        if lost && !std::mem::replace(&mut is_loss_reported, true) {
            eprintln!("the adapter is lost: the base model answers from here on");
        }
        let spent = account.get();
        let line = if args.json {
            let token = json!({
                "index": index,
                "token": step.token.text,
                "token_id": step.token.id,
                "forward_ms": step.forward_ms,
                "lm_head_ms": step.head_ms,
                "sample_ms": step.choose_ms,
                "adapter_lost": lost,
                "epsilon": spent.map(|spent| spent.epsilon),
                "delta": spent.map(|spent| spent.delta),
            });
            format!("{token}\n")
        } else {
            step.token.text.to_string()
        };
        index += 1;
        if let (Some(spent), false) = (spent, args.json) {
            eprintln!("epsilon {:.3} at delta {:e}", spent.epsilon, spent.delta);
        }
        printed = print_bytes(line.as_bytes());
        matches!(printed, Ok(true))
    };
    let ended = generate_split(head, &build_request(args), context_tokens, &mut forward, &mut each);
    printed?;
    ended.map_err(|error: EngineError| remote.explain_error(&error))
}

fn print_summary(
    args: &Args,
    ended: &SplitCompletion,
    remote: &RemoteTransformer,
    noise: Option<&Noise>,
) -> Result<(), CliError> {
    let spent = noise.map(Noise::privacy_loss);
    let end = json!({
        "done": true,
        "tokens": ended.usage.completion_tokens,
        "prompt_tokens": ended.usage.prompt_tokens,
        "guarantee": guarantee(noise),
        "epsilon": spent.map(|spent| spent.epsilon),
        "delta": spent.map(|spent| spent.delta),
        "vectors_sent": spent.map(|spent| spent.released),
        "confide": remote.label,
    });
    if args.json {
        return print_text(&format!("{end}\n"));
    }
    print_text(&format!("{}\n", ended.tail))?;
    eprintln!("{end}");
    Ok(())
}

/// Whether the server's label says that the adapter was lost.
fn is_adapter_lost(label: Option<&Value>) -> bool {
    label.is_some_and(|label| !label["adapter_lost"].is_null())
}

/// The guarantee: what the server learns of the text.
fn guarantee(noise: Option<&Noise>) -> String {
    match noise {
        None => "none: the server reads token numbers, or embeddings that determine them".into(),
        Some(noise) => noise.guarantee(),
    }
}
