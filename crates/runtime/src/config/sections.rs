//! Every key there is, with its default and with what a project file may do to it.
//! `.agent-example/config.toml` shows them all; a test compares.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_protocol::status::Mode;
use serde::Deserialize;
use toml::Spanned;

use super::origin::Setting;
use super::section::{FromWord, Guard, Resolver, Shown, section, word_or_table};
use super::units::{Size, Span};
use super::values::{
    AfterToolResult, ApplyPatch, Dialect, Headers, KeyNames, Rule, SandboxMode, StatusItem, Theme,
};

/// One layer as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    #[serde(deserialize_with = "word_or_table")]
    pub model: ModelFile,
    pub providers: BTreeMap<String, ProviderFile>,
    pub permissions: PermissionsFile,
    #[serde(deserialize_with = "word_or_table")]
    pub sandbox: SandboxFile,
    pub verification: VerificationFile,
    pub limits: LimitsFile,
    pub retention: RetentionFile,
    pub redaction: RedactionFile,
    pub context: ContextFile,
    pub tools: ToolsFile,
    pub ui: UiFile,
    /// Keys by the action they do; whoever shows a screen knows the actions.
    pub keys: BTreeMap<String, Spanned<KeyNames>>,
}

section! {
    /// Which model does the work. `model = "provider/name"` is short for `default`.
    Model from ModelFile {
        optional {
            /// `provider/name`.
            default: String, Guard::Trusted;
            /// For side jobs such as titles and summaries.
            small: String, Guard::Trusted;
            /// What to try, in this order, when the default is not available.
            fallbacks: Vec<String>, Guard::Trusted;
            temperature: f64, Guard::Trusted;
            /// How much the model may think: `off`, `minimal`, `low`, `medium`, `high`; as `/thinking`.
            reasoning_effort: String, Guard::Trusted;
            max_output_tokens: u32, Guard::lower();
        }
    }
}

section! {
    /// A model server. Never from a project file: an address chosen by a repository would get
    /// the user's key.
    Provider from ProviderFile {
        optional {
            dialect: Dialect, Guard::Never;
            base_url: String, Guard::Never;
            /// The variable that holds the key; the key itself is never in this file.
            api_key_env: String, Guard::Never;
            /// A file that holds the key.
            api_key_file: PathBuf, Guard::Never;
            /// A command that prints the key: the program and its arguments.
            api_key_cmd: Vec<String>, Guard::Never;
            headers: Headers, Guard::Never;
            /// Headers whose values are in variables.
            env_headers: BTreeMap<String, String>, Guard::Never;
            /// The server whose habits this one has.
            quirks: String, Guard::Never;
            /// What a `scripted` provider plays.
            transcript: PathBuf, Guard::Never;
            connect_timeout_ms: u64, Guard::Never;
            first_byte_timeout_ms: u64, Guard::Never;
            idle_timeout_ms: u64, Guard::Never;
            max_attempts: u32, Guard::Never;
            /// No attempt starts later than this after the first.
            max_retry_ms: u64, Guard::Never;
            /// `none` or `auto`.
            tool_choice_after_tool_result: AfterToolResult, Guard::Never;
        }
        tables {
            models: ModelFactsFile;
        }
    }
}

section! {
    /// What the built-in table does not know about a model, or knows wrongly. Prices are in US
    /// dollars per million tokens.
    ModelFacts from ModelFactsFile {
        optional {
            context_window: u64, Guard::Never;
            max_output_tokens: u64, Guard::Never;
            input_price: f64, Guard::Never;
            output_price: f64, Guard::Never;
            cached_input_price: f64, Guard::Never;
            cache_write_price: f64, Guard::Never;
            tools: bool, Guard::Never;
            images: bool, Guard::Never;
            reasoning: bool, Guard::Never;
        }
    }
}

section! {
    /// How much may be done without asking.
    Permissions from PermissionsFile {
        values {
            mode: Mode = Mode::Ask, Guard::lower();
            /// How long a question may stay unanswered; then the call is refused.
            ask_timeout: Span = Span::minutes(120), Guard::lower();
        }
        lists {
            allow: Rule, Guard::Trusted;
            ask: Rule, Guard::Free;
            deny: Rule, Guard::Free;
        }
    }
}

section! {
    /// What a command can reach. `sandbox = "off"` is short for `mode`.
    Sandbox from SandboxFile {
        values {
            mode: SandboxMode = SandboxMode::Required, Guard::Never;
        }
        optional {
            max_processes: u32, Guard::lower();
            max_memory: Size, Guard::lower();
            max_file_size: Size, Guard::lower();
        }
        lists {
            /// Directories commands may read besides the usual ones.
            readable: String, Guard::Trusted;
            /// Directories commands may write besides the project.
            writable: String, Guard::Trusted;
            /// What has to look empty to commands.
            hidden: String, Guard::Free;
            /// What commands may not write, besides the built-in list.
            protected: String, Guard::Free;
            /// Variables that are passed on to commands.
            environment: String, Guard::Trusted;
        }
    }
}

section! {
    /// Which commands show that the work is right.
    Verification from VerificationFile {
        values {
            /// Whether a turn that changed files has to end verified.
            required: bool = false, Guard::higher();
        }
        lists {
            /// Patterns like those of bash rules.
            commands: String, Guard::Trusted;
        }
    }
}

section! {
    /// Ends for what would otherwise go on.
    Limits from LimitsFile {
        values {
            /// The same call with the same answer, in a row: nothing changed in between.
            max_repeats: u32 = 5, Guard::lower();
            /// Failed calls in a row.
            max_failures: u32 = 20, Guard::lower();
            /// For a command that does not ask for a time of its own.
            command_timeout: Span = Span::minutes(2), Guard::lower();
            /// The most a command may ask for.
            max_command_timeout: Span = Span::minutes(10), Guard::lower();
            /// A command that prints more is ended.
            max_command_output: Size = Size::megabytes(4096), Guard::lower();
            /// The same for all commands of a session together.
            max_session_output: Size = Size::megabytes(16_384), Guard::lower();
            /// Larger files that a command changes cannot be restored.
            max_undo_file: Size = Size::megabytes(1), Guard::Trusted;
            /// All file contents together that a session keeps in case a command changes them.
            max_undo_total: Size = Size::megabytes(128), Guard::Trusted;
        }
        optional {
            /// Model requests per turn; no ceiling unless it is set.
            max_steps: u32, Guard::lower();
            /// US dollars per session.
            max_cost: f64, Guard::lower();
            /// Tokens per session, sent and received.
            max_tokens: u64, Guard::lower();
            /// For a whole turn.
            turn_timeout: Span, Guard::lower();
        }
    }
}

section! {
    /// What `agent sessions prune` removes when it is not told otherwise. Nothing is removed
    /// without that command.
    Retention from RetentionFile {
        optional {
            max_age: Span, Guard::Trusted;
            max_size: Size, Guard::Trusted;
        }
    }
}

section! {
    /// What counts as a secret, besides the shapes and variables that are known.
    Redaction from RedactionFile {
        lists {
            /// Regular expressions; what they match is masked.
            patterns: String, Guard::Free;
            /// Exact values that are not secret although they look like it.
            exceptions: String, Guard::Trusted;
        }
    }
}

section! {
    /// What the model sees.
    Context from ContextFile {
        values {
            /// Files with instructions; in each directory the first that exists counts.
            instruction_files: Vec<String> = vec!["AGENTS.md".into(), "CLAUDE.md".into()], Guard::Trusted;
            /// The part of the context window that may be full before it is compacted.
            compact_at: f64 = 0.8, Guard::Trusted;
            /// Whether each model input is kept as an artifact.
            keep_inputs: bool = true, Guard::higher();
        }
    }
}

section! {
    /// Which tools a model is offered.
    Tools from ToolsFile {
        values {
            /// Changes as patches instead of `edit`: for models that were trained on them, or all, or none.
            apply_patch: ApplyPatch = ApplyPatch::Auto, Guard::Trusted;
        }
    }
}

section! {
    /// The screen.
    Ui from UiFile {
        values {
            theme: Theme = Theme::Auto, Guard::Trusted;
            full_screen: bool = false, Guard::Trusted;
            vim_keys: bool = false, Guard::Trusted;
            /// Line output without boxes or spinners, for screen readers.
            plain: bool = false, Guard::Trusted;
            /// Ring the terminal when a question waits.
            notify: bool = true, Guard::Trusted;
            /// Give the terminal's tab a title.
            tab_title: bool = true, Guard::Trusted;
            /// Tell the terminal what the program is doing (OSC 7501).
            program_status: bool = true, Guard::Trusted;
            /// The parts of the status line, the most important first.
            status: Vec<StatusItem> = StatusItem::USUAL.to_vec(), Guard::Trusted;
        }
    }
}

impl FromWord for ModelFile {
    fn from_word(word: Spanned<String>) -> Result<Self, String> {
        Ok(Self {
            default: Some(word),
            ..Self::default()
        })
    }
}

impl FromWord for SandboxFile {
    fn from_word(word: Spanned<String>) -> Result<Self, String> {
        let mode = word.get_ref().parse()?;
        Ok(Self {
            mode: Some(Spanned::new(word.span(), mode)),
            ..Self::default()
        })
    }
}
