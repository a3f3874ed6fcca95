//! The content of a report, whatever its format: sections of paragraphs, lists and tables, made
//! once from rows.
//!
//! `html`, `markdown` and `text` write the same sections. All text in them is plain, apart from
//! [`Block::Markup`] and [`CellContent::Markup`]: a writer escapes whatever would act in its format.

pub(crate) mod html;
pub(crate) mod markdown;
pub(crate) mod text;

/// The meaning of a judgement, which each writer shows by colour, and a page by a sign as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JudgementColour {
    Good,
    Warn,
    Bad,
    Calm,
    #[default]
    Mute,
}

impl JudgementColour {
    /// The name of the class in the style sheet.
    pub(crate) fn css_class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Calm => "calm",
            Self::Mute => "mute",
        }
    }

    /// The sign that stands before a text of the class: colour is never the only sign.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Warn => "▲",
            Self::Bad => "✗",
            Self::Calm => "▼",
            Self::Mute => "○",
        }
    }
}

/// Attributes `data-name` that the filters of a page read. Several values of one name are separated by
/// line feeds.
pub(crate) type Attributes = Vec<(&'static str, String)>;

/// A heading and what stands below it. A section without blocks is not written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// The anchor in a page; empty if nothing links to it.
    pub(crate) id: String,
    /// The heading; empty for a section without one.
    pub(crate) heading: String,
    /// An explanation of how to read the section; only a page shows it.
    pub(crate) about: String,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    /// A section without an anchor and without an explanation.
    pub(crate) fn new(heading: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self { heading: heading.into(), blocks, ..Self::default() }
    }
}

/// A part of a section; all of them are written below its heading.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// A heading below that of the section.
    Heading(String),
    Paragraph(String),
    Judgement(Judgement),
    /// A part of a section under a heading of its own, which the filters of a page may hide.
    Group {
        id: String,
        attributes: Attributes,
        blocks: Vec<Block>,
    },
    List(Vec<ListItem>),
    Table(Table),
    /// Names and what they stand for; entries with an empty text are left out.
    Facts(Vec<(String, String)>),
    /// Text that is copied, or read by a machine.
    Code(String),
    /// Blocks that a page shows on demand.
    Folded {
        summary: String,
        is_open: bool,
        blocks: Vec<Block>,
    },
    /// Markup of a page, such as a chart; other writers leave it out.
    Markup(String),
}

/// A line that judges a record.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) class: JudgementColour,
    pub(crate) strong: String,
    pub(crate) text: String,
}

/// An entry of a list: a verdict, a name, a text, what stands behind it, and a command that would
/// help. Empty parts are not written.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListItem {
    pub(crate) verdict: Option<(JudgementColour, &'static str)>,
    pub(crate) strong: String,
    pub(crate) text: String,
    pub(crate) detail: String,
    /// The name and the number of the record that the text is from, where there are many.
    pub(crate) source: Option<(String, usize)>,
    pub(crate) command: String,
    pub(crate) attributes: Attributes,
}

impl ListItem {
    /// Returns the detail and the source in brackets.
    fn describe_origin(&self) -> String {
        let source = self.source.as_ref().map(|(name, _)| name.as_str());
        let parts = [Some(self.detail.as_str()), source].into_iter().flatten();
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { String::new() } else { format!("({})", parts.join("; ")) }
    }
}

/// Rows of cells under named columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The name that a screen reader gives the table.
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) bodies: Vec<TableBody>,
}

/// Rows that stay together when a table is sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableBody {
    /// A line above the rows; empty for none. A page folds the rows below it, and text has an empty line in its
    /// place.
    pub(crate) heading: String,
    pub(crate) rows: Vec<TableRow>,
}

/// The cells of a row, with its attributes for the filters of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableRow {
    /// The classes of the row in a page: `item` where filters apply.
    pub(crate) class: &'static str,
    pub(crate) attributes: Attributes,
    pub(crate) cells: Vec<Cell>,
}

/// The heading of a column, and what its cells have in common.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) heading: String,
    /// The name that a narrow screen writes before each cell; empty for the column that names the
    /// row.
    pub(crate) name: String,
    /// Classes of the style sheet. `num` aligns to the right in every format; columns of `data` and `wide` hold
    /// markup; text puts `verdict` last.
    pub(crate) class: &'static str,
}

/// The text of a cell, and small lines below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The text that a page shows in place of a long one, which is among the row's folded facts; empty for the
    /// same.
    pub(crate) short: String,
    pub(crate) content: CellContent,
    pub(crate) is_simulated: bool,
    /// Small lines below the text, each with its class of the style sheet. A terminal does not show
    /// them.
    pub(crate) notes: Vec<(&'static str, String)>,
    /// Facts behind the row, by name, which a page and Markdown show on demand: the cell's text opens them. Text
    /// leaves them out.
    pub(crate) folded: Vec<(String, String)>,
    /// The number that the column is sorted by, where it is not the text.
    pub(crate) sort: Option<f64>,
}

/// The kind of text in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CellContent {
    #[default]
    Text,
    /// The figure that a row is about.
    Strong,
    /// A number, and after it the interval in brackets: `x1.16 [1.14, 1.18]`.
    Figure,
    Verdict(JudgementColour),
    /// Markup of a page; other writers leave the column out.
    Markup,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new(name: impl Into<String>, columns: Vec<Column>) -> Self {
        let bodies = vec![TableBody::default()];
        Self { name: name.into(), columns, bodies }
    }

    /// Adds a row to the last body.
    pub(crate) fn push(&mut self, cells: Vec<Cell>) {
        self.push_row(TableRow { cells, ..TableRow::default() });
    }

    /// Adds a row with its attributes to the last body.
    pub(crate) fn push_row(&mut self, row: TableRow) {
        if let Some(body) = self.bodies.last_mut() {
            body.rows.push(row);
        }
    }

    /// Iterates over the rows of all bodies.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &TableRow> {
        self.bodies.iter().flat_map(|body| &body.rows)
    }

    /// True where the table has no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// Returns the indices of the columns whose class is none of these.
    fn columns_without_classes(&self, classes: &[&str]) -> Vec<usize> {
        (0..self.columns.len()).filter(|at| !classes.contains(&self.columns[*at].class)).collect()
    }
}

impl Column {
    /// The first column, which names the rows.
    pub(crate) fn new_label(heading: &str) -> Self {
        Self { heading: heading.to_owned(), name: String::new(), class: "layer" }
    }

    /// A column of text.
    pub(crate) fn new_text(heading: &str) -> Self {
        Self { heading: heading.to_owned(), name: heading.to_owned(), class: "" }
    }

    /// A column of numbers.
    pub(crate) fn new_number(heading: &str) -> Self {
        Self::new_text(heading).with_class("num")
    }

    /// The same column with a shorter name for narrow screens.
    pub(crate) fn with_name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// The same column with classes of the style sheet.
    pub(crate) fn with_class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    fn is_number(&self) -> bool {
        self.class.starts_with("num")
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Cell {
    /// A cell that is more than text.
    pub(crate) fn new(content: CellContent, text: impl Into<String>) -> Self {
        Self { content, ..Self::from(text) }
    }

    /// The same cell, marked where what it says is simulated.
    pub(crate) fn with_simulated(self, is_simulated: bool) -> Self {
        Self { is_simulated, ..self }
    }

    /// The same cell, sorted by this number.
    pub(crate) fn with_sort_key(self, number: f64) -> Self {
        Self { sort: Some(number), ..self }
    }

    /// The same cell with a small line below; an empty one is left out.
    pub(crate) fn with_note(mut self, note: impl Into<String>) -> Self {
        let note = note.into();
        if !note.is_empty() {
            self.notes.push(("soft", note));
        }
        self
    }
}

/// True for a character that acts without being seen: controls other than tab and line feed, and
/// those that change the direction of text. Writers show a mark in its place, since others write
/// records.
fn is_invisible(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// Replaces each character that acts unseen by a mark.
fn replace_invisible(text: &str) -> String {
    text.chars().map(|c| if is_invisible(c) { '\u{fffd}' } else { c }).collect()
}
