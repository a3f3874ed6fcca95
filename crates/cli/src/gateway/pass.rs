//! `confide gateway --config`: the listeners of a file.

use std::{path::Path, pin::pin, process::ExitCode, sync::Arc};

use confide_sni::Passthrough;
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use super::config_file::{FixedSettings, read_config_file};
use crate::{error::CliError, process};

/// What a listener of this kind protects, in the ready line.
const GUARANTEE: &str = "none (TLS is passed through unread)";

/// Serves all listeners of the file until the process is asked to stop; SIGHUP reads the routes again.
pub(super) async fn serve_listeners(path: &Path) -> Result<ExitCode, CliError> {
    // Before the signals are caught, so that a file that does not end can be interrupted.
    let configs = read_config_file(path)?;
    let mut stop = pin!(process::stop_signal());
    let mut hangup = signal(SignalKind::hangup())
        .map_err(|error| CliError::new(format!("cannot catch SIGHUP: {error}")))?;
    let (stopping, stopped) = watch::channel(false);
    let mut running = JoinSet::new();
    let mut listeners: Vec<(FixedSettings, Arc<Passthrough>)> = Vec::new();
    let mut shown = Vec::new();
    let mut first = None;
    for config in configs {
        let (listener, address) = process::listen(config.fixed.listen).await?;
        let passthrough = Arc::new(Passthrough::new(config.routes, config.fixed.limits));
        let mut stopped = stopped.clone();
        let stop = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        running.spawn(passthrough.clone().serve(listener, config.fixed.admission(), stop));
        shown.push(
            json!({ "kind": "pass", "listen": address.to_string(), "routes": config.route_count }),
        );
        first.get_or_insert(address);
        listeners.push((config.fixed, passthrough));
    }
    let Some(first) = first else { return Err(CliError::new("the file has no listener")) };
    process::print_ready(first, GUARANTEE, json!({ "listeners": shown }));
    let listeners: Arc<[_]> = listeners.into();
    // A file that does not end, or an output that nobody reads, must not keep the process from stopping.
    let mut reload = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.as_mut() => break,
            Some(_) = reload.join_next(), if !reload.is_empty() => {}
            // None ends before the stop, unless it has failed: the others must not hide that.
            Some(_) = running.join_next() => {
                return Err(CliError::new("a listener has failed; the error is in the log"));
            }
            _ = hangup.recv(), if reload.is_empty() => {
                let (path, listeners) = (path.to_owned(), listeners.clone());
                reload.spawn_blocking(move || reload_and_print(&path, &listeners));
            }
        }
    }
    stopping.send_replace(true);
    while let Some(drained) = running.join_next().await {
        if let Ok(drained) = drained {
            process::warn_of_cut_connections(drained);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn reload_and_print(path: &Path, listeners: &[(FixedSettings, Arc<Passthrough>)]) {
    match reload_routes(path, listeners) {
        Ok(routes) => process::print_line(&json!({ "reloaded": true, "routes": routes })),
        Err(error) => {
            tracing::error!(error = error.message(), "the configuration was not reloaded");
            process::print_line(&json!({ "reloaded": false, "error": error.message() }));
        }
    }
}

/// Replaces the routes of all listeners, or none of them. Returns the number of routes.
fn reload_routes(
    path: &Path,
    listeners: &[(FixedSettings, Arc<Passthrough>)],
) -> Result<usize, CliError> {
    let configs = read_config_file(path)?;
    let is_same = configs.len() == listeners.len()
        && configs.iter().zip(listeners).all(|(config, (fixed, _))| config.fixed == *fixed);
    if !is_same {
        let text = "listeners, their addresses and limits cannot be reloaded";
        return Err(CliError::new(format!("{}: {text}: restart the gateway", path.display())));
    }
    let routes = configs.iter().map(|config| config.route_count).sum();
    for (config, (_, passthrough)) in configs.into_iter().zip(listeners) {
        passthrough.replace_routes(config.routes);
    }
    Ok(routes)
}
