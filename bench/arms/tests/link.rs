//! A service behind a link: reached through it, and gone with it however the link ends.

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

fn ready_line(link: &mut Child) -> Value {
    let mut line = String::new();
    let stdout = link.stdout.take().expect("standard output");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

fn has_device(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/net/dev").is_ok_and(|text| text.contains(name))
}
