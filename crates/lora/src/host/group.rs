//! The projections that read one input, in the form that a host computes with.

use std::sync::{Arc, Mutex, PoisonError};

use confide_rlwe::Context;
use sha2::{Digest, Sha256};

use super::error::HostError;
use crate::{
    adapter::LoraPair,
    direct::{self, EncryptedProductError, EncryptedProductHost},
    int_matrix::ENTRY_MAX,
    link::TileShape,
    masked::HostWeights,
    protocol::{FrameKind, Scheme, encode_terms},
    site::{LayerInput, Projection},
    terms::{ProtectedMatrices, QuantisedWeights, WeightRounding},
};

/// The number of tiles for which the matrix is kept in the form that products need. Key holders with
/// the same link choose the same tile.
const TILES_MAX: usize = 2;

/// The contexts of the two schemes, which use one parameter set with different plaintext bits.
#[derive(Clone, Debug)]
pub(crate) struct SchemeContexts {
    pub(crate) masked: Arc<Context>,
    pub(crate) direct: Arc<Context>,
    pub(crate) direct_entry_max: i16,
}

/// One input of a layer, and the projections that read it.
pub(crate) struct ProjectionGroup {
    pub(crate) layer: u32,
    pub(crate) input: LayerInput,
    /// The id under which answers are counted: see [`weights_digest`].
    pub(crate) weights: [u8; 32],
    columns: usize,
    rows: usize,
    masked: Option<(HostWeights, Vec<u8>)>,
    direct: Option<(TiledWeights, Vec<u8>)>,
}

/// The direct scheme's matrix, and its converted forms for the tiles in use.
pub(crate) struct TiledWeights {
    context: Arc<Context>,
    weights: QuantisedWeights,
    tiles: Mutex<Vec<(TileShape, Arc<EncryptedProductHost>)>>,
}

impl SchemeContexts {
    pub(crate) fn for_scheme(&self, scheme: Scheme) -> &Arc<Context> {
        match scheme {
            Scheme::Masked => &self.masked,
            Scheme::Direct => &self.direct,
        }
    }

    fn is_flooded(&self) -> bool {
        self.masked.parameter_set().flood_bits() > 0
    }
}

impl ProjectionGroup {
    pub(super) fn new(
        layer: u32,
        pairs: &[(Projection, &LoraPair)],
        contexts: &SchemeContexts,
        protect: ProtectedMatrices,
        noise_sigma: f64,
    ) -> Result<Self, HostError> {
        let set = contexts.masked.parameter_set();
        let rounding = WeightRounding { entry_max: ENTRY_MAX, noise_sigma };
        let weights = QuantisedWeights::with_rounding(layer, pairs, protect, set, rounding)?;
        if weights.terms.norm_limit == 0 {
            return Err(HostError::NoiseTooLarge { layer });
        }
        let (rows, columns) = (weights.matrix.rows(), weights.matrix.columns());
        let masked = match contexts.is_flooded() {
            true => {
                let input = HostWeights::new(&contexts.masked, &weights)
                    .map_err(|source| HostError::Masked { layer, source })?;
                Some((input, terms_bytes(&weights)?))
            }
            false => None,
        };
        let direct = quantise_direct_weights(layer, pairs, contexts, protect, noise_sigma)?;
        let input = weights.terms.input;
        Ok(Self { layer, input, weights: weights_digest(pairs), columns, rows, masked, direct })
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn masked_weights(&self) -> Option<&HostWeights> {
        self.masked.as_ref().map(|(input, _)| input)
    }

    pub(crate) fn direct_weights(&self) -> Option<&TiledWeights> {
        self.direct.as_ref().map(|(input, _)| input)
    }

    pub(crate) fn terms_bytes(&self, scheme: Scheme) -> Option<&[u8]> {
        match scheme {
            Scheme::Masked => self.masked.as_ref().map(|(_, terms)| &terms[..]),
            Scheme::Direct => self.direct.as_ref().map(|(_, terms)| &terms[..]),
        }
    }
}

impl TiledWeights {
    /// Returns the weights in the form for a tile. The first call for a tile converts them, which takes
    /// milliseconds.
    pub(crate) fn host_for_tile(
        &self,
        tile: TileShape,
    ) -> Result<Arc<EncryptedProductHost>, EncryptedProductError> {
        let mut tiles = self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, host)) = tiles.iter().find(|(known, _)| *known == tile) {
            return Ok(host.clone());
        }
        let made = match self.context.parameter_set().flood_bits() {
            0 => EncryptedProductHost::dangerous_unflooded(&self.context, &self.weights, tile)?,
            _ => EncryptedProductHost::new(&self.context, &self.weights, tile)?,
        };
        let made = Arc::new(made);
        if tiles.len() == TILES_MAX {
            tiles.remove(0);
        }
        tiles.push((tile, made.clone()));
        Ok(made)
    }
}

/// SHA-256 over every matrix A that reads the input, as 32-bit floats. Answers reveal A, so all
/// adapters with the same A share one count, even if their names, folders, B or file dtypes differ.
pub fn weights_digest(pairs: &[(Projection, &LoraPair)]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"confide lora weights v1");
    for (projection, pair) in pairs {
        hash.update([*projection as u8]);
        hash.update((pair.a.rows as u64).to_le_bytes());
        hash.update((pair.a.columns as u64).to_le_bytes());
        pair.a.values.iter().for_each(|value| hash.update(value.to_le_bytes()));
    }
    hash.finalize().into()
}

/// The direct scheme's matrix and terms. `None` if the scheme cannot be offered: it does not support
/// noise on answers, and not every set has room for a tile.
fn quantise_direct_weights(
    layer: u32,
    pairs: &[(Projection, &LoraPair)],
    contexts: &SchemeContexts,
    protect: ProtectedMatrices,
    noise_sigma: f64,
) -> Result<Option<(TiledWeights, Vec<u8>)>, HostError> {
    if noise_sigma > 0.0 {
        return Ok(None);
    }
    let (context, entry_max) = (contexts.direct.clone(), contexts.direct_entry_max);
    let rounding = WeightRounding { entry_max, noise_sigma };
    let weights =
        QuantisedWeights::with_rounding(layer, pairs, protect, context.parameter_set(), rounding)?;
    if direct::tile_outputs_max(&weights.matrix, context.parameter_set()) == 0
        || weights.terms.norm_limit == 0
    {
        return Ok(None);
    }
    let terms = terms_bytes(&weights)?;
    Ok(Some((TiledWeights { context, weights, tiles: Mutex::default() }, terms)))
}

fn terms_bytes(weights: &QuantisedWeights) -> Result<Vec<u8>, HostError> {
    let terms = encode_terms(&weights.terms);
    if terms.len() > FrameKind::Terms.payload_max() - 16 {
        return Err(HostError::TermsTooLong { layer: weights.terms.layer, got: terms.len() });
    }
    Ok(terms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    #[test]
    fn the_digest_of_an_a_is_that_of_the_host_in_python() {
        let a = Matrix { rows: 1, columns: 2, values: vec![1.0, -0.5] };
        let b = Matrix { rows: 3, columns: 1, values: vec![0.0; 3] };
        let pair = LoraPair { a, b, scale: 2.0 };
        let hex = |pairs: &[(Projection, &LoraPair)]| -> String {
            weights_digest(pairs).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let wanted = "1777ad61f4eb3f43567ff1386db840fe8f64eb7a23ed30ec823d254e51a82013";
        assert_eq!(hex(&[(Projection::Query, &pair)]), wanted);
        let other_b = LoraPair { scale: 1.0, ..pair.clone() };
        assert_eq!(hex(&[(Projection::Query, &other_b)]), wanted);
        assert_ne!(hex(&[(Projection::Key, &pair)]), wanted);
    }
}
