//! What a check compared, kept as data and written out only when somebody asks.

use alloc::{boxed::Box, string::String, sync::Arc};
use core::fmt;

/// The values that a check compared, or why it did not. `Display` writes the text; until then it is data.
#[derive(Clone)]
pub struct Detail(Content);

#[derive(Clone)]
enum Content {
    Text(&'static str),
    Owned(Box<str>),
    Numbers { write: WriteNumbers, numbers: [u64; 4] },
    List { list: Arc<[String]>, empty: &'static str, after: &'static str },
    Fields { names: &'static [&'static str], compared: u32, left: u32 },
}

/// Writes the sentence that belongs to some numbers.
pub(crate) type WriteNumbers = fn(&[u64; 4], &mut fmt::Formatter<'_>) -> fmt::Result;

impl Detail {
    pub(crate) const fn text(text: &'static str) -> Self {
        Self(Content::Text(text))
    }

    /// A detail of up to four numbers and the sentence that they go into.
    pub(crate) fn numbers<const N: usize>(numbers: [u64; N], write: WriteNumbers) -> Self {
        const { assert!(N <= 4) };
        let mut all = [0; 4];
        all[..N].copy_from_slice(&numbers);
        Self(Content::Numbers { write, numbers: all })
    }

    /// A detail of 32 bytes and the sentence that they go into; [`unpack_bytes`] returns them.
    pub(crate) fn bytes(bytes: &[u8; 32], write: WriteNumbers) -> Self {
        let mut numbers = [0; 4];
        for (number, chunk) in numbers.iter_mut().zip(bytes.as_chunks().0) {
            *number = u64::from_be_bytes(*chunk);
        }
        Self(Content::Numbers { write, numbers })
    }

    /// A list between commas, or `empty`; then `after`.
    pub(crate) fn list(list: &Arc<[String]>, empty: &'static str, after: &'static str) -> Self {
        Self(Content::List { list: list.clone(), empty, after })
    }

    /// A detail that names the fields that were compared and those that were not evaluated; bit `n` stands for
    /// `names[n]`.
    pub(crate) fn fields(names: &'static [&'static str], compared: u32, left: u32) -> Self {
        Self(Content::Fields { names, compared, left })
    }
}

/// The bytes that [`Detail::bytes`] took.
pub(crate) fn unpack_bytes(numbers: &[u64; 4]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (chunk, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
        *chunk = number.to_be_bytes();
    }
    bytes
}

impl From<&'static str> for Detail {
    fn from(text: &'static str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Detail {
    fn from(text: String) -> Self {
        Self(Content::Owned(text.into()))
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Text(text) => f.write_str(text),
            Content::Owned(text) => f.write_str(text),
            Content::Numbers { write, numbers } => write(numbers, f),
            Content::List { list, empty, after } => {
                match list.is_empty() {
                    true => f.write_str(empty)?,
                    false => write_separated(f, list.iter().map(String::as_str))?,
                }
                f.write_str(after)
            }
            Content::Fields { names, compared, left } => {
                let named = |bits: u32| {
                    let chosen = move |(at, _): &(usize, &&str)| bits >> at & 1 == 1;
                    names.iter().enumerate().filter(chosen).map(|(_, name)| *name)
                };
                f.write_str("compared: ")?;
                write_separated(f, named(*compared))?;
                if *left != 0 {
                    f.write_str("; not evaluated: ")?;
                    write_separated(f, named(*left))?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Two details are the same when they read the same.
impl PartialEq for Detail {
    fn eq(&self, other: &Self) -> bool {
        use alloc::string::ToString;
        self.to_string() == other.to_string()
    }
}

impl Eq for Detail {}

fn write_separated<'a>(
    f: &mut fmt::Formatter<'_>,
    list: impl Iterator<Item = &'a str>,
) -> fmt::Result {
    for (at, item) in list.enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        f.write_str(item)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec};

    use super::*;

    #[test]
    fn a_detail_reads_as_the_sentence_of_its_kind() {
        let list: Arc<[String]> = vec!["A".to_string(), "B".to_string()].into();
        let fields = &["a", "b", "c"];
        let digest = core::array::from_fn(|at| at as u8);
        for (detail, wanted) in [
            (Detail::text("text"), "text".to_string()),
            (Detail::from("written".to_string()), "written".to_string()),
            (Detail::numbers([7, 8], |[a, b, ..], f| write!(f, "{a} of {b}")), "7 of 8".into()),
            (
                Detail::bytes(&digest, |it, f| f.write_str(&hex::encode(unpack_bytes(it)))),
                hex::encode(digest),
            ),
            (Detail::list(&list, "none", "!"), "A, B!".into()),
            (Detail::list(&Arc::default(), "none", ""), "none".into()),
            (Detail::fields(fields, 0b101, 0b010), "compared: a, c; not evaluated: b".into()),
            (Detail::fields(fields, 0b1, 0), "compared: a".into()),
        ] {
            assert_eq!(detail.to_string(), wanted);
        }
    }
}
