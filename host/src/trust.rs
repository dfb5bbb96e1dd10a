//! Write access to a path: only root may be able to write a file that root executes, and every directory and symbolic
//! link on the way to the file.
//!
//! The check is strict on purpose. Other users can write a directory with the sticky bit (/tmp). A group's write bit
//! passes only for root's group, and only without an access control list: with a list, that bit is the list's mask
//! (acl(5)).
//!
//! After this check, only root can change the path before the caller executes it. So the caller may execute the script
//! by its path instead of by an open descriptor. A descriptor would not do: it closes on exec, before the interpreter
//! of a `#!` line could read the script.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links that one check follows: as many as the kernel does (path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// The reason why root must not execute a path: the first obstacle on the way.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    #[error("{}: {who} can write it; only root may", path.display())]
    Written { path: PathBuf, who: Writer },
    #[error("{}: {source}", path.display())]
    Unseen { path: PathBuf, source: io::Error },
    #[error("{}: not an absolute path", path.display())]
    Relative { path: PathBuf },
    #[error("{}: too many symbolic links", path.display())]
    Links { path: PathBuf },
}

/// A user or group besides root who can write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Owner(u32),
    Everyone,
    Group(u32),
    /// A user or group in the file's access control list.
    Listed,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(uid) => write!(f, "its owner, uid {uid},"),
            Self::Everyone => f.write_str("everyone"),
            Self::Group(gid) => write!(f, "group {gid}"),
            Self::Listed => f.write_str("a user or group in its access control list"),
        }
    }
}

/// Checks the absolute path `path` and every directory and symbolic link on the way.
///
/// # Errors
/// [`Untrusted`]: `path` is relative, or has too many symbolic links; or the first element that other users can write,
/// that is missing, or that cannot be examined.
pub fn check(path: &Path) -> Result<(), Untrusted> {
    if !path.is_absolute() {
        return Err(Untrusted::Relative { path: path.to_owned() });
    }
    let seen = |at: &Path, source: io::Error| Untrusted::Unseen { path: at.to_owned(), source };
    let mut real = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    examine(&real, &fs::symlink_metadata(&real).map_err(|e| seen(&real, e))?)?;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        let meta = fs::symlink_metadata(&next).map_err(|e| seen(&next, e))?;
        if !meta.is_symlink() {
            examine(&next, &meta)?;
            real = next;
            continue;
        }
        // A user who can change the link can write the link's directory, which the loop examined above.
        links += 1;
        if links > MAX_LINKS {
            return Err(Untrusted::Links { path: path.to_owned() });
        }
        let target = fs::read_link(&next).map_err(|e| seen(&next, e))?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            rest.push_front(part);
        }
    }
    Ok(())
}

/// Returns the parts of a path that are names or `..`, without `/` and `.`.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn examine(path: &Path, meta: &Metadata) -> Result<(), Untrusted> {
    let has_acl = || {
        let mut none = [0u8; 0];
        rustix::fs::getxattr(path, "system.posix_acl_access", &mut none).is_ok()
    };
    match others(meta.uid(), meta.gid(), meta.mode(), has_acl) {
        Some(who) => Err(Untrusted::Written { path: path.to_owned(), who }),
        None => Ok(()),
    }
}

/// Returns who besides root can write a file of this owner, group and mode; `None`: only root. `has_acl` is called only
/// if the answer depends on it: it returns `true` if the file has an access control list.
fn others(uid: u32, gid: u32, mode: u32, has_acl: impl FnOnce() -> bool) -> Option<Writer> {
    if uid != 0 {
        Some(Writer::Owner(uid))
    } else if mode & 0o002 != 0 {
        Some(Writer::Everyone)
    } else if mode & 0o020 != 0 && gid != 0 {
        Some(Writer::Group(gid))
    } else if mode & 0o020 != 0 && has_acl() {
        Some(Writer::Listed)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_may_write() {
        for (uid, gid, mode, acl, expect) in [
            (0, 0, 0o755, false, None),
            (0, 5, 0o755, false, None),
            (0, 5, 0o755, true, None),
            (0, 0, 0o775, false, None),
            (0, 0, 0o775, true, Some("a user or group in its access control list")),
            (0, 5, 0o775, false, Some("group 5")),
            (0, 0, 0o757, false, Some("everyone")),
            (0, 0, 0o1777, false, Some("everyone")),
            (7, 0, 0o700, false, Some("its owner, uid 7,")),
        ] {
            let found = others(uid, gid, mode, || acl).map(|who| who.to_string());
            assert_eq!(found.as_deref(), expect, "{uid} {gid} {mode:o} {acl}");
        }
    }

    #[test]
    fn the_way_is_walked_through_links() {
        // /proc/self is a link made by root; its target exists, and for root no other user can write it.
        assert!(check(Path::new("/proc/../proc/version")).is_ok());
        assert!(check(Path::new("/nowhere/at/all")).unwrap_err().to_string().starts_with("/nowhere: "));
        assert!(check(Path::new("/tmp/x")).is_err());
        assert!(check(Path::new("proc/version")).unwrap_err().to_string().ends_with("not an absolute path"));
    }
}
