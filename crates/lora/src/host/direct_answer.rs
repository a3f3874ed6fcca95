//! Answers in the direct scheme: a vector arrives as ciphertexts, and a pool of threads that
//! preparations do not use computes the answer.

use std::sync::Arc;

use confide_rlwe::{Rng, SeededCiphertext};

use super::{adapter_host::AdapterHost, sessions::HostSession};
use crate::{
    link::TileShape,
    meter::StepMeter,
    protocol::{CiphertextRequest, Refusal},
};

impl AdapterHost {
    /// Answers one vector. Returns the encoded answers, each after its length, and the number of
    /// answers left in the budget.
    pub(crate) async fn answer_ciphertext_request(
        &self,
        session: &Arc<HostSession>,
        direct: &CiphertextRequest<'_>,
    ) -> Result<(Vec<u8>, Option<u64>), Refusal> {
        let found = session.adapter.group_index(direct.layer, direct.input);
        let group = found.ok_or(Refusal::NotOffered)?;
        let context = session.context.clone();
        let length = SeededCiphertext::wire_bytes(&context);
        let (whole, rest) = (direct.ciphertexts.len() / length, direct.ciphertexts.len() % length);
        if rest != 0 || whole == 0 {
            return Err(Refusal::Malformed);
        }
        let ciphertexts = direct.ciphertexts.chunks_exact(length);
        let request = ciphertexts.map(|bytes| SeededCiphertext::from_bytes(&context, bytes));
        let request = request.collect::<Result<Vec<_>, _>>().map_err(|_| Refusal::Malformed)?;
        let tile =
            TileShape { inputs: direct.tile_inputs as usize, outputs: direct.tile_rows as usize };
        let held = session.clone();
        // The tile and the count are checked before anything is counted as answered.
        let tiled = tokio::task::spawn_blocking(move || {
            let input = held.adapter.groups()[group].direct_weights().ok_or(Refusal::NotOffered)?;
            input.host_for_tile(tile).map_err(|_| Refusal::NotOffered)
        });
        let tiled = tiled.await.map_err(|_| Refusal::Internal)??;
        let state = self.count_answers(session, group, 1).await?;
        let held = session.clone();
        let computing = tokio::task::spawn_blocking(move || {
            let mut rng = Rng::from_os().map_err(|_| Refusal::Internal)?;
            let answers = tiled
                .answer(request, &held.public_key, &mut rng, &mut StepMeter::default())
                .map_err(|_| Refusal::Malformed)?;
            let mut bytes = Vec::new();
            for answer in answers {
                let answer = answer.to_bytes(&held.context);
                bytes.extend_from_slice(&(answer.len() as u32).to_le_bytes());
                bytes.extend_from_slice(&answer);
            }
            Ok::<_, Refusal>(bytes)
        });
        let bytes = computing.await.map_err(|_| Refusal::Internal)??;
        session.tally.count_answers(direct.layer, direct.input, 1)?;
        Ok((bytes, state.left))
    }
}
