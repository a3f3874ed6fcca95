//! The canonical embedding between real slots and the real coefficients of a polynomial, in f64.
//!
//! Slot j is the polynomial's value at ζ^(3^j), ζ = exp(iπ/N). This is SEAL's order, so that both
//! encode a vector to the same polynomial. The other N/2 odd powers of ζ are the conjugates of these.

use std::f64::consts::PI;

/// Transforms between N/2 real slots and N real coefficients.
///
/// Folding coefficient k + N/2 into the imaginary part of coefficient k leaves a polynomial of
/// degree n = N/2 modulo X^n − i, whose n roots are the powers of ζ that are 1 mod 4: one of each
/// conjugate pair. So one transform of n complex numbers is enough; its twiddle factors include
/// the twist, as in the number-theoretic transform. Stages have radix 4; if log2(n) is odd, one has
/// radix 2.
pub(super) struct CanonicalEmbedding {
    /// The number of slots, n = N/2.
    n: usize,
    /// The root r of each node of the tree X^2h − r^2 = (X^h − r)(X^h + r), in heap order.
    roots: ComplexTable,
    /// The product of a node's root and its left child's.
    products: ComplexTable,
    /// The index of each slot after the transform.
    leaf_of_slot: Vec<u32>,
}

/// Complex numbers in separate arrays of real and imaginary parts, which a compiler can vectorise.
struct ComplexTable {
    re: Vec<f64>,
    im: Vec<f64>,
}

/// The real and the imaginary part.
type Complex = (f64, f64);

/// The factors of a radix-4 butterfly: the roots of the left child and of the node, and their
/// product.
type Radix4Twiddles = [Complex; 3];

impl CanonicalEmbedding {
    /// Prepares the embedding of polynomials of N coefficients, N a power of two from 8.
    pub(super) fn new(degree: usize) -> CanonicalEmbedding {
        let n = degree / 2;
        // The modulus of a node is X^h − ζ^exponent; of the root X^n − ζ^n, where ζ^n = i.
        let mut exponents = vec![0; 2 * n];
        exponents[1] = n;
        for node in 1..n {
            exponents[2 * node] = exponents[node] / 2;
            exponents[2 * node + 1] = exponents[node] / 2 + degree;
        }
        let power = |exponent: usize| {
            let angle = PI * ((exponent % (2 * degree)) as f64 / degree as f64);
            (angle.cos(), angle.sin())
        };
        let roots = ComplexTable::new(n, |node| power(exponents[2 * node]));
        let products =
            ComplexTable::new(n / 2, |node| power(exponents[2 * node] + exponents[4 * node]));
        let mut leaf_of_exponent = vec![0; 2 * degree];
        for leaf in 0..n {
            leaf_of_exponent[exponents[n + leaf]] = leaf as u32;
        }
        let odd_powers = std::iter::successors(Some(1), |e| Some(e * 3 % (2 * degree)));
        let leaf_of_slot = odd_powers.take(n).map(|exponent| {
            // A real slot has the same value at the conjugate root.
            let kept = if exponent % 4 == 1 { exponent } else { 2 * degree - exponent };
            leaf_of_exponent[kept]
        });
        CanonicalEmbedding { n, roots, products, leaf_of_slot: leaf_of_slot.collect() }
    }

    /// The number of slots, N/2.
    pub(super) fn slot_count(&self) -> usize {
        self.n
    }

    /// Transforms slots to coefficients, multiplied by `factor`. Missing slots are zero.
    #[inline(always)]
    pub(super) fn to_coefficients(&self, slots: &[f64], factor: f64) -> Vec<f64> {
        let mut coefficients = vec![0.0; 2 * self.n];
        let factor = factor / self.n as f64;
        for (&leaf, &slot) in self.leaf_of_slot.iter().zip(slots) {
            coefficients[leaf as usize] = slot * factor;
        }
        let (re, im) = coefficients.split_at_mut(self.n);
        self.inverse(re, im);
        coefficients
    }

    /// Transforms coefficients to slots, multiplied by `factor`. Destroys the coefficients.
    ///
    /// The imaginary parts of the slots are dropped: for a polynomial that encodes real slots they
    /// are noise.
    #[inline(always)]
    pub(super) fn to_slots(&self, coefficients: &mut [f64], factor: f64) -> Vec<f64> {
        let (re, im) = coefficients.split_at_mut(self.n);
        self.forward(re, im);
        self.leaf_of_slot.iter().map(|&leaf| re[leaf as usize] * factor).collect()
    }

    /// Computes the slots of two polynomials with one transform. Destroys the coefficients.
    ///
    /// A polynomial whose slots are all real equals its mirror image under X -> X^−1. Each
    /// polynomial is first replaced by the mean of itself and its mirror image, which keeps the real
    /// parts of the slots and makes the imaginary parts zero. Then the values of p + i·q have the
    /// slots of p in their real parts and those of q in their imaginary parts.
    #[inline(always)]
    pub(super) fn to_slot_pairs(
        &self,
        first: &mut [f64],
        second: &mut [f64],
        factor: f64,
    ) -> (Vec<f64>, Vec<f64>) {
        average_with_mirror(first);
        average_with_mirror(second);
        let (re, im) = first.split_at_mut(self.n);
        let (second_low, second_high) = second.split_at(self.n);
        re.iter_mut().zip(second_high).for_each(|(x, y)| *x -= y);
        im.iter_mut().zip(second_low).for_each(|(x, y)| *x += y);
        self.forward(re, im);
        // The leaf of a conjugate root holds conjugates, but both polynomials' slots are real.
        let take = |part: &[f64]| {
            self.leaf_of_slot.iter().map(|&leaf| part[leaf as usize] * factor).collect()
        };
        (take(re), take(im))
    }

    /// Computes the values at the leaves from the folded coefficients.
    #[inline(always)]
    fn forward(&self, re: &mut [f64], im: &mut [f64]) {
        let (mut node, mut block) = (1, self.n);
        if self.n.trailing_zeros() % 2 == 1 {
            run_radix2_block(re, im, |x, y| {
                let turned = multiply_complex(y, self.roots.root(1));
                (add_complex(x, turned), subtract_complex(x, turned))
            });
            (node, block) = (2, self.n / 2);
        }
        while block > 4 {
            for (at, (re, im)) in zip_blocks(re, im, block).enumerate() {
                run_radix4_block(re, im, &self.twiddles(node + at), forward_butterfly);
            }
            (node, block) = (node * 4, block / 4);
        }
        self.transform_leaves(re, im, node, forward_butterfly);
    }

    /// Computes n times the folded coefficients from the values at the leaves.
    #[inline(always)]
    fn inverse(&self, re: &mut [f64], im: &mut [f64]) {
        let (mut node, mut block) = (self.n / 4, 4);
        self.transform_leaves(re, im, node, inverse_butterfly);
        while node >= 4 {
            (node, block) = (node / 4, block * 4);
            for (at, (re, im)) in zip_blocks(re, im, block).enumerate() {
                run_radix4_block(re, im, &self.twiddles(node + at), inverse_butterfly);
            }
        }
        if node == 2 {
            run_radix2_block(re, im, |x, y| {
                (add_complex(x, y), multiply_conjugate(subtract_complex(x, y), self.roots.root(1)))
            });
        }
    }

    /// Runs the radix-4 stage whose blocks are four neighbours.
    #[inline(always)]
    fn transform_leaves(
        &self,
        re: &mut [f64],
        im: &mut [f64],
        node: usize,
        butterfly: impl Butterfly,
    ) {
        let (re, _) = re.as_chunks_mut::<4>();
        let (im, _) = im.as_chunks_mut::<4>();
        for (at, (re, im)) in re.iter_mut().zip(im).enumerate() {
            let values = [(re[0], im[0]), (re[1], im[1]), (re[2], im[2]), (re[3], im[3])];
            let values = butterfly(values, &self.twiddles(node + at));
            *re = values.map(|value| value.0);
            *im = values.map(|value| value.1);
        }
    }

    #[inline(always)]
    fn twiddles(&self, node: usize) -> Radix4Twiddles {
        [self.roots.root(2 * node), self.roots.root(node), self.products.root(node)]
    }
}

/// A radix-4 butterfly: the operation of a stage on four numbers.
trait Butterfly: Fn([Complex; 4], &Radix4Twiddles) -> [Complex; 4] + Copy {}

impl<F: Fn([Complex; 4], &Radix4Twiddles) -> [Complex; 4] + Copy> Butterfly for F {}

/// Reduces modulo the four factors of X^4h − r^4: two stages of radix 2 with three products.
#[inline(always)]
fn forward_butterfly([a, b, c, d]: [Complex; 4], twiddles: &Radix4Twiddles) -> [Complex; 4] {
    let (b, c, d) = (
        multiply_complex(b, twiddles[0]),
        multiply_complex(c, twiddles[1]),
        multiply_complex(d, twiddles[2]),
    );
    let (even, odd) =
        ((add_complex(a, c), subtract_complex(a, c)), (add_complex(b, d), subtract_complex(b, d)));
    let turned = (-odd.1.1, odd.1.0);
    [
        add_complex(even.0, odd.0),
        subtract_complex(even.0, odd.0),
        add_complex(even.1, turned),
        subtract_complex(even.1, turned),
    ]
}

/// The inverse of [`forward_butterfly`], times four.
#[inline(always)]
fn inverse_butterfly([a, b, c, d]: [Complex; 4], twiddles: &Radix4Twiddles) -> [Complex; 4] {
    let (even, odd) =
        ((add_complex(a, b), add_complex(c, d)), (subtract_complex(a, b), subtract_complex(c, d)));
    let turned = (odd.1.1, -odd.1.0);
    [
        add_complex(even.0, even.1),
        multiply_conjugate(add_complex(odd.0, turned), twiddles[0]),
        multiply_conjugate(subtract_complex(even.0, even.1), twiddles[1]),
        multiply_conjugate(subtract_complex(odd.0, turned), twiddles[2]),
    ]
}

#[inline(always)]
fn run_radix4_block(
    re: &mut [f64],
    im: &mut [f64],
    twiddles: &Radix4Twiddles,
    butterfly: impl Butterfly,
) {
    let ([re0, re1, re2, re3], [im0, im1, im2, im3]) = (split_quarters(re), split_quarters(im));
    let first = re0.iter_mut().zip(im0);
    let second = re1.iter_mut().zip(im1);
    let third = re2.iter_mut().zip(im2);
    let fourth = re3.iter_mut().zip(im3);
    for (((a, b), c), d) in first.zip(second).zip(third).zip(fourth) {
        let values = [(*a.0, *a.1), (*b.0, *b.1), (*c.0, *c.1), (*d.0, *d.1)];
        let values = butterfly(values, twiddles);
        (*a.0, *a.1) = values[0];
        (*b.0, *b.1) = values[1];
        (*c.0, *c.1) = values[2];
        (*d.0, *d.1) = values[3];
    }
}

#[inline(always)]
fn run_radix2_block(
    re: &mut [f64],
    im: &mut [f64],
    butterfly: impl Fn(Complex, Complex) -> (Complex, Complex),
) {
    let half = re.len() / 2;
    let ((re0, re1), (im0, im1)) = (re.split_at_mut(half), im.split_at_mut(half));
    for (a, b) in re0.iter_mut().zip(im0).zip(re1.iter_mut().zip(im1)) {
        ((*a.0, *a.1), (*b.0, *b.1)) = butterfly((*a.0, *a.1), (*b.0, *b.1));
    }
}

#[inline(always)]
fn split_quarters(values: &mut [f64]) -> [&mut [f64]; 4] {
    let (left, right) = values.split_at_mut(values.len() / 2);
    let (first, second) = left.split_at_mut(left.len() / 2);
    let (third, fourth) = right.split_at_mut(right.len() / 2);
    [first, second, third, fourth]
}

#[inline(always)]
fn zip_blocks<'a>(
    re: &'a mut [f64],
    im: &'a mut [f64],
    size: usize,
) -> impl Iterator<Item = (&'a mut [f64], &'a mut [f64])> {
    re.chunks_exact_mut(size).zip(im.chunks_exact_mut(size))
}

/// Replaces a polynomial by the mean of itself and its image under X -> X^−1 = −X^(N−1).
#[inline(always)]
fn average_with_mirror(coefficients: &mut [f64]) {
    let half = coefficients.len() / 2;
    let (low, high) = coefficients[1..].split_at_mut(half);
    for (x, y) in low.iter_mut().zip(high.iter_mut().rev()) {
        let mean = (*x - *y) * 0.5;
        (*x, *y) = (mean, -mean);
    }
    coefficients[half] = 0.0;
}

#[inline(always)]
fn add_complex(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}

#[inline(always)]
fn subtract_complex(a: Complex, b: Complex) -> Complex {
    (a.0 - b.0, a.1 - b.1)
}

#[inline(always)]
fn multiply_complex(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// a times the conjugate of b.
#[inline(always)]
fn multiply_conjugate(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 + a.1 * b.1, a.1 * b.0 - a.0 * b.1)
}

impl ComplexTable {
    fn new(count: usize, root: impl Fn(usize) -> Complex) -> ComplexTable {
        // There is no node 0.
        let (re, im) =
            (0..count).map(|node| if node == 0 { (1.0, 0.0) } else { root(node) }).unzip();
        ComplexTable { re, im }
    }

    #[inline(always)]
    fn root(&self, node: usize) -> Complex {
        (self.re[node], self.im[node])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_values(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let step = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        std::iter::repeat_with(step).take(count).collect()
    }

    /// The real part of the polynomial's value at ζ^(3^j), term by term.
    fn evaluate_naively(coefficients: &[f64]) -> Vec<f64> {
        let degree = coefficients.len();
        let mut exponent = 1;
        let mut slots = Vec::new();
        for _ in 0..degree / 2 {
            let term = |(k, c): (usize, &f64)| {
                let turns = (k * exponent) % (2 * degree);
                c * (PI * turns as f64 / degree as f64).cos()
            };
            slots.push(coefficients.iter().enumerate().map(term).sum());
            exponent = exponent * 3 % (2 * degree);
        }
        slots
    }

    fn close(a: &[f64], b: &[f64], error: f64) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| (x - y).abs() < error)
    }

    #[test]
    fn slots_are_the_values_at_the_odd_roots() {
        for degree in [8, 16, 32, 64, 128, 512] {
            let embedding = CanonicalEmbedding::new(degree);
            let coefficients = random_values(degree, degree as u64);
            let slots = embedding.to_slots(&mut coefficients.clone(), 2.0);
            let wanted: Vec<f64> =
                evaluate_naively(&coefficients).iter().map(|x| 2.0 * x).collect();
            assert!(close(&slots, &wanted, 1e-10), "{degree}");
        }
    }

    #[test]
    fn encoding_is_the_inverse_of_decoding() {
        for degree in [8, 16, 64, 256, 16384, 32768] {
            let embedding = CanonicalEmbedding::new(degree);
            let slots = random_values(degree / 2, 5);
            let coefficients = embedding.to_coefficients(&slots, 4.0);
            let again = embedding.to_slots(&mut coefficients.clone(), 0.25);
            assert!(close(&again, &slots, 1e-13), "{degree}");
            if degree <= 256 {
                let wanted: Vec<f64> =
                    evaluate_naively(&coefficients).iter().map(|x| x / 4.0).collect();
                assert!(close(&wanted, &slots, 1e-12), "{degree}");
            }
        }
    }

    #[test]
    fn slots_that_are_not_given_are_zero() {
        let embedding = CanonicalEmbedding::new(32);
        let mut coefficients = embedding.to_coefficients(&[3.0, -4.0], 1.0);
        let mut wanted = vec![0.0; 16];
        wanted[..2].copy_from_slice(&[3.0, -4.0]);
        assert!(close(&embedding.to_slots(&mut coefficients, 1.0), &wanted, 1e-14));
    }

    #[test]
    fn one_transform_decodes_two_polynomials() {
        for degree in [8, 16, 64, 16384] {
            let embedding = CanonicalEmbedding::new(degree);
            // Any real polynomial: its imaginary parts must not reach the slots of the other one.
            let (first, second) = (random_values(degree, 1), random_values(degree, 2));
            let wanted = [&first, &second].map(|p| embedding.to_slots(&mut p.clone(), 3.0));
            let (a, b) = embedding.to_slot_pairs(&mut first.clone(), &mut second.clone(), 3.0);
            assert!(close(&a, &wanted[0], 1e-10) && close(&b, &wanted[1], 1e-10), "{degree}");
        }
    }
}
