//! Encapsulated messages in both directions: the published vectors, this crate's own, and what is
//! refused of messages that were tampered with. `CONFIDE_WRITE_VECTORS=1` writes `ohttp.json`.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use super::{vector_tests::Drawn, *};

const CHUNK_BYTES_MAX: usize = 1024;
const TEXTS: [&[u8]; 3] = [b"first", b"second", b"last"];
const SUITES: [(BodyKem, BodyCipher); 4] = [
    (BodyKem::X25519, BodyCipher::Aes256Gcm),
    (BodyKem::X25519, BodyCipher::Aes128Gcm),
    (BodyKem::XWing, BodyCipher::Aes256Gcm),
    (BodyKem::XWing, BodyCipher::Aes128Gcm),
];

/// Opens one chunk of either direction.
type OpenChunk<'a> = &'a mut dyn FnMut(SealedFrame) -> Result<Vec<u8>, EncryptedBodyError>;

fn read_vectors(name: &str) -> Value {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/encrypted-body");
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

fn bytes_of(case: &Value, name: &str) -> Vec<u8> {
    hex::decode(case[name].as_str().unwrap()).unwrap()
}

/// Opens chunks that come in pieces of this length.
fn open_chunks(
    chunks: &[u8],
    form: OhttpForm,
    piece_bytes: usize,
    open: OpenChunk<'_>,
) -> Result<Vec<u8>, EncryptedBodyError> {
    let (mut reader, mut text) = (ChunkReader::new(form, CHUNK_BYTES_MAX), Vec::new());
    for mut piece in chunks.chunks(piece_bytes) {
        while let Some(chunk) = reader.read(&mut piece)? {
            text.extend(open(chunk)?);
        }
    }
    text.extend(open(reader.finish()?)?);
    Ok(text)
}

fn open_request(
    key: &RecipientKey,
    request: &[u8],
    form: OhttpForm,
    piece_bytes: usize,
) -> Result<(Vec<u8>, OhttpAnswerSecret), EncryptedBodyError> {
    let (head, length) = OhttpRequestHead::parse(request)?.ok_or(EncryptedBodyError::CutFrame)?;
    assert_eq!(head.to_bytes(), request[..length]);
    let mut opener = key.open_ohttp_request(&head, form)?;
    let open = &mut |chunk| opener.open_chunk(chunk);
    let text = open_chunks(&request[length..], form, piece_bytes, open)?;
    Ok((text, opener.answer_secret()?))
}

fn open_answer(
    secret: &OhttpAnswerSecret,
    answer: &[u8],
    piece_bytes: usize,
) -> Result<Vec<u8>, EncryptedBodyError> {
    let (nonce, chunks) = answer.split_at(secret.nonce_bytes().min(answer.len()));
    let mut opener = secret.open_answer(nonce)?;
    open_chunks(chunks, secret.form(), piece_bytes, &mut |chunk| opener.open_chunk(chunk))
}

/// The parts of a request: its head, and its chunks.
fn seal_request(key: &RecipientKey, cipher: BodyCipher) -> (OhttpRequestSealer, Vec<Vec<u8>>) {
    let mut sealer = OhttpRequestSealer::new(key.public_key(), cipher, OhttpForm::Chunked).unwrap();
    let mut parts = vec![sealer.head().to_bytes()];
    for (index, text) in TEXTS.iter().enumerate() {
        let mut chunk = Vec::new();
        match index + 1 == TEXTS.len() {
            true => sealer.seal_final_chunk(text, &mut chunk).unwrap(),
            false => sealer.seal_chunk(text, &mut chunk).unwrap(),
        }
        parts.push(chunk);
    }
    (sealer, parts)
}

#[test]
fn the_published_exchanges_hold() {
    let vectors = read_vectors("ohttp-published.json");
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2);
    for case in cases {
        let form = OhttpForm::from_request_type(case["form"].as_str().unwrap().as_bytes()).unwrap();
        let private_key = bytes_of(case, "private_key");
        let key = RecipientKey::from_private_key(BodyKem::X25519, &private_key).unwrap();
        let configuration = bytes_of(case, "configuration");
        assert_eq!(configuration[3..35], *key.public_key().as_bytes());
        let (request, wanted) = (bytes_of(case, "request"), bytes_of(case, "message"));
        for piece_bytes in [1, 5, 1000] {
            let (text, secret) = open_request(&key, &request, form, piece_bytes).unwrap();
            assert_eq!(text, wanted);
            let (nonce, answer) = (bytes_of(case, "answer_nonce"), bytes_of(case, "answer"));
            let mut sealer = secret.seal_answer_with(&nonce);
            let (mut sealed, mut text) = (nonce, Vec::new());
            let chunks = case["answer_chunks"].as_array().unwrap();
            for (index, chunk) in chunks.iter().enumerate() {
                let chunk = hex::decode(chunk.as_str().unwrap()).unwrap();
                match index + 1 == chunks.len() {
                    true => sealer.seal_final_chunk(&chunk, &mut sealed).unwrap(),
                    false => sealer.seal_chunk(&chunk, &mut sealed).unwrap(),
                }
                text.extend(chunk);
            }
            assert_eq!(sealed, answer, "{}", case["name"]);
            assert_eq!(open_answer(&secret, &answer, piece_bytes).unwrap(), text);
        }
    }
}

#[test]
fn an_exchange_is_opened_in_every_suite_and_however_it_is_cut_into_pieces() {
    for (kem, cipher) in SUITES {
        let key = RecipientKey::generate(kem).unwrap();
        let (sealer, parts) = seal_request(&key, cipher);
        for piece_bytes in [1, 3, 17, 10_000] {
            let (text, secret) =
                open_request(&key, &parts.concat(), OhttpForm::Chunked, piece_bytes).unwrap();
            assert_eq!(text, TEXTS.concat());
            let (mut answer, mut answer_sealer) = secret.seal_answer().unwrap();
            answer_sealer.seal_chunk(b"answer", &mut answer).unwrap();
            answer_sealer.seal_chunk(b"", &mut answer).unwrap();
            answer_sealer.seal_final_chunk(b"", &mut answer).unwrap();
            let secret = sealer.answer_secret().unwrap();
            assert_eq!(open_answer(&secret, &answer, piece_bytes).unwrap(), b"answer");
        }
        let mut sealer =
            OhttpRequestSealer::new(key.public_key(), cipher, OhttpForm::SingleChunk).unwrap();
        let mut request = sealer.head().to_bytes();
        assert!(sealer.seal_chunk(b"part", &mut request).is_err(), "it has one chunk");
        sealer.seal_final_chunk(b"whole", &mut request).unwrap();
        let (text, secret) = open_request(&key, &request, OhttpForm::SingleChunk, 7).unwrap();
        assert_eq!(text, b"whole");
        let (mut answer, mut answer_sealer) = secret.seal_answer().unwrap();
        answer_sealer.seal_final_chunk(b"answer", &mut answer).unwrap();
        let secret = sealer.answer_secret().unwrap();
        assert_eq!(open_answer(&secret, &answer, 7).unwrap(), b"answer");
    }
}

/// What a chunk reader makes of these parts, each with its name, and the parts.
fn list_changed_requests(parts: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>)> {
    let [head, first, second, last] = parts else { panic!("four parts") };
    let [head, first, second, last] = [head, first, second, last].map(|part| &part[..]);
    let mut flipped = parts.concat();
    let bytes = flipped.len();
    flipped[bytes - 30] ^= 1;
    let without_mark = [&[(last.len() - 1) as u8][..], &last[1..]].concat();
    let final_first = [&[0][..], &first[1..]].concat();
    let list: Vec<(&str, Vec<&[u8]>)> = vec![
        ("whole", vec![head, first, second, last]),
        ("cut at the end of a chunk", vec![head, first, second]),
        ("cut in front of the chunks", vec![head]),
        ("cut inside a chunk", vec![head, first, &second[..9]]),
        ("cut inside the final chunk", vec![head, first, second, &last[..9]]),
        (
            "the final chunk without its last byte",
            vec![head, first, second, &last[..last.len() - 1]],
        ),
        ("the final chunk without its text", vec![head, first, second, &last[..1]]),
        ("chunks in another order", vec![head, second, first, last]),
        ("a chunk twice", vec![head, first, first, second, last]),
        ("a chunk left out", vec![head, first, last]),
        ("bytes after the final chunk", vec![head, first, second, last, b"\0"]),
        ("a chunk after the final one", vec![head, first, second, last, last]),
        ("the final chunk as another one", vec![head, first, second, &without_mark]),
        ("another chunk as the final one", vec![head, &final_first]),
        ("a length in a longer form", vec![head, &[0x40], first, second, last]),
        ("a chunk that is shorter than its tag", vec![head, &[15]]),
        ("a chunk that is too long", vec![head, &[0x44, 0x01]]),
        ("a bit changed", vec![&flipped]),
    ];
    list.into_iter().map(|(name, parts)| (name, parts.concat())).collect()
}

#[test]
fn the_vectors_of_this_crate_are_what_it_makes() {
    let mut cases = Vec::new();
    for (kem, cipher) in SUITES {
        let private_key: Vec<u8> = (100..132).collect();
        let key = RecipientKey::from_private_key(kem, &private_key).unwrap();
        let (public_key, mut random) = (key.public_key(), Drawn((1..=64).collect()));
        let key_id = public_key.ohttp_key_id();
        let form = OhttpForm::Chunked;
        let sealer = OhttpRequestSealer::with_random(public_key, key_id, cipher, form, &mut random);
        let mut sealer = sealer.unwrap();
        let mut parts = vec![sealer.head().to_bytes(), Vec::new(), Vec::new(), Vec::new()];
        sealer.seal_chunk(TEXTS[0], &mut parts[1]).unwrap();
        sealer.seal_chunk(TEXTS[1], &mut parts[2]).unwrap();
        sealer.seal_final_chunk(TEXTS[2], &mut parts[3]).unwrap();
        let mut requests = list_changed_requests(&parts);
        if kem == BodyKem::XWing {
            requests.truncate(2);
        }
        let secret = sealer.answer_secret().unwrap();
        let nonce: Vec<u8> = (0x40..0x40 + secret.nonce_bytes() as u8).collect();
        let mut answer_sealer = secret.seal_answer_with(&nonce);
        let mut answer = nonce;
        answer_sealer.seal_chunk(b"answer", &mut answer).unwrap();
        answer_sealer.seal_final_chunk(b"", &mut answer).unwrap();
        let requests = requests.into_iter().map(|(name, request)| {
            let mut case = json!({ "name": name, "bytes": hex::encode(&request) });
            match open_request(&key, &request, form, 5) {
                Ok((text, _)) => case["text"] = hex::encode(text).into(),
                Err(error) => case["refused"] = error.name().into(),
            }
            case
        });
        cases.push(json!({
            "algo": kem.algorithm(),
            "form": form.request_type(),
            "private_key": hex::encode(private_key),
            "keys": hex::encode(encode_ohttp_keys([public_key])),
            "requests": requests.collect::<Vec<_>>(),
            "answer": hex::encode(answer),
            "answer_text": hex::encode("answer"),
        }));
    }
    let made = json!({ "chunk_bytes_max": CHUNK_BYTES_MAX, "cases": cases });
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/encrypted-body");
    if std::env::var_os("CONFIDE_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&made).unwrap() + "\n";
        fs::write(folder.join("ohttp.json"), text).unwrap();
    }
    assert_eq!(made, read_vectors("ohttp.json"));
}

#[test]
fn every_way_to_tamper_with_chunks_is_refused() {
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    let (_, parts) = seal_request(&key, BodyCipher::Aes256Gcm);
    for (name, request) in list_changed_requests(&parts) {
        let opened = open_request(&key, &request, OhttpForm::Chunked, 11).map(|(text, _)| text);
        match name {
            // The form of a length is not authenticated, but what it cuts is.
            "whole" | "a length in a longer form" => assert_eq!(opened.unwrap(), TEXTS.concat()),
            _ => assert!(opened.is_err(), "{name}"),
        }
    }
    let whole = parts.concat();
    for index in 0..whole.len() {
        let mut changed = whole.clone();
        changed[index] ^= 1;
        assert!(open_request(&key, &changed, OhttpForm::Chunked, 64).is_err(), "{index}");
    }
}

#[test]
fn a_request_opens_in_its_own_form_with_its_own_key_only() {
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    let (_, parts) = seal_request(&key, BodyCipher::Aes256Gcm);
    let (head, length) = OhttpRequestHead::parse(&parts[0]).unwrap().unwrap();
    assert_eq!(length, parts[0].len());
    let chunk = SealedFrame { ciphertext: parts[1][1..].to_vec(), is_final: false };
    let open = |key: &RecipientKey, head: &OhttpRequestHead, form| {
        key.open_ohttp_request(head, form).unwrap().open_chunk(chunk.clone())
    };
    assert_eq!(open(&key, &head, OhttpForm::Chunked).unwrap(), TEXTS[0]);
    let wanted = Err(EncryptedBodyError::Decryption);
    assert_eq!(open(&key, &head, OhttpForm::SingleChunk), wanted);
    let other_id = OhttpRequestHead { key_id: head.key_id ^ 1, ..head.clone() };
    assert_eq!(open(&key, &other_id, OhttpForm::Chunked), wanted);
    let other_cipher = OhttpRequestHead { cipher: BodyCipher::Aes128Gcm, ..head.clone() };
    assert_eq!(open(&key, &other_cipher, OhttpForm::Chunked), wanted);
    let other = RecipientKey::generate(BodyKem::X25519).unwrap();
    assert_eq!(open(&other, &head, OhttpForm::Chunked), wanted);
    for end in [BodyEnd::Unmarked, BodyEnd::FinalFrame] {
        let mut ehbp = key.open_request(&head.encapsulated, end).unwrap();
        assert_eq!(ehbp.open_frame(chunk.clone()), wanted, "EHBP has another info");
    }
    let hybrid = RecipientKey::generate(BodyKem::XWing).unwrap();
    let refused = hybrid.open_ohttp_request(&head, OhttpForm::Chunked).unwrap_err();
    assert_eq!(refused, EncryptedBodyError::EncapsulatedKey);
}

#[test]
fn a_chunk_without_text_is_refused_unless_it_is_the_final_one() {
    let key = RecipientKey::generate(BodyKem::X25519).unwrap();
    let (sealer, parts) = seal_request(&key, BodyCipher::Aes128Gcm);
    let secret = sealer.answer_secret().unwrap();
    let nonce = vec![1; secret.nonce_bytes()];
    // An answer whose final chunk is announced as another one has other associated data; one with a
    // chunk without text has to be made by hand.
    let mut cipher = answer_cipher::AnswerCipher::derive(
        BodyCipher::Aes128Gcm,
        &[7; 16],
        &parts[0][7..],
        &nonce,
    )
    .unwrap();
    let mut ciphertext = Vec::new();
    frame::append_ciphertext(&mut ciphertext, b"", b"", &mut cipher).unwrap();
    let mut cipher = answer_cipher::AnswerCipher::derive(
        BodyCipher::Aes128Gcm,
        &[7; 16],
        &parts[0][7..],
        &nonce,
    )
    .unwrap();
    let chunk = SealedFrame { ciphertext, is_final: false };
    let refused = chunk::open_chunk(OhttpForm::Chunked, chunk, &mut cipher);
    assert_eq!(refused, Err(EncryptedBodyError::Decryption));
}

#[test]
fn heads_of_other_suites_and_cut_ones_are_told_apart() {
    let key = RecipientKey::generate(BodyKem::XWing).unwrap();
    let sealer =
        OhttpRequestSealer::new(key.public_key(), BodyCipher::Aes256Gcm, OhttpForm::Chunked);
    let head = sealer.unwrap().head().to_bytes();
    assert_eq!(head.len(), OhttpRequestHead::BYTES_MAX);
    for length in 0..head.len() {
        assert_eq!(OhttpRequestHead::parse(&head[..length]), Ok(None), "{length}");
    }
    for at in [1, 2, 3, 4, 5, 6] {
        let mut other = head.clone();
        other[at] ^= 0x40;
        let refused = OhttpRequestHead::parse(&other[..7]);
        assert_eq!(refused, Err(EncryptedBodyError::OhttpSuite), "{at}");
    }
}

#[test]
fn the_list_of_keys_is_one_that_this_crate_reads() {
    let keys = BodyKem::ALL.map(|kem| RecipientKey::generate(kem).unwrap());
    let list = encode_ohttp_keys(keys.iter().map(RecipientKey::public_key));
    let read = parse_key_configs(&list).unwrap();
    assert!(read.iter().eq(keys.iter().map(RecipientKey::public_key)));
}
