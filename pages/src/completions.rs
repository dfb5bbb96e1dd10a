//! Names in completions: jobs, nodes and actions, beside the verbs and options that clap_complete writes.
//!
//! clap_complete can ask the program itself for values only with an unstable feature. So each script here runs
//! `perilog --quiet`, and waits for the controller at most two seconds. Without an answer, the script offers no jobs
//! and nodes; for another host (`-H`), no names at all. The placeholder of an argument in `--help` decides what the
//! script offers: names of jobs for `JOB`, of nodes for `NODE`, of signals for `SIGNAL`.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// Each kind of names, with the shell command that prints these names, one a line.
const LISTS: [(&str, &str); 4] = [
    ("jobs", "timeout 2 perilog --quiet ps --held"),
    ("nodes", "timeout 2 perilog --quiet nodes"),
    // The actions of the package's configuration. A site's own actions are not completed.
    ("actions", "printf '%s\\n' epilog housekeeping prolog"),
    ("signals", "printf '%s\\n' HUP INT KILL TERM USR1 USR2"),
];

/// Returns which names complete an argument whose placeholder in `--help` is `value`: `jobs` for `JOB`, for example.
/// `None`: no names.
fn kind(value: &str) -> Option<&'static str> {
    match value {
        "JOB" => Some("jobs"),
        "NODE" | "HOSTLIST" => Some("nodes"),
        "ACTION" => Some("actions"),
        "SIGNAL" => Some("signals"),
        _ => None,
    }
}

fn kind_of(argument: &Arg) -> Option<&'static str> {
    argument.get_value_names().and_then(|names| kind(names.first()?))
}

/// Returns each verb and each verb below it, with its words, for example `job add`.
fn verbs(root: &Command) -> Vec<(String, &Command)> {
    let mut found = Vec::new();
    for verb in root.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        found.push((verb.get_name().to_owned(), verb));
        let inner = verb.get_subcommands().filter(|inner| !inner.is_hide_set());
        found.extend(inner.map(|inner| (format!("{} {}", verb.get_name(), inner.get_name()), inner)));
    }
    found
}

/// Returns bash's completion script: `script`, which clap_complete wrote, with completion of jobs, nodes and actions
/// added.
pub fn bash(root: &Command, script: &str) -> String {
    let mut text = script.to_owned();
    let mut cases = String::new();
    for (name, verb) in verbs(root) {
        let mut takes = Vec::new();
        for option in verb.get_arguments().filter(|arg| !arg.is_positional() && arg.get_action().takes_values()) {
            let of = kind_of(option).unwrap_or_default();
            takes.extend(option.get_long().map(|long| format!("--{long}={of}")));
            takes.extend(option.get_short().map(|short| format!("-{short}={of}")));
        }
        takes.extend(verb.get_positionals().map(|arg| kind_of(arg).unwrap_or("-").to_owned()));
        if takes.iter().any(|take| LISTS.iter().any(|(kind, _)| take.ends_with(kind))) {
            // Writing to a String does not fail.
            let _ = writeln!(cases, "        '{name}') echo '{}' ;;", takes.join(" "));
        }
    }
    let mut lists = String::new();
    for (kind, command) in LISTS {
        let _ = writeln!(lists, "        {kind}) {command} ;;");
    }
    let kinds = LISTS.map(|(kind, _)| kind).join(" | ");
    let _ = write!(
        text,
        r#"
_perilog_names() {{
    case $1 in
{lists}    esac 2>/dev/null
}}

# Options with a value and arguments of a verb, each with the kind of name that it takes.
_perilog_takes() {{
    case $1 in
{cases}    esac
}}

_perilog_with_names() {{
    _perilog "$@"
    local i word verb= kind= take name at=0
    local cur=${{COMP_WORDS[COMP_CWORD]}}
    local -a takes=() own=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        case $word in
            -H* | --host*) return 0 ;;
            --socket | --color) [ -n "$verb" ] || ((++i)) ;;
            -*) ;;
            *)
                [ -z "$verb" ] || word="$verb $word"
                if [ -n "$verb" ] && [ -z "$(_perilog_takes "$word")" ]; then break; fi
                verb=$word
                if [ -n "$(_perilog_takes "$verb")" ]; then ((++i)); break; fi
                ;;
        esac
    done
    read -r -a takes <<<"$(_perilog_takes "$verb")"
    for take in "${{takes[@]}}"; do [[ $take == -?* ]] || own+=("$take"); done
    for (( ; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        if [[ $word != -* ]]; then ((++at)); continue; fi
        for take in "${{takes[@]}}"; do
            if [[ ${{take%%=*}} == "$word" && $take == -*=* ]]; then
                ((++i))
                ((i < COMP_CWORD)) || kind=${{take#*=}}-
                break
            fi
        done
    done
    [ -n "$kind" ] || kind=${{own[at]-}}
    [[ $cur != -* ]] || return 0
    # Names alone: without this, clap's own answer adds options to an empty word, and files to a value.
    case ${{kind%-}} in
        {kinds}) COMPREPLY=() ;;
    esac
    # Only what a shell leaves as it is: a name is the resource manager's, and stands on a command line next.
    while read -r name; do
        [[ $name == "$cur"* && $name =~ ^[A-Za-z0-9._:@+-]+$ ]] && COMPREPLY+=("$name")
    done < <(_perilog_names "${{kind%-}}")
    return 0
}}

complete -F _perilog_with_names -o bashdefault -o default perilog
"#
    );
    text
}

/// Returns zsh's completion script: `script`, which clap_complete wrote, with completion of jobs, nodes and actions
/// added. zsh itself quotes the names that it inserts.
pub fn zsh(script: &str) -> String {
    let mut text = String::new();
    for line in script.lines() {
        let named = value_of(line).and_then(|value| kind(&value.to_uppercase()).or_else(|| kind_of_id(value)));
        match named {
            Some(kind) => text.push_str(&line.replace(":_default'", &format!(":_perilog_{kind}'"))),
            None if line.starts_with("if [ \"$funcstack[1]\"") => {
                for (kind, command) in LISTS {
                    let _ = writeln!(
                        text,
                        "(( $+functions[_perilog_{kind}] )) ||\n\
                         _perilog_{kind}() {{\n\
                         \x20   local -a names\n\
                         \x20   (( $words[(I)(-H*|--host*)] )) && return 1\n\
                         \x20   names=(${{(f)\"$({command} 2>/dev/null)\"}})\n\
                         \x20   compadd -a names\n}}\n"
                    );
                }
                text.push_str(line);
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Returns the kind of names for the argument with this identifier in clap, such as `nodes`. `None`: the argument's
/// placeholder decides ([`kind`]).
fn kind_of_id(id: &str) -> Option<&'static str> {
    (id == "nodes").then_some("nodes")
}

/// Returns the placeholder of an option in a line of zsh's `_arguments`, such as `JOB` in `'--job=[...]:JOB:_default'`.
/// For a positional argument, returns its identifier in clap, such as `job` in `':job -- ...:_default'`. `None`:
/// another line.
fn value_of(line: &str) -> Option<&str> {
    let about = line.trim_end_matches(" \\").strip_suffix(":_default'")?;
    match about.rsplit_once("]:") {
        Some((_, value)) => Some(value),
        None => about.trim_start_matches(['\'', '*', ':']).split([' ', ':']).next(),
    }
}

/// Returns fish's completion script: `script`, which clap_complete wrote, with completion of jobs, nodes and actions
/// added. fish itself quotes the names that it inserts.
pub fn fish(root: &Command, script: &str) -> String {
    let mut text = script.to_owned();
    text.push_str(
        "\nfunction __perilog_names\n\
         \x20   string match -qr -- '^(-H|--host)' (commandline -opc); and return\n\
         \x20   switch $argv[1]\n",
    );
    for (kind, command) in LISTS {
        let _ = writeln!(text, "        case {kind}\n            {command} 2>/dev/null");
    }
    text.push_str("    end\nend\n");
    for (name, verb) in verbs(root) {
        let condition = match name.split_once(' ') {
            Some((outer, inner)) => {
                format!("__fish_perilog_using_subcommand {outer}; and __fish_seen_subcommand_from {inner}")
            }
            None => format!("__fish_perilog_using_subcommand {name}"),
        };
        let mut offers = std::collections::BTreeSet::new();
        for argument in verb.get_arguments() {
            let Some(kind) = kind_of(argument) else { continue };
            let option = argument.get_long().map(|long| format!(" -l {long} -x")).unwrap_or_default();
            if !argument.is_positional() && option.is_empty() {
                continue;
            }
            offers.insert(format!("complete -c perilog -n \"{condition}\"{option} -f -a \"(__perilog_names {kind})\""));
        }
        for offer in offers {
            let _ = writeln!(text, "{offer}");
        }
    }
    text
}
