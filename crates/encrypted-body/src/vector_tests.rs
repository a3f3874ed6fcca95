//! Writes and compares `vectors/encrypted-body`: keys, requests and answers, each with what a reader
//! of docs/encrypted-bodies.md has to find. `CONFIDE_WRITE_VECTORS=1` writes the files.

use std::{convert::Infallible, fs, path::PathBuf};

use hpke::{
    Deserializable, Kem,
    kem::XWing,
    rand_core::{TryCryptoRng, TryRng},
};
use serde_json::{Value, json};

use super::{tests::open_body, *};

/// Randomness that was drawn before, each byte once.
pub(crate) struct Drawn(pub(crate) Vec<u8>);

impl TryRng for Drawn {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("bytes are drawn")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        panic!("bytes are drawn")
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        let rest = self.0.split_off(bytes.len());
        bytes.copy_from_slice(&std::mem::replace(&mut self.0, rest));
        Ok(())
    }
}

impl TryCryptoRng for Drawn {}

fn recipient(kem: BodyKem) -> RecipientKey {
    let private_key: Vec<u8> = (100..132).collect();
    RecipientKey::from_private_key(kem, &private_key).unwrap()
}

#[test]
fn the_vectors_are_what_this_crate_makes() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/encrypted-body");
    let is_writing = std::env::var_os("CONFIDE_WRITE_VECTORS").is_some();
    for (name, made) in [
        ("keys.json", json!({ "keys": key_cases(), "configurations": configuration_cases() })),
        ("requests.json", json!({ "cases": request_cases() })),
        ("answers.json", json!({ "cases": answer_cases() })),
    ] {
        let path = folder.join(name);
        if is_writing {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
        }
        let text = fs::read_to_string(&path).expect("CONFIDE_WRITE_VECTORS=1 writes the vectors");
        assert_eq!(made, serde_json::from_str::<Value>(&text).unwrap(), "{name}");
    }
}

fn key_cases() -> Value {
    let case = |kem: BodyKem| {
        let private_key: Vec<u8> = (100..132).collect();
        let key = recipient(kem);
        json!({
            "algo": kem.algorithm(),
            "private_key": hex::encode(private_key),
            "public_key": hex::encode(key.public_key().as_bytes()),
            "configuration": hex::encode(encode_key_config(key.public_key())),
        })
    };
    BodyKem::ALL.map(case).into_iter().collect()
}

fn configuration_cases() -> Value {
    let [x_wing, x25519] = BodyKem::ALL.map(|kem| encode_key_config(recipient(kem).public_key()));
    let listed = |config: &[u8]| [&(config.len() as u16).to_be_bytes()[..], config].concat();
    let other_suite = [&x25519[..37], &[0, 1, 0, 1]].concat();
    let two_suites = [&x25519[..35], &[0, 8, 0, 1, 0, 3, 0, 1, 0, 2]].concat();
    let unknown = [0, 0x7f, 0xff, 1, 2, 3];
    let cases = [
        ("bare", x25519.clone()),
        ("bare, the hybrid", x_wing.clone()),
        ("a list of one", listed(&x25519)),
        ("a list of two", [listed(&x_wing), listed(&x25519)].concat()),
        ("a list with an unknown kind", [listed(&unknown), listed(&x25519)].concat()),
        ("a second suite", two_suites),
        ("only another suite", other_suite),
        ("only an unknown kind", unknown.to_vec()),
        ("cut", x25519[..40].to_vec()),
        ("a list whose last is cut", listed(&x25519)[..42].to_vec()),
        ("bytes behind it", [&x25519[..], &[0]].concat()),
        ("nothing", Vec::new()),
    ];
    let describe = |(name, bytes): (&str, Vec<u8>)| {
        let keys = parse_key_configs(&bytes).ok().map(|keys| {
            let describe = |key: &BodyPublicKey| {
                json!({ "algo": key.kem().algorithm(), "public_key": hex::encode(key.as_bytes()) })
            };
            keys.iter().map(describe).collect::<Vec<_>>()
        });
        json!({ "name": name, "bytes": hex::encode(bytes), "keys": keys })
    };
    cases.into_iter().map(describe).collect()
}

/// The body of the vectors: two frames, and the final one if there is one.
fn sealed_frames(
    end: BodyEnd,
    mut seal: impl FnMut(&[u8], bool, &mut Vec<u8>) -> Result<(), EncryptedBodyError>,
) -> Vec<Vec<u8>> {
    let texts: [(&[u8], bool); 3] =
        [(b"{\"model\":\"m\",", false), (b"\"messages\":[]}", false), (b"", true)];
    let wanted = texts.into_iter().filter(|(_, is_final)| !is_final || end == BodyEnd::FinalFrame);
    wanted
        .map(|(text, is_final)| {
            let mut frame = Vec::new();
            seal(text, is_final, &mut frame).unwrap();
            frame
        })
        .collect()
}

/// Bodies that were changed on their way, by name.
fn changed_bodies(end: BodyEnd, frames: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>)> {
    let whole = frames.concat();
    let mut flipped = whole.clone();
    flipped[10] ^= 1;
    let mut bodies = vec![
        ("whole", whole.clone()),
        ("cut at the end of a frame", frames[0].clone()),
        ("cut inside a frame", whole[..whole.len() - 3].to_vec()),
        ("cut inside a length", [&frames[0][..], &[0, 0]].concat()),
        ("frames in another order", [&frames[1][..], &frames[0]].concat()),
        ("a frame twice", [&frames[0][..], &whole].concat()),
        ("a frame left out", frames[1..].concat()),
        ("a bit changed", flipped),
        ("a frame that is shorter than its tag", vec![0, 0, 0, 15]),
        ("no frame", Vec::new()),
    ];
    if end == BodyEnd::FinalFrame {
        let without_mark = [&frames[0][..], &frames[1], &frames[2][4..]].concat();
        bodies.extend([
            ("the final frame not announced by a length of 0", without_mark),
            ("another frame as the final one", [&[0; 4], &frames[0][..]].concat()),
            ("bytes after the final frame", [&whole[..], &[0]].concat()),
        ]);
    } else {
        let lengths = [&[0; 4], &frames[0][..], &[0; 4], &frames[1]].concat();
        bodies.push(("lengths of 0, which mean nothing", lengths));
    }
    bodies
}

fn describe_outcome(case: &mut Value, opened: Result<Vec<u8>, EncryptedBodyError>) {
    match opened {
        Ok(text) => case["text"] = hex::encode(text).into(),
        Err(error) => case["refused"] = error.name().into(),
    }
}

fn request_cases() -> Value {
    let mut cases = Vec::new();
    for (kem, end) in [
        (BodyKem::X25519, BodyEnd::Unmarked),
        (BodyKem::X25519, BodyEnd::FinalFrame),
        (BodyKem::XWing, BodyEnd::FinalFrame),
    ] {
        let key = recipient(kem);
        // As many bytes as either kind of key takes.
        let mut random = Drawn((1..=64).collect());
        let sealer = RequestSealer::with_random(key.public_key(), end, &mut random);
        let mut sealer = sealer.unwrap();
        let frames = sealed_frames(end, |text, is_final, body| match is_final {
            true => sealer.seal_final_frame(text, body),
            false => sealer.seal_frame(text, body),
        });
        let mut bodies = changed_bodies(end, &frames);
        if kem == BodyKem::XWing {
            bodies.truncate(2);
        }
        let other = if end == BodyEnd::Unmarked { BodyEnd::FinalFrame } else { BodyEnd::Unmarked };
        let bodies = bodies.into_iter().map(|(name, body)| (name, body, end));
        let announced = ("whole, with another announcement", frames.concat(), other);
        for (name, body, end) in bodies.chain([announced]) {
            let encapsulated = sealer.encapsulated_key();
            let mut opener = key.open_request(encapsulated, end).unwrap();
            let mut case = json!({
                "name": name,
                "algo": kem.algorithm(),
                "encapsulated_key": encapsulated.to_hex(),
                "body_end": end.field_value(),
                "body": hex::encode(&body),
            });
            describe_outcome(&mut case, open_body(&body, end, 5, &mut |it| opener.open_frame(it)));
            cases.push(case);
        }
    }
    cases.into()
}

fn answer_cases() -> Value {
    let bytes = |begin: u8| std::array::from_fn::<u8, 32, _>(|index| begin + index as u8);
    let (secret, encapsulated, nonce) = (bytes(0), bytes(0x20), bytes(0x40));
    let shared = ExchangeSecret::from_parts(secret, &encapsulated);
    let mut sealer = shared.seal_answer_with(nonce).unwrap();
    let mut published = Vec::new();
    sealer.seal_frame(b"hello from test vector", &mut published).unwrap();
    let mut bodies = vec![("EHBP's own", published, BodyEnd::Unmarked)];
    for end in [BodyEnd::Unmarked, BodyEnd::FinalFrame] {
        let mut sealer = shared.seal_answer_with(nonce).unwrap();
        let frames = sealed_frames(end, |text, is_final, body| match is_final {
            true => sealer.seal_final_frame(text, body),
            false => sealer.seal_frame(text, body),
        });
        let changed = changed_bodies(end, &frames).into_iter();
        bodies.extend(changed.map(|(name, body)| (name, body, end)));
    }
    let describe = |(name, body, end): (&str, Vec<u8>, BodyEnd)| {
        let nonce = AnswerNonce::parse(hex::encode(nonce).as_bytes()).unwrap();
        let mut opener = shared.open_answer(nonce).unwrap();
        let mut case = json!({
            "name": name,
            "secret": hex::encode(secret),
            "encapsulated_key": hex::encode(encapsulated),
            "nonce": nonce.to_hex(),
            "body_end": end.field_value(),
            "body": hex::encode(&body),
        });
        describe_outcome(&mut case, open_body(&body, end, 5, &mut |it| opener.open_frame(it)));
        case
    };
    bodies.into_iter().map(describe).collect()
}

#[test]
fn the_published_vector_of_ehbp_holds() {
    let cases = answer_cases();
    let wanted =
        "0000002647e74d9a561b60ff42ac7ffbb4caf6b6d5ad0bb7621e41840d2ab7de7208ff7a59d0a2a482cc";
    assert_eq!(cases[0]["body"], wanted);
}

#[test]
fn the_vectors_of_the_draft_of_x_wing_hold() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/encrypted-body");
    let text = fs::read_to_string(folder.join("x-wing.json")).unwrap();
    let vectors: Value = serde_json::from_str(&text).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    for case in cases {
        let member = |name: &str| hex::decode(case[name].as_str().unwrap()).unwrap();
        let private_key = member("private_key");
        let key = RecipientKey::from_private_key(BodyKem::XWing, &private_key).unwrap();
        assert_eq!(key.public_key().as_bytes(), member("public_key"));
        let mut random = Drawn(member("randomness"));
        let sealer =
            RequestSealer::with_random(key.public_key(), BodyEnd::Unmarked, &mut random).unwrap();
        assert!(random.0.is_empty(), "all of it was drawn");
        let encapsulated = sealer.encapsulated_key().as_bytes();
        assert_eq!(encapsulated, member("encapsulated_key"));
        let secret = <XWing as Kem>::decap(
            &<XWing as Kem>::PrivateKey::from_bytes(&private_key).unwrap(),
            None,
            &<XWing as Kem>::EncappedKey::from_bytes(encapsulated).unwrap(),
        );
        assert_eq!(secret.unwrap().0[..], member("shared_secret"));
    }
}
