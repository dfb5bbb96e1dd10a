//! Answers to questions that operators ask through the controller: the output of a job's scripts on this node, and the
//! agent's tasks.
//!
//! Output comes from the journal, which has every line with its time. The journal has no line if journald was killed,
//! or if its files were rotated away. In that case the agent reads the runner's copies: the first and last 32 KiB of
//! each script. The number of questions, lines, bytes and the time are bounded.

mod journal;
mod kept;

use std::sync::Arc;

use perilog_core::agent::io::TaskStatus;
use perilog_core::ids::{ActionName, Attempt, JobId};
use perilog_core::message::{Ask, FromAgent, MAX_LOG_LINES};
use tokio::sync::Semaphore;

use crate::link::Outbox;
use crate::local;
use crate::spool::Spool;

/// Maximum number of questions about output that the agent answers at once; each may run a journalctl.
const AT_A_TIME: usize = 4;
/// Maximum number of open questions: those whose answer is not completely in the queue to the controller. An answer
/// waits for room in that queue until the controller reads. A controller asks one question per operator who asks about
/// this node.
const OPEN: usize = 16;
/// Approximate limit in bytes of an answer about output. For more, the operator reads the journal on the node.
const MAX_TEXT: usize = 1024 * 1024;
/// Maximum number of bytes in one part of an answer, well under a message's limit.
const PART: usize = 64 * 1024;

/// The output that an operator asks for: the last `lines` of a job's scripts. A field that is `None` excludes nothing.
#[derive(Debug, Clone)]
struct About {
    job: JobId,
    action: Option<ActionName>,
    attempt: Option<Attempt>,
    rank: Option<u32>,
    lines: u32,
}

/// Answers questions, each in a tokio task of its own.
#[derive(Debug)]
pub struct Logs {
    spool: Spool,
    permits: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

/// The controller has more open questions than the agent takes (`OPEN`).
#[derive(Debug, thiserror::Error)]
#[error("the controller has more than {OPEN} requests open at a time")]
pub struct TooMany;

impl Logs {
    pub fn new(spool: Spool) -> Self {
        Self { spool, permits: Arc::new(Semaphore::new(AT_A_TIME)), open: Arc::new(Semaphore::new(OPEN)) }
    }

    /// Sends the answer to a question into `outbox`, part by part, as room permits. `tasks`: the tasks that the machine
    /// knows.
    ///
    /// # Errors
    /// [`TooMany`]: too many earlier questions are open. Without that bound, a controller that asks and reads no
    /// answers would fill the agent's memory.
    pub fn answer(&self, question: u64, ask: Ask, tasks: Vec<TaskStatus>, outbox: Outbox) -> Result<(), TooMany> {
        let open = self.open.clone().try_acquire_owned().map_err(|_| TooMany)?;
        let permit = self.permits.clone().try_acquire_owned();
        let spool = self.spool.clone();
        tokio::spawn(async move {
            let text = match (ask, permit) {
                (Ask::Status, _) => serde_json::Value::from_iter(tasks.iter().map(local::task)).to_string(),
                (Ask::Logs { .. }, Err(_)) => {
                    format!("this node already answers {AT_A_TIME} requests for logs; ask again later\n")
                }
                (Ask::Logs { job, action, attempt, rank, lines }, Ok(_permit)) => {
                    output(&spool, &About { job, action, attempt, rank, lines: lines.clamp(1, MAX_LOG_LINES) }, &tasks)
                        .await
                }
            };
            send(question, text, &outbox).await;
            drop(open);
        });
        Ok(())
    }
}

async fn output(spool: &Spool, about: &About, tasks: &[TaskStatus]) -> String {
    let journal = journal::read(about).await;
    match journal {
        Ok(text) if !text.is_empty() => text,
        other => {
            let mut text = kept::read(spool, about, tasks);
            if let Err(error) = other {
                text.insert_str(0, &format!("the journal cannot be read: {error}\n"));
            }
            text
        }
    }
}

/// Sends the answer part by part. Sends one part of an empty answer too, so that the operator knows that the answer is
/// complete.
async fn send(question: u64, text: String, outbox: &Outbox) {
    let mut rest = text.as_str();
    loop {
        let mut end = rest.len().min(PART);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, after) = rest.split_at(end);
        let answer = FromAgent::Answer { question, text: part.to_owned(), last: after.is_empty() };
        if outbox.send(answer).await.is_err() || after.is_empty() {
            return;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a controller asked a million questions and read no answer. The agent's memory grew to 890 MiB.
    #[tokio::test]
    async fn so_many_questions_are_open_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let (spool, _lock) = Spool::open(dir.path()).unwrap();
        let logs = Logs::new(spool);
        let (outbox, mut queue) = tokio::sync::mpsc::channel(1);
        let ask = |question| logs.answer(question, Ask::Status, Vec::new(), outbox.clone());
        for question in 0..OPEN as u64 {
            ask(question).unwrap();
        }
        assert!(ask(99).is_err());
        for _ in 0..OPEN {
            queue.recv().await.unwrap();
        }
        // The last answer's task may still hold its permit.
        while ask(100).is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_long_answer_comes_in_parts_and_an_empty_one_in_one() {
        for (text, parts) in [(String::new(), 1), ("\u{e9}".repeat(PART), 2), ("x".repeat(PART), 1)] {
            let (outbox, mut queue) = tokio::sync::mpsc::channel(8);
            send(7, text.clone(), &outbox).await;
            drop(outbox);
            let (mut whole, mut seen) = (String::new(), Vec::new());
            while let Some(FromAgent::Answer { question: 7, text, last }) = queue.recv().await {
                whole.push_str(&text);
                seen.push(last);
            }
            assert_eq!((whole, seen.len()), (text, parts));
            assert!(seen.pop().unwrap() && !seen.contains(&true));
        }
    }
}
