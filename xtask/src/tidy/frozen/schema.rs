//! The schema of `--json`: what programs that read its texts may notice of a change. A text that fits the new schema
//! has all that the old one promised.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Change;

/// Beginning of the references within a schema.
const DEFS: &str = "#/$defs/";
/// Keywords whose change no program notices.
const SILENT: [&str; 8] = ["$schema", "$id", "$comment", "$defs", "title", "description", "default", "examples"];
/// Keywords that are compared in their own way.
const OWN: [&str; 10] =
    ["$ref", "type", "enum", "const", "required", "properties", "items", "additionalProperties", "oneOf", "anyOf"];
/// Keywords for one of several schemas.
const SEVERAL: [&str; 2] = ["oneOf", "anyOf"];
/// Most references that are followed one after the other.
const MOST_REFERENCES: usize = 8;
/// Beginning of the text of a word that is gone.
const WORD: &str = "lacks the word ";

/// Returns what programs that know the old schema may notice.
pub(super) fn changes(old: &Value, new: &Value) -> Vec<Change> {
    let both = Both { old, new };
    let mut found = Vec::new();
    for (name, old) in old["$defs"].as_object().into_iter().flatten() {
        let place = format!("{DEFS}{name}");
        match new["$defs"].get(name) {
            Some(new) => both.compare(&place, old, new, 0, &mut found),
            None => found.push(Change::new(place, "is gone")),
        }
    }
    found
}

/// Both schemas, in which references are looked up.
#[derive(Clone, Copy)]
struct Both<'a> {
    old: &'a Value,
    new: &'a Value,
}

impl Both<'_> {
    /// Compares two schemas at a place. `depth`: how many references were followed.
    fn compare(self, place: &str, old: &Value, new: &Value, depth: usize, found: &mut Vec<Change>) {
        if !(old.is_object() && new.is_object()) {
            if old != new {
                found.push(Change::new(place, format!("is {new} now, and was {old}")));
            }
            return;
        }
        // A definition is compared under its own name.
        if old.get("$ref").is_some() && old.get("$ref") == new.get("$ref") || depth > MOST_REFERENCES {
            return;
        }
        if old.get("$ref").is_some() || new.get("$ref").is_some() {
            let (Some(old), Some(new)) = (resolved(self.old, old), resolved(self.new, new)) else {
                return found.push(Change::new(place, "has a reference that leads nowhere"));
            };
            return self.compare(place, old, new, depth + 1, found);
        }
        let kinds = (types(self.old, old, 0), types(self.new, new, 0));
        if kinds.0.is_some() && kinds.0 != kinds.1 {
            let [old, new] = [kinds.0, kinds.1].map(listed);
            return found.push(Change::new(place, format!("is {new} now, and was {old}")));
        }
        for word in words(old).into_iter().flatten() {
            if words(new).is_none_or(|words| !words.contains(&word)) {
                found.push(Change::new(place, format!("{WORD}{word}")));
            }
        }
        let required = |of: &Value| of["required"].as_array().cloned().unwrap_or_default();
        for member in required(old).iter().filter(|member| !required(new).contains(member)) {
            let member = member.as_str().unwrap_or_default();
            found.push(Change::new(format!("{place}/required"), format!("lacks `{member}`, which may be absent now")));
        }
        self.compare_parts(place, old, new, depth, found);
        for keyword in SEVERAL {
            self.compare_several(&format!("{place}/{keyword}"), &old[keyword], &new[keyword], depth, found);
        }
        for (keyword, value) in old.as_object().unwrap_or(&Map::new()) {
            let is_other = !SILENT.contains(&keyword.as_str()) && !OWN.contains(&keyword.as_str());
            if is_other && new.get(keyword) != Some(value) {
                let now = new.get(keyword).map_or_else(|| "absent".to_owned(), Value::to_string);
                found.push(Change::new(format!("{place}/{keyword}"), format!("is {now} now, and was {value}")));
            }
        }
    }

    /// Compares members and elements.
    fn compare_parts(self, place: &str, old: &Value, new: &Value, depth: usize, found: &mut Vec<Change>) {
        for (name, old) in old["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}/properties/{name}");
            match new["properties"].get(name) {
                Some(new) => self.compare(&place, old, new, depth, found),
                None => found.push(Change::new(place, "is gone")),
            }
        }
        for keyword in ["items", "additionalProperties"] {
            let place = format!("{place}/{keyword}");
            match (old.get(keyword), new.get(keyword)) {
                (Some(old), Some(new)) => self.compare(&place, old, new, depth, found),
                (Some(_), None) => found.push(Change::new(place, "is gone")),
                (None, _) => {}
            }
        }
    }

    /// Compares lists of schemas of which one fits: each of the old ones is still there, at any place.
    fn compare_several(self, place: &str, old: &Value, new: &Value, depth: usize, found: &mut Vec<Change>) {
        let (old, none) = (old.as_array().map(Vec::as_slice).unwrap_or_default(), Vec::new());
        let new = new.as_array().unwrap_or(&none);
        for (at, old) in old.iter().enumerate() {
            let place = format!("{place}/{at}");
            let mut nearest: Option<(bool, usize, bool, Vec<Change>)> = None;
            for (index, new) in new.iter().enumerate() {
                let mut of_this = Vec::new();
                self.compare(&place, old, new, depth, &mut of_this);
                // Which of several it is goes by a word: another word is another schema.
                let is_other = of_this.iter().any(|change| change.what.starts_with(WORD));
                let next = (is_other, of_this.len(), index != at, of_this);
                let is_nearer = nearest.as_ref().is_none_or(|best| (next.0, next.1, next.2) < (best.0, best.1, best.2));
                nearest = if is_nearer { Some(next) } else { nearest };
            }
            match nearest {
                Some((.., changes)) => found.extend(changes),
                None => found.push(Change::new(place, "is gone")),
            }
        }
    }
}

/// Follows the references of a schema.
fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> Option<&'a Value> {
    for _ in 0..MOST_REFERENCES {
        let Some(reference) = schema.get("$ref") else { return Some(schema) };
        schema = root["$defs"].get(reference.as_str()?.strip_prefix(DEFS)?)?;
    }
    None
}

/// Returns the types that a schema takes; `None`: all.
fn types(root: &Value, schema: &Value, depth: usize) -> Option<BTreeSet<String>> {
    let schema = resolved(root, schema).filter(|_| depth <= MOST_REFERENCES)?;
    if let Some(kind) = schema.get("type") {
        let kinds = kind.as_array().map_or_else(|| vec![kind.clone()], Clone::clone);
        return Some(kinds.iter().filter_map(|kind| kind.as_str().map(str::to_owned)).collect());
    }
    if let Some(words) = words(schema) {
        return Some(words.iter().map(|word| type_of(word).to_owned()).collect());
    }
    let several = SEVERAL.iter().find_map(|keyword| schema[*keyword].as_array())?;
    let each: Option<Vec<BTreeSet<String>>> = several.iter().map(|schema| types(root, schema, depth + 1)).collect();
    Some(each?.into_iter().flatten().collect())
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the values that a schema lists; `None`: it lists none.
fn words(schema: &Value) -> Option<Vec<Value>> {
    schema.get("const").map(|word| vec![word.clone()]).or_else(|| schema["enum"].as_array().cloned())
}

fn listed(types: Option<BTreeSet<String>>) -> String {
    types.map_or_else(|| "anything".to_owned(), |types| types.into_iter().collect::<Vec<_>>().join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r##"{
        "title": "a",
        "$defs": {
            "ps": {
                "type": "object",
                "required": ["rows", "state"],
                "properties": {
                    "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
                    "state": {"enum": ["open", "ok"], "description": "b"},
                    "since": {"type": ["integer", "null"], "minimum": 0},
                    "row": {"$ref": "#/$defs/row"},
                    "by_name": {"type": "object", "additionalProperties": {"type": "string"}}
                }
            },
            "row": {"type": "object", "required": [], "properties": {"why": {"type": "string"}}},
            "export": {
                "required": ["kind"],
                "oneOf": [
                    {"type": "object", "properties": {"kind": {"const": "job"}, "job": {"type": "string"}}},
                    {"type": "object", "properties": {"kind": {"const": "rank"}, "rank": {"type": "integer"}}}
                ]
            },
            "exit": {"anyOf": [{"$ref": "#/$defs/row"}, {"type": "null"}]}
        }
    }"##;

    fn found(new: &str) -> Vec<String> {
        let [old, new] = [OLD, new].map(|text| serde_json::from_str(text).unwrap());
        changes(&old, &new).into_iter().map(|Change { place, what }| format!("{place}: {what}")).collect()
    }

    #[test]
    fn what_a_program_may_notice_is_found() {
        let twin = r##""row": {"type": "object", "properties": {"why": {"type": "string"}}}"##;
        for (from, to, expect) in [
            // What programs do not notice.
            ("", "", ""),
            (r#""title": "a""#, r#""title": "c""#, ""),
            (r#", "description": "b""#, "", ""),
            (r#"["open", "ok"]"#, r#"["ok", "open", "lost"]"#, ""),
            (r#"["rows", "state"]"#, r#"["state", "since", "rows"]"#, ""),
            (r#""row": {"$ref""#, r#""age": {"type": "integer"}, "row": {"$ref""#, ""),
            (r##""row": {"$ref": "#/$defs/row"}"##, twin, ""),
            (r#""oneOf": ["#, r#""oneOf": [{"type": "object", "properties": {"kind": {"const": "event"}}},"#, ""),
            (r#""anyOf": ["#, r#""anyOf": [{"type": "object"},"#, ""),
            // Members and words that are gone, or have another name.
            (
                r#""required": ["rows", "state"]"#,
                r#""required": ["rows"]"#,
                "#/$defs/ps/required: lacks `state`, which may be absent now",
            ),
            (r#""since": {"#, r#""from": {"#, "#/$defs/ps/properties/since: is gone"),
            (r#"{"why": {"type": "string"}}"#, "{}", "#/$defs/row/properties/why: is gone"),
            (r#""exit": {"#, r#""end": {"#, "#/$defs/exit: is gone"),
            (r#"["open", "ok"]"#, r#"["ok"]"#, "#/$defs/ps/properties/state: lacks the word \"open\""),
            (
                r#"{"enum": ["open", "ok"]"#,
                r#"{"type": "string""#,
                "#/$defs/ps/properties/state: lacks the word \"open\", \
                 #/$defs/ps/properties/state: lacks the word \"ok\"",
            ),
            (r#", "job": {"type": "string"}"#, "", "#/$defs/export/oneOf/0/properties/job: is gone"),
            (r#""kind": {"const": "rank"}, "#, "", "#/$defs/export/oneOf/1/properties/kind: is gone"),
            // Types.
            (
                r#"["integer", "null"]"#,
                r#""integer""#,
                "#/$defs/ps/properties/since: is integer now, and was integer or null",
            ),
            (
                r#""why": {"type": "string"}"#,
                r#""why": {"type": ["string", "null"]}"#,
                "#/$defs/row/properties/why: is null or string now, and was string",
            ),
            (
                r#""why": {"type": "string"}"#,
                r#""why": {}"#,
                "#/$defs/row/properties/why: is anything now, and was string",
            ),
            (
                r#""rank": {"type": "integer"}"#,
                r#""rank": {"type": "string"}"#,
                "#/$defs/export/oneOf/1/properties/rank: is string now, and was integer",
            ),
            (
                r##""items": {"$ref": "#/$defs/row"}"##,
                r#""items": {"type": "string"}"#,
                "#/$defs/ps/properties/rows/items: is string now, and was object",
            ),
            (r##", "items": {"$ref": "#/$defs/row"}"##, "", "#/$defs/ps/properties/rows/items: is gone"),
            (
                r##""row": {"$ref": "#/$defs/row"}"##,
                r##""row": {"$ref": "#/$defs/exit"}"##,
                "#/$defs/ps/properties/row: is null or object now, and was object",
            ),
            (
                r##""row": {"$ref": "#/$defs/row"}"##,
                r##""row": {"$ref": "#/$defs/none"}"##,
                "#/$defs/ps/properties/row: has a reference that leads nowhere",
            ),
            (
                r#""additionalProperties": {"type": "string"}"#,
                r#""additionalProperties": {"type": "integer"}"#,
                "#/$defs/ps/properties/by_name/additionalProperties: is integer now, and was string",
            ),
            (r#", "minimum": 0"#, "", "#/$defs/ps/properties/since/minimum: is absent now, and was 0"),
            (r#", {"type": "null"}"#, "", "#/$defs/exit: is object now, and was null or object"),
        ] {
            assert!(OLD.contains(from), "{from}");
            assert_eq!(found(&OLD.replacen(from, to, 1)).join(", "), expect, "{from} -> {to}");
        }
    }

    #[test]
    fn schemas_that_refer_to_themselves_are_compared() {
        let of = |kind: &str| {
            let schema = r##"{"$defs":{"KIND":{"type":"object","properties":{"next":{"$ref":"#/$defs/KIND"}}},
                              "list":{"properties":{"first":{"$ref":"#/$defs/KIND"}}}}}"##;
            schema.replace("KIND", kind)
        };
        let [old, new] = [of("a"), of("b")].map(|text| serde_json::from_str(&text).unwrap());
        let places: Vec<String> = changes(&old, &new).into_iter().map(|change| change.place).collect();
        assert_eq!(places, ["#/$defs/a"]);
    }
}
