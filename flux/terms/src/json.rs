//! A small JSON reader that walks into an object. The reader returns names and values as slices of the text; it decodes
//! and builds nothing. The reader is made for the output of Flux's own encoder. A text that is no JSON has no members.
//! Nesting costs no stack.

/// Maximum length in bytes of a value that the text of an error repeats; a longer value is cut.
const SHOWN: usize = 40;

/// Returns a member's value as a slice of the object's text; `None`: the object has no such member, or the text is no
/// object.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    members(object)?.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Returns the value at the end of a path of member names, from object to object; `None`: there is no such value.
pub fn at<'a>(object: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(object, |object, name| member(object, name))
}

/// Returns an object's members in their order; `None` if the text is no object. Names lack their quotes, but keep their
/// escapes.
pub fn members(object: &str) -> Option<Vec<(&str, &str)>> {
    first_members(object, usize::MAX)
}

/// Returns an object's members like [`members`], and stops after `most` of them.
pub(crate) fn first_members(object: &str, most: usize) -> Option<Vec<(&str, &str)>> {
    let inside = object.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut rest = inside.trim_start();
    let mut found = Vec::new();
    while !rest.is_empty() && found.len() < most {
        let (name, behind) = rest.split_at_checked(end_of_value(rest)?)?;
        let value = behind.trim_start().strip_prefix(':')?.trim_start();
        let (value, behind) = value.split_at_checked(end_of_value(value)?)?;
        found.push((text(name)?, value));
        rest = behind.trim_start();
        if let Some(next) = rest.strip_prefix(',') {
            rest = next.trim_start();
            if rest.is_empty() {
                return None;
            }
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(found)
}

/// Returns an array's values in their order; `None` if the text is no array.
pub fn elements(array: &str) -> Option<Vec<&str>> {
    let mut rest = array.trim().strip_prefix('[')?.strip_suffix(']')?.trim_start();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (value, behind) = rest.split_at_checked(end_of_value(rest)?)?;
        found.push(value);
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(next) if !next.trim_start().is_empty() => rest = next.trim_start(),
            None if rest.is_empty() => {}
            _ => return None,
        }
    }
    Some(found)
}

/// Returns a JSON string without its quotes, its escapes unchanged; `None`: the value is no string.
pub fn text(value: &str) -> Option<&str> {
    let inside = value.strip_prefix('"')?.strip_suffix('"')?;
    (end_of_value(value)? == value.len()).then_some(inside)
}

/// Returns a value for the text of an error: one line, cut to [`SHOWN`] bytes.
pub(crate) fn shown(value: &str) -> String {
    let (cut, more) = match value.char_indices().find(|(at, c)| at + c.len_utf8() > SHOWN) {
        Some((end, _)) => (&value[..end], "..."),
        None => (value, ""),
    };
    let line: String = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line + more
}

/// Returns the byte index of the end of the first value in the text; `None`: the text does not begin with a whole
/// value. The end is behind the closing bracket or quote, or before the next `,`, `:`, closing bracket or space.
fn end_of_value(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => {
                quoted = !quoted;
                if !quoted && depth == 0 {
                    return Some(at + 1);
                }
            }
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return end_of_word(at),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return end_of_word(at),
            _ => {}
        }
    }
    if depth == 0 && !quoted { end_of_word(text.len()) } else { None }
}

/// Returns `at`, the byte index at which a value without brackets or quotes ends, such as a number. `None` if `at` is
/// 0: the value is empty.
fn end_of_word(at: usize) -> Option<usize> {
    (at > 0).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_objects_and_of_other_texts() {
        let deep = format!("{{\"a\":{}{},\"b\":1}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(member(&deep, "b"), Some("1"));
        for (object, expected) in [
            ("{}", Some(vec![])),
            (" { } ", Some(vec![])),
            (r#"{"a":1}"#, Some(vec![("a", "1")])),
            (
                r#"{"a": 1, "b" : "x,\"}" , "c":[1,{"d":2}],"e":null}"#,
                Some(vec![("a", "1"), ("b", r#""x,\"}""#), ("c", r#"[1,{"d":2}]"#), ("e", "null")]),
            ),
            (r#"{"é\\":"ü"}"#, Some(vec![("é\\\\", "\"ü\"")])),
            (r#"{"a":1,}"#, None),
            (r#"{"a"}"#, None),
            (r#"{"a":}"#, None),
            (r#"{"a":1 2}"#, None),
            (r#"{a:1}"#, None),
            (r#"{"a":"x}"#, None),
            (r#"{"a":[1}"#, None),
            ("[1]", None),
            ("{", None),
            ("", None),
        ] {
            assert_eq!(members(object), expected, "{object}");
        }
    }

    #[test]
    fn elements_of_arrays_and_of_other_texts() {
        for (array, expected) in [
            ("[]", Some(vec![])),
            (" [ ] ", Some(vec![])),
            (r#"["a"]"#, Some(vec![r#""a""#])),
            (r#"[ "a,]" , {"b":[1]},3 ]"#, Some(vec![r#""a,]""#, r#"{"b":[1]}"#, "3"])),
            ("[1,]", None),
            ("[1 2]", None),
            ("[,]", None),
            (r#"["a]"#, None),
            ("{}", None),
            ("[", None),
            ("", None),
        ] {
            assert_eq!(elements(array), expected, "{array}");
        }
    }

    #[test]
    fn a_path_leads_to_the_innermost_value() {
        let args = r#"{"id":3,"jobspec":{"tasks":[],"attributes":{"system":{"perilog":{"tolerate":2}}}}}"#;
        assert_eq!(at(args, &["jobspec", "attributes", "system", "perilog"]), Some(r#"{"tolerate":2}"#));
        assert_eq!(at(args, &["jobspec", "attributes", "user", "perilog"]), None);
        assert_eq!(at(args, &["id", "x"]), None);
    }

    #[test]
    fn a_shown_value_is_cut_between_characters() {
        assert_eq!(shown("\"abc\""), "\"abc\"");
        assert_eq!(shown(&"é".repeat(30)), format!("{}...", "é".repeat(20)));
    }
}
