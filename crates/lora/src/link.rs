//! The cost of a private product over a network link, and the choice of the cheapest tile.

/// The speed of the network link between key holder and adapter host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkLink {
    /// Bytes per second from the key holder to the host.
    pub up_bytes_per_s: f64,
    /// Bytes per second from the host to the key holder.
    pub down_bytes_per_s: f64,
    /// The round-trip time in seconds.
    pub round_trip_s: f64,
}

/// The processor time of each operation, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationCosts {
    /// Encrypting one message, by the key holder.
    pub encrypt_s: f64,
    /// Expanding the uniform half of a ciphertext from its seed, by the host.
    pub expand_s: f64,
    /// One product of a ciphertext and weights, added to a sum.
    pub product_s: f64,
    /// Re-randomising an answer, by the host: Enc(0) with flooding, conversion from NTT form, switching
    /// down, selection.
    pub answer_s: f64,
    /// Decrypting one answer, by the key holder.
    pub decrypt_s: f64,
}

/// A matrix and the sizes of its messages, for which a tile is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilingProblem {
    /// The number of rows of the matrix.
    pub rows: usize,
    /// The number of columns of the matrix.
    pub columns: usize,
    /// The degree of the ring: a tile has at most as many entries.
    pub degree: usize,
    /// The greatest number of rows of one answer: their magnitudes add up to its noise.
    pub outputs_max: usize,
    /// The size of a request's ciphertext in bytes, with a seed for its uniform half.
    pub request_bytes: usize,
    /// The size of an answer in bytes, without its wanted coefficients.
    pub answer_bytes: usize,
    /// The size of a wanted coefficient, in bits.
    pub coefficient_bits: u32,
}

/// The size of a tile of a matrix: `inputs` columns by `outputs` rows for each product of
/// polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// The number of columns.
    pub inputs: usize,
    /// The number of rows.
    pub outputs: usize,
}

/// The cost of a tile under the cost model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileCost {
    /// The number of ciphertexts that the key holder sends.
    pub requests: usize,
    /// The number of ciphertexts that the host answers.
    pub answers: usize,
    /// The number of bytes to the host.
    pub up_bytes: u64,
    /// The number of bytes to the key holder.
    pub down_bytes: u64,
    /// The processor time of both sides, in seconds.
    pub processor_s: f64,
    /// The time until the answer arrives, in seconds: processor time, both transfers and one round
    /// trip.
    pub total_s: f64,
}

impl NetworkLink {
    /// A link within one machine: copies at 4 GB/s and 30 µs to wake the other process.
    pub const LOOPBACK: NetworkLink =
        NetworkLink { up_bytes_per_s: 4e9, down_bytes_per_s: 4e9, round_trip_s: 30e-6 };

    /// A local network: 10 Gbit/s and a round trip of 0.2 ms.
    pub const LAN: NetworkLink =
        NetworkLink { up_bytes_per_s: 1.25e9, down_bytes_per_s: 1.25e9, round_trip_s: 0.2e-3 };
}

impl OperationCosts {
    /// Default costs, used to choose a tile if none were measured: one core of an AMD server with
    /// AVX-512 at N = 4096 and two primes of 50 bits (the example `speed`, least of 40 runs).
    pub const GIVEN: OperationCosts = OperationCosts {
        encrypt_s: 34e-6,
        expand_s: 14e-6,
        product_s: 4e-6,
        answer_s: 132e-6,
        decrypt_s: 8e-6,
    };
}

impl TilingProblem {
    /// Computes the cost of a tile. The last row and column of tiles cost the same as full ones.
    pub fn estimate_cost(
        &self,
        tile: TileShape,
        link: &NetworkLink,
        costs: &OperationCosts,
    ) -> TileCost {
        let requests = self.columns.div_ceil(tile.inputs);
        let answers = self.rows.div_ceil(tile.outputs);
        let coefficients = (self.rows as u64 * u64::from(self.coefficient_bits)).div_ceil(8);
        let up_bytes = (requests * self.request_bytes) as u64;
        let down_bytes = (answers * self.answer_bytes) as u64 + coefficients;
        let (inputs, outputs) = (requests as f64, answers as f64);
        let processor_s = inputs * (costs.encrypt_s + costs.expand_s)
            + inputs * outputs * costs.product_s
            + outputs * (costs.answer_s + costs.decrypt_s);
        let transfers =
            up_bytes as f64 / link.up_bytes_per_s + down_bytes as f64 / link.down_bytes_per_s;
        let total_s = processor_s + transfers + link.round_trip_s;
        TileCost { requests, answers, up_bytes, down_bytes, processor_s, total_s }
    }

    /// Returns the tile of least total time. Only the numbers of requests and answers matter. For each
    /// number of requests, the narrowest tile has room for the most rows, so it is the only candidate.
    ///
    /// `None` if the matrix, the degree or `outputs_max` is 0.
    pub fn best_tile(&self, link: &NetworkLink, costs: &OperationCosts) -> Option<TileShape> {
        if self.degree == 0 || self.rows == 0 || self.outputs_max == 0 {
            return None;
        }
        let candidates = (1..=self.columns).filter_map(|requests| {
            let inputs = self.columns.div_ceil(requests);
            let outputs = (self.degree / inputs).min(self.rows).min(self.outputs_max);
            (outputs > 0).then_some(TileShape { inputs, outputs })
        });
        let total = |tile: &TileShape| self.estimate_cost(*tile, link, costs).total_s;
        candidates.min_by(|a, b| total(a).total_cmp(&total(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wide-area network: 100 Mbit/s and a round trip of 10 ms.
    const WAN: NetworkLink =
        NetworkLink { up_bytes_per_s: 12.5e6, down_bytes_per_s: 12.5e6, round_trip_s: 10e-3 };

    const COSTS: &[OperationCosts] = &[
        OperationCosts {
            encrypt_s: 50e-6,
            expand_s: 15e-6,
            product_s: 8e-6,
            answer_s: 150e-6,
            decrypt_s: 30e-6,
        },
        OperationCosts {
            encrypt_s: 1e-3,
            expand_s: 0.0,
            product_s: 1e-6,
            answer_s: 0.0,
            decrypt_s: 0.0,
        },
        OperationCosts {
            encrypt_s: 0.0,
            expand_s: 0.0,
            product_s: 1e-2,
            answer_s: 0.0,
            decrypt_s: 1.0,
        },
    ];

    fn jobs() -> Vec<TilingProblem> {
        let shapes = [(32, 1536, 4096), (32, 1536, 2048), (5, 7, 64), (1, 1, 8), (100, 300, 256)];
        let caps = [usize::MAX, 5];
        let job = |(rows, columns, degree), outputs_max| TilingProblem {
            rows,
            columns,
            degree,
            outputs_max,
            request_bytes: degree * 100 / 8,
            answer_bytes: degree * 50 / 8,
            coefficient_bits: 50,
        };
        shapes.into_iter().flat_map(|shape| caps.map(|cap| job(shape, cap))).collect()
    }

    #[test]
    fn no_other_tile_is_better_under_the_model() {
        for job in jobs() {
            for (link, costs) in [NetworkLink::LOOPBACK, NetworkLink::LAN, WAN]
                .iter()
                .flat_map(|link| COSTS.iter().map(move |costs| (link, costs)))
            {
                let tile = job.best_tile(link, costs).expect("has rows");
                let best = job.estimate_cost(tile, link, costs).total_s;
                assert!(
                    tile.inputs * tile.outputs <= job.degree && tile.outputs <= job.outputs_max
                );
                for inputs in 1..=job.columns.min(job.degree) {
                    for outputs in 1..=job.rows.min(job.degree / inputs).min(job.outputs_max) {
                        let other =
                            job.estimate_cost(TileShape { inputs, outputs }, link, costs).total_s;
                        assert!(best <= other, "{job:?}: {tile:?}, but {inputs} x {outputs}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_slow_link_prefers_fewer_bytes() {
        let job = jobs()[0];
        let bytes = |link: &NetworkLink| {
            let tile = job.best_tile(link, &COSTS[0]).expect("has rows");
            let estimate = job.estimate_cost(tile, link, &COSTS[0]);
            estimate.up_bytes + estimate.down_bytes
        };
        assert!(bytes(&WAN) <= bytes(&NetworkLink::LOOPBACK));
    }

    #[test]
    fn nothing_has_no_tile() {
        let job = TilingProblem { rows: 0, ..jobs()[0] };
        assert_eq!(job.best_tile(&NetworkLink::LAN, &COSTS[0]), None);
    }
}
