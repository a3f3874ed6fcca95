//! `confide disclose`: makes a file for third parties from a notarised session, or from a receipt.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_disclosure::{
    CommittedFields, DiscloseError, DiscloseOptions, Disclosure, FIELD_TEXT_BYTES_MAX, FieldKind,
    FormatError, HOLDER_BYTES_MAX, NotarisedSession, Predicate, Selector, VerifiedDisclosure,
};
use confide_evidence::UnixSeconds;
use confide_receipt::RECEIPT_BYTES_MAX;
use zeroize::Zeroizing;

use crate::{
    error::CliError,
    excerpt::{ExcerptFiles, describe_parts, make_excerpt},
    files::read_file,
    new_file::NewFile,
    process::print_text,
    verify::disclosure::{
        text_proofs,
        words::{describe_claim, format_name, shown_bytes_name},
    },
};

/// The arguments of `confide disclose`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session, as `confide notary fetch --out` wrote it, or a receipt that can be opened
    /// (/v1/aci/receipts/ID/openable), of which bytes and lengths can be shown
    file: PathBuf,
    /// Show this part: request or response, a dot, and /POINTER, header:NAME, status, method, target,
    /// bytes:FIRST-END (END excluded; whole chunks of 64 bytes are shown) or length
    #[arg(long, value_name = "NAME", value_parser = Selector::parse)]
    show: Vec<Selector>,
    /// Prove this predicate about a value that stays hidden. Numbers and RFC 3339 dates: 'NAME <=
    /// 4096', >=, ==, or between … and …. Texts of at most 64 bytes: 'NAME contains "TEXT"' or
    /// 'response.bytes contains "TEXT"'. Digests: 'sha256(NAME) == HEX'. Equal numbers: 'NAME ==
    /// NAME'; for a field of the --other session, the second NAME is 'other.NAME'
    #[arg(long, value_name = "PREDICATE", value_parser = Predicate::parse)]
    prove: Vec<Predicate>,
    /// Another session of yours, for predicates on equal numbers. The disclosure then also shows its host
    /// and time, and that both sessions have one holder
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
    /// List the fields of the session without their values: names, kinds, lengths, and what can be proven
    #[arg(long, conflicts_with_all = ["show", "prove", "other", "out"])]
    list: bool,
    /// For a receipt: a file with the 64 hexadecimal digits of the request's X-Receipt-Secret
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prove", "other", "list"])]
    secret: Option<PathBuf>,
    /// For a receipt: the body of the request, byte by byte as it was sent
    #[arg(long, value_name = "FILE", requires = "secret")]
    request: Option<PathBuf>,
    /// For a receipt: the body of the answer, byte by byte as it came
    #[arg(long, value_name = "FILE", requires = "secret")]
    response: Option<PathBuf>,
    /// Write the disclosure to this file
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let Some(out_path) = args.out.as_deref() else {
        print_text(&list_fields(&read_session(&args.file)?)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    if args.show.is_empty() && args.prove.is_empty() {
        return Err(CliError::new("nothing to show or prove")
            .with_hint("--show response./model; `confide disclose FILE --list` lists the fields"));
    }
    if let Some(secret) = &args.secret {
        return disclose_from_receipt(&args, secret, out_path);
    }
    let session = read_session(&args.file)?;
    let mut sessions = [Some(&args.file), args.other.as_ref()].into_iter().flatten();
    if sessions.any(|session| is_same_file(session, out_path)) {
        return Err(CliError::new(format!("--out is {}, a session itself", out_path.display()))
            .with_hint("choose another file: the session is the only copy of what stays hidden"));
    }
    let other = args.other.as_deref().map(read_session).transpose()?;
    let in_other_session =
        |wish: &Predicate| matches!(wish, Predicate::Equal { in_other_session: true, .. });
    if other.is_some() && !args.prove.iter().any(in_other_session) {
        return Err(CliError::new("--other needs a --prove that compares with it, got none")
            .with_hint("--prove 'response./a == other.response./b'"));
    }
    let out = NewFile::create_next_to(out_path)?;
    let means = DiscloseOptions { texts: text_proofs(), other: other.as_ref() };
    let disclosure = session.disclose(&args.show, &args.prove, means).map_err(explain_error)?;
    let bytes = disclosure.encode();
    out.save(&bytes)?;
    print_text(&describe_disclosure(&disclosure, session.fields.len(), bytes.len(), out_path)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes an excerpt of a receipt's bodies.
fn disclose_from_receipt(
    args: &Args,
    secret: &Path,
    out_path: &Path,
) -> Result<ExitCode, CliError> {
    let (request, response) = (args.request.as_deref(), args.response.as_deref());
    let inputs = [Some(&*args.file), Some(secret), request, response];
    if inputs.into_iter().flatten().any(|input| is_same_file(input, out_path)) {
        return Err(CliError::new(format!("--out is {}, an input itself", out_path.display()))
            .with_hint("choose another file"));
    }
    let receipt = read_file(&args.file, RECEIPT_BYTES_MAX as u64)?;
    let out = NewFile::create_next_to(out_path)?;
    let excerpt = make_excerpt(ExcerptFiles { receipt, secret, request, response }, &args.show)?;
    // What is saved has been read back as its readers will.
    let parts = describe_parts(&excerpt)?;
    let bytes = excerpt.encode();
    out.save(&bytes)?;
    let (path, length) = (out_path.display(), bytes.len());
    print_text(&format!("{path} written, {length} bytes\n{parts}hidden   all other bytes\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let resolve = |path: &Path| std::fs::canonicalize(path).ok();
    resolve(one).is_some_and(|one| resolve(other) == Some(one))
}

fn read_session(path: &Path) -> Result<NotarisedSession, CliError> {
    let bytes = Zeroizing::new(read_file(path, HOLDER_BYTES_MAX as u64)?);
    NotarisedSession::decode(&bytes).map_err(|error| {
        let is_other = matches!(error, FormatError::Magic { .. });
        let hint =
            "give the file that `confide notary fetch --out` wrote, or a receipt and --secret";
        CliError::in_file(path)(error).with_optional_hint(is_other.then_some(hint))
    })
}

fn explain_error(error: DiscloseError) -> CliError {
    let hint = match &error {
        DiscloseError::Session(_) => {
            "the file was changed, or its notary is dishonest: fetch again"
        }
        DiscloseError::NoField { .. } => {
            "`confide disclose FILE --list` lists the fields; a field is response./a/b for \
             {\"a\":{\"b\":…}}, response.header:NAME or response.status; / in a name is ~1, ~ is ~0"
        }
        DiscloseError::Secret { .. } => {
            "bytes are shown in chunks of 64; name that header with --show to show it as well"
        }
        DiscloseError::SameSession { .. } => "--other must name the file of another fetch",
        DiscloseError::SameField { .. } => "name two different fields",
        DiscloseError::FalsePredicate { .. } => "only true predicates can be proven",
        DiscloseError::NoCircuits { .. } => "build with the feature `circuits`",
        DiscloseError::NoOther { .. } => "--other names the other session's file",
        DiscloseError::NoAmount { .. } => {
            "only RFC 3339 dates and numbers below 4.6e12 with at most six decimals can be compared, \
             and at most 256 of them in each direction"
        }
        _ => return CliError::new(error),
    };
    CliError::new(error).with_hint(hint)
}

/// A line for each field. Values are left out: others may see a terminal, and logs keep it.
pub(crate) fn list_fields(session: &NotarisedSession) -> Result<String, CliError> {
    let committed = CommittedFields::new(&session.seed, &session.fields).map_err(CliError::new)?;
    let mut text = format!("{:<9}{:>8}  {:<20}name\n", "kind", "bytes", "provable");
    for (index, field) in session.fields.iter().enumerate() {
        let is_text = field.kind == FieldKind::String && field.value.len() <= FIELD_TEXT_BYTES_MAX;
        let provable = match (committed.amount(index).is_some(), is_text) {
            (true, true) => "date, text",
            (true, false) => "number",
            (false, true) => "text",
            (false, false) => "-",
        };
        let (kind, bytes, name) =
            (field.kind.as_str(), field.value.len(), format_name(&field.path));
        let _ = writeln!(text, "{kind:<9}{bytes:>8}  {provable:<20}{name}");
    }
    for (name, bytes) in [("request", &session.sent), ("response", &session.received)] {
        let _ = writeln!(text, "{:<9}{:>8}  {:<20}{name}.bytes", "bytes", bytes.len(), "text");
    }
    Ok(text)
}

/// What the file shows, read from the file itself, as its reader will see it.
fn describe_disclosure(
    disclosure: &Disclosure,
    fields: usize,
    bytes: usize,
    out: &Path,
) -> Result<String, CliError> {
    let verified = disclosure.verify(text_proofs()).map_err(CliError::new)?;
    let mut text = format!("{} written, {bytes} bytes\n", out.display());
    // The file has them in the order of their leaves, which is meaningless.
    let mut names: Vec<&str> = verified.fields().iter().map(|field| field.path.as_str()).collect();
    names.sort_unstable();
    for name in names {
        let _ = writeln!(text, "shown    {}", format_name(name));
    }
    for (direction, piece) in verified.bytes() {
        let _ = writeln!(text, "shown    {}", shown_bytes_name(*direction, piece));
    }
    for (direction, _) in verified.lengths() {
        let _ = writeln!(text, "shown    {}.length", direction.as_str());
    }
    for claim in verified.claims() {
        let (path, predicate) = describe_claim(claim);
        let _ = writeln!(text, "proven   {} {predicate}", format_name(&path));
    }
    if let Some(other) = verified.other_session() {
        let _ = writeln!(text, "other    {}", describe_other_session(other));
    }
    let hidden = fields - verified.fields().len();
    let opened = disclosure.fields.as_ref().map_or(0, |opening| opening.fields.len());
    let named = match opened - verified.fields().len() {
        0 => String::new(),
        named => format!(" (the proofs reveal the names of {named})"),
    };
    let _ = writeln!(text, "hidden   {hidden} fields{named}; all other bytes");
    Ok(text)
}

fn describe_other_session(other: &VerifiedDisclosure) -> String {
    let statement = other.statement();
    format!(
        "host {}:{}, time {}: shown with this session, so both are known to be yours",
        statement.host,
        statement.port,
        UnixSeconds(statement.time)
    )
}
