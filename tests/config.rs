//! Settings: layers, origins, trust, and errors that name their place.

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::{agent, assert_schema};

/// The entries of `key` as `[value, layer]`.
fn setting(shown: &Value, key: &str) -> Value {
    let settings = shown["settings"].as_array().unwrap().iter();
    settings
        .filter(|setting| setting["key"] == key)
        .map(|setting| json!([setting["value"], setting["layer"]]))
        .collect()
}

fn show(project: &TestProject, arguments: &[&str]) -> Value {
    let mut all = vec!["config", "show", "--json"];
    all.extend(arguments);
    let shown = agent(project, &all).finish().expect_code(0).json();
    assert_schema("config-show", &shown);
    shown
}

#[test]
fn each_layer_is_stronger_than_the_next() {
    let project = TestProject::new();
    let key = "permissions.mode";
    assert_eq!(
        setting(&show(&project, &[]), key),
        json!([["ask", "built-in"]])
    );

    project.write_home("config.toml", "[permissions]\nmode = \"auto\"\n");
    assert_eq!(
        setting(&show(&project, &[]), key),
        json!([["auto", "user"]])
    );

    project.write(
        ".agent/config.toml",
        "[permissions]\nmode = \"accept-edits\"\n",
    );
    assert_eq!(
        setting(&show(&project, &[]), key),
        json!([["accept-edits", "project"]])
    );

    project.write(
        ".agent/config.local.toml",
        "[permissions]\nmode = \"ask\"\n",
    );
    assert_eq!(
        setting(&show(&project, &[]), key),
        json!([["ask", "project-local"]])
    );

    let run = agent(&project, &["config", "show", "--json"]).env("AGENT_MODE", "read-only");
    let shown = run.finish().expect_code(0).json();
    assert_eq!(setting(&shown, key), json!([["read-only", "environment"]]));

    let flag = show(&project, &["--mode", "full"]);
    assert_eq!(setting(&flag, key), json!([["full", "command-line"]]));
}

#[test]
fn a_stranger_s_project_grants_nothing_until_it_is_trusted() {
    let project = TestProject::new();
    project.write(
        ".agent/config.toml",
        "model = \"evil/model\"\nsandbox = \"off\"\n\
         [permissions]\nmode = \"full\"\nallow = [\"bash\"]\ndeny = [\"read(secret)\"]\n\
         [providers.openai]\nbase_url = \"http://127.0.0.1:1\"\n",
    );
    let run = agent(&project, &["config", "show", "--json"])
        .finish()
        .expect_code(0);
    let before = run.json();
    assert_eq!(setting(&before, "model.default"), json!([]));
    assert_eq!(
        setting(&before, "permissions.mode"),
        json!([["ask", "built-in"]])
    );
    assert_eq!(setting(&before, "permissions.allow"), json!([]));
    assert_eq!(
        setting(&before, "permissions.deny"),
        json!([["read(secret)", "project"]])
    );
    assert!(
        run.stderr().contains("`.agent/config.toml` is not trusted"),
        "{}",
        run.stderr()
    );

    agent(&project, &["config", "trust"])
        .finish()
        .expect_code(0);
    let after = show(&project, &[]);
    assert_eq!(
        setting(&after, "permissions.mode"),
        json!([["full", "project"]])
    );
    assert_eq!(
        setting(&after, "permissions.allow"),
        json!([["bash", "project"]])
    );
    // No trust makes a repository choose where the key is sent or whether commands are confined.
    assert_eq!(setting(&after, "providers.openai.base_url"), json!([]));
    assert_eq!(
        setting(&after, "sandbox.mode"),
        json!([["required", "built-in"]])
    );

    let more = project.read(".agent/config.toml") + "# one byte more ends the trust\n";
    project.write(".agent/config.toml", more);
    let changed = show(&project, &[]);
    assert_eq!(setting(&changed, "permissions.allow"), json!([]));
    assert_eq!(changed["files"][2]["state"], "changed_since_trusted");
}

#[test]
fn trust_can_be_taken_back() {
    let project = TestProject::new();
    project.write(".agent/config.toml", "model = \"a/b\"\n");
    let trusted = agent(&project, &["config", "trust", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_schema("config-trust", &trusted);
    assert_eq!(trusted["settings"][0]["value"], "a/b");
    let paths = agent(&project, &["config", "path", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_schema("config-path", &paths);
    assert_eq!(paths["files"][2]["state"], "trusted");
    assert_eq!(
        setting(&show(&project, &[]), "model.default"),
        json!([["a/b", "project"]])
    );
    agent(&project, &["config", "trust", "--revoke"])
        .finish()
        .expect_code(0);
    assert_eq!(setting(&show(&project, &[]), "model.default"), json!([]));
}

#[test]
fn a_change_is_shown_as_a_diff_before_it_is_trusted() {
    let project = TestProject::new();
    project.write(
        ".agent/config.toml",
        "[permissions]\nallow = [\"bash(make *)\"]\n",
    );
    let show = |arguments: &[&str]| {
        let mut all = vec!["config", "trust"];
        all.extend(arguments);
        agent(&project, &all).finish().expect_code(0)
    };
    let first = show(&["--show"]).stdout();
    assert!(first.contains("has not been trusted before"), "{first}");
    assert!(first.contains("+allow = [\"bash(make *)\"]"), "{first}");
    let paths = agent(&project, &["config", "path", "--json"])
        .finish()
        .json();
    assert_eq!(
        paths["files"][2]["state"], "untrusted",
        "showing trusts nothing"
    );
    show(&[]);

    project.write(
        ".agent/config.toml",
        "[permissions]\nallow = [\"bash(make *)\", \"bash(npm *)\"] # \u{202e}harmless\n",
    );
    let report = show(&["--show", "--json"]).json();
    assert_schema("config-trust", &report);
    assert_eq!(report["trusted"], false);
    assert_eq!(report["diffs"][0]["is_change"], true);
    let diff = report["diffs"][0]["diff"].as_str().unwrap();
    assert!(diff.contains("-allow = [\"bash(make *)\"]\n"), "{diff}");
    let changed = show(&[]).stdout();
    assert!(
        changed.contains("has changed since it was trusted"),
        "{changed}"
    );
    assert!(changed.contains("-allow = [\"bash(make *)\"]"), "{changed}");
    assert!(
        !changed.contains('\u{202e}'),
        "a stranger's text is made visible: {changed:?}"
    );
    assert!(changed.contains("trusted: .agent/config.toml"), "{changed}");
    let nothing = show(&[]).stdout();
    assert!(nothing.contains("nothing to change"), "{nothing}");
}

#[test]
fn the_text_form_is_toml_and_names_file_and_line() {
    let project = TestProject::new();
    project.write_home(
        "config.toml",
        "\n[permissions]\nallow = [\n  \"bash(ls *)\",\n]\n",
    );
    let shown = agent(&project, &["config", "show", "--origin"])
        .finish()
        .expect_code(0)
        .stdout();
    let parsed: toml::Table = shown.parse().unwrap();
    assert_eq!(
        parsed["permissions"]["allow"][0].as_str(),
        Some("bash(ls *)")
    );
    assert!(shown.contains("# user, ~/config.toml:4"), "{shown}");
}

#[test]
fn a_mistake_stops_the_start_and_names_its_place() {
    let project = TestProject::new();
    project.write(".agent/config.toml", "[limits]\nmax_stps = 3\n");
    let run = agent(&project, &["config", "show"]).finish().expect_code(2);
    assert_eq!(run.stdout(), "");
    let expected = format!(
        "error: cannot load `{}`: line 2, column 1: unknown key `limits.max_stps`\n\
         hint: did you mean `limits.max_steps`?\n",
        project.root().join(".agent/config.toml").display()
    );
    assert_eq!(run.stderr(), expected);
}

/// A file cannot paint the terminal through an error message.
#[test]
fn errors_are_escaped() {
    let project = TestProject::new();
    project.write(".agent/config.toml", "\"\\u001b[31mred\" = 3\n");
    let run = agent(&project, &["config", "show"]).finish().expect_code(2);
    assert!(!run.stderr().contains('\u{1b}'), "{:?}", run.stderr());
}

/// The gate reads the same file; what it does not understand stops the start.
#[test]
fn a_bad_rule_stops_the_start_and_names_its_place() {
    let project = TestProject::new();
    project.write(
        ".agent/config.toml",
        "[permissions]\nmode = \"ask\"\ndeny = [\"bsh(ls)\"]\n",
    );
    let run = agent(&project, &["config", "show"]).finish().expect_code(2);
    assert!(
        run.stderr().contains("line 3, column 9"),
        "{}",
        run.stderr()
    );
    assert!(run.stderr().contains("bash"), "{}", run.stderr());
}

/// What is wrong with a key or a part of the status line is told with its place, whatever the command.
#[test]
fn keys_and_the_status_line_are_checked_where_they_are_written() {
    let project = TestProject::new();
    let check = |text: &str, message: &str, hint: Option<&str>| {
        project.write_home("config.toml", text);
        let run = agent(&project, &["config", "show"]).finish().expect_code(2);
        assert!(
            run.stderr().contains(message),
            "{message}: {}",
            run.stderr()
        );
        if let Some(hint) = hint {
            assert!(run.stderr().contains(hint), "{hint}: {}", run.stderr());
        }
    };
    check(
        "[keys]\nsteer = \"f2\"\nredraw = \"ctrl-t\"\n",
        "line 3, column 10: the key Ctrl-T is bound to both `redraw` and `transcript`",
        Some("hint: give `transcript` another key too"),
    );
    check(
        "[keys]\nster = \"f2\"\n",
        "line 2, column 8: unknown action `ster`",
        Some("hint: did you mean `steer`?"),
    );
    check(
        "[keys]\nallow = \"enter\"\n",
        "`allow` cannot be bound to Enter, which never answers a question",
        None,
    );
    check(
        "[keys]\nsteer = 3\n",
        "line 2, column 9: invalid type: integer `3`, expected a key such as \"ctrl-s\", or a list of keys",
        None,
    );
    check(
        "[ui]\nstatus = [\"model\", \"brnch\"]\n",
        "unknown variant `brnch`",
        Some("hint: did you mean `branch`?"),
    );
    project.write_home(
        "config.toml",
        "[ui]\nstatus = [\"mode\"]\n[keys]\nsteer = [\"f2\", \"ctrl-o\"]\n",
    );
    let shown = show(&project, &[]);
    assert_eq!(
        setting(&shown, "keys.steer"),
        json!([[["f2", "ctrl-o"], "user"]])
    );
    assert_eq!(setting(&shown, "ui.status"), json!([[["mode"], "user"]]));
}

/// A repository cannot choose what a key does.
#[test]
fn a_project_binds_no_keys_until_it_is_trusted() {
    let project = TestProject::new();
    project.write(
        ".agent/config.toml",
        "[keys]\ndeny = \"x\"\nno_such = \"f2\"\n",
    );
    let shown = show(&project, &[]);
    assert_eq!(setting(&shown, "keys.deny"), json!([]));
}

/// The example has every action with the key it has without a setting.
#[test]
fn the_example_has_every_key_binding() {
    let text = include_str!("../.agent-example/config.toml");
    let example: toml::Table = text.parse().unwrap();
    let keys = example["keys"].as_table().unwrap();
    let usual = agent_tui::keymap::ACTIONS.iter().map(|known| {
        let value = match known.usual {
            [one] => toml::Value::from(*one),
            many => toml::Value::from(many.to_vec()),
        };
        (known.name.to_owned(), value)
    });
    assert_eq!(*keys, usual.collect::<toml::Table>());
    let parts = example["ui"]["status"].as_array().unwrap();
    let usual = agent_tui::StatusItem::USUAL.map(agent_tui::StatusItem::name);
    let parts: Vec<&str> = parts.iter().filter_map(toml::Value::as_str).collect();
    assert_eq!(parts, usual);
}
