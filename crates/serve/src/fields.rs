//! Reads the fields of a JSON request one by one, so that none is silently ignored.

use std::{fmt::Display, ops::RangeInclusive};

use serde_json::{Map, Value};

use crate::{clip::truncate_with_ellipsis, error::ApiError};

/// The fields of a JSON object, which are taken one by one. A field that remains at the end is an
/// error.
///
/// `null` counts as an absent field, because OpenAI's clients send it for one.
pub struct JsonFields {
    path: String,
    map: Map<String, Value>,
}

impl JsonFields {
    /// The fields of a JSON object.
    ///
    /// # Errors
    /// [`ApiError::NotJson`] if the body is not a JSON object.
    pub fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let map = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::NotJson { reason: error.to_string() })?;
        Ok(Self { path: String::new(), map })
    }

    /// The fields of a nested object; `path` is its name in errors.
    pub(crate) fn from_value(path: &str, value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { path: format!("{path}."), map }),
            other => Err(ApiError::invalid_field(path, "an object", &other)),
        }
    }

    /// Takes a field; `None` if it is absent or null.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field that must be present and not null.
    pub(crate) fn require(&mut self, name: &str) -> Result<Value, ApiError> {
        self.take(name).ok_or_else(|| ApiError::Missing { param: self.field_path(name) })
    }

    /// Takes a field that must be present, and may be null.
    pub(crate) fn require_present(&mut self, name: &str) -> Result<Value, ApiError> {
        self.map.remove(name).ok_or_else(|| ApiError::Missing { param: self.field_path(name) })
    }

    /// Refuses a field that is present; `wanted` names the accepted value.
    pub(crate) fn refuse_field(&mut self, name: &str, wanted: &str) -> Result<(), ApiError> {
        match self.take(name).filter(|value| *value != Value::Array(Vec::new())) {
            None => Ok(()),
            Some(value) => Err(ApiError::invalid_field(&self.field_path(name), wanted, &value)),
        }
    }

    /// Takes a string; `None` if it is absent.
    ///
    /// # Errors
    /// [`ApiError::Field`] if it is another value.
    pub fn take_text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ApiError::invalid_field(&self.field_path(name), "a string", &other)),
        }
    }

    /// Takes a string that must be present.
    ///
    /// # Errors
    /// [`ApiError::Missing`], and [`ApiError::Field`] if it is another value.
    pub fn require_text(&mut self, name: &str) -> Result<String, ApiError> {
        self.take_text(name)?.ok_or_else(|| ApiError::Missing { param: self.field_path(name) })
    }

    /// Takes a boolean; false if it is absent.
    ///
    /// # Errors
    /// [`ApiError::Field`] if it is another value.
    pub fn take_flag(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => {
                Err(ApiError::invalid_field(&self.field_path(name), "true or false", &other))
            }
        }
    }

    /// Takes an integer in a range; `None` if it is absent.
    ///
    /// # Errors
    /// [`ApiError::Field`] if it is another value.
    pub fn take_integer(
        &mut self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        self.take_in_range(name, range, "an integer", Value::as_i64)
    }

    /// Takes a number in a range; `None` if it is absent.
    ///
    /// # Errors
    /// [`ApiError::Field`] if it is another value.
    pub fn take_number(
        &mut self,
        name: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        self.take_in_range(name, range, "a number", Value::as_f64)
    }

    fn take_in_range<N: PartialOrd + Display>(
        &mut self,
        name: &str,
        range: RangeInclusive<N>,
        kind: &str,
        read: fn(&Value) -> Option<N>,
    ) -> Result<Option<N>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = read(&value).filter(|number| range.contains(number));
        let wanted = || format!("{kind} from {} to {}", range.start(), range.end());
        number
            .map(Some)
            .ok_or_else(|| ApiError::invalid_field(&self.field_path(name), wanted(), &value))
    }

    /// Takes a field that this server does not support. Only its neutral values are accepted.
    ///
    /// # Errors
    /// [`ApiError::Field`] for any other value.
    pub fn allow_only_neutral(&mut self, name: &str, neutral: &[Value]) -> Result<(), ApiError> {
        match self.take(name) {
            Some(value) if !neutral.iter().any(|admitted| is_same(admitted, &value)) => {
                let admitted: Vec<String> = neutral.iter().map(Value::to_string).collect();
                let wanted = format!("{} (no other value is supported)", admitted.join(" or "));
                Err(ApiError::invalid_field(&self.field_path(name), wanted, &value))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no fields remain except those in `ignored`, which do not change the completion.
    ///
    /// # Errors
    /// [`ApiError::UnknownField`] for another remaining field.
    pub fn finish(mut self, ignored: &[&str]) -> Result<(), ApiError> {
        self.map.retain(|name, value| !value.is_null() && !ignored.contains(&name.as_str()));
        match self.map.keys().next() {
            None => Ok(()),
            Some(name) => Err(ApiError::UnknownField {
                param: truncate_with_ellipsis(&self.field_path(name)),
            }),
        }
    }

    fn field_path(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }
}

/// Whether two values are equal; 0 equals 0.0.
fn is_same(left: &Value, right: &Value) -> bool {
    left == right || (left.is_number() && left.as_f64() == right.as_f64())
}
