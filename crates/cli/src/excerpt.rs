//! Excerpts: `confide disclose` makes one of a receipt that can be opened, `confide verify receipt`
//! reads the commitments that it opens.

use std::{fmt::Write as _, path::Path};

use confide_disclosure::{
    Direction, Excerpt, OpenedBody, Seed, Selector, TRANSCRIPT_BYTES_MAX, open_body,
};
use confide_receipt::{Json, RECEIPT_BYTES_MAX};
use confide_verification::{event_of, read_commitment};
use zeroize::Zeroizing;

use crate::{
    error::CliError,
    files::{read_credential, read_file},
    verify::disclosure::words::shown_bytes_name,
};

/// Where a receipt that commits to bodies comes from.
const OPENABLE_HINT: &str =
    "fetch /v1/aci/receipts/ID/openable, which is there if the request had X-Receipt-Secret";

/// The files from which an excerpt is made.
pub(crate) struct ExcerptFiles<'a> {
    /// The receipt, as the gateway gave it.
    pub(crate) receipt: Vec<u8>,
    /// A file with the secret that the request had.
    pub(crate) secret: &'a Path,
    pub(crate) request: Option<&'a Path>,
    pub(crate) response: Option<&'a Path>,
}

/// Makes an excerpt with what `wishes` name.
pub(crate) fn make_excerpt(
    files: ExcerptFiles<'_>,
    wishes: &[Selector],
) -> Result<Excerpt, CliError> {
    let document = Json::parse(&files.receipt, RECEIPT_BYTES_MAX).map_err(CliError::new)?;
    let receipt_id = document
        .get_text("receipt_id")
        .ok_or_else(|| CliError::new("the receipt has no receipt_id").with_hint(OPENABLE_HINT))?;
    let secret = read_secret(files.secret)?;
    let seed = Seed::of_receipt(&secret, receipt_id);
    let open = |direction: Direction, body: Option<&Path>| {
        let is_wanted = |wish: &Selector| match wish {
            Selector::Bytes(of, _) | Selector::Length(of) => *of == direction,
            Selector::Field(name) => name.starts_with(direction.as_str()),
        };
        if !wishes.iter().any(is_wanted) {
            return Ok(OpenedBody::default());
        }
        let name = direction.as_str();
        let body = body.ok_or_else(|| {
            CliError::new(format!("--show names the {name}, and its body is missing"))
                .with_hint(format!("give --{name} FILE, the body as it was on the wire"))
        })?;
        let body = Zeroizing::new(read_file(body, TRANSCRIPT_BYTES_MAX as u64)?);
        let event = find_body_event(&document, direction);
        let commitment = event.and_then(read_commitment).ok_or_else(|| {
            CliError::new(format!("the receipt does not commit to the {name}"))
                .with_hint(OPENABLE_HINT)
        })?;
        open_body(&seed, direction, &body, &commitment, wishes).map_err(CliError::new)
    };
    let request = open(Direction::Request, files.request)?;
    let response = open(Direction::Response, files.response)?;
    Ok(Excerpt { receipt: document.to_canonical().into_bytes(), request, response })
}

/// One line for each part that the file shows, read from the file itself.
pub(crate) fn describe_parts(excerpt: &Excerpt) -> Result<String, CliError> {
    let document = Json::parse(&excerpt.receipt, RECEIPT_BYTES_MAX).map_err(CliError::new)?;
    let mut text = String::new();
    for (direction, body) in
        [(Direction::Request, &excerpt.request), (Direction::Response, &excerpt.response)]
    {
        let event = find_body_event(&document, direction);
        let Some(commitment) = event.and_then(read_commitment) else { continue };
        let (pieces, length) = body.check(direction, &commitment).map_err(CliError::new)?;
        for piece in pieces {
            let _ = writeln!(text, "shown    {}", shown_bytes_name(direction, &piece));
        }
        if length.is_some() {
            let _ = writeln!(text, "shown    {}.length", direction.as_str());
        }
    }
    Ok(text)
}

fn find_body_event(document: &Json, direction: Direction) -> Option<&Json> {
    let Some(Json::Array(events)) = document.get("event_log") else { return None };
    events.iter().find(|event| event.get_text("type") == Some(event_of(direction)))
}

fn read_secret(path: &Path) -> Result<Zeroizing<[u8; 32]>, CliError> {
    let text = read_credential(path)?;
    let mut secret = Zeroizing::new([0; 32]);
    match hex::decode_to_slice(&*text, &mut secret[..]) {
        Ok(()) => Ok(secret),
        Err(_) => Err(CliError::in_file(path)(
            "wanted 64 hexadecimal digits, the request's X-Receipt-Secret",
        )),
    }
}
