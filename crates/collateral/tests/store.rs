//! The store: whole documents or none, whatever happens to the files.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    thread,
};

use confide_collateral::{
    CollateralError, Document, DocumentKey, FileSystem, OsFileSystem, PckIssuer, Store, StoreLimits,
};

const KEY: DocumentKey = DocumentKey::IntelPckCrl(PckIssuer::Platform);

fn document(number: u64) -> Document {
    Document {
        key: KEY,
        service: "https://pccs.example".into(),
        content: vec![0x30; 40],
        chain: String::new(),
        signature: String::new(),
        issued: number,
        until: number + 100,
        number,
        fetched_at: number,
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{name}"));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn open(folder: &Path) -> Store {
    Store::open(folder, StoreLimits::default()).unwrap()
}

#[test]
fn a_document_comes_back_as_it_was_put_and_is_its_owners_only() {
    let folder = folder("round-trip");
    let store = open(&folder);
    assert_eq!(store.find(&KEY), None);
    store.put(&document(7)).unwrap();
    assert_eq!(store.find(&KEY), Some(document(7)));
    assert_eq!(open(&folder).list().unwrap(), (vec![document(7)], vec![]));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for entry in fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[test]
fn a_file_cut_or_changed_at_any_byte_is_ignored_and_replaced() {
    let folder = folder("torn");
    let store = open(&folder);
    store.put(&document(7)).unwrap();
    let path = folder.join(format!("{KEY}.doc"));
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        fs::write(&path, &whole[..at]).unwrap();
        assert_eq!(store.find(&KEY), None, "cut at {at}");
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert_eq!(store.find(&KEY), None, "changed at {at}");
    }
    let longer = [whole.as_slice(), &[0]].concat();
    fs::write(&path, longer).unwrap();
    assert_eq!(store.list().unwrap().1.len(), 1);
    store.put(&document(3)).unwrap();
    assert_eq!(store.find(&KEY), Some(document(3)));
}

#[test]
fn a_file_under_another_documents_name_is_ignored() {
    let folder = folder("swapped");
    let store = open(&folder);
    store.put(&document(7)).unwrap();
    fs::rename(folder.join(format!("{KEY}.doc")), folder.join("intel-root-crl.doc")).unwrap();
    assert_eq!(store.find(&DocumentKey::IntelRootCrl), None);
}

/// Dies when so many steps were taken; each byte written is a step.
struct Dying {
    steps: Arc<AtomicI64>,
}

/// A panic that says nothing.
fn die() {
    resume_unwind(Box::new("the writer dies here"));
}

impl Dying {
    fn step(&self) {
        if self.steps.fetch_sub(1, SeqCst) <= 0 {
            die();
        }
    }
}

impl FileSystem for Dying {
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let left = usize::try_from(self.steps.load(SeqCst)).unwrap_or(0).min(bytes.len());
        self.steps.fetch_sub(bytes.len() as i64, SeqCst);
        OsFileSystem.write_new(path, &bytes[..left])?;
        if left < bytes.len() {
            die();
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step();
        OsFileSystem.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step();
        OsFileSystem.sync_folder(path)
    }
}

#[test]
fn a_writer_that_dies_at_any_byte_leaves_the_old_document_or_the_new_one() {
    let folder = folder("dying");
    let (mut old, mut new) = (0, 0);
    for steps in 0.. {
        let _ = fs::remove_dir_all(&folder);
        open(&folder).put(&document(1)).unwrap();
        let files = Dying { steps: Arc::new(AtomicI64::new(steps)) };
        let dying =
            Store::with_file_system(&folder, StoreLimits::default(), Box::new(files)).unwrap();
        let died = catch_unwind(AssertUnwindSafe(|| dying.put(&document(2)))).is_err();
        let after = open(&folder);
        match after.find(&KEY) {
            Some(found) if found == document(1) => old += 1,
            Some(found) if found == document(2) => new += 1,
            other => panic!("after {steps} steps: {other:?}"),
        }
        // The next writer is not in the way of what was left.
        after.put(&document(3)).unwrap();
        assert_eq!(after.find(&KEY), Some(document(3)));
        assert!(!folder.join(format!("{KEY}.doc.tmp")).exists());
        if !died {
            break;
        }
    }
    assert!(old > 200 && new == 2, "old {old}, new {new}");
}

struct Full(Arc<AtomicBool>);

impl FileSystem for Full {
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.0.load(SeqCst) {
            OsFileSystem.write_new(path, &bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        OsFileSystem.write_new(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsFileSystem.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        OsFileSystem.sync_folder(path)
    }
}

#[test]
fn a_full_disk_is_reported_keeps_the_old_document_and_is_got_over() {
    let folder = folder("full");
    let full = Arc::new(AtomicBool::new(false));
    let files = Box::new(Full(full.clone()));
    let store = Store::with_file_system(&folder, StoreLimits::default(), files).unwrap();
    store.put(&document(1)).unwrap();
    full.store(true, SeqCst);
    assert!(matches!(store.put(&document(2)), Err(CollateralError::Store { .. })));
    assert_eq!(store.find(&KEY), Some(document(1)));
    full.store(false, SeqCst);
    store.put(&document(2)).unwrap();
    assert_eq!(store.find(&KEY), Some(document(2)));
}

#[test]
fn an_older_document_does_not_replace_a_newer_one() {
    let store = open(&folder("older"));
    store.put(&document(9)).unwrap();
    assert_eq!(store.put(&document(8)).unwrap(), Some(document(9)));
    assert_eq!(store.find(&KEY), Some(document(9)));
    let elsewhere = Document { service: "https://other.example".into(), ..document(8) };
    assert_eq!(store.put(&elsewhere).unwrap(), None, "another service has its own numbers");
}

#[test]
fn writers_take_turns_and_the_newest_stays() {
    let folder = folder("turns");
    thread::scope(|scope| {
        for writer in 0..4u64 {
            let folder = &folder;
            scope.spawn(move || {
                let store = open(folder);
                for round in 0..10 {
                    store.put(&document(1 + round * 4 + writer)).unwrap();
                    assert!(store.find(&KEY).is_some());
                }
            });
        }
    });
    assert_eq!(open(&folder).find(&KEY), Some(document(40)));
}

#[test]
fn what_was_written_first_makes_room() {
    let limits = StoreLimits { documents_max: 3, ..StoreLimits::default() };
    let store = Store::open(&folder("room"), limits).unwrap();
    let keys = [
        DocumentKey::IntelRootCrl,
        DocumentKey::IntelPckCrl(PckIssuer::Processor),
        KEY,
        "intel-tcb-info-tdx-00806f050000-standard".parse().unwrap(),
    ];
    for key in &keys {
        store.put(&Document { key: key.clone(), ..document(1) }).unwrap();
        thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(store.find(&keys[0]), None);
    assert!(keys[1..].iter().all(|key| store.find(key).is_some()));
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let folder = folder("shared");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
    let refused = Store::open(&folder, StoreLimits::default());
    assert!(matches!(refused, Err(CollateralError::Store { .. })));
}

const CHILD_FOLDER: &str = "CONFIDE_TEST_STORE";

/// The process that the next test kills; it tests nothing by itself.
#[test]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD_FOLDER) else { return };
    let store = open(Path::new(&folder));
    for number in 1.. {
        store.put(&document(number)).unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_a_whole_document_and_no_lock() {
    let folder = folder("killed");
    for round in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed"])
            .env(CHILD_FOLDER, &folder)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let path = folder.join(format!("{KEY}.doc"));
        while !path.exists() {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        thread::sleep(std::time::Duration::from_millis(7 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(&folder);
        let found = store.find(&KEY).expect("a whole document");
        store.put(&document(found.number + 1)).unwrap();
        assert_eq!(store.list().unwrap().1, []);
    }
}
