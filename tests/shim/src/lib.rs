//! A library for `LD_PRELOAD`: it records the calls by which a program changes files below one directory, and lets such
//! calls fail. Packages do not contain it.
//!
//! | variable | meaning |
//! |---|---|
//! | `PERILOG_SHIM_DIRECTORY` | the directory, as realpath(3) prints it; without it the shim only passes calls on |
//! | `PERILOG_SHIM_RECORD` | file to which the record is appended ([`record`]) |
//! | `PERILOG_SHIM_FAILS` | `4 controller.db`: the fourth sync of that file fails with EIO; `4 any`: of all files |
//! | `PERILOG_SHIM_FAULTS` | file that a test writes and removes while the program runs ([`faults`]) |
//!
//! Several processes may append to one record: an entry is one write(2). A test appends its own marks in the same way,
//! for example when it has received a reply. So the order of the record is the order in which things happened.
//!
//! A sync only counts: the disk is a model. The shim does not see writes through a mapping (SQLite maps only its
//! `-shm`, whose contents the first connection after a cut makes again), nor calls that avoid the C library (rustix).
//! A test compares the model with the real files at the end, so such a call does not go unnoticed.

mod calls;
mod faults;
#[allow(unreachable_pub, reason = "another package reads what the shim writes, with the same file")]
mod record;
mod recorder;
