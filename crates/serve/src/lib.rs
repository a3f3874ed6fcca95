//! OpenAI's routes over an [`Engine`]: `/v1/chat/completions`, `/v1/completions`, `/v1/models`,
//! `/health`.
//!
//! A completion that breaks is seen as broken: its stream carries an error event and then ends
//! without the last chunk, never with `[DONE]`. What a request asks for and this server cannot do is
//! an error, not left out in silence. Source of the shapes: OpenAI's API reference.

mod chunk;
mod error;
mod events;
mod fields;
mod gate;
mod limits;
mod listen;
mod parse;
mod routes;

pub use error::ApiError;
pub use limits::Limits;
pub use listen::{ServeError, serve};
pub use parse::{Parsed, chat as parse_chat, completion as parse_completion};
pub use routes::router;

use std::sync::Arc;

use confide_engine::Engine;

/// What a server is made of.
#[derive(Clone)]
pub struct Options {
    /// What completes the prompts.
    pub engine: Arc<dyn Engine>,
    /// The bounds of every door.
    pub limits: Limits,
    /// Unix seconds, for the `created` fields.
    pub clock: fn() -> u64,
}
