//! Ends of ranks, for `perilog show`: ranks that ended alike share a row, and a reply has a bounded size. A job may
//! have 65,536 ranks, and all may have failed in the same way.

use crate::controller::interface::view::{EndView, MoreEnds};
use crate::controller::state::Action;
use crate::controller::state::layout::Layout;
use crate::controller::stored::rows::RankRow;
use crate::defect;
use crate::ids::Rank;
use crate::idset::IdSet;
use crate::targets::Targets;

/// Maximum number of rows for an action.
const MAX_ROWS: usize = 32;
/// Size (bytes of JSON) of the details in one reply after which further rows are left out. A reply has one row at
/// least, of any size.
const PAGE_BYTES: usize = 48 * 1_024;

/// Makes the rows of one reply.
pub(super) struct Ends<'a> {
    /// The ranks to show, a row for each; `None`: all ranks, folded.
    only: Option<&'a Targets>,
    left: Option<usize>,
}

/// Ranks that ended as `first` did.
struct Alike<'a> {
    ranks: IdSet,
    first: &'a RankRow,
}

impl Alike<'_> {
    /// Returns `true` if the rank ended alike: outcome, last line, scripts and remarks are equal, and so are those of
    /// late results. Times and other output may differ.
    fn has(&self, row: &RankRow) -> bool {
        let late = self.first.late.len() == row.late.len()
            && self.first.late.iter().zip(&row.late).all(|(one, other)| one.is_like(other));
        late && self.first.ended.is_like(&row.ended)
    }
}

impl<'a> Ends<'a> {
    pub(super) const fn new(only: Option<&'a Targets>) -> Self {
        Self { only, left: Some(PAGE_BYTES) }
    }

    /// Returns the rows of an action, the lowest ranks first, and the ranks that are in no row.
    pub(super) fn of(&mut self, action: &Action, layout: &Layout) -> (Vec<EndView>, Option<MoreEnds>) {
        let mut groups: Vec<Alike<'_>> = Vec::new();
        let mut more = IdSet::new();
        let only = self.only.map(|targets| layout.choose(targets).unwrap_or_default());
        let wanted = |rank: Rank| only.as_ref().is_none_or(|only| only.contains(rank.0));
        for (rank, row) in action.ended.iter().filter(|(rank, _)| wanted(**rank)) {
            let (folds, has_room) = (self.only.is_none(), groups.len() < MAX_ROWS);
            let (folds, has_room) = if defect!(EndsUnfolded) { (false, true) } else { (folds, has_room) };
            match groups.iter_mut().find(|group| folds && group.has(row)) {
                Some(group) => {
                    group.ranks.insert(rank.0);
                }
                None if has_room => {
                    groups.push(Alike { ranks: IdSet::from(rank.0..=rank.0), first: row });
                }
                None => {
                    more.insert(rank.0);
                }
            }
        }
        let mut rows = Vec::new();
        for group in groups {
            match self.left {
                Some(left) => {
                    // A row that is longer than what is left is the last one of the reply.
                    self.left = left.checked_sub(size(group.first)).filter(|left| *left > 0);
                    rows.push(view(group, layout));
                }
                None => more.extend_with(&group.ranks),
            }
        }
        let more = (!more.is_empty()).then(|| MoreEnds { hosts: layout.hosts_of(&more), ranks: more });
        (rows, more)
    }
}

/// Returns the size of a row's details in JSON.
fn size(row: &RankRow) -> usize {
    let ends = std::iter::once(&row.ended).chain(&row.late);
    ends.map(|ended| serde_json::to_vec(ended).map_or(0, |json| json.len())).sum()
}

fn view(group: Alike<'_>, layout: &Layout) -> EndView {
    let rank = group.first.task.rank;
    EndView {
        hosts: layout.hosts_of(&group.ranks),
        ranks: group.ranks,
        rank,
        host: layout.host(rank).map(|host| host.to_string()).unwrap_or_default(),
        ended: group.first.ended.clone(),
        late: group.first.late.clone(),
    }
}
