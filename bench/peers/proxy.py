"""A service of a suite: nginx or HAProxy as a proxy, or a listener of confide that passes TLS through.

    python3 bench/peers/proxy.py nginx|haproxy|haproxy-pass|confide-pass --upstream HOST:PORT --dir DIR

nginx and HAProxy terminate TLS 1.3 (TLS_AES_128_GCM_SHA256, P-256, X25519, no tickets) in one process with one thread,
and keep connections to the upstream. The certificate is written to DIR/NAME.pem, which clients have to trust. The
-pass kinds route by the server name `localhost` and decrypt nothing. The ready line names address, process and
version. SIGTERM ends the proxy and this script.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

# More connections than any bench opens; descriptors are twice that.
CONNECTIONS = 4096
START_DEADLINE_S = 20
# Answers are small and on loopback: nothing waits as long.
TIMEOUT_S = 300
ALSO_IN = "/usr/sbin:/sbin"

NGINX = """daemon off; master_process off; worker_processes 1; pid {dir}/{name}.pid; error_log stderr warn;
worker_rlimit_nofile {descriptors};
events {{ worker_connections {descriptors}; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout {timeout}s;
  client_body_temp_path {dir}/{name}-body; proxy_temp_path {dir}/{name}-proxy; fastcgi_temp_path {dir}/{name}-fastcgi;
  uwsgi_temp_path {dir}/{name}-uwsgi; scgi_temp_path {dir}/{name}-scgi;
  upstream model {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; keepalive_timeout {timeout}s; }}
  server {{
    listen {listen} ssl backlog=4096;
    ssl_certificate {dir}/{name}.pem; ssl_certificate_key {dir}/{name}.key;
    ssl_protocols TLSv1.3; ssl_ecdh_curve X25519; ssl_session_tickets off; ssl_session_cache off;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    location / {{ proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""

HAPROXY = """global
  nbthread 1
  maxconn {connections}
  tune.ssl.cachesize 0
  ssl-default-bind-options ssl-min-ver TLSv1.3 no-tls-tickets
  ssl-default-bind-curves X25519
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
defaults
  timeout client {timeout}s
  timeout server {timeout}s
  timeout connect 5s
"""

HAPROXY_TERMINATE = """frontend clients
  mode http
  bind {listen} ssl crt {dir}/{name}.both backlog 4096 alpn http/1.1
  default_backend model
backend model
  mode http
  http-reuse always
  server model {upstream} pool-max-conn 256
"""

HAPROXY_PASS = """frontend clients
  mode tcp
  bind {listen} backlog 4096
  tcp-request inspect-delay 5s
  tcp-request content accept if {{ req.ssl_hello_type 1 }}
  use_backend machine if {{ req.ssl_sni -i localhost }}
backend machine
  mode tcp
  option splice-auto
  server machine {upstream}
"""

CONFIDE_PASS = """threads = 1

[[listener]]
kind = "pass"
listen = "{listen}"
connections = {{ max = {connections}, per_address = {connections} }}
[[listener.route]]
names = ["localhost"]
targets = ["{upstream}"]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["nginx", "haproxy", "haproxy-pass", "confide-pass"])
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    settings = parser.parse_args()
    folder = settings.dir.resolve()
    name = settings.kind
    port = find_free_port()
    values = {
        "dir": folder,
        "name": name,
        "listen": f"127.0.0.1:{port}",
        "upstream": settings.upstream,
        "connections": CONNECTIONS,
        "descriptors": 2 * CONNECTIONS,
        "timeout": TIMEOUT_S,
    }
    command = configure(name, folder, values)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    if not wait_until_listening(process, port):
        process.terminate()
        print(f"{name}: no connection to port {port} within {START_DEADLINE_S} s", file=sys.stderr)
        return 1
    ready = {
        "ready": True,
        "listen": values["listen"],
        "pid": process.pid,
        "version": read_version(command[0], name),
    }
    print(json.dumps(ready), flush=True)
    process.wait()
    return 0


def configure(name: str, folder: pathlib.Path, values: dict[str, object]) -> list[str]:
    """Writes the configuration and returns the command that uses it."""
    if name == "confide-pass":
        return [
            find_own_program(),
            "gateway",
            "--config",
            write(folder / f"{name}.toml", CONFIDE_PASS, values),
        ]
    if name == "haproxy-pass":
        return [
            find("haproxy"),
            "-db",
            "-f",
            write(folder / f"{name}.cfg", HAPROXY + HAPROXY_PASS, values),
        ]
    make_certificate(folder, name)
    if name == "haproxy":
        return [
            find("haproxy"),
            "-db",
            "-f",
            write(folder / f"{name}.cfg", HAPROXY + HAPROXY_TERMINATE, values),
        ]
    return [
        find("nginx"),
        "-p",
        str(folder),
        "-e",
        "stderr",
        "-c",
        write(folder / f"{name}.conf", NGINX, values),
    ]


def find_own_program() -> str:
    """Returns the program that runs the suite, which is the parent of this process."""
    return os.readlink(f"/proc/{os.getppid()}/exe")


def find(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{ALSO_IN}")
    if path is None:
        raise SystemExit(f"the program {program} is missing: install Debian's package of this name")
    return path


def write(path: pathlib.Path, text: str, values: dict[str, object]) -> str:
    path.write_text(text.format(**values))
    return str(path)


def make_certificate(folder: pathlib.Path, name: str) -> None:
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", *curve, *files, "-days", "30", *subject]
    subprocess.run(command, check=True, capture_output=True)
    (folder / f"{name}.both").write_text(certificate.read_text() + key.read_text())


def read_version(program: str, name: str) -> str:
    option = "--version" if name == "confide-pass" else "-v"
    told = subprocess.run([program, option], capture_output=True, text=True, check=False)
    return (told.stdout + told.stderr).strip().splitlines()[0]


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(process: subprocess.Popen[bytes], port: int) -> bool:
    until = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(main())
