//! OpenAI's routes over an [`Engine`](confide_engine::Engine): `/v1/chat/completions`,
//! `/v1/completions`, `/v1/models`, `/health`; adapters by model name, which are loaded and
//! unloaded as in vLLM. A caller may add its own routes ([`ServeOptions::extra_routes`]), which
//! share the [`ServerState`].
//!
//! A broken completion is recognisable: its stream carries an error event and ends without the last
//! chunk and without `[DONE]`. A request for an unsupported feature is an error and never silently
//! ignored. The formats follow OpenAI's API reference.

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
    AdapterRegistry, AdapterSource, BaseModelMatch, LoadError, LoadedAdapter, NAME_BYTES_MAX,
    OpenedAdapter, Requester, SourceError,
};
pub use body::{json_response, read_body};
pub use chunk::AnswerEnding;
pub use confide_http::DrainOutcome;
pub use counters::{AnswerMeter, ServerCounters};
pub use detached::drop_detached;
pub use error::ApiError;
pub use fields::JsonFields;
pub use gate::Slot;
pub use label::{adapter_loss_json, adapter_report_json};
pub use limits::ServeLimits;
pub use listen::{ConnectionHandle, serve};
pub use pages::refuse_web_pages;
pub use parse::{ParsedRequest, parse_chat, parse_completion};
pub use routes::router;
pub use server_state::{ExtraRoutes, ServeOptions, ServerState, read_answer};
