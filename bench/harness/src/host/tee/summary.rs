//! Which signals agree, and in words.

use super::{Kind, Reading, Says, Signal, Tee};

impl Tee {
    /// Judges signals; their order is kept.
    pub(crate) fn of(signals: Vec<Signal>) -> Self {
        let claims: Vec<&Signal> = signals.iter().filter(|s| s.says == Says::Guest).collect();
        let paravisor = claims.iter().any(|signal| signal.value.contains(PARAVISOR));
        let kind = claims.iter().flat_map(|signal| &signal.kinds).min().copied();
        let names = |chosen: &dyn Fn(&Signal) -> bool| -> Vec<String> {
            signals.iter().filter(|s| chosen(s)).map(|s| s.source.clone()).collect()
        };
        let agree = names(&|signal| {
            signal.says == Says::Guest && kind.is_some_and(|kind| signal.kinds.contains(&kind))
        });
        let disagree = names(&|signal| match (kind, signal.says) {
            // Behind a paravisor Linux announces SEV alone, and the hardware's devices and leaves
            // are not shown (arch/x86/coco: amd_cc_platform_vtom).
            (Some(kind), Says::Guest) => !signal
                .kinds
                .iter()
                .any(|other| kind == *other || paravisor && kind.includes(*other)),
            (Some(kind), Says::Absent) => signal.kinds.contains(&kind) && !paravisor,
            _ => false,
        });
        let reading = match (kind, disagree.is_empty()) {
            (None, _) => Reading::NoSign,
            (Some(_), true) => Reading::Signs,
            (Some(_), false) => Reading::Contradiction,
        };
        let unread = names(&|signal| signal.says == Says::Unread);
        Self { reading, kind, paravisor, agree, disagree, unread, signals }
    }

    /// The summary as one sentence.
    pub(crate) fn text(&self) -> String {
        let kind = self.kind.map_or("", Kind::name);
        let unread = match self.unread.len() {
            0 => String::new(),
            n => format!("; {n} could not be read"),
        };
        let behind = if self.paravisor { ", behind a paravisor" } else { "" };
        match self.reading {
            Reading::NotRead => "not looked at by the version that made this record".into(),
            Reading::NoSign => {
                let read = self.signals.iter().filter(|s| s.says != Says::Unread).count();
                format!("no sign of a confidential VM in {read} signals{unread}")
            }
            Reading::Signs => format!(
                "signs of {kind}{behind}: {}; none disagrees{unread}; a hint, no proof",
                self.agree.join(", "),
            ),
            Reading::Contradiction => format!(
                "signals disagree: {} say {kind}{behind}, {} do not{unread}; nothing follows",
                self.agree.join(", "),
                self.disagree.join(", "),
            ),
        }
    }
}

/// The word by which a signal says that there is one.
pub(super) const PARAVISOR: &str = "paravisor";
