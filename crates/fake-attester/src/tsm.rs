//! A *simulated* configfs-tsm tree: a file system over a simulated attester.
//!
//! It behaves as the kernel's does (Linux, `drivers/virt/coco/guest/report.c`, `fs/configfs`,
//! `Documentation/ABI/testing/configfs-tsm`): entries by `mkdir`, `inblob` taken over when the
//! file is closed, `outblob` made when it is read and kept until the next write, one lock over
//! all, the same errors for the same mistakes. So the code that asks a device runs as it is.
//!
//! Not imitated: services (`service_provider`), which no simulated attester answers.

mod cert_table;
mod entry;
mod filesystem;
mod tree;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use fuser::{BackgroundSession, Config, MountOption};

use crate::{attester::FakeAttester, error::FakeError, options::Tee};
use entry::Reports;
use filesystem::TreeFilesystem;
pub use tree::{TsmFault, TsmProvider, TsmTree};

/// The threads of the file system. Requests wait for the tree's lock, so a few serve any number of
/// callers; there is more than one, so that a stopped report does not keep a caller from giving up.
const THREADS: usize = 4;

impl TsmTree {
    /// The tree of a guest whose reports `attester` makes.
    ///
    /// # Errors
    /// [`FakeError::Tree`] if the evidence is not of a guest.
    pub fn new(attester: Arc<FakeAttester>) -> Result<Self, FakeError> {
        let provider = match attester.tee() {
            Tee::Tdx | Tee::TdxV5 => TsmProvider::Tdx,
            Tee::Snp => TsmProvider::Sev,
            Tee::Sgx => return Err(FakeError::Tree { got: "sgx" }),
        };
        let auxblob = cert_table::host_certificate_table(&attester);
        Ok(Self::with_reports(provider, move |data| attester.quote(data)).with_auxblob(auxblob))
    }

    /// Mounts the tree; it shows the folder `report`, as `/sys/kernel/config/tsm` does.
    ///
    /// Needs `/dev/fuse` and the privilege to mount (root in a user namespace will do). A mount
    /// lives until it is dropped; that of a killed process stays as a dead folder, which
    /// `umount` removes.
    ///
    /// # Errors
    /// [`FakeError::Mount`] if the tree cannot be mounted.
    pub fn mount(self, mountpoint: &Path) -> Result<MountedTsm, FakeError> {
        let reports = Arc::new(Mutex::new(Reports::new(self)));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("simulated-tsm".into()),
            MountOption::Subtype("simulated".into()),
            MountOption::NoDev,
            MountOption::NoExec,
            MountOption::NoSuid,
        ];
        config.n_threads = Some(THREADS);
        let filesystem = TreeFilesystem::new(Arc::clone(&reports));
        let session = fuser::spawn_mount(filesystem, mountpoint, &config);
        let session =
            session.map_err(|source| FakeError::Mount { path: mountpoint.into(), source })?;
        Ok(MountedTsm { mountpoint: mountpoint.into(), reports, session: Some(session) })
    }
}

/// A mounted tree; dropping it unmounts it.
pub struct MountedTsm {
    mountpoint: PathBuf,
    reports: Arc<Mutex<Reports>>,
    session: Option<BackgroundSession>,
}

impl MountedTsm {
    /// The folder at which the tree is mounted; its reader takes this for `/sys/kernel/config/tsm`.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Injects a fault from now on; `None` ends it.
    pub fn inject_fault(&self, fault: Option<TsmFault>) {
        Reports::lock(&self.reports).fault = fault;
    }

    /// The number of entries that exist now.
    pub fn entry_count(&self) -> usize {
        Reports::lock(&self.reports).count()
    }

    /// Unmounts the tree.
    ///
    /// # Errors
    /// [`FakeError::Mount`] if the tree is in use or gone.
    pub fn unmount(mut self) -> Result<(), FakeError> {
        self.end_session()
            .map_err(|source| FakeError::Mount { path: self.mountpoint.clone(), source })
    }

    fn end_session(&mut self) -> io::Result<()> {
        self.session.take().map_or(Ok(()), BackgroundSession::umount_and_join)
    }
}

impl Drop for MountedTsm {
    fn drop(&mut self) {
        // The error can be told to nobody; a busy tree is detached by the kernel when its users
        // have gone.
        let _ = self.end_session();
    }
}
