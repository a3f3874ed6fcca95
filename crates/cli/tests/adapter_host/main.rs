//! Adapter host and key holder as two processes. The parameter set is a toy without any security,
//! and all evidence here is simulated.

mod processes;
mod spy;

use std::{sync::Arc, time::Duration};

use confide_lora::{
    AdaptError, DeltaProvider, LayerInput, Projection,
    holder::{KeyHolderOptions, RemoteAdapter},
    protocol::{ConnectionSide, FrameKind, FrameReader, MaskedRequest, packed_bytes, unpack},
    quantise_vector,
};
use confide_tests::{Process, text};
use processes::{CONFIDE, Folder, TOY, Tcp, WIDTH, parameters};
use spy::{Relay, contains, memory_of};

const GENEROUS: Duration = Duration::from_secs(60);

fn remote(address: &str) -> RemoteAdapter {
    let options = KeyHolderOptions::new("banking", parameters());
    RemoteAdapter::connect(Arc::new(Tcp(address.into())), options).unwrap()
}

fn query(remote: &RemoteAdapter, x: &[f32]) -> Result<Vec<f32>, AdaptError> {
    let mut output = vec![0f32; WIDTH];
    let outputs = &mut [(Projection::Query, &mut output[..])];
    remote.open_session()?.add_deltas(0, LayerInput::Attention, x, outputs)?;
    Ok(output)
}

fn activation() -> Vec<f32> {
    (0..WIDTH).map(|at| ((at * at) as f32 * 0.37).sin() * 4.0 + 0.01).collect()
}

#[test]
fn either_side_may_demand_the_others_evidence() {
    let folder = Folder::new("both");
    let (at_host, at_holder) = (folder.simulate("host"), folder.simulate("holder"));
    let dir = folder.adapter("banking");
    for (binding, demands) in [("key", false), ("session", false), ("session", true)] {
        let client_policy = at_holder.join("policy.toml");
        let mut more = vec!["--binding", binding, "--simulate", text(&at_host)];
        if demands {
            more.extend(["--client-policy", text(&client_policy)]);
        }
        let host = folder.host(&dir, &more);
        assert_eq!(host.ready["simulated"], true);
        let guarantee = host.ready["guarantee"].as_str().unwrap();
        assert!(guarantee.ends_with("(simulated)"));
        // Only accepted attestation keeps the adapter from being learned.
        assert_eq!(guarantee.contains("can be learned"), !demands, "{guarantee}");
        let policy = at_host.join("policy.toml");
        let mut ask = vec!["--policy", text(&policy), "--compare", text(&dir), "--json"];
        ask.extend(["--binding", binding]);
        if demands {
            let without = host.prepare(&ask);
            assert_eq!(without.status, Some(2), "it shows no evidence: {}", without.stdout);
            ask.extend(["--simulate", text(&at_holder)]);
        }
        let ended = host.prepare(&ask);
        assert_eq!(ended.status, Some(0), "{binding} {demands}: {}", ended.stderr);
        let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let guarantee = answer["guarantee"].as_str().unwrap();
        assert!(guarantee.ends_with("(simulated)"), "{answer}");
        assert_eq!(guarantee.contains("can be learned"), !demands, "{answer}");
        assert!(answer["relative_error"].as_f64().unwrap() < 1e-3, "{answer}");
        assert_eq!(answer["budget_left"].is_null(), demands, "{answer}");
        // Evidence under another root is refused before a word is said.
        let wrong = at_holder.join("policy.toml");
        ask[1] = text(&wrong);
        let refused = host.prepare(&ask);
        assert_eq!(refused.status, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("check `root` failed"), "{}", refused.stderr);
        assert!(host.terminate().success());
    }
}

/// Issue: a policy that names no configuration is refused by every client, and by a host that
/// demands evidence of its clients.
#[test]
fn a_policy_that_pins_no_configuration_is_refused_by_either_side() {
    let folder = Folder::new("scope");
    let (at_host, at_holder) = (folder.simulate_unpinned("host"), folder.simulate("holder"));
    let dir = folder.adapter("banking");
    let session = ["--binding", "session", "--simulate", text(&at_host)];
    let host = folder.host(&dir, &session);
    let policy = at_host.join("policy.toml");
    let ask = ["--policy", text(&policy), "--binding", "session"];
    let refused = host.prepare(&ask);
    assert_eq!(refused.status, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("only the platform was checked"), "{}", refused.stderr);
    let arguments = ["adapter", "host", text(&dir), "--listen", "127.0.0.1:0"];
    let digest = [&arguments[..], &TOY, &session, &["--print-config-digest"]].concat();
    let digest = CONFIDE.run(&digest).stdout;
    assert_eq!(host.ready["config_digest"], digest.trim());
    let pin = |digest: &str| {
        let pinned = CONFIDE.run(&["policy", "pin", text(&policy), "--digest", digest]);
        assert_eq!(pinned.status, Some(0), "{}", pinned.stderr);
    };
    pin(digest.trim());
    let accepted = host.prepare(&ask);
    assert_eq!(accepted.status, Some(0), "{}", accepted.stderr);
    // A key holder has no configuration: its digest is zeros, and that can be pinned as well.
    let unpinned = folder.simulate_unpinned("unpinned").join("policy.toml");
    for (client_policy, lets_in) in [(&unpinned, false), (&at_holder.join("policy.toml"), true)] {
        let demand = ["--client-policy", text(client_policy)];
        let host = folder.host(&dir, &[&session[..], &demand].concat());
        pin(host.ready["config_digest"].as_str().unwrap());
        let prepared = host.prepare(&[&ask[..], &["--simulate", text(&at_holder)]].concat());
        assert_eq!(prepared.status == Some(0), lets_in, "{}", prepared.stderr);
    }
}

#[test]
fn a_host_without_evidence_may_demand_that_of_the_key_holder() {
    let folder = Folder::new("holder-only");
    let at_holder = folder.simulate("holder");
    let (policy, certificate) = (at_holder.join("policy.toml"), folder.0.join("host.der"));
    let dir = folder.adapter("banking");
    let demand = ["--binding", "none", "--client-policy", text(&policy)];
    let out = ["--certificate-out", text(&certificate)];
    let host = folder.host(&dir, &[&demand[..], &out[..]].concat());
    let own = ["--simulate", text(&at_holder), "--host-certificate", text(&certificate)];
    let ended = host.prepare(&[&own[..], &["--json"]].concat());
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("(simulated)"), "{}", ended.stdout);
    assert_eq!(host.prepare(&[]).status, Some(2), "plain TCP is no way in");
}

#[test]
fn a_host_killed_at_work_is_lost_by_name_and_its_masks_with_it() {
    let folder = Folder::new("killed");
    let dir = folder.adapter("banking");
    let host = folder.host(&dir, &["--binding", "none"]);
    let address = host.address();
    let remote = remote(&address);
    remote.wait_until_prepared(4, GENEROUS, |_| ()).unwrap();
    let (x, epoch) = (activation(), remote.host_epoch());
    let before = query(&remote, &x).unwrap();
    let mut deltas = remote.open_session().unwrap();
    // Killed while vectors are on their way: the loop ends with an error and never with a lie.
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(host);
    });
    let lost = loop {
        let mut output = vec![0f32; WIDTH];
        let outputs = &mut [(Projection::Query, &mut output[..])];
        match deltas.add_deltas(0, LayerInput::Attention, &x, outputs) {
            Ok(()) => assert_eq!(output, before),
            Err(AdaptError::Budget { .. }) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => break error,
        }
        if deltas.report().budget_left == Some(0) || deltas.report().answered_vectors > 40 {
            deltas = match remote.open_session() {
                Ok(deltas) => deltas,
                Err(error) => break error,
            };
        }
    };
    killer.join().unwrap();
    assert!(matches!(lost, AdaptError::HostLost { .. }), "{lost:?}");
    drop(deltas);
    let again = folder.host_at(&address, &dir, &["--binding", "none"]);
    assert_ne!(again.ready["epoch"].as_str().unwrap(), hex::encode(epoch));
    let after = retry(|| query(&remote, &x));
    assert_eq!(after, before, "new masks, the same adapter");
    assert_eq!(again.ready["epoch"].as_str().unwrap(), hex::encode(remote.host_epoch()));
}

#[test]
fn counts_of_answers_outlive_the_host_and_its_adapters_name() {
    let folder = Folder::new("counts");
    let (dir, state) = (folder.adapter("banking"), folder.0.join("state"));
    let options = ["--binding", "none", "--state", text(&state), "--budget", "100"];
    let mut lefts = Vec::new();
    for visit in 0..2 {
        let host = folder.host(&dir, &options);
        assert_eq!(host.ready["adapters"][0]["budget_least"], 100);
        let ended = host.prepare(&["--json", "--compare", text(&dir)]);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        lefts.push(answer["budget_left"].as_u64().unwrap());
        if visit == 0 {
            let second = ["adapter", "host", text(&dir), "--listen", "127.0.0.1:0"];
            let refused = CONFIDE.run(&[&second[..], &options[..]].concat());
            assert_eq!(refused.status, Some(2), "two hosts cannot count in one file");
            assert!(refused.stderr.contains("another adapter host"), "{}", refused.stderr);
        }
        assert!(host.terminate().success());
    }
    assert!(lefts[0] < 100, "{lefts:?}");
    // A clean end writes what was answered and no more.
    assert_eq!(100 - lefts[1], 2 * (100 - lefts[0]), "{lefts:?}");
    // A file that counts by name, as an earlier version wrote it, is refused and not thrown away.
    let (old, id) = (folder.0.join("old.jsonl"), "ab".repeat(32));
    let line = format!(
        "{{\"client\":\"{id}\",\"adapter\":\"{id}\",\"layer\":0,\"input\":0,\"used\":5}}\n"
    );
    std::fs::write(&old, &line).unwrap();
    let host = ["adapter", "host", text(&dir), "--listen", "127.0.0.1:0", "--binding", "none"];
    let refused = CONFIDE.run(&[&host[..], &["--budget-file", text(&old)]].concat());
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("by the adapter's name"), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(&old).unwrap(), line);
}

#[test]
fn beyond_loopback_a_host_demands_evidence_or_a_credential() {
    let folder = Folder::new("strangers");
    let dir = folder.adapter("banking");
    let at_host = folder.simulate("host");
    let host = ["adapter", "host", text(&dir), "--listen", "0.0.0.0:0", "--simulate"];
    let host = [&host[..], &[text(&at_host), "--dangerous-forget-budgets"]].concat();
    let refused = CONFIDE.run(&host);
    assert_eq!(refused.status, Some(2), "{}", refused.stdout);
    for part in ["--client-policy", "--clients", "--dangerous-answer-strangers"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let started = CONFIDE.start(&[&host[..], &["--dangerous-answer-strangers"]].concat());
    assert!(started.ready["guarantee"].as_str().unwrap().contains("adapter can be learned"));
    drop(started);
    let clients = folder.0.join("clients");
    std::fs::write(&clients, format!("alice {}\n", "ab".repeat(32))).unwrap();
    let started = CONFIDE.start(&[&host[..], &["--clients", text(&clients)]].concat());
    assert!(started.ready["guarantee"].as_str().unwrap().contains("adapter can be learned"));
}

#[test]
fn the_audit_log_is_written_and_holds_no_values() {
    let folder = Folder::new("audit");
    let (dir, file) = (folder.adapter("banking"), folder.0.join("audit.jsonl"));
    let host = folder.host(&dir, &["--binding", "none", "--audit-log", text(&file)]);
    assert_eq!(host.prepare(&["--compare", text(&dir)]).status, Some(0));
    assert!(host.terminate().success());
    let log = std::fs::read_to_string(&file).unwrap();
    for event in ["hello", "prepared", "counted", "goodbye", "stopped"] {
        assert!(log.contains(&format!("\"event\":\"{event}\"")), "{event}: {log}");
    }
}

#[test]
fn neither_the_wire_nor_the_hosts_memory_ever_holds_the_activation_or_its_masks() {
    let folder = Folder::new("blind");
    let dir = folder.adapter("banking");
    let host = folder.host(&dir, &["--binding", "none"]);
    let relay = Relay::before(&host.address());
    let remote = remote(&relay.address);
    let x = activation();
    query(&remote, &x).unwrap();
    let (up, down) = relay.recording();
    let adapter = confide_lora::Adapter::load(&dir).unwrap();
    let terms = spy::terms_of(&down);
    let integers = quantise_vector(&x, terms.norm_limit).unwrap().values;
    let masked = find_applied_vector(&up, terms.bits);
    let low = u64::MAX >> (64 - terms.bits);
    let words = |values: &[u64]| -> Vec<u8> {
        values[8..16].iter().flat_map(|word| word.to_le_bytes()).collect()
    };
    let true_words: Vec<u64> = integers.iter().map(|x| i64::from(*x) as u64 & low).collect();
    let masks: Vec<u64> =
        true_words.iter().zip(&masked).map(|(x, y)| x.wrapping_sub(*y) & low).collect();
    let mut packed_masks = Vec::new();
    confide_lora::protocol::pack(&masks, terms.bits, &mut packed_masks);
    let secrets: [(&str, Vec<u8>); 5] = [
        ("the activation as floats", x[8..16].iter().flat_map(|x| x.to_le_bytes()).collect()),
        (
            "the activation as 16-bit integers",
            integers[8..24].iter().flat_map(|x| x.to_le_bytes()).collect(),
        ),
        ("the activation as words", words(&true_words)),
        ("its masks as words", words(&masks)),
        ("its masks as they would travel", packed_masks[33..66].to_vec()),
    ];
    // What is handed over has to be found, or the search finds nothing at all.
    let b = spy::first_factor(&adapter, &terms);
    assert!(contains(&down, &b), "B travels under protect = A");
    assert!(masked.len() == WIDTH && !contains(&down, &secrets[0].1));
    for (what, bytes) in &secrets {
        assert!(!contains(&up, bytes) && !contains(&down, bytes), "{what} is on the wire");
    }
    let Some(memory) = memory_of(host.id()) else {
        println!("skipped: no right to read another process's memory");
        return;
    };
    assert!(contains(&memory, &b), "the host holds B");
    for (what, bytes) in &secrets {
        assert!(!contains(&memory, bytes), "{what} is in the host's memory");
    }
}

/// The one masked vector on its way up.
fn find_applied_vector(up: &[u8], bits: u32) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for start in spy::connections(up) {
        let mut reader = FrameReader::new(&up[start.clone()], ConnectionSide::Host);
        while let Ok(frame) = runtime.block_on(reader.read_next("a frame", GENEROUS)) {
            if frame.kind == FrameKind::Apply {
                let apply = MaskedRequest::decode(frame.payload).unwrap();
                assert_eq!(apply.packed.len(), packed_bytes(WIDTH, bits));
                return unpack(apply.packed, bits, WIDTH).unwrap();
            }
        }
    }
    panic!("no vector was sent");
}

/// A host that was just started may refuse for a moment what the preparers ask.
fn retry<T>(mut ask: impl FnMut() -> Result<T, AdaptError>) -> T {
    for _ in 0..20 {
        match ask() {
            Ok(answer) => return answer,
            Err(AdaptError::HostLost { .. }) => std::thread::sleep(Duration::from_millis(100)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the host did not come back");
}

#[test]
fn what_would_weaken_protection_has_to_be_asked_for() {
    let folder = Folder::new("weaken");
    let dir = folder.adapter("banking");
    let beyond = ["adapter", "host", text(&dir), "--listen", "0.0.0.0:0", "--binding", "none"];
    let refused = CONFIDE.run(&beyond);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("--dangerous-listen-beyond-loopback"), "{}", refused.stderr);
    let toy = ["adapter", "host", text(&dir), "--listen", "127.0.0.1:0", "--binding", "none"];
    let refused = CONFIDE.run(&[&toy[..], &["--parameters", processes::PARAMETERS]].concat());
    assert_eq!(refused.status, Some(2), "{}", refused.stdout);
    let far = ["adapter", "prepare", "192.0.2.1:9", "--adapter", "banking"];
    let refused = CONFIDE.run(&far);
    assert!(refused.stderr.contains("is not loopback"), "{}", refused.stderr);
    let key = ["--binding", "key"];
    let refused = CONFIDE.run(&[&toy[..5], &key[..]].concat());
    assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
    let host: Process = CONFIDE.start(&[&toy[..], &["--dangerous-forget-budgets"]].concat());
    assert_eq!(host.ready["guarantee"], "adapter host is blind; adapter can be learned");
    assert!(host.ready["budget_file"].is_null());
}

/// The holder is 127.0.0.2, which no key holder here is.
#[test]
fn a_host_that_one_address_floods_serves_another_at_once() {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };
    let folder = Folder::new("flooded");
    let dir = folder.adapter("banking");
    let host = folder.host(&dir, &["--binding", "none", "--connections", "16"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connect = || -> TcpStream {
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            socket.connect(host.address().parse().unwrap()).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        stream
    };
    // Idle ones and ones with a frame that never ends, over and over.
    let mut streams: Vec<TcpStream> = (0..32).map(|_| connect()).collect();
    for _ in 0..8 {
        let mut stream = connect();
        let _ = stream.write_all(b"x");
        streams.push(stream);
    }
    let mut open = 0;
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        open += usize::from(stream.read(&mut [0]).is_err_and(|error| {
            matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        }));
    }
    assert!(open <= 4, "{open} of one address, which has a quarter of 16");
    let ended = host.prepare(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
}
