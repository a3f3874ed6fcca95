//! `confide gateway --config`: several attested machines behind one address, told apart by server name.
//!
//! All evidence here is simulated.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use confide_tests::{ANY_PORT, Folder, Process, Program, text};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

/// A machine: a model server with an attested gateway in front.
struct Machine {
    _serve: Process,
    gateway: Process,
}

fn machine(attester: &str, model: &str, binding: &str) -> Machine {
    let serve =
        CONFIDE.start(&["serve", "--engine", "sim", "--model-name", model, "--listen", ANY_PORT]);
    let upstream = format!("http://{}", serve.address());
    let arguments =
        ["gateway", "--listen", ANY_PORT, "--upstream", &upstream, "--binding", binding];
    let evidence: &[&str] = if binding == "none" { &[] } else { &["--simulate", attester] };
    let gateway = CONFIDE.start(&[&arguments[..], evidence].concat());
    Machine { _serve: serve, gateway }
}

fn simulate(folder: &Folder) -> String {
    let out = folder.argument("attester");
    let more = ["--dangerous-platform-scope"];
    let made = CONFIDE.run(&[&["attest", "--simulate", "tdx", "--out", &out], &more[..]].concat());
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    out
}

/// The file of one listener with a route for each pair of name and address.
fn config(listen: &str, routes: &[(&str, &str)]) -> String {
    let mut file = format!("[[listener]]\nkind = \"pass\"\nlisten = \"{listen}\"\n");
    for (name, target) in routes {
        file += &format!("[[listener.route]]\nnames = [\"{name}\"]\ntargets = [\"{target}\"]\n");
    }
    file
}

/// Asks for the models over TLS that names `name`, without checking the certificate. Returns curl's status, its output
/// and its error.
fn curl_models(address: &str, name: &str) -> (Option<i32>, String, String) {
    let port = address.rsplit(':').next().unwrap();
    let resolve = format!("{name}:{port}:127.0.0.1");
    let url = format!("https://{name}:{port}/v1/models");
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--insecure",
            "--max-time",
            "60",
            "--resolve",
            &resolve,
            &url,
        ])
        .output()
        .expect("curl runs");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn two_attested_machines_behind_one_address_are_reached_and_verified_by_name() {
    let folder = Folder::new("pass");
    let attester = simulate(&folder);
    let (one, two) =
        (machine(&attester, "model-one", "key"), machine(&attester, "model-two", "session"));
    let none = machine(&attester, "model-three", "none");
    let (to_one, to_two) = (one.gateway.address(), two.gateway.address());
    let routes = [("localhost", to_one.as_str()), ("*.example.org", &none.gateway.address())];
    let listeners = [config(ANY_PORT, &routes), config(ANY_PORT, &[("localhost", &to_two)])];
    let file = folder.write("gateway.toml", listeners.concat());
    let pass = CONFIDE.start(&["gateway", "--config", &file]);
    assert_eq!(pass.ready["guarantee"], "none (TLS is passed through unread)");
    assert_eq!(pass.ready["listeners"][0]["routes"], 2);
    let policy = Path::new(&attester).join("policy.toml");
    for (index, binding, machine) in [(0, "key", &one), (1, "session", &two)] {
        let address = pass.ready["listeners"][index]["listen"].as_str().unwrap();
        let url = format!("https://localhost:{}", address.rsplit(':').next().unwrap());
        let policy = ["--policy", text(&policy), "--binding", binding];
        let connect =
            CONFIDE.start(&[&["connect", &url, "--listen", ANY_PORT], &policy[..]].concat());
        assert_eq!(connect.ready["config_digest"], machine.gateway.ready["config_digest"]);
        assert!(connect.terminate().success());
    }
    let (status, models, error) = curl_models(&pass.address(), "three.example.org");
    assert!(status == Some(0) && models.contains("model-three"), "{status:?} {models} {error}");
    let (status, _, error) = curl_models(&pass.address(), "other.example");
    assert!(status != Some(0) && error.contains("unrecognized name"), "{status:?} {error}");
    assert!(pass.terminate().success());
}

#[test]
fn routes_are_reloaded_at_sighup_and_a_wrong_file_changes_nothing() {
    let folder = Folder::new("pass-reload");
    let (one, two) = (machine("", "model-one", "none"), machine("", "model-two", "none"));
    let name = "a.example.org";
    let routes = |machine: &Machine| config(ANY_PORT, &[(name, &machine.gateway.address())]);
    let file = folder.write("gateway.toml", routes(&one));
    let pass = CONFIDE.start(&["gateway", "--config", &file]);
    let answers_with = |model: &str| curl_models(&pass.address(), name).1.contains(model);
    assert!(answers_with("model-one"));
    let hang_up = || {
        let id = pass.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().expect("kill runs").success());
    };
    folder.write("gateway.toml", "[[listener]]\nkind = \"terminate\"\n");
    hang_up();
    assert!(answers_with("model-one"), "the file is wrong, the old routes stay");
    folder.write("gateway.toml", routes(&two));
    hang_up();
    let until = Instant::now() + GENEROUS;
    while !answers_with("model-two") {
        assert!(Instant::now() < until, "the new routes do not apply");
    }
    assert!(pass.terminate().success());
}

#[test]
fn a_file_that_says_too_little_is_refused_before_anything_listens() {
    let folder = Folder::new("pass-refused");
    let file =
        folder.write("gateway.toml", "[[listener]]\nkind = \"pass\"\nlisten = \"127.0.0.1:0\"\n");
    let refused = CONFIDE.run(&["gateway", "--config", &file]);
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("listener 1: routes: wanted at least one"),
        "{}",
        refused.stderr
    );
    let both = CONFIDE.run(&["gateway", "--config", &file, "--listen", ANY_PORT]);
    assert_eq!(both.status, Some(2), "{}", both.stderr);
    let neither = CONFIDE.run(&["gateway"]);
    assert!(
        neither.status == Some(2) && neither.stderr.contains("--upstream"),
        "{}",
        neither.stderr
    );
}
