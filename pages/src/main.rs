//! `perilog-pages DIR`: called by `cargo xtask pages`. The date in the pages is SOURCE_DATE_EPOCH, so that the same
//! source gives the same pages.

use std::path::Path;

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory] = arguments.as_slice() else { bail!("usage: perilog-pages DIR") };
    let count = perilog_pages::write(Path::new(directory), &date()?)?;
    anyhow::ensure!(count > 0, "no pages");
    Ok(())
}

fn date() -> Result<String> {
    let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") else { return Ok(String::new()) };
    let second = epoch.parse().with_context(|| format!("SOURCE_DATE_EPOCH={epoch}: not a number of seconds"))?;
    let time = jiff::Timestamp::from_second(second).context("SOURCE_DATE_EPOCH")?;
    Ok(time.strftime("%Y-%m-%d").to_string())
}
