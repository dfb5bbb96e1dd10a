//! Check that `unsafe` is in three files of the workspace: the C side of Flux's plugin, the preloaded stand-ins for
//! functions of the C library, and the allocator of the fuzz targets, which counts. All other packages inherit the lint
//! that forbids `unsafe`.

use super::Findings;
use super::rust::tokens;

/// The only packages that may contain `unsafe`, because they call C or are called by C, each with its only file that
/// may.
const MAY: [(&str, &str); 3] = [
    ("perilog-hold", "flux/jobtap/src/abi.rs"),
    ("perilog-shim", "tests/shim/src/calls.rs"),
    ("perilog-fuzz", "fuzz/src/memory.rs"),
];

/// Checks that a package's manifest inherits the lints of the workspace.
pub(super) fn check_manifest(package: &str, text: &str, findings: &mut Findings) {
    let inherits = text.split("\n[").any(|table| table.starts_with("lints]\nworkspace = true\n"));
    if !inherits && file_of(package).is_none() {
        findings.errors.push(format!("{package}/Cargo.toml: has no `[lints] workspace = true`"));
    }
}

/// Returns the file of a package that may contain `unsafe`.
fn file_of(package: &str) -> Option<&'static str> {
    MAY.iter().find(|(of, _)| *of == package).map(|(_, file)| *file)
}

/// Checks that a source file of a package in [`MAY`] has no `unsafe`, except the file named there. In all other
/// packages, the compiler checks that.
pub(super) fn check(package: &str, name: &str, text: &str, findings: &mut Findings) {
    let found = tokens(text).into_iter().find(|token| token.text == "unsafe");
    if let (Some(token), Some(file)) = (found, file_of(package))
        && name != file
    {
        findings.errors.push(format!("{name}:{}: `unsafe` is in {file} and nowhere else", token.line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_without_the_lints_and_files_with_unsafe_are_found() {
        let inherits = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n";
        for (package, text, errors) in [("x", inherits, 0), ("x", "[package]\n", 1), (MAY[0].0, "[package]\n", 0)] {
            let mut findings = Findings::default();
            check_manifest(package, text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{package}: {text}");
        }
        let text = "//! unsafe\nfn f() {\n    unsafe { g() }\n}";
        for (package, name, errors) in
            [(MAY[0].0, MAY[0].1, 0), (MAY[0].0, "flux/jobtap/src/plugin.rs", 1), ("x", "x/src/lib.rs", 0)]
        {
            let mut findings = Findings::default();
            check(package, name, text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{name}");
        }
    }
}
