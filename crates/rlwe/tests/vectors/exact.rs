//! Exact encryption under every set, with a fixed seed for each draw.

use std::sync::Arc;

use confide_rlwe::{
    Ciphertext, Context, ParameterSet, Plaintext, PublicKey, Rng, ScalarMatrix, ScalarProducts,
    SecretKey, SeededCiphertext, SmallCiphertext,
};
use serde_json::{Value, json};

use super::digests::{
    compare_with_committed, digest_bytes, digest_signed, digest_words, hex, rng_from_byte,
};

const ROWS: usize = 3;
const COLUMNS: usize = 5;
/// The set whose encodings are included in full.
const WHOLE: &str = "toy-256-q100-flood40";

#[test]
fn every_set_computes_what_is_committed() {
    for name in ParameterSet::names() {
        let set = ParameterSet::dangerous_from_name(name).unwrap();
        compare_with_committed(name, &SetVectors::new(&set).compute());
    }
}

struct SetVectors {
    context: Arc<Context>,
    key: SecretKey,
    public: PublicKey,
    messages: Vec<Vec<u64>>,
    fresh: Vec<SeededCiphertext>,
    small: Vec<SmallCiphertext>,
}

impl SetVectors {
    /// Makes key, public key, messages and encryptions from the seeds 1 to 4.
    fn new(set: &ParameterSet) -> SetVectors {
        let context = Context::new(set).unwrap();
        let key = SecretKey::generate(&context, &mut rng_from_byte(1));
        let public = key.public_key(&mut rng_from_byte(2));
        let messages = draw_messages(&context, 3, COLUMNS);
        let mut encryptor = key.encryptor(rng_from_byte(4));
        let fresh = messages.iter().map(|message| encryptor.encrypt(message).unwrap()).collect();
        SetVectors { context, key, public, messages, fresh, small: Vec::new() }
    }

    fn compute(mut self) -> Value {
        let scalar = self.scalar_products();
        let plaintext = self.plaintext_products();
        let mut made = json!({
            "set": self.context.parameter_set().name(),
            "seeds": { "key": 1, "public": 2, "messages": 3, "encryptor": 4, "weights": 5,
                "plain": 6, "hide": 7, "plaintext": 8, "zero": 9 },
            "public_key": digest_bytes(&self.public.to_bytes(&self.context)),
            "messages": digest_each(&self.messages),
            "seeded": self.seeded_json(),
            "scalar_products": scalar,
            "plaintext_products": plaintext,
        });
        if self.context.parameter_set().name() == WHOLE {
            made["forms"] = self.encodings_json();
        }
        made
    }

    fn seeded_json(&self) -> Value {
        let one = |fresh: &SeededCiphertext| {
            json!({ "c0": digest_words(fresh.c0.values()), "c1": digest_words(fresh.c1().values()),
                "wire": digest_bytes(&fresh.to_bytes(&self.context)) })
        };
        self.fresh.iter().map(one).collect()
    }

    /// Σ_j w_ij·ct_j, hidden by an encryption of `plain` if the set floods, then switched down.
    fn scalar_products(&mut self) -> Value {
        let weights = draw_weights(
            rng_from_byte(5),
            ROWS * COLUMNS,
            self.context.parameter_set().row_l1_max(),
        );
        let matrix = ScalarMatrix::new(&self.context, ROWS, COLUMNS, &weights).unwrap();
        let mut products = ScalarProducts::new(&self.context, &matrix);
        self.fresh.iter().for_each(|fresh| products.push(fresh).unwrap());
        let plain = draw_messages(&self.context, 6, ROWS);
        let flooded = self.context.parameter_set().flood_bits() > 0;
        let mut rng = rng_from_byte(7);
        let mut rows = Vec::new();
        for (mut sum, plain) in products.finish().unwrap().into_iter().zip(&plain) {
            let mut row = json!({ "sum": self.digest_ciphertext(&sum) });
            if flooded {
                sum.add_assign(&self.public.encrypt(&self.context, plain, &mut rng).unwrap());
                row["hidden"] = self.digest_ciphertext(&sum);
            }
            let small = sum.switch_down();
            self.add_answer(&mut row, &small);
            self.small.push(small);
            rows.push(row);
        }
        json!({ "weights": weights, "plain": digest_each(&plain), "rows": rows })
    }

    /// The first ciphertext times one polynomial plus the second times another, added to a fresh
    /// zero if the set floods.
    fn plaintext_products(&mut self) -> Value {
        let n = self.context.n();
        let limit = self.context.parameter_set().row_l1_max() / (2 * n as u64);
        let mut rng = rng_from_byte(8);
        let mut draw = || {
            let weight = |_| (rng.next_below(2 * limit + 1) as i64) - limit as i64;
            (0..n).map(weight).collect::<Vec<i64>>()
        };
        let weights = [draw(), draw()];
        let mut sum = match self.context.parameter_set().flood_bits() {
            0 => Ciphertext::zero(&self.context),
            _ => self.public.encrypt_zero(&self.context, &mut rng_from_byte(9)).unwrap(),
        };
        for (fresh, weights) in self.fresh.iter().zip(&weights) {
            let weights = Plaintext::new(&self.context, weights).unwrap();
            sum.add_product(&fresh.clone().expand(), &weights);
        }
        let mut made = json!({ "limit": limit, "sum": self.digest_ciphertext(&sum),
            "weights": weights.iter().map(|w| digest_signed(w)).collect::<Vec<_>>() });
        let small = sum.switch_down();
        self.add_answer(&mut made, &small);
        let some = small.select_positions(&[0, 5, n - 1]).unwrap();
        made["selected"] = json!({ "positions": [0, 5, n - 1],
            "wire": digest_bytes(&some.to_bytes(&self.context)),
            "messages": self.key.decrypt(&some).unwrap() });
        self.small.push(some);
        made
    }

    fn add_answer(&self, made: &mut Value, small: &SmallCiphertext) {
        made["wire"] = digest_bytes(&small.to_bytes(&self.context));
        made["messages"] = digest_words(&self.key.decrypt(small).unwrap());
    }

    fn digest_ciphertext(&self, ciphertext: &Ciphertext) -> Value {
        json!({ "c0": digest_words(ciphertext.c0.values()), "c1": digest_words(ciphertext.c1.values()) })
    }

    /// The encodings, for another implementation to decode.
    fn encodings_json(&self) -> Value {
        json!({
            "public_key": hex(&self.public.to_bytes(&self.context)),
            "seeded": hex(&self.fresh[0].to_bytes(&self.context)),
            "answer": hex(&self.small[0].to_bytes(&self.context)),
            "selected": hex(&self.small[ROWS].to_bytes(&self.context)),
        })
    }
}

/// Draws vectors of messages, one after the other from one generator.
fn draw_messages(context: &Context, seed: u8, count: usize) -> Vec<Vec<u64>> {
    let mut rng = rng_from_byte(seed);
    let draw = |_| {
        let mut messages = vec![0; context.n()];
        rng.fill_bits(context.parameter_set().plaintext_bits(), &mut messages);
        messages
    };
    (0..count).map(draw).collect()
}

/// Draws weights whose rows keep to the set's limit. The first is the least weight, if it fits.
fn draw_weights(mut rng: Rng, count: usize, limit: u64) -> Vec<i16> {
    let most = (limit / COLUMNS as u64).min(32_767);
    let weight = |_| (rng.next_below(2 * most + 1) as i64 - most as i64) as i16;
    let mut weights: Vec<i16> = (0..count).map(weight).collect();
    if limit >= 32_768 * COLUMNS as u64 {
        weights[0] = i16::MIN;
    }
    weights
}

fn digest_each(vectors: &[Vec<u64>]) -> Value {
    vectors.iter().map(|vector| digest_words(vector)).collect()
}
