//! All signals of a machine, which of them agree, and what follows, in words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    signal::{PARAVISOR, Signal, SignalMeaning, TeeKind},
    signals,
};
use crate::host::{cpuid::CpuidLeaves, kernel_log::KernelLog, root::FileTree};

/// The conclusion from all signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignalVerdict {
    /// Nothing was looked at, as in an old record.
    #[default]
    NotRead,
    /// No signal says that this is a guest of any kind.
    NoSign,
    /// Some signals say so, and none of those that could be read speaks against it.
    Signs,
    /// Some signals say so, and some speak against it.
    Contradiction,
}

/// All signals of a machine and their summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(rename = "Tee")]
pub(crate) struct TeeSummary {
    pub(crate) reading: SignalVerdict,
    /// The strongest kind that a signal names.
    pub(crate) kind: Option<TeeKind>,
    /// A paravisor stands between this system and the hardware, so that devices and leaves of the
    /// hardware are not shown to it.
    pub(crate) paravisor: bool,
    /// Sources that say that this is such a guest.
    pub(crate) agree: Vec<String>,
    /// Sources that say otherwise.
    pub(crate) disagree: Vec<String>,
    /// Sources that could not be read.
    pub(crate) unread: Vec<String>,
    pub(crate) signals: Vec<Signal>,
}

impl TeeSummary {
    /// Looks at every place and judges what was found.
    pub(crate) fn read(root: &FileTree, cpuid: Option<&CpuidLeaves>, log: &KernelLog) -> Self {
        Self::from_signals(signals::collect_signals(root, cpuid, log))
    }

    /// Judges signals; their order is kept.
    pub(crate) fn from_signals(signals: Vec<Signal>) -> Self {
        let claims: Vec<&Signal> =
            signals.iter().filter(|s| s.says == SignalMeaning::Guest).collect();
        let paravisor = claims.iter().any(|signal| signal.value.contains(PARAVISOR));
        let kind = claims.iter().flat_map(|signal| &signal.kinds).min().copied();
        let names = |chosen: &dyn Fn(&Signal) -> bool| -> Vec<String> {
            signals.iter().filter(|s| chosen(s)).map(|s| s.source.clone()).collect()
        };
        let agree = names(&|signal| {
            signal.says == SignalMeaning::Guest
                && kind.is_some_and(|kind| signal.kinds.contains(&kind))
        });
        let disagree = names(&|signal| match (kind, signal.says) {
            // Behind a paravisor Linux announces SEV alone, and the hardware's devices and leaves
            // are not shown (arch/x86/coco: amd_cc_platform_vtom).
            (Some(kind), SignalMeaning::Guest) => !signal
                .kinds
                .iter()
                .any(|other| kind == *other || paravisor && kind.includes(*other)),
            (Some(kind), SignalMeaning::Absent) => signal.kinds.contains(&kind) && !paravisor,
            _ => false,
        });
        let reading = match (kind, disagree.is_empty()) {
            (None, _) => SignalVerdict::NoSign,
            (Some(_), true) => SignalVerdict::Signs,
            (Some(_), false) => SignalVerdict::Contradiction,
        };
        let unread = names(&|signal| signal.says == SignalMeaning::Unread);
        Self { reading, kind, paravisor, agree, disagree, unread, signals }
    }

    /// Formats the summary as one sentence.
    pub(crate) fn text(&self) -> String {
        let kind = self.kind.map_or("", TeeKind::name);
        let unread = match self.unread.len() {
            0 => String::new(),
            n => format!("; {n} could not be read"),
        };
        let behind = if self.paravisor { ", behind a paravisor" } else { "" };
        match self.reading {
            SignalVerdict::NotRead => "not read by the version that made this record".into(),
            SignalVerdict::NoSign => {
                let read = self.signals.iter().filter(|s| s.says != SignalMeaning::Unread).count();
                format!("no sign of a confidential VM in {read} signals{unread}")
            }
            SignalVerdict::Signs => format!(
                "signs of {kind}{behind}: {}; none disagrees{unread}; a hint, not proof",
                self.agree.join(", "),
            ),
            SignalVerdict::Contradiction => format!(
                "signals disagree: {} say {kind}{behind}, {} do not{unread}; no conclusion",
                self.agree.join(", "),
                self.disagree.join(", "),
            ),
        }
    }
}
