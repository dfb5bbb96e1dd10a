//! Power cuts of `perilog ca init`, `issue` and `revoke`: what they have reported is on the disk, and each of them
//! works again, also `init` where it was cut.

use std::path::Path;
use std::process::Output;

use perilog_disk::disk::Disk;
use perilog_disk::image::Image;
use perilog_disk::power::Cut;
use perilog_disk::record;
use perilog_disk::run::{Recorded, program};
use perilog_host::authority;

use crate::controller::examine_all;

/// Number of times that the power is cut at each moment.
const TIMES: u64 = 2;

const HOSTS: [&str; 4] = ["n0", "n1", "n2", "n3"];

/// Runs `perilog ca` in the directory `dir`; `recorded`: where it is recorded.
fn ca(arguments: &[&str], dir: &Path, recorded: Option<&Recorded>) -> Output {
    let mut command = program("perilog").unwrap();
    if let Some(recorded) = recorded {
        recorded.preload(&mut command).unwrap();
    }
    let (verb, rest) = arguments.split_first().unwrap();
    command.args(["--quiet", "ca", verb, "--dir"]).arg(dir.join("ca")).args(rest);
    if *verb == "issue" {
        command.arg("--out").arg(dir.join("out"));
    }
    command.output().unwrap()
}

fn run(arguments: &[&str], dir: &Path, recorded: Option<&Recorded>) -> Result<(), String> {
    let output = ca(arguments, dir, recorded);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ca {arguments:?}: {}: {text}", output.status)) }
}

/// Returns the serial number of the newest certificate of a host.
fn serial(dir: &Path, host: &str) -> Option<String> {
    let list = std::fs::read(dir.join("ca").join(authority::ISSUED)).ok()?;
    let issued = authority::known(&list).issued.into_iter().rev().find(|issued| issued.is_of(host))?;
    Some(issued.serial)
}

/// Returns what is wrong with an image. `whole`: the files at the end of the run.
fn problem(cut: &Cut<'_>, whole: &Image) -> Result<(), String> {
    let dir = crate::in_memory();
    cut.image.write(dir.path()).unwrap();
    let dir = dir.path();
    let has_authority = dir.join("ca/ca.pem").exists();
    for what in &cut.acknowledged {
        let is_there = match what.split(' ').collect::<Vec<_>>()[..] {
            ["init"] => has_authority,
            ["issue", host, expected] => {
                let files = ["ca.pem", "cert.pem", "key.pem"].map(|name| format!("out/{host}/{name}"));
                let are_whole = files.iter().all(|name| cut.image.files.get(name) == whole.files.get(name));
                are_whole && serial(dir, host).as_deref() == Some(expected)
            }
            ["revoke", serial] => {
                let list = std::fs::read(dir.join("ca/crl.pem")).unwrap_or_default();
                authority::revoked(&list).is_ok_and(|revoked| revoked.contains(serial))
            }
            _ => return Err(format!("an unknown mark: {what}")),
        };
        if !is_there {
            return Err(format!("lost: {what}"));
        }
    }
    if !has_authority {
        run(&["init"], dir, None)?;
    }
    run(&["list"], dir, None).or_else(|error| {
        // Nothing was issued yet, so there is no list.
        if dir.join("ca").join(authority::ISSUED).exists() { Err(error) } else { Ok(()) }
    })?;
    run(&["issue", "--role", "node", "again"], dir, None)?;
    run(&["revoke", "again"], dir, None)?;
    run(&["list", "--all"], dir, None)
}

#[test]
fn what_the_authority_has_reported_survives_power_cuts() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().canonicalize().unwrap().join("disk");
    std::fs::create_dir(&directory).unwrap();
    let recorded = Recorded { directory: directory.clone(), record: place.path().join("record") };
    let marks = recorded.marks().unwrap();
    run(&["init"], &directory, Some(&recorded)).unwrap();
    marks.acknowledged("init").unwrap();
    for host in HOSTS {
        run(&["issue", "--role", "node", host], &directory, Some(&recorded)).unwrap();
        marks.acknowledged(&format!("issue {host} {}", serial(&directory, host).unwrap())).unwrap();
    }
    for host in &HOSTS[1..3] {
        run(&["revoke", host], &directory, Some(&recorded)).unwrap();
        marks.acknowledged(&format!("revoke {}", serial(&directory, host).unwrap())).unwrap();
    }
    let record = std::fs::read(&recorded.record).unwrap();
    let entries = record::read(&record).unwrap();
    let whole = Image::read(&directory).unwrap();
    let mut disk = Disk::new(1);
    entries.iter().for_each(|entry| disk.apply(entry));
    assert_eq!(disk.cached(), whole, "the record has a gap");
    let moments: Vec<usize> = (0..=entries.len()).collect();
    let mut bad = Vec::new();
    for seed in 1..=TIMES {
        bad.extend(examine_all(Disk::new(seed), &entries, seed, &moments, |_, cut| problem(cut, &whole).err()));
    }
    let images = moments.len() * TIMES as usize;
    eprintln!("{} calls; {images} images, {} bad", entries.len(), bad.len());
    assert!(bad.is_empty(), "{} of {images} images are bad:\n{}", bad.len(), bad.join("\n"));
}
