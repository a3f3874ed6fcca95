//! The few lines of the kernel's log that tell of protection and of bounce buffers.

use std::{fs::File, io::Read, os::unix::fs::OpenOptionsExt};

use super::root::FileTree;

/// The most bytes of the log that are read; the kernel's ring holds at most some MiB.
const LOG_BYTES_MAX: usize = 16 << 20;
/// The most bytes of one record of `/dev/kmsg` (CONSOLE_EXT_LOG_MAX is 8192).
const RECORD_BYTES_MAX: usize = 16 << 10;
/// The most lines that are kept, each cut: the record of a run is not a copy of the log.
const LINES_MAX: usize = 16;
const LINE_CHARACTERS_MAX: usize = 160;

/// The lines that were found in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelLog {
    /// True where the log could be read at all.
    pub(crate) readable: bool,
    /// True where it still begins with the first record since boot: only then does a missing line
    /// say anything.
    pub(crate) whole: bool,
    /// The lines of interest, in order, each once.
    pub(crate) lines: Vec<String>,
}

/// Parts of the lines that are kept, in the wordings of Linux 5.10 to 6.18
/// (arch/x86/mm/mem_encrypt.c, arch/x86/coco, arch/x86/kernel/cpu/mshyperv.c, kernel/dma/swiotlb.c,
/// drivers/virt/coco).
const KEPT: &[&str] = &[
    "Memory Encryption Features active",
    "Isolation Config:",
    "tdx: Guest detected",
    "SEV: Status:",
    "SEV: SNP running at VMPL",
    "SNP guest platform device",
    "software IO TLB: mapped",
    "software IO TLB: area num",
    "system is using DMA bounce buffers",
    "Hypervisor detected:",
];

impl KernelLog {
    /// Reads `/dev/kmsg` without waiting for more.
    pub(crate) fn read(root: &FileTree) -> Self {
        let options = || {
            let mut options = File::options();
            options.read(true).custom_flags(nix::libc::O_NONBLOCK);
            options
        };
        let Ok(mut file) = options().open(root.path("/dev/kmsg")) else { return Self::default() };
        let (mut text, mut record) = (Vec::new(), vec![0; RECORD_BYTES_MAX]);
        while text.len() < LOG_BYTES_MAX {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(read) => text.extend_from_slice(&record[..read]),
                // EPIPE: the record was overwritten meanwhile, the next one is whole.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// Parses the text of `/dev/kmsg` (`priority,sequence,time,flags;message`) or of `dmesg`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines().filter(|line| KEPT.iter().any(|part| line.contains(part))) {
            let line: String = extract_message(line).chars().take(LINE_CHARACTERS_MAX).collect();
            if lines.len() < LINES_MAX && !lines.contains(&line) {
                lines.push(line);
            }
        }
        Self { readable: !text.is_empty(), whole: starts_at_boot(text), lines }
    }

    /// Returns the first kept line with this part.
    pub(crate) fn find_line(&self, part: &str) -> Option<&str> {
        self.lines.iter().find(|line| line.contains(part)).map(String::as_str)
    }
}

fn starts_at_boot(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    match first.split_once(';') {
        Some((head, _)) => head.split(',').nth(1) == Some("0"),
        None => first.starts_with("[    0.000000]") && text.contains("Linux version"),
    }
}

/// Strips what stands before the message of a line.
fn extract_message(line: &str) -> &str {
    let head_ends = |head: &str| head.chars().all(|c| c.is_ascii_digit() || ",-c".contains(c));
    if let Some((head, rest)) = line.split_once(';')
        && head_ends(head)
    {
        return rest.trim();
    }
    match line.strip_prefix('[').and_then(|line| line.split_once(']')) {
        Some((_, rest)) => rest.trim(),
        None => line.trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by hand after the format of `/dev/kmsg`.
    const KMSG: &str = "5,0,0,-;Linux version 6.18.0 (who@where)\n\
        6,1,10,-;Command line: root=/dev/vda host=secret\n\
        6,300,20,-;Memory Encryption Features active: Intel TDX\n SUBSYSTEM=cpu\n\
        6,301,21,-;software IO TLB: mapped [mem 0x0-0x4000000] (1024MB)\n\
        6,302,21,-;software IO TLB: mapped [mem 0x0-0x4000000] (1024MB)\n";

    #[test]
    fn only_the_lines_of_interest_are_kept_each_once() {
        let log = KernelLog::parse(KMSG);
        assert!(log.readable && log.whole);
        assert_eq!(log.lines.len(), 2);
        let line = log.find_line("Memory Encryption").unwrap();
        assert_eq!(line, "Memory Encryption Features active: Intel TDX");
    }

    #[test]
    fn a_log_that_lost_its_start_says_nothing_by_what_it_lacks() {
        let rolled = KMSG.replacen("5,0,0,-;Linux", "5,812,0,-;Linux", 1);
        assert!(!KernelLog::parse(&rolled).whole);
        let empty = KernelLog::parse("");
        assert!(!empty.readable && !empty.whole);
    }

    #[test]
    fn the_text_of_dmesg_is_read_too() {
        let log = KernelLog::parse(
            "[    0.000000] Linux version 6.1\n\
             [    0.51] AMD Memory Encryption Features active: SEV SEV-ES SEV-SNP\n",
        );
        assert!(log.whole);
        assert_eq!(log.lines, ["AMD Memory Encryption Features active: SEV SEV-ES SEV-SNP"]);
    }

    #[test]
    fn a_missing_log_is_not_readable() {
        let tree = super::super::root::FakeTree::new("kmsg", &[("/dev/null", "")]);
        assert!(!KernelLog::read(&tree.root).readable);
        tree.write_file("/dev/kmsg", KMSG.as_bytes());
        assert_eq!(KernelLog::read(&tree.root), KernelLog::parse(KMSG));
    }
}
