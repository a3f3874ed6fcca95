//! OpenAI's routes over an [`Engine`](confide_engine::Engine): `/v1/chat/completions`, `/v1/completions`, `/v1/models`,
//! `/health`; adapters by model name, loaded and unloaded as vLLM does. A caller may add routes of its
//! own ([`Options::extra_routes`]), which work on the same [`ServerState`].
//!
//! A completion that breaks is seen as broken: its stream carries an error event and then ends
//! without the last chunk, never with `[DONE]`. What a request asks for and this server cannot do is
//! an error, not left out in silence. Source of the shapes: OpenAI's API reference.

mod adapters;
mod body;
mod chunk;
mod clip;
mod counters;
mod detached;
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
pub use body::{json_response, read_body};
pub use chunk::Ending;
pub use confide_http::DrainOutcome;
pub use counters::{Counters, Meter};
pub use detached::drop_detached;
pub use error::ApiError;
pub use fields::Fields;
pub use gate::Slot;
pub use label::{label, lost_label};
pub use limits::Limits;
pub use listen::{HeldConnection, serve};
pub use pages::refuse_pages;
pub use parse::{ParsedRequest, parse_chat, parse_completion};
pub use routes::router;
pub use server_state::{ExtraRoutes, Options, ServerState, read_answer};
