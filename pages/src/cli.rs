//! perilog(1) and a page for each verb, made from clap's definition of the command line, as `--help` is. The page of a
//! verb also describes the verbs below it: perilog-job(1) describes `job add`.

use clap::{Arg, Command};

use crate::page::{Block, Page};
use crate::usage;

/// The sentence on each verb's page that refers to perilog(1) for the common options.
const COMMON: &str = "`--socket`, `--json`, `--quiet` and `--color` are taken by every verb: see perilog(1).";

/// Returns the manual pages of the command line `root`: perilog(1) first, then a page for each verb.
pub fn pages(mut root: Command) -> Vec<Page> {
    root.build();
    let mut first = Page::new(root.get_name(), 1, brief(&root));
    let verbs: Vec<&Command> = root.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    first.add("SYNOPSIS", vec![Block::Paragraph(format!("`{}` [*OPTIONS*] *VERB* ...", root.get_name()))]);
    first.add("DESCRIPTION", description(&root));
    first.add("OPTIONS", arguments(&root, |argument| !argument.is_positional()));
    let each = verbs.iter().map(|verb| {
        let page = format!("{}(1)", page_name(&root, verb));
        Block::Tagged(vec![page], vec![Block::Paragraph(sentence(&about(verb)))])
    });
    first.add("VERBS", each.collect());
    first.add("EXIT STATUS", after(&root));
    first.add("ENVIRONMENT", environment(&root));
    let mut pages = vec![first];
    pages.extend(verbs.into_iter().map(|verb| of_verb(&root, verb)));
    pages
}

/// Verbs with the name of a daemon, whose pages get the suffix `-verb`. man(1) looks into section 1 first, and would
/// show the verb to a reader who asks for the daemon.
const DAEMONS: [&str; 2] = ["agent", "controller"];

/// Returns the name of a verb's page, such as `perilog-run`.
pub fn page_name(root: &Command, verb: &Command) -> String {
    let verb_of = if DAEMONS.contains(&verb.get_name()) { "-verb" } else { "" };
    format!("{}-{}{verb_of}", root.get_name(), verb.get_name())
}

fn of_verb(root: &Command, verb: &Command) -> Page {
    let name = format!("{} {}", root.get_name(), verb.get_name());
    let mut page = Page::new(page_name(root, verb), 1, brief(verb));
    let inner: Vec<&Command> = verb.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    page.add("DESCRIPTION", description(verb));
    let own = |argument: &Arg| !argument.is_global_set();
    if inner.is_empty() {
        page.add("SYNOPSIS", vec![Block::Paragraph(synopsis(&name, verb))]);
        page.add("ARGUMENTS", arguments(verb, |argument| own(argument) && argument.is_positional()));
        let mut options = arguments(verb, |argument| own(argument) && !argument.is_positional());
        options.push(Block::Paragraph(COMMON.to_owned()));
        page.add("OPTIONS", options);
    } else {
        let lines = inner.iter().map(|inner| synopsis(&format!("{name} {}", inner.get_name()), inner));
        page.add("SYNOPSIS", vec![Block::Paragraph(lines.collect::<Vec<_>>().join("\n"))]);
        for inner in inner {
            let mut blocks =
                vec![Block::Heading(format!("{name} {}", inner.get_name())), Block::Paragraph(sentence(&about(inner)))];
            blocks.extend(more(inner));
            blocks.extend(arguments(inner, |argument| own(argument)));
            page.add("COMMANDS", blocks);
        }
        page.add("OPTIONS", vec![Block::Paragraph(COMMON.to_owned())]);
    }
    page.add("ENVIRONMENT", environment(verb));
    let status = after(verb);
    let there = Block::Paragraph("0 if all is well; the others are in perilog(1).".to_owned());
    page.add("EXIT STATUS", if status.is_empty() { vec![there] } else { status });
    page
}

/// Returns the first sentence of a command's help in the form that whatis(1) shows.
fn brief(command: &Command) -> String {
    let text = about(command);
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().collect::<String>() + chars.as_str()
        }
        _ => text.to_owned(),
    }
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

/// Returns the paragraphs of a command's long help after the first.
fn more(command: &Command) -> Vec<Block> {
    let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let paragraphs = long.split("\n\n").skip(1).map(str::trim).filter(|text| !text.is_empty());
    paragraphs.map(|text| Block::Paragraph(text.to_owned())).collect()
}

fn description(command: &Command) -> Vec<Block> {
    let more = more(command);
    if more.is_empty() { vec![Block::Paragraph(sentence(&about(command)))] } else { more }
}

/// Returns the text that `--help` prints after the options, such as the exit statuses, as blocks without its heading.
fn after(command: &Command) -> Vec<Block> {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    usage::blocks(text.strip_prefix("Exit status:").unwrap_or(&text))
}

fn synopsis(name: &str, command: &Command) -> String {
    let own: Vec<&Arg> =
        command.get_arguments().filter(|argument| !argument.is_hide_set() && !argument.is_global_set()).collect();
    let mut words = vec![format!("`{name}`")];
    let is_help = |argument: &Arg| argument.get_id() == "help";
    if own.iter().any(|argument| !argument.is_positional() && !argument.is_required_set() && !is_help(argument)) {
        words.push("[*OPTIONS*]".to_owned());
    }
    words.extend(
        own.iter()
            .filter(|argument| !argument.is_positional() && argument.is_required_set())
            .map(|option| term(option)),
    );
    for argument in own.iter().filter(|argument| argument.is_positional()) {
        let many = argument.get_num_args().is_some_and(|range| range.max_values() > 1);
        let name = format!("{}{}", values(argument), if many { " ..." } else { "" });
        words.push(if argument.is_required_set() { name } else { format!("[{name}]") });
    }
    words.join(" ")
}

/// Returns the names of an argument's values, such as `*NODES*`.
fn values(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().map(|name| format!("*{name}*")).collect::<Vec<_>>().join(" ")
}

/// Returns an argument as the page names it, such as `-f`, `--format FORMAT`.
fn term(argument: &Arg) -> String {
    if argument.is_positional() {
        return values(argument);
    }
    let short = argument.get_short().map(|short| format!("`-{short}`"));
    let long = argument.get_long().map(|long| format!("`--{long}`"));
    let also = argument.get_visible_aliases().unwrap_or_default().into_iter().map(|alias| format!("`--{alias}`"));
    let mut term = short.into_iter().chain(long).chain(also).collect::<Vec<_>>().join(", ");
    if argument.get_action().takes_values() {
        let optional = argument.get_num_args().is_some_and(|range| range.min_values() == 0);
        term.push_str(&if optional { format!(" [{}]", values(argument)) } else { format!(" {}", values(argument)) });
    }
    term
}

fn arguments(command: &Command, wanted: impl Fn(&Arg) -> bool) -> Vec<Block> {
    let shown = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && argument.get_id() != "help" && wanted(argument));
    shown.filter_map(explained).collect()
}

/// Returns the page's entry for an argument. `None`: an argument without help, whose name says enough.
fn explained(argument: &Arg) -> Option<Block> {
    let text = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut paragraphs: Vec<String> = text.split("\n\n").filter(|text| !text.is_empty()).map(sentence).collect();
    let possible = argument.get_possible_values();
    let choices = possible.iter().filter(|value| !value.is_hide_set()).map(|value| match value.get_help() {
        Some(help) => format!("`{}` ({help})", value.get_name()),
        None => format!("`{}`", value.get_name()),
    });
    let choices: Vec<String> = choices.collect();
    if !choices.is_empty() && argument.get_action().takes_values() && !argument.is_hide_possible_values_set() {
        paragraphs.push(format!("One of {}.", choices.join(", ")));
    }
    let default = argument.get_default_values();
    if !default.is_empty() && argument.get_action().takes_values() {
        let default: Vec<_> = default.iter().map(|value| value.to_string_lossy()).collect();
        paragraphs.push(format!("Default: `{}`.", default.join(",")));
    }
    if paragraphs.is_empty() {
        paragraphs.push(match values(argument).as_str() {
            "*JOB*" => "The job, as the resource manager names it.".to_owned(),
            "*ACTION*" => "The action, such as prolog.".to_owned(),
            _ => return None,
        });
    }
    // One paragraph, because explanations are short.
    Some(Block::Tagged(vec![term(argument)], vec![Block::Paragraph(paragraphs.join(" "))]))
}

fn environment(command: &Command) -> Vec<Block> {
    let own = |argument: &&Arg| command.get_name() == "perilog" || !argument.is_global_set();
    let variables =
        command.get_arguments().filter(own).filter_map(|argument| Some((argument.get_env()?, argument.get_long()?)));
    let each = variables.map(|(variable, option)| {
        let text = format!("What `--{option}` says where it is not given.");
        Block::Tagged(vec![format!("`{}`", variable.to_string_lossy())], vec![Block::Paragraph(text)])
    });
    each.collect()
}
