//! Bytes in one way only: fixed order, big-endian numbers, lengths before contents.

/// Why bytes are not of the wanted format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Another format, or another version of this one.
    #[error("bytes do not begin as {wanted}")]
    Magic {
        /// The format that was wanted.
        wanted: &'static str,
    },
    /// The bytes end before the value does.
    #[error("{subject} ends early: wanted {wanted} bytes more, got {got}")]
    Truncated {
        /// What was being read.
        subject: &'static str,
        /// Bytes that the value needs.
        wanted: usize,
        /// Bytes that were left.
        got: usize,
    },
    /// A length or count beyond its limit.
    #[error("{subject} is {got} long, wanted at most {limit}")]
    TooLong {
        /// What was being read.
        subject: &'static str,
        /// The greatest value that is allowed.
        limit: usize,
        /// The value that was read.
        got: usize,
    },
    /// A value that has no meaning here.
    #[error("{subject} has no meaning: {got}")]
    Value {
        /// What was being read.
        subject: &'static str,
        /// The value that was read.
        got: u64,
    },
    /// Text that is not UTF-8, or holds characters that it must not.
    #[error("{subject} is not text of the wanted kind")]
    Text {
        /// What was being read.
        subject: &'static str,
    },
    /// Entries that are not in strictly ascending order.
    #[error("{subject} are not in strictly ascending order")]
    Order {
        /// What was being read.
        subject: &'static str,
    },
    /// Bytes after the end.
    #[error("{got} bytes come after the end of {subject}")]
    Trailing {
        /// What was read.
        subject: &'static str,
        /// How many bytes are left.
        got: usize,
    },
}

/// Bytes as people read them.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(magic: &[u8]) -> Self {
        Self(magic.to_vec())
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A length of two bytes, then the bytes. Callers hold them under 64 KiB.
    pub(crate) fn short(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= usize::from(u16::MAX));
        self.u16(bytes.len() as u16).raw(bytes)
    }

    /// A length of four bytes, then the bytes. Callers hold them under 4 GiB.
    pub(crate) fn long(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(u32::try_from(bytes.len()).is_ok());
        self.u32(bytes.len() as u32).raw(bytes)
    }

    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(
        bytes: &'a [u8],
        magic: &[u8],
        wanted: &'static str,
    ) -> Result<Self, FormatError> {
        let rest = bytes.strip_prefix(magic).ok_or(FormatError::Magic { wanted })?;
        Ok(Self(rest))
    }

    pub(crate) fn raw(
        &mut self,
        length: usize,
        subject: &'static str,
    ) -> Result<&'a [u8], FormatError> {
        let got = self.0.len();
        let (taken, rest) = self.0.split_at_checked(length).ok_or(FormatError::Truncated {
            subject,
            wanted: length,
            got,
        })?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        subject: &'static str,
    ) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N, subject)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, subject: &'static str) -> Result<u8, FormatError> {
        self.array::<1>(subject).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, subject: &'static str) -> Result<u16, FormatError> {
        self.array(subject).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, subject: &'static str) -> Result<u32, FormatError> {
        self.array(subject).map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, subject: &'static str) -> Result<u64, FormatError> {
        self.array(subject).map(u64::from_be_bytes)
    }

    pub(crate) fn short(
        &mut self,
        limit: usize,
        subject: &'static str,
    ) -> Result<&'a [u8], FormatError> {
        let length = usize::from(self.u16(subject)?);
        self.take_limited(length, limit, subject)
    }

    pub(crate) fn long(
        &mut self,
        limit: usize,
        subject: &'static str,
    ) -> Result<&'a [u8], FormatError> {
        let length = self.count(limit, subject)?;
        self.raw(length, subject)
    }

    /// A count of four bytes under a limit. Nothing is reserved for it: entries have to come.
    pub(crate) fn count(
        &mut self,
        limit: usize,
        subject: &'static str,
    ) -> Result<usize, FormatError> {
        let got = self.u32(subject)? as usize;
        if got > limit {
            return Err(FormatError::TooLong { subject, limit, got });
        }
        Ok(got)
    }

    pub(crate) fn text(
        &mut self,
        limit: usize,
        subject: &'static str,
    ) -> Result<&'a str, FormatError> {
        let bytes = self.short(limit, subject)?;
        std::str::from_utf8(bytes).map_err(|_| FormatError::Text { subject })
    }

    /// A byte that says whether something follows: 0 or 1, nothing else.
    pub(crate) fn present(&mut self, subject: &'static str) -> Result<bool, FormatError> {
        match self.u8(subject)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(FormatError::Value { subject, got: other.into() }),
        }
    }

    pub(crate) fn end(self, subject: &'static str) -> Result<(), FormatError> {
        match self.0.len() {
            0 => Ok(()),
            got => Err(FormatError::Trailing { subject, got }),
        }
    }

    fn take_limited(
        &mut self,
        length: usize,
        limit: usize,
        subject: &'static str,
    ) -> Result<&'a [u8], FormatError> {
        if length > limit {
            return Err(FormatError::TooLong { subject, limit, got: length });
        }
        self.raw(length, subject)
    }
}
