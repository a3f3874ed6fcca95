//! Checks the layers: which package may import which (ARCHITECTURE.md, "Layers").

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use confide_tests::{checkout, files_under, relative_path};
use toml::{Table, Value};

/// Each package and the packages that it may import, of its own layer or a lower one; attestation,
/// adapters and proofs never import each other.
const MAY_USE: &[(&str, &[&str])] = &[
    // base
    ("crates/encrypted-body", &[]),
    ("crates/evidence", &[]),
    ("crates/http", &[]),
    ("crates/rlwe", &[]),
    ("crates/sni", &["http"]),
    ("crates/statement", &[]),
    ("crates/transcript", &[]),
    // attestation
    ("crates/attester", &["evidence"]),
    ("crates/channel", &["evidence"]),
    ("crates/collateral", &["evidence", "http"]),
    ("crates/fake-attester", &["evidence"]),
    ("crates/receipt", &["evidence"]),
    ("crates/verifier", &["evidence"]),
    ("crates/weights", &["evidence"]),
    // adapters
    ("crates/lora", &["rlwe"]),
    // proofs
    ("crates/sigma", &[]),
    ("crates/disclosure", &["sigma", "transcript"]),
    ("crates/circuits", &["disclosure"]),
    ("crates/prover", &["statement"]),
    // engines
    ("crates/engine", &["lora"]),
    ("crates/native", &["engine", "lora"]),
    ("crates/worker", &["engine", "lora"]),
    // services: programs as libraries
    ("crates/appraiser", &["collateral", "evidence", "verifier"]),
    ("crates/attestation-service", &["appraiser", "evidence", "http", "verifier"]),
    (
        "crates/client",
        &["appraiser", "channel", "encrypted-body", "evidence", "http", "verification", "verifier"],
    ),
    ("crates/pccs", &["collateral", "evidence", "http"]),
    ("crates/verification", &["evidence", "receipt", "transcript", "verifier"]),
    (
        "crates/gateway",
        &["channel", "encrypted-body", "evidence", "http", "receipt", "transcript", "weights"],
    ),
    ("crates/report-003", &["engine", "lora", "rlwe", "serve"]),
    ("crates/serve", &["engine", "http", "lora"]),
    ("crates/notary", &["channel", "disclosure", "evidence", "http", "sigma"]),
    // top
    (
        "crates/cli",
        &[
            "appraiser",
            "attestation-service",
            "attester",
            "bench",
            "channel",
            "circuits",
            "client",
            "collateral",
            "disclosure",
            "encrypted-body",
            "engine",
            "evidence",
            "fake-attester",
            "gateway",
            "guest-programs",
            "http",
            "load",
            "lora",
            "native",
            "notary",
            "pccs",
            "prover",
            "receipt",
            "report-003",
            "rlwe",
            "serve",
            "sigma",
            "sni",
            "statement",
            "store",
            "verification",
            "verifier",
            "worker",
        ],
    ),
    ("crates/python", &["client", "lora", "receipt", "rlwe", "verification", "verifier"]),
    // instrument: the harness does not know the product, its arms are processes
    ("bench/estimate", &[]),
    ("bench/harness", &["estimate"]),
    ("bench/arm-line", &[]),
    ("bench/load", &["estimate", "http"]),
    ("bench/store", &["bench"]),
    ("bench/tools", &["arm-line"]),
    (
        "bench/arms",
        &[
            "appraiser",
            "arm-line",
            "attester",
            "channel",
            "circuits",
            "client",
            "collateral",
            "disclosure",
            "encrypted-body",
            "evidence",
            "fake-attester",
            "guest-programs",
            "load",
            "lora",
            "notary",
            "pccs",
            "prover",
            "report-003",
            "rlwe",
            "sigma",
            "statement",
            "verifier",
        ],
    ),
    ("bench/peers/dcap-qvl", &["arm-line"]),
    (
        "fuzz",
        &[
            "attestation-service",
            "attester",
            "bench",
            "channel",
            "circuits",
            "collateral",
            "disclosure",
            "encrypted-body",
            "engine",
            "evidence",
            "fake-attester",
            "gateway",
            "guest-dcap",
            "http",
            "load",
            "lora",
            "notary",
            "pccs",
            "prover",
            "receipt",
            "report-003",
            "rlwe",
            "serve",
            "sigma",
            "sni",
            "statement",
            "tools",
            "verifier",
        ],
    ),
    ("tests", &[]),
];

/// Folders that are workspaces of their own: guests need a target without std, the zkVM minutes to
/// link, the peer's client an HTTP stack that nothing of ours links, SP1 500 packages, and the browser's
/// client features that no other package may turn on.
const OWN_WORKSPACES: &[&str] =
    &["bench/peers/sp1", "guests", "tests/dcap-qvl-fetch", "web", "zkvm"];

/// Libraries that only the named packages may link, each with its reason.
const ONLY_IN: &[(&str, &[&str], &str)] = &[
    ("candle-core", &["crates/native"], "it is slow to build"),
    ("dcap-qvl", &["bench/peers/dcap-qvl"], "it is the oracle and a peer, never the verifier"),
    ("fuser", &["crates/fake-attester"], "only the fake configfs tree is a file system"),
    ("libloading", &["crates/attester"], "only it touches a device"),
    ("spartan2", &["crates/circuits"], "it is slow to build"),
    ("parquet", &["bench/store"], "it is slow to build"),
    ("rusqlite", &["bench/store", "crates/pccs"], "it is a C library"),
    (
        "tokio-postgres",
        &["bench/store", "crates/pccs"],
        "only the fleet's service and the index of records keep a database",
    ),
    ("sev", &[], "it is a peer in tests"),
    ("pyo3", &["crates/python"], "only the Python binding names it"),
    ("wasm-bindgen", &[], "only the browser's client, a workspace of its own, names it"),
];

#[test]
fn every_room_is_in_the_plan_and_every_room_of_the_plan_exists() {
    let planned: BTreeSet<String> = MAY_USE.iter().map(|(room, _)| (*room).into()).collect();
    let built: BTreeSet<String> = files_under("", &["Cargo.toml"])
        .iter()
        .map(|manifest| relative_path(manifest.parent().expect("a manifest has a folder")))
        .filter(|room| !room.is_empty() && !is_of_another_workspace(room))
        .collect();
    assert_eq!(planned, built, "left: the plan, right: the folders with a manifest");
}

fn is_of_another_workspace(room: &str) -> bool {
    let below = |own: &str| room.strip_prefix(own).is_some_and(|rest| rest.starts_with('/'));
    OWN_WORKSPACES.iter().any(|own| room == *own || below(own))
}

#[test]
fn rooms_import_only_downward() {
    for (room, allowed) in MAY_USE {
        for used in confide_dependencies(room, "dependencies") {
            assert!(
                allowed.contains(&used.as_str()),
                "{room} imports {used}; the plan allows {allowed:?}"
            );
        }
    }
}

#[test]
fn wings_do_not_meet_even_in_tests() {
    // A test may reach the fake attester and the crates above the one it tests, never the cli.
    for (room, _) in MAY_USE {
        let used = confide_dependencies(room, "dev-dependencies");
        assert!(!used.contains("cli"), "{room} imports the cli in its tests");
    }
}

#[test]
fn heavy_and_foreign_libraries_stay_in_their_rooms() {
    for (library, rooms, reason) in ONLY_IN {
        for (room, _) in MAY_USE {
            let linked = dependencies(room, "dependencies").contains_key(*library);
            assert!(!linked || rooms.contains(room), "{room} links {library}, but {reason}");
        }
    }
}

#[test]
fn what_an_operator_installs_cannot_forge_or_measure_and_stays_small() {
    let operator = ["-p", "confide-cli", "--no-default-features", "--features", "operator"];
    let operator = packages_linked(&operator);
    for package in ["confide-fake-attester", "confide-bench", "confide-load", "confide-store"] {
        assert!(!operator.contains(package), "confide-operator links {package}");
    }
    assert!(operator.contains("confide-gateway"), "the list is not that of confide-operator");
    assert!(operator.len() <= OPERATOR_PACKAGES_MAX, "confide-operator: {}", operator.len());
    let both = packages_linked(&["-p", "confide-client", "-p", "confide-gateway"]);
    assert!(both.len() <= CLIENT_AND_GATEWAY_PACKAGES_MAX, "client and gateway: {}", both.len());
}

#[test]
fn what_a_caller_installs_names_operating_systems_in_one_module_of_each_package() {
    const NAMES: &[&str] =
        &["os::unix", "os::linux", "os::fd", "os::windows", "rustix", "signal::"];
    const CONDITIONS: &[&str] = &["unix", "windows", "target_os"];
    const MODULES: &[&str] = &["os", "os_windows", "device_calls", "device_calls_absent"];
    // Features of the program that need Linux, in its folder.
    const OF_FEATURES: &[&str] = &["bench/", "gateway/", "prove/", "serve/", "threads.rs"];
    let caller = packages_linked(&["-p", "confide-cli", "--no-default-features"]);
    for package in ["confide-gateway", "confide-pccs", "confide-sni", "confide-weights"] {
        assert!(!caller.contains(package), "the caller's program links {package}");
    }
    let mut read = 0;
    for room in caller.iter().filter_map(|package| package.strip_prefix("confide-")) {
        let source = format!("crates/{room}/src");
        for path in files_under(&source, &[".rs"]) {
            let shown = relative_path(&path);
            let below = shown.strip_prefix(&source).unwrap_or(&shown).trim_start_matches('/');
            let is_of_feature =
                room == "cli" && OF_FEATURES.iter().any(|feature| below.starts_with(feature));
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if is_of_feature || MODULES.contains(&stem) || stem.ends_with("_tests") {
                continue;
            }
            read += 1;
            let text = fs::read_to_string(&path).expect("a source file is text");
            // Where a module's other form is chosen.
            let lines = product_lines(&text).filter(|(_, line)| !line.starts_with("#[cfg_attr("));
            for (number, line) in lines {
                let is_conditional = line.contains("cfg");
                let conditions = CONDITIONS.iter().filter(|_| is_conditional);
                let name = NAMES.iter().chain(conditions).find(|name| line.contains(**name));
                assert!(name.is_none(), "{shown}:{number} has {}", name.unwrap_or(&""));
            }
        }
    }
    assert!(read > 200, "{read} files");
}

#[test]
fn what_passes_tls_through_links_nothing_that_can_decrypt() {
    const CIPHERS: &[&str] = &[
        "aes",
        "aws-lc",
        "boring",
        "chacha20",
        "cipher",
        "confide-channel",
        "confide-evidence",
        "native-tls",
        "openssl",
        "ring",
        "rustls",
        "schannel",
        "tls",
    ];
    let linked = packages_linked(&["-p", "confide-sni"]);
    assert!(linked.contains("confide-sni") && linked.contains("confide-http"), "{linked:?}");
    for package in &linked {
        let name = package.split(' ').next().unwrap_or_default();
        let is_cipher = CIPHERS.iter().any(|cipher| {
            name == *cipher || name.strip_prefix(cipher).is_some_and(|rest| rest.starts_with('-'))
        });
        assert!(!is_cipher, "confide-sni links {package}");
    }
}

/// The most packages that `confide-operator` may link, this project's own among them.
/// Twenty come with `hpke`, most of them for its post-quantum key, two read `/proc`, and one the
/// exemptions from a proxy.
const OPERATOR_PACKAGES_MAX: usize = 249;

/// The most packages that the client and the gateway may link together. Two are for the words of refusals.
const CLIENT_AND_GATEWAY_PACKAGES_MAX: usize = 169;

/// The packages that cargo links for `arguments`, by name and version; ours by their names alone.
fn packages_linked(arguments: &[&str]) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(checkout()).args(["tree", "--locked", "-e", "normal", "--prefix", "none"]);
    let output = tree.args(arguments).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let package = |line: &str| match line.strip_prefix("confide-") {
        Some(_) => line.split(' ').next().unwrap_or_default().to_owned(),
        None => line.split(" (").next().unwrap_or_default().to_owned(),
    };
    text.lines().filter(|line| !line.is_empty()).map(package).collect()
}

#[test]
fn evidence_statement_and_verifier_are_built_without_std() {
    for room in ["crates/evidence", "crates/statement", "crates/verifier"] {
        let path = checkout().join(room).join("src/lib.rs");
        let text = fs::read_to_string(&path).expect("the crate has a lib.rs");
        assert!(text.contains("#![no_std]"), "{} must say #![no_std]", relative_path(&path));
    }
}

#[test]
fn the_wall_clock_the_environment_and_the_arguments_are_read_on_the_top_floor_only() {
    const READERS: &[&str] = &["SystemTime::now", "env::args", "env::var", "UNIX_EPOCH.elapsed"];
    const TOP: &[&str] = &[
        "bench/",
        "crates/cli/",
        "crates/python/",
        "tests/",
        "zkvm/src/",
        "guests/programs/src/bin/",
        "web/bindgen/src/",
    ];
    for path in files_under("", &[".rs"]) {
        let shown = relative_path(&path);
        if TOP.iter().any(|top| shown.starts_with(top))
            || shown.contains("/tests/")
            || shown.ends_with("_tests.rs")
            || shown.contains("/examples/")
        {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file is text");
        for (number, line) in product_lines(&text) {
            for reader in READERS {
                assert!(!line.contains(reader), "{shown}:{number} uses {reader}");
            }
        }
    }
}

#[test]
fn only_the_collateral_and_attester_rooms_touch_devices() {
    const DEVICES: &[&str] = &["/dev/tdx", "/dev/sev", "/sys/kernel/config"];
    for path in files_under("crates", &[".rs"]) {
        let shown = relative_path(&path);
        if shown.starts_with("crates/attester/") || shown.contains("/tests/") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file is text");
        for (number, line) in product_lines(&text) {
            for device in DEVICES {
                assert!(!line.contains(device), "{shown}:{number} names the device {device}");
            }
        }
    }
}

/// The lines above the in-file tests, without comments, numbered from 1; none of a file that is a test.
fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = ["#[cfg(test)]", "#![cfg(test)]"];
    text.lines()
        .enumerate()
        .take_while(move |(_, line)| !tests.iter().any(|test| line.trim_start().starts_with(test)))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line))
}

fn confide_dependencies(room: &str, section: &str) -> BTreeSet<String> {
    dependencies(room, section)
        .keys()
        .filter_map(|name| name.strip_prefix("confide-").map(String::from))
        .collect()
}

fn dependencies(room: &str, section: &str) -> Table {
    let path = checkout().join(room).join("Cargo.toml");
    let manifest = read_manifest(&path);
    match manifest.get(section) {
        Some(Value::Table(table)) => table.clone(),
        _ => Table::new(),
    }
}

fn read_manifest(path: &Path) -> Table {
    let text = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", relative_path(path)));
    text.parse().unwrap_or_else(|error| panic!("{} is not TOML: {error}", relative_path(path)))
}
