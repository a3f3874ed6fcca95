//! CKKS computes on its slots to the precision of its scale.

use std::sync::Arc;

use super::*;
use confide_rlwe::Rng;

struct Setup {
    ckks: Arc<CkksContext>,
    key: SecretKey,
    rng: Rng,
}

fn setup(n: usize) -> Setup {
    let ckks = CkksContext::new(&Parameters::dangerous_of_degree(n)).unwrap();
    let mut rng = Rng::from_seed([n.ilog2() as u8; 32]);
    let key = SecretKey::generate(&ckks, &mut rng);
    Setup { ckks, key, rng }
}

impl Setup {
    fn random_slots(&mut self, count: usize, size: f64) -> Vec<f64> {
        let unit = |word: u64| (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..count).map(|_| size * unit(self.rng.next_u64())).collect()
    }

    fn encrypt(&mut self, slots: &[f64], limbs: usize) -> Ciphertext {
        let message = self.ckks.encode(slots).unwrap();
        self.key.encrypt(&message, limbs, &mut self.rng).unwrap()
    }

    fn plaintext(&self, slots: &[f64], limbs: usize) -> Plaintext {
        self.ckks.to_plaintext(&self.ckks.encode(slots).unwrap(), limbs).unwrap()
    }

    fn slots(&self, ciphertext: &Ciphertext) -> Vec<f64> {
        self.ckks.decode(&self.key.decrypt(ciphertext).unwrap()).unwrap()
    }
}

/// The greatest difference, relative to the greatest magnitude.
fn error(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let size = wanted.iter().fold(0.0f64, |size, x| size.max(x.abs()));
    found.iter().zip(wanted).fold(0.0f64, |worst, (x, y)| worst.max((x - y).abs())) / size
}

#[test]
fn a_message_survives_encryption_at_every_count_of_limbs() {
    for (n, limbs) in [(1024, 1), (1024, 2), (2048, 3), (16384, 3)] {
        let mut setup = setup(n);
        let slots = setup.random_slots(n / 2, 60.0);
        let ciphertext = setup.encrypt(&slots, limbs);
        assert!(error(&setup.slots(&ciphertext), &slots) < 1e-9, "{n} {limbs}");
    }
}

#[test]
fn the_product_of_the_reports_parameters_is_right_to_a_billionth() {
    for n in [16384, 32768] {
        let mut setup = setup(n);
        let (x, a) = (setup.random_slots(n / 2, 3.0), setup.random_slots(n / 2, 0.05));
        let wanted: Vec<f64> = x.iter().zip(&a).map(|(x, a)| x * a).collect();
        for limbs in [2, 3] {
            let factor = setup.plaintext(&a, limbs);
            let product = setup.encrypt(&x, limbs).product(&factor).unwrap();
            let found = error(&setup.slots(&product), &wanted);
            assert!(found < 5e-9, "{n} {limbs}: {found:e}");
        }
    }
}

#[test]
fn sums_and_rescaled_products_are_right() {
    let mut setup = setup(2048);
    let [x, y, a] = [3.0, 2.0, 1.0].map(|size| setup.random_slots(1024, size));
    let mut sum = setup.encrypt(&x, 3);
    sum.add_assign(&setup.encrypt(&y, 3)).unwrap();
    let rescaled = sum.product(&setup.plaintext(&a, 3)).unwrap().rescale().unwrap();
    assert_eq!(rescaled.limb_count(), 2);
    let wanted: Vec<f64> = x.iter().zip(&y).zip(&a).map(|((x, y), a)| (x + y) * a).collect();
    assert!(error(&setup.slots(&rescaled), &wanted) < 1e-8);
    // A second product, at the lower level.
    let twice = rescaled.product(&setup.plaintext(&a, 2)).unwrap();
    let wanted: Vec<f64> = wanted.iter().zip(&a).map(|(x, a)| x * a).collect();
    assert!(error(&setup.slots(&twice), &wanted) < 1e-8);
}

#[test]
fn a_rotation_moves_every_slot_at_every_count_of_limbs() {
    let mut setup = setup(1024);
    let x = setup.random_slots(512, 3.0);
    for steps in [0, 1, 5, 256, 511] {
        let key = setup.key.galois_key(steps, &mut setup.rng).unwrap();
        let mut wanted = x.clone();
        wanted.rotate_left(steps);
        for limbs in 1..=3 {
            let turned = setup.encrypt(&x, limbs).rotate(&setup.ckks, &key).unwrap();
            let found = error(&setup.slots(&turned), &wanted);
            assert!(found < 1e-8, "{steps} {limbs}: {found:e}");
        }
    }
    assert!(setup.key.galois_key(512, &mut setup.rng).is_err());
}

#[test]
fn a_batch_is_decrypted_and_decoded_as_its_members_are() {
    let mut setup = setup(1024);
    let all: Vec<_> = (0..5).map(|_| setup.random_slots(512, 3.0)).collect();
    let mut ciphertexts: Vec<_> = all.iter().map(|x| setup.encrypt(x, 3)).collect();
    ciphertexts[1] = setup.encrypt(&all[1], 2);
    let factor = setup.plaintext(&all[3], 3);
    ciphertexts[3] = ciphertexts[3].product(&factor).unwrap();
    let mut batch = Vec::new();
    setup.key.decrypt_into(&ciphertexts, &mut batch).unwrap();
    let decoded = setup.ckks.decode_batch(&batch).unwrap();
    assert_eq!(decoded.len(), 5);
    for ((ciphertext, one), slots) in ciphertexts.iter().zip(&batch).zip(&decoded) {
        assert_eq!(setup.key.decrypt(ciphertext).unwrap().values(), one.values());
        assert!(error(slots, &setup.slots(ciphertext)) < 1e-8);
    }
    assert!(setup.ckks.decode_batch(&[]).unwrap().is_empty());
}

#[test]
fn one_seed_gives_one_ciphertext() {
    let make = || {
        let mut setup = setup(1024);
        let ciphertext = setup.encrypt(&[1.0, 2.0], 3);
        ciphertext.to_bytes(&setup.ckks)
    };
    assert_eq!(make(), make());
}

#[test]
fn bytes_come_back_and_nothing_else_is_read() {
    let mut setup = setup(1024);
    let fresh = setup.encrypt(&[1.0, -2.5], 3);
    let product = fresh.product(&setup.plaintext(&[2.0, 2.0], 3)).unwrap();
    let bytes = fresh.to_bytes(&setup.ckks);
    assert_eq!(bytes.len(), 12 + 1024 * (8 + 5 + 5) + 32);
    for (ciphertext, first) in [(&fresh, 1.0), (&product, 2.0)] {
        let bytes = ciphertext.to_bytes(&setup.ckks);
        let read = Ciphertext::from_bytes(&setup.ckks, &bytes).unwrap();
        assert_eq!(
            (read.polynomials(), read.scale()),
            (ciphertext.polynomials(), ciphertext.scale())
        );
        assert!((setup.slots(&read)[0] - first).abs() < 1e-7);
        for broken in [&bytes[..bytes.len() - 1], &bytes[..11], &[], &[&bytes[..], &[0]].concat()] {
            assert!(matches!(
                Ciphertext::from_bytes(&setup.ckks, broken),
                Err(CkksError::Wire { .. })
            ));
        }
    }
    // The corpus of the fuzz target, of another degree.
    let tiny = CkksContext::new(&Parameters::dangerous_of_degree(16)).unwrap();
    for seed in ["seeded", "whole"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/ckks_ciphertext/");
        let bytes = std::fs::read(format!("{folder}{seed}")).unwrap();
        assert_eq!(Ciphertext::from_bytes(&tiny, &bytes).unwrap().to_bytes(&tiny), bytes);
        assert!(Ciphertext::from_bytes(&setup.ckks, &bytes).is_err());
    }
    for (at, value) in [(0, 9), (1, 2), (2, 4), (2, 0), (3, 2), (11, 0xff), (19, 0xff)] {
        let mut broken = bytes.clone();
        broken[at] = value;
        assert!(Ciphertext::from_bytes(&setup.ckks, &broken).is_err(), "{at}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut setup = setup(1024);
    assert!(matches!(setup.ckks.encode(&[0.0; 513]), Err(CkksError::TooManySlots { .. })));
    for value in [f64::NAN, f64::INFINITY, 1e30] {
        assert_eq!(setup.ckks.encode(&[value]).unwrap_err(), CkksError::ValueOutOfRange);
    }
    let x = setup.encrypt(&[1.0], 3);
    let low = setup.encrypt(&[1.0], 1);
    let factor = setup.plaintext(&[1.0], 2);
    assert!(matches!(x.product(&factor), Err(CkksError::WrongLimbCount { wanted: 3, got: 2, .. })));
    assert!(matches!(low.rescale(), Err(CkksError::WrongLimbCount { .. })));
    let mut product = x.product(&setup.plaintext(&[1.0], 3)).unwrap();
    assert!(matches!(product.add_assign(&x), Err(CkksError::ScaleMismatch { .. })));
    assert!(matches!(product.add_assign(&low), Err(CkksError::WrongLimbCount { .. })));
    let message = setup.ckks.encode(&[1.0]).unwrap();
    assert!(setup.key.encrypt(&message, 4, &mut setup.rng).is_err());
    let other = CkksContext::new(&Parameters::dangerous_of_degree(2048)).unwrap();
    let foreign = SecretKey::generate(&other, &mut setup.rng);
    assert!(matches!(foreign.decrypt(&x), Err(CkksError::OtherParameters { .. })));
    let key = foreign.galois_key(1, &mut setup.rng).unwrap();
    assert!(matches!(x.rotate(&setup.ckks, &key), Err(CkksError::OtherParameters { .. })));
}

#[test]
fn debug_output_shows_no_secret() {
    let mut setup = setup(1024);
    let message = setup.ckks.encode(&[1.0]).unwrap();
    let ciphertext = setup.encrypt(&[1.0], 3);
    let decrypted = setup.key.decrypt(&ciphertext).unwrap();
    let text = format!("{:?} {message:?} {decrypted:?}", setup.key);
    assert_eq!(
        text,
        "SecretKey EncodedMessage(1024 coefficients) DecryptedMessage(scale 2^40.000)"
    );
}
