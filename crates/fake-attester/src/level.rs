//! The levels of the simulated TCB info, and the security versions of a platform at each.

/// The position of the platform among the levels of the TCB info.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimulatedTcbLevel {
    UpToDate,
    SwHardeningNeeded,
    OutOfDate,
    Revoked,
}

impl SimulatedTcbLevel {
    /// From the best to the worst, as the JSON lists them.
    pub(crate) const ALL: [Self; 4] =
        [Self::UpToDate, Self::SwHardeningNeeded, Self::OutOfDate, Self::Revoked];

    /// The 16 SGX component SVNs, which are also the CPUSVN of this simulated platform.
    pub(crate) fn cpu_svn(self) -> [u8; 16] {
        let (microcode, bios, seamldr) = match self {
            Self::UpToDate => (8, 4, 6),
            Self::SwHardeningNeeded => (7, 4, 5),
            Self::OutOfDate => (6, 3, 3),
            Self::Revoked => (5, 3, 3),
        };
        [microcode, microcode, 2, 2, bios, 1, 0, seamldr, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    /// The SVN of the provisioning certification enclave.
    pub(crate) fn pce_svn(self) -> u16 {
        match self {
            Self::Revoked => 11,
            _ => 13,
        }
    }

    /// The 16 TDX component SVNs that the level demands.
    pub(crate) fn tdx_svn(self) -> [u8; 16] {
        let (module, microcode) = match self {
            Self::UpToDate => (5, 8),
            Self::SwHardeningNeeded => (5, 7),
            Self::OutOfDate => (3, 6),
            Self::Revoked => (3, 5),
        };
        [module, 0, microcode, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    pub(crate) fn date(self) -> &'static str {
        match self {
            Self::UpToDate | Self::SwHardeningNeeded => "2024-11-13T00:00:00Z",
            Self::OutOfDate => "2024-03-13T00:00:00Z",
            Self::Revoked => "2018-01-04T00:00:00Z",
        }
    }

    pub(crate) fn status(self) -> &'static str {
        match self {
            Self::UpToDate => "UpToDate",
            Self::SwHardeningNeeded => "SWHardeningNeeded",
            Self::OutOfDate => "OutOfDate",
            Self::Revoked => "Revoked",
        }
    }

    pub(crate) fn advisories(self) -> &'static [&'static str] {
        match self {
            Self::UpToDate => &[],
            Self::SwHardeningNeeded => &["INTEL-SA-SIMULATED-00002"],
            Self::OutOfDate => &["INTEL-SA-SIMULATED-00003", "INTEL-SA-SIMULATED-00004"],
            Self::Revoked => &[
                "INTEL-SA-SIMULATED-00003",
                "INTEL-SA-SIMULATED-00004",
                "INTEL-SA-SIMULATED-00005",
            ],
        }
    }
}
