//! A soak: the store's file system fills up, the service fails half its answers, lists are late
//! and rolled back, the clock steps across `nextUpdate` and back, the program restarts. All the
//! time quotes with known right answers are appraised. *Simulated*: the vendor is a fake root.
//!
//! `CONFIDE_SOAK_SECONDS` says how long (12 without it), `CONFIDE_SOAK_SEED` draws other storms.
//! Which faults come when is a function of the seed; how the threads meet them is not.

mod disk;
mod draw;
mod oracle;
mod running;
mod storm;
mod world;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use confide_fake_attester::FakeEndorsements;
use disk::Disk;
use oracle::{CERTIFIED, Oracle, SEED};
use running::{Figures, Running, work};
use storm::Soak;
use world::{Vendor, serve};

/// Says to the second process where its file system is.
const FOLDER: &str = "CONFIDE_SOAK_FOLDER";
const SECONDS: u64 = 12;
/// Threads that appraise; two cores are the usual machine.
const THREADS: u64 = 4;

#[test]
fn nothing_wrong_is_accepted_in_any_storm_and_all_that_is_right_after_it() {
    if let Some(folder) = env::var_os(FOLDER) {
        return soak(Path::new(&folder), true);
    }
    // A folder of this process alone: removing a folder also removes what others have mounted in it.
    let folder = format!("soak-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    if !may_mount(&folder) {
        println!("skipped: no file system of one's own: the store's does not fill up");
        soak(&folder, false);
        fs::remove_dir_all(&folder).unwrap();
        return;
    }
    let name = "nothing_wrong_is_accepted_in_any_storm_and_all_that_is_right_after_it";
    let script =
        format!("mount -t tmpfs -o size={}k,mode=0700 soak \"$0\" && exec \"$@\"", disk::SIZE_KIB);
    let ended = unshare_command(&script, &folder)
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(FOLDER, &folder)
        .status()
        .unwrap();
    assert!(ended.success(), "the soak in its own mount namespace: {ended}");
    fs::remove_dir(&folder).unwrap();
}

fn may_mount(folder: &Path) -> bool {
    let tried = unshare_command("mount -t tmpfs -o size=64k soak \"$0\"", folder).output();
    tried.is_ok_and(|tried| tried.status.success())
}

/// A shell in user and mount namespaces of its own: what it mounts nobody else sees.
fn unshare_command(script: &str, folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-Urm", "--", "sh", "-c", script]).arg(folder);
    command
}

fn soak(folder: &Path, own: bool) {
    let seconds = number("CONFIDE_SOAK_SECONDS").unwrap_or(SECONDS);
    let seed = number("CONFIDE_SOAK_SEED").unwrap_or(1);
    let vendor = Vendor::new(FakeEndorsements::new(SEED, CERTIFIED).unwrap());
    let oracle = Oracle::new(vendor.clone());
    let (url, simulation) = serve(vendor);
    let disk = Disk::new(folder, own);
    world::tick(0, 0);
    let running = Mutex::new(Running::start(&url, &disk, &oracle.policy()));
    let (figures, end) = (Figures::default(), AtomicBool::new(false));
    let mut soak = Soak::new(seed, &url, &simulation, &disk, &oracle, &running, &figures);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (running, oracle, figures, end) = (&running, &oracle, &figures, &end);
            scope.spawn(move || work(seed ^ (number + 1) << 32, running, oracle, figures, end));
        }
        // Ends the threads when the storms end, and also when one of them panics.
        let _ends = Ends(&end);
        let until = Instant::now() + Duration::from_secs(seconds);
        soak.calm();
        while Instant::now() < until {
            soak.storm();
            soak.calm();
        }
    });
    println!("soak {}", soak.report(seed, own));
    let wrong = figures.wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} wrongly accepted, first: {:#?}", wrong.len(), &wrong[..1]);
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}
