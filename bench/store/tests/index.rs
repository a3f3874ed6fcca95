//! One body of tests for both databases. PostgreSQL is started for them, in a folder of its own.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use confide_bench::{IntervalEstimate, LoadedRecord, RowFacts, RunFacts};
use confide_store::{AddOutcome, Index, Query, StoreError, open_index};
use confide_tests::Folder;

#[test]
fn sqlite_knows_records_and_their_rows() {
    let scratch = Folder::new("sqlite");
    let folder = scratch.path();
    knows_records(folder.join("index.sqlite").to_str().unwrap());
}

#[test]
fn postgresql_knows_records_and_their_rows() {
    let Some(server) = Server::start() else { return };
    knows_records(&server.url());
}

#[test]
fn an_index_of_a_later_version_is_refused() {
    let scratch = Folder::new("later");
    let folder = scratch.path();
    let path = folder.join("index.sqlite");
    drop(open_index(path.to_str().unwrap()).unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("INSERT INTO confide_bench_schema (version) VALUES (99)", []).unwrap();
    let refused = open_index(path.to_str().unwrap());
    assert!(matches!(refused, Err(StoreError::Schema { got: 99, .. })));
}

#[test]
fn two_that_open_a_new_index_at_once_both_can_use_it() {
    let scratch = Folder::new("twice");
    let path = scratch.join("index.sqlite");
    let open_it = || {
        let path = path.clone();
        std::thread::spawn(move || open_index(path.to_str().unwrap()).map(|_| ()))
    };
    let both = [open_it(), open_it()];
    for one in both {
        one.join().unwrap().unwrap();
    }
}

fn knows_records(place: &str) {
    let mut index = open_index(place).unwrap();
    let index = &mut *index;
    assert_eq!(index.list(&Query::default()).unwrap(), []);
    let [old, new] = [facts("aa", 100, 1.25), facts("bb", 200, 1.5)];
    assert_eq!(index.add(&old, "somewhere/old").unwrap(), AddOutcome::Added);
    assert_eq!(index.add(&new, "somewhere/new").unwrap(), AddOutcome::Added);
    assert_eq!(index.add(&old, "elsewhere").unwrap(), AddOutcome::Present);
    lists_the_newest_first(index);
    shows_the_history_of_a_row(index);
    takes_no_value_for_a_statement(index);
    takes_real_records(index);
    // Opening it again migrates nothing and loses nothing.
    let again = open_index(place).unwrap().list(&Query::default()).unwrap();
    assert_eq!(again, index.list(&Query::default()).unwrap());
}

fn lists_the_newest_first(index: &mut dyn Index) {
    let lines = index.list(&Query::default()).unwrap();
    let shas: Vec<_> = lines.iter().map(|line| line.sha256.as_str()).collect();
    assert_eq!(shas, ["bb", "aa"]);
    assert_eq!((lines[0].rows, lines[1].path.as_str()), (3, "somewhere/old"));
    let mut count = |query: Query| index.list(&query).unwrap().len();
    assert_eq!(count(Query { suite: "main".into(), ..Query::default() }), 2);
    assert_eq!(count(Query { suite: "mai".into(), ..Query::default() }), 0);
    assert_eq!(count(Query { machine: "Xeon".into(), ..Query::default() }), 2);
    assert_eq!(count(Query { machine: "EPYC".into(), ..Query::default() }), 0);
    assert_eq!(count(Query { since_unix_s: 101, ..Query::default() }), 1);
}

fn shows_the_history_of_a_row(index: &mut dyn Index) {
    let query = Query { arm: "ra-tls".into(), metric: "ttft_ms".into(), ..Query::default() };
    let rows = index.rows(&query).unwrap();
    let ratios: Vec<_> = rows.iter().map(|row| row.ratio).collect();
    assert_eq!(ratios, [1.5, 1.25].map(|value| [Some(value), Some(1.0), Some(2.0)]));
    assert_eq!(rows[0].difference, [Some(0.5), None, None]);
    assert_eq!((rows[0].clear, rows[0].protected, rows[0].blocks), (Some(0.1), Some(0.3), 12));
    // A percentile without a tail is not a figure; the A/A rows come when they are asked for.
    let query = Query { arm: "tls".into(), ..Query::default() };
    assert_eq!(index.rows(&query).unwrap(), []);
    let rows = index.rows(&Query { twins: true, ..query }).unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.twin && row.clear.is_none()));
}

fn takes_no_value_for_a_statement(index: &mut dyn Index) {
    let evil = "x'; DROP TABLE confide_bench_rows; --";
    let mut facts = facts(evil, 50, 1.0);
    facts.suite = evil.into();
    facts.rows[0].arm = "%".into();
    assert_eq!(index.add(&facts, evil).unwrap(), AddOutcome::Added);
    let lines = index.list(&Query { suite: evil.into(), ..Query::default() }).unwrap();
    assert_eq!((lines.len(), lines[0].path.as_str()), (1, evil));
    // No pattern either: a per cent sign is itself.
    let query = Query { arm: "%".into(), ..Query::default() };
    assert_eq!(index.rows(&query).unwrap().len(), 1);
    let query = Query { machine: "%".into(), ..Query::default() };
    assert_eq!(index.list(&query).unwrap(), []);
}

fn takes_real_records(index: &mut dyn Index) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records/2026-11-27-batch");
    let facts = LoadedRecord::read(&folder).unwrap().facts();
    assert_eq!(index.add(&facts, "batch").unwrap(), AddOutcome::Added);
    let query = Query { suite: "batch".into(), twins: true, ..Query::default() };
    assert_eq!(index.rows(&query).unwrap().len(), facts.rows.len());
}

fn facts(sha256: &str, started_unix_s: u64, ratio: f64) -> RunFacts {
    let row = |arm: &str, metric: &str, twin: bool| RowFacts {
        label: "new session".into(),
        bench: "chat/new".into(),
        case: String::new(),
        model: "chat-ttft".into(),
        metric: metric.into(),
        stat: "mean".into(),
        better: "lower".into(),
        reference: "tls".into(),
        arm: arm.into(),
        arm_label: arm.into(),
        twin,
        headline: true,
        clear: (!twin).then_some(0.1),
        protected: (!twin).then_some(0.3),
        blocks: 12,
        as_difference: false,
        ratio: Some(IntervalEstimate { value: ratio, interval: Some([1.0, 2.0]) }),
        difference: Some(IntervalEstimate { value: 0.5, interval: None }),
        verdict: "above".into(),
        simulated: true,
        client_bound: false,
    };
    RunFacts {
        sha256: sha256.into(),
        suite: "main".into(),
        suite_sha256: "s".into(),
        plan_sha256: "p".into(),
        machine: "Intel Xeon, 2 CPUs, 8 GiB, Linux 6".into(),
        version: "0.1.0".into(),
        commit: "c".into(),
        effort: "quick".into(),
        seed: 7,
        started_unix_s,
        wall_s: 1.5,
        sessions: 1,
        partial: None,
        validity: "valid".into(),
        rows: vec![
            row("ra-tls", "ttft_ms", false),
            row("ra-tls", "total_ms", false),
            row("tls", "ttft_ms", true),
        ],
    }
}

/// A PostgreSQL server in a temporary folder, reached through a socket in it.
struct Server {
    folder: Folder,
    process: Child,
}

impl Server {
    /// Starts a server; prints the reason and gives `None` if there is no PostgreSQL.
    fn start() -> Option<Self> {
        // The path of a socket has to be short.
        let folder = Folder::new("store");
        let data = folder.join("data");
        if is_root() && !give_to_nobody(folder.path()) {
            println!("skipped: PostgreSQL refuses root, and no other user can be taken");
            return None;
        }
        let made = command_as_nobody("initdb")
            .args(["--no-sync", "--auth=trust", "--username=confide", "--pgdata"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: no PostgreSQL (Debian package postgresql: initdb on the PATH)");
            return None;
        }
        let process = command_as_nobody("postgres")
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"])
            .arg(format!("unix_socket_directories={}", folder.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { folder, process };
        for _ in 0..600 {
            // It listens a moment before it lets anybody in.
            if open_index(&server.url()).is_ok() {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL did not start in 30 s");
    }

    fn url(&self) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgresql://confide@{folder}/postgres")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT is PostgreSQL's immediate shutdown.
        let _ = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// PostgreSQL refuses to run as root; the folder then belongs to `nobody`.
fn give_to_nobody(folder: &Path) -> bool {
    let changed = Command::new("chown").arg("65534:65534").arg(folder).status();
    changed.is_ok_and(|status| status.success())
        && Command::new("setpriv").arg("--version").output().is_ok()
}

fn command_as_nobody(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command
}
