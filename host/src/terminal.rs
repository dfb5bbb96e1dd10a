//! Makes foreign text harmless for a terminal: a user may have written the text that an operator reads.

use serde_json::Value;

/// Returns `true` if a terminal interprets the character instead of showing it: a control character, or one that
/// reorders or separates text.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a value as JSON that cannot steer a terminal: JSON allows some characters that a terminal interprets (C1
/// controls, characters that reorder text). The function escapes these characters, which does not change their meaning
/// in JSON.
pub fn json(value: &Value) -> String {
    let text = value.to_string();
    if !text.chars().any(is_harmful) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_harmful(c) {
            // Harmful characters occur only within strings, and all are below U+10000.
            true => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_means_the_same_and_no_terminal_interprets_it() {
        let value = serde_json::json!({"said": "csi \u{9b}31m del \u{7f} esc \u{1b} \u{202e}rtl grün"});
        let shown = json(&value);
        assert!(!shown.chars().any(is_harmful) && shown.contains("\\u009b31m") && shown.contains("grün"), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
