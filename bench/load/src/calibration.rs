//! Measures what the client can do, against a loopback server whose CPU time is not counted.

mod server;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use serde::Serialize;

use self::server::{LoopbackServer, ResponsePacing};
use crate::{
    bound::ClientFigures,
    ceiling::{Ceiling, ClientWork},
    client::{LoadError, run},
    definitions::{GoodputLimits, Summary},
    options::{ConnectionReuse, LoadOptions},
    plan::{Arrivals, Plan, TokenLengths, Workload},
    target::Target,
    transport::{TcpTransport, Transport},
};

/// Users of the closed loops: enough that the client is never idle.
const USERS: u32 = 16;
/// More requests than a second of any client's time is enough for.
const REQUESTS: usize = 200_000;
/// Streams that get tokens in turn.
const STREAMS: u32 = 100;
/// The time between two tokens, each to another stream: the client is woken for each of them.
const TOKEN_GAP: Duration = Duration::from_micros(100);

/// What the client can do, as it was measured, and the runs that showed it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CeilingFigures {
    /// The ceiling.
    pub ceiling: Ceiling,
    /// The client in a closed loop over kept connections, answers of one token.
    pub kept: ClientFigures,
    /// The client in a closed loop with a new connection for each request, answers of one token.
    pub new: ClientFigures,
    /// The client while tokens arrived one by one.
    pub tokens: ClientFigures,
}

/// Measures the ceiling of a client of one thread in three runs of `seconds` each.
///
/// # Errors
/// [`LoadError`] if a run cannot begin or one of its requests fails.
pub fn measure_ceiling(seconds: f64) -> Result<CeilingFigures, LoadError> {
    let closed = Arrivals::Closed { users: USERS, ramp_s: 0.0 };
    let one_token = |sessions| {
        let (requests, duration_s) = (REQUESTS, Some(seconds));
        measure(ResponsePacing::OneToken, sessions, closed.clone(), requests, duration_s)
    };
    let (kept, kept_work) = one_token(ConnectionReuse::Reused { first: USERS })?;
    let (new, new_work) = one_token(ConnectionReuse::New)?;
    let tokens = (seconds / TOKEN_GAP.as_secs_f64() / f64::from(STREAMS)).ceil() as u32;
    let manner = ResponsePacing::InTurn { streams: STREAMS, tokens: tokens.max(1), gap: TOKEN_GAP };
    let streams = Arrivals::Closed { users: STREAMS, ramp_s: 0.0 };
    let sessions = ConnectionReuse::Reused { first: STREAMS };
    let (paced, paced_work) = measure(manner, sessions, streams, STREAMS as usize, None)?;
    let cpu_s = |figures: &ClientFigures, count: u64| figures.cpu_s / count.max(1) as f64;
    let request_s = cpu_s(&kept, kept_work.requests);
    // What a new connection takes beyond its request; never nothing.
    let connection_s = (cpu_s(&new, new_work.requests) - request_s).max(request_s * 0.1);
    let ceiling = Ceiling {
        requests_per_cpu_s: 1.0 / request_s,
        connections_per_cpu_s: 1.0 / connection_s,
        tokens_per_cpu_s: 1.0 / cpu_s(&paced, paced_work.tokens),
        is_measured: true,
    };
    Ok(CeilingFigures { ceiling, kept, new, tokens: paced })
}

/// Runs the client against a server of its own.
fn measure(
    manner: ResponsePacing,
    sessions: ConnectionReuse,
    arrivals: Arrivals,
    requests: usize,
    duration_s: Option<f64>,
) -> Result<(ClientFigures, ClientWork), LoadError> {
    let wrong = |message: String| LoadError::Ceiling(message);
    let server = LoopbackServer::start(manner)?;
    let workload = Workload {
        arrivals,
        requests,
        duration_s,
        prompt_tokens: TokenLengths::of_tokens(16),
        output_tokens: TokenLengths::of_tokens(1),
        seed: 1,
    };
    let plan = Arc::new(Plan::new(&workload).map_err(|error| wrong(error.to_string()))?);
    let url = format!("http://127.0.0.1:{}", server.port());
    let target = Target::parse(&url, "ceiling").map_err(|error| wrong(error.to_string()))?;
    let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new("127.0.0.1", server.port()));
    let options =
        LoadOptions { sessions, deadline: Duration::from_secs(60), ..LoadOptions::default() };
    let stop = AtomicBool::new(false);
    let outcome = run(&plan, &Arc::new(target), &transport, &options, &stop, &mut |_| {})?;
    let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
    if summary.complete == 0 || summary.complete < summary.requests {
        let error = outcome.events.into_iter().find_map(|event| event.error);
        return Err(wrong(error.unwrap_or_else(|| "no request was complete".into())));
    }
    Ok((outcome.client, ClientWork::from_events(&outcome.events)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_ceiling_is_measured_without_the_servers_time() {
        let figures = measure_ceiling(0.1).unwrap();
        let ceiling = figures.ceiling;
        for figure in
            [ceiling.requests_per_cpu_s, ceiling.connections_per_cpu_s, ceiling.tokens_per_cpu_s]
        {
            assert!(figure.is_finite() && figure > 0.0, "{ceiling:?}");
        }
        assert!(ceiling.is_measured);
        // The client's threads alone: two at most were running.
        for client in [&figures.kept, &figures.new, &figures.tokens] {
            assert!(client.cpu_s <= 2.0 * client.wall_s + 0.1, "{client:?}");
        }
    }
}
