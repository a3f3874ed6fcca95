//! One body of tests for both databases. PostgreSQL is started for them, in a folder of its own.

mod served;

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use confide_pccs::{
    Database, DatabaseError, Document, DocumentKind, EditionDates, WriteOutcome, open_database,
};
use served::Folder;

#[tokio::test]
async fn sqlite_keeps_documents_and_refuses_rollbacks() {
    let folder = Folder::new("sqlite");
    keeps_documents(folder.0.join("pccs.sqlite").to_str().unwrap()).await;
}

#[tokio::test]
async fn postgresql_keeps_documents_and_refuses_rollbacks() {
    let Some(server) = Server::start() else { return };
    keeps_documents(&server.url()).await;
}

#[tokio::test]
async fn a_lost_connection_to_postgresql_is_dialled_anew() {
    let Some(mut server) = Server::start() else { return };
    let database = open_database(&server.url()).await.unwrap();
    assert_eq!(database.write(list(1, 100)).await.unwrap(), WriteOutcome::Stored);
    server.stop();
    assert!(database.read(DocumentKind::PckCrl, "platform").await.is_err());
    server.run();
    assert!(database.read(DocumentKind::PckCrl, "platform").await.unwrap().is_some());
}

#[tokio::test]
async fn a_crash_loses_no_document_that_was_kept() {
    // The file is copied while it is open, with its log: what a crash leaves on the disk.
    let folder = Folder::new("crash");
    let path = folder.0.join("pccs.sqlite");
    let database = open_database(path.to_str().unwrap()).await.unwrap();
    assert_eq!(database.write(list(1, 100)).await.unwrap(), WriteOutcome::Stored);
    let after = folder.0.join("after.sqlite");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", path.display());
        std::fs::copy(from, format!("{}{suffix}", after.display())).unwrap();
    }
    let database = open_database(after.to_str().unwrap()).await.unwrap();
    assert_eq!(database.read(DocumentKind::PckCrl, "platform").await.unwrap(), Some(list(1, 100)));
}

#[tokio::test]
async fn a_database_of_a_later_version_is_refused() {
    let folder = Folder::new("later");
    let path = folder.0.join("pccs.sqlite");
    drop(open_database(path.to_str().unwrap()).await.unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("INSERT INTO confide_pccs_schema (version) VALUES (99)", []).unwrap();
    let Err(error) = open_database(path.to_str().unwrap()).await else { panic!("opened") };
    assert!(matches!(error, DatabaseError::NewerSchema { got: 99, .. }));
}

async fn keeps_documents(url: &str) {
    let database = open_database(url).await.unwrap();
    assert_eq!(database.read(DocumentKind::PckCrl, "platform").await.unwrap(), None);
    a_list_never_goes_back(&*database).await;
    a_recovery_never_goes_back(&*database).await;
    the_newest_of_many_writers_wins(&database).await;
    the_oldest_fetch_is_due_first(&*database).await;
    // Opening it again migrates nothing and loses nothing.
    let again = open_database(url).await.unwrap();
    assert_eq!(again.count().await.unwrap(), database.count().await.unwrap());
    assert_eq!(again.read(DocumentKind::PckCrl, "platform").await.unwrap(), Some(list(4, 101)));
}

async fn a_list_never_goes_back(database: &dyn Database) {
    for kept in [list(3, 100), list(3, 100), list(3, 101), list(4, 101)] {
        assert_eq!(database.write(kept.clone()).await.unwrap(), WriteOutcome::Stored);
        assert_eq!(database.read(DocumentKind::PckCrl, "platform").await.unwrap(), Some(kept));
    }
    for older in [list(3, 101), list(4, 100), list(3, 200), list(9, 100)] {
        let written = database.write(older).await.unwrap();
        assert!(matches!(
            written,
            WriteOutcome::Older { kept: EditionDates { number: 4, issued: 101, .. } }
        ));
    }
    // Another key knows nothing of it.
    let other = Document { key: "processor".into(), ..list(1, 1) };
    assert_eq!(database.write(other).await.unwrap(), WriteOutcome::Stored);
}

async fn a_recovery_never_goes_back(database: &dyn Database) {
    let info = |number, issued| Document {
        kind: DocumentKind::TdxTcb,
        key: "00806F050000/standard".into(),
        dates: EditionDates { number, issued, until: issued + 30 },
        ..list(number, issued)
    };
    for kept in [info(17, 100), info(17, 110), info(18, 90)] {
        assert_eq!(database.write(kept).await.unwrap(), WriteOutcome::Stored);
    }
    for older in [info(17, 200), info(18, 89)] {
        assert!(matches!(database.write(older).await.unwrap(), WriteOutcome::Older { .. }));
    }
}

async fn the_newest_of_many_writers_wins(database: &Arc<dyn Database>) {
    let writers: Vec<_> = (0..32)
        .map(|number| {
            let database = Arc::clone(database);
            let document = Document { key: "race".into(), ..list(number, 100 + number) };
            tokio::spawn(async move { database.write(document).await.map(|_| ()) })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    let kept = database.read(DocumentKind::PckCrl, "race").await.unwrap().unwrap();
    assert_eq!((kept.dates.number, kept.body), (31, vec![31]));
}

async fn the_oldest_fetch_is_due_first(database: &dyn Database) {
    let fetched = |key: &str, at| Document {
        kind: DocumentKind::RootCrl,
        key: key.into(),
        fetched_at: at,
        ..list(1, 1)
    };
    for document in [fetched("b", 20), fetched("a", 10), fetched("c", 5000)] {
        let _ = database.write(document).await.unwrap();
    }
    let mut endless = fetched("endless", 1);
    endless.dates.until = 0;
    let _ = database.write(endless).await.unwrap();
    let due = |before, limit| database.list_due(before, limit);
    let named = |keys: &[&str]| -> Vec<_> {
        keys.iter().map(|key| (DocumentKind::RootCrl, (*key).to_owned())).collect()
    };
    assert_eq!(due(1000, 10).await.unwrap(), named(&["a", "b"]));
    assert_eq!(due(1000, 1).await.unwrap(), named(&["a"]));
    assert_eq!(due(10, 10).await.unwrap(), []);
}

fn list(number: u64, issued: u64) -> Document {
    Document {
        kind: DocumentKind::PckCrl,
        key: "platform".into(),
        dates: EditionDates { number, issued, until: issued + 30 },
        headers: vec![("sgx-pck-crl-issuer-chain".into(), "a%20chain".into())],
        body: vec![number as u8],
        fetched_at: 9_000 + number,
    }
}

/// A PostgreSQL server in a temporary folder, reached through a socket in it.
struct Server {
    folder: Folder,
    process: Option<Child>,
}

impl Server {
    /// Starts a server; `None`, with a line that says so, where PostgreSQL is missing.
    fn start() -> Option<Self> {
        // The socket's path has to be short, and each test has a server of its own.
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = Folder::new(&format!("pg{number}"));
        let data = folder.0.join("data");
        if is_root() && !give_to_nobody(&folder.0) {
            println!("skipped: PostgreSQL refuses root, and no other user can be taken");
            return None;
        }
        let made = as_nobody("initdb")
            .args(["--no-sync", "--auth=trust", "--username=confide", "--pgdata"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: no PostgreSQL (initdb)");
            return None;
        }
        let mut server = Self { folder, process: None };
        server.run();
        Some(server)
    }

    fn run(&mut self) {
        let process = as_nobody("postgres")
            .arg("-D")
            .arg(self.folder.0.join("data"))
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"])
            .arg(format!("unix_socket_directories={}", self.folder.0.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
        for _ in 0..1200 {
            if self.accepts_connections() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL did not start in 60 s");
    }

    /// Whether it accepts connections: it listens before it does, and only its answer to a start-up
    /// message tells.
    fn accepts_connections(&self) -> bool {
        let Ok(mut socket) = UnixStream::connect(self.socket()) else { return false };
        // Length, version 3.0, names and values, the end of the list.
        let fields = b"\0\x03\0\0user\0confide\0database\0postgres\0\0";
        let message = [&(fields.len() as u32 + 4).to_be_bytes()[..], fields].concat();
        let mut kind = [0];
        let answered = socket.write_all(&message).and_then(|()| socket.read_exact(&mut kind));
        // `R` goes on to let in, `E` refuses.
        answered.is_ok() && kind == *b"R"
    }

    /// Stops at once, as a machine that fails: the clients' connections break.
    fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // SIGQUIT is PostgreSQL's immediate shutdown.
        let _ = Command::new("kill").args(["-QUIT", &process.id().to_string()]).status();
        let _ = process.wait();
    }

    fn socket(&self) -> PathBuf {
        self.folder.0.join(".s.PGSQL.5432")
    }

    fn url(&self) -> String {
        let folder = self.folder.0.display().to_string().replace('/', "%2F");
        format!("postgresql://confide@{folder}/postgres")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// Returns the folder to `nobody`, because PostgreSQL refuses to run as root.
fn give_to_nobody(folder: &Path) -> bool {
    let changed = Command::new("chown").arg("65534:65534").arg(folder).status();
    changed.is_ok_and(|status| status.success())
        && Command::new("setpriv").arg("--version").output().is_ok()
}

fn as_nobody(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command
}
