//! Metrics, traces and the administrator's socket of a gateway, all off by default.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use confide_gateway::{
    AdminRoutes, AdminSocket, GatewayConfiguration, GatewayMetrics, MetricsListener, Telemetry,
    TelemetryError, TraceExportTask, TraceExporter,
};
use tokio::task::JoinSet;

use super::config_file::TelemetrySettings;
use crate::error::CliError;

/// The telemetry of a process. Its addresses are taken before any listener serves.
pub(super) struct OpenTelemetry {
    pub(super) telemetry: Telemetry,
    socket: Option<AdminSocket>,
    listener: Option<MetricsListener>,
    export: Option<TraceExportTask>,
}

impl OpenTelemetry {
    /// Opens what the settings name; `None` if they name nothing. Must be called inside a runtime.
    pub(super) async fn open<'a>(
        settings: &TelemetrySettings,
        configurations: impl IntoIterator<Item = &'a GatewayConfiguration> + Clone,
    ) -> Result<Option<Self>, CliError> {
        if *settings == TelemetrySettings::default() {
            return Ok(None);
        }
        let cannot = |error: TelemetryError| CliError::new(error);
        let servers = configurations.clone().into_iter().flat_map(|one| &one.servers);
        let models = servers.flat_map(|server| server.models.iter().cloned());
        let models: std::collections::BTreeSet<String> = models.collect();
        let metrics = Arc::new(GatewayMetrics::new(configurations, models));
        let mut exporter = None;
        let mut export = None;
        if let Some(traces) = &settings.traces {
            let clock = unix_now_ns;
            let (started, task) =
                TraceExporter::start(&traces.url, traces.ratio, metrics.clone(), clock)
                    .map_err(cannot)?;
            (exporter, export) = (Some(started), Some(task));
        }
        let socket =
            settings.admin_socket.as_deref().map(AdminSocket::bind).transpose().map_err(cannot)?;
        let listener = match settings.metrics_listen {
            Some(address) => Some(MetricsListener::bind(address).await.map_err(cannot)?),
            None => None,
        };
        let telemetry =
            Telemetry { metrics, traces: exporter, counts_tokens: settings.metrics_tokens };
        Ok(Some(Self { telemetry, socket, listener, export }))
    }

    /// Serves the socket and the metrics until `running` is shut down. The spans' exporter stays.
    pub(super) fn serve(
        self,
        routes: AdminRoutes,
        running: &mut JoinSet<()>,
    ) -> Option<TraceExportTask> {
        if let Some(socket) = self.socket {
            running.spawn(socket.serve(routes, std::future::pending()));
        }
        if let Some(listener) = self.listener {
            let metrics = self.telemetry.metrics.clone();
            running.spawn(async move { listener.serve(metrics, std::future::pending()).await });
        }
        self.export
    }
}

/// Nanoseconds since 1970, read once per call.
fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
