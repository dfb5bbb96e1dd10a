//! Users and groups of this host, as NSS knows them (files, LDAP, sssd). Every call may block for as long as NSS takes.

use std::path::PathBuf;

/// One account: passwd(5) and its supplementary groups (getgrouplist(3)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
    pub shell: PathBuf,
    pub groups: Vec<u32>,
}

/// Why an account or a group is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {}

/// The account of a name, or of a uid written as a number.
pub fn account(_name: &str) -> Result<Account, AccountError> {
    todo!()
}

/// The gid of a group's name, or of a gid written as a number.
pub fn group_id(_name: &str) -> Result<u32, AccountError> {
    todo!()
}
