//! Terms of a job (how many failed ranks it tolerates, `attributes.system.perilog` in its jobspec), and the cap of the
//! site. The plugin reads the terms at submit; the edge reads them when the job has its ranks. This crate has no
//! dependencies, does no I/O, and accepts any input without a panic.
//!
//! ```
//! use perilog_terms::{Cap, Count, Terms};
//!
//! let terms = Terms::read(r#"{"tolerate": 2, "tolerate-check": {"lustre": "10%"}}"#).unwrap();
//! assert_eq!(terms.tolerate, Some(Count::Ranks(2)));
//! assert_eq!(terms.checks["lustre"].to_string(), "10%");
//!
//! let cap = Cap::read(r#"{"max-tolerate": 1}"#).unwrap();
//! assert_eq!(terms.check(&cap).unwrap_err(), "perilog.tolerate: 2 is more than the limit of this site, 1");
//! ```

mod count;
pub mod json;
mod site;
mod size;
mod terms;

pub use count::Count;
pub use site::{Epilog, Site};
pub use terms::{Cap, Forgiven, Terms};
