//! `cargo xtask fuzz`: searches with libFuzzer for inputs that break a parser (`fuzz/`, docs/testing.md).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use perilog_tests::corpus;

use crate::stages::print_line;
use crate::{Usage, cargo};

/// Seconds for each target in a search that names no time.
const SECONDS: u64 = 10;
/// Most inputs of a target's corpus in the tree, and their most bytes.
const MOST: usize = 80;
const MOST_BYTES: usize = 16 * 1024;
/// Options of libFuzzer for each search. An input must not hang (by the clock, which runs on while other programs have
/// the processor), nor the program take 1 GiB.
const OPTIONS: [&str; 5] =
    ["-max_len=8192", "-timeout=120", "-rss_limit_mb=1024", "-print_final_stats=1", "-detect_leaks=0"];

/// Runs `cargo xtask fuzz [TARGET...] [--for TIME] [--minimise]`. Returns `false` if an input broke a target.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let all = targets()?;
    let (mut chosen, mut seconds, mut minimise) = (Vec::new(), SECONDS, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match *word {
            "--for" => seconds = words.next().and_then(|time| read_time(time)).ok_or_else(usage)?,
            "--minimise" => minimise = true,
            name if all.iter().any(|target| target == name) => chosen.push(name.to_owned()),
            _ => return Err(usage().into()),
        }
    }
    ensure!(can_build(), "libFuzzer needs a C++ compiler: install g++");
    let program = cargo::build_fuzz()?;
    let mut good = true;
    for target in if chosen.is_empty() { all } else { chosen } {
        let search = Search { program: program.clone(), target };
        if minimise {
            search.minimise()?;
            continue;
        }
        let mut lines = Vec::new();
        good &= search.run(seconds, &mut lines)?;
        lines.iter().try_for_each(|line| print_line(line))?;
    }
    Ok(good)
}

/// Returns `true` if this machine has a compiler for the engine.
pub(crate) fn can_build() -> bool {
    let version = Command::new("c++").arg("--version").stdin(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}

fn usage() -> Usage {
    Usage("fuzz: expected names of targets (files of fuzz/corpus), --for 10s, --minimise".to_owned())
}

/// Returns the names of the targets. Each has a corpus; a test of `fuzz/` compares both.
fn targets() -> Result<Vec<String>> {
    let corpora = cargo::root().join("fuzz/corpus");
    let entries = fs::read_dir(&corpora).with_context(|| format!("reading {}", corpora.display()))?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Reads a time such as `90`, `10s`, `5m` or `1h` in seconds.
fn read_time(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    number.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(unit)
}

/// A search of one target.
struct Search {
    program: PathBuf,
    target: String,
}

/// Counts of a search, from libFuzzer's output.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    executions: u64,
    edges: u64,
    inputs: u64,
}

impl Search {
    /// Searches for this many seconds. Returns `false` if an input broke the target; the input is then kept among the
    /// target's regressions. Adds what is to be printed to `lines`.
    fn run(&self, seconds: u64, lines: &mut Vec<String>) -> Result<bool> {
        let [seeds, found, broken] = self.unpack()?;
        let dictionary = cargo::root().join("fuzz/dictionary").join(&self.target);
        let mut command = Command::new(&self.program);
        command.env("PERILOG_FUZZ_TARGET", &self.target).args(OPTIONS).stdin(Stdio::null());
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", broken.display()));
        if dictionary.is_file() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        let output = command.arg(&found).arg(&seeds).output().context("running perilog-fuzz")?;
        let text = String::from_utf8_lossy(&output.stderr);
        let Counts { executions, edges, inputs } = read_counts(&text);
        lines.push(format!("   {}: {executions} executions, {edges} edges, {inputs} inputs", self.target));
        if output.status.success() {
            return Ok(true);
        }
        let output: Vec<&str> = text.lines().filter(|line| !line.starts_with(['#', '\t'])).collect();
        lines.extend(output[output.len().saturating_sub(40)..].iter().map(|line| format!("      {line}")));
        lines.push(format!("      kept in {}", self.file("regressions").display()));
        self.keep(&broken)?;
        Ok(false)
    }

    /// Makes the folders of a search: the seeds, what earlier searches found, and inputs that break the target.
    fn unpack(&self) -> Result<[PathBuf; 3]> {
        let work = cargo::target()?.join("fuzz").join(&self.target);
        let folders = ["seeds", "found", "broken"].map(|name| work.join(name));
        for folder in [&folders[0], &folders[2]] {
            if folder.exists() {
                fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
            }
        }
        for folder in &folders {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        for (number, input) in (0..).zip(self.inputs("corpus")?) {
            fs::write(folders[0].join(format!("{number}")), input)?;
        }
        Ok(folders)
    }

    fn file(&self, of: &str) -> PathBuf {
        cargo::root().join("fuzz").join(of).join(&self.target)
    }

    /// Returns the inputs of this target in `corpus` or `regressions`.
    fn inputs(&self, of: &str) -> Result<Vec<Vec<u8>>> {
        let path = self.file(of);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        corpus::read(&text).with_context(|| format!("{}: an escape is malformed", path.display()))
    }

    /// Adds the inputs in this folder to the target's regressions, which the tests replay.
    fn keep(&self, broken: &Path) -> Result<()> {
        let mut inputs = self.inputs("regressions")?;
        for entry in fs::read_dir(broken)? {
            inputs.push(fs::read(entry?.path())?);
        }
        let path = self.file("regressions");
        fs::write(&path, corpus::write(&inputs)).with_context(|| format!("writing {}", path.display()))
    }

    /// Replaces the corpus by the fewest inputs that reach as much, out of it and what searches have found.
    fn minimise(&self) -> Result<()> {
        let [seeds, found, _] = self.unpack()?;
        let least = seeds.with_file_name("least");
        if least.exists() {
            fs::remove_dir_all(&least)?;
        }
        fs::create_dir_all(&least)?;
        let mut command = Command::new(&self.program);
        command.env("PERILOG_FUZZ_TARGET", &self.target).args(OPTIONS).arg("-set_cover_merge=1");
        let output = command.args([&least, &seeds, &found]).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{}: {}", self.target, String::from_utf8_lossy(&output.stderr));
        let mut inputs = Vec::new();
        for entry in fs::read_dir(&least)? {
            inputs.push(fs::read(entry?.path())?);
        }
        inputs.sort_by_key(|input| (input.len(), input.clone()));
        let (all, mut size) = (inputs.len(), 0);
        // Of many, those of all sizes.
        let chosen = (0..all.min(MOST)).map(|at| inputs[at * all / all.min(MOST)].clone());
        let kept: Vec<Vec<u8>> = chosen
            .filter(|input| {
                size += input.len();
                size <= MOST_BYTES
            })
            .collect();
        fs::write(self.file("corpus"), corpus::write(&kept))?;
        print_line(&format!("   {}: {} of {all} inputs", self.target, kept.len()))
    }
}

/// Reads libFuzzer's output: the last line of its progress, and the statistics at the end.
fn read_counts(text: &str) -> Counts {
    let after = |line: &str, word: &str| -> Option<u64> {
        let rest = line.split(word).nth(1)?.trim_start();
        rest[..rest.bytes().take_while(u8::is_ascii_digit).count()].parse().ok()
    };
    let progress = text.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "));
    let of_progress = |word| progress.and_then(|line| after(line, word)).unwrap_or(0);
    let executed = text.lines().rev().find_map(|line| after(line, "stat::number_of_executed_units:"));
    Counts { executions: executed.unwrap_or(0), edges: of_progress(" cov: "), inputs: of_progress(" corp: ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_line_of_progress() {
        let text = "#2\tINITED cov: 9 ft: 10 corp: 1/1b exec/s: 0\n#524\tDONE   cov: 163 ft: 280 corp: 31/2b\n\
                    Done 524 runs\nstat::number_of_executed_units: 524\n";
        assert_eq!(read_counts(text), Counts { executions: 524, edges: 163, inputs: 31 });
        assert_eq!(read_counts("panicked"), Counts::default());
    }

    #[test]
    fn times_are_seconds() {
        for (text, seconds) in [("90", Some(90)), ("5m", Some(300)), ("1h", Some(3600)), ("0", None), ("x", None)] {
            assert_eq!(read_time(text), seconds, "{text}");
        }
    }
}
