//! More of the commands one types.

use super::{idle, press};

#[test]
fn commands_that_go_elsewhere() {
    let check = |keys: &str, expected: &str| {
        assert_eq!(press(&mut idle(), keys), expected, "{keys}");
    };
    let rewind = "Rewind { at: 7, text: \"an earlier message\" }";
    check("\"/rewind\" enter enter", rewind);
    check("\"/ps\" enter", "Processes(List)");
    check("\"/ps_2\" enter", "Processes(Tail(\"2\"))");
    check(
        "\"/cd_src\" enter",
        "ChangeDirectory(ChangeDirectory { path: \"src\" })",
    );
    check(
        "\"/add-dir_../x\" enter",
        "AddDirectory(AddDirectory { path: \"../x\" })",
    );
    // There is nothing to copy yet.
    check("\"/copy\" enter", "");
}
