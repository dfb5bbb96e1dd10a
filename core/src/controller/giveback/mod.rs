//! Returns to the resource manager: releases, drains of hosts at fault, and the outbox of notices.

pub(crate) mod drain;
pub(crate) mod fault;
mod notices;
pub(crate) mod outbox;
pub(crate) mod release;
