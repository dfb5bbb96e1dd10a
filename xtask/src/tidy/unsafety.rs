//! Check that `unsafe` is in one file of the workspace: the C side of Flux's plugin. All other packages inherit the
//! lint that forbids `unsafe`.

use super::Findings;
use super::rust::tokens;

/// The only package that may contain `unsafe`, because it calls C. `FILE`: the only file of the package that may.
const PACKAGE: &str = "perilog-hold";
const FILE: &str = "flux/jobtap/src/abi.rs";

/// Checks that a package's manifest inherits the lints of the workspace.
pub(super) fn check_manifest(package: &str, text: &str, findings: &mut Findings) {
    let inherits = text.split("\n[").any(|table| table.starts_with("lints]\nworkspace = true\n"));
    if !inherits && package != PACKAGE {
        findings.errors.push(format!("{package}/Cargo.toml: has no `[lints] workspace = true`"));
    }
}

/// Checks that a source file of [`PACKAGE`] has no `unsafe`, except [`FILE`]. In all other packages, the compiler
/// checks that.
pub(super) fn check(package: &str, name: &str, text: &str, findings: &mut Findings) {
    let found = tokens(text).into_iter().find(|token| token.text == "unsafe");
    if let Some(token) = found
        && package == PACKAGE
        && name != FILE
    {
        findings.errors.push(format!("{name}:{}: `unsafe` is in {FILE} and nowhere else", token.line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_without_the_lints_and_files_with_unsafe_are_found() {
        let inherits = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n";
        for (package, text, errors) in [("x", inherits, 0), ("x", "[package]\n", 1), (PACKAGE, "[package]\n", 0)] {
            let mut findings = Findings::default();
            check_manifest(package, text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{package}: {text}");
        }
        let text = "//! unsafe\nfn f() {\n    unsafe { g() }\n}";
        for (package, name, errors) in
            [(PACKAGE, FILE, 0), (PACKAGE, "flux/jobtap/src/plugin.rs", 1), ("x", "x/src/lib.rs", 0)]
        {
            let mut findings = Findings::default();
            check(package, name, text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{name}");
        }
    }
}
