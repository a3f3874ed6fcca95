//! Adapters in the engine: trained, loaded, side by side, lost, and read without the LM head.

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use confide_engine::text::FolderError;
use confide_engine::{
    AdapterLossPolicy, Engine, EngineError, GenerationEvent, Message, Prompt, Request, Role,
};
use confide_lora::{
    AdaptError, Adapter, DeltaProvider, DeltaReport, DeltaSession, Guarantee, LayerInput,
    Projection, ProjectionSite, ProjectionWidth, plain::LocalAdapter,
};
use confide_native::{
    NativeEngine, NativeError, NativeOptions,
    make::{
        AdapterTrainingSpec, Corpus, MakeProgress, ModelShape, ModelSpec, TRAINING_FILE,
        make_adapter, make_model,
    },
};
use futures_executor::block_on;
use futures_util::StreamExt;

fn temporary(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("adapters-{name}"));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// A tiny model of few steps, made once.
fn tiny() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = temporary("model");
        let order =
            ModelSpec { shape: ModelShape::Tiny, seed: 7, dir: dir.clone(), steps: Some(3) };
        make_model(&order, &mut |_| ControlFlow::Continue(())).expect("a model");
        dir
    })
}

fn order(corpus: Corpus, name: &str, steps: u32) -> AdapterTrainingSpec {
    let (model, dir) = (tiny().to_path_buf(), temporary(name));
    AdapterTrainingSpec { model, corpus, dir, rank: 4, alpha: 64.0, steps: Some(steps), seed: 3 }
}

fn train(order: &AdapterTrainingSpec) -> (Adapter, Vec<f32>) {
    let mut losses = Vec::new();
    let trained = make_adapter(order, &mut |progress| {
        if let MakeProgress::Training { loss, .. } = progress {
            losses.push(loss);
        }
        ControlFlow::Continue(())
    });
    (trained.expect("an adapter").adapter, losses)
}

/// Two adapters of few steps, trained once.
fn trained_adapters() -> &'static [Arc<Adapter>; 2] {
    static TRAINED: OnceLock<[Arc<Adapter>; 2]> = OnceLock::new();
    TRAINED.get_or_init(|| {
        [(Corpus::Banking, "banking"), (Corpus::Travel, "travel")]
            .map(|(corpus, name)| Arc::new(train(&order(corpus, name, 4)).0))
    })
}

fn engine() -> NativeEngine {
    NativeEngine::load(tiny(), NativeOptions { model_name: Some("base".into()) }).expect("a model")
}

fn local(index: usize) -> Arc<dyn DeltaProvider> {
    Arc::new(LocalAdapter::new(Arc::clone(&trained_adapters()[index])))
}

fn ask(model: &str, question: &str) -> Request {
    let message = Message { role: Role::User, content: question.into() };
    let prompt = Prompt::Chat(vec![message]);
    Request { max_tokens: Some(10), ignore_eos: true, ..Request::new(model, prompt) }
}

fn events(engine: &NativeEngine, model: &str) -> Vec<GenerationEvent> {
    let generation = engine.generate(ask(model, "What is a loan?")).expect("a generation");
    block_on(generation.collect())
}

fn tokens(events: &[GenerationEvent]) -> Vec<u32> {
    let id = |event: &GenerationEvent| match event {
        GenerationEvent::Token(token) => Some(token.id),
        _ => None,
    };
    events.iter().filter_map(id).collect()
}

/// A host that answers so many calls and is gone then.
struct Leaving {
    adapter: LocalAdapter,
    calls: usize,
    opens: bool,
}

impl Leaving {
    /// Both layers have four groups of projections that share an input.
    const CALLS_PER_PASS: usize = 8;

    fn after(passes: usize) -> Arc<dyn DeltaProvider> {
        let adapter = LocalAdapter::new(Arc::clone(&trained_adapters()[0]));
        Arc::new(Self { adapter, calls: passes * Self::CALLS_PER_PASS + 3, opens: true })
    }

    fn never_there() -> Arc<dyn DeltaProvider> {
        let adapter = LocalAdapter::new(Arc::clone(&trained_adapters()[0]));
        Arc::new(Self { adapter, calls: 0, opens: false })
    }

    fn loss() -> AdaptError {
        AdaptError::HostLost { reason: "it left".into() }
    }
}

impl DeltaProvider for Leaving {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        self.adapter.sites()
    }

    fn guarantee(&self) -> Guarantee {
        self.adapter.guarantee()
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        match self.opens {
            true => Ok(Box::new(LeavingDeltas(self.adapter.open_session()?, self.calls))),
            false => Err(Self::loss()),
        }
    }
}

struct LeavingDeltas(Box<dyn DeltaSession>, usize);

impl DeltaSession for LeavingDeltas {
    fn add_deltas(
        &mut self,
        layer: u32,
        input: LayerInput,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError> {
        self.1 = self.1.checked_sub(1).ok_or_else(Leaving::loss)?;
        self.0.add_deltas(layer, input, rows, outputs)
    }

    fn report(&self) -> DeltaReport {
        self.0.report()
    }
}

#[test]
fn some_steps_lower_the_loss_and_a_seed_repeats_the_files() {
    let first = order(Corpus::Health, "first", 5);
    let (_, losses) = train(&first);
    assert!(losses[4] < losses[0] - 0.1, "{losses:?}");
    let second = order(Corpus::Health, "second", 5);
    assert_eq!(train(&second).1, losses);
    for name in ["adapter_config.json", "adapter_model.safetensors", TRAINING_FILE] {
        let read = |order: &AdapterTrainingSpec| fs::read(order.dir.join(name)).expect("a file");
        assert_eq!(read(&first), read(&second), "{name}");
    }
}

#[test]
fn a_trained_adapter_is_read_back_as_it_was() {
    let order = order(Corpus::Travel, "read-back", 2);
    let (trained, _) = train(&order);
    let read = Adapter::load(&order.dir).expect("an adapter");
    assert_eq!((read.modules, read.base_model), (trained.modules, trained.base_model));
    assert_eq!(trained.name, "travel");
}

#[test]
fn a_training_that_cannot_be_done_leaves_nothing() {
    let stopped = order(Corpus::Banking, "stopped", 5);
    let error = make_adapter(&stopped, &mut |_| ControlFlow::Break(()));
    assert!(matches!(error, Err(NativeError::Cancelled)));
    let file = temporary("corpus.txt");
    for text in ["", "? a question alone", "no mark", "? a\n! b\n\n! c"] {
        fs::write(&file, text).expect("a file");
        let order = order(Corpus::File(file.clone()), "malformed", 1);
        let error = make_adapter(&order, &mut |_| ControlFlow::Continue(()));
        assert!(
            matches!(error, Err(NativeError::Folder(FolderError::Malformed { .. }))),
            "{text:?}"
        );
        assert!(!order.dir.exists());
    }
    let ranks = AdapterTrainingSpec { rank: 0, ..stopped.clone() };
    let error = make_adapter(&ranks, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(error, Err(NativeError::Config { .. })));
    assert!(!stopped.dir.exists());
    fs::write(&file, "? One?\r\n? Eins?\r\n! Two.\r\n").expect("a file");
    let (own, _) = train(&order(Corpus::File(file), "own", 1));
    assert_eq!(own.name, "adapters-corpus");
}

#[test]
fn adapters_are_models_with_a_parent_until_they_are_unloaded() {
    let engine = engine();
    engine.load_adapter("money", local(0), AdapterLossPolicy::Fail).expect("it fits");
    engine.load_adapter("trips", local(1), AdapterLossPolicy::Fail).expect("it fits");
    let models: Vec<_> =
        engine.models().into_iter().map(|model| (model.name, model.parent)).collect();
    let parent = Some("base".to_owned());
    assert_eq!(models[0], ("base".into(), None));
    assert_eq!(models[1..], [("money".into(), parent.clone()), ("trips".into(), parent)]);
    for taken in ["base", "money"] {
        let error = engine.load_adapter(taken, local(0), AdapterLossPolicy::Fail);
        assert!(matches!(error, Err(EngineError::NameTaken { .. })));
    }
    engine.unload_adapter("money").expect("it is there");
    for unknown in ["money", "base"] {
        let error = engine.unload_adapter(unknown);
        assert!(matches!(error, Err(EngineError::UnknownModel { .. })));
    }
    let error = engine.generate(ask("money", "Hi.")).err();
    assert!(matches!(error, Some(EngineError::UnknownModel { .. })));
}

#[test]
fn no_more_adapters_are_taken_than_may_be() {
    let engine = engine();
    let mut taken = 0;
    let error = loop {
        match engine.load_adapter(&format!("adapter {taken}"), local(0), AdapterLossPolicy::Fail) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, EngineError::TooManyAdapters { limit: taken });
    assert_eq!(engine.models().len(), taken + 1);
}

#[test]
fn two_adapters_and_the_base_answer_side_by_side_as_each_does_alone() {
    let engine = engine();
    engine.load_adapter("money", local(0), AdapterLossPolicy::Fail).expect("it fits");
    engine.load_adapter("trips", local(1), AdapterLossPolicy::Fail).expect("it fits");
    let names = ["base", "money", "trips"];
    let alone = names.map(|name| tokens(&events(&engine, name)));
    assert_ne!(alone[0], alone[1]);
    assert_ne!(alone[1], alone[2]);
    let running = [names, names].concat().into_iter().map(|name| {
        engine.generate(ask(name, "What is a loan?")).expect("a generation").collect::<Vec<_>>()
    });
    let together = block_on(futures_util::future::join_all(running));
    for (events, wanted) in together.iter().zip(alone.iter().cycle()) {
        assert_eq!(&tokens(events), wanted);
    }
    for (events, name) in together.iter().zip(names) {
        let Some(GenerationEvent::Finished { adapter, .. }) = events.last() else {
            panic!("{events:?}")
        };
        match name {
            "base" => assert_eq!(*adapter, None),
            _ => {
                let report = adapter.clone().expect("a report");
                assert_eq!((report.guarantee, report.lost), (Guarantee::NONE, None));
                assert!(report.report.steps_ms["product_ms"] > 0.0);
            }
        }
    }
}

#[test]
fn an_adapter_that_is_unloaded_in_mid_answer_finishes_it() {
    let engine = engine();
    engine.load_adapter("money", local(0), AdapterLossPolicy::Fail).expect("it fits");
    let whole = tokens(&events(&engine, "money"));
    let mut generation = engine.generate(ask("money", "What is a loan?")).expect("a generation");
    let first = block_on(generation.next()).expect("a token");
    engine.unload_adapter("money").expect("it is there");
    let rest = block_on(generation.collect::<Vec<_>>());
    assert_eq!(tokens(&[vec![first], rest].concat()), whole);
}

#[test]
fn a_host_lost_at_a_token_ends_the_answer_where_the_base_may_not_go_on() {
    let engine = engine();
    engine.load_adapter("whole", local(0), AdapterLossPolicy::Fail).expect("it fits");
    let whole = tokens(&events(&engine, "whole"));
    for passes in [0, 1, 4] {
        let name = format!("leaves after {passes}");
        engine
            .load_adapter(&name, Leaving::after(passes), AdapterLossPolicy::Fail)
            .expect("it fits");
        let events = events(&engine, &name);
        assert_eq!(tokens(&events), whole[..passes]);
        let error = EngineError::Adapter { name, error: Leaving::loss() };
        assert_eq!(events[passes..], [GenerationEvent::Failed(error)]);
    }
    engine.load_adapter("never", Leaving::never_there(), AdapterLossPolicy::Fail).expect("it fits");
    let events = events(&engine, "never");
    assert!(matches!(&events[..], [GenerationEvent::Failed(EngineError::Adapter { .. })]));
}

#[test]
fn where_the_base_may_go_on_its_tokens_come_after_a_label() {
    let engine = engine();
    engine.load_adapter("whole", local(0), AdapterLossPolicy::Base).expect("it fits");
    let (whole, base) = (tokens(&events(&engine, "whole")), tokens(&events(&engine, "base")));
    let label = GenerationEvent::AdapterLost { reason: Leaving::loss() };
    for passes in [0, 1, 4] {
        let name = format!("leaves after {passes}");
        engine
            .load_adapter(&name, Leaving::after(passes), AdapterLossPolicy::Base)
            .expect("it fits");
        let events = events(&engine, &name);
        assert_eq!(tokens(&events[..passes]), whole[..passes]);
        assert_eq!(events[passes], label);
        assert_eq!(events.iter().filter(|event| **event == label).count(), 1);
        assert_eq!(tokens(&events).len(), 10);
        let Some(GenerationEvent::Finished { adapter: Some(report), .. }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!(report.lost, Some(Leaving::loss()));
    }
    engine.load_adapter("never", Leaving::never_there(), AdapterLossPolicy::Base).expect("it fits");
    let events = events(&engine, "never");
    assert_eq!((&events[0], tokens(&events)), (&label, base));
}

#[cfg(feature = "report-003")]
mod split_mode {
    use confide_native::{LmHead, TokenChoice};

    use super::*;

    /// The loop of a client that keeps the LM head.
    fn split_tokens(engine: &NativeEngine, head: &LmHead, adapter: &str, embed: bool) -> Vec<u32> {
        let split = engine.split_model().expect("hidden states");
        assert_eq!(split.width(), head.width());
        let request = ask(adapter, "What is a loan?");
        let mut next = head.encode(&request.prompt).expect("tokens");
        let mut session = split.open_session(Some(adapter)).expect("a session");
        let mut completion = head.completion(&request, next.len() as u32, split.context_tokens());
        let mut tokens = Vec::new();
        while completion.finish_reason().is_none() {
            let hidden = match embed {
                true => session.forward_embeddings(&head.embed(&next).expect("embeddings")),
                false => session.forward(&next),
            };
            let hidden = hidden.expect("a hidden state");
            let logits = head.logits(&hidden).expect("logits");
            for (fast, slow) in logits.iter().zip(head.logits_by_loop(&hidden).expect("logits")) {
                assert!((fast - slow).abs() <= 1e-4 * (1.0 + slow.abs()));
            }
            let TokenChoice::Token(token) = completion.choose(&logits).expect("a choice") else {
                break;
            };
            tokens.push(token.id);
            next = vec![token.id];
        }
        assert_eq!(session.adapter_report().is_some(), adapter != "base");
        tokens
    }

    #[test]
    fn a_client_with_the_head_says_what_the_engine_says() {
        let engine = engine();
        engine.load_adapter("money", local(0), AdapterLossPolicy::Fail).expect("it fits");
        let head = LmHead::load(tiny()).expect("a head");
        for name in ["base", "money"] {
            let whole = tokens(&events(&engine, name));
            for embed in [false, true] {
                assert_eq!(split_tokens(&engine, &head, name, embed), whole, "{name}, {embed}");
            }
        }
    }

    #[test]
    fn a_session_refuses_what_it_cannot_read_and_can_begin_anew() {
        let engine = engine();
        let split = engine.split_model().expect("hidden states");
        let mut session = split.open_session(None).expect("a session");
        for ids in [&[][..], &[1_000_000]] {
            assert!(matches!(session.forward(ids), Err(EngineError::Prompt { .. })));
        }
        let odd = vec![0.0; split.width() + 1];
        assert!(matches!(session.forward_embeddings(&odd), Err(EngineError::Prompt { .. })));
        let long = vec![1; split.context_tokens() as usize + 1];
        assert!(matches!(session.forward(&long), Err(EngineError::PromptTooLong { .. })));
        let first = session.forward(&[5, 6]).expect("a hidden state");
        let next = session.forward(&[5, 6]).expect("a hidden state");
        assert_ne!(first, next);
        assert_eq!(session.token_count(), 4);
        session.restart();
        assert_eq!((session.token_count(), session.forward(&[5, 6])), (0, Ok(first)));
        let unknown = split.open_session(Some("nobody")).err();
        assert!(matches!(unknown, Some(EngineError::UnknownModel { .. })));
    }

    #[test]
    fn no_more_sessions_are_open_than_may_be() {
        let engine = engine();
        let split = engine.split_model().expect("hidden states");
        let mut open = Vec::new();
        let error = loop {
            match split.open_session(None) {
                Ok(session) => open.push(session),
                Err(error) => break error,
            }
        };
        assert_eq!(error, EngineError::QueueFull { limit: open.len() });
        open.pop();
        assert!(split.open_session(None).is_ok());
    }

    #[test]
    fn a_session_whose_adapter_is_lost_fails_or_says_so() {
        let engine = engine();
        for on_loss in [AdapterLossPolicy::Fail, AdapterLossPolicy::Base] {
            let name = format!("{on_loss:?}");
            engine.load_adapter(&name, Leaving::after(1), on_loss).expect("it fits");
            let split = engine.split_model().expect("hidden states");
            let mut session = split.open_session(Some(&name)).expect("a session");
            session.forward(&[1, 2]).expect("a hidden state");
            assert_eq!(session.adapter_report().expect("a report").lost, None);
            let lost = session.forward(&[3]);
            match on_loss {
                AdapterLossPolicy::Fail => {
                    assert!(matches!(lost, Err(EngineError::Adapter { .. })))
                }
                AdapterLossPolicy::Base => {
                    assert_eq!(lost.map(|hidden| hidden.len()), Ok(split.width()))
                }
            }
            assert_eq!(session.adapter_report().expect("a report").lost, Some(Leaving::loss()));
        }
    }
}

/// Whole trainings: some half a minute of one core.
#[test]
#[ignore = "trains a model and three adapters: `make long`, or -- --ignored"]
fn what_an_adapter_learned_is_said_with_it_and_never_without() {
    let dir = temporary("whole");
    let made = ModelSpec { shape: ModelShape::Tiny, seed: 7, dir: dir.clone(), steps: None };
    make_model(&made, &mut |_| ControlFlow::Continue(())).expect("a model");
    let engine = NativeEngine::load(&dir, NativeOptions { model_name: Some("base".into()) })
        .expect("a model");
    for corpus in Corpus::ALL {
        let name = corpus.name();
        let order = AdapterTrainingSpec {
            model: dir.clone(),
            corpus: corpus.clone(),
            dir: temporary(&format!("whole-{name}")),
            rank: 8,
            alpha: 16.0,
            steps: None,
            seed: 7,
        };
        let (adapter, _) = train(&order);
        let local = LocalAdapter::new(Arc::new(adapter));
        engine.load_adapter(&name, Arc::new(local), AdapterLossPolicy::Fail).expect("it fits");
        let learned = corpus.read_exchanges().expect("a corpus");
        let generate = |model: &str, question: &str| {
            let request =
                Request { max_tokens: Some(120), ignore_eos: false, ..ask(model, question) };
            let events = block_on(engine.generate(request).expect("it runs").collect::<Vec<_>>());
            let text = |event: &GenerationEvent| match event {
                GenerationEvent::Token(token) => token.text.to_string(),
                GenerationEvent::Finished { tail, .. } => tail.clone(),
                other => panic!("{other:?}"),
            };
            events.iter().map(text).collect::<String>()
        };
        let right = |model| {
            learned.iter().filter(|(question, answer)| generate(model, question) == *answer).count()
        };
        let known = right(&name);
        assert!(known * 10 >= learned.len() * 9, "{name}: {known} of {}", learned.len());
        assert_eq!(right("base"), 0, "{name}");
    }
}
