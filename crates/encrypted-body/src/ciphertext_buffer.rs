//! The ciphertext of a frame while it arrives.

/// The ciphertext of a frame while it arrives. Space grows with what has come, since a length that is
/// only announced costs its sender nothing.
#[derive(Debug, Default)]
pub(crate) struct CiphertextBuffer(Vec<u8>);

impl CiphertextBuffer {
    /// The number of bytes that have come.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a part of a ciphertext that is not longer than `longest`.
    pub(crate) fn append(&mut self, part: &[u8], longest: usize) {
        let (held, capacity) = (self.0.len(), self.0.capacity());
        if held + part.len() > capacity {
            let grown = (held + part.len()).max(longest.min(2 * capacity));
            self.0.reserve_exact(grown - held);
        }
        self.0.extend_from_slice(part);
    }

    /// The memory in bytes that the buffer may hold after `more` bytes of ciphertexts that are not
    /// longer than `longest`.
    pub(crate) fn capacity_after(&self, more: usize, longest: usize) -> usize {
        let (needed, capacity) = (self.0.len().saturating_add(more), self.0.capacity());
        match needed <= capacity {
            true => capacity,
            false => needed.max(2 * capacity).min(longest),
        }
    }

    /// Takes the ciphertext.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Takes at most `length` bytes from the front.
pub(crate) fn take_part<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (part, rest) = bytes.split_at(length.min(bytes.len()));
    *bytes = rest;
    part
}
