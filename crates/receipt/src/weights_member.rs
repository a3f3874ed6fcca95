//! What a document says of the weights of models: `"not measured"`, or a list of digests with their
//! sources, in which `"not measured"` stands for the weights of further models.

use confide_evidence::weights_claim::{
    MeasuredWeights, NOT_MEASURED, WEIGHTS_MAX, WeightsClaim, WeightsSource,
};

use crate::json::Json;

const DIGEST: &str = "sha256";
const SOURCE: &str = "source";

/// The member for a claim; `None` for a gateway that measured nothing.
pub(crate) fn describe_weights(claim: Option<&WeightsClaim>) -> Json {
    let Some(claim) = claim else { return NOT_MEASURED.into() };
    let describe = |weights: &MeasuredWeights| {
        Json::object([
            (DIGEST, Json::from(hex::encode(weights.digest))),
            (SOURCE, weights.source.as_str().into()),
        ])
    };
    let others = (!claim.is_complete()).then(|| NOT_MEASURED.into());
    Json::Array(claim.measured_weights().iter().map(describe).chain(others).collect())
}

/// Reads a member: the claim, `Some(None)` where nothing was measured, and `None` for another form.
pub(crate) fn parse_weights(member: &Json) -> Option<Option<WeightsClaim>> {
    let elements = match member {
        Json::Text(text) if text == NOT_MEASURED => return Some(None),
        Json::Array(elements) if elements.len() <= WEIGHTS_MAX + 1 => elements,
        _ => return None,
    };
    let servers: Option<Vec<Option<MeasuredWeights>>> =
        elements.iter().map(parse_element).collect();
    let claim = WeightsClaim::from_servers(servers?)?;
    (claim.measured_weights().len() <= WEIGHTS_MAX).then_some(Some(claim))
}

/// One element: measured weights, or `Some(None)` for those that were not measured.
fn parse_element(element: &Json) -> Option<Option<MeasuredWeights>> {
    if matches!(element, Json::Text(text) if text == NOT_MEASURED) {
        return Some(None);
    }
    let (text, mut digest) = (element.get_text(DIGEST)?, [0; 32]);
    hex::decode_to_slice(text, &mut digest).ok()?;
    let source = WeightsSource::from_text(element.get_text(SOURCE)?)?;
    (hex::encode(digest) == text).then_some(Some(MeasuredWeights { source, digest }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Option<WeightsClaim>> {
        parse_weights(&Json::parse(text.as_bytes(), text.len()).unwrap())
    }

    fn describe_element(digit: &str) -> String {
        format!(r#"{{"sha256":"{}","source":"hashed at start"}}"#, digit.repeat(64))
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let weights = |byte: Option<u8>| {
            byte.map(|byte| MeasuredWeights {
                source: WeightsSource::HashedAtStart,
                digest: [byte; 32],
            })
        };
        for servers in [vec![], vec![None], vec![Some(7)], vec![Some(9), None, Some(7)]] {
            let claim = WeightsClaim::from_servers(servers.into_iter().map(weights));
            assert_eq!(parse_weights(&describe_weights(claim.as_ref())), Some(claim));
        }
        assert_eq!(parse("\"not measured\""), Some(None));
    }

    #[test]
    fn other_forms_are_no_claim() {
        let element = describe_element("a");
        assert!(parse(&format!("[{element}]")).is_some_and(|claim| claim.is_some()));
        for text in [
            "null".to_owned(),
            "[]".into(),
            "\"measured\"".into(),
            "[\"not measured\"]".into(),
            format!("[{}]", element.to_uppercase()),
            format!("[{}]", describe_element("A")),
            format!("[{}]", element.replace("at start", "later")),
            format!("[{}]", element.replace("aaa", "aa")),
            format!("[{}]", vec![element; WEIGHTS_MAX + 2].join(",")),
            element_list(WEIGHTS_MAX + 1),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
        assert!(parse(&element_list(WEIGHTS_MAX)).is_some());
    }

    fn element_list(count: usize) -> String {
        let elements: Vec<_> = (0..count).map(|at| describe_element(&at.to_string())).collect();
        format!("[{}]", elements.join(","))
    }
}
