//! How far a run is, and how long it will still take.

use std::time::Duration;

/// The progress of a run, reported after every slice.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The number of slices that are done.
    pub done: u64,
    /// The number of slices in the whole plan.
    pub total: u64,
    /// The time since the start of this session.
    pub elapsed: Duration,
    /// The bench and block that are running: `chat/new, block 5 of 20`.
    pub what: String,
}

impl Progress {
    /// Estimates the time left, as if the rest takes as long as the past; `None` before the first slice.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.total.saturating_sub(self.done) as f64;
        (self.done > 0).then(|| self.elapsed.mul_f64(left / self.done as f64))
    }

    /// Formats the progress as one line of at most `width` columns.
    pub fn line(&self, width: usize) -> String {
        let share = if self.total == 0 { 1.0 } else { self.done as f64 / self.total as f64 };
        let filled = (share * 20.0).round() as usize;
        let bar = format!("{}{}", "#".repeat(filled.min(20)), ".".repeat(20 - filled.min(20)));
        let left = self.time_left().map_or_else(|| "?".into(), format_clock);
        let line = format!("[{bar}] {:>3.0} %  {left} left  {}", share * 100.0, self.what);
        line.chars().take(width).collect()
    }
}

fn format_clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_past() {
        let what = "chat/new, block 5 of 20".to_owned();
        let elapsed = Duration::from_secs(60);
        let progress = Progress { done: 25, total: 100, elapsed, what };
        assert_eq!(progress.time_left(), Some(Duration::from_secs(180)));
        let line = progress.line(80);
        assert!(line.starts_with("[#####...............]  25 %  3:00 left  chat/new"), "{line}");
        assert_eq!(progress.line(10).len(), 10);
    }

    #[test]
    fn nothing_done_says_nothing_of_the_time_left() {
        let progress = Progress { done: 0, total: 0, elapsed: Duration::ZERO, what: String::new() };
        assert_eq!(progress.time_left(), None);
        assert!(progress.line(80).contains("100 %"));
    }
}
