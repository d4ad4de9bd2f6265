//! `agent demo`: works with nothing configured, and leaves a session that holds up.

use agent_test_support::project::TestProject;

use crate::agent;

#[test]
fn the_demo_fixes_the_test_and_its_session_is_whole() {
    let project = TestProject::new();
    let ran = agent(&project, &["demo", "--directory", "sum"]).finish();
    assert_eq!(ran.code(), 0, "{}\n{}", ran.stdout(), ran.stderr());
    let told = ran.stdout();
    for part in [
        "The model is a script",
        "the rule `edit(src/**)`",
        "sandbox: full",
        "verification: passed (sh test.sh)",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert!(project.read("sum/src/sum.sh").contains("$(($1 + $2))"));
    let audit = agent(&project, &["-C", "sum", "audit", "last"]).finish();
    assert_eq!(audit.code(), 0, "{}", audit.stdout());
    agent(
        &project,
        &["-C", "sum", "export", "last", "--format", "portable"],
    )
    .finish()
    .expect_code(0);
}
