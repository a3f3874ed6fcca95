//! The kinds of frames, and the longest payload of each.

/// The kind of a frame. Frames of the key holder have kinds below `0x80`, those of the host from
/// `0x80` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum FrameKind {
    /// Opens a session.
    Hello = 0x01,
    /// Joins a session with another connection, or with a new one after the old one broke.
    Attach = 0x02,
    /// Starts a batch of masks.
    Prepare = 0x03,
    /// Carries ciphertexts of a batch.
    Block = 0x04,
    /// Carries masked vectors.
    Apply = 0x05,
    /// Carries a vector as ciphertexts.
    Direct = 0x06,
    /// Ends a connection, or the session with it.
    Goodbye = 0x07,
    /// Answers a hello.
    Welcome = 0x81,
    /// Carries the terms of one input, after the welcome.
    Terms = 0x82,
    /// Answers an attach.
    Attached = 0x83,
    /// Credits further blocks.
    Credit = 0x84,
    /// Carries part of a batch's answer.
    Prepared = 0x85,
    /// Answers an apply.
    Products = 0x86,
    /// Answers a direct.
    CiphertextAnswer = 0x87,
    /// Answers a goodbye as the last frame.
    Farewell = 0x88,
    /// Carries a refusal. One with the request id 0 ends the connection.
    Error = 0xff,
}

/// The side of a connection that receives a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSide {
    /// The host, which receives kinds below `0x80`.
    Host,
    /// The key holder, which receives kinds from `0x80` on.
    Holder,
}

impl FrameKind {
    const ALL: [FrameKind; 16] = [
        FrameKind::Hello,
        FrameKind::Attach,
        FrameKind::Prepare,
        FrameKind::Block,
        FrameKind::Apply,
        FrameKind::Direct,
        FrameKind::Goodbye,
        FrameKind::Welcome,
        FrameKind::Terms,
        FrameKind::Attached,
        FrameKind::Credit,
        FrameKind::Prepared,
        FrameKind::Products,
        FrameKind::CiphertextAnswer,
        FrameKind::Farewell,
        FrameKind::Error,
    ];

    /// The longest payload of this kind, in bytes.
    pub const fn payload_max(self) -> usize {
        match self {
            // A public key of N = 4096 and two limbs is about 131 KB, names are short.
            FrameKind::Hello => 512 * 1024,
            FrameKind::Attach => 128,
            FrameKind::Prepare => 256,
            // 32 ciphertexts of N = 4096 are 1.6 MB, of N = 8192 6.6 MB.
            FrameKind::Block => 8 * 1024 * 1024,
            // 32 rows of 32,768 elements at 40 bits would be 5 MB; a holder splits at 64 rows of
            // 1,536 elements.
            FrameKind::Apply => 4 * 1024 * 1024,
            // 8,960 elements in tiles of 512: 18 ciphertexts of two limbs.
            FrameKind::Direct => 8 * 1024 * 1024,
            FrameKind::Goodbye => 1,
            FrameKind::Welcome => 128,
            // B of two projections with 28,672 outputs of rank 256, as f32, is 59 MB.
            FrameKind::Terms => 64 * 1024 * 1024,
            FrameKind::Attached => 128,
            FrameKind::Credit => 16,
            FrameKind::Prepared => 1024 * 1024 + 64,
            FrameKind::Products => 16 * 1024 * 1024,
            FrameKind::CiphertextAnswer => 64 * 1024 * 1024,
            FrameKind::Farewell => 0,
            FrameKind::Error => 9,
        }
    }

    /// The side that receives frames of this kind.
    pub fn receiver(self) -> ConnectionSide {
        if (self as u8) < 0x80 { ConnectionSide::Host } else { ConnectionSide::Holder }
    }

    pub(super) fn from_byte(byte: u8) -> Option<FrameKind> {
        FrameKind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}
