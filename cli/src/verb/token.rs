//! `perilog token`: one-time tokens, with which nodes without a certificate enrol.

use perilog_core::{HostList, Span};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Columns, cell, styled};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, Page, Render, aside};
use crate::{style, text, values, when};

/// Make and revoke one-time tokens for nodes without a certificate
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Makes a token for each of these nodes.
    ///
    /// Prints the command to type on each node, for a new node and for new hardware under an old name. A token is valid
    /// once, for its node, for the time of --for. Without `perilog init`: write the token to the file that [enroll]
    /// token of the node's agent.toml names; only root may be able to read that file. The token is shown only now,
    /// because the controller keeps only its digest. With --quiet: the tokens.
    Create {
        #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
        nodes: HostList,
        /// How long a token is valid; default: one hour.
        #[arg(long = "for", value_name = "DURATION", value_parser = values::span)]
        lasts: Option<Span>,
    },
    /// Shows which nodes have tokens, and which were used. The tokens themselves are not stored.
    List,
    /// Revokes the tokens of these nodes, including used ones that have not expired, with which a node may ask again.
    /// To revoke an issued certificate: perilog ca revoke.
    Revoke {
        #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
        nodes: HostList,
    },
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::Create { nodes, lasts } => {
            let mut parameters = json!({ "nodes": nodes });
            if let Some(lasts) = lasts {
                parameters["lasts"] = lasts.to_exact().into();
            }
            let made: Answer<Made> = endpoint.ask("TokenMake", &parameters)?;
            out.show(&made)?;
            if out.format == OutputFormat::Table {
                aside(format_args!("each token is valid once, for its node; tokens are not shown again"));
            }
        }
        What::List => out.show(&endpoint.ask::<Known>("Tokens", &json!({}))?)?,
        What::Revoke { nodes } => out.show(&endpoint.ask::<Taken>("TokenTakeBack", &json!({ "nodes": nodes }))?)?,
    }
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Made {
    tokens: Vec<New>,
    /// The command that sets up a node, without its token. `None`: the controller is older, or does not know the name
    /// that nodes dial.
    #[serde(default)]
    command: Option<String>,
}

#[derive(Debug, Deserialize)]
struct New {
    host: String,
    token: String,
    until_ms: u64,
}

impl Render for Answer<Made> {
    fn table(&self, page: &mut Page) {
        if let Some(command) = &self.body.command {
            for New { host, token, until_ms } in &self.body.tokens {
                let (host, command, token) = (text::line(host), text::line(command), text::line(token));
                page.line(format_args!("until {} on {host}:", when::second(*until_ms)));
                page.line(format_args!("  {host}# {command} --token {token}"));
            }
            return;
        }
        let mut columns = Columns::new(["NODE", "UNTIL", "TOKEN"]);
        for new in &self.body.tokens {
            columns.row([cell(text::line(&new.host)), cell(when::second(new.until_ms)), cell(text::line(&new.token))]);
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        self.body.tokens.iter().for_each(|new| page.line(text::line(&new.token)));
    }
}

#[derive(Debug, Deserialize)]
struct Known {
    tokens: Vec<Token>,
}

#[derive(Debug, Deserialize)]
struct Token {
    host: String,
    made_ms: u64,
    until_ms: u64,
    by: u32,
    used_ms: Option<u64>,
}

impl Render for Answer<Known> {
    fn table(&self, page: &mut Page) {
        if self.body.tokens.is_empty() {
            page.line("there are no tokens");
            return;
        }
        let mut columns = Columns::new(["MADE", "NODE", "BY", "STATE"]);
        for token in &self.body.tokens {
            let state = match token.used_ms {
                Some(used) => cell(format!("used {}", when::second(used))),
                None if token.until_ms <= page.now_ms => styled("expired", style::CARE),
                None => cell(format!("good until {}", when::second(token.until_ms))),
            };
            let by = format!("uid {}", token.by);
            columns.row([cell(when::second(token.made_ms)), cell(text::line(&token.host)), cell(by), state]);
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        let good = |token: &&Token| token.used_ms.is_none() && token.until_ms > page.now_ms;
        let hosts: Vec<&str> = self.body.tokens.iter().filter(good).map(|token| token.host.as_str()).collect();
        hosts.into_iter().for_each(|host| page.line(text::line(host)));
    }
}

#[derive(Debug, Deserialize)]
struct Taken {
    taken: u64,
}

impl Render for Answer<Taken> {
    fn table(&self, page: &mut Page) {
        page.line(format_args!("{} revoked", text::count(self.body.taken, "token")));
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        page.line(self.body.taken);
    }
}
