//! Lists in pages: `Drains`, `Nodes`, `Ps` and `Recover`. Each reply has at most 64 KiB, or one row that is longer.
//! With `more` all pages come, one reply each. Without it, the first page comes, and `truncated` says that there are
//! more.
//!
//! The machine makes each page of drains and nodes when the page before is written, so a client that reads slowly keeps
//! one page in memory. The rows of `Ps` and `Recover` have no order in which the machine could begin in the middle: it
//! makes them once for each call.

use std::collections::VecDeque;

use perilog_core::controller::io::{Reply, Request};
use perilog_core::controller::view::{DrainView, PAGE_BYTES, PsRow, RecoveryView};
use perilog_core::{HostList, HostName};
use perilog_host::varlink::{Call, Gone};
use serde_json::{Value, json};

use super::{Api, refuse, request, to_json, value};

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    let more = call.more;
    let Some((mut request, peer, mut reply)) = request::read(call, api.max_hosts).await? else { return Ok(()) };
    loop {
        let answer = match api.answer(&peer, request.clone()).await {
            Ok(answer) => answer,
            Err(refusal) => return refuse(reply, &refusal).await,
        };
        let next = next(&answer);
        let mut pages = Pages::of(answer);
        loop {
            let mut page = pages.page();
            let is_last = pages.is_over() && next.is_none();
            if !more || is_last {
                if pages.is_list {
                    page["truncated"] = json!(!is_last);
                }
                return reply.done(page).await;
            }
            reply.more(page).await?;
            if pages.is_over() {
                break;
            }
        }
        go_on(&mut request, next);
    }
}

/// Returns the host after which the machine's next page begins; `None`: no page follows.
fn next(answer: &Reply) -> Option<HostName> {
    match answer {
        Reply::Drains { next, .. } | Reply::Nodes { next, .. } => next.clone(),
        _ => None,
    }
}

fn go_on(request: &mut Request, next: Option<HostName>) {
    if let Request::Drains { after, .. } | Request::Nodes { after, .. } = request {
        *after = next;
    }
}

/// Returns the rows, each with its hosts in natural order (n2 before n10), which makes the shortest text. The caller's
/// thread does this instead of the machine.
pub(super) fn drains(mut drains: Vec<DrainView>) -> Vec<DrainView> {
    drains.iter_mut().for_each(|row| row.hosts = HostList::sorted(row.hosts.iter()));
    drains
}

/// A row of a list that goes on over several pages.
enum Row {
    Ps(PsRow),
    /// A row of the list with this name in the reply of `Recover`.
    Recovery(&'static str, Value),
}

/// The pages of a reply of the machine.
struct Pages {
    /// The first page of the reply without its rows; `None`: this page was returned.
    first: Option<Value>,
    /// Each later page without its rows.
    later: Value,
    rows: VecDeque<Row>,
    /// `false` for a reply that has no list, such as that of a `Recover` that takes the cluster over.
    is_list: bool,
}

impl Pages {
    fn of(answer: Reply) -> Self {
        match answer {
            Reply::Ps { rows, notes } => Self {
                first: Some(json!({ "rows": [], "notes": notes })),
                later: json!({ "rows": [], "notes": [] }),
                rows: rows.into_iter().map(Row::Ps).collect(),
                is_list: true,
            },
            Reply::Recovery(view) => {
                let RecoveryView { abandoned, unknown, .. } = *view.clone();
                let rows = abandoned.iter().map(|row| Row::Recovery("abandoned", to_json(row)));
                let rows = rows.chain(unknown.iter().map(|row| Row::Recovery("unknown", to_json(row)))).collect();
                let head = |view| json!({ "recovery": view });
                let first = RecoveryView { abandoned: Vec::new(), unknown: Vec::new(), ..*view };
                let later = RecoveryView { suspects: HostList::new(), ..first.clone() };
                Self { first: Some(head(first)), later: head(later), rows, is_list: true }
            }
            // The machine bounds these.
            answer => {
                let is_list = matches!(answer, Reply::Drains { .. } | Reply::Nodes { .. });
                Self { first: Some(value(answer)), later: Value::Null, rows: VecDeque::new(), is_list }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.first.is_none() && self.rows.is_empty()
    }

    /// Returns the next page: as many rows as it has room for, and one at least if one is left.
    fn page(&mut self) -> Value {
        let mut page = self.first.take().unwrap_or_else(|| self.later.clone());
        let mut left = PAGE_BYTES.saturating_sub(size(&page));
        let mut is_first = true;
        while let Some(row) = self.rows.pop_front() {
            let (list, of) = match &row {
                Row::Ps(row) => ("/rows", to_json(row)),
                Row::Recovery("abandoned", of) => ("/recovery/abandoned", of.clone()),
                Row::Recovery(_, of) => ("/recovery/unknown", of.clone()),
            };
            let bytes = size(&of) + 1;
            if bytes > left && !is_first {
                self.rows.push_front(row);
                break;
            }
            (left, is_first) = (left.saturating_sub(bytes), false);
            if let Some(Value::Array(rows)) = page.pointer_mut(list) {
                rows.push(of);
            }
        }
        page
    }
}

/// Returns the size of a value in JSON.
fn size(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}
