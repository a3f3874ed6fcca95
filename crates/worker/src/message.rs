//! The messages in the frames of docs/worker.md.

use std::collections::BTreeMap;

use confide_engine::Sampling;
use confide_lora::{AdaptError, LayerInput, Projection, ProjectionSite, ProjectionWidth};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::{
    frame::{FRAME_BYTES_MAX, Frame, FrameError, kind},
    sites::{self, ModelSites},
};

/// The version of the protocol.
pub(crate) const PROTOCOL: u32 = 1;

/// The longest text of the worker that is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 2048;

/// A message from the worker.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerMessage {
    /// The worker's description of itself, which answers the hello.
    Welcome(Box<Welcome>),
    /// The tokens of one step: pairs of a generation's id and a token.
    Tokens(Vec<(u32, u32)>),
    /// The end of a generation.
    End(Box<GenerationEnd>),
    /// The input of a layer, for an adapter at this end (`need` in docs/worker.md).
    DeltaRequest(DeltaRequest),
    /// The answer to a load or an unload.
    Adapter(AdapterAnswer),
    /// The worker's report on its use of resources.
    Status(Value),
    /// The refusal of a generation before its start.
    Refused {
        /// Id of the generation.
        id: u32,
        /// The reason for the refusal.
        error: WorkerFault,
    },
}

/// The worker's description of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// The name of the model.
    pub model: String,
    /// The longest prompt and completion together, in tokens.
    pub context_tokens: u32,
    /// The number of generations that run at once.
    pub slots: u32,
    /// The number of generations that may wait for a slot.
    pub queue: u32,
    /// The device of the model, as the worker names it.
    pub device: String,
    /// The number type of the weights.
    pub dtype: String,
    /// The origin of the weights: `safetensors …`, or `random from seed N`.
    pub weights: String,
    /// The number of rows of the output matrix.
    pub vocabulary: u32,
    /// The model's projections.
    pub sites: ModelSites,
    /// The versions of the libraries that the worker uses, by name.
    pub versions: BTreeMap<String, String>,
}

/// The end of a generation (`ended` in docs/worker.md).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GenerationEnd {
    /// Id of the generation.
    pub id: u32,
    /// The reason for the end, from the fields `reason` and `error` of the message.
    #[serde(flatten)]
    pub reason: EndReason,
    /// The adapter's report, as the worker sent it; null if there is none.
    #[serde(default)]
    pub adapter: Value,
}

/// The reason why a generation ended. Only `Failed` has an error.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "reason", content = "error", rename_all = "snake_case")]
pub enum EndReason {
    /// The completion has its full length.
    Length,
    /// The model ended the answer.
    Stop,
    /// The generation was cancelled.
    Cancelled,
    /// The generation failed.
    Failed(WorkerFault),
}

/// An error that the worker reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct WorkerFault {
    /// The kind of the error: `out_of_memory`, `adapter`, `prompt_too_long`, `internal`,
    /// `queue_full`, `unknown_adapter` or `malformed`.
    #[serde(deserialize_with = "deserialize_printable")]
    pub kind: String,
    /// The error message, for people.
    #[serde(default, deserialize_with = "deserialize_printable")]
    pub message: String,
    /// The cause of an adapter's error: `host_lost`, `refused`, `budget` or `activation`.
    pub cause: Option<String>,
}

/// A request for deltas: the input of a layer, and the outputs of the base model's projections.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaRequest {
    /// Id of the generation.
    pub id: u32,
    /// The number of the layer.
    pub layer: u32,
    /// The input that the projections read.
    pub source: LayerInput,
    /// The width of an input vector, in elements.
    pub width: usize,
    /// The input vectors, `width` elements each, concatenated.
    pub rows: Vec<f32>,
    /// The projections whose outputs are requested.
    pub outputs: Vec<Projection>,
    /// The outputs of these projections, concatenated; their widths are those of the adapter's
    /// sites.
    pub values: Vec<f32>,
}

/// The answer to a load or an unload.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterAnswer {
    /// The name of the adapter.
    pub name: String,
    /// The reason why the worker refused; `None` if it succeeded.
    pub error: Option<String>,
    /// After a load, the projections that the adapter changes.
    pub sites: Option<BTreeMap<ProjectionSite, ProjectionWidth>>,
    /// After a load, the adapter's guarantee: which party is protected against which other.
    pub guarantee: Option<String>,
}

impl WorkerMessage {
    /// Parses a frame of the worker.
    ///
    /// # Errors
    /// [`FrameError::Kind`], [`FrameError::Payload`].
    pub fn parse(frame: Frame<'_>) -> Result<Self, FrameError> {
        let parsed = match frame.kind {
            kind::WELCOME => {
                parse_welcome(&parse_object(frame)?).map(|it| WorkerMessage::Welcome(Box::new(it)))
            }
            kind::TOKENS => parse_tokens(frame.payload).map(WorkerMessage::Tokens),
            kind::ENDED => Ok(WorkerMessage::End(parse_json(frame)?)),
            kind::NEED => parse_delta_request(frame.payload).map(WorkerMessage::DeltaRequest),
            kind::ADAPTER => parse_adapter_answer(parse_json(frame)?).map(WorkerMessage::Adapter),
            kind::STATUS => Ok(WorkerMessage::Status(parse_object(frame)?)),
            kind::REFUSED => {
                let RawRefusal { id, error } = parse_json(frame)?;
                Ok(WorkerMessage::Refused { id, error })
            }
            kind => return Err(FrameError::Kind { kind }),
        };
        parsed.map_err(|reason| {
            let reason = to_printable(&reason);
            FrameError::Payload { kind: frame.kind, reason }
        })
    }
}

fn parse_json<'a, T: Deserialize<'a>>(frame: Frame<'a>) -> Result<T, FrameError> {
    // An error of serde quotes values unchanged, of any length.
    let explain = |error: serde_json::Error| to_printable(&error.to_string());
    serde_json::from_slice(frame.payload)
        .map_err(|error| FrameError::Payload { kind: frame.kind, reason: explain(error) })
}

fn parse_object(frame: Frame<'_>) -> Result<Value, FrameError> {
    match parse_json(frame)? {
        value @ Value::Object(_) => Ok(value),
        _ => Err(FrameError::Payload { kind: frame.kind, reason: "wanted an object".into() }),
    }
}

/// Makes text of the worker printable: cuts it to [`SHOWN_BYTES_MAX`] and replaces control
/// characters by spaces.
pub(crate) fn to_printable(text: &str) -> String {
    let end = text.floor_char_boundary(SHOWN_BYTES_MAX);
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn deserialize_printable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| to_printable(&text))
}

fn parse_welcome(value: &Value) -> Result<Welcome, String> {
    let number = |name: &str, least: u32, most: u32| {
        let number = value[name].as_u64().and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| format!("{name}: wanted {least} to {most}, got {}", value[name]))
    };
    let text = |name: &str| {
        let text = value[name].as_str().ok_or_else(|| format!("{name}: wanted a text"))?;
        Ok::<_, String>(to_printable(text))
    };
    number("protocol", PROTOCOL, PROTOCOL)?;
    let versions = value["versions"].as_object().into_iter().flatten();
    Ok(Welcome {
        model: text("model")?,
        context_tokens: number("context_tokens", 2, 1 << 24)?,
        slots: number("slots", 1, 4096)?,
        queue: number("queue", 0, 65_536)?,
        device: text("device")?,
        dtype: text("dtype")?,
        weights: text("weights")?,
        vocabulary: number("vocabulary", 1, 1 << 24)?,
        sites: ModelSites::parse(&value["sites"])
            .ok_or("sites: wanted layers and widths by name")?,
        versions: versions
            .map(|(name, version)| {
                (to_printable(name), to_printable(version.as_str().unwrap_or_default()))
            })
            .collect(),
    })
}

fn parse_tokens(payload: &[u8]) -> Result<Vec<(u32, u32)>, String> {
    let wrong = || format!("wanted a count and as many entries, got {} bytes", payload.len());
    let (count, entries) = payload.split_first_chunk::<2>().ok_or_else(wrong)?;
    let count = usize::from(u16::from_le_bytes(*count));
    if count == 0 || entries.len() != count * 8 {
        return Err(wrong());
    }
    let (words, _) = entries.as_chunks::<4>();
    let (pairs, _) = words.as_chunks::<2>();
    Ok(pairs
        .iter()
        .map(|pair| (u32::from_le_bytes(pair[0]), u32::from_le_bytes(pair[1])))
        .collect())
}

#[derive(Deserialize)]
struct RawRefusal {
    id: u32,
    error: WorkerFault,
}

#[derive(Deserialize)]
struct RawAdapterAnswer {
    name: String,
    ok: bool,
    error: Option<String>,
    sites: Option<Value>,
    guarantee: Option<String>,
}

fn parse_adapter_answer(raw: RawAdapterAnswer) -> Result<AdapterAnswer, String> {
    let RawAdapterAnswer { name, ok, error, sites, guarantee } = raw;
    let error = (!ok).then(|| to_printable(&error.unwrap_or_else(|| "no reason given".into())));
    let sites = match sites.filter(|sites| !sites.is_null()) {
        None => None,
        Some(value) => {
            Some(sites::sites_from_json(&value).ok_or("sites: wanted [layer, name, in, out]")?)
        }
    };
    Ok(AdapterAnswer { name, error, sites, guarantee })
}

fn parse_delta_request(payload: &[u8]) -> Result<DeltaRequest, String> {
    const HEAD: usize = 18;
    let short = || format!("wanted a head of {HEAD} bytes, got {} bytes", payload.len());
    let (head, rest) = payload.split_first_chunk::<HEAD>().ok_or_else(short)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let source =
        sites::layer_input_from_number(head[8]).ok_or_else(|| format!("source {}", head[8]))?;
    let (rows, width, count) = (word(9) as usize, word(13) as usize, usize::from(head[17]));
    if rows == 0 || width == 0 || !(1..=8).contains(&count) || rest.len() < count {
        return Err(format!("{rows} rows of {width} for {count} outputs"));
    }
    let (numbers, floats) = rest.split_at(count);
    let outputs = numbers
        .iter()
        .map(|number| {
            sites::projection_from_number(*number).ok_or_else(|| format!("projection {number}"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (floats, odd) = floats.as_chunks::<4>();
    let inputs = rows.checked_mul(width).filter(|inputs| *inputs < floats.len());
    let Some(inputs) = inputs.filter(|_| odd.is_empty()) else {
        return Err(format!("{rows} rows of {width} and outputs: got {} floats", floats.len()));
    };
    let values: Vec<f32> = floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let rows = values[..inputs].to_vec();
    let values = values[inputs..].to_vec();
    Ok(DeltaRequest { id: word(0), layer: word(4), source, width, rows, outputs, values })
}

/// The request for a generation in the form of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct GenerateMessage<'a> {
    pub(crate) id: u32,
    pub(crate) ids: &'a [u32],
    pub(crate) max_tokens: u32,
    pub(crate) sampling: Sampling,
    pub(crate) stop_ids: &'a [u32],
    pub(crate) banned_ids: &'a [u32],
    pub(crate) adapter: Option<&'a str>,
}

pub(crate) fn encode_hello(vocabulary: usize) -> Vec<u8> {
    encode_json_frame(kind::HELLO, &json!({ "protocol": PROTOCOL, "vocabulary": vocabulary }))
}

/// Encodes a request; `None` if it is longer than a frame may be.
pub(crate) fn encode_generate(order: &GenerateMessage<'_>) -> Option<Vec<u8>> {
    let Sampling { temperature, top_p, seed } = order.sampling;
    let value = json!({
        "id": order.id, "ids": order.ids, "max_tokens": order.max_tokens,
        "temperature": temperature, "top_p": top_p, "seed": seed,
        "stop_ids": order.stop_ids, "banned_ids": order.banned_ids, "adapter": order.adapter,
    });
    let payload = value.to_string().into_bytes();
    let fits = payload.len() < FRAME_BYTES_MAX;
    fits.then(|| Frame { kind: kind::GENERATE, payload: &payload }.encode())
}

pub(crate) fn encode_cancel(id: u32) -> Vec<u8> {
    Frame { kind: kind::CANCEL, payload: &id.to_le_bytes() }.encode()
}

pub(crate) fn encode_load_adapter(name: &str, kind: &str, spec: &Value) -> Vec<u8> {
    encode_json_frame(kind::LOAD_ADAPTER, &json!({ "name": name, "kind": kind, "spec": spec }))
}

pub(crate) fn encode_unload_adapter(name: &str) -> Vec<u8> {
    encode_json_frame(kind::UNLOAD_ADAPTER, &json!({ "name": name }))
}

pub(crate) fn encode_status_request() -> Vec<u8> {
    Frame { kind: kind::ASK_STATUS, payload: &[] }.encode()
}

/// Encodes the requested outputs with the adapter's deltas added, or the adapter's error.
pub(crate) fn encode_deltas(need: &DeltaRequest, added: Result<&[f32], &AdaptError>) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend_from_slice(&need.id.to_le_bytes());
    payload.extend_from_slice(&need.layer.to_le_bytes());
    payload.push(sites::layer_input_number(need.source));
    match added {
        Ok(values) => {
            payload.push(0);
            payload.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        Err(error) => {
            payload.push(match error {
                AdaptError::Budget { .. } | AdaptError::BudgetTooSmall { .. } => 3,
                AdaptError::Activation { .. } => 4,
                AdaptError::Refused { .. } => 2,
                _ => 1,
            });
            let text = json!({ "message": to_printable(&error.to_string()) }).to_string();
            payload.extend_from_slice(&(text.len() as u32).to_le_bytes());
            payload.extend_from_slice(text.as_bytes());
        }
    }
    Frame { kind: kind::DELTAS, payload: &payload }.encode()
}

fn encode_json_frame(kind: u8, value: &Value) -> Vec<u8> {
    Frame { kind, payload: value.to_string().as_bytes() }.encode()
}

// The path is explicit, because a fuzz target includes this file from another folder.
#[cfg(test)]
#[path = "message/tests.rs"]
mod tests;
