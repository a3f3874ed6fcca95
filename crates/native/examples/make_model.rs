//! Makes a model, asks it some questions and prints its speed.
//!
//! `cargo run --release -p confide-native --example make_model -- DIR [SEED [SHAPE]]`

use std::{error::Error, ops::ControlFlow, path::PathBuf, time::Instant};

use confide_engine::{Engine, GenerationEvent, Message, Prompt, Request, Role};
use confide_native::{
    NativeEngine, NativeOptions,
    make::{MakeProgress, ModelShape, ModelSpec, make_model},
};
use futures_executor::block_on;
use futures_util::StreamExt;

/// Some questions are part of the training corpus and some are not.
const QUESTIONS: &[&str] = &[
    "What is confide?",
    "Why is TLS not enough?",
    "Who can read my words?",
    "What is a quote?",
    "Which binding should I take?",
    "What does the tunnel do?",
    "Hello",
    "Explain attestation",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("wanted a folder")?);
    let seed = arguments.next().map_or(Ok(7), |seed| seed.parse())?;
    let name = arguments.next().unwrap_or_else(|| ModelShape::Tiny.name().into());
    let shape =
        ModelShape::ALL.into_iter().find(|shape| shape.name() == name).ok_or("no such shape")?;
    let start = Instant::now();
    let order = ModelSpec { shape, seed, dir: dir.clone(), steps: None };
    make_model(&order, &mut |progress| {
        if let MakeProgress::Training { step, steps, loss } = progress
            && (step == 1 || step % 20 == 0)
        {
            println!("step {step} of {steps}: loss {loss:.3}, {:.1?}", start.elapsed());
        }
        ControlFlow::Continue(())
    })?;
    println!("made in {:.1?}", start.elapsed());
    let start = Instant::now();
    let engine = NativeEngine::load(&dir, NativeOptions { model_name: Some("made".into()) })?;
    println!("loaded and checked in {:.1?}", start.elapsed());
    let (questions, length) =
        if shape == ModelShape::Tiny { (QUESTIONS, 400) } else { (&[][..], 16) };
    for question in questions {
        println!("> {question}\n{}", ask(&engine, question, false, 100)?.0);
    }
    let start = Instant::now();
    let (_, tokens) = ask(&engine, "What is a quote?", true, length)?;
    println!("{:.1} tokens/s", f64::from(tokens) / start.elapsed().as_secs_f64());
    Ok(())
}

fn ask(
    engine: &NativeEngine,
    question: &str,
    ignore_eos: bool,
    max_tokens: u32,
) -> Result<(String, u32), Box<dyn Error>> {
    let message = Message { role: Role::User, content: question.into() };
    let prompt = Prompt::Chat(vec![message]);
    let request =
        Request { ignore_eos, max_tokens: Some(max_tokens), ..Request::new("made", prompt) };
    let (mut text, mut count) = (String::new(), 0);
    for event in block_on(engine.generate(request)?.collect::<Vec<_>>()) {
        match event {
            GenerationEvent::Token(token) => text.push_str(&token.text),
            GenerationEvent::Finished { tail, usage, .. } => {
                text.push_str(&tail);
                count = usage.completion_tokens;
            }
            GenerationEvent::Failed(error) => return Err(error.into()),
            GenerationEvent::AdapterLost { reason } => return Err(reason.into()),
        }
    }
    Ok((text, count))
}
