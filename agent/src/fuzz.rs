//! Parsers of bytes from other programs that are private otherwise, for the fuzz targets of the workspace.

use perilog_core::task::StepRecord;
use perilog_host::varlink::WrongParameter;
use serde_json::value::RawValue;

use crate::{local, spool};

/// Returns the records in a task's file of steps.
pub fn steps(text: &[u8]) -> Vec<StepRecord> {
    spool::step_records(text)
}

/// Parses the parameters of a method of the local API; `None` for methods without parameters.
///
/// # Errors
/// The reason why the parameters are wrong.
pub fn parameters(method: &str, parameters: &RawValue) -> Option<Result<(), WrongParameter>> {
    local::check_parameters(method, parameters)
}
