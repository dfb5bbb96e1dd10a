//! Just enough of Rust's grammar to find paths, without those in comments and texts. Not a parser.

/// Token: an identifier, `::`, or one other character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Splits a source file into tokens, without comments, strings and characters.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    split(text).0
}

/// Returns the comments and strings of a source file, each with the line of its begin. Comments on consecutive lines
/// are one text.
pub(super) fn texts(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    for (line, piece) in split(text).1 {
        let is_comment = |text: &str| text.starts_with("//");
        match joined.last_mut() {
            Some((begin, last))
                if is_comment(&piece) && is_comment(last) && *begin + last.matches('\n').count() + 1 == line =>
            {
                last.push('\n');
                last.push_str(&piece);
            }
            _ => joined.push((line, piece)),
        }
    }
    joined
}

/// Returns the tokens of a source file; and its comments and strings, each with the line of its begin.
fn split(text: &str) -> (Vec<Token>, Vec<(usize, String)>) {
    let bytes: Vec<char> = text.chars().collect();
    let at = |index: usize| bytes.get(index).copied().unwrap_or('\0');
    let (mut found, mut texts, mut index, mut line) = (Vec::new(), Vec::new(), 0, 1);
    while index < bytes.len() {
        let begin = index;
        index = match (at(index), at(index + 1)) {
            ('/', '/') => skip_until(&bytes, index, |index| at(index) == '\n'),
            ('/', '*') => end_of_comment(&bytes, index),
            ('"', _) => end_of_text(&bytes, index + 1),
            ('\'', '\\') => skip_until(&bytes, index + 3, |index| at(index) == '\'') + 1,
            ('\'', _) if at(index + 2) == '\'' => index + 3,
            ('r', '"' | '#') | ('b', 'r') if raw_text(&bytes, index).is_some() => {
                raw_text(&bytes, index).unwrap_or(index + 1)
            }
            (':', ':') => {
                found.push(Token { line, text: "::".to_owned() });
                index + 2
            }
            (first, _) if is_word(first) => {
                let end = skip_until(&bytes, index, |index| !is_word(at(index)));
                found.push(Token { line, text: bytes[index..end].iter().collect() });
                end
            }
            (first, _) => {
                if !first.is_whitespace() {
                    found.push(Token { line, text: first.to_string() });
                }
                index + 1
            }
        }
        .min(bytes.len());
        let is_text = match (at(begin), at(begin + 1)) {
            ('/', '/' | '*') | ('"', _) => true,
            ('r', '"' | '#') | ('b', 'r') => raw_text(&bytes, begin).is_some(),
            _ => false,
        };
        if is_text {
            texts.push((line, bytes[begin..index].iter().collect()));
        }
        line += bytes[begin..index].iter().filter(|each| **each == '\n').count();
    }
    (found, texts)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn skip_until(bytes: &[char], from: usize, end: impl Fn(usize) -> bool) -> usize {
    (from..bytes.len()).find(|index| end(*index)).unwrap_or(bytes.len())
}

/// Returns the index after the comment that begins at `from`. Comments may be nested.
fn end_of_comment(bytes: &[char], from: usize) -> usize {
    let (mut depth, mut index) = (0, from);
    while index < bytes.len() {
        match (bytes[index], bytes.get(index + 1)) {
            ('/', Some('*')) => (depth, index) = (depth + 1, index + 2),
            ('*', Some('/')) if depth == 1 => return index + 2,
            ('*', Some('/')) => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
    }
    index
}

fn end_of_text(bytes: &[char], from: usize) -> usize {
    let mut index = from;
    while index < bytes.len() && bytes[index] != '"' {
        index += if bytes[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

/// Returns the index after the raw string (`r"..."`, `r#"..."#`, `br"..."`) that begins at `from`; `None` if none
/// begins there (`r#type` is a word).
fn raw_text(bytes: &[char], from: usize) -> Option<usize> {
    let from = from + usize::from(bytes[from] == 'b') + 1;
    let quote = skip_until(bytes, from, |index| bytes[index] != '#');
    if bytes.get(quote) != Some(&'"') {
        return None;
    }
    let hashes = quote - from;
    let ends = |index: usize| bytes[index] == '"' && (1..=hashes).all(|offset| bytes.get(index + offset) == Some(&'#'));
    Some(skip_until(bytes, quote + 1, ends) + hashes + 1)
}

/// Returns all paths in the source that begin with `root`, such as `std`, with their lines; expands the groups of a
/// `use`.
pub(super) fn paths(tokens: &[Token], root: &str) -> Vec<(usize, String)> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    for index in 0..tokens.len() {
        // `other::std::x` is no path of the standard library; `::std::x` is.
        let begins = index < 2 || text(index - 1) != "::" || !text(index - 2).starts_with(is_word);
        if text(index) == root && text(index + 1) == "::" && begins {
            path(tokens, index, "", &mut found);
        }
    }
    found
}

/// Adds to `found` each path that begins at the token `index`, with its line and with `prefix` in front: a group such
/// as `{io, fs}` has several. Returns the index of the token after the path or group.
fn path(tokens: &[Token], mut index: usize, prefix: &str, found: &mut Vec<(usize, String)>) -> usize {
    let mut so_far = prefix.to_owned();
    let mut line = tokens.get(index).map_or(0, |token| token.line);
    while let Some(token) = tokens.get(index) {
        match token.text.as_str() {
            "{" => {
                index += 1;
                while tokens.get(index).is_some_and(|token| token.text != "}") {
                    let end = path(tokens, index, &so_far, found);
                    // Skips the comma, or any other character.
                    index =
                        if tokens.get(end).is_some_and(|token| token.text == "}") { end } else { end.max(index) + 1 };
                }
                return index + 1;
            }
            word if word == "*" || word.starts_with(is_word) => {
                so_far.push_str(word);
                line = token.line;
                index += 1;
                if tokens.get(index).is_none_or(|token| token.text != "::") {
                    break;
                }
                so_far.push_str("::");
                index += 1;
            }
            _ => break,
        }
    }
    if so_far != prefix {
        found.push((line, so_far));
    }
    // `x as y`
    if tokens.get(index).is_some_and(|token| token.text == "as") { index + 2 } else { index }
}
