//! Returns to the resource manager: releases, drains of hosts at fault, and the outbox of notices.

pub(in crate::controller) mod drain;
pub(in crate::controller) mod fault;
mod notices;
pub(in crate::controller) mod outbox;
pub(in crate::controller) mod release;
