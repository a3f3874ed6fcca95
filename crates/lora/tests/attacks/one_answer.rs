//! One bare product of a ciphertext and weights reveals the weights without any secret key: both halves
//! of the answer are those of the request times the weights, so a division reveals them. An encryption of
//! zero by the host protects the weights.

use std::sync::Arc;

use confide_lora::{
    IntMatrix, StepMeter, TileShape,
    direct::{self, EncryptedProductHolder, EncryptedProductHost},
};
use confide_rlwe::{
    Ciphertext, Context, Modulus, NttPoly, ParameterSet, Plaintext, Poly, PublicKey, Rng,
    ScalarMatrix, ScalarProducts, SecretKey, SeededCiphertext, SmallCiphertext,
};

use crate::{
    algebra::{Ring, solve, unpack_words},
    parties::{Parties, secret_matrix, weights},
};

/// The polynomial `c1_out / c1_in`, on the first limb, centred.
fn quotient(context: &Context, c1_in: &NttPoly, c1_out: &[u64]) -> Vec<i64> {
    let small = context.small_ring();
    let p = small.moduli().next().expect("a limb");
    let divided: Vec<u64> =
        c1_in.limb(0).iter().zip(c1_out).map(|(a, b)| divide(p, *b, *a)).collect();
    let poly: Poly = NttPoly::from_values(small, divided).expect("reduced").into_poly();
    poly.values().iter().map(|value| p.to_centred(*value)).collect()
}

fn divide(p: Modulus, a: u64, b: u64) -> u64 {
    if b == 0 { 0 } else { p.mul(a, p.inverse(b)) }
}

/// The number of entries of the matrix that are found at their positions in the direct scheme's layout.
fn count_found(matrix: &IntMatrix, tile: TileShape, weights: &[i64]) -> usize {
    let right = |row: usize| {
        let end = (row + 1) * tile.inputs - 1;
        let entries = matrix.row(row).enumerate();
        entries.filter(|(column, entry)| weights[end - column] == i64::from(*entry)).count()
    };
    (0..matrix.rows()).map(right).sum()
}

/// `c1` of an answer, decoded from its bytes: header, count, positions, then both halves in 50
/// bits each.
fn c1_of(context: &Context, answer: &SmallCiphertext) -> NttPoly {
    let bytes = answer.to_bytes(context);
    let positions = if answer.len() == context.n() { 0 } else { 2 * answer.len() };
    let start = 8 + positions + (50 * answer.len()).div_ceil(8);
    let values = unpack_words(&bytes[start..], 50, context.n());
    Poly::from_values(context.small_ring(), values).expect("below the prime").into_ntt()
}

struct TileRequest {
    context: Arc<Context>,
    matrix: IntMatrix,
    tile: TileShape,
    public: PublicKey,
    request: Vec<SeededCiphertext>,
    rng: Rng,
}

/// Makes a request for one tile, with everything that is public about it.
fn request_tile(set: &ParameterSet, entry_max: i64) -> TileRequest {
    let (set, _) = direct::derive_parameters(set).expect("room");
    let context = Context::new(&set).expect("a set");
    let matrix = secret_matrix(4, 256, entry_max);
    let tile = TileShape { inputs: 256, outputs: 4 };
    let terms = weights(&matrix, &set).terms;
    let mut rng = Rng::from_seed([31; 32]);
    let key = SecretKey::generate(&context, &mut rng);
    let public = key.public_key(&mut rng);
    let holder = EncryptedProductHolder::new(&context, &terms, tile).expect("fits");
    let request = holder
        .encrypt_request(&key, &[1000; 256], &mut rng, &mut StepMeter::default())
        .expect("fits");
    TileRequest { context, matrix, tile, public, request, rng }
}

#[test]
fn a_direct_answer_does_not_give_the_weights() {
    let set = ParameterSet::from_name("rlwe-4096-q100-flood40").expect("a set");
    let mut target = request_tile(&set, 2047);
    let weights = weights(&target.matrix, target.context.parameter_set());
    let host = EncryptedProductHost::new(&target.context, &weights, target.tile).expect("fits");
    let (c1_in, mut meter) = (target.request[0].c1(), StepMeter::default());
    let answers = host
        .answer(target.request.clone(), &target.public, &mut target.rng, &mut meter)
        .expect("fits");
    let c1_out = c1_of(&target.context, &answers[0]);
    let guessed = quotient(&target.context, &c1_in, c1_out.limb(0));
    assert_eq!(count_found(&target.matrix, target.tile, &guessed), 0);
}

#[test]
fn control_a_bare_product_gives_all_weights() {
    let set = ParameterSet::from_name("rlwe-4096-q100-flood40").expect("a set");
    let target = request_tile(&set, 2047);
    let mut coefficients = vec![0; 4096];
    for row in 0..4 {
        for (column, entry) in target.matrix.row(row).enumerate() {
            coefficients[(row + 1) * 256 - 1 - column] = i64::from(entry);
        }
    }
    let plaintext = Plaintext::new(&target.context, &coefficients).expect("in budget");
    let sent = target.request[0].clone().expand();
    let mut bare = Ciphertext::zero(&target.context);
    bare.add_product(&sent, &plaintext);
    let guessed = quotient(&target.context, &sent.c1, bare.c1.limb(0));
    assert_eq!(count_found(&target.matrix, target.tile, &guessed), 4 * 256);
}

#[test]
fn control_an_unflooded_answer_gives_all_weights_from_its_bytes() {
    let set = ParameterSet::dangerous_from_name("rlwe-2048-q50").expect("a set");
    let mut target = request_tile(&set, 127);
    let weights = weights(&target.matrix, target.context.parameter_set());
    let host = EncryptedProductHost::dangerous_unflooded(&target.context, &weights, target.tile)
        .expect("fits");
    let (c1_in, mut meter) = (target.request[0].c1(), StepMeter::default());
    let answers = host
        .answer(target.request.clone(), &target.public, &mut target.rng, &mut meter)
        .expect("fits");
    let c1_out = c1_of(&target.context, &answers[0]);
    let guessed = quotient(&target.context, &c1_in, c1_out.limb(0));
    assert_eq!(count_found(&target.matrix, target.tile, &guessed), 4 * 256);
}

/// Solves for one row: with scalars instead of polynomials it is a system of linear equations
/// modulo the first prime, one for each coefficient of `c1`.
fn row_from(parties: &Parties, request: &[SeededCiphertext], c1_out: &[u64]) -> Vec<u64> {
    let ring = Ring::Prime(parties.context.parameter_set().primes()[0]);
    let known: Vec<NttPoly> = request.iter().map(SeededCiphertext::c1).collect();
    let equation = |at: usize| known.iter().map(|a| a.limb(0)[at]).collect::<Vec<u64>>();
    let rows: Vec<Vec<u64>> = (0..c1_out.len()).map(equation).collect();
    solve(&rows, c1_out, &ring).expect("uniform polynomials determine a row")
}

#[test]
fn prepared_answers_do_not_give_the_rows_and_bare_sums_do() {
    let mut parties = Parties::new(2, 64);
    let (request, _) = parties.request(0);
    let entries: Vec<i16> = (0..2).flat_map(|row| parties.matrix.row(row)).collect();
    let scalars = ScalarMatrix::new(&parties.context, 2, 64, &entries).expect("in budget");
    let mut products = ScalarProducts::new(&parties.context, scalars);
    request.iter().for_each(|ciphertext| products.push(ciphertext).expect("in order"));
    let mut sums = products.finish().expect("complete");
    let ring = Ring::Prime(parties.context.parameter_set().primes()[0]);
    let secret: Vec<u64> =
        parties.matrix.row(1).map(|entry| ring.to_residue(entry.into())).collect();
    let same = |got: &[u64]| got.iter().zip(&secret).filter(|(a, b)| a == b).count();

    // Control: the bare sum.
    assert_eq!(same(&row_from(&parties, &request, sums[1].c1.limb(0))), 64);
    // The sum with only an encryption of zero.
    let zero = parties.public.encrypt_zero(&parties.context, &mut parties.rng).expect("floods");
    sums[1].add_assign(&zero);
    assert_eq!(same(&row_from(&parties, &request, sums[1].c1.limb(0))), 0);
    // The answer of the real host.
    let mut sequence = parties.sequence();
    let answers = parties.answers(&mut sequence, &request);
    let c1_out = c1_of(&parties.context, &answers[1]);
    assert_eq!(same(&row_from(&parties, &request, c1_out.limb(0))), 0);
}
