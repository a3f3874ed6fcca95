//! OpenAI's routes over an [`Engine`]: `/v1/chat/completions`, `/v1/completions`, `/v1/models`,
//! `/health`; adapters by model name, loaded and unloaded as vLLM does; and report 003's routes under
//! `/api/v1` as a compatibility layer.
//!
//! A completion that breaks is seen as broken: its stream carries an error event and then ends
//! without the last chunk, never with `[DONE]`. What a request asks for and this server cannot do is
//! an error, not left out in silence. Source of the shapes: OpenAI's API reference.

mod adapters;
mod apart;
mod body;
mod chunk;
mod clip;
mod converse;
mod counters;
mod error;
mod events;
mod fields;
mod gate;
mod label;
mod limits;
mod listen;
mod loading;
mod pages;
mod parse;
pub mod privacy;
mod routes;
mod seed;
mod site;

pub use adapters::{
    AdapterSource, Adapters, AskedBy, BaseCheck, LoadError, Loaded, NAME_BYTES_MAX, Opened,
    SourceError,
};
pub use converse::{Complete, Ended, Head, LateHead, Read, Step, converse};
pub use error::ApiError;
pub use limits::Limits;
pub use listen::{ServeError, serve};
pub use parse::{Parsed, chat as parse_chat, completion as parse_completion};
pub use routes::router;
pub use seed::frame;

use std::sync::Arc;

use confide_engine::Engine;
use http::HeaderValue;

/// What a server is made of.
#[derive(Clone)]
pub struct Options {
    /// What completes the prompts.
    pub engine: Arc<dyn Engine>,
    /// The bounds of every door.
    pub limits: Limits,
    /// Unix seconds, for the `created` fields.
    pub clock: fn() -> u64,
    /// The adapters that requests may name.
    pub adapters: Arc<Adapters>,
    /// The client's half of split mode, for the self-test and for clients without a tokenizer.
    pub head: Option<Arc<LateHead>>,
    /// Web origins whose pages may send requests and open WebSockets; by default none.
    pub origins: Vec<HeaderValue>,
}

impl Options {
    /// An engine without adapters, under the usual limits.
    pub fn new(engine: Arc<dyn Engine>, clock: fn() -> u64) -> Self {
        let adapters = Arc::new(Adapters::none(Arc::clone(&engine)));
        Self { engine, limits: Limits::default(), clock, adapters, head: None, origins: Vec::new() }
    }
}
