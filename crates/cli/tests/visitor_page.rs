//! The page for visitors next to a tunnel, with the real program.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
};

use confide_tests::{ANY_PORT, Folder, Process, Program};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
const FILE: &str = "<!doctype html><meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; img-src data:\"><p>a page";
const PAGE: &str = "/.well-known/confide/page";
/// A port on which nobody listens.
const NOBODY: &str = "127.0.0.1:9";

/// Sends a request with these lines and returns the whole answer.
fn exchange(address: &str, lines: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("{}\r\nHost: h\r\n\r\n", lines.join("\r\n"));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The status of a request for a tunnel to the only target.
fn dial(address: &str, origin: &str) -> String {
    let upgrade = [
        &format!("GET /tunnel?target={NOBODY} HTTP/1.1"),
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        &format!("Origin: {origin}"),
    ];
    exchange(address, &upgrade).split(' ').nth(1).unwrap().to_owned()
}

fn start_file(folder: &Folder, keys: &str) -> Process {
    let file = format!(
        "[[listener]]\nkind = 'tunnel'\nlisten = '{ANY_PORT}'\nallow = ['{NOBODY}']\n{keys}\n"
    );
    CONFIDE.start(&["gateway", "--config", &folder.write("gateway.toml", file)])
}

#[test]
fn a_gateway_serves_a_page_only_if_it_is_told_to() {
    let folder = Folder::new("page");
    let file = folder.write("page.html", FILE);
    let silent = start_file(&folder, "allow_origin = ['http://h']");
    assert!(silent.ready["listeners"][0]["page"].is_null());
    for path in [PAGE, "/"] {
        let answer = exchange(&silent.address(), &[&format!("GET {path} HTTP/1.1")]);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
    let serving = start_file(&folder, &format!("allow_origin = ['http://h']\npage = '{file}'"));
    let described = &serving.ready["listeners"][0]["page"];
    assert_eq!(described["path"], PAGE);
    let answer = exchange(&serving.address(), &[&format!("GET {PAGE} HTTP/1.1")]);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && body == FILE, "{answer}");
    let digest = described["sha256"].as_str().unwrap();
    assert!(head.contains(&format!("ETag: \"{digest}\"")), "{head}");
    let printed = Command::new("sha256sum").arg(&file).output().expect("sha256sum runs").stdout;
    assert!(String::from_utf8(printed).unwrap().starts_with(digest));
    // The file was read at the start.
    folder.write("page.html", "another");
    let again = exchange(&serving.address(), &[&format!("GET {PAGE} HTTP/1.1")]);
    assert_eq!(again.split_once("\r\n\r\n").unwrap().1, FILE);
    let traversal =
        exchange(&serving.address(), &[&format!("GET {PAGE}/../../gateway.toml HTTP/1.1")]);
    assert!(traversal.starts_with("HTTP/1.1 404 "), "{traversal}");
}

#[test]
fn next_to_a_page_the_tunnel_asks_for_the_origin_as_before() {
    let folder = Folder::new("origins");
    let file = folder.write("page.html", FILE);
    let at = ["tunnel", "--listen", ANY_PORT, "--allow", NOBODY, "--page", &file];
    let origin = ["--allow-origin", "http://h"];
    let strict = CONFIDE.start(&[&at[..], &origin].concat());
    // 502: the tunnel was allowed, and nobody listens at its target.
    assert_eq!(dial(&strict.address(), "http://h"), "502");
    for other in ["null", "http://evil.example"] {
        assert_eq!(dial(&strict.address(), other), "403", "{other}");
    }
    let open = CONFIDE.start(&[&at[..], &["--dangerous-allow-null-origin"]].concat());
    assert_eq!(open.ready["allow_origins"][0], "null");
    assert_eq!(dial(&open.address(), "null"), "502");
    assert_eq!(dial(&open.address(), "http://evil.example"), "403");
}

#[test]
fn what_cannot_be_a_page_is_refused_at_the_start() {
    let folder = Folder::new("refused");
    let page = folder.write("page.html", FILE);
    let other = folder.write("other.html", "<p>a page");
    let long = folder.write("long.html", FILE.to_owned() + &" ".repeat(8 * 1024 * 1024));
    let origin = ["--allow-origin", "http://h"];
    for (more, wanted) in [
        (&["--page", &page][..], "page: wanted allow_origin too"),
        (
            &[&["--page", &other], &origin[..]].concat(),
            "other.html: wanted the released confide-page.html",
        ),
        (
            &[&["--page", &long], &origin[..]].concat(),
            "long.html is too long: wanted at most 8388608 bytes",
        ),
        (&[&["--page", "/no/page.html"], &origin[..]].concat(), "cannot read /no/page.html"),
    ] {
        let start = [&["tunnel", "--listen", ANY_PORT, "--allow", NOBODY], more].concat();
        let ended = CONFIDE.run(&start);
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
    }
}
