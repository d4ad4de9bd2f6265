//! A dangerous command in random layers: a second, simpler model of the rule. The model knows that the command is
//! there, because it put it there; it reads nothing.

use agent_protocol::payload::permission::Effect;
use proptest::prelude::*;

use crate::gate_support::PROJECT;

/// What a layer is around: a script, or the words of one command.
type Layer = fn(&str) -> String;

fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', "'\\''"))
}

/// Where a script is text or code.
const AROUND_SCRIPTS: &[Layer] = &[
    |s| format!("bash -c {}", quoted(s)),
    |s| format!("eval {}", quoted(s)),
    |s| format!("bash <<'END'\n{s}\nEND"),
    |s| format!("bash <<< {}", quoted(s)),
    |s| format!("echo {} | sh", quoted(s)),
    |s| format!("bash <(echo {})", quoted(s)),
    |s| format!(". /dev/stdin <<< {}", quoted(s)),
    |s| format!("echo {} > y; chmod +x y; ./y", quoted(s)),
    |s| format!("cat > y <<'END'\n{s}\nEND\nsh y"),
    |s| format!("x={}; eval \"$x\"", quoted(s)),
    |s| format!("trap {} EXIT", quoted(s)),
    |s| format!("f() {{ {s}\n}}; f"),
    |s| format!("PS4={}; set -x; :", quoted(&format!("$({s})"))),
    |s| format!("test -v {}", quoted(&format!("a[$({s})0]"))),
    |s| format!("[[ -v {} ]]", quoted(&format!("a[$({s})0]"))),
    |s| format!("let {}", quoted(&format!("x=a[$({s})0]"))),
    |s| format!("compgen -W {}", quoted(&format!("$({s})"))),
    |s| format!("x={}; echo \"${{x@P}}\"", quoted(&format!("$({s})"))),
    |s| format!("x={}; (( x ))", quoted(&format!("a[$({s})0]"))),
    |s| format!("read {} <<< x", quoted(&format!("a[$({s})0]"))),
    |s| format!("printf -v {} x", quoted(&format!("a[$({s})0]"))),
    |s| format!("mapfile -tC {} -c1 < a", quoted(&format!("{s} #"))),
    |s| format!("GIT_PAGER={} git -p log", quoted(s)),
    |s| format!("GIT_EXTERNAL_DIFF={} git diff", quoted(s)),
    |s| format!("PROMPT_COMMAND={} bash -i < /dev/null", quoted(s)),
    |s| format!("LESSOPEN={} less a", quoted(&format!("|{s}"))),
    |s| {
        format!(
            "env {} bash -c ls",
            quoted(&format!("BASH_FUNC_ls%%=() {{ {s}; }}"))
        )
    },
    |s| format!("git -c {} x", quoted(&format!("alias.x=!{s}"))),
    |s| format!("git ls-remote --upload-pack={} .", quoted(s)),
    |s| format!("git difftool --extcmd={}", quoted(s)),
    |s| format!("sed --exp={} a", quoted(&format!("1e {s}"))),
    |s| format!("tar xf x.tar --to-c={}", quoted(s)),
    |s| format!("npm x -c {}", quoted(s)),
    |s| format!("npx -c {}", quoted(s)),
    |s| format!("split --filter={} a", quoted(s)),
    |s| format!("sqlite3 :memory: {}", quoted(&format!(".shell {s}"))),
    |s| format!("ssh -oProxyCommand={} x", quoted(s)),
    |s| format!("find . -exec sh -c {} \\;", quoted(s)),
    |s| format!("echo a | xargs -I{{}} sh -c {}", quoted(s)),
    |s| format!("while read -r l; do eval \"$l\"; done <<'END'\n{s}\nEND"),
    |s| format!("cat > Makefile <<'END'\nx:\n\t{s}\nEND\nmake"),
    |s| format!("make --eval={} x", quoted(&format!("x:;{s}"))),
    |s| format!("echo \"$({s})\""),
    |s| format!("echo `{s}`"),
    |s| format!("if true; then {s}\nfi"),
    |s| format!("for i in 1; do {s}\ndone"),
    |s| format!("case x in x) {s} ;; esac"),
    |s| format!("({s})"),
    |s| format!("{{ {s}\n}}"),
    |s| format!("true && {s}"),
    |s| format!("ls | cat; {s}"),
    |s| format!("{s} &"),
    |s| format!("coproc {s}"),
    |s| format!("shopt -s extglob\n{s}"),
    |s| format!("cd src && {s}"),
];

/// Where it is the words of one command.
const AROUND_WORDS: &[Layer] = &[
    |w| w.to_owned(),
    |w| format!("{{fd}}>/dev/null {w}"),
    |w| format!("set -- {w}; \"$@\""),
    |w| format!("x=({w}); \"${{x[@]}}\""),
    |w| format!("bash -c '\"$@\"' _ {w}"),
    |w| format!("read -ra x <<< '{w}'; \"${{x[@]}}\""),
    |w| format!("x='{w}'; $x"),
    |w| format!("echo {w} | xargs env"),
    |w| format!("echo {w} | xargs nice"),
    |w| format!("echo {w} | xargs timeout 5"),
    |w| format!("echo {w} | xargs -I{{}} sh -c {{}}"),
    |w| format!("echo {w} | xargs -I% bash -c %"),
    |w| format!("{{{}}}", w.replace(' ', ",")),
    |w| format!("env {w}"),
    |w| format!("sudo -u x {w}"),
    |w| format!("nohup nice -n 5 {w}"),
    |w| format!("env -S '{w}'"),
    |w| format!("setarch x86_64 {w}"),
    |w| format!("frobnicate --now {w}"),
    |w| format!("command -p {w}"),
    |w| format!("exec -a ls {w}"),
    |w| format!("time -p {w}"),
    |w| format!("find . -exec {w} {{}} +"),
    |w| format!("/bin/{w}"),
    |w| format!("\\{w}"),
    |w| format!("\"\"{w}"),
    |w| format!("A=1 {w}"),
    |w| format!(">o {w}"),
    |w| format!("<&- {w}"),
    |w| format!("f() {{ \"$@\"; }}; f {w}"),
    |w| w.replacen(' ', " \\\n ", 1),
    |w| {
        let (name, rest) = w.split_once(' ').unwrap();
        format!("BASH_CMDS[ls]=/bin/{name}; ls {rest}")
    },
    |w| {
        let (name, rest) = w.split_once(' ').unwrap();
        format!("alias ll={name}; ll {rest}")
    },
    |w| {
        let (name, rest) = w.split_once(' ').unwrap();
        format!("hash -p /bin/{name} ls; ls {rest}")
    },
    |w| {
        let (name, rest) = w.split_once(' ').unwrap();
        format!("ln -s /bin/{name} x; ./x {rest}")
    },
    |w| {
        let (name, rest) = w.split_once(' ').unwrap();
        format!("echo {rest} | xargs {name}")
    },
    |w| {
        let (name, rest) = w.split_once(' ').unwrap();
        format!("x={name}; $x {rest}")
    },
    |w| {
        let (name, rest) = w.split_once(' ').unwrap();
        format!("f() {{ {name} \"$@\"; }}; f {rest}")
    },
];

fn wrapped(words: String) -> impl Strategy<Value = String> {
    let inner = 0..AROUND_WORDS.len();
    let outer = prop::collection::vec(0..AROUND_SCRIPTS.len(), 0..4);
    (inner, outer).prop_map(move |(inner, outer)| {
        outer
            .into_iter()
            .fold(AROUND_WORDS[inner](&words), |script, layer| {
                AROUND_SCRIPTS[layer](&script)
            })
    })
}

/// Each layer alone, and each pair of one around words and one around scripts.
fn pairs(words: &str) -> Vec<String> {
    let inner = around_words(words);
    let mut all = inner.clone();
    for layer in AROUND_SCRIPTS {
        all.extend(inner.iter().map(|script| layer(script)));
    }
    all
}

fn holds(script: &str, rules: &[&str]) -> Result<(), String> {
    for (mode, expected) in [
        ("full", &[Effect::Deny][..]),
        ("auto", &[Effect::Deny, Effect::Ask]),
    ] {
        let (decision, reason) = crate::decision(script, mode, rules);
        if !expected.contains(&decision) {
            return Err(format!(
                "{mode} {decision}: {}  ({reason})",
                script.escape_debug()
            ));
        }
    }
    Ok(())
}

fn all_hold(scripts: &[String], rules: &[&str]) {
    let passed: Vec<String> = scripts
        .iter()
        .filter_map(|script| holds(script, rules).err())
        .collect();
    assert!(
        passed.is_empty(),
        "{} of {} passed:\n{}",
        passed.len(),
        scripts.len(),
        passed.join("\n")
    );
}

#[test]
fn every_pair_of_layers_holds_under_a_deny_rule() {
    all_hold(&pairs("rm -f victim"), &["deny bash(rm *)"]);
    all_hold(&pairs("git push origin main"), &["deny bash(git push *)"]);
}

#[test]
fn every_pair_of_layers_holds_before_a_breaker() {
    all_hold(&pairs(&format!("rm -rf {PROJECT}")), &[]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_layers_get_past_a_deny_rule(
        script in prop_oneof![wrapped("rm -f victim".to_owned()), wrapped("rm victim".to_owned())],
    ) {
        let held = holds(&script, &["deny bash(rm *)"]);
        prop_assert!(held.is_ok(), "{}", held.unwrap_err());
    }

    #[test]
    fn no_layers_get_past_a_breaker(
        script in prop_oneof![
            wrapped(format!("rm -rf {PROJECT}")),
            wrapped("rm -r -f /home/u".to_owned()),
            wrapped("rm --recursive /".to_owned()),
        ],
    ) {
        let held = holds(&script, &[]);
        prop_assert!(held.is_ok(), "{}", held.unwrap_err());
    }
}

/// Other breakers: those that refuse in mode `full`, and those that ask there too.
#[test]
fn other_breakers_hold_in_every_layer() {
    for words in ["dd of=/dev/sda", "mkfs.ext4 /dev/sda", "rimraf /home/u"] {
        all_hold(&around_words(words), &[]);
    }
    let passed: Vec<String> = around_words("git push --force origin main")
        .into_iter()
        .filter(|script| crate::decision(script, "full", &[]).0 == Effect::Allow)
        .collect();
    assert!(passed.is_empty(), "{}", passed.join("\n"));
}

fn around_words(words: &str) -> Vec<String> {
    AROUND_WORDS.iter().map(|layer| layer(words)).collect()
}
