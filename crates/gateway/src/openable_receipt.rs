//! A second receipt of one answer, for clients that want to show parts of it: it commits to both
//! bodies under salts that only the client can derive, and does not have their digests.

use confide_receipt::{COMMITMENT, Event, Json, RECEIVED_EVENT, RETURNED_EVENT, new_receipt_id};
use confide_transcript::{Direction, DirectionCommitment, DirectionHasher, Seed};
use http::{HeaderMap, HeaderName};
use zeroize::Zeroizing;

use crate::receipt_fault::ReceiptFault;

/// The field of a request that asks for such a receipt: the client's secret, 64 hexadecimal digits.
const SECRET: HeaderName = HeaderName::from_static("x-receipt-secret");

/// What a client wants an openable receipt with: its identifier and the seed that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct OpenableRequest {
    receipt_id: String,
    seed: Seed,
}

impl OpenableRequest {
    /// Takes the client's secret out of the fields of its request, if it wants such a receipt.
    ///
    /// # Errors
    /// [`ReceiptFault::Secret`] if there are several, or one of another form.
    pub(crate) fn take_from(headers: &mut HeaderMap) -> Result<Option<Self>, ReceiptFault> {
        let mut values = headers.get_all(&SECRET).iter();
        let (first, second) = (values.next(), values.next());
        let Some(value) = first else { return Ok(None) };
        let mut secret = Zeroizing::new([0; 32]);
        let is_read = hex::decode_to_slice(value.as_bytes(), &mut secret[..]).is_ok();
        if !is_read || second.is_some() {
            return Err(ReceiptFault::Secret);
        }
        headers.remove(&SECRET);
        let receipt_id = new_receipt_id();
        let seed = Seed::of_receipt(&secret, &receipt_id);
        Ok(Some(Self { receipt_id, seed }))
    }

    /// The commitment to the request's body; `None` if it is too long for one.
    pub(crate) fn commit_to(&self, body: &[u8]) -> Option<DirectionCommitment> {
        let mut hasher = DirectionHasher::new(self.seed.clone(), Direction::Request);
        hasher.update(body);
        hasher.finish().ok()
    }
}

/// An openable receipt from the request to the end of its answer.
#[derive(Clone)]
pub(crate) struct OpenableDraft {
    pub(crate) receipt_id: String,
    request: DirectionCommitment,
    answer: DirectionHasher,
}

/// The events with both commitments.
pub(crate) struct CommittedBodies {
    pub(crate) received: Event,
    pub(crate) returned: Event,
}

impl OpenableDraft {
    pub(crate) fn new(wanted: OpenableRequest, request: DirectionCommitment) -> Self {
        let OpenableRequest { receipt_id, seed } = wanted;
        let answer = DirectionHasher::new(seed, Direction::Response);
        Self { receipt_id, request, answer }
    }

    /// Hashes the next bytes of the answer.
    pub(crate) fn read_piece(&mut self, piece: &[u8]) {
        self.answer.update(piece);
    }

    /// The events of the bodies; `None` if the answer was too long for a commitment.
    pub(crate) fn finish(self, is_complete: bool) -> Option<CommittedBodies> {
        let answer = self.answer.finish().ok()?;
        Some(CommittedBodies {
            received: commitment_event(RECEIVED_EVENT, &self.request, true),
            returned: commitment_event(RETURNED_EVENT, &answer, is_complete),
        })
    }
}

fn commitment_event(kind: &str, body: &DirectionCommitment, is_complete: bool) -> Event {
    let commitment = Json::object([
        ("depth", Json::Integer(body.depth.into())),
        ("length", hex::encode(body.length).into()),
        ("root", hex::encode(body.root).into()),
    ]);
    let event = Event::new(kind, [(COMMITMENT, commitment)]);
    if is_complete { event } else { event.with_member("complete", false.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_field_of_64_digits_and_does_not_go_on() {
        let take = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(SECRET, value.parse().unwrap());
            }
            let taken = OpenableRequest::take_from(&mut headers);
            (taken.map(|wanted| wanted.is_some()), headers.contains_key(SECRET))
        };
        let secret = "0a".repeat(32);
        assert_eq!(take(&[]), (Ok(false), false));
        assert_eq!(take(&[&secret]), (Ok(true), false));
        for values in [&["0a"][..], &[&secret, &secret], &[""], &[&"zz".repeat(32)]] {
            assert_eq!(take(values).0, Err(ReceiptFault::Secret), "{values:?}");
        }
    }

    #[test]
    fn one_secret_gives_each_receipt_a_commitment_of_its_own() {
        let mut headers = HeaderMap::new();
        let mut commit = || {
            headers.insert(SECRET, "0a".repeat(32).parse().unwrap());
            let wanted = OpenableRequest::take_from(&mut headers).unwrap().unwrap();
            wanted.commit_to(b"the same body").unwrap().root
        };
        assert_ne!(commit(), commit());
    }
}
