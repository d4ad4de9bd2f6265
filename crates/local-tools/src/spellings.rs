//! What other programs call these tools and their fields: the one table. Its rows were counted in
//! recorded sessions of Claude Code, Codex and Gemini CLI; names of their newer versions are added
//! where only the name differs.

use Ours::{Bound, Items, Largest, Lines, Named, Nothing, NothingIf, Script, Word};
use agent_tool_runtime::{Field, Missing, Ours, Plain, Spelling, Spellings};

/// Everything that is known of other programs' words.
pub const SPELLINGS: Spellings = Spellings {
    tools: &[
        // One name for three tools: these come before the tools' own rows.
        Spelling {
            tool: "read",
            names: EDITORS,
            when: Some(("command", "view")),
            fields: &[field("view_range", Lines("offset", "limit"))],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "write",
            names: EDITORS,
            when: Some(("command", "create")),
            fields: &[field("file_text", Named("content"))],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "edit",
            names: EDITORS,
            when: Some(("command", "str_replace")),
            fields: &[
                field("old_str", Named("old_string")),
                field("new_str", Named("new_string")),
            ],
            // Left out, it stands for nothing in its place.
            implied: &[("new_string", "")],
            filled: &[],
        },
        Spelling {
            tool: "read",
            names: &["Read", "read_file", "view", "view_file", "open_file"],
            when: None,
            fields: &[
                field("file_path", Named("path")),
                field("filePath", Named("path")),
                field("absolute_path", Named("path")),
                field("target_file", Named("path")),
                field("filename", Named("path")),
                field("description", Nothing),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "write",
            names: &["Write", "write_file", "create_file", "write_to_file"],
            when: None,
            fields: &[
                field("file_path", Named("path")),
                field("filePath", Named("path")),
                field("target_file", Named("path")),
                field("filename", Named("path")),
                field("file_text", Named("content")),
                field("contents", Named("content")),
                field("text", Named("content")),
                field("description", Nothing),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "edit",
            names: &[
                "Edit",
                "MultiEdit",
                "edit_file",
                "replace",
                "str_replace",
                "search_replace",
            ],
            when: None,
            fields: &[
                field("file_path", Named("path")),
                field("filePath", Named("path")),
                field("target_file", Named("path")),
                field("old_str", Named("old_string")),
                field("oldString", Named("old_string")),
                field("new_str", Named("new_string")),
                field("newString", Named("new_string")),
                field("replaceAll", Named("replace_all")),
                field("allow_multiple", Named("replace_all")),
                field("expected_replacements", NothingIf("1")),
                field("instruction", Nothing),
                field("description", Nothing),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "apply_patch",
            names: &["applypatch", "ApplyPatch"],
            when: None,
            fields: &[
                field("patch", Named("input")),
                field("patch_text", Named("input")),
                field("patchText", Named("input")),
                field("workdir", Named("cwd")),
                field("explanation", Nothing),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "grep",
            // There, the names of the files are what is listed unless the call says otherwise.
            names: &["Grep", "grep_files"],
            when: None,
            fields: SEARCH,
            implied: &[("mode", "files")],
            filled: &[],
        },
        Spelling {
            tool: "grep",
            names: &["search_file_content", "grep_search", "search_files"],
            when: None,
            fields: SEARCH,
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "glob",
            names: &["Glob", "find_files", "file_search"],
            when: None,
            fields: LISTING,
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "glob",
            names: &["LS", "list_directory", "list_dir", "list_files"],
            when: None,
            fields: LISTING,
            implied: &[("pattern", "*")],
            filled: &[],
        },
        Spelling {
            tool: "bash",
            names: &[
                "Bash",
                "shell",
                "shell_command",
                "local_shell",
                "container.exec",
                "exec_command",
                "run_shell_command",
                "execute_command",
                "run_terminal_cmd",
            ],
            when: None,
            fields: &[
                field("command", Script("command")),
                field("cmd", Script("command")),
                field("script", Script("command")),
                field("workdir", Named("cwd")),
                field("working_directory", Named("cwd")),
                field("directory", Named("cwd")),
                field("dir_path", Named("cwd")),
                field("timeout", Named("timeout_ms")),
                field("run_in_background", Named("background")),
                field("is_background", Named("background")),
                field("explanation", Named("description")),
                // How long to wait for output and how much to show is decided here.
                field("yield_time_ms", Nothing),
                field("max_output_tokens", Nothing),
                field("max_output_length", Nothing),
                field("login", Nothing),
                field("tty", Nothing),
                field("shell", Nothing),
                // Commands stay in the sandbox; what needs more says so with `network`.
                field("justification", Nothing),
                field("sandbox_permissions", Nothing),
                field("with_escalated_permissions", Nothing),
                field("dangerouslyDisableSandbox", Nothing),
            ],
            implied: &[],
            filled: &[("description", "")],
        },
        Spelling {
            tool: "web_fetch",
            names: &[
                "WebFetch",
                "webfetch",
                "fetch",
                "fetch_url",
                "read_url_content",
            ],
            when: None,
            fields: &[
                field("Url", Named("url")),
                field("uri", Named("url")),
                // The page itself is read, not somebody's answer about it.
                field("prompt", Nothing),
                field("format", Nothing),
                field("timeout", Nothing),
                field("max_length", Nothing),
                field("raw", Nothing),
                field("start_index", Named("offset")),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "process_output",
            names: &["BashOutput", "TaskOutput", "AgentOutput", "write_stdin"],
            when: None,
            fields: &[
                field("bash_id", Named("process_id")),
                field("shell_id", Named("process_id")),
                field("task_id", Named("process_id")),
                field("session_id", Named("process_id")),
                field("timeout", Named("wait_ms")),
                field("yield_time_ms", Named("wait_ms")),
                field("block", Nothing),
                field("filter", Nothing),
                field("max_output_tokens", Nothing),
                field("chars", NothingIf("\"\"")),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "process_kill",
            names: &["KillShell", "KillBash", "TaskStop"],
            when: None,
            fields: &[
                field("bash_id", Named("process_id")),
                field("shell_id", Named("process_id")),
                field("task_id", Named("process_id")),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "plan",
            names: &["TodoWrite", "todo_write", "update_plan", "write_todos"],
            when: None,
            fields: &[
                field("items", Items("items", TO_DO)),
                field("todos", Items("items", TO_DO)),
                field("plan", Items("items", TO_DO)),
                field("explanation", Nothing),
                field("merge", NothingIf("false")),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "propose_plan",
            names: &["ExitPlanMode", "exit_plan_mode"],
            when: None,
            fields: &[field("allowedPrompts", Nothing)],
            implied: &[],
            filled: &[],
        },
    ],
    missing: &[
        Missing {
            names: &[
                "TodoRead",
                "TaskCreate",
                "TaskUpdate",
                "TaskGet",
                "TaskList",
            ],
            instead: "`plan` keeps the list; each call of it has all items with their states",
        },
        Missing {
            names: &["Task", "Agent", "spawn_agent", "SendMessage"],
            instead: "there are no other agents in this session; do the work with the tools there are",
        },
        Missing {
            names: &["WebSearch", "web_search", "google_web_search"],
            instead: "nothing searches the web here; `web_fetch` reads a page whose address is known",
        },
        Missing {
            names: &[
                "Skill",
                "ToolSearch",
                "SlashCommand",
                "list_mcp_resources",
                "list_mcp_resource_templates",
            ],
            instead: "all there is are the tools of this request",
        },
        Missing {
            names: &[
                "AskUserQuestion",
                "request_user_input",
                "ask_followup_question",
            ],
            instead: "put the question into the answer's text and end the turn with it",
        },
        Missing {
            names: &["EnterPlanMode", "enter_plan_mode"],
            instead: "only the user changes the mode; go on in this one",
        },
        Missing {
            names: &["view_image", "NotebookEdit", "NotebookRead", "LSP"],
            instead: "files are read as text with `read`",
        },
    ],
    plain: Some(Plain {
        tool: "apply_patch",
        field: "input",
        cwd_field: "cwd",
        programs: &["apply_patch", "applypatch"],
        begin: "*** Begin Patch",
        end: "*** End Patch",
    }),
};

const EDITORS: &[&str] = &["str_replace_editor", "str_replace_based_edit_tool"];

const SEARCH: &[Field] = &[
    field("dir_path", Named("path")),
    field("directory", Named("path")),
    field("include", Named("glob")),
    field("include_pattern", Named("glob")),
    field(
        "output_mode",
        Word(
            "mode",
            &[("content", "lines"), ("files_with_matches", "files")],
        ),
    ),
    field(
        "-i",
        Word("case", &[("true", "insensitive"), ("false", "")]),
    ),
    field(
        "case_sensitive",
        Word("case", &[("true", "sensitive"), ("false", "insensitive")]),
    ),
    field("-A", Largest("context", 20)),
    field("-B", Largest("context", 20)),
    field("-C", Largest("context", 20)),
    field("context", Largest("context", 20)),
    field("head_limit", Bound("limit")),
    field("max_results", Bound("limit")),
    field("-n", Nothing),
    field("-r", Nothing),
    field("-o", NothingIf("false")),
    field("offset", NothingIf("0")),
    field("description", Nothing),
];

const LISTING: &[Field] = &[
    field("dir_path", Named("path")),
    field("directory", Named("path")),
    field("target_directory", Named("path")),
    field("case_sensitive", Nothing),
    field("respect_git_ignore", Nothing),
    field("file_filtering_options", Nothing),
    field("ignore", Nothing),
    field("depth", Nothing),
];

const TO_DO: &[Field] = &[
    field("content", Named("text")),
    field("step", Named("text")),
    field("description", Named("text")),
    field("title", Named("text")),
    field("subject", Named("text")),
    field("state", STATE),
    field("status", STATE),
    field("activeForm", Nothing),
    field("id", Nothing),
    field("priority", Nothing),
];

const STATE: Ours = Word(
    "state",
    &[
        ("completed", "done"),
        ("cancelled", "dropped"),
        ("canceled", "dropped"),
    ],
);

const fn field(theirs: &'static str, ours: Ours) -> Field {
    Field { theirs, ours }
}
