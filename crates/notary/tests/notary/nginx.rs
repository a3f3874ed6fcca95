//! A server of other hands: Debian's nginx, with a certificate made for the test.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use confide_disclosure::{BodyView, HttpVersion, NotarisedSession};
use confide_notary::{FetchRequest, NotaryLimits};

use crate::site::{Ca, Client, notary, value};

const CHAT: &str =
    r#"{"model":"m","choices":[{"message":{"content":"hi"}}],"usage":{"total_tokens":7}}"#;

/// Ports that are tried.
const TRIES: usize = 5;

/// Ends with the value, and its folder with it.
struct Nginx {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// nginx with TLS on a free port; `None` if this machine has none.
fn nginx(ca: &Ca, name: &str, http2: &str) -> Option<Nginx> {
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|p| Path::new(p).exists());
    let Some(program) = program else {
        println!("skipped: no nginx");
        return None;
    };
    let folder = std::env::temp_dir().join(format!("confide-nginx-{name}-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("files")).unwrap();
    let (chain, key) = ca.pem_for("localhost");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("chain.pem", &chain);
    write("key.pem", &key);
    write("files/chat.json", CHAT);
    // Long enough that nginx compresses it, which makes it chunked.
    write("files/long.json", &format!("{{\"text\":\"{}\"}}", "na ".repeat(20_000)));
    // Somebody else may take the port before nginx does: then it ends, and tries another one.
    let started = (0..TRIES).find_map(|_| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        write("nginx.conf", &configuration(port, http2));
        Some((listening(program, &folder)?, port))
    });
    let (process, port) = started.expect("nginx does not listen");
    Some(Nginx { process, folder, port })
}

fn configuration(port: u16, http2: &str) -> String {
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr warn;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path t1; proxy_temp_path t2;\n\
         fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n\
         types {{ application/json json; }} gzip on; gzip_types application/json;\n\
         gzip_min_length 1000;\n\
         server {{ listen 127.0.0.1:{port} ssl{http2}; ssl_certificate chain.pem;\n\
         ssl_certificate_key key.pem; root files;\n\
         location = /moved {{ return 302 https://127.0.0.1:9/; }} }} }}\n"
    )
}

/// `None` if it ended before it listened.
fn listening(program: &str, folder: &Path) -> Option<Child> {
    let mut process = Command::new(program)
        .args(["-p", &format!("{}/", folder.display()), "-c", "nginx.conf", "-e", "stderr"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It writes this file once it listens. Who answers on the port might be somebody else.
    while !folder.join("nginx.pid").exists() {
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(process)
}

async fn fetch(client: &Client, port: u16, path: &str, coding: &str) -> NotarisedSession {
    let url = format!("https://localhost:{port}{path}");
    let fields = vec![("accept-encoding".into(), coding.into())];
    let key = client.key.spki_hash();
    let request = FetchRequest::new("GET", &url, fields, Vec::new(), key).unwrap();
    client.fetch(&request).await.unwrap()
}

#[tokio::test]
async fn nginx_is_notarised_over_both_versions_plain_chunked_and_compressed() {
    let ca = Ca::new();
    for (name, http2, version) in
        [("one", "", HttpVersion::V11), ("two", " http2", HttpVersion::V2)]
    {
        let Some(nginx) = nginx(&ca, name, http2) else { return };
        let site = notary(&ca, nginx.port, NotaryLimits::default()).await;
        let client = site.client().await;
        let plain = fetch(&client, nginx.port, "/chat.json", "identity").await;
        assert_eq!(plain.statement.http, version);
        assert_eq!(plain.statement.response_view, BodyView::Json);
        assert_eq!(value(&plain, "response./usage/total_tokens"), "7");
        assert!(plain.received.ends_with(CHAT.as_bytes()));
        let coded = fetch(&client, nginx.port, "/long.json", "gzip").await;
        assert_eq!(value(&coded, "response.header:content-encoding"), "gzip");
        assert_eq!(value(&coded, "response./text").len(), 60_000);
        let is_chunked =
            coded.fields.iter().any(|field| field.path == "response.header:transfer-encoding");
        assert_eq!(is_chunked, version == HttpVersion::V11);
        let moved = fetch(&client, nginx.port, "/moved", "identity").await;
        assert_eq!(value(&moved, "response.status"), "302");
        let absent = fetch(&client, nginx.port, "/absent", "identity").await;
        assert_eq!(value(&absent, "response.status"), "404");
        assert_eq!(plain.statement.certificate_chain_hash, coded.statement.certificate_chain_hash);
    }
}
