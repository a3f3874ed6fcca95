//! The tree as FUSE sees it: inode numbers, open files, and the behaviour of configfs with them.

use std::{
    collections::HashMap,
    ffi::OsStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::entry::{Attribute, Reports};

/// The time for which the kernel may cache: none, because entries and their contents change under
/// it.
const TTL: Duration = Duration::ZERO;
/// The most open files: programs hold a file open for one read or write.
const OPEN_FILES_MAX: usize = 4096;

const REPORT: u64 = 2;
/// The first inode of entries: an entry's folder has number `FIRST + 16 * id`, and its attributes
/// follow.
const FIRST: u64 = 16;
const NUMBERS: u64 = 16;

pub(super) struct TreeFilesystem {
    reports: Arc<Mutex<Reports>>,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    open: HashMap<u64, OpenFile>,
    opened: u64,
}

/// An open attribute. Its content is read once; what is written waits for the close.
struct OpenFile {
    id: u64,
    attribute: Attribute,
    read: Option<Vec<u8>>,
    written: Option<Vec<u8>>,
}

enum TreeNode {
    Root,
    Report,
    Entry(u64),
    Attribute(u64, Attribute),
}

impl TreeFilesystem {
    pub(super) fn new(reports: Arc<Mutex<Reports>>) -> Self {
        Self { reports, files: Mutex::default() }
    }

    fn lock_reports(&self) -> MutexGuard<'_, Reports> {
        Reports::lock(&self.reports)
    }

    fn lock_files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Option<u64> {
        match decode_inode(parent)? {
            TreeNode::Root => (name == "report").then_some(REPORT),
            TreeNode::Report => self.lock_reports().find(name).map(folder_inode),
            TreeNode::Entry(id) => {
                let reports = self.lock_reports();
                let mut shown = reports.attributes();
                let found = shown.find(|attribute| name == attribute.name())?;
                reports.has_entry(id).then(|| file_inode(id, found))
            }
            TreeNode::Attribute(..) => None,
        }
    }

    fn attr(&self, inode: INodeNo, request: &Request) -> Option<FileAttr> {
        let (kind, perm) = match decode_inode(inode)? {
            TreeNode::Root | TreeNode::Report => (FileType::Directory, 0o755),
            TreeNode::Entry(id) => {
                self.lock_reports().has_entry(id).then_some((FileType::Directory, 0o755))?
            }
            TreeNode::Attribute(id, attribute) => {
                let perm = if attribute.is_write_only() { 0o200 } else { 0o444 };
                self.lock_reports().has_entry(id).then_some((FileType::RegularFile, perm))?
            }
        };
        let (uid, gid) = (request.uid(), request.gid());
        Some(FileAttr {
            ino: inode,
            // A size would have to be known before the report is made; reads go past it.
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn reply_with_entry(&self, inode: u64, request: &Request, reply: ReplyEntry) {
        match self.attr(INodeNo(inode), request) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn list_directory(&self, inode: INodeNo) -> Option<Vec<(u64, FileType, String)>> {
        let folder_named = |inode, name: &str| (inode, FileType::Directory, name.to_owned());
        let mut list = vec![folder_named(inode.0, "."), folder_named(1, "..")];
        match decode_inode(inode)? {
            TreeNode::Root => list.push(folder_named(REPORT, "report")),
            TreeNode::Report => {
                let reports = self.lock_reports();
                list.extend(
                    reports
                        .names()
                        .map(|(id, name)| folder_named(folder_inode(id), &name.to_string_lossy())),
                );
            }
            TreeNode::Entry(id) => {
                let reports = self.lock_reports();
                list.extend(reports.attributes().map(|attribute| {
                    (file_inode(id, attribute), FileType::RegularFile, attribute.name().to_owned())
                }));
            }
            TreeNode::Attribute(..) => return None,
        }
        Some(list)
    }

    fn open_file(&self, inode: INodeNo, flags: OpenFlags) -> Result<u64, Errno> {
        let Some(TreeNode::Attribute(id, attribute)) = decode_inode(inode) else {
            return Err(Errno::EISDIR);
        };
        if !self.lock_reports().has_entry(id) {
            return Err(Errno::ENOENT);
        }
        let allowed = match flags.acc_mode() {
            OpenAccMode::O_RDONLY => !attribute.is_write_only(),
            OpenAccMode::O_WRONLY => attribute.is_write_only(),
            OpenAccMode::O_RDWR => false,
        };
        let mut files = self.lock_files();
        match (allowed, files.open.len() < OPEN_FILES_MAX) {
            (false, _) => Err(Errno::EACCES),
            (true, false) => Err(Errno::ENFILE),
            (true, true) => {
                files.opened += 1;
                let number = files.opened;
                files.open.insert(number, OpenFile { id, attribute, read: None, written: None });
                Ok(number)
            }
        }
    }

    /// The whole attribute, fetched at the first read of an open file.
    fn contents(&self, file: FileHandle) -> Result<Vec<u8>, Errno> {
        let (id, attribute) = match self.lock_files().open.get(&file.0) {
            None => return Err(Errno::EBADF),
            Some(OpenFile { read: Some(bytes), .. }) => return Ok(bytes.clone()),
            Some(open) => (open.id, open.attribute),
        };
        let bytes = self.lock_reports().read(id, attribute)?;
        if let Some(open) = self.lock_files().open.get_mut(&file.0) {
            open.read = Some(bytes.clone());
        }
        Ok(bytes)
    }

    fn buffer_write(&self, file: FileHandle, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut files = self.lock_files();
        let open = files.open.get_mut(&file.0).ok_or(Errno::EBADF)?;
        if open.attribute != Attribute::Inblob {
            // Text attributes take effect, and answer, at once.
            return self.lock_reports().write(open.id, open.attribute, data);
        }
        let offset = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let end = offset.checked_add(data.len()).ok_or(Errno::EFBIG)?;
        Reports::check_length(open.attribute, end)?;
        let written = open.written.get_or_insert_default();
        written.resize(written.len().max(end), 0);
        written[offset..end].copy_from_slice(data);
        Ok(())
    }

    /// Applies what was written; configfs drops the outcome, so this does too.
    fn commit_write(&self, file: FileHandle) {
        let written = self.lock_files().open.get_mut(&file.0).and_then(|open| {
            let bytes = open.written.take()?;
            Some((open.id, open.attribute, bytes))
        });
        if let Some((id, attribute, bytes)) = written {
            let _ = self.lock_reports().write(id, attribute, &bytes);
        }
    }
}

impl Filesystem for TreeFilesystem {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Some(inode) => self.reply_with_entry(inode, request, reply),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        request: &Request,
        inode: INodeNo,
        _file: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attr(inode, request) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Truncating on open changes nothing, as in configfs.
    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(request, inode, None, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = match decode_inode(parent) {
            Some(TreeNode::Report) => self.lock_reports().create_entry(name),
            _ => Err(Errno::EPERM),
        };
        match made {
            Ok(id) => self.reply_with_entry(folder_inode(id), request, reply),
            Err(error) => reply.error(error),
        }
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = match decode_inode(parent) {
            Some(TreeNode::Report) => self.lock_reports().remove(name),
            _ => Err(Errno::EPERM),
        };
        match removed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(inode, flags) {
            Ok(number) => reply.opened(FileHandle(number), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.contents(file) {
            Ok(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(size as usize).min(bytes.len());
                reply.data(&bytes[from..to]);
            }
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.buffer_write(file, offset, data) {
            // The kernel does not send more than a page of an attribute.
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        file: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.commit_write(file);
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.commit_write(file);
        self.lock_files().open.remove(&file.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _file: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(list) = self.list_directory(inode) else { return reply.error(Errno::ENOTDIR) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (inode, kind, name)) in list.into_iter().enumerate().skip(from) {
            if reply.add(INodeNo(inode), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

fn folder_inode(id: u64) -> u64 {
    FIRST + NUMBERS * id
}

fn file_inode(id: u64, attribute: Attribute) -> u64 {
    folder_inode(id) + 1 + attribute.number()
}

fn decode_inode(inode: INodeNo) -> Option<TreeNode> {
    match inode.0 {
        1 => Some(TreeNode::Root),
        REPORT => Some(TreeNode::Report),
        number => {
            let number = number.checked_sub(FIRST)?;
            let (id, within) = (number / NUMBERS, number % NUMBERS);
            match within {
                0 => Some(TreeNode::Entry(id)),
                within => {
                    Attribute::from_number(within - 1).map(|found| TreeNode::Attribute(id, found))
                }
            }
        }
    }
}
