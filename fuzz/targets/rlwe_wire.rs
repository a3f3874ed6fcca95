//! Ciphertexts, public keys and answers as the blind protocol carries them.
#![no_main]

use std::sync::{Arc, LazyLock};

use confide_rlwe::{
    Ciphertext, Context, ParameterSet, PublicKey, Rng, ScalarMatrix, ScalarProducts, SecretKey,
    SeededCiphertext, SmallCiphertext,
};
use libfuzzer_sys::fuzz_target;

static PARTIES: LazyLock<Vec<(Arc<Context>, SecretKey)>> = LazyLock::new(|| {
    let sets = ["toy-256-q100-flood40", "rlwe-1024-q25"];
    let party = |name| {
        let set = ParameterSet::dangerous_from_name(name).expect("a known set");
        let context = Context::new(&set).expect("a ring");
        let key = SecretKey::generate(&context, &mut Rng::from_seed([1; 32]));
        (context, key)
    };
    sets.map(party).into()
});

fuzz_target!(|data: &[u8]| {
    for (context, key) in PARTIES.iter() {
        if let Ok(fresh) = SeededCiphertext::from_bytes(context, data) {
            assert_eq!(fresh.to_bytes(context), data);
            let matrix = ScalarMatrix::new(context, 2, 1, &[1, -1]).expect("a small matrix");
            let mut products = ScalarProducts::new(context, matrix);
            products.push(&fresh).expect("a ciphertext of this ring");
            for sum in products.finish().expect("one column") {
                key.decrypt(&sum.switch_down()).expect("an answer of this set");
            }
        }
        if let Ok(public) = PublicKey::from_bytes(context, data) {
            assert_eq!(public.to_bytes(context), data);
        }
        if let Ok(whole) = Ciphertext::from_bytes(context, data) {
            assert_eq!(whole.to_bytes(context), data);
        }
        if let Ok(answer) = SmallCiphertext::from_bytes(context, data) {
            assert_eq!(answer.to_bytes(context), data);
            assert_eq!(answer.positions().count(), answer.len());
            assert_eq!(key.decrypt(&answer).expect("an answer of this set").len(), answer.len());
        }
    }
});
