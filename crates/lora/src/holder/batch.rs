//! A batch of masks: made, sent encrypted, and answered.

use std::{ops::Range, time::Duration};

use confide_rlwe::{Rng, SeededCiphertext, SmallCiphertext};
use zeroize::Zeroizing;

use super::{Connect, HolderError, connection::Connection, session::Session};
use crate::{
    mask::{MaskStream, TILE},
    protocol::{Block, Credit, Kind, Prepare, Prepared, ProtocolError},
};

/// A host that waits for its turn to compute a block is silent for so long.
const STEP_DEADLINE: Duration = Duration::from_secs(120);

/// Ciphertexts of one block: about 0.8 MB at N = 4096.
const BLOCK_CIPHERTEXTS: usize = 16;

/// A finished batch: masks, and what the host's shares leave of their products.
pub(crate) struct Batch {
    pub(crate) number: u32,
    masks: MaskStream,
    /// `A·r − s mod 2^k`, token by token.
    products: Zeroizing<Vec<u64>>,
    columns: usize,
    rows: usize,
    bits: u32,
}

impl Batch {
    /// Makes masks and has the host answer them.
    pub(crate) fn prepare(
        connection: &mut Connection,
        connect: &dyn Connect,
        session: &Session,
        group: usize,
        number: u32,
    ) -> Result<Self, HolderError> {
        let terms = &session.groups[group].terms;
        let mut rng = Rng::from_os()?;
        let masks = MaskStream::random(&mut rng);
        let of = |error| HolderError::of(connect, error);
        let prepare = Prepare { layer: terms.layer, input: terms.input, batch: number };
        let id = connection.begin(Kind::Prepare, |out| prepare.encode(out)).map_err(of)?;
        send_masks(connection, session, group, &masks, id, rng, connect)?;
        let products = receive(connection, session, group, id, connect)?;
        let (columns, rows, bits) = (terms.columns, terms.rows(), terms.bits);
        Ok(Self { number, masks, products, columns, rows, bits })
    }

    /// Takes the masks of these tokens away from vectors of 16-bit integers.
    pub(crate) fn mask(&self, tokens: Range<u32>, vectors: &[i16]) -> Zeroizing<Vec<u64>> {
        let mut masked = Zeroizing::new(vec![0; vectors.len()]);
        self.masks.rows(tokens, self.columns, self.bits, &mut masked);
        let low = u64::MAX >> (64 - self.bits);
        for (word, value) in masked.iter_mut().zip(vectors) {
            *word = (i64::from(*value) as u64).wrapping_sub(*word) & low;
        }
        masked
    }

    /// Adds what was prepared to answers: then they are the products of the adapter, mod 2^k.
    pub(crate) fn unmask(&self, tokens: Range<u32>, answers: &mut [u64]) {
        let low = u64::MAX >> (64 - self.bits);
        let prepared = &self.products[tokens.start as usize * self.rows..];
        for (answer, product) in answers.iter_mut().zip(prepared) {
            *answer = answer.wrapping_add(*product) & low;
        }
    }
}

fn send_masks(
    connection: &mut Connection,
    session: &Session,
    group: usize,
    masks: &MaskStream,
    id: u32,
    rng: Rng,
    connect: &dyn Connect,
) -> Result<(), HolderError> {
    let (context, terms) = (session.secret.context(), &session.groups[group].terms);
    let of = |error| HolderError::of(connect, error);
    let mut encryptor = session.secret.encryptor(rng);
    let length = SeededCiphertext::wire_bytes(context);
    let mut block = Vec::with_capacity(BLOCK_CIPHERTEXTS * length);
    let (mut credit, mut first) = (0u32, 0);
    let tokens = 0..context.n() as u32;
    let mut column = 0;
    for tile in 0..terms.columns.div_ceil(TILE) {
        for mask in masks.columns(tile, tokens.clone(), terms.bits) {
            if column == terms.columns {
                break;
            }
            block.extend(encryptor.encrypt(&mask)?.to_bytes(context));
            column += 1;
            if block.len() < BLOCK_CIPHERTEXTS * length && column < terms.columns {
                continue;
            }
            while credit == 0 {
                let answer = connection.receive(id, "credit", STEP_DEADLINE).map_err(of)?;
                credit += credited(answer.kind, answer.payload).map_err(of)?;
            }
            let count = (block.len() / length) as u16;
            let part = Block { first, count, ciphertexts: &block };
            connection.send(Kind::Block, id, |out| part.encode(out)).map_err(of)?;
            (credit, first) = (credit - 1, first + u32::from(count));
            block.clear();
        }
    }
    Ok(())
}

fn credited(kind: Kind, payload: &[u8]) -> Result<u32, ProtocolError> {
    match kind {
        Kind::Credit => Ok(Credit::decode(payload)?.blocks.into()),
        got => Err(ProtocolError::Unexpected { wanted: "credit", got }),
    }
}

fn receive(
    connection: &mut Connection,
    session: &Session,
    group: usize,
    id: u32,
    connect: &dyn Connect,
) -> Result<Zeroizing<Vec<u64>>, HolderError> {
    let (context, terms) = (session.secret.context(), &session.groups[group].terms);
    let of = |error| HolderError::of(connect, error);
    let (n, rows) = (context.n(), terms.rows());
    let mut products = Zeroizing::new(vec![0; n * rows]);
    let length = SmallCiphertext::wire_bytes(context, n);
    let mut row = 0;
    while row < rows {
        let answer = connection.receive(id, "a prepared batch", STEP_DEADLINE).map_err(of)?;
        match answer.kind {
            Kind::Credit => continue,
            Kind::Prepared => {}
            got => return Err(of(ProtocolError::Unexpected { wanted: "a prepared batch", got })),
        }
        let part = Prepared::decode(answer.payload).map_err(of)?;
        let count = usize::from(part.count);
        if part.first as usize != row
            || row + count > rows
            || part.ciphertexts.len() != count * length
        {
            let field = "ciphertexts";
            let wanted = "the next rows, each whole";
            return Err(of(ProtocolError::Field { message: "prepared", field, wanted }));
        }
        for bytes in part.ciphertexts.chunks_exact(length) {
            let ciphertext = SmallCiphertext::from_bytes(context, bytes)?;
            let values = Zeroizing::new(session.secret.decrypt(&ciphertext)?);
            if values.len() != n {
                return Err(HolderError::lost(connect, &"an answer without all tokens"));
            }
            for (token, value) in values.iter().enumerate() {
                products[token * rows + row] = *value;
            }
            row += 1;
        }
    }
    Ok(products)
}
