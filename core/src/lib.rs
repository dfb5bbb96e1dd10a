//! See ARCHITECTURE.md.

pub mod duration;
pub mod hostlist;
pub mod idset;
pub mod parse;

pub use duration::Span;
pub use hostlist::HostList;
pub use idset::IdSet;
pub use parse::ParseError;
