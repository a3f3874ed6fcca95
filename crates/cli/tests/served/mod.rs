//! A tiny model with two adapters, made once for all tests of this program; the program's processes;
//! and an HTTP client.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use confide_engine::{AdapterLossPolicy, Engine, GenerationEvent, Message, Prompt, Request, Role};
use confide_lora::{Adapter, plain};
use confide_native::{
    NativeEngine, NativeOptions,
    make::{self, AdapterTrainingSpec, Corpus, ModelShape, ModelSpec},
};
use confide_tests::{Folder, Program};
use futures_util::StreamExt;
use serde_json::{Value, json};

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(120);
pub(crate) const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
const ANSWER_TOKENS: u32 = 12;

/// A folder of one test, with the model and both adapters; removed at its end.
pub(crate) struct Place {
    folder: Folder,
}

/// What is made once: the model, and what each adapter says in the clear.
struct Models {
    folder: PathBuf,
    plainly: [String; 2],
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let made = models();
        let folder = Folder::new(name);
        copy(&made.folder, folder.path());
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.path("model")
    }

    pub(crate) fn adapter(&self, name: &str) -> PathBuf {
        self.path(name)
    }

    /// What plain LoRA says to the question with this number, by the adapter with this number.
    pub(crate) fn plainly(&self, index: usize) -> &str {
        &models().plainly[index]
    }
}

fn models() -> &'static Models {
    static MADE: OnceLock<Models> = OnceLock::new();
    MADE.get_or_init(|| {
        // Nothing removes it at the end, so the next run does.
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!(env!("CARGO_CRATE_NAME"), "-made"));
        let _ = std::fs::remove_dir_all(&folder);
        let model = folder.join("model");
        std::fs::create_dir_all(&folder).unwrap();
        // Few steps: its words mean nothing, but they are its own.
        let order =
            ModelSpec { shape: ModelShape::Tiny, seed: 7, dir: model.clone(), steps: Some(12) };
        make::make_model(&order, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        let native = NativeEngine::load(&model, NativeOptions::default()).unwrap();
        let plainly = [0, 1].map(|index| {
            let name = super::NAMES[index];
            let adapter = Arc::new(adapter(&folder, &model, index));
            let plain = Arc::new(plain::LocalAdapter::new(adapter));
            native.load_adapter(name, plain, AdapterLossPolicy::Fail).unwrap();
            answer(&native, name, super::QUESTIONS[index])
        });
        Models { folder, plainly }
    })
}

/// An adapter whose answers differ from the base model's: trained for a moment, then made louder.
fn adapter(folder: &Path, model: &Path, index: usize) -> Adapter {
    let dir = folder.join("short");
    let order = AdapterTrainingSpec {
        model: model.into(),
        corpus: Corpus::ALL[index].clone(),
        dir: dir.clone(),
        rank: 4,
        alpha: 8.0,
        steps: Some(2),
        seed: 7,
    };
    let trained = make::make_adapter(&order, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    let mut adapter = trained.adapter;
    for pair in adapter.modules.values_mut() {
        pair.b.values.iter_mut().for_each(|value| *value *= 60.0);
    }
    adapter.save(folder.join(super::NAMES[index])).unwrap();
    Adapter::load(folder.join(super::NAMES[index])).unwrap()
}

fn answer(native: &NativeEngine, model: &str, question: &str) -> String {
    let message = Message { role: Role::User, content: question.into() };
    let mut request = Request::new(model, Prompt::Chat(vec![message]));
    request.max_tokens = Some(ANSWER_TOKENS);
    let mut generation = native.generate(request).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut text = String::new();
        while let Some(event) = generation.next().await {
            match event {
                GenerationEvent::Token(token) => text += &token.text,
                GenerationEvent::Finished { tail, .. } => return text + &tail,
                other => panic!("{other:?}"),
            }
        }
        panic!("it has no end")
    })
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The text of a streamed chat, and the label at its end.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) label: Value,
}

pub(crate) fn chat(address: &str, model: &str, question: &str) -> Answer {
    let body = json!({ "model": model, "stream": true, "temperature": 0,
        "max_tokens": ANSWER_TOKENS, "messages": [{ "role": "user", "content": question }] });
    let mut lines = stream_lines(address, &body);
    let (mut text, mut label, mut whole, mut line) =
        (String::new(), Value::Null, String::new(), String::new());
    while lines.read_line(&mut line).unwrap() > 0 {
        whole += &line;
        if let Some(event) = line.strip_prefix("data: ")
            && let Ok(event) = serde_json::from_str::<Value>(event)
        {
            text += event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            if event["confide"].is_object() {
                label = event["confide"].clone();
            }
        }
        line.clear();
    }
    assert!(whole.contains("[DONE]"), "{whole}");
    Answer { text, label }
}

/// The lines of a streamed chat, chunk sizes among them.
pub(crate) fn stream_lines(address: &str, body: &Value) -> BufReader<TcpStream> {
    BufReader::new(ask(address, "POST", "/v1/chat/completions", &body.to_string()))
}

pub(crate) fn post(address: &str, path: &str, body: &Value) -> (u16, String) {
    exchange(address, "POST", path, &body.to_string())
}

pub(crate) fn fetch(address: &str, path: &str) -> Value {
    let (status, body) = exchange(address, "GET", path, "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn exchange(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut answer = String::new();
    ask(address, method, path, body).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

fn ask(address: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}
