//! That all fractions sum to zero: a tree of sums, and one sumcheck for each of its layers.
//!
//! The node over `a/b` and `c/d` is `(a·d + c·b) / (b·d)`. For a layer of `2^n` nodes and a point the sumcheck
//! proves the layer's multilinear extension there from the layer below. Its round polynomial is `eq(x, X)·t(X)`
//! times what earlier rounds left, and `t` has degree 2: it is summed at 0, at 1 and at infinity, and the rest
//! is arithmetic on single numbers.

use openvm_stark_backend::{
    FiatShamirTranscript, proof::GkrLayerClaims, prover::LogupZerocheckError,
};
use openvm_stark_sdk::config::baby_bear_poseidon2::{BabyBearPoseidon2Config as SC, EF};
use p3_field::{PackedFieldExtension, PrimeCharacteristicRing};
use rayon::prelude::*;

use crate::{
    lanes::{
        LOG_W, P, PE, SumcheckValue, W, drop_lowest_variable, eq_over_lanes, eq_single, eq_table,
        interpolate,
    },
    leaves::LookupFractions,
};

/// Fewer pairs than these are not shared out among threads.
const PAIRS_MIN: usize = 256;

/// The proof's parts, and the point at which the leaves' extension is claimed.
pub(crate) struct FractionSumProof {
    pub(crate) denominator: EF,
    pub(crate) claims: Vec<GkrLayerClaims<SC>>,
    /// Round polynomials of each layer, at 1, 2 and 3.
    pub(crate) polynomials: Vec<Vec<[EF; 3]>>,
    pub(crate) point: Vec<EF>,
}

/// One layer of the tree: numerators and denominators of its nodes.
enum Layer {
    /// The leaves in lane order: numerators in the base field, denominators.
    Leaves(Vec<P>, Vec<PE>),
    /// Nodes of an inner layer in lane order: numerator, denominator.
    Packed(Vec<[PE; 2]>),
    Plain(Vec<[EF; 2]>),
}

impl Layer {
    fn from_leaves(leaves: &LookupFractions) -> Self {
        let count = leaves.numerators.len();
        if count < 4 * W {
            return Self::Plain((0..count).map(|at| leaves.fraction_at(at)).collect());
        }
        let (numerators, denominators) = leaves.pack_lanes();
        Self::Leaves(numerators, denominators)
    }

    /// Computes the layer above this one, of half as many nodes.
    fn next_layer(&self) -> Self {
        match self {
            Self::Leaves(numerators, denominators) => {
                let child = |at: usize| [PE::from(numerators[at]), denominators[at]];
                Self::Packed(add_fraction_pairs(numerators.len() / 2, child)).unpack_if_small()
            }
            Self::Packed(nodes) => {
                Self::Packed(add_fraction_pairs(nodes.len() / 2, |at| nodes[at])).unpack_if_small()
            }
            Self::Plain(nodes) => Self::Plain(add_fraction_pairs(nodes.len() / 2, |at| nodes[at])),
        }
    }

    /// Turns one register of nodes, or the last pair, into plain numbers from here on.
    fn unpack_if_small(self) -> Self {
        match self {
            Self::Packed(nodes) if nodes.len() * W <= W.max(2) => {
                let lanes = (0..W).flat_map(|lane| {
                    nodes.iter().map(move |node| node.map(|part| part.extract(lane)))
                });
                Self::Plain(lanes.collect())
            }
            other => other,
        }
    }
}

fn add_fraction_pairs<V: SumcheckValue>(
    count: usize,
    child: impl Fn(usize) -> [V; 2] + Sync,
) -> Vec<[V; 2]> {
    let sum = |at: usize| {
        let ([a, b], [c, d]) = (child(2 * at), child(2 * at + 1));
        [a * d + c * b, b * d]
    };
    (0..count).into_par_iter().with_min_len(PAIRS_MIN).map(sum).collect()
}

/// Proves that the fractions sum to zero.
///
/// # Errors
/// If they do not.
pub(crate) fn prove(
    transcript: &mut impl FiatShamirTranscript<SC>,
    leaves: LookupFractions,
) -> Result<FractionSumProof, LogupZerocheckError> {
    let rounds = leaves.numerators.len().trailing_zeros() as usize;
    let mut layers = vec![Layer::from_leaves(&leaves)];
    drop(leaves);
    for _ in 0..rounds {
        layers.push(layers[layers.len() - 1].next_layer());
    }
    let mut top_down = layers.into_iter().rev();
    let root = match top_down.next() {
        Some(Layer::Plain(root)) => root[0],
        _ => [EF::ZERO, EF::ONE],
    };
    if root[0] != EF::ZERO {
        return Err(LogupZerocheckError::NonZeroRootSum);
    }
    transcript.observe_ext(root[1]);
    let mut proved = FractionSumProof {
        denominator: root[1],
        claims: vec![],
        polynomials: vec![],
        point: vec![],
    };
    for layer in top_down {
        let values = match (proved.point.is_empty(), layer) {
            (true, Layer::Plain(nodes)) => [nodes[0][0], nodes[0][1], nodes[1][0], nodes[1][1]],
            (_, layer) => {
                let mut sumcheck = Sumcheck::new(transcript, &proved.point);
                let values = sumcheck.run(layer);
                proved.polynomials.push(sumcheck.polynomials);
                proved.point = sumcheck.challenges;
                values
            }
        };
        let [p_xi_0, q_xi_0, p_xi_1, q_xi_1] = values;
        values.iter().for_each(|value| transcript.observe_ext(*value));
        proved.claims.push(GkrLayerClaims { p_xi_0, q_xi_0, p_xi_1, q_xi_1 });
        proved.point.insert(0, transcript.sample_ext());
    }
    Ok(proved)
}

/// The sumcheck of one layer over the one below it.
struct Sumcheck<'a, TS> {
    transcript: &'a mut TS,
    /// The point at which the layer is claimed.
    point: &'a [EF],
    /// The weight of the denominators.
    lambda: EF,
    /// `eq` of the variables of earlier rounds.
    behind: EF,
    polynomials: Vec<[EF; 3]>,
    challenges: Vec<EF>,
}

/// Left numerator and denominator, right numerator with `lambda` times the denominator in it, right denominator:
/// the sum that is checked is then `a·d + b·c`.
type Quad<V> = [V; 4];

impl<'a, TS: FiatShamirTranscript<SC>> Sumcheck<'a, TS> {
    fn new(transcript: &'a mut TS, point: &'a [EF]) -> Self {
        let lambda = transcript.sample_ext();
        let (polynomials, challenges) = (vec![], vec![]);
        Self { transcript, point, lambda, behind: EF::ONE, polynomials, challenges }
    }

    /// The four values at the end of the sumcheck.
    fn run(&mut self, below: Layer) -> [EF; 4] {
        let lambda = self.lambda;
        let quad = move |[a, b]: [PE; 2], [c, d]: [PE; 2]| [a, b, c + d * lambda, d];
        let quads = match below {
            Layer::Plain(nodes) => {
                let pairs = nodes.as_chunks::<2>().0.iter();
                pairs.map(|[[a, b], [c, d]]| [*a, *b, *c + *d * lambda, *d]).collect()
            }
            Layer::Leaves(n, d) => self.run_packed_rounds(n.len() / 2, |at| {
                let node = |at: usize| [PE::from(n[at]), d[at]];
                quad(node(2 * at), node(2 * at + 1))
            }),
            Layer::Packed(nodes) => {
                self.run_packed_rounds(nodes.len() / 2, |at| quad(nodes[2 * at], nodes[2 * at + 1]))
            }
        };
        let [a, b, c, d] = self.run_plain_rounds(quads);
        [a, b, c - d * lambda, d]
    }

    /// Runs rounds on registers, until one is left.
    fn run_packed_rounds(
        &mut self,
        count: usize,
        first: impl Fn(usize) -> Quad<PE> + Sync,
    ) -> Vec<Quad<EF>> {
        let lanes = self.point.len() - LOG_W;
        if count > 1 {
            let tops = eq_over_lanes(&self.point[lanes..]);
            let mut lows = eq_table(&self.point[1..lanes]);
            let r =
                self.run_round(quadratic_sums(&lows, &first).map(|sum| (sum * tops).sum_lanes()));
            let mut quads = fold_quads(count / 2, &first, r);
            while quads.len() > 1 {
                lows = drop_lowest_variable(&lows);
                let sums = quadratic_sums(&lows, &|at: usize| quads[at]);
                let r = self.run_round(sums.map(|sum| (sum * tops).sum_lanes()));
                quads = fold_quads(quads.len() / 2, &|at: usize| quads[at], r);
            }
            return unpack_lanes(&quads[0]);
        }
        unpack_lanes(&first(0))
    }

    /// Runs rounds on single numbers.
    fn run_plain_rounds(&mut self, mut quads: Vec<Quad<EF>>) -> Quad<EF> {
        while quads.len() > 1 {
            let lows = eq_table(&self.point[self.challenges.len() + 1..]);
            let r = self.run_round(quadratic_sums(&lows, &|at: usize| quads[at]));
            quads = fold_quads(quads.len() / 2, &|at: usize| quads[at], r);
        }
        quads[0]
    }

    /// Runs one round, from `t(0)`, `t(1)` and the leading coefficient of `t`; gives its challenge.
    fn run_round(&mut self, [zero, one, leading]: [EF; 3]) -> EF {
        let x = self.point[self.challenges.len()];
        let linear = one - zero - leading;
        let polynomial = [1u32, 2, 3].map(|at| {
            let at = EF::from_u32(at);
            self.behind * eq_single(x, at) * ((leading * at + linear) * at + zero)
        });
        polynomial.iter().for_each(|value| self.transcript.observe_ext(*value));
        let r = self.transcript.sample_ext();
        self.behind *= eq_single(x, r);
        self.polynomials.push(polynomial);
        self.challenges.push(r);
        r
    }
}

fn unpack_lanes(quad: &Quad<PE>) -> Vec<Quad<EF>> {
    (0..W).map(|lane| quad.map(|part| part.extract(lane))).collect()
}

/// `Σ lows[y]·g(X, y)` at 0, at 1 and at infinity, `g = a·d + b·c`.
fn quadratic_sums<V: SumcheckValue>(
    lows: &[EF],
    at: &(impl Fn(usize) -> Quad<V> + Sync),
) -> [V; 3] {
    let value = |[a, b, c, d]: Quad<V>| a * d + b * c;
    let add = |mut all: [V; 3], (y, low): (usize, &EF)| {
        let (zero, one) = (at(2 * y), at(2 * y + 1));
        let slope = std::array::from_fn(|part| one[part] - zero[part]);
        for (sum, quad) in all.iter_mut().zip([zero, one, slope]) {
            *sum += value(quad) * *low;
        }
        all
    };
    let none = || [V::ZERO; 3];
    lows.par_iter()
        .with_min_len(PAIRS_MIN)
        .enumerate()
        .fold(none, add)
        .reduce(none, |left, right| std::array::from_fn(|at| left[at] + right[at]))
}

fn fold_quads<V: SumcheckValue>(
    count: usize,
    at: &(impl Fn(usize) -> Quad<V> + Sync),
    r: EF,
) -> Vec<Quad<V>> {
    let fold = |y: usize| {
        let (zero, one) = (at(2 * y), at(2 * y + 1));
        std::array::from_fn(|part| interpolate(zero[part], one[part], r))
    };
    (0..count).into_par_iter().with_min_len(PAIRS_MIN).map(fold).collect()
}
