//! The sentences in which a policy is explained.

use alloc::{format, string::String, vec::Vec};

use confide_evidence::UnixSeconds;

use crate::{
    crl::CrlMinimum,
    expect::{Expect, ReferenceValue},
};

/// The treatment of one field by a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldTreatment {
    /// Evidence that fails it is refused.
    Checked,
    /// Any value passes, because the policy does not name the field.
    Unchecked,
    /// Any value passes, or a rule is lifted, because the policy says so explicitly.
    Dangerous,
}

/// One field of a policy, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The key in the policy's text.
    pub field: &'static str,
    /// The treatment of the field by the policy.
    pub stance: FieldTreatment,
    /// The treatment in words.
    pub text: String,
}

#[derive(Default)]
pub(crate) struct Explanation(pub(crate) Vec<Sentence>);

impl Explanation {
    pub(crate) fn add_checked(&mut self, field: &'static str, text: impl Into<String>) {
        self.add(field, FieldTreatment::Checked, text);
    }

    pub(crate) fn add_unchecked(&mut self, field: &'static str, text: impl Into<String>) {
        self.add(field, FieldTreatment::Unchecked, text);
    }

    pub(crate) fn add_dangerous(&mut self, field: &'static str, text: impl Into<String>) {
        self.add(field, FieldTreatment::Dangerous, text);
    }

    fn add(&mut self, field: &'static str, stance: FieldTreatment, text: impl Into<String>) {
        self.0.push(Sentence { field, stance, text: text.into() });
    }

    pub(crate) fn add_expect<T: ReferenceValue>(
        &mut self,
        field: &'static str,
        subject: &str,
        wanted: &Expect<T>,
    ) {
        match wanted {
            Expect::DangerousAny => self.add_dangerous(field, format!("{subject} may be anything")),
            Expect::AnyOf(values) if values.is_empty() => {
                self.add_checked(field, format!("{subject}: no value is accepted"));
            }
            Expect::Exactly(value) if is_zero(&value.to_text()) => {
                self.add_checked(field, format!("{subject} is zero"));
            }
            _ => self.add_checked(field, format!("{subject} is {wanted}")),
        }
    }

    /// As [`Self::add_expect`]; `otherwise` is the sentence where the policy has no value.
    pub(crate) fn add_optional<T: ReferenceValue>(
        &mut self,
        field: &'static str,
        subject: &str,
        wanted: Option<&Expect<T>>,
        otherwise: impl Into<String>,
    ) {
        match wanted {
            Some(wanted) => self.add_expect(field, subject, wanted),
            None => self.add_unchecked(field, otherwise),
        }
    }

    pub(crate) fn add_minimum(
        &mut self,
        field: &'static str,
        subject: &str,
        least: impl Into<u64>,
    ) {
        let least: u64 = least.into();
        match least {
            0 => self.add_unchecked(field, format!("{subject} may be any")),
            _ => self.add_checked(field, format!("{subject} is at least {least}")),
        }
    }

    pub(crate) fn add_revocation_list(
        &mut self,
        field: &'static str,
        subject: &str,
        minimum: CrlMinimum,
    ) {
        let CrlMinimum { number_min, issued_min } = minimum;
        match (number_min, issued_min) {
            (0, 0) => self.add_unchecked(field, format!("{subject} may be any that is valid now")),
            _ => self.add_checked(
                field,
                format!(
                    "{subject} has number {number_min} or higher, issued {} or later",
                    UnixSeconds(issued_min)
                ),
            ),
        }
    }
}

/// Whether the text is a long run of zeros, which is shown as `zero`.
fn is_zero(text: &str) -> bool {
    text.len() > 16 && text.bytes().all(|byte| byte == b'0')
}
