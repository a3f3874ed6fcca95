//! Tables of text: in columns for a terminal, or in Markdown.

/// Rows of cells, the head first. A cell is shown as it is: what must be escaped is escaped before.
pub(crate) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with this head and no row yet.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Adds a row; one without cells is an empty line between columns.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is nothing but the head.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// In columns, each as wide as its widest cell; those of `right` end on the right.
    pub(crate) fn columns(&self, right: &[usize]) -> String {
        let columns = self.rows[0].len();
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                let width = *width;
                if right.contains(&at) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// In Markdown, with an empty line after it; the columns of `right` are numbers.
    pub(crate) fn markdown(&self, right: &[usize]) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = |at: usize| if right.contains(&at) { "---:" } else { "---" }.to_owned();
        let mut text = line(&self.rows[0]);
        text.push_str(&line(&(0..self.rows[0].len()).map(rule).collect::<Vec<_>>()));
        text.extend(self.rows[1..].iter().map(|row| line(row)));
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_markdown_has_a_rule() {
        let mut table = TextTable::new(&["name", "n"]);
        assert!(table.is_empty());
        table.push(["a longer name".to_owned(), "12".to_owned()]);
        table.push([]);
        table.push(["b".to_owned(), "3".to_owned()]);
        let columns = table.columns(&[1]);
        assert_eq!(columns, "name            n\na longer name  12\n\nb               3\n");
        let mut table = TextTable::new(&["name", "n"]);
        table.push(["a".to_owned(), "1".to_owned()]);
        assert_eq!(table.markdown(&[1]), "| name | n |\n| --- | ---: |\n| a | 1 |\n\n");
    }
}
