//! The use of a remote adapter in one generation.

use std::{sync::Arc, time::Instant};

use confide_rlwe::{Rng, SmallCiphertext};
use zeroize::Zeroizing;

use super::{
    connection::HostConnection,
    error::HolderError,
    pool,
    session::{AdapterState, HolderSession},
};
use crate::{
    adapt_error::AdaptError,
    deltas::{DeltaReport, DeltaSession},
    direct::{self, EncryptedProductHolder},
    meter::{DeltaStep, StepMeter},
    protocol::{
        CiphertextAnswer, CiphertextRequest, FrameKind, MaskedAnswer, MaskedRequest, ProtocolError,
        Scheme, pack, packed_bytes, unpack,
    },
    quantise::quantise_vector,
    site::{LayerInput, Projection},
};

/// The use of a remote adapter in one generation, with its own connection. The counters come from
/// batches that all generations share.
pub(crate) struct RemoteDeltas {
    shared: Arc<AdapterState>,
    session: Arc<HolderSession>,
    connection: Option<HostConnection>,
    meter: StepMeter,
    report: DeltaReport,
    /// The number of bytes that earlier connections of this generation sent and received.
    bytes_before: u64,
    /// The byte count of the connection when this generation took it.
    bytes_at_open: u64,
}

impl RemoteDeltas {
    pub(crate) fn new(
        shared: Arc<AdapterState>,
        session: Arc<HolderSession>,
        connection: HostConnection,
    ) -> Self {
        let bytes_at_open = connection.bytes;
        Self {
            shared,
            session,
            connection: Some(connection),
            meter: StepMeter::default(),
            report: DeltaReport::default(),
            bytes_before: 0,
            bytes_at_open,
        }
    }

    /// Requests the products of all vectors mod 2^k and returns them one after the other, `rows`
    /// words for each vector.
    fn request_all_products(
        &mut self,
        group: usize,
        integers: &[i16],
    ) -> Result<Zeroizing<Vec<u64>>, HolderError> {
        let (columns, rows) = {
            let terms = &self.session.groups[group].terms;
            (terms.columns, terms.rows())
        };
        let mut products = Zeroizing::new(Vec::with_capacity(integers.len() / columns * rows));
        let mut rest = integers;
        while !rest.is_empty() {
            let count = (rest.len() / columns).min(self.vectors_per_request(columns, rows));
            let now = &rest[..count * columns];
            let done = match self.request_products(group, now) {
                // Counters in a lost request must never be reused: retry once with fresh ones.
                Err(HolderError::Lost { .. }) => {
                    self.reconnect()?;
                    self.request_products(group, now)
                }
                done => done,
            };
            if matches!(done, Err(HolderError::HostRestarted { .. })) {
                // The session was evicted or has expired: the next generation opens a new one.
                self.session.mark_dead();
            }
            let done = Zeroizing::new(done?);
            rest = &rest[done.len() / rows * columns..];
            products.extend_from_slice(&done);
        }
        Ok(products)
    }

    /// Requests the products of some of these vectors, from the first on, with the scheme of the
    /// session.
    fn request_products(
        &mut self,
        group: usize,
        integers: &[i16],
    ) -> Result<Vec<u64>, HolderError> {
        match self.shared.options.scheme {
            Scheme::Masked => self.request_masked_products(group, integers),
            Scheme::Direct => {
                let columns = self.session.groups[group].terms.columns;
                self.request_encrypted_product(group, &integers[..columns])
            }
        }
    }

    /// The number of vectors for which neither the frame nor its answer is longer than its kind
    /// allows.
    fn vectors_per_request(&self, columns: usize, rows: usize) -> usize {
        let fits = |kind: FrameKind, length| (kind.payload_max() - 64) / packed_bytes(length, 36);
        let fits = fits(FrameKind::Apply, columns).min(fits(FrameKind::Products, rows));
        fits.clamp(1, MaskedRequest::VECTORS_MAX.into())
    }

    /// Masks as many of these vectors as one batch has counters for, and requests their products in
    /// one round trip.
    fn request_masked_products(
        &mut self,
        group: usize,
        integers: &[i16],
    ) -> Result<Vec<u64>, HolderError> {
        let session = self.session.clone();
        let connect = self.shared.connect.clone();
        let terms = &session.groups[group].terms;
        let (columns, rows, bits) = (terms.columns, terms.rows(), terms.bits);
        let deadline = self.shared.options.mask_deadline;
        let taken = session.mask_vectors(&*connect, group, integers, deadline, &mut self.meter)?;
        let (masked, count) = (&taken.masked, taken.count);
        let apply = MaskedRequest {
            layer: terms.layer,
            input: terms.input,
            counter: masked.counter,
            vectors: count as u16,
            packed: &[],
        };
        let began = Instant::now();
        let connection = self.connection.as_mut();
        let connection = connection.ok_or_else(|| {
            HolderError::connection_lost(&*connect, &"the connection was closed after an error")
        })?;
        let answer = connection.exchange_while(
            FrameKind::Apply,
            FrameKind::Products,
            |out| {
                apply.encode_head(out);
                masked.vectors.chunks_exact(columns).for_each(|vector| pack(vector, bits, out));
            },
            || pool::lock_batch(&taken.batch).precompute_masks(),
        );
        let answer = answer.and_then(|payload| decode_products(payload, count, rows, bits));
        self.meter.add_time(DeltaStep::Network, began.elapsed().as_nanos() as u64);
        let (left, words) = answer.map_err(|error| HolderError::from_protocol(&*connect, error))?;
        let products =
            pool::lock_batch(&taken.batch).unmask(masked.counter, &words, &mut self.meter)?;
        session.groups[group].set_budget_left(left);
        // The operations of the batch (encryptions, scalar products, decryptions), in proportion to
        // the vectors that were used.
        let of_batch = (columns + rows * columns + rows) as u64;
        let degree = session.secret.context().n() as u64;
        self.meter.he_operations += (of_batch * count as u64).div_ceil(degree);
        self.record_answers(count as u64, left);
        Ok(products)
    }

    /// Requests the product of one vector under encryption, in one round trip.
    fn request_encrypted_product(
        &mut self,
        group: usize,
        integers: &[i16],
    ) -> Result<Vec<u64>, HolderError> {
        let session = self.session.clone();
        let connect = self.shared.connect.clone();
        let (terms, context) = (&session.groups[group].terms, session.secret.context());
        let tile = direct::tiling_problem(context, terms)
            .best_tile(&self.shared.options.link, &self.shared.options.costs);
        let tile = tile.ok_or_else(|| {
            HolderError::connection_lost(&*connect, &"no tile fits the terms of the adapter")
        })?;
        let holder = EncryptedProductHolder::new(context, terms, tile)?;
        let mut rng = Rng::from_os()?;
        let request =
            holder.encrypt_request(&session.secret, integers, &mut rng, &mut self.meter)?;
        let mut ciphertexts = Vec::new();
        request.iter().for_each(|ciphertext| ciphertexts.extend(ciphertext.to_bytes(context)));
        let message = CiphertextRequest {
            layer: terms.layer,
            input: terms.input,
            tile_inputs: tile.inputs as u32,
            tile_rows: tile.outputs as u32,
            ciphertexts: &ciphertexts,
        };
        let began = Instant::now();
        let connection = self.connection.as_mut();
        let connection = connection.ok_or_else(|| {
            HolderError::connection_lost(&*connect, &"the connection was closed after an error")
        })?;
        let fill = |out: &mut Vec<u8>| message.encode(out);
        let answer = connection.exchange(FrameKind::Direct, FrameKind::CiphertextAnswer, fill);
        let read = answer.and_then(|payload| {
            let answer = CiphertextAnswer::decode(payload)?;
            Ok((answer.budget_left, answer.split_ciphertexts()?))
        });
        let (left, parts) = read.map_err(|error| HolderError::from_protocol(&*connect, error))?;
        self.meter.add_time(DeltaStep::Network, began.elapsed().as_nanos() as u64);
        let answers = parts.iter().map(|bytes| SmallCiphertext::from_bytes(context, bytes));
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        let products = holder.decrypt_answers(&session.secret, &answers, &mut self.meter)?;
        session.groups[group].set_budget_left(left);
        // The host's products, and the answers that it re-randomised.
        self.meter.he_operations += ((request.len() + 1) * answers.len()) as u64;
        self.record_answers(1, left);
        Ok(products)
    }

    fn record_answers(&mut self, vectors: u64, left: Option<u64>) {
        self.report.answered_vectors += vectors;
        self.report.round_trips += 1;
        self.report.budget_left = match (self.report.budget_left, left) {
            (Some(before), Some(now)) => Some(before.min(now)),
            (before, now) => before.or(now),
        };
    }

    /// Joins the session again on a new connection.
    fn reconnect(&mut self) -> Result<(), HolderError> {
        if let Some(broken) = self.connection.take() {
            self.bytes_before += broken.bytes - self.bytes_at_open;
        }
        self.bytes_at_open = 0;
        let connection = self.shared.open_connection(&self.session)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn quantise_rows(
        &self,
        group: usize,
        rows: &[f32],
    ) -> Result<(Vec<i16>, Vec<f64>), HolderError> {
        let terms = &self.session.groups[group].terms;
        if !rows.len().is_multiple_of(terms.columns) {
            return Err(HolderError::Shape { wanted: terms.columns, got: rows.len() });
        }
        let mut integers = Vec::with_capacity(rows.len());
        let mut scales = Vec::with_capacity(rows.len() / terms.columns);
        for row in rows.chunks_exact(terms.columns) {
            let vector = quantise_vector(row, terms.norm_limit)?;
            integers.extend_from_slice(&vector.values);
            scales.push(vector.scale);
        }
        Ok((integers, scales))
    }

    fn try_add_deltas(
        &mut self,
        group: usize,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), HolderError> {
        let began = Instant::now();
        let (integers, scales) = self.quantise_rows(group, rows)?;
        let integers = Zeroizing::new(integers);
        self.meter.add_time(DeltaStep::Quantise, began.elapsed().as_nanos() as u64);
        let session = self.session.clone();
        let terms = &session.groups[group].terms;
        for (projection, output) in outputs.iter() {
            let width = output_width(terms, *projection);
            if width.is_some_and(|width| output.len() != width * scales.len()) {
                let wanted = width.unwrap_or(0) * scales.len();
                return Err(HolderError::Shape { wanted, got: output.len() });
            }
        }
        let products = self.request_all_products(group, &integers)?;
        self.meter.time(DeltaStep::B, || {
            for (projection, output) in outputs {
                terms.add_deltas(*projection, &products, &scales, output);
            }
        });
        Ok(())
    }
}

impl DeltaSession for RemoteDeltas {
    fn add_deltas(
        &mut self,
        layer: u32,
        input: LayerInput,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError> {
        let Some(group) = self.session.group_index(layer, input) else { return Ok(()) };
        let terms = &self.session.groups[group].terms;
        if rows.is_empty() || !outputs.iter().any(|(p, _)| output_width(terms, *p).is_some()) {
            return Ok(());
        }
        let added = self.try_add_deltas(group, rows, outputs);
        if added.is_err() {
            // The answer to a failed request may still arrive, so this connection is not reused.
            self.connection = None;
        }
        Ok(added?)
    }

    fn report(&self) -> DeltaReport {
        let mut report = self.report.clone();
        self.meter.write_to_report(&mut report);
        let now = self.connection.as_ref().map_or(0, |held| held.bytes - self.bytes_at_open);
        report.online_bytes = self.bytes_before + now;
        report
    }
}

impl Drop for RemoteDeltas {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.shared.keep_idle_connection(connection, &self.session);
        }
    }
}

fn output_width(terms: &crate::terms::InputTerms, projection: Projection) -> Option<usize> {
    let part = terms.parts.iter().find(|part| part.projection == projection)?;
    Some(match &part.effect {
        crate::terms::OutputTransform::Factor(factor) => factor.width(),
        crate::terms::OutputTransform::Scale(_) => part.rows,
    })
}

/// The number of answers left in the budget, and the products.
type BudgetAndProducts = (Option<u64>, Zeroizing<Vec<u64>>);

fn decode_products(
    payload: &[u8],
    vectors: usize,
    rows: usize,
    bits: u32,
) -> Result<BudgetAndProducts, ProtocolError> {
    let wrong = |field, wanted| ProtocolError::Field { message: "products", field, wanted };
    let answer = MaskedAnswer::decode(payload)?;
    let bytes = packed_bytes(rows, bits);
    if usize::from(answer.vectors) != vectors || answer.packed.len() != bytes * vectors {
        return Err(wrong("vectors", "the number of vectors in the request"));
    }
    let mut products = Zeroizing::new(Vec::with_capacity(rows * vectors));
    for packed in answer.packed.chunks_exact(bytes) {
        let row = unpack(packed, bits, rows);
        products.extend(row.ok_or_else(|| wrong("packed", "only values below 2^k"))?);
    }
    Ok((answer.budget_left, products))
}
