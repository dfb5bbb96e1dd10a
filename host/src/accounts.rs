//! Users and groups of this host, as NSS knows them (files, LDAP, sssd). Every call may block for as long as NSS takes.

use std::ffi::CString;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist, getresgid, getresuid};

/// The account of a user: the user's passwd(5) entry and groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    /// Gid of the user's primary group.
    pub gid: u32,
    pub home: PathBuf,
    pub shell: PathBuf,
    /// Gids of all groups of the user, including the primary group (getgrouplist(3)).
    pub groups: Vec<u32>,
}

/// The reason why an account or a group is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    #[error("there is no user `{0}` on this host")]
    NoUser(String),
    #[error("there is no group `{0}` on this host")]
    NoGroup(String),
    /// The id 4294967295: setresuid(2) reads it as "leave unchanged", which would leave the process root.
    #[error("user `{0}` has the id 4294967295, or a group with that id, which no process can have")]
    NoId(String),
    #[error("cannot look up `{name}`: {source}")]
    Lookup { name: String, source: std::io::Error },
}

/// Returns the account of a name, or of a uid written as a number.
pub fn account(name: &str) -> Result<Account, AccountError> {
    let failed = |errno| lookup(name, errno);
    let found = match User::from_name(name).map_err(failed)? {
        Some(user) => Some(user),
        None => match name.parse() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)).map_err(failed)?,
            Err(_) => None,
        },
    };
    let user = found.ok_or_else(|| AccountError::NoUser(name.to_owned()))?;
    let c_name = CString::new(user.name.as_str()).map_err(|_| AccountError::NoUser(name.to_owned()))?;
    let groups = getgrouplist(&c_name, user.gid).map_err(failed)?;
    let ids = [user.uid.as_raw(), user.gid.as_raw()].into_iter().chain(groups.iter().map(|gid| gid.as_raw()));
    check_ids(&user.name, ids)?;
    Ok(Account {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        home: user.dir,
        shell: user.shell,
        groups: groups.into_iter().map(Gid::as_raw).collect(),
    })
}

fn check_ids(name: &str, mut ids: impl Iterator<Item = u32>) -> Result<(), AccountError> {
    if ids.any(|id| id == u32::MAX) { Err(AccountError::NoId(name.to_owned())) } else { Ok(()) }
}

/// Returns the real, effective and saved user ids of this thread, and its group ids.
pub fn own_ids() -> std::io::Result<([u32; 3], [u32; 3])> {
    let (uids, gids) = (getresuid()?, getresgid()?);
    Ok((
        [uids.real, uids.effective, uids.saved].map(Uid::as_raw),
        [gids.real, gids.effective, gids.saved].map(Gid::as_raw),
    ))
}

/// Returns the gid of a group's name, or of a gid written as a number (which need not have a name).
pub fn group_id(name: &str) -> Result<u32, AccountError> {
    match Group::from_name(name).map_err(|errno| lookup(name, errno))? {
        Some(group) => Ok(group.gid.as_raw()),
        None => name.parse().map_err(|_| AccountError::NoGroup(name.to_owned())),
    }
}

/// Returns the name of the user with this uid, or the number as text if the uid has no name. [`account`] reads both.
pub fn user_name(uid: u32) -> String {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Returns the name of the group with this gid, or the number as text if the gid has no name. [`group_id`] reads both.
pub fn group_name(gid: u32) -> String {
    let found = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    found.map_or_else(|| gid.to_string(), |group| group.name)
}

fn lookup(name: &str, errno: Errno) -> AccountError {
    AccountError::Lookup { name: name.to_owned(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_root_by_name_and_by_number() {
        let root = account("root").unwrap();
        assert_eq!((root.uid, root.gid, root.home.as_path()), (0, 0, std::path::Path::new("/root")));
        assert!(root.groups.contains(&0));
        assert_eq!(account("0").unwrap(), root);
        assert_eq!(group_id("root").unwrap(), 0);
        assert_eq!(group_id("4242").unwrap(), 4242);
        assert_eq!((user_name(0).as_str(), group_name(0).as_str()), ("root", "root"));
        assert_eq!(group_name(4_242_424_242), "4242424242", "a gid without a name");
    }

    #[test]
    fn an_account_of_the_id_that_means_as_it_is_is_refused() {
        assert!(check_ids("x", [0, 65534, u32::MAX - 1].into_iter()).is_ok());
        assert!(check_ids("x", [5, u32::MAX].into_iter()).unwrap_err().to_string().contains("4294967295"));
    }

    #[test]
    fn strangers_are_named() {
        for name in ["no-such-account", "", "4294967295", "-1", "a\0b", "99999999999"] {
            let error = account(name).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(group_id("no-such-group").unwrap_err().to_string().contains("no-such-group"));
    }
}
