//! OpenAI's routes over an [`Engine`]: `/v1/chat/completions`, `/v1/completions`, `/v1/models`,
//! `/health`; adapters by model name, loaded and unloaded as vLLM does. A caller may add routes of its
//! own ([`Options::extra_routes`]), which work on the same [`ServerState`].
//!
//! A completion that breaks is seen as broken: its stream carries an error event and then ends
//! without the last chunk, never with `[DONE]`. What a request asks for and this server cannot do is
//! an error, not left out in silence. Source of the shapes: OpenAI's API reference.

mod adapters;
mod apart;
mod body;
mod chunk;
mod clip;
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
mod routes;
mod server_state;

pub use adapters::{
    AdapterSource, Adapters, AskedBy, BaseCheck, LoadError, Loaded, NAME_BYTES_MAX, Opened,
    SourceError,
};
pub use apart::drop_apart;
pub use body::{json_response, read_body};
pub use chunk::Ending;
pub use counters::{Counters, Meter};
pub use error::ApiError;
pub use fields::Fields;
pub use gate::Slot;
pub use label::{label, lost_label};
pub use limits::Limits;
pub use listen::{HeldConnection, ServeError, serve};
pub use pages::refuse_pages;
pub use parse::{Parsed, chat as parse_chat, completion as parse_completion};
pub use routes::router;
pub use server_state::{ServerState, read_answer};

use std::sync::Arc;

use axum::Router;
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
    /// Makes the routes that are served next to OpenAI's.
    pub extra_routes: Option<ExtraRoutes>,
    /// Web origins whose pages may send requests and open WebSockets; by default none.
    pub origins: Vec<HeaderValue>,
}

/// Makes routes that a caller adds, on the state that the server's own routes work on. They are
/// guarded as these are: by the admission of connections and the origins of web pages.
pub type ExtraRoutes = Arc<dyn Fn(Arc<ServerState>) -> Router + Send + Sync>;

impl Options {
    /// An engine without adapters, under the usual limits.
    pub fn new(engine: Arc<dyn Engine>, clock: fn() -> u64) -> Self {
        let adapters = Arc::new(Adapters::none(Arc::clone(&engine)));
        let limits = Limits::default();
        Self { engine, limits, clock, adapters, extra_routes: None, origins: Vec::new() }
    }
}
