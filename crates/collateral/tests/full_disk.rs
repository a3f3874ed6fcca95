//! A store whose disk is full still remembers what was seen.

mod service;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use confide_collateral::{
    CollateralError, FileSystem, OsFileSystem, Source, SourceOptions, Store, StoreLimits,
};
use confide_fake_attester::Fault;
use service::{DAY, ISSUED_AT, Issuer, Service, TestClock, eventually};

const WAIT: Duration = Duration::from_secs(60);

/// A disk that may be full: new files are refused, what is there can be written over.
struct Full(Arc<AtomicBool>);

impl FileSystem for Full {
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.0.load(SeqCst) {
            OsFileSystem.write_new(path, &[])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        OsFileSystem.write_new(path, bytes)
    }

    fn write_over(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.0.load(SeqCst) && fs::metadata(path)?.len() < bytes.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        OsFileSystem.write_over(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsFileSystem.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        OsFileSystem.sync_folder(path)
    }
}

struct Place {
    folder: PathBuf,
    full: Arc<AtomicBool>,
    clock: TestClock,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("full-disk-{name}"));
        let _ = fs::remove_dir_all(&folder);
        Self { folder, full: Arc::default(), clock: TestClock::starting_at(ISSUED_AT + 60) }
    }

    fn source(&self, service: &Service) -> Source {
        let files = Box::new(Full(self.full.clone()));
        let store = Store::with_file_system(&self.folder, StoreLimits::default(), files).unwrap();
        let mut options = SourceOptions::new(service.services(), self.clock.clock());
        options.look_every = Duration::from_millis(20);
        options.store = Some(store);
        Source::start(options).unwrap()
    }
}

fn give(service: &Service, issuer: &Issuer) {
    let issuer = issuer.clone();
    service.answer(move |request| issuer.reply(request));
}

fn is_served(source: &Source, issuer: &Issuer) -> bool {
    source.current_set(&issuer.platform).is_some_and(|set| {
        serde_json::from_slice::<serde_json::Value>(set.json()).unwrap() == issuer.collateral
    })
}

#[test]
fn a_list_seen_while_the_disk_was_full_is_remembered_after_a_restart() {
    let (old, new) = (Issuer::new(ISSUED_AT, None), Issuer::new(ISSUED_AT + 5 * DAY, None));
    let place = Place::new("restart");
    let service = Service::start(|_| service::Reply::new(500, ""));
    give(&service, &old);
    let source = place.source(&service);
    source.find_or_fetch_blocking(&old.platform, WAIT).unwrap();
    place.full.store(true, SeqCst);
    give(&service, &new);
    place.clock.set(ISSUED_AT + 6 * DAY);
    eventually("the newer set", || is_served(&source, &new));
    // Anyone who has seen it served may rely on its being remembered.
    drop(source);
    let back = Issuer::new(ISSUED_AT + 6 * DAY, Some(Fault::RolledBackCrl));
    give(&service, &back);
    let refused = place.source(&service).find_or_fetch_blocking(&old.platform, WAIT).map(drop);
    assert!(matches!(refused, Err(CollateralError::RolledBack { .. })), "{refused:?}");
    // With the service as it should be, and the disk still full, all is well again.
    give(&service, &new);
    place.source(&service).find_or_fetch_blocking(&old.platform, WAIT).unwrap();
}

#[test]
fn the_memory_is_not_written_over_where_it_is_the_last_one_that_is_whole() {
    let (old, new) = (Issuer::new(ISSUED_AT, None), Issuer::new(ISSUED_AT + 5 * DAY, None));
    let place = Place::new("last");
    let service = Service::start(|_| service::Reply::new(500, ""));
    give(&service, &old);
    let source = place.source(&service);
    source.find_or_fetch_blocking(&old.platform, WAIT).unwrap();
    let [first, second] = ["seen.a", "seen.b"].map(|name| place.folder.join(name));
    let whole = fs::read(&first).unwrap();
    fs::write(&second, b"torn").unwrap();
    place.full.store(true, SeqCst);
    give(&service, &new);
    place.clock.set(ISSUED_AT + 6 * DAY);
    eventually("the newer set", || is_served(&source, &new));
    assert_eq!(fs::read(&first).unwrap(), whole, "a crash in the middle would lose both");
    assert!(source.counts().store_failures > 0);
}
