//! `confide disclose`: from a notarised session to a file for third parties.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_disclosure::{
    CommittedFields, DiscloseError, DiscloseOptions, Disclosure, FIELD_TEXT_BYTES_MAX, FieldKind,
    FormatError, HOLDER_BYTES_MAX, NameError, NotarisedSession, Predicate, Selector,
    VerifiedDisclosure,
};
use confide_evidence::UnixSeconds;
use zeroize::Zeroizing;

use crate::{
    error::{CliError, read_file},
    new_file::NewFile,
    process::print_whole,
    verify::name_words,
};

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session: what `confide notary fetch --out` wrote
    file: PathBuf,
    /// Show this: request or response, a dot, and /POINTER, header:NAME, status, method, target,
    /// bytes:FIRST-END (the end is not in it; whole chunks of 64 bytes are shown) or length
    #[arg(long, value_name = "NAME", value_parser = show)]
    show: Vec<Selector>,
    /// Prove this of a value that stays hidden: 'NAME <= 4096', also >=, ==, between … and …, with
    /// numbers or RFC 3339 dates; 'NAME contains "TEXT"', 'response.bytes contains "TEXT"', of at
    /// most 64 bytes; 'sha256(NAME) == HEX'; 'NAME == NAME', the second of them 'other.NAME' for a
    /// field of the session of --other
    #[arg(long, value_name = "PREDICATE", value_parser = prove)]
    prove: Vec<Predicate>,
    /// Another session of yours, with whose numbers some are equal. The disclosure then says its
    /// host and time as well, and that both sessions have one holder
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
    /// List what the session holds, without its values: names, kinds, lengths, what can be proven
    #[arg(long, conflicts_with_all = ["show", "prove", "other", "out"])]
    list: bool,
    /// Where the disclosure is written
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let Some(out_path) = args.out.as_deref() else {
        print_whole(&list(&read_session(&args.file)?)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    if args.show.is_empty() && args.prove.is_empty() {
        return Err(CliError::new("nothing is to be shown or proven")
            .hint("--show response./model; `confide disclose FILE --list` names what there is"));
    }
    let session = read_session(&args.file)?;
    let mut sessions = [Some(&args.file), args.other.as_ref()].into_iter().flatten();
    if sessions.any(|session| is_same_file(session, out_path)) {
        return Err(CliError::new(format!("--out is {}, a session itself", out_path.display()))
            .hint("give the disclosure a file of its own: what is hidden is in no other file"));
    }
    let other = args.other.as_deref().map(read_session).transpose()?;
    let in_other_session =
        |wish: &Predicate| matches!(wish, Predicate::Equal { in_other_session: true, .. });
    if other.is_some() && !args.prove.iter().any(in_other_session) {
        return Err(CliError::new("no predicate names the other session")
            .hint("--prove 'response./a == other.response./b'"));
    }
    let out = NewFile::beside(out_path)?;
    let means = DiscloseOptions { texts: super::verify::text_proofs(), other: other.as_ref() };
    let disclosure = session.disclose(&args.show, &args.prove, means).map_err(refused)?;
    let bytes = disclosure.encode();
    out.save(&bytes)?;
    print_whole(&summary(&disclosure, session.fields.len(), bytes.len(), out_path)?)?;
    Ok(ExitCode::SUCCESS)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    whole(one).is_some_and(|one| whole(other) == Some(one))
}

fn show(text: &str) -> Result<Selector, NameError> {
    Selector::parse(text)
}

fn prove(text: &str) -> Result<Predicate, NameError> {
    Predicate::parse(text)
}

fn read_session(path: &Path) -> Result<NotarisedSession, CliError> {
    let bytes = Zeroizing::new(read_file(path, HOLDER_BYTES_MAX as u64)?);
    NotarisedSession::decode(&bytes).map_err(|error| {
        let failure = CliError::new(format!("{}: {error}", path.display()));
        match error {
            FormatError::Magic { .. } => {
                failure.hint("wanted the file that `confide notary fetch --out` wrote")
            }
            _ => failure,
        }
    })
}

fn refused(error: DiscloseError) -> CliError {
    let hint = match &error {
        DiscloseError::Holder(_) => "the file was changed, or its notary lied: fetch again",
        DiscloseError::NoField { .. } => {
            "`confide disclose FILE --list` names what there is; a field is response./a/b for \
             {\"a\":{\"b\":…}}, response.header:NAME or response.status; / in a name is ~1, ~ is ~0"
        }
        DiscloseError::Secret { .. } => {
            "bytes are shown in chunks of 64; name that header with --show to show it as well"
        }
        DiscloseError::SameSession { .. } => "--other names the file of another fetch",
        DiscloseError::SameField { .. } => "name two fields",
        DiscloseError::Untrue { .. } => "only what is so can be proven",
        DiscloseError::NoCircuits { .. } => "build with the feature `circuits`",
        DiscloseError::NoOther { .. } => "--other names the other session's file",
        DiscloseError::NoAmount { .. } => {
            "numbers below 4.6e12 with six decimals and RFC 3339 dates are committed to, 256 a \
             direction"
        }
        _ => return CliError::new(error),
    };
    CliError::new(error).hint(hint)
}

/// A line for each field. Values stay out: a terminal is seen by others, and kept in logs.
pub(crate) fn list(session: &NotarisedSession) -> Result<String, CliError> {
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
        let (kind, bytes, name) = (field.kind.as_str(), field.value.len(), name_words(&field.path));
        let _ = writeln!(text, "{kind:<9}{bytes:>8}  {provable:<20}{name}");
    }
    for (name, bytes) in [("request", &session.sent), ("response", &session.received)] {
        let _ = writeln!(text, "{:<9}{:>8}  {:<20}{name}.bytes", "bytes", bytes.len(), "text");
    }
    Ok(text)
}

/// What the file shows, read from the file: what its reader will see.
fn summary(
    disclosure: &Disclosure,
    fields: usize,
    bytes: usize,
    out: &Path,
) -> Result<String, CliError> {
    let verified = disclosure.verify(super::verify::text_proofs()).map_err(CliError::new)?;
    let mut text = format!("{} written, {bytes} bytes\n", out.display());
    // In the file they stand in the order of their leaves, which says nothing.
    let mut names: Vec<&str> = verified.fields().iter().map(|field| field.path.as_str()).collect();
    names.sort_unstable();
    for name in names {
        let _ = writeln!(text, "shown    {}", name_words(name));
    }
    for (direction, piece) in verified.bytes() {
        let (start, end) = (piece.start, piece.start + piece.bytes.len() as u64);
        let _ = writeln!(text, "shown    {}.bytes:{start}-{end}", direction.as_str());
    }
    for (direction, _) in verified.lengths() {
        let _ = writeln!(text, "shown    {}.length", direction.as_str());
    }
    for claim in verified.claims() {
        let (path, what) = super::verify::claim_words(claim);
        let _ = writeln!(text, "proven   {} {what}", name_words(&path));
    }
    if let Some(other) = verified.other_session() {
        let _ = writeln!(text, "other    {}", other_words(other));
    }
    let hidden = fields - verified.fields().len();
    let opened = disclosure.fields.as_ref().map_or(0, |opening| opening.fields.len());
    let named = match opened - verified.fields().len() {
        0 => String::new(),
        named => format!(" (of {named} the proofs say the name)"),
    };
    let _ = writeln!(text, "hidden   {hidden} fields{named}; all other bytes");
    Ok(text)
}

fn other_words(other: &VerifiedDisclosure) -> String {
    let statement = other.statement();
    format!(
        "host {}:{}, time {}: shown with this one, so both are known to be yours",
        statement.host,
        statement.port,
        UnixSeconds(statement.time)
    )
}
