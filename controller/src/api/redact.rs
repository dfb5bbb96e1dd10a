//! Removes from a reply what only root and members of `[api] group` may see: the output and forensics of root's
//! scripts. Other clients still see how each task ended. The last line of output stays visible in the job's event log.

use perilog_core::controller::io::Reply;
use perilog_core::task::Ended;

pub(super) fn output(reply: &mut Reply) {
    match reply {
        Reply::Show(job) => {
            let actions = job.attempts.iter_mut().flat_map(|attempt| &mut attempt.actions);
            for action in actions {
                let ranks = action.ended.iter_mut().map(|rank| (&mut rank.ended, &mut rank.late));
                let resources = action.external.iter_mut().flat_map(|external| external.ended.values_mut());
                for (end, late) in ranks.chain(resources.map(|resource| (&mut resource.ended, &mut resource.late))) {
                    ended(end);
                    late.iter_mut().for_each(ended);
                }
            }
        }
        Reply::Why(why) => {
            let tasks = why.open.iter_mut().chain(&mut why.failed);
            tasks.filter_map(|task| task.ended.as_mut()).for_each(ended);
        }
        Reply::Running { .. }
        | Reply::Reached { .. }
        | Reply::Drained { .. }
        | Reply::Undrained { .. }
        | Reply::Ps { .. }
        | Reply::Resolved { .. }
        | Reply::Quiet { .. }
        | Reply::Resumed { .. }
        | Reply::Nodes { .. }
        | Reply::Asked { .. }
        | Reply::Status(_)
        // The page's view has no output in it.
        | Reply::Overview(_)
        | Reply::Outbox(_)
        | Reply::Added { .. }
        | Reply::Reported { .. }
        | Reply::Finished(_)
        | Reply::Failed { .. }
        | Reply::MilestoneReached { .. }
        | Reply::Attempts(_)
        | Reply::Drains { .. }
        | Reply::PendingDrains(_)
        | Reply::TakenOver { .. }
        | Reply::Synced(_)
        | Reply::Recovery(_)
        | Reply::Done => {}
    }
}

fn ended(ended: &mut Ended) {
    ended.tails.clear();
    ended.forensics = None;
}
