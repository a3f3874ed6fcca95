//! What a private product costs over a link, and the tile that costs least.

/// A link between key holder and adapter host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second from the key holder to the host.
    pub up_bytes_per_s: f64,
    /// Bytes per second from the host to the key holder.
    pub down_bytes_per_s: f64,
    /// Seconds of a round trip.
    pub round_trip_s: f64,
}

/// Processor time of each operation, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationCosts {
    /// Encrypting one message, at the key holder.
    pub encrypt_s: f64,
    /// Making the uniform half of a ciphertext from its seed, at the host.
    pub expand_s: f64,
    /// One product of a ciphertext and weights, added to a sum.
    pub product_s: f64,
    /// Enc(0) with flooding, back from NTT form, switching down, selecting: once for each answer.
    pub answer_s: f64,
    /// Decrypting one answer.
    pub decrypt_s: f64,
}

/// A matrix and the sizes of what is sent for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Degree of the ring: a tile has at most as many entries.
    pub degree: usize,
    /// Most rows of one answer: their magnitudes add up in its noise.
    pub outputs_max: usize,
    /// Bytes of a ciphertext on its way up, its uniform half being a seed.
    pub request_bytes: usize,
    /// Bytes of an answer without its wanted coefficients.
    pub answer_bytes: usize,
    /// Bits of a wanted coefficient.
    pub coefficient_bits: u32,
}

/// How a matrix is cut: `inputs` columns by `outputs` rows for each product of polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Columns.
    pub inputs: usize,
    /// Rows.
    pub outputs: usize,
}

/// What a tile costs under the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Ciphertexts sent.
    pub requests: usize,
    /// Ciphertexts answered.
    pub answers: usize,
    /// Bytes up.
    pub up_bytes: u64,
    /// Bytes down.
    pub down_bytes: u64,
    /// Processor time of both sides.
    pub processor_s: f64,
    /// Until the answer is there: processor time, both transfers and one round trip.
    pub total_s: f64,
}

impl Link {
    /// One machine: copies at 4 GB/s and 30 µs to wake the other process.
    pub const LOOPBACK: Link =
        Link { up_bytes_per_s: 4e9, down_bytes_per_s: 4e9, round_trip_s: 30e-6 };

    /// 10 Gbit/s and 0.2 ms.
    pub const LAN: Link =
        Link { up_bytes_per_s: 1.25e9, down_bytes_per_s: 1.25e9, round_trip_s: 0.2e-3 };

    /// 100 Mbit/s and 10 ms.
    pub const WAN: Link =
        Link { up_bytes_per_s: 12.5e6, down_bytes_per_s: 12.5e6, round_trip_s: 10e-3 };
}

impl OperationCosts {
    /// Figures of one core of an AMD server with AVX-512 at N = 4096 and two primes of 50 bits (the
    /// example `speed`, least of 40 runs), for where nothing was measured. They only choose a tile.
    pub const GIVEN: OperationCosts = OperationCosts {
        encrypt_s: 34e-6,
        expand_s: 14e-6,
        product_s: 4e-6,
        answer_s: 132e-6,
        decrypt_s: 8e-6,
    };
}

impl Job {
    /// The cost of one tile. Rows or columns that do not fill their last tile cost a whole one.
    pub fn estimate(&self, tile: Tile, link: &Link, costs: &OperationCosts) -> Estimate {
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
        Estimate { requests, answers, up_bytes, down_bytes, processor_s, total_s }
    }

    /// The tile of least total time. Only the counts of requests and answers matter, and for a count
    /// of requests the narrowest tile has room for most rows: one candidate for each count.
    ///
    /// `None` where the matrix, the degree or `outputs_max` is 0.
    pub fn best_tile(&self, link: &Link, costs: &OperationCosts) -> Option<Tile> {
        if self.degree == 0 || self.rows == 0 || self.outputs_max == 0 {
            return None;
        }
        let candidates = (1..=self.columns).filter_map(|requests| {
            let inputs = self.columns.div_ceil(requests);
            let outputs = (self.degree / inputs).min(self.rows).min(self.outputs_max);
            (outputs > 0).then_some(Tile { inputs, outputs })
        });
        let total = |tile: &Tile| self.estimate(*tile, link, costs).total_s;
        candidates.min_by(|a, b| total(a).total_cmp(&total(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn jobs() -> Vec<Job> {
        let shapes = [(32, 1536, 4096), (32, 1536, 2048), (5, 7, 64), (1, 1, 8), (100, 300, 256)];
        let caps = [usize::MAX, 5];
        let job = |(rows, columns, degree), outputs_max| Job {
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
            for (link, costs) in [Link::LOOPBACK, Link::LAN, Link::WAN]
                .iter()
                .flat_map(|link| COSTS.iter().map(move |costs| (link, costs)))
            {
                let tile = job.best_tile(link, costs).expect("has rows");
                let best = job.estimate(tile, link, costs).total_s;
                assert!(
                    tile.inputs * tile.outputs <= job.degree && tile.outputs <= job.outputs_max
                );
                for inputs in 1..=job.columns.min(job.degree) {
                    for outputs in 1..=job.rows.min(job.degree / inputs).min(job.outputs_max) {
                        let other = job.estimate(Tile { inputs, outputs }, link, costs).total_s;
                        assert!(best <= other, "{job:?}: {tile:?}, but {inputs} x {outputs}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_slow_link_prefers_fewer_bytes() {
        let job = jobs()[0];
        let bytes = |link: &Link| {
            let tile = job.best_tile(link, &COSTS[0]).expect("has rows");
            let estimate = job.estimate(tile, link, &COSTS[0]);
            estimate.up_bytes + estimate.down_bytes
        };
        assert!(bytes(&Link::WAN) <= bytes(&Link::LOOPBACK));
    }

    #[test]
    fn nothing_has_no_tile() {
        let job = Job { rows: 0, ..jobs()[0] };
        assert_eq!(job.best_tile(&Link::LAN, &COSTS[0]), None);
    }
}
