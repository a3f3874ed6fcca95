//! Test vectors of this crate for other implementations, in `vectors/lora`. The test computes them
//! and compares; with `CONFIDE_WRITE_VECTORS=1` it writes them.

use std::{fs, path::PathBuf};

use confide_rlwe::{ParameterSet, Rng};
use serde_json::{Value, json};

use crate::{
    adapter::{LoraPair, Matrix},
    int_matrix::{DigitScratch, IntMatrix},
    mask::{CounterSlot, MaskStream, ProcessKey},
    protocol::{
        Attach, FrameBuffer, FrameKind, GroupTerms, Hello, MaskedAnswer, MaskedRequest,
        PrepareRequest, Refusal, Scheme, VERSION, Welcome, encode_terms, pack,
    },
    quantise::{QuantiseError, quantise_vector},
    site::{LayerInput, Projection},
    terms::{ProtectedMatrices, QuantisedWeights},
};

fn check(name: &str, made: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../vectors/lora")
        .join(format!("{name}.json"));
    if std::env::var_os("CONFIDE_WRITE_VECTORS").is_some() {
        fs::create_dir_all(path.parent().expect("has a folder")).expect("can be made");
        fs::write(&path, serde_json::to_string(made).expect("is JSON") + "\n").expect("writable");
    }
    let text = fs::read_to_string(&path).expect("vectors/lora is there");
    let wanted: Value = serde_json::from_str(&text).expect("is JSON");
    assert!(*made == wanted, "{name}: CONFIDE_WRITE_VECTORS=1 writes it anew");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn normal(rng: &mut Rng) -> f64 {
    let sum: f64 = (0..12).map(|_| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64).sum();
    sum - 6.0
}

fn matrix(rng: &mut Rng, rows: usize, columns: usize) -> Matrix {
    let values = (0..rows * columns).map(|_| (normal(rng) * 0.02) as f32).collect();
    Matrix { rows, columns, values }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn quantised_json(real: &[f32], norm_limit: u64) -> Value {
    let real_bits = bits(real);
    match quantise_vector(real, norm_limit) {
        Ok(vector) => json!({
            "real_bits": real_bits, "norm_limit": norm_limit, "values": vector.values,
            "scale_bits": vector.scale.to_bits(),
        }),
        Err(error) => {
            let name = match error {
                QuantiseError::NotFinite { at } => json!({"not_finite_at": at}),
                _ => json!("too_coarse"),
            };
            json!({"real_bits": real_bits, "norm_limit": norm_limit, "refused": name})
        }
    }
}

#[test]
fn vectors_of_quantised_vectors_are_those_in_the_folder() {
    let mut rng = Rng::from_seed([81; 32]);
    let mut cases = Vec::new();
    for (columns, limit) in [(1, 1 << 20), (7, 1 << 20), (64, 90_000), (100, 60_000), (333, 84_000)]
    {
        for tail in [1.0, 60.0] {
            let factor = |at: usize| if at % 29 == 5 { tail } else { 1.0 };
            let real: Vec<f32> =
                (0..columns).map(|at| (normal(&mut rng) * factor(at)) as f32).collect();
            cases.push(quantised_json(&real, limit));
        }
    }
    let ramp: Vec<f32> = (0..300).map(|at| at as f32).collect();
    for (real, limit) in [
        (&ramp[..], 3000),
        (&[0.0; 9][..], 100),
        (&[1e-45, -1e-45, 0.0][..], 1 << 20),
        (&[3e38, -3e38, 1e30][..], 1 << 20),
        (&[0.0, f32::NAN, 1.0][..], 1 << 20),
        (&[1.0, 2.0, f32::NEG_INFINITY][..], 1 << 20),
        (&[1.0][..], 0),
        (&[0.5, 1.5, 2.5, -0.5, 32767.0][..], 1 << 40),
    ] {
        cases.push(quantised_json(real, limit));
    }
    check("quantise", &json!({ "cases": cases }));
}

#[test]
fn vectors_of_weights_and_products_are_those_in_the_folder() {
    let set = ParameterSet::from_name("rlwe-4096-q100-flood40").expect("a set");
    let mut rng = Rng::from_seed([82; 32]);
    let pair = |rng: &mut Rng, rank, columns, outputs| LoraPair {
        a: matrix(rng, rank, columns),
        b: matrix(rng, outputs, rank),
        scale: 2.0 / 3.0,
    };
    let (query, value) = (pair(&mut rng, 5, 41, 23), pair(&mut rng, 3, 41, 9));
    let shown = |pair: &LoraPair| {
        json!({
            "rank": pair.a.rows, "columns": pair.a.columns, "outputs": pair.b.rows, "scale": pair.scale,
            "a_bits": bits(&pair.a.values), "b_bits": bits(&pair.b.values),
        })
    };
    let pairs = [(Projection::Query, &query), (Projection::Value, &value)];
    let forms = [ProtectedMatrices::A, ProtectedMatrices::Ba].map(|protect| {
        let weights = QuantisedWeights::new(3, &pairs, protect, &set).expect("fits");
        let rows = weights.matrix.rows();
        let entries: Vec<i16> = (0..rows).flat_map(|row| weights.matrix.row(row)).collect();
        let mut x = vec![0; 2 * 41];
        x.iter_mut().for_each(|word| *word = rng.next_u64() >> (64 - weights.terms.bits));
        let vectors: Vec<&[u64]> = x.chunks_exact(41).collect();
        let mut products = vec![0; 2 * rows];
        weights.matrix.multiply_vectors(&vectors, weights.terms.bits, &mut DigitScratch::default(), &mut products);
        json!({
            "protect": protect.name(), "entries": entries, "terms": hex(&encode_terms(&weights.terms)),
            "vectors": x, "products": products,
        })
    });
    check("weights", &json!({ "query": shown(&query), "value": shown(&value), "forms": forms }));
    let entries: Vec<i16> = (0..3 * 700).map(|at| if at % 3 == 0 { -4095 } else { 4095 }).collect();
    let extreme = IntMatrix::new(3, 700, &entries).expect("fits");
    let mut products = vec![0; 3];
    extreme.multiply_vectors(
        &[&[(1 << 33) - 1; 700]],
        33,
        &mut DigitScratch::default(),
        &mut products,
    );
    check("extremes", &json!({ "rows": 3, "columns": 700, "bits": 33, "products": products }));
}

#[test]
fn vectors_of_masks_are_those_in_the_folder() {
    let mut rng = Rng::from_seed([83; 32]);
    let mut key = [0; 32];
    Rng::from_seed([83; 32]).fill_bytes(&mut key);
    let stream = MaskStream::random(&mut rng);
    let cases = [(0u32, 3u32, 70usize, 33u32), (4095, 1, 33, 35), (17, 2, 8, 64)].map(
        |(first, tokens, columns, bits)| {
            let mut rows = vec![0; tokens as usize * columns];
            stream.fill_row_masks(first..first + tokens, columns, bits, &mut rows);
            let rows: Vec<String> = rows.iter().map(u64::to_string).collect();
            json!({"first": first, "tokens": tokens, "columns": columns, "bits": bits, "rows": rows})
        },
    );
    let mut process = [0; 48];
    Rng::from_seed([84; 32]).fill_bytes(&mut process);
    let host = ProcessKey::random(&mut Rng::from_seed([84; 32]));
    let slot =
        CounterSlot { client: [1; 32], adapter: [2; 32], layer: 3, input: LayerInput::FeedForward };
    let mut answer = vec![0; 2 * 40];
    host.answer_masks(&slot, &[7; 16], 5).fill_row_masks(9..11, 40, 33, &mut answer);
    let answers = json!({
        "process_key": hex(&process[..32]), "epoch": hex(&host.epoch().0), "client": hex(&slot.client),
        "adapter": hex(&slot.adapter), "layer": 3, "source": 2, "nonce": hex(&[7; 16]), "batch": 5,
        "first": 9, "columns": 40, "bits": 33, "rows": answer,
    });
    check("masks", &json!({ "key": hex(&key), "cases": cases, "answers": answers }));
}

#[test]
fn vectors_of_frames_are_those_in_the_folder() {
    let mut frames = serde_json::Map::new();
    let mut put = |name: &str, kind, id, fill: &dyn Fn(&mut Vec<u8>)| {
        let bytes = hex(FrameBuffer::default().build_frame(kind, id, |out| fill(out)));
        frames.insert(name.into(), bytes.into());
    };
    let hello = Hello {
        version: VERSION,
        adapter: "bank",
        scheme: Scheme::Masked,
        parameters: "rlwe-4096-q100-flood40",
        protect: Some(ProtectedMatrices::A),
        client: [1; 32],
        credential: b"secret",
        public_key: &[9; 20],
    };
    put("hello", FrameKind::Hello, 1, &|out| hello.encode(out));
    let attach = Attach { client: [1; 32], epoch: [2; 16], token: [3; 32] };
    put("attach", FrameKind::Attach, 2, &|out| attach.encode(out));
    let welcome = Welcome {
        version: VERSION,
        epoch: [2; 16],
        token: [3; 32],
        simulated: true,
        trusted: false,
        can_be_learned: true,
        protect: ProtectedMatrices::Ba,
        groups: 56,
    };
    put("welcome", FrameKind::Welcome, 1, &|out| welcome.encode(out));
    let terms = GroupTerms { budget: Some(1535), budget_left: Some(7), terms: &[1, 2, 3] };
    put("terms", FrameKind::Terms, 1, &|out| terms.encode(out));
    let prepare = PrepareRequest { layer: 27, input: LayerInput::AttentionOutput };
    put("prepare", FrameKind::Prepare, 3, &|out| prepare.encode(out));
    let mut packed = Vec::new();
    pack(&[1, (1 << 33) - 1, 5], 33, &mut packed);
    let apply = MaskedRequest {
        layer: 27,
        input: LayerInput::Attention,
        counter: 4096,
        vectors: 1,
        packed: &packed,
    };
    put("apply", FrameKind::Apply, 4, &|out| apply.encode(out));
    let products = MaskedAnswer { budget_left: None, vectors: 1, packed: &packed };
    put("products", FrameKind::Products, 4, &|out| products.encode(out));
    put("error", FrameKind::Error, 4, &|out| Refusal::Budget { limit: 1535 }.encode(out));
    check("frames", &Value::Object(frames));
}
