//! `perilog` refuses malformed idsets, hostlists, job ids, durations and environment names before it asks a daemon, and
//! shows the position of the error.

use anyhow::Result;
use perilog_tests::{Bed, Layer};

#[test]
fn each_is_refused_with_its_position() -> Result<()> {
    let bed = Bed::builder().node("n0").layer(Layer::find()?).boot()?;
    let node = bed.node("n0")?;
    let run = ["run", "prolog", "--job", "j", "--nodes", "n0"];
    // Arguments, the malformed word, and the position of the wrong character, counted from 1.
    let cases: &[(&[&str], &str, usize)] = &[
        (&["run", "prolog", "--job", "j", "--nodes", "n[0-3"], "n[0-3", 6),
        (&["run", "prolog", "--job", "j/k", "--nodes", "n0"], "j/k", 2),
        (&["run", "Prolog", "--job", "j", "--nodes", "n0"], "Prolog", 1),
        (&[&run[..], &["--ranks", "3,2"]].concat(), "3,2", 3),
        (&[&run[..], &["--timeout", "5mon"]].concat(), "5mon", 2),
        (&[&run[..], &["--env", "A-B=1"]].concat(), "A-B=1", 2),
        (&[&run[..], &["--attempt", "1.x"]].concat(), "1.x", 3),
        (&["ps", "--older-than", "5 s"], "5 s", 2),
        (&["why", "a:b"], "a:b", 2),
    ];
    for (arguments, word, at) in cases {
        let output = node.run(&[&["perilog"], *arguments].concat())?;
        assert_eq!(output.code(), Some(2), "{output}");
        let lines: Vec<&str> = output.stderr.lines().collect();
        let below =
            lines.iter().position(|line| line.trim() == *word).and_then(|shown| Some((shown, lines.get(shown + 1)?)));
        let (shown, caret) = below.unwrap_or_else(|| panic!("{word:?} is not shown: {output}"));
        let margin = lines[shown].find(word).unwrap_or_default();
        assert_eq!(caret.find('^'), Some(margin + at - 1), "{output}");
    }
    let output = node.run(&["perilog", "kill", "j", "-s", "NOPE"])?;
    assert!(output.code() == Some(2) && output.stderr.contains("NOPE"), "{output}");
    // Well-formed words, but no controller answers.
    let output = node.run(&["perilog", "ps"])?;
    assert_eq!(output.code(), Some(7), "{output}");
    assert!(output.stderr.contains("systemctl status perilog-controller"), "{output}");
    Ok(())
}
