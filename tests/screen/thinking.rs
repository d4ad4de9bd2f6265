//! How much the model may think, chosen while a session runs.

use agent_test_support::model_server::{Script, Turn};
use serde_json::json;

use super::terminal::Terminal;
use super::{READY, USUAL, bash, leave, project_with, with_setting};

#[test]
fn a_thinking_level_holds_from_the_next_request_on() {
    let script = Script::new()
        .turn(Turn::text("First."))
        .turn(bash("touch made"))
        .turn(Turn::text("Second."))
        .turn(Turn::text("Third."));
    let (project, server) = project_with(script);
    with_setting(
        &project,
        "[model]\ndefault = \"local/test-model\"\nreasoning_effort = \"low\"\n",
    );
    let config = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    let config = config.replacen("model = \"local/test-model\"\n", "", 1);
    project.write_home("config.toml", config);
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("one\r").wait_for("First.");
    terminal.wait_for("thinking low").keys("/thinking high\r");
    terminal.wait_for("thinking high").keys("two\r");
    // While a turn runs it is the next request that it holds for.
    terminal.question("$ touch made").keys("d");
    terminal.wait_for("Second.").keys("/thinking off\r");
    terminal.wait_gone("thinking high").keys("three\r");
    terminal.wait_for("Third.");
    leave(&mut terminal);
    let efforts: Vec<_> = server
        .bodies()
        .iter()
        .map(|body| body["reasoning_effort"].clone())
        .collect();
    assert_eq!(
        efforts,
        [json!("low"), json!("high"), json!("high"), json!(null)]
    );
}

#[test]
fn levels_are_listed_and_a_wrong_one_is_told() {
    let (project, _server) = project_with(Script::new());
    let mut terminal = Terminal::start(&project, &["--thinking", "medium"], USUAL);
    terminal.wait_for(READY).keys("/thinking much\r");
    terminal.wait_for("`much` is not one of off, minimal, low, medium, high");
    terminal
        .keys("/thinking\r")
        .wait_for("a lot; slower, and more tokens");
    terminal.keys("\x1b");
    leave(&mut terminal);
}
