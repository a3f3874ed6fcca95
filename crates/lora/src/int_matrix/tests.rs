//! Every path computes the products of the slow reference.

use confide_rlwe::Rng;

use super::*;

/// The reference: one product and one sum after the other, in 64 bits that wrap.
fn slow(matrix: &IntMatrix, vector: &[u64], bits: u32) -> Vec<u64> {
    let product = |row| {
        let terms = matrix.row(row).zip(vector);
        terms.fold(0u64, |sum, (a, y)| sum.wrapping_add((i64::from(a) as u64).wrapping_mul(*y)))
            & low_mask(bits)
    };
    (0..matrix.rows()).map(product).collect()
}

fn random(rng: &mut Rng) -> u64 {
    let mut bytes = [0; 8];
    rng.fill_bytes(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn check(matrix: &IntMatrix, vectors: &[Vec<u64>], bits: u32) {
    let wanted: Vec<u64> = vectors.iter().flat_map(|y| slow(matrix, y, bits)).collect();
    let vectors: Vec<&[u64]> = vectors.iter().map(Vec::as_slice).collect();
    for path in ProductPath::supported_paths() {
        let mut products = vec![u64::MAX; wanted.len()];
        matrix.multiply_on_path(path, &vectors, bits, &mut DigitScratch::default(), &mut products);
        let shape = (matrix.rows(), matrix.columns());
        assert_eq!(products, wanted, "{path:?}, {shape:?}, {bits} bits");
    }
}

#[test]
fn every_path_gives_the_product_of_random_matrices() {
    let mut rng = Rng::from_seed([7; 32]);
    let shapes = [(1, 1), (1, 31), (2, 32), (3, 33), (5, 64), (32, 1536), (96, 100), (7, 8960)];
    for (rows, columns) in shapes {
        let entries: Vec<i16> =
            (0..rows * columns).map(|_| (random(&mut rng) % 8191) as i16 - ENTRY_MAX).collect();
        let matrix = IntMatrix::new(rows, columns, &entries).expect("fits");
        for bits in [1, 16, 25, 32, 33] {
            let vector = |rng: &mut Rng| -> Vec<u64> {
                (0..columns).map(|_| random(rng) & low_mask(bits)).collect()
            };
            let vectors: Vec<Vec<u64>> = (0..3).map(|_| vector(&mut rng)).collect();
            check(&matrix, &vectors, bits);
        }
    }
}

#[test]
fn every_path_is_exact_at_the_extremes() {
    for columns in [1, 4096, 4097, 8960] {
        for entry in [ENTRY_MAX, -ENTRY_MAX] {
            let matrix = IntMatrix::new(5, columns, &vec![entry; 5 * columns]).expect("fits");
            check(&matrix, &[vec![low_mask(33); columns], vec![low_mask(32); columns]], 33);
        }
        let signs: Vec<i16> =
            (0..columns).map(|at| if at % 2 == 0 { ENTRY_MAX } else { -ENTRY_MAX }).collect();
        let matrix = IntMatrix::new(1, columns, &signs).expect("fits");
        check(&matrix, &[vec![low_mask(33); columns]], 33);
    }
}

#[test]
fn scratch_of_a_longer_vector_leaves_nothing_behind() {
    let mut scratch = DigitScratch::default();
    let wide = IntMatrix::new(1, 64, &[1; 64]).expect("fits");
    let narrow = IntMatrix::new(1, 3, &[1; 3]).expect("fits");
    let mut product = [0];
    wide.multiply_vectors(&[&[5; 64]], 33, &mut scratch, &mut product);
    narrow.multiply_vectors(&[&[5; 3]], 33, &mut scratch, &mut product);
    assert_eq!(product, [15]);
}

#[test]
fn stacked_rows_give_stacked_products() {
    let first = IntMatrix::new(1, 2, &[1, 2]).expect("fits");
    let second = IntMatrix::new(2, 2, &[3, 4, -5, 6]).expect("fits");
    let both = IntMatrix::stack_rows(&[&first, &second]).expect("same width");
    check(&both, &[vec![10, 20]], 33);
    assert_eq!(both.row(2).collect::<Vec<_>>(), [-5, 6]);
    assert_eq!((both.row_l1(2), both.row_square_max()), (11, 61));
    let other = IntMatrix::new(1, 3, &[1, 2, 3]).expect("fits");
    assert!(matches!(IntMatrix::stack_rows(&[&first, &other]), Err(IntMatrixError::Shape { .. })));
}

#[test]
fn what_is_no_matrix_is_refused_by_name() {
    use IntMatrixError::{Entry, Shape, Size};
    assert!(matches!(IntMatrix::new(0, 3, &[]), Err(Size { .. })));
    assert!(matches!(IntMatrix::new(usize::MAX, 2, &[]), Err(Size { .. })));
    assert!(matches!(IntMatrix::new(2, 2, &[1; 3]), Err(Shape { entries: 3, .. })));
    assert!(matches!(IntMatrix::new(1, 2, &[0, 4096]), Err(Entry { column: 1, value: 4096, .. })));
    assert!(matches!(IntMatrix::new(1, 1, &[i16::MIN]), Err(Entry { .. })));
}

#[test]
fn the_best_path_is_the_last_of_this_machine() {
    assert_eq!(ProductPath::supported_paths().last(), Some(&ProductPath::fastest()));
}
