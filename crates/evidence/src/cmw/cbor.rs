//! Wrappers in CBOR: records, tags that stand for a content format (RFC 9277), and collections.

use alloc::vec::Vec;

use minicbor::{Decoder, data::Type};

use super::message::{
    COLLECTION_TYPE, Cmw, CmwCollection, CmwError, CmwLabel, CmwRecord, CmwType, add_member,
    check_collection_type, check_indicator, check_label, check_media_type,
};

/// The tag of content format 0 (RFC 9277 section 4.3).
const TAG_BASE: u64 = 0x6374_0101;

/// The tag of a collection in CBOR, which stands in front of the map itself.
const TAG_COLLECTION: u64 = 1_668_547_091;

/// Reads the whole of `bytes`.
pub(super) fn parse(bytes: &[u8], depth: usize, members_max: usize) -> Result<Cmw, CmwError> {
    let mut reader = Reader { decoder: Decoder::new(bytes), depth_max: depth, members_max };
    let read = reader.read(depth)?;
    let position = reader.decoder.position();
    match position == bytes.len() {
        true => Ok(read),
        false => Err(CmwError::TrailingBytes { position }),
    }
}

struct Reader<'b> {
    decoder: Decoder<'b>,
    depth_max: usize,
    members_max: usize,
}

impl Reader<'_> {
    fn read(&mut self, depth: usize) -> Result<Cmw, CmwError> {
        match self.decoder.datatype() {
            _ if depth == 0 => Err(CmwError::TooDeep { wanted: self.depth_max }),
            Ok(Type::Array | Type::ArrayIndef) => self.read_record().map(Cmw::Record),
            Ok(Type::Map | Type::MapIndef) => self.read_collection(depth).map(Cmw::Collection),
            Ok(Type::Tag) => self.read_tagged(depth),
            _ => Err(self.malformed_error("an array, a map or a tag")),
        }
    }

    fn read_record(&mut self) -> Result<CmwRecord, CmwError> {
        let members = self.decoder.array().map_err(|_| self.malformed_error("a record"))?;
        if members.is_some_and(|members| !(2..=3).contains(&members)) {
            return Err(self.malformed_error("a record of two or three"));
        }
        let content = match self.decoder.datatype() {
            Ok(Type::String) => {
                let name = self.decoder.str().map_err(|_| self.malformed_error("a media type"))?;
                check_media_type(name)?;
                CmwType::MediaType(name.into())
            }
            _ => {
                let got =
                    self.decoder.u64().map_err(|_| self.malformed_error("a content format"))?;
                let number = u16::try_from(got).map_err(|_| CmwError::ContentFormat { got })?;
                CmwType::ContentFormat(number)
            }
        };
        let value = self.read_bytes()?;
        let has_indicator = match members {
            Some(members) => members == 3,
            None => !self.is_break(),
        };
        let mut indicator = None;
        if has_indicator {
            let got = self.decoder.u64().map_err(|_| self.malformed_error("an indicator"))?;
            indicator = Some(check_indicator(got)?);
        }
        if members.is_none() {
            self.skip_break()?;
        }
        Ok(CmwRecord { content, value, indicator })
    }

    fn read_collection(&mut self, depth: usize) -> Result<CmwCollection, CmwError> {
        let entries = self.decoder.map().map_err(|_| self.malformed_error("a collection"))?;
        // One more may be the collection's type.
        let wanted = self.members_max;
        if entries.is_some_and(|entries| entries > wanted as u64 + 1) {
            return Err(CmwError::TooManyMembers { wanted });
        }
        let mut collection = CmwCollection { kind: None, members: Vec::new() };
        let mut position = 0;
        while entries.map_or_else(|| !self.is_break(), |entries| position < entries) {
            self.read_entry(depth, &mut collection)?;
            position += 1;
        }
        if entries.is_none() {
            self.skip_break()?;
        }
        match collection.members.is_empty() {
            true => Err(CmwError::NoMembers),
            false => Ok(collection),
        }
    }

    fn read_entry(&mut self, depth: usize, collection: &mut CmwCollection) -> Result<(), CmwError> {
        let label = match self.decoder.datatype() {
            Ok(Type::String) => {
                let text = self.decoder.str().map_err(|_| self.malformed_error("a label"))?;
                if text == COLLECTION_TYPE {
                    let kind = self.decoder.str().map_err(|_| self.malformed_error("a type"))?;
                    check_collection_type(kind)?;
                    return match collection.kind.replace(kind.into()) {
                        None => Ok(()),
                        Some(_) => Err(CmwError::Duplicate),
                    };
                }
                check_label(text)?;
                CmwLabel::Text(text.into())
            }
            _ => CmwLabel::Number(self.decoder.i64().map_err(|_| self.malformed_error("a label"))?),
        };
        let member = self.read(depth - 1)?;
        add_member(collection, label, member, self.members_max)
    }

    fn read_tagged(&mut self, depth: usize) -> Result<Cmw, CmwError> {
        let got = self.decoder.tag().map_err(|_| self.malformed_error("a tag"))?.as_u64();
        if got == TAG_COLLECTION {
            return match self.decoder.datatype() {
                Ok(Type::Map | Type::MapIndef) => self.read_collection(depth).map(Cmw::Collection),
                _ => Err(self.malformed_error("a collection")),
            };
        }
        let number = got.checked_sub(TAG_BASE).and_then(|above| {
            let (high, low) = (above >> 8, above & 0xff);
            if low == 0xff { None } else { high.checked_mul(255)?.checked_add(low) }
        });
        let number = number.and_then(|number| u16::try_from(number).ok());
        let content = CmwType::ContentFormat(number.ok_or(CmwError::ContentFormat { got })?);
        let value = self.read_bytes()?;
        Ok(Cmw::Record(CmwRecord { content, value, indicator: None }))
    }

    fn read_bytes(&mut self) -> Result<Vec<u8>, CmwError> {
        self.decoder.bytes().map(<[u8]>::to_vec).map_err(|_| self.malformed_error("a byte string"))
    }

    fn is_break(&self) -> bool {
        matches!(self.decoder.datatype(), Ok(Type::Break))
    }

    fn skip_break(&mut self) -> Result<(), CmwError> {
        match self.is_break() {
            true => self.decoder.skip().map_err(|_| self.malformed_error("an end")),
            false => Err(self.malformed_error("an end")),
        }
    }

    fn malformed_error(&self, wanted: &'static str) -> CmwError {
        CmwError::Malformed { position: self.decoder.position(), wanted }
    }
}
