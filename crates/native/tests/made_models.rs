//! Models made in a folder, loaded and asked, and folders that are not what they should be.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use confide_engine::text::FolderError;
use confide_engine::{
    Engine, EngineError, FinishReason, GenerationEvent, Message, Prompt, Request, Role, Usage,
};
use confide_native::{
    NativeEngine, NativeError, NativeOptions,
    make::{
        MakeProgress, ModelShape, ModelSpec, NO_WEIGHTS, make_model, make_model_without_weights,
    },
    manifest::Manifest,
};
use futures_executor::block_on;
use futures_util::StreamExt;

/// A folder under the build's own temporary one, removed when dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        Self(dir)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A tiny model whose training was cut short by nothing: made once for all tests that only read.
fn tiny() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny-model");
        let _ = fs::remove_dir_all(&dir);
        let order =
            ModelSpec { shape: ModelShape::Tiny, seed: 7, dir: dir.clone(), steps: Some(3) };
        make_model(&order, &mut |_| ControlFlow::Continue(())).expect("a model");
        dir
    })
}

fn copy_of_tiny(name: &str) -> Temporary {
    let copy = Temporary::new(name);
    for entry in fs::read_dir(tiny()).expect("the model") {
        let path = entry.expect("a file").path();
        fs::copy(&path, copy.0.join(path.file_name().expect("a name"))).expect("a copy");
    }
    copy
}

fn load(dir: &Path) -> Result<NativeEngine, NativeError> {
    NativeEngine::load(dir, NativeOptions { model_name: Some("tiny".into()) })
}

fn ask(text: &str) -> Request {
    let message = Message { role: Role::User, content: text.into() };
    Request {
        max_tokens: Some(12),
        ignore_eos: true,
        ..Request::new("tiny", Prompt::Chat(vec![message]))
    }
}

fn answer(engine: &NativeEngine, request: Request) -> (String, Vec<u32>, FinishReason, Usage) {
    let generation = engine.generate(request).expect("a generation");
    let (mut text, mut ids, mut end) = (String::new(), Vec::new(), None);
    for event in block_on(generation.collect::<Vec<_>>()) {
        match event {
            GenerationEvent::Token(token) => {
                ids.push(token.id);
                text.push_str(&token.text);
            }
            GenerationEvent::Finished { reason, tail, usage, .. } => {
                text.push_str(&tail);
                end = Some((reason, usage));
            }
            other => panic!("{other:?}"),
        }
    }
    let (reason, usage) = end.expect("an end");
    (text, ids, reason, usage)
}

#[test]
fn a_made_model_answers_and_counts_its_tokens() {
    let engine = load(tiny()).expect("a model");
    let (_, ids, reason, usage) = answer(&engine, ask("What is confide?"));
    assert_eq!((ids.len(), reason), (12, FinishReason::Length));
    assert_eq!(usage.completion_tokens, 12);
    assert_eq!(
        engine.count_prompt_tokens("tiny", &ask("What is confide?").prompt),
        Ok(usage.prompt_tokens)
    );
    let digest = engine.models()[0].manifest_sha256.clone().expect("a manifest");
    assert_eq!(digest.len(), 64);
}

#[test]
fn the_same_seed_samples_the_same_tokens() {
    let engine = load(tiny()).expect("a model");
    let sampled = |seed| {
        let mut request = ask("Hello!");
        request.sampling.temperature = 1.0;
        request.sampling.seed = seed;
        answer(&engine, request).1
    };
    assert_eq!(sampled(1), sampled(1));
    assert_ne!(sampled(1), sampled(2));
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let engine = load(tiny()).expect("a model");
    let (whole, ids, ..) = answer(&engine, ask("Who are you?"));
    let middle = whole.char_indices().nth(whole.chars().count() / 2).expect("some text").0;
    let stop = whole[middle..].to_owned();
    let first = whole.find(&stop).expect("it is there");
    let (cut, cut_ids, reason, usage) =
        answer(&engine, Request { stop: vec![stop], ..ask("Who are you?") });
    assert_eq!((cut.as_str(), reason), (&whole[..first], FinishReason::Stop));
    assert_eq!(cut_ids.len(), usage.completion_tokens as usize);
    assert!(cut_ids.len() <= ids.len());
}

#[test]
fn prompts_that_do_not_fit_are_refused() {
    let engine = load(tiny()).expect("a model");
    let long = engine.generate(ask(&"word ".repeat(600)));
    assert!(matches!(long, Err(EngineError::PromptTooLong { limit: 511, .. })));
    let empty = Request::new("tiny", Prompt::Text(String::new()));
    assert!(matches!(engine.generate(empty), Err(EngineError::Prompt { .. })));
    let other = Request::new("gpt", Prompt::Text("hi".into()));
    assert!(matches!(engine.generate(other), Err(EngineError::UnknownModel { .. })));
}

#[test]
fn a_changed_file_a_surplus_file_and_a_missing_one_are_found() {
    let copy = copy_of_tiny("changed");
    let weights = copy.0.join("model.safetensors");
    let mut bytes = fs::read(&weights).expect("weights");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&weights, &bytes).expect("a changed file");
    assert!(matches!(load(&copy.0), Err(NativeError::Folder(FolderError::Manifest { .. }))));

    let copy = copy_of_tiny("surplus");
    fs::write(copy.0.join("chat_template.jinja"), "{{ messages[0].content }}").expect("a file");
    assert!(matches!(load(&copy.0), Err(NativeError::Folder(FolderError::Manifest { .. }))));

    let copy = copy_of_tiny("missing");
    fs::remove_file(copy.0.join("tokenizer.json")).expect("it was there");
    assert!(matches!(load(&copy.0), Err(NativeError::Folder(FolderError::File { .. }))));
}

#[test]
fn a_truncated_safetensors_file_is_named_with_both_lengths() {
    let copy = copy_of_tiny("truncated");
    fs::remove_file(copy.0.join("manifest.json")).expect("it was there");
    let weights = copy.0.join("model.safetensors");
    let good = fs::read(&weights).expect("weights");
    for length in [good.len() - 2, good.len() / 2, 100, 4] {
        fs::write(&weights, &good[..length]).expect("a truncated file");
        match load(&copy.0) {
            Err(NativeError::Truncated { wanted, got, .. }) => {
                assert_eq!(got, length as u64);
                assert!(wanted > got && wanted <= good.len() as u64, "{wanted} of {length}");
            }
            other => panic!("{length}: {:?}", other.err()),
        }
    }
}

#[test]
fn files_that_are_no_model_are_errors_and_never_panics() {
    let copy = copy_of_tiny("broken");
    fs::remove_file(copy.0.join("manifest.json")).expect("it was there");
    assert_eq!(load(&copy.0).expect("a model").models()[0].manifest_sha256, None);
    let weights = copy.0.join("model.safetensors");
    let good = fs::read(&weights).expect("weights");
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut flipped = good.clone();
    flipped[40] ^= 0x20;
    for bad in [&good[..4], &good[..100], &good[..good.len() - 2], &huge, &flipped, b""] {
        fs::write(&weights, bad).expect("a bad file");
        assert!(load(&copy.0).is_err());
    }
    fs::write(&weights, &good).expect("the good file");
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    {
        let path = copy.0.join(name);
        let good = fs::read(&path).expect("a file");
        for bad in [&b"{"[..], b"[]", b"\"x\"", b"\xff\xfe"] {
            fs::write(&path, bad).expect("a bad file");
            assert!(load(&copy.0).is_err(), "{name}");
        }
        fs::write(&path, &good).expect("the good file");
    }
    assert!(load(&copy.0).is_ok());
}

#[test]
fn a_maker_that_is_stopped_leaves_nothing() {
    let parent = Temporary::new("stopped");
    for shape in [ModelShape::Tiny, ModelShape::Qwen25_1_5B] {
        let dir = parent.0.join("model");
        let order = ModelSpec { shape, seed: 1, dir, steps: Some(2) };
        let stopped = make_model(&order, &mut |progress| match progress {
            MakeProgress::Writing { done, .. } if done > 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert!(matches!(stopped, Err(NativeError::Cancelled)));
        assert_eq!(fs::read_dir(&parent.0).expect("the folder").count(), 0);
    }
}

#[test]
fn a_shape_without_weights_has_all_but_them_and_is_no_model_here() {
    let parent = Temporary::new("weightless");
    for shape in ModelShape::ALL {
        let dir = parent.0.join(shape.name());
        let made = make_model_without_weights(shape, &dir).expect("a folder");
        assert_eq!((made.weights.as_str(), made.shape.as_str()), (NO_WEIGHTS, shape.name()));
        assert!(made.files.iter().all(|entry| !entry.name.ends_with(".safetensors")));
        let (read, _) = Manifest::read(&dir).expect("readable").expect("there");
        read.check_files(&dir).expect("whole");
        assert!(matches!(load(&dir), Err(NativeError::Folder(FolderError::File { .. }))));
    }
}

#[test]
fn a_folder_that_is_not_empty_is_left_alone() {
    let parent = Temporary::new("occupied");
    fs::write(parent.0.join("letter.txt"), "dear").expect("a file");
    let order =
        ModelSpec { shape: ModelShape::Tiny, seed: 1, dir: parent.0.clone(), steps: Some(1) };
    let refused = make_model(&order, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(NativeError::Exists { .. })));
    assert!(parent.0.join("letter.txt").exists());
}

#[test]
fn the_same_seed_makes_the_same_files() {
    let parent = Temporary::new("repeated");
    let again = parent.0.join("again");
    let order = ModelSpec { shape: ModelShape::Tiny, seed: 7, dir: again.clone(), steps: Some(3) };
    make_model(&order, &mut |_| ControlFlow::Continue(())).expect("a model");
    let read = |dir: &Path| Manifest::read(dir).expect("readable").expect("there");
    assert_eq!(read(&again), read(tiny()));
}
