// SPDX-License-Identifier: GPL-2.0

//! Cells in rows and columns, for a terminal and as Markdown.

/// For a terminal: the first columns, which name the row, to the left, numbers to
/// the right.
pub fn text(cells: &[Vec<String>], names: usize) -> String {
    let width = |column: usize| cells.iter().map(|line| line[column].chars().count()).max();
    let mut text = String::new();
    for line in cells {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = width(column).unwrap_or(0);
            let gap = if column == 0 { "" } else { "  " };
            match column < names {
                true => row.push_str(&format!("{gap}{cell:<width$}")),
                false => row.push_str(&format!("{gap}{cell:>width$}")),
            }
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// As Markdown; the first row is the head.
pub fn markdown(cells: &[Vec<String>], names: usize) -> String {
    let mut text = String::new();
    for (number, line) in cells.iter().enumerate() {
        text.push_str(&format!("| {} |\n", line.join(" | ")));
        if number == 0 {
            text.push('|');
            for column in 0..line.len() {
                text.push_str(if column < names { " --- |" } else { " ---: |" });
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_numbers_right() {
        let cells: Vec<Vec<String>> = [["what", "MB/s"], ["a", "1"]]
            .map(|line| line.map(str::to_owned).to_vec())
            .to_vec();
        assert_eq!(text(&cells, 1), "what  MB/s\na        1\n");
        let right = "| what | MB/s |\n| --- | ---: |\n| a | 1 |\n";
        assert_eq!(markdown(&cells, 1), right);
    }
}
