//! The entries of the tree and the kernel's operations on them, without any file system.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use confide_evidence::ReportData;
use fuser::Errno;

use super::tree::{TsmFault, TsmProvider, TsmTree};

/// The longest inblob in bytes: `TSM_REPORT_INBLOB_MAX`.
const INBLOB_MAX: usize = 64;
/// The longest outblob in bytes: `TSM_REPORT_OUTBLOB_MAX` up to Linux 6.17.
const OUTBLOB_MAX: usize = 32 * 1024;
/// The highest privilege level: `TSM_REPORT_PRIVLEVEL_MAX`.
const PRIVLEVEL_MAX: u64 = 3;
/// The level at which the guest runs: the highest.
const PRIVLEVEL_FLOOR: u64 = 0;
/// The most entries: the kernel's limit is its memory; a program that makes more has lost its way.
const ENTRIES_MAX: usize = 4096;

/// An attribute of an entry, in the order in which a folder lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    Generation,
    Provider,
    Inblob,
    Outblob,
    Privlevel,
    PrivlevelFloor,
    Auxblob,
    ServiceProvider,
    ServiceGuid,
    ServiceManifestVersion,
    Manifestblob,
}

use Attribute::*;

impl Attribute {
    const ALL: [Self; 11] = [
        Generation,
        Provider,
        Inblob,
        Outblob,
        Privlevel,
        PrivlevelFloor,
        Auxblob,
        ServiceProvider,
        ServiceGuid,
        ServiceManifestVersion,
        Manifestblob,
    ];

    /// The attribute with this number.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    pub(super) fn number(self) -> u64 {
        self as u64
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Generation => "generation",
            Provider => "provider",
            Inblob => "inblob",
            Outblob => "outblob",
            Privlevel => "privlevel",
            PrivlevelFloor => "privlevel_floor",
            Auxblob => "auxblob",
            ServiceProvider => "service_provider",
            ServiceGuid => "service_guid",
            ServiceManifestVersion => "service_manifest_version",
            Manifestblob => "manifestblob",
        }
    }

    /// Whether the attribute is written; one that is written is never read.
    pub(super) fn is_write_only(self) -> bool {
        matches!(self, Inblob | Privlevel | ServiceProvider | ServiceGuid | ServiceManifestVersion)
    }
}

/// All entries, and the source of their reports.
pub(super) struct Reports {
    source: TsmTree,
    entries: BTreeMap<u64, Entry>,
    made: u64,
    pub(super) fault: Option<TsmFault>,
}

#[derive(Default)]
struct Entry {
    name: OsString,
    inblob: Vec<u8>,
    privlevel: u64,
    service_provider: Vec<u8>,
    writes: u64,
    report: Option<CachedReport>,
}

struct CachedReport {
    generation: u64,
    outblob: Vec<u8>,
}

impl Reports {
    pub(super) fn new(source: TsmTree) -> Self {
        Self { source, entries: BTreeMap::new(), made: 0, fault: None }
    }

    /// A panic elsewhere leaves the entries whole.
    pub(super) fn lock(reports: &Mutex<Self>) -> MutexGuard<'_, Self> {
        reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (u64, &OsStr)> {
        self.entries.iter().map(|(id, entry)| (*id, entry.name.as_os_str()))
    }

    pub(super) fn find(&self, name: &OsStr) -> Option<u64> {
        self.names().find(|(_, taken)| *taken == name).map(|(id, _)| id)
    }

    pub(super) fn has_entry(&self, id: u64) -> bool {
        self.entries.contains_key(&id)
    }

    /// The attributes that an entry shows, as `report_attr_visible` of the two drivers decides.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Attribute> + '_ {
        let sev = self.source.provider == TsmProvider::Sev;
        let services = sev && self.source.services;
        Attribute::ALL.into_iter().filter(move |attribute| match attribute {
            Generation | Provider | Inblob | Outblob => true,
            Privlevel | PrivlevelFloor | Auxblob => sev,
            ServiceProvider | ServiceGuid | ServiceManifestVersion | Manifestblob => services,
        })
    }

    /// Makes an entry: `mkdir report/NAME`.
    pub(super) fn create_entry(&mut self, name: &OsStr) -> Result<u64, Errno> {
        if self.fault == Some(TsmFault::Unloaded) {
            return Err(Errno::ENXIO);
        }
        if self.find(name).is_some() {
            return Err(Errno::EEXIST);
        }
        if self.entries.len() >= ENTRIES_MAX {
            return Err(Errno::ENOMEM);
        }
        self.made += 1;
        self.entries.insert(self.made, Entry { name: name.into(), ..Entry::default() });
        Ok(self.made)
    }

    /// Removes an entry: `rmdir report/NAME`.
    pub(super) fn remove(&mut self, name: &OsStr) -> Result<(), Errno> {
        let id = self.find(name).ok_or(Errno::ENOENT)?;
        self.entries.remove(&id);
        Ok(())
    }

    /// The whole content that a read of an attribute gives.
    pub(super) fn read(&mut self, id: u64, attribute: Attribute) -> Result<Vec<u8>, Errno> {
        let entry = self.entries.get(&id).ok_or(Errno::ENOENT)?;
        match attribute {
            Generation => Ok(format!("{}\n", entry.writes).into()),
            Provider => self.provider(),
            PrivlevelFloor => Ok(format!("{PRIVLEVEL_FLOOR}\n").into()),
            Outblob => self.outblob(id),
            Auxblob => self.outblob(id).map(|_| self.source.auxblob.clone()),
            Manifestblob => self.outblob(id).map(|_| Vec::new()),
            _ => Err(Errno::EACCES),
        }
    }

    /// Checks that a binary attribute can have this many bytes: configfs refuses when they are
    /// written.
    pub(super) fn check_length(attribute: Attribute, length: usize) -> Result<(), Errno> {
        match attribute {
            Inblob if length > INBLOB_MAX => Err(Errno::EFBIG),
            _ => Ok(()),
        }
    }

    /// Writes an attribute of an entry.
    pub(super) fn write(
        &mut self,
        id: u64,
        attribute: Attribute,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        Self::check_length(attribute, bytes.len())?;
        let entry = self.entries.get_mut(&id).ok_or(Errno::ENOENT)?;
        match attribute {
            Inblob => entry.inblob = bytes.into(),
            Privlevel => {
                let level = parse_number(bytes)?;
                if !(PRIVLEVEL_FLOOR..=PRIVLEVEL_MAX).contains(&level) {
                    return Err(Errno::EINVAL);
                }
                entry.privlevel = level;
            }
            ServiceProvider => {
                entry.service_provider = bytes.strip_suffix(b"\n").unwrap_or(bytes).into();
            }
            ServiceGuid => check_guid(bytes)?,
            ServiceManifestVersion => drop(parse_number(bytes)?),
            _ => return Err(Errno::EACCES),
        }
        entry.writes += 1;
        Ok(())
    }

    fn provider(&self) -> Result<Vec<u8>, Errno> {
        let name = match (&self.fault, self.source.provider) {
            (Some(TsmFault::Unloaded), _) => return Err(Errno::ENXIO),
            (Some(TsmFault::Provider(name)), _) => name,
            (_, TsmProvider::Tdx) => "tdx_guest",
            (_, TsmProvider::Sev) => "sev_guest",
        };
        Ok(format!("{name}\n").into())
    }

    /// The report of an entry; made now if none belongs to the last write.
    fn outblob(&mut self, id: u64) -> Result<Vec<u8>, Errno> {
        let entry = self.entries.get(&id).ok_or(Errno::ENOENT)?;
        if entry.inblob.is_empty() {
            return Err(Errno::EINVAL);
        }
        if let Some(made) = &entry.report
            && made.generation == entry.writes
        {
            return Ok(made.outblob.clone());
        }
        self.apply_fault(id)?;
        let entry = self.entries.get_mut(&id).ok_or(Errno::ENOENT)?;
        let mut asked = report_data(entry, self.source.provider)?;
        if self.fault == Some(TsmFault::ForeignReportData) {
            asked.0[63] ^= 1;
        }
        let mut outblob = (self.source.report)(&asked);
        match &self.fault {
            Some(TsmFault::Empty) => outblob.clear(),
            Some(TsmFault::Short) => drop(outblob.pop()),
            Some(TsmFault::TooBig) => outblob.resize(OUTBLOB_MAX + 1, 0),
            _ => {}
        }
        if outblob.len() > OUTBLOB_MAX {
            return Err(Errno::EFBIG);
        }
        entry.report = Some(CachedReport { generation: entry.writes, outblob: outblob.clone() });
        Ok(outblob)
    }

    /// Applies the fault that strikes before a report is made.
    fn apply_fault(&mut self, id: u64) -> Result<(), Errno> {
        match &mut self.fault {
            Some(TsmFault::Unloaded) => Err(Errno::ENXIO),
            Some(TsmFault::Busy(times)) if *times > 0 => {
                *times -= 1;
                Err(Errno::EBUSY)
            }
            Some(TsmFault::Race(times)) if *times > 0 => {
                *times -= 1;
                self.write(id, Inblob, &[0x55; INBLOB_MAX])
            }
            Some(TsmFault::Slow(time)) => {
                // With the lock held, as the kernel waits for the host.
                thread::sleep(*time);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The report data that the entry asks for, checked as the two drivers do (`tdx_report_new`,
/// `sev_report_new`).
fn report_data(entry: &Entry, provider: TsmProvider) -> Result<ReportData, Errno> {
    let data = <[u8; INBLOB_MAX]>::try_from(entry.inblob.as_slice());
    let data = ReportData(data.map_err(|_| Errno::EINVAL)?);
    match provider {
        TsmProvider::Tdx if entry.privlevel != 0 => Err(Errno::EINVAL),
        TsmProvider::Sev if entry.service_provider == b"svsm" => Err(Errno::EIO),
        TsmProvider::Sev if !entry.service_provider.is_empty() => Err(Errno::EINVAL),
        _ => Ok(data),
    }
}

/// Reads a number as `kstrtouint` with base 0: decimal, `0x` or octal, with at most one newline at
/// the end.
fn parse_number(bytes: &[u8]) -> Result<u64, Errno> {
    let text = std::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let (digits, base) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    u32::from_str_radix(digits, base).map(u64::from).map_err(|_| Errno::EINVAL)
}

/// Checks the form of a GUID: eight, four, four, four and twelve hexadecimal digits.
fn check_guid(bytes: &[u8]) -> Result<(), Errno> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let well_formed = text.len() == 36
        && text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    well_formed.then_some(()).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(provider: TsmProvider) -> (Reports, u64) {
        let tree = TsmTree::with_reports(provider, |data| data.0.to_vec());
        let mut reports = Reports::new(tree.with_auxblob(b"certificates".into()));
        let id = reports.create_entry("a".as_ref()).unwrap();
        (reports, id)
    }

    #[test]
    fn a_report_is_made_once_for_each_write() {
        let (mut reports, id) = reports(TsmProvider::Sev);
        assert_eq!(reports.read(id, Outblob), Err(Errno::EINVAL));
        reports.write(id, Inblob, &[1; 64]).unwrap();
        assert_eq!(reports.read(id, Outblob).unwrap(), [1; 64]);
        assert_eq!(reports.read(id, Auxblob).unwrap(), b"certificates");
        reports.write(id, Inblob, &[2; 64]).unwrap();
        assert_eq!(reports.read(id, Outblob).unwrap(), [2; 64]);
        assert_eq!(reports.read(id, Generation).unwrap(), b"2\n");
    }

    #[test]
    fn wrong_lengths_and_levels_are_refused_where_the_kernel_refuses_them() {
        let (mut tdx, id) = reports(TsmProvider::Tdx);
        assert_eq!(tdx.write(id, Inblob, &[1; 65]), Err(Errno::EFBIG));
        assert_eq!(tdx.read(id, Generation).unwrap(), b"0\n");
        tdx.write(id, Inblob, &[1; 63]).unwrap();
        assert_eq!(tdx.read(id, Outblob), Err(Errno::EINVAL));
        let (mut sev, id) = reports(TsmProvider::Sev);
        for (level, outcome) in
            [("0", Ok(())), ("0x3\n", Ok(())), ("4", Err(Errno::EINVAL)), ("x", Err(Errno::EINVAL))]
        {
            assert_eq!(sev.write(id, Privlevel, level.as_bytes()), outcome, "{level}");
        }
        assert_eq!(sev.read(id, Generation).unwrap(), b"2\n");
    }

    #[test]
    fn an_entry_shows_what_its_driver_offers() {
        let names = |tree: &Reports| tree.attributes().map(Attribute::name).collect::<Vec<_>>();
        let (tdx, _) = reports(TsmProvider::Tdx);
        assert_eq!(names(&tdx), ["generation", "provider", "inblob", "outblob"]);
        let (sev, _) = reports(TsmProvider::Sev);
        assert_eq!(names(&sev)[4..], ["privlevel", "privlevel_floor", "auxblob"]);
        let services =
            TsmTree::with_reports(TsmProvider::Sev, |_| Vec::new()).with_service_attributes();
        assert_eq!(names(&Reports::new(services)).len(), 11);
        for (number, attribute) in Attribute::ALL.into_iter().enumerate() {
            assert_eq!(Attribute::from_number(number as u64), Some(attribute));
            assert_eq!(attribute.number(), number as u64);
        }
    }

    #[test]
    fn services_are_checked_and_not_simulated() {
        let tree = TsmTree::with_reports(TsmProvider::Sev, |data| data.0.to_vec())
            .with_service_attributes();
        let mut reports = Reports::new(tree);
        let id = reports.create_entry("a".as_ref()).unwrap();
        reports.write(id, Inblob, &[1; 64]).unwrap();
        let guid = b"c476f1eb-0123-45a5-9641-b4e7dde5bfe3";
        reports.write(id, ServiceGuid, guid).unwrap();
        assert_eq!(reports.write(id, ServiceGuid, &guid[1..]), Err(Errno::EINVAL));
        reports.write(id, ServiceProvider, b"svsm\n").unwrap();
        assert_eq!(reports.read(id, Outblob), Err(Errno::EIO));
        reports.write(id, ServiceProvider, b"other").unwrap();
        assert_eq!(reports.read(id, Outblob), Err(Errno::EINVAL));
    }

    #[test]
    fn entries_come_and_go_by_their_names() {
        let (mut reports, id) = reports(TsmProvider::Tdx);
        assert_eq!(reports.create_entry("a".as_ref()), Err(Errno::EEXIST));
        reports.remove("a".as_ref()).unwrap();
        assert_eq!(reports.remove("a".as_ref()), Err(Errno::ENOENT));
        assert_eq!(reports.read(id, Generation), Err(Errno::ENOENT));
        reports.fault = Some(TsmFault::Unloaded);
        assert_eq!(reports.create_entry("a".as_ref()), Err(Errno::ENXIO));
    }
}
