//! Wrappers in JSON: records and collections.

use alloc::{
    borrow::{Cow, ToOwned},
    string::String,
    vec::Vec,
};
use core::{cell::RefCell, fmt, str};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::message::{
    COLLECTION_TYPE, Cmw, CmwCollection, CmwError, CmwLabel, CmwRecord, CmwType, add_member,
    check_collection_type, check_indicator, check_label, check_media_type,
};

/// Reads the whole of `bytes`.
pub(super) fn parse(bytes: &[u8], depth: usize, members_max: usize) -> Result<Cmw, CmwError> {
    let reason = RefCell::new(None);
    let seed = Wrapper { depth, depth_max: depth, members_max, reason: &reason };
    let malformed = |position| CmwError::Malformed { position, wanted: "a record or a collection" };
    let text = str::from_utf8(bytes).map_err(|error| malformed(error.valid_up_to()))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = seed.deserialize(&mut deserializer);
    let read = read.and_then(|read| deserializer.end().map(|()| read));
    // serde carries only text, so the reason travels next to it.
    read.map_err(|error| reason.take().unwrap_or_else(|| malformed(error.column())))
}

/// Reads one wrapper at a depth.
#[derive(Clone, Copy)]
struct Wrapper<'r> {
    depth: usize,
    depth_max: usize,
    members_max: usize,
    reason: &'r RefCell<Option<CmwError>>,
}

impl Wrapper<'_> {
    /// Notes the reason, and returns the error that stops serde.
    fn refuse<E: serde::de::Error>(self, reason: CmwError) -> E {
        *self.reason.borrow_mut() = Some(reason);
        E::custom("not a wrapper")
    }

    fn check<T, E: serde::de::Error>(self, result: Result<T, CmwError>) -> Result<T, E> {
        result.map_err(|reason| self.refuse(reason))
    }
}

impl<'de> DeserializeSeed<'de> for Wrapper<'_> {
    type Value = Cmw;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cmw, D::Error> {
        if self.depth == 0 {
            return Err(self.refuse(CmwError::TooDeep { wanted: self.depth_max }));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Wrapper<'_> {
    type Value = Cmw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record or a collection")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Cmw, A::Error> {
        let short = || A::Error::custom("wanted two or three members");
        let name: Cow<'de, str> = members.next_element()?.ok_or_else(short)?;
        self.check(check_media_type(&name))?;
        let value: Cow<'de, str> = members.next_element()?.ok_or_else(short)?;
        let value = URL_SAFE_NO_PAD.decode(value.as_bytes()).map_err(A::Error::custom)?;
        let indicator: Option<u64> = members.next_element()?;
        let indicator = self.check(indicator.map(check_indicator).transpose())?;
        if members.next_element::<serde::de::IgnoredAny>()?.is_some() {
            return Err(short());
        }
        let content = CmwType::MediaType(name.into_owned());
        Ok(Cmw::Record(CmwRecord { content, value, indicator }))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Cmw, A::Error> {
        let mut collection = CmwCollection { kind: None, members: Vec::new() };
        while let Some(label) = entries.next_key::<Cow<'de, str>>()? {
            if label == COLLECTION_TYPE {
                let kind: String = entries.next_value()?;
                self.check(check_collection_type(&kind))?;
                if collection.kind.replace(kind).is_some() {
                    return Err(self.refuse(CmwError::Duplicate));
                }
                continue;
            }
            self.check(check_label(&label))?;
            let member = entries.next_value_seed(Self { depth: self.depth - 1, ..self })?;
            let label = CmwLabel::Text(label.as_ref().to_owned());
            self.check(add_member(&mut collection, label, member, self.members_max))?;
        }
        match collection.members.is_empty() {
            true => Err(self.refuse(CmwError::NoMembers)),
            false => Ok(Cmw::Collection(collection)),
        }
    }
}
