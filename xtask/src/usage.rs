//! A command line that cannot be meant so: an error whose status is not that of a failure.

use std::error::Error;
use std::fmt;

#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl Usage {
    pub(crate) const STATUS: u8 = 2;
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}
