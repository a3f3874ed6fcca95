//! The accounts for which answers are counted. They do not depend on the key of a session, because a
//! new key costs nothing.

use std::{collections::HashMap, fs::OpenOptions, io::Read, path::Path};

use sha2::{Digest, Sha256};

use super::trusted_file::open_trusted_file;
use crate::protocol::Refusal;

/// The greatest number of clients in one list.
const CLIENTS_MAX: usize = 4096;

/// The greatest length of the text of a list of clients, in bytes.
const LIST_BYTES_MAX: u64 = 1024 * 1024;

/// An account for which answers are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The account's id in a [`crate::CounterSlot`], which is never printed.
    pub id: [u8; 32],
    /// The account's name: from the list, or `attested` or `everyone` without a list.
    pub name: String,
    /// Whether the key holder's attestation was accepted; if so, it has no budget.
    pub attested: bool,
}

/// The clients that a host recognises by their credentials.
#[derive(Clone, Debug, Default)]
pub struct ClientList {
    /// The names, by the SHA-256 of the credential.
    known: HashMap<[u8; 32], String>,
}

/// The reason why a list of clients cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientListError {
    /// The file cannot be read, or others than its owner may write to it.
    #[error("clients: cannot be read: {reason}")]
    Read {
        /// The reason why the file is not read.
        reason: String,
    },
    /// The file is longer than a host supports.
    #[error("clients: wanted at most {LIST_BYTES_MAX} bytes, got more")]
    TooLong,
    /// The file names no client.
    #[error("clients: wanted at least one client, got none")]
    NoClient,
    /// A line is not a name and a digest.
    #[error("clients, line {line}: wanted a name and the SHA-256 of a credential in hexadecimal")]
    Line {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A line repeats a name or a digest.
    #[error("clients, line {line}: repeats the name or the credential of an earlier line")]
    Twice {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A line has the digest of the empty credential, which every client without a credential matches.
    #[error("clients, line {line}: wanted the SHA-256 of a credential, got that of an empty one")]
    Empty {
        /// The number of the line, from 1.
        line: usize,
    },
    /// The list has more clients than a host supports.
    #[error("clients: wanted at most {CLIENTS_MAX}, got more")]
    TooMany,
}

impl ClientList {
    /// Reads a list of at least one client from a file that nobody but its owner, this user or root, may
    /// write.
    ///
    /// # Errors
    /// If the file cannot be read or others may write to it, and as [`ClientList::parse`].
    pub fn read(path: &Path) -> Result<Self, ClientListError> {
        let unreadable =
            |error: std::io::Error| ClientListError::Read { reason: error.to_string() };
        let path = path.canonicalize().map_err(unreadable)?;
        let file = open_trusted_file(&path, OpenOptions::new().read(true)).map_err(unreadable)?;
        let mut text = String::new();
        file.take(LIST_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > LIST_BYTES_MAX {
            return Err(ClientListError::TooLong);
        }
        let clients = Self::parse(&text)?;
        if clients.is_empty() { Err(ClientListError::NoClient) } else { Ok(clients) }
    }

    /// Parses a list. Each line has a name and the SHA-256 of a credential, 64 hexadecimal digits; `#`
    /// starts a comment.
    ///
    /// # Errors
    /// If a line is malformed, or repeats a name or a digest.
    pub fn parse(text: &str) -> Result<Self, ClientListError> {
        let mut known = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            let (Some(name), digest) = (words.next(), words.next()) else { continue };
            let digest = digest.and_then(digest_from_hex).filter(|_| words.next().is_none());
            let digest = digest.ok_or(ClientListError::Line { line: line_number })?;
            if digest == <[u8; 32]>::from(Sha256::digest(b"")) {
                return Err(ClientListError::Empty { line: line_number });
            }
            if known.values().any(|other| other == name) || known.contains_key(&digest) {
                return Err(ClientListError::Twice { line: line_number });
            }
            known.insert(digest, name.to_owned());
            if known.len() > CLIENTS_MAX {
                return Err(ClientListError::TooMany);
            }
        }
        Ok(Self { known })
    }

    /// Returns whether the list has no clients.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The name of the client with this credential.
    pub fn name_of(&self, credential: &[u8]) -> Option<&str> {
        // Only digests are compared, so the time reveals nothing about the credential.
        let digest: [u8; 32] = Sha256::digest(credential).into();
        self.known.get(&digest).map(String::as_str)
    }

    /// The account of a client. Without a list, all clients whose attestation was not accepted share
    /// one.
    ///
    /// # Errors
    /// [`Refusal::UnknownAdapter`] if there is a list, and the credential is none of its clients'.
    pub fn account(&self, credential: &[u8], attested: bool) -> Result<Account, Refusal> {
        let name = match self.known.is_empty() {
            true if attested => "attested",
            true => "everyone",
            false => self.name_of(credential).ok_or(Refusal::UnknownAdapter)?,
        };
        let mut hash = Sha256::new();
        hash.update(b"confide lora account v1");
        hash.update([u8::from(self.known.is_empty())]);
        hash.update(name.as_bytes());
        Ok(Account { id: hash.finalize().into(), name: name.to_owned(), attested })
    }
}

pub(super) fn digest_from_hex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn digest(credential: &[u8]) -> String {
        Sha256::digest(credential).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_digest_of_no_credential_names_no_client() {
        let text = format!("anna {}\nbert {}\n", digest(b"secret"), digest(b""));
        assert_eq!(ClientList::parse(&text).unwrap_err(), ClientListError::Empty { line: 2 });
    }

    #[test]
    fn without_a_list_everyone_shares_one_account() {
        let clients = ClientList::default();
        let first = clients.account(b"", false).unwrap();
        assert_eq!(clients.account(b"another", false).unwrap(), first);
        assert_ne!(clients.account(b"", true).unwrap().id, first.id);
    }

    #[test]
    fn with_a_list_each_client_has_its_own_and_strangers_none() {
        let text = format!("# the bank's\nalice {}\nbob {}\n\n", digest(b"a"), digest(b"b"));
        let clients = ClientList::parse(&text).unwrap();
        let alice = clients.account(b"a", false).unwrap();
        assert_eq!(alice.name, "alice");
        assert_ne!(clients.account(b"b", false).unwrap().id, alice.id);
        assert_eq!(clients.account(b"a", true).unwrap().id, alice.id);
        assert_eq!(clients.account(b"c", false), Err(Refusal::UnknownAdapter));
        assert_eq!(clients.account(b"", true), Err(Refusal::UnknownAdapter));
    }

    #[test]
    fn a_list_that_is_not_one_is_refused_by_its_line() {
        let good = digest(b"a");
        for (text, error) in [
            ("alice".to_owned(), ClientListError::Line { line: 1 }),
            (format!("\nalice {good} more"), ClientListError::Line { line: 2 }),
            (format!("alice {}", &good[1..]), ClientListError::Line { line: 1 }),
            (format!("alice {good}\nbob {good}"), ClientListError::Twice { line: 2 }),
            (format!("alice {good}\nalice {}", digest(b"b")), ClientListError::Twice { line: 2 }),
        ] {
            assert_eq!(ClientList::parse(&text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn a_list_is_read_from_a_file_that_only_its_owner_may_write() {
        let name = format!("confide-clients-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, format!("alice {}\n", digest(b"a"))).unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o644);
        assert_eq!(ClientList::read(&path).unwrap().name_of(b"a"), Some("alice"));
        set_mode(0o646);
        let refused = ClientList::read(&path).unwrap_err();
        assert!(refused.to_string().contains("got mode 646"), "{refused}");
        set_mode(0o600);
        std::fs::write(&path, "# nobody\n").unwrap();
        assert_eq!(ClientList::read(&path).unwrap_err(), ClientListError::NoClient);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(ClientList::read(&path), Err(ClientListError::Read { .. })));
    }
}
