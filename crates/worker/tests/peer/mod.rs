//! A worker that does as a test says, over a real socket; and a model's folder without a model.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use confide_engine::{Generation, GenerationEvent, Prompt, Request};
use confide_worker::{Worker, WorkerDeadlines, WorkerLaunch, WorkerOptions, kind};
use futures_util::StreamExt;
use serde_json::{Value, json};

/// Nothing here takes this long unless it hangs.
pub(crate) const GENEROUS: Duration = Duration::from_secs(20);

/// A folder with a tokenizer of words and a socket; removed at its end.
pub(crate) struct Place {
    folder: PathBuf,
    listener: UnixListener,
}

/// The words of the tokenizer, in the order of their numbers. The last one ends a text.
pub(crate) const WORDS: [&str; 8] =
    ["[UNK]", "zero", "one", "two", "three", "four", "five", "<end>"];
pub(crate) const END: u32 = 7;

impl Place {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("worker-peer-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("words")).expect("a folder");
        let write = |name: &str, value: Value| {
            std::fs::write(folder.join("words").join(name), value.to_string()).expect("a file");
        };
        let vocabulary: serde_json::Map<String, Value> =
            WORDS.iter().enumerate().map(|(id, word)| ((*word).into(), json!(id))).collect();
        write(
            "tokenizer.json",
            json!({
                "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
                "added_tokens": [{ "id": END, "content": "<end>", "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false, "special": true }],
                "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
                "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
            }),
        );
        write("config.json", json!({ "eos_token_id": END }));
        // A path of a socket is short.
        let socket = std::env::temp_dir().join(format!("cwp-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        Self { folder, listener }
    }

    pub(crate) fn options(&self, deadlines: WorkerDeadlines) -> WorkerOptions {
        let address = self.listener.local_addr().expect("an address");
        WorkerOptions {
            model: self.folder.join("words"),
            model_name: None,
            launch: WorkerLaunch::Socket(address.as_pathname().expect("a path").into()),
            deadlines,
        }
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> Peer {
        let until = Instant::now() + GENEROUS;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).expect("a stream");
                    stream.set_read_timeout(Some(GENEROUS)).expect("a stream");
                    return Peer { stream, later: VecDeque::new() };
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < until, "nobody connects");
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// An engine, and the worker that welcomed it.
    pub(crate) fn pair(&self, deadlines: WorkerDeadlines) -> (Worker, Peer) {
        let options = self.options(deadlines);
        let worker = std::thread::spawn(move || Worker::start(options));
        let mut peer = self.accept();
        peer.greet();
        (worker.join().expect("no panic").expect("a worker"), peer)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        if let Ok(address) = self.listener.local_addr()
            && let Some(path) = address.as_pathname()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Short waits, so that a test sees their end.
pub(crate) fn impatient() -> WorkerDeadlines {
    let short = Duration::from_millis(300);
    WorkerDeadlines {
        welcome: GENEROUS,
        load: GENEROUS,
        answer: GENEROUS,
        first_token: GENEROUS,
        silence: GENEROUS,
        cancel: GENEROUS,
        back_off: Duration::from_millis(10),
        back_off_max: Duration::from_millis(20),
        stop: short,
        ..WorkerDeadlines::default()
    }
}

pub(crate) fn welcome() -> Value {
    json!({
        "protocol": 1, "model": "words", "context_tokens": 64, "slots": 2, "queue": 2,
        "device": "cpu", "dtype": "f32", "weights": "random from seed 7", "vocabulary": 8,
        "sites": { "layers": 2, "widths": { "q": [4, 4], "v": [4, 2] } }, "versions": {},
    })
}

/// The worker's end of a connection.
pub(crate) struct Peer {
    stream: UnixStream,
    /// Frames that came before the one that was waited for.
    later: VecDeque<(u8, Vec<u8>)>,
}

impl Peer {
    pub(crate) fn greet(&mut self) {
        let (kind, payload) = self.frame();
        assert_eq!(kind, kind::HELLO);
        let hello: Value = serde_json::from_slice(&payload).expect("JSON");
        assert_eq!(hello, json!({ "protocol": 1, "vocabulary": 8 }));
        self.say(kind::WELCOME, &welcome());
    }

    /// The next frame.
    pub(crate) fn frame(&mut self) -> (u8, Vec<u8>) {
        if let Some(frame) = self.later.pop_front() {
            return frame;
        }
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("a frame");
        let mut frame = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut frame).expect("a whole frame");
        (frame[0], frame[1..].to_vec())
    }

    /// The next frame, which has to be of this kind and JSON.
    pub(crate) fn json(&mut self, wanted: u8) -> Value {
        let (kind, payload) = self.frame();
        assert_eq!(kind, wanted);
        serde_json::from_slice(&payload).expect("JSON")
    }

    /// The next order's id.
    pub(crate) fn next_order(&mut self) -> u32 {
        self.json(kind::GENERATE)["id"].as_u64().expect("an id") as u32
    }

    pub(crate) fn next_cancel(&mut self) -> u32 {
        let (kind, payload) = self.frame();
        assert_eq!(kind, kind::CANCEL);
        u32::from_le_bytes(payload.try_into().expect("an id"))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // The other end may have closed it, which is what some tests want.
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn say_bytes(&mut self, kind: u8, payload: &[u8]) {
        let mut bytes = (payload.len() as u32 + 1).to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend_from_slice(payload);
        self.write(&bytes);
    }

    pub(crate) fn say(&mut self, kind: u8, value: &Value) {
        self.say_bytes(kind, value.to_string().as_bytes());
    }

    pub(crate) fn tokens(&mut self, tokens: &[(u32, u32)]) {
        let mut payload = (tokens.len() as u16).to_le_bytes().to_vec();
        for (id, token) in tokens {
            payload.extend_from_slice(&id.to_le_bytes());
            payload.extend_from_slice(&token.to_le_bytes());
        }
        self.say_bytes(kind::TOKENS, &payload);
    }

    pub(crate) fn send_end(&mut self, id: u32, reason: &str) {
        self.say(kind::ENDED, &json!({ "id": id, "reason": reason, "usage": {} }));
    }

    pub(crate) fn send_failure(&mut self, id: u32, kind: &str, message: &str) {
        let error = json!({ "kind": kind, "message": message });
        let value = json!({ "id": id, "reason": "failed", "error": error, "usage": {} });
        self.say(kind::ENDED, &value);
    }

    /// Whether the other end has closed the connection; frames that it sent before are passed over.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok()
    }
}

pub(crate) fn request(model: &str) -> Request {
    let mut request = Request::new(model, Prompt::Text("one two".into()));
    request.max_tokens = Some(8);
    request
}

/// Reads a generation to its end; fails if that does not come.
pub(crate) fn events(generation: Generation) -> Vec<GenerationEvent> {
    let (sender, whole) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(futures_executor::block_on(generation.collect::<Vec<_>>()));
    });
    whole.recv_timeout(GENEROUS).expect("the generation ends")
}

pub(crate) fn text(events: &[GenerationEvent]) -> String {
    let text = events.iter().map(|event| match event {
        GenerationEvent::Token(token) => token.text.to_string(),
        GenerationEvent::Finished { tail, .. } => tail.clone(),
        _ => String::new(),
    });
    text.collect()
}

/// Waits until `holds`.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + GENEROUS;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
