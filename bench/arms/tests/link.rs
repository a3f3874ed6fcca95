//! A service behind a link, and a server behind a network: reached through it, and gone with it however it
//! ends.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);

#[test]
fn a_service_behind_a_link_is_reached_and_nothing_is_left_when_the_link_is_killed() {
    // The service is a relay to an echo of this test; in a namespace it cannot reach the echo, and
    // accepts and closes.
    let echo = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = echo.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for mut stream in echo.incoming().flatten() {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        }
    });
    let program = env!("CARGO_BIN_EXE_confide-arm");
    let mut link = Command::new(program)
        .args(["link", "--round-trip-us", "1000", "--", "confide-arm", "relay"])
        .args(["--listen", "%address:0", "--delay-ms", "0", "--to", &to])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the link starts");
    let ready = ready_line(&mut link);
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["simulated"], true);
    assert!(ready["round_trip_reached_us"].as_u64().is_some());
    let between = ready["between"].as_str().expect("what lies between").to_owned();
    let mut client = TcpStream::connect(ready["listen"].as_str().unwrap()).expect("it accepts");
    client.set_read_timeout(Some(GENEROUS)).expect("a time limit");
    client.write_all(b"x").expect("a byte leaves");
    let device = between.split(' ').find(|word| word.starts_with("cfd")).map(str::to_owned);
    match &device {
        Some(device) => assert!(has_device(device.trim_end_matches(','))),
        None => {
            eprintln!("skipped: {between}");
            client.read_exact(&mut [0]).expect("the echo answers over loopback");
        }
    }
    link.kill().expect("the link is killed");
    link.wait().expect("and ends");
    let until = Instant::now() + GENEROUS;
    while device.as_ref().is_some_and(|device| has_device(device.trim_end_matches(','))) {
        assert!(Instant::now() < until, "the device is still there");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_network_has_its_delay_and_its_rate_in_both_directions_or_says_why_it_cannot() {
    // The server answers a byte with a byte, and anything longer when all of it has come.
    const BYTES: usize = 400_000;
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = server.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        let (mut stream, _) = server.accept().expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let mut bytes = vec![0; BYTES];
        stream.read_exact(&mut bytes[..1]).expect("a byte");
        stream.write_all(b"y").expect("a byte leaves");
        stream.read_exact(&mut bytes).expect("everything comes");
        stream.write_all(&bytes).expect("everything leaves");
        let _ = stream.read(&mut bytes);
    });
    let mut network = Command::new(env!("CARGO_BIN_EXE_confide-arm"))
        .args(["network", "--profile", "cable", "--to", &to])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the network starts");
    let ready = ready_line(&mut network);
    if let Some(reason) = ready["cannot"].as_str() {
        eprintln!("skipped: {reason}");
        assert!(network.wait().expect("it ends").success());
        return;
    }
    assert_eq!((&ready["ready"], &ready["simulated"]), (&true.into(), &true.into()));
    let mut client = TcpStream::connect(ready["listen"].as_str().unwrap()).expect("it accepts");
    client.set_read_timeout(Some(GENEROUS)).expect("a time limit");
    let started = Instant::now();
    client.write_all(b"x").expect("a byte leaves");
    client.read_exact(&mut [0]).expect("a byte comes back");
    // One round trip of 20 ms to connect, and one for the byte; the relay's own time is part of them.
    assert!(started.elapsed() > Duration::from_millis(38), "{:?}", started.elapsed());
    let started = Instant::now();
    let mut bytes = vec![7; BYTES];
    client.write_all(&bytes).expect("everything leaves");
    client.read_exact(&mut bytes).expect("everything comes back");
    let least = Duration::from_secs_f64(2.0 * BYTES as f64 * 8.0 / 20e6);
    assert!(started.elapsed() > least, "{:?}, wanted {least:?} or more", started.elapsed());
    let device = ready["between"].as_str().and_then(|text| text.split([' ', ',']).nth(1));
    let device = device.expect("a device").to_owned();
    assert!(has_device(&device));
    network.kill().expect("the network is killed");
    network.wait().expect("and ends");
    let until = Instant::now() + GENEROUS;
    while has_device(&device) {
        assert!(Instant::now() < until, "the device is still there");
        thread::sleep(Duration::from_millis(10));
    }
}

fn ready_line(link: &mut Child) -> Value {
    let mut line = String::new();
    let stdout = link.stdout.take().expect("standard output");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

fn has_device(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/net/dev").is_ok_and(|text| text.contains(name))
}
