//! `confide attest --simulate TEE --tsm MOUNTPOINT`: a *simulated* configfs-tsm tree, until told
//! to stop.

use std::{io::Write, path::Path, sync::Arc};

use confide_fake_attester::{FakeAttester, TsmTree};
use serde_json::json;

use crate::{error::CliError, process};

/// Serves the tree until SIGTERM, then takes it away.
pub(crate) fn serve(attester: FakeAttester, mountpoint: &Path) -> Result<(), CliError> {
    process::run_to_end(async {
        let stop = process::asked_to_stop();
        std::fs::create_dir_all(mountpoint).map_err(|error| {
            CliError::new(format!("cannot make {}: {error}", mountpoint.display()))
        })?;
        let cannot = |error| {
            CliError::new(error).hint(
                "a mount needs /dev/fuse and root (`unshare -Urm` will do) and an empty folder; \
                 a dead tree of a killed process goes away with `umount MOUNTPOINT`",
            )
        };
        let tree = TsmTree::new(Arc::new(attester)).map_err(CliError::new)?;
        let tree = tree.mount(mountpoint).map_err(cannot)?;
        let line = json!({
            "ready": true,
            "tsm": mountpoint,
            "simulated": true,
            "guarantee": "none (simulated)",
        });
        let mut out = std::io::stdout().lock();
        // A closed standard output is no reason to stop serving.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        stop.await;
        tree.unmount().map_err(CliError::new)
    })?
}
