//! The real program, started and stopped.

use std::{
    collections::BTreeMap,
    ops::Deref,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use confide_lora::{
    Adapter, LoraPair, Matrix, Projection, ProjectionSite,
    holder::{HostConnector, HostStream, StreamFuture},
};
use confide_rlwe::ParameterSet;
use confide_tests::{CommandOutput, Process, Program, text};

pub(crate) const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
pub(crate) const PARAMETERS: &str = "toy-256-q100-flood40";
pub(crate) const WIDTH: usize = 64;
pub(crate) const TOY: [&str; 3] = ["--parameters", PARAMETERS, "--dangerous-parameters"];

pub(crate) fn parameters() -> ParameterSet {
    ParameterSet::dangerous_from_name(PARAMETERS).unwrap()
}

/// A connector over plain TCP, as the cli opens it.
pub(crate) struct Tcp(pub(crate) String);

impl HostConnector for Tcp {
    fn connect(&self) -> StreamFuture<'_> {
        Box::pin(async {
            let stream = tokio::net::TcpStream::connect(&self.0).await?;
            stream.set_nodelay(true)?;
            Ok(HostStream { stream: Box::new(stream), simulated: false })
        })
    }

    fn host(&self) -> String {
        self.0.clone()
    }
}

pub(crate) struct Folder(pub(crate) confide_tests::Folder);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        Self(confide_tests::Folder::new(name))
    }

    /// An attester whose policy is content with any configuration: most tests here are about
    /// something else.
    pub(crate) fn simulate(&self, name: &str) -> PathBuf {
        self.attester(name, &["--dangerous-platform-scope"])
    }

    pub(crate) fn simulate_unpinned(&self, name: &str) -> PathBuf {
        self.attester(name, &[])
    }

    fn attester(&self, name: &str, more: &[&str]) -> PathBuf {
        let path = self.0.join(name);
        let arguments = ["attest", "--simulate", "tdx", "--out", text(&path)];
        let ended = CONFIDE.run(&[&arguments[..], more].concat());
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        path
    }

    /// q and v of one layer, rank 4.
    pub(crate) fn adapter(&self, name: &str) -> PathBuf {
        let matrix = |rows: usize, columns: usize, step: usize| {
            let value = |at: usize| ((at * step % 97) as f32 - 48.0) / 400.0;
            let values = (0..rows * columns).map(value).collect();
            Matrix { rows, columns, values }
        };
        let pair = |step| LoraPair {
            a: matrix(4, WIDTH, step),
            b: matrix(WIDTH, 4, step + 6),
            scale: 2.0,
        };
        let modules = BTreeMap::from([
            (ProjectionSite { layer: 0, projection: Projection::Query }, pair(31)),
            (ProjectionSite { layer: 0, projection: Projection::Value }, pair(41)),
        ]);
        let path = self.0.join(name);
        let adapter = Adapter { name: name.into(), base_model: None, modules };
        adapter.save(&path).unwrap();
        path
    }

    pub(crate) fn host(&self, adapter: &Path, more: &[&str]) -> Host {
        self.host_at("127.0.0.1:0", adapter, more)
    }

    /// Counts are forgotten where `more` does not say who keeps them.
    pub(crate) fn host_at(&self, listen: &str, adapter: &Path, more: &[&str]) -> Host {
        let arguments = ["adapter", "host", text(adapter), "--listen", listen];
        let kept = more.contains(&"--budget-file") || more.contains(&"--state");
        let forget = if kept { &[][..] } else { &["--dangerous-forget-budgets"] };
        Host(CONFIDE.start(&[&arguments[..], &TOY[..], forget, more].concat()))
    }
}

/// A running adapter host.
pub(crate) struct Host(Process);

impl Host {
    /// The offline phase with this host.
    pub(crate) fn prepare(&self, more: &[&str]) -> CommandOutput {
        let address = self.address();
        let arguments = ["adapter", "prepare", &address, "--adapter", "banking"];
        CONFIDE.run(&[&arguments[..], &TOY[..], more].concat())
    }

    pub(crate) fn terminate(self) -> ExitStatus {
        self.0.terminate()
    }
}

impl Deref for Host {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}
