//! Quirks of servers that speak Chat Completions, as a table.
//!
//! The other two dialects are implemented by few enough servers that they need no table.

/// Quirks of one family of servers. [`GENERIC`] is the careful middle that most accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quirks {
    /// The name used in configuration (`quirks = "ollama"`) and by built-in providers.
    pub name: &'static str,
    /// The field that limits the answer.
    pub max_tokens_field: &'static str,
    /// True if `stream_options.include_usage` is understood; without it many send no usage.
    pub stream_usage: bool,
    /// Field for the reasoning effort.
    pub effort: EffortField,
    /// Form in which thinking is sent back, if it is.
    pub replay: ReasoningReplay,
    /// The word for "some tool has to be called".
    pub required_word: &'static str,
    /// Allowed form of a tool call id that is sent back.
    pub call_id: CallIdRule,
    /// Content of a message that has only tool calls.
    pub empty_content: EmptyContent,
    /// JSON Schema keywords the server rejects, left out at every level.
    pub drop_schema_keys: &'static [&'static str],
    /// True if thinking may come inside the text as `<think>…</think>`.
    pub think_tags: bool,
    /// What is said about caches.
    pub cache: CacheField,
}

/// Field for the reasoning effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffortField {
    /// Not at all.
    Omit,
    /// `"reasoning_effort": "high"`.
    ReasoningEffort,
    /// `"reasoning": {"effort": "high"}`.
    ReasoningObject,
}

/// What a request says about caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheField {
    /// Nothing.
    Omit,
    /// The name of the conversation, as `prompt_cache_key`.
    Key,
    /// For Claude, that the end of the request is to be cached; other models do it unasked.
    Mark,
}

/// Form in which thinking is sent back with the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningReplay {
    /// The server ignores or rejects it.
    Never,
    /// As `reasoning_content`, for the messages after the last user message: the tool loop needs
    /// it, older turns must not have it.
    SinceLastUser,
    /// As the `reasoning_details` it came in.
    Details,
    /// As `reasoning_content` for the messages after the last user message, when it came in that
    /// field: a server that sends it knows it, and others may refuse a field they do not know.
    AsItCame,
}

/// Allowed form of a tool call id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIdRule {
    /// Anything the server itself once sent.
    Any,
    /// Nine letters or digits.
    NineAlphanumeric,
}

/// Content that stands for missing text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyContent {
    /// `"content": null`.
    Null,
    /// `"content": ""`, for chat templates that add strings without looking.
    EmptyText,
}

/// The careful middle.
pub const GENERIC: Quirks = Quirks {
    name: "generic",
    max_tokens_field: "max_tokens",
    stream_usage: true,
    effort: EffortField::ReasoningEffort,
    replay: ReasoningReplay::AsItCame,
    required_word: "required",
    call_id: CallIdRule::Any,
    empty_content: EmptyContent::EmptyText,
    drop_schema_keys: &[],
    think_tags: true,
    cache: CacheField::Omit,
};

/// One row per family of servers.
pub const TABLE: &[Quirks] = &[
    GENERIC,
    Quirks {
        name: "openai",
        max_tokens_field: "max_completion_tokens",
        replay: ReasoningReplay::Never,
        empty_content: EmptyContent::Null,
        think_tags: false,
        cache: CacheField::Key,
        ..GENERIC
    },
    Quirks {
        name: "openrouter",
        effort: EffortField::ReasoningObject,
        replay: ReasoningReplay::Details,
        empty_content: EmptyContent::Null,
        think_tags: false,
        cache: CacheField::Mark,
        ..GENERIC
    },
    // Gemini's compatible endpoint knows a subset of JSON Schema and refuses the rest.
    Quirks {
        name: "gemini",
        replay: ReasoningReplay::Never,
        empty_content: EmptyContent::Null,
        think_tags: false,
        drop_schema_keys: &[
            "$schema",
            "additionalProperties",
            "default",
            "title",
            "format",
        ],
        ..GENERIC
    },
    Quirks {
        name: "groq",
        max_tokens_field: "max_completion_tokens",
        replay: ReasoningReplay::Never,
        empty_content: EmptyContent::Null,
        ..GENERIC
    },
    Quirks {
        name: "deepseek",
        effort: EffortField::Omit,
        replay: ReasoningReplay::SinceLastUser,
        think_tags: false,
        ..GENERIC
    },
    // Mistral takes `any` for `required`, ids of nine characters only, and no usage option.
    Quirks {
        name: "mistral",
        stream_usage: false,
        effort: EffortField::Omit,
        replay: ReasoningReplay::Never,
        required_word: "any",
        call_id: CallIdRule::NineAlphanumeric,
        think_tags: false,
        ..GENERIC
    },
    Quirks {
        name: "xai",
        replay: ReasoningReplay::Never,
        empty_content: EmptyContent::Null,
        think_tags: false,
        ..GENERIC
    },
    Quirks {
        name: "ollama",
        ..GENERIC
    },
    // llama.cpp puts the thinking back into its template when it is given.
    Quirks {
        name: "llamacpp",
        effort: EffortField::Omit,
        replay: ReasoningReplay::SinceLastUser,
        ..GENERIC
    },
    Quirks {
        name: "lmstudio",
        ..GENERIC
    },
    Quirks {
        name: "vllm",
        replay: ReasoningReplay::SinceLastUser,
        ..GENERIC
    },
];

impl Quirks {
    /// The row with this name.
    pub fn named(name: &str) -> Option<&'static Quirks> {
        TABLE.iter().find(|quirks| quirks.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (index, quirks) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..index].iter().all(|other| other.name != quirks.name),
                "{} twice",
                quirks.name
            );
            assert_eq!(Quirks::named(quirks.name), Some(quirks));
        }
        assert_eq!(Quirks::named("unheard"), None);
    }
}
