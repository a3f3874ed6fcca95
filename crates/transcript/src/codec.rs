//! The binary encoding: fixed order, big-endian numbers, lengths before contents.

/// The reason why bytes are not in the expected format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes are of another format, or of another version of this one.
    #[error("unknown format or version: wanted {wanted}")]
    Magic {
        /// The format that was wanted.
        wanted: &'static str,
    },
    /// The bytes end before the end of the value.
    #[error("{subject} is truncated: wanted {wanted} bytes more, got {got}")]
    Truncated {
        /// The name of the value.
        subject: &'static str,
        /// The number of bytes that the value needs.
        wanted: usize,
        /// The number of bytes that were left.
        got: usize,
    },
    /// A length or count is beyond its limit.
    #[error("{subject} is {got} long, wanted at most {limit}")]
    TooLong {
        /// The name of the value.
        subject: &'static str,
        /// The greatest value that is allowed.
        limit: usize,
        /// The value that was read.
        got: usize,
    },
    /// A value is not among those that are allowed.
    #[error("{subject} has an unknown value: {got}")]
    Value {
        /// The name of the value.
        subject: &'static str,
        /// The value that was read.
        got: u64,
    },
    /// A text is not UTF-8, or has characters that are not allowed.
    #[error("{subject} is not UTF-8 text, is empty, or has a character that is not allowed")]
    Text {
        /// The name of the value.
        subject: &'static str,
    },
    /// Entries are not in strictly ascending order.
    #[error("{subject} are not in strictly ascending order")]
    Order {
        /// The name of the entries.
        subject: &'static str,
    },
    /// Bytes follow the end of the value.
    #[error("{got} unexpected bytes after the end of {subject}")]
    Trailing {
        /// The name of the value.
        subject: &'static str,
        /// The number of bytes that follow.
        got: usize,
    },
}

/// Writes a value in its encoding.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A writer that has written `magic`.
    pub fn starting_with(magic: &[u8]) -> Self {
        Self(magic.to_vec())
    }

    /// Writes one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    /// Writes two bytes, the higher one first.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Writes four bytes, the highest first.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Writes eight bytes, the highest first.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a length of two bytes, then the bytes, which must be fewer than 64 KiB.
    pub fn u16_prefixed(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= usize::from(u16::MAX));
        self.u16(bytes.len() as u16).raw(bytes)
    }

    /// Writes a length of four bytes, then the bytes, which must be fewer than 4 GiB.
    pub fn u32_prefixed(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(u32::try_from(bytes.len()).is_ok());
        self.u32(bytes.len() as u32).raw(bytes)
    }

    /// The bytes that were written.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Reads a value from bytes that are not trusted.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader of what follows `magic`; `wanted` names the format.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if the bytes begin otherwise.
    pub fn new(bytes: &'a [u8], magic: &[u8], wanted: &'static str) -> Result<Self, FormatError> {
        let rest = bytes.strip_prefix(magic).ok_or(FormatError::Magic { wanted })?;
        Ok(Self(rest))
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if the bytes end before.
    pub fn raw(&mut self, length: usize, subject: &'static str) -> Result<&'a [u8], FormatError> {
        let got = self.0.len();
        let (taken, rest) = self.0.split_at_checked(length).ok_or(FormatError::Truncated {
            subject,
            wanted: length,
            got,
        })?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes an array.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if the bytes end before.
    pub fn array<const N: usize>(&mut self, subject: &'static str) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N, subject)?);
        Ok(array)
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if the bytes end before.
    pub fn u8(&mut self, subject: &'static str) -> Result<u8, FormatError> {
        self.array::<1>(subject).map(|[byte]| byte)
    }

    /// Takes two bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if the bytes end before.
    pub fn u16(&mut self, subject: &'static str) -> Result<u16, FormatError> {
        self.array(subject).map(u16::from_be_bytes)
    }

    /// Takes four bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if the bytes end before.
    pub fn u32(&mut self, subject: &'static str) -> Result<u32, FormatError> {
        self.array(subject).map(u32::from_be_bytes)
    }

    /// Takes eight bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if the bytes end before.
    pub fn u64(&mut self, subject: &'static str) -> Result<u64, FormatError> {
        self.array(subject).map(u64::from_be_bytes)
    }

    /// Takes a length of two bytes, then as many bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLong`] above `limit`, and [`FormatError::Truncated`].
    pub fn u16_prefixed(
        &mut self,
        limit: usize,
        subject: &'static str,
    ) -> Result<&'a [u8], FormatError> {
        let length = usize::from(self.u16(subject)?);
        self.take_limited(length, limit, subject)
    }

    /// Takes a length of four bytes, then as many bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLong`] above `limit`, and [`FormatError::Truncated`].
    pub fn u32_prefixed(
        &mut self,
        limit: usize,
        subject: &'static str,
    ) -> Result<&'a [u8], FormatError> {
        let length = self.limited_count(limit, subject)?;
        self.raw(length, subject)
    }

    /// Reads a count of four bytes and checks it against a limit. No memory is reserved for the
    /// count, which is not trusted.
    ///
    /// # Errors
    /// [`FormatError::TooLong`] above `limit`, and [`FormatError::Truncated`].
    pub fn limited_count(
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

    /// Takes a length of two bytes, then a text.
    ///
    /// # Errors
    /// [`FormatError::Text`] if it is not UTF-8, and those of [`Reader::u16_prefixed`].
    pub fn text(&mut self, limit: usize, subject: &'static str) -> Result<&'a str, FormatError> {
        let bytes = self.u16_prefixed(limit, subject)?;
        std::str::from_utf8(bytes).map_err(|_| FormatError::Text { subject })
    }

    /// Reads the byte that is 1 if a value follows, otherwise 0.
    ///
    /// # Errors
    /// [`FormatError::Value`] for another byte, and [`FormatError::Truncated`].
    pub fn presence_flag(&mut self, subject: &'static str) -> Result<bool, FormatError> {
        match self.u8(subject)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(FormatError::Value { subject, got: other.into() }),
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`FormatError::Trailing`] if bytes are left.
    pub fn expect_end(self, subject: &'static str) -> Result<(), FormatError> {
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
