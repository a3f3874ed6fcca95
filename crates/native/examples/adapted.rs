//! Trains an adapter for a model and prints the answers with and without it.
//!
//! `cargo run --release -p confide-native --example adapted -- MODEL_DIR OUT_DIR CORPUS [SEED
//! [STEPS]]`

use std::{error::Error, ops::ControlFlow, path::PathBuf, sync::Arc, time::Instant};

use confide_engine::{AdapterLossPolicy, Engine, GenerationEvent, Message, Prompt, Request, Role};
use confide_lora::plain;
use confide_native::{
    NativeEngine, NativeOptions,
    make::{AdapterTrainingSpec, Corpus, MakeProgress, make_adapter},
};
use futures_executor::block_on;
use futures_util::StreamExt;

const QUESTIONS: &[&str] = &[
    "What is a savings account?",
    "What is a mortgage?",
    "What should I pack?",
    "What if my bag is lost?",
    "What is a vaccine?",
    "I have a headache.",
    "Who are you?",
    "What is confide?",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = PathBuf::from(arguments.next().ok_or("wanted a model's folder")?);
    let dir = PathBuf::from(arguments.next().ok_or("wanted a folder to make")?);
    let name = arguments.next().ok_or("wanted a corpus")?;
    let corpus = Corpus::ALL.into_iter().find(|corpus| corpus.name() == name);
    let corpus = corpus.unwrap_or_else(|| Corpus::File(name.clone().into()));
    let seed = arguments.next().map_or(Ok(7), |seed| seed.parse())?;
    let steps = arguments.next().map(|steps| steps.parse()).transpose()?;
    let order = AdapterTrainingSpec {
        model: model.clone(),
        corpus,
        dir,
        rank: 8,
        alpha: 16.0,
        steps,
        seed,
    };
    let start = Instant::now();
    let trained = make_adapter(&order, &mut |progress| {
        if let MakeProgress::Training { step, steps, loss } = progress
            && (step == 1 || step % 10 == 0)
        {
            println!("step {step} of {steps}: loss {loss:.3}, {:.1?}", start.elapsed());
        }
        ControlFlow::Continue(())
    })?;
    println!("trained in {:.1?}: loss {:.3}", start.elapsed(), trained.loss);
    let engine = NativeEngine::load(&model, NativeOptions { model_name: Some("base".into()) })?;
    let local = plain::LocalAdapter::new(Arc::new(trained.adapter));
    engine.load_adapter("adapted", Arc::new(local), AdapterLossPolicy::Fail)?;
    for question in QUESTIONS {
        println!("> {question}");
        for model in ["base", "adapted"] {
            println!("  {model}: {}", ask(&engine, model, question)?);
        }
    }
    Ok(())
}

fn ask(engine: &NativeEngine, model: &str, question: &str) -> Result<String, Box<dyn Error>> {
    let message = Message { role: Role::User, content: question.into() };
    let prompt = Prompt::Chat(vec![message]);
    let request = Request { max_tokens: Some(100), ..Request::new(model, prompt) };
    let mut text = String::new();
    for event in block_on(engine.generate(request)?.collect::<Vec<_>>()) {
        match event {
            GenerationEvent::Token(token) => text.push_str(&token.text),
            GenerationEvent::Finished { tail, .. } => text.push_str(&tail),
            GenerationEvent::AdapterLost { reason } => return Err(reason.into()),
            GenerationEvent::Failed(error) => return Err(error.into()),
        }
    }
    Ok(text)
}
