//! What a run is asked: params to a workload.

use std::path::Path;

use confide_arm_line::{Outcome, Run};
use confide_load::{Arrivals, ConnectionReuse, GoodputLimits, TokenLengths, Workload, read_trace};
use serde_json::Value;

use super::saturation;

const KNOWN: &[&str] = &[
    "arrivals",
    "duration_s",
    "e2e_limit_ms",
    "ignore_eos",
    "itl_limit_ms",
    "load_ratio",
    "output_tokens",
    "prompt_tokens",
    "ramp_s",
    "rate_per_s",
    "session",
    "sessions",
    "tpot_limit_ms",
    "trace",
    "ttft_limit_ms",
    "users",
];
/// The most requests of a run, since the protocol takes that many samples.
const REQUESTS_MAX: u64 = 50_000;

pub(super) struct LlmOrder {
    pub(super) workload: Workload,
    pub(super) limits: GoodputLimits,
    pub(super) sessions: ConnectionReuse,
    pub(super) ignore_eos: bool,
}

impl LlmOrder {
    pub(super) fn from_run(run: &Run, saturation: Option<&Path>) -> Outcome<Self> {
        run.refuse_unknown_params(KNOWN)?;
        let limit = |name: &str| optional_number_param(run, name);
        let sessions = match run.text_param("session", "new")?.as_str() {
            "new" => ConnectionReuse::New,
            "kept" => ConnectionReuse::Reused { first: u32_param(run, "sessions", 0)? },
            other => return Err(format!("param session: wanted new or kept, got {other}").into()),
        };
        let requests = run.requests.clamp(1, REQUESTS_MAX);
        Ok(Self {
            workload: Workload {
                arrivals: parse_arrivals(run, saturation)?,
                requests: usize::try_from(requests).unwrap_or(usize::MAX),
                duration_s: optional_number_param(run, "duration_s")?,
                prompt_tokens: lengths_param(run, "prompt_tokens", 128)?,
                output_tokens: lengths_param(run, "output_tokens", 128)?,
                seed: run.seed,
            },
            limits: GoodputLimits {
                ttft_ms: limit("ttft_limit_ms")?,
                itl_ms: limit("itl_limit_ms")?,
                tpot_ms: limit("tpot_limit_ms")?,
                e2e_ms: limit("e2e_limit_ms")?,
            },
            sessions,
            ignore_eos: run.params.get("ignore_eos") == Some(&Value::Bool(true)),
        })
    }
}

fn parse_arrivals(run: &Run, saturation: Option<&Path>) -> Outcome<Arrivals> {
    let kind = run.text_param("arrivals", "poisson")?;
    match kind.as_str() {
        "poisson" => Ok(Arrivals::Poisson { rate_per_s: offered_rate_per_s(run, saturation)? }),
        "constant" => Ok(Arrivals::Constant { rate_per_s: offered_rate_per_s(run, saturation)? }),
        "closed" => Ok(Arrivals::Closed {
            users: u32_param(run, "users", 1)?,
            ramp_s: optional_number_param(run, "ramp_s")?.unwrap_or(0.0),
        }),
        "trace" => {
            let path = run.text_param("trace", "")?;
            let file = std::fs::File::open(&path)
                .map_err(|error| format!("param trace: cannot read {path}: {error}"))?;
            let rows = read_trace(std::io::BufReader::new(file))
                .map_err(|error| format!("{path}: {error}"))?;
            Ok(Arrivals::Trace { rows: rows.into(), speed: 1.0 })
        }
        other => {
            Err(format!("param arrivals: wanted poisson, constant, trace or closed, got {other}")
                .into())
        }
    }
}

/// `rate_per_s`, or `load_ratio` of the reference arm's saturation: the same for every arm.
fn offered_rate_per_s(run: &Run, file: Option<&Path>) -> Outcome<f64> {
    match (optional_number_param(run, "rate_per_s")?, optional_number_param(run, "load_ratio")?) {
        (Some(rate), None) => Ok(rate),
        (None, Some(share)) => {
            let file = file.ok_or("param load_ratio needs --saturation FILE")?;
            Ok(share * saturation::read_saturation_rate(file)?)
        }
        _ => Err("open arrivals: wanted either rate_per_s or load_ratio".into()),
    }
}

fn optional_number_param(run: &Run, name: &str) -> Outcome<Option<f64>> {
    let Some(value) = run.params.get(name) else { return Ok(None) };
    let number = value.as_f64().filter(|number| *number > 0.0);
    Ok(number
        .map(Some)
        .ok_or_else(|| format!("param {name}: wanted a number above 0, got {value}"))?)
}

fn u32_param(run: &Run, name: &str, default: u64) -> Outcome<u32> {
    let number = run.integer_param(name, default)?;
    Ok(u32::try_from(number).map_err(|_| format!("param {name}: {number} is too many"))?)
}

/// A number, or a text `64..256`.
fn lengths_param(run: &Run, name: &str, default: u32) -> Outcome<TokenLengths> {
    let text = match run.params.get(name) {
        None => return Ok(TokenLengths::of_tokens(default)),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    Ok(TokenLengths::parse(&text)
        .ok_or_else(|| format!("param {name}: wanted N or MIN..MAX, got {text}"))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(params: Value) -> Outcome<LlmOrder> {
        let run = json!({ "id": 1, "requests": 7, "seed": 3, "params": params });
        LlmOrder::from_run(&serde_json::from_value(run).unwrap(), None)
    }

    #[test]
    fn params_become_a_workload() {
        let order = read(json!({
            "arrivals": "constant", "rate_per_s": 5, "prompt_tokens": "4..9", "output_tokens": 16,
            "duration_s": 1.5, "session": "kept", "sessions": 4, "ttft_limit_ms": 200
        }))
        .unwrap();
        assert_eq!(order.workload.arrivals, Arrivals::Constant { rate_per_s: 5.0 });
        assert_eq!((order.workload.requests, order.workload.seed), (7, 3));
        assert_eq!(order.workload.prompt_tokens, TokenLengths { min: 4, max: 9 });
        assert_eq!(order.sessions, ConnectionReuse::Reused { first: 4 });
        assert_eq!(order.limits.ttft_ms, Some(200.0));
    }

    #[test]
    fn what_cannot_be_honoured_is_an_error() {
        for params in [
            json!({}),
            json!({ "colour": 1 }),
            json!({ "rate_per_s": 5, "load_ratio": 0.5 }),
            json!({ "load_ratio": 0.5 }),
            json!({ "rate_per_s": -5 }),
            json!({ "rate_per_s": 5, "session": "old" }),
            json!({ "rate_per_s": 5, "output_tokens": 0 }),
            json!({ "arrivals": "sometimes", "rate_per_s": 5 }),
            json!({ "arrivals": "trace", "trace": "/nowhere" }),
        ] {
            assert!(read(params.clone()).is_err(), "{params}");
        }
    }
}
