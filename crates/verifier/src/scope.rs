//! Whether an acceptance covers the platform alone, or also the program that runs on it.

/// What an acceptance covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A genuine, current platform runs *some* program.
    Platform,
    /// It runs the program that the policy names, and the report data is the wanted one.
    Workload,
}

impl Scope {
    /// `platform` or `workload`.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Platform => "platform",
            Scope::Workload => "workload",
        }
    }
}

/// The conditions under which an acceptance covers the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeConditions {
    /// The policy tells this program from every other.
    pub(crate) names_program: bool,
    /// The report data was compared.
    pub(crate) bound: bool,
    /// The configuration digest of the claims was compared, where there are claims.
    pub(crate) configured: bool,
    /// Debug is off: anyone who can write the memory runs there what they like, whatever was measured.
    pub(crate) closed: bool,
}

impl ScopeConditions {
    pub(crate) fn scope(self) -> Scope {
        match self.missing_keys().next() {
            None => Scope::Workload,
            Some(_) => Scope::Platform,
        }
    }

    /// The keys of a policy that are missing for [`Scope::Workload`].
    pub(crate) fn missing_keys(self) -> impl Iterator<Item = &'static str> {
        let Self { names_program, bound, configured, closed } = self;
        [
            (names_program, "workload"),
            (configured, "config_digest"),
            (bound, "report_data"),
            (closed, "dangerous_accept_debug = false"),
        ]
        .into_iter()
        .filter_map(|(holds, key)| (!holds).then_some(key))
    }
}
