//! What somebody sees who reads along: on the wire, and in the host's memory.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    net::{TcpListener, TcpStream},
    ops::Range,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use confide_lora::{
    Adapter, InputTerms, OutputTransform,
    protocol::{ConnectionSide, FrameKind, FrameReader, GroupTerms, MAGIC, decode_terms},
};

/// Passes bytes on and keeps a copy, connection after connection.
pub(crate) struct Relay {
    pub(crate) address: String,
    up: Arc<Mutex<Vec<Vec<u8>>>>,
    down: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Relay {
    pub(crate) fn before(target: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (up, down) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
        let relay = Relay { address, up: Arc::clone(&up), down: Arc::clone(&down) };
        let target = target.to_owned();
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(&target).unwrap();
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                copy(near.try_clone().unwrap(), far.try_clone().unwrap(), &up);
                copy(far, near, &down);
            }
        });
        relay
    }

    /// The bytes that went up and came down until now.
    pub(crate) fn recording(&self) -> (Vec<u8>, Vec<u8>) {
        // What was answered was passed on before; what is still prepared may go on.
        (self.up.lock().unwrap().concat(), self.down.lock().unwrap().concat())
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, kept: &Arc<Mutex<Vec<Vec<u8>>>>) {
    let kept = kept.clone();
    let place = {
        let mut kept = kept.lock().unwrap();
        kept.push(Vec::new());
        kept.len() - 1
    };
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            kept.lock().unwrap()[place].extend_from_slice(&buffer[..count]);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// Where connections begin in what went up: each with the protocol's magic, 9 bytes after its start.
pub(crate) fn connections(up: &[u8]) -> Vec<Range<usize>> {
    let starts: Vec<usize> = up
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(at, window)| *window == MAGIC && *at >= 9)
        .map(|(at, _)| at - 9)
        .collect();
    let ends = starts.iter().skip(1).copied().chain([up.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// The terms that the host gave for its first input.
pub(crate) fn terms_of(down: &[u8]) -> InputTerms {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut reader = FrameReader::new(down, ConnectionSide::Holder);
    loop {
        let frame = runtime.block_on(reader.read_next("a frame", Duration::from_secs(5))).unwrap();
        if frame.kind == FrameKind::Terms {
            return decode_terms(GroupTerms::decode(frame.payload).unwrap().terms).unwrap();
        }
    }
}

/// The first values of B as they are handed over.
pub(crate) fn first_factor(adapter: &Adapter, terms: &InputTerms) -> Vec<u8> {
    assert_eq!(adapter.modules.len(), terms.parts.len());
    let OutputTransform::Factor(factor) = &terms.parts[0].effect else { panic!("protect = A") };
    let entries = (0..4).flat_map(|output| (0..factor.rank()).map(move |c| (output, c)));
    entries.flat_map(|(output, column)| factor.entry(output, column).to_le_bytes()).collect()
}

pub(crate) fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    assert!(wanted.len() >= 16, "a shorter needle is found by chance");
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// All memory of a process that can be written to; `None` if that is not allowed.
pub(crate) fn memory_of(id: u32) -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).ok()?;
    let mut memory = File::open(format!("/proc/{id}/mem")).ok()?;
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(writable)) {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let (start, end) =
            (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let mut part = vec![0; (end - start) as usize];
        memory.seek(SeekFrom::Start(start)).ok()?;
        // Some pages cannot be read, the kernel's own among them.
        if memory.read_exact(&mut part).is_ok() {
            all.extend_from_slice(&part);
        }
    }
    (!all.is_empty()).then_some(all)
}

fn writable(permissions: &str) -> bool {
    permissions.starts_with("rw")
}
