//! Linear equations modulo a prime or a power of two, and unpacking of words from bytes.

/// Solves `rows · x = right` for `x`, where each row has as many entries as there are unknowns and
/// there are at least as many rows. `None` if the equations do not
/// determine `x`.
///
/// Surplus equations are not checked: see [`holds`].
pub(crate) fn solve(rows: &[Vec<u64>], right: &[u64], ring: &Ring) -> Option<Vec<u64>> {
    let unknowns = rows.first()?.len();
    let mut rows: Vec<Vec<u64>> = rows
        .iter()
        .zip(right)
        .map(|(row, right)| row.iter().chain([right]).copied().collect())
        .collect();
    for column in 0..unknowns {
        let found = (column..rows.len()).find(|row| ring.inverse(rows[*row][column]).is_some())?;
        rows.swap(column, found);
        let inverse = ring.inverse(rows[column][column])?;
        rows[column].iter_mut().for_each(|entry| *entry = ring.mul(*entry, inverse));
        let pivot = rows[column].clone();
        for row in rows.iter_mut().enumerate().filter(|(at, _)| *at != column).map(|(_, row)| row) {
            let factor = row[column];
            if factor != 0 {
                for (entry, pivot) in row.iter_mut().zip(&pivot) {
                    *entry = ring.sub(*entry, ring.mul(factor, *pivot));
                }
            }
        }
    }
    Some((0..unknowns).map(|row| rows[row][unknowns]).collect())
}

/// Returns whether every equation holds.
pub(crate) fn holds(rows: &[Vec<u64>], right: &[u64], x: &[u64], ring: &Ring) -> bool {
    let sum = |row: &Vec<u64>| {
        row.iter().zip(x).fold(0, |sum, (a, x)| ring.sub(sum, ring.sub(0, ring.mul(*a, *x))))
    };
    rows.iter().zip(right).all(|(row, right)| sum(row) == *right)
}

/// Integers modulo a prime or a power of two.
pub(crate) enum Ring {
    Prime(u64),
    PowerOfTwo(u32),
}

impl Ring {
    pub(crate) fn modulus(&self) -> u64 {
        match self {
            Ring::Prime(prime) => *prime,
            Ring::PowerOfTwo(bits) => 1 << bits,
        }
    }

    pub(crate) fn mul(&self, a: u64, b: u64) -> u64 {
        (u128::from(a) * u128::from(b) % u128::from(self.modulus())) as u64
    }

    pub(crate) fn sub(&self, a: u64, b: u64) -> u64 {
        (a + self.modulus() - b % self.modulus()) % self.modulus()
    }

    /// The inverse of a nonzero residue of a prime, or of an odd one of a power of two.
    pub(crate) fn inverse(&self, a: u64) -> Option<u64> {
        let exponent = match self {
            Ring::Prime(prime) => (!a.is_multiple_of(*prime)).then_some(prime - 2)?,
            // The odd residues are a group of 2^(bits - 1) elements.
            Ring::PowerOfTwo(bits) => (a % 2 == 1).then_some((1 << (bits - 1)) - 1)?,
        };
        let (mut power, mut result) = (a, 1);
        for bit in 0..64 {
            if exponent >> bit & 1 == 1 {
                result = self.mul(result, power);
            }
            power = self.mul(power, power);
        }
        Some(result)
    }

    /// A signed integer as a residue.
    pub(crate) fn to_residue(&self, value: i64) -> u64 {
        i128::from(value).rem_euclid(i128::from(self.modulus())) as u64
    }
}

/// Reads `count` words of `bits` bits from a string of bits, least significant first.
pub(crate) fn unpack_words(bytes: &[u8], bits: usize, count: usize) -> Vec<u64> {
    let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
    let word = |index: usize| (0..bits).fold(0, |word, at| word | bit(index * bits + at) << at);
    (0..count).map(word).collect()
}

#[test]
fn equations_are_solved_where_they_can_be() {
    for ring in [Ring::Prime(101), Ring::PowerOfTwo(33)] {
        let rows = vec![vec![2, 1], vec![1, 1], vec![5, 7]];
        let right = [7, 5, 31];
        let x = solve(&rows, &right, &ring).expect("determined");
        assert_eq!(x, [2, 3]);
        assert!(holds(&rows, &right, &x, &ring));
        assert!(!holds(&rows, &[7, 5, 30], &x, &ring));
        assert_eq!(solve(&rows[..1], &right[..1], &ring), None);
    }
}
