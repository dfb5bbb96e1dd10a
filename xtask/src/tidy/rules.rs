//! Check of the numbered rules in docs/semantics.md: each number is there once and in order, and no source names a
//! missing rule.

use std::collections::BTreeMap;

use super::Findings;

pub(super) const PAGE: &str = "docs/semantics.md";

/// Numbers of the rules that source files name, each with the first file that names it.
#[derive(Debug, Default)]
pub(super) struct Named(BTreeMap<String, String>);

impl Named {
    pub(super) fn read(&mut self, name: &str, text: &str) {
        for rule in text.split(PAGE).skip(1).filter_map(|after| rule(after.strip_prefix(' ')?)) {
            self.0.entry(rule.to_owned()).or_insert_with(|| name.to_owned());
        }
    }

    pub(super) fn check(&self, page: &str, findings: &mut Findings) {
        let mut find = |text: String| findings.errors.push(text);
        let stated: Vec<&str> = page.lines().filter_map(|line| rule(line.strip_prefix("* **")?)).collect();
        let mut last: BTreeMap<&str, u32> = BTreeMap::new();
        for rule in &stated {
            let (letter, number) = rule.split_at(1);
            let before = last.insert(letter, number.parse().unwrap_or_default()).unwrap_or_default();
            if last.get(letter) != Some(&(before + 1)) {
                find(format!("{PAGE}: {rule} follows {letter}{before}"));
            }
        }
        if stated.is_empty() {
            find(format!("{PAGE}: no rule has a number"));
        }
        for (rule, file) in self.0.iter().filter(|(rule, _)| !stated.contains(&rule.as_str())) {
            find(format!("{file}: names rule {rule}, and {PAGE} has none of that number"));
        }
    }
}

/// Returns the number of a rule, a capital letter and digits, if the text begins with one.
fn rule(text: &str) -> Option<&str> {
    let digits = text.strip_prefix(|c: char| c.is_ascii_uppercase())?;
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then(|| &text[..=length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_in_order_and_named_ones_exist() {
        let page = "* **H1** A job.\n* **T1** A task.\n* **H2** Another.\n* **Bold** is no rule.\n";
        let source = format!("// {PAGE} H2: held; {PAGE} has more. \"{PAGE} T1\" and {PAGE}.");
        for (page, source, expect) in [
            (page, source.as_str(), vec![]),
            ("* **H1** A.\n* **H3** C.\n", "", vec!["docs/semantics.md: H3 follows H1"]),
            ("* **H1** A.\n* **H1** A.\n", "", vec!["docs/semantics.md: H1 follows H1"]),
            ("no rules", "", vec!["docs/semantics.md: no rule has a number"]),
            (page, "docs/semantics.md T2", vec!["a.rs: names rule T2, and docs/semantics.md has none of that number"]),
        ] {
            let (mut named, mut findings) = (Named::default(), Findings::default());
            named.read("a.rs", source);
            named.check(page, &mut findings);
            assert_eq!(findings.errors, expect);
        }
    }
}
