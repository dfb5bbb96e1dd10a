//! Checks of this project's own rules for code and documents, which no compiler checks; each check is in a file of its
//! own. Each finding names the file or package that breaks a rule.

mod api;
mod arrows;
mod book;
mod circle;
mod columns;
mod defects;
mod files;
mod fixtures;
mod frozen;
mod identifiers;
mod imports;
mod links;
mod lookups;
mod paths;
mod places;
mod proofs;
mod purity;
mod requests;
mod rooms;
mod rules;
mod rust;
mod security;
mod unsafety;
mod words;

use std::path::{Path, PathBuf};

pub(crate) use defects::{TABLE, names as defects_of};
pub(crate) use frozen::{check_release, freeze};

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::stages::print_line;

/// Findings of the checks: violations (`errors`) and hints (`warnings`).
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn run() -> Result<bool> {
    check().map(|()| true)
}

/// Checks the tree and prints warnings.
///
/// # Errors
/// All violations, one a line.
pub(crate) fn check() -> Result<()> {
    let packages = cargo::packages()?;
    let mut findings = Findings::default();
    arrows::check(&packages, &mut findings);
    let mut defects = defects::Defects::default();
    let mut tests = requests::Tests::default();
    let mut modules = proofs::Modules::default();
    let mut rules = rules::Named::default();
    let mut rooms = rooms::Rooms::default();
    let mut imports = imports::Imports::default();
    let mut links = links::Links::default();
    let mut sources = 0;
    for package in &packages {
        let manifest = package.directory.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).with_context(|| format!("reading {}", manifest.display()))?;
        defects::check_manifest(&format!("{}/Cargo.toml", package.name), &text, &mut findings);
        unsafety::check_manifest(&package.name, &text, &mut findings);
        for path in sources_of(&package.directory)? {
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let name = path.strip_prefix(cargo::root()).unwrap_or(&path).display().to_string();
            tests.read(&name, &text);
            modules.read(&name, &text);
            columns::check(&name, &text, &mut findings);
            rooms.read(&name, &text);
            imports.read(&name, &text);
            links.read(&name, &text);
            files::check(&name, &text, package.mains.contains(&path), &mut findings);
            lookups::check(&name, &text, &mut findings);
            unsafety::check(&package.name, &name, &text, &mut findings);
            if package.name == purity::PACKAGE {
                purity::check(&name, &text, &mut findings);
            }
            if package.name != "xtask" {
                defects.read(&name, &text);
                rules.read(&name, &text);
            }
            sources += 1;
        }
    }
    defects.check(&mut findings);
    rooms.check(&mut findings);
    imports.check(&mut findings);
    links.check(&mut findings);
    let page = |name: &'static str| std::fs::read_to_string(cargo::root().join(name)).context(name);
    tests.check(&page(requests::PAGE)?, &mut findings);
    modules.check(&page(proofs::PAGE)?, &mut findings);
    rules.check(&page(rules::PAGE)?, &mut findings);
    security::check(&page(security::PAGE)?, &tests, &mut findings);
    book::Book::read(&cargo::root())?.check(&cargo::root(), &mut findings);
    api::check(&cargo::root(), &mut findings)?;
    frozen::check(&cargo::root(), &mut findings)?;
    fixtures::check(&cargo::root(), &mut findings)?;
    paths::check(&cargo::root(), &mut findings)?;
    places::check(&cargo::root(), &mut findings)?;
    words::check_all(&mut findings)?;
    identifiers::check_all(&mut findings)?;
    for warning in &findings.warnings {
        print_line(&format!("warning: {warning}"))?;
    }
    ensure!(findings.errors.is_empty(), "{}", findings.errors.join("\n"));
    print_line(&format!("{sources} files in {} packages are tidy", packages.len()))
}

/// Returns the paths of all Rust files of a package.
fn sources_of(package: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> = ["src", "tests", "benches", "examples"].map(|name| package.join(name)).into();
    while let Some(directory) = directories.pop() {
        // A package has some of these.
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
