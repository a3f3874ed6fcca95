//! `confide attest --simulate TEE --tsm MOUNTPOINT`: a *simulated* configfs-tsm tree, served until SIGTERM.

use std::{path::Path, sync::Arc};

use confide_fake_attester::{FakeAttester, TsmTree};
use serde_json::json;

use crate::{error::CliError, files::make_folder, process};

/// Serves the tree until SIGTERM, then unmounts it.
pub(crate) fn serve_tsm_tree(attester: FakeAttester, mountpoint: &Path) -> Result<(), CliError> {
    process::block_on(async {
        let stop = process::stop_signal();
        make_folder(mountpoint)?;
        let cannot = |error| {
            CliError::new(error).with_hint(
                "mounting needs /dev/fuse, root (`unshare -Urm` suffices) and an empty folder; \
                 `umount MOUNTPOINT` removes the tree of a killed process",
            )
        };
        let tree = TsmTree::new(Arc::new(attester)).map_err(CliError::new)?;
        let tree = tree.mount(mountpoint).map_err(cannot)?;
        process::print_ready_line(json!({
            "tsm": mountpoint,
            "simulated": true,
            "guarantee": "none (simulated)",
        }));
        stop.await;
        tree.unmount().map_err(CliError::new)
    })?
}
