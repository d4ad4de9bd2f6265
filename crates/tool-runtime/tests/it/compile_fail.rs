//! What must not compile.

#[test]
fn nobody_but_the_gate_builds_an_invocation() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
