//! Deliberate defects, if this program was built with them: `cargo xtask mutate` passes `--defects` and `--defect
//! NAME`.

#[cfg(feature = "defects")]
pub(crate) fn switch_on(name: &str) -> Result<(), String> {
    perilog_core::defect::switch_on(name)
}

/// Returns the table of defects as JSON.
#[cfg(feature = "defects")]
pub(crate) fn table() -> Result<String, String> {
    let row = |row: &perilog_core::defect::Row| {
        serde_json::json!({"name": row.name(), "ident": row.ident,
        "wrong": row.wrong, "breaks": row.breaks, "hunt": row.hunt})
    };
    let rows: Vec<_> = perilog_core::defect::TABLE.iter().map(row).collect();
    Ok(format!("{:#}\n", serde_json::Value::from(rows)))
}

#[cfg(not(feature = "defects"))]
const NONE: &str = "this simulator was built without deliberate defects: see `cargo xtask mutate`";

#[cfg(not(feature = "defects"))]
pub(crate) fn switch_on(_: &str) -> Result<(), String> {
    Err(NONE.to_owned())
}

#[cfg(not(feature = "defects"))]
pub(crate) fn table() -> Result<String, String> {
    Err(NONE.to_owned())
}
