//! Attacks by a peer who has a controller's key and plays the controller, or by a script of root.

use std::fs;
use std::os::unix::fs::symlink;

use perilog_core::message::{Ask, FromAgent, ToAgent};
use perilog_core::{JobId, task::StepRecord};
use perilog_proto::encode_to_agent;
use tokio::time::timeout;

use crate::bed::{Bed, LIMIT};
use crate::peer::Peer;

/// Number of sessions of the attacker, who plays the controller with a stolen key. The sessions come one after the
/// other.
const SESSIONS: usize = 3;
/// Number of questions that the attacker sends in a session, unless the agent ends the session before. The buffers of a
/// connection hold far fewer answers, so most answers must wait in the agent.
const QUESTIONS: u64 = 400_000;
/// Maximum growth of the agent's memory in MiB. Before the agent bounded questions and answers, its memory grew by
/// hundreds of MiB.
const MOST_MIB: u64 = 24;

/// Regression test: a controller asked 1.09 million questions in eight seconds and read no answer. The agent's memory
/// grew to 890 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_questions_ends_the_session_and_grows_nothing() {
    const REASON: &str = "the controller has more than 16 requests open at a time";
    let bed = Bed::new();
    let agent = bed.start();
    let before = agent.rss_mib();
    for session in 0..SESSIONS {
        let mut attacker = Peer::accept(&bed).await;
        let mut asked = 0;
        while asked < QUESTIONS {
            let question = encode_to_agent(&ToAgent::Ask { question: asked, ask: Ask::Status });
            if attacker.link.writer.send(question).await.is_err() {
                break;
            }
            asked += 1;
        }
        let peak = agent.peak_mib();
        println!("{asked} questions were sent: RSS {before} MiB, then {peak} MiB at most");
        assert!(peak < before + MOST_MIB, "{before} MiB, then {peak} MiB after {asked} questions");
        agent.log.wait_for_more(REASON, session);
    }
    // The agent dials again, and answers one question at a time.
    let mut peer = Peer::accept(&bed).await;
    for question in 0..32 {
        peer.send(ToAgent::Ask { question, ask: Ask::Status }).await;
        assert_eq!(peer.next().await, FromAgent::Answer { question, text: "[]".to_owned(), last: true });
    }
}

/// Regression test: a script of root replaced its kept output by an endless file. To answer one question about the
/// task, the agent took 4.8 GB of memory in four seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_without_an_end_is_answered_within_bounds() {
    /// Number of tries in the step records that the test writes. The kept output of each try is an endless head and a
    /// tail of a tebibyte.
    const SCRIPTS: u32 = 64;
    let bed = Bed::new();
    let agent = bed.start();
    let before = agent.rss_mib();
    let mut peer = Peer::accept(&bed).await;
    let dir = bed.run_dir().join("tasks").join(peer.start("f1").await);
    let mut steps = String::new();
    for seq in 0..SCRIPTS {
        let begin = StepRecord::Begin {
            seq,
            script: "10-a".to_owned(),
            digest: String::new(),
            user: "root".to_owned(),
            attempt: 1,
            at_ms: 0,
            of: SCRIPTS,
        };
        steps += &serde_json::to_string(&begin).unwrap();
        steps.push('\n');
        symlink("/dev/zero", dir.join(format!("out.{seq}.head"))).unwrap();
        // The file has a length of a tebibyte, and no blocks.
        fs::File::create(dir.join(format!("out.{seq}.tail"))).unwrap().set_len(1 << 40).unwrap();
    }
    fs::write(dir.join("steps.jsonl"), steps).unwrap();
    let ask = Ask::Logs { job: JobId::new("f1").unwrap(), action: None, attempt: None, rank: None, lines: 10_000 };
    peer.send(ToAgent::Ask { question: 7, ask }).await;
    let mut answer = String::new();
    let whole = async {
        loop {
            if let FromAgent::Answer { question: 7, text, last } = peer.next().await {
                answer += &text;
                if last {
                    return;
                }
            }
        }
    };
    timeout(LIMIT, whole).await.expect("the answer has an end");
    let peak = agent.peak_mib();
    println!("an answer of {} KiB: RSS {before} MiB, then {peak} MiB at most", answer.len() / 1024);
    assert!(answer.contains("== prolog rank 0: 10-a (try 1)\n"), "{:?}", answer.get(..200));
    assert!(answer.len() < 2 << 20, "{} bytes", answer.len());
    assert!(answer.ends_with("(more is on the node)\n"));
    assert!(peak < before + MOST_MIB, "{before} MiB, then {peak} MiB");
}
