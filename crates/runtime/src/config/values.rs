//! The kinds of values that are more than a number or a text.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How a server wants to be spoken to, as one of the words the provider crate knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dialect(pub(crate) agent_provider::Dialect);

impl<'de> Deserialize<'de> for Dialect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = agent_provider::Dialect::from_word(&word);
        known.map(Self).ok_or_else(|| {
            de::Error::custom(format!(
                "`{word}` is not one of `openai-chat`, `openai-responses`, `anthropic-messages`, `scripted`"
            ))
        })
    }
}

impl Serialize for Dialect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

/// Whether the model may call a tool right after a tool's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterToolResult {
    None,
    Auto,
}

/// Models that `apply_patch` is offered to instead of `edit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyPatch {
    /// Those of families that were trained on it.
    Auto,
    Always,
    Never,
}

/// Whether commands run confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Commands run confined or not at all.
    Required,
    /// Commands run with all the user's rights.
    Off,
}

impl FromStr for SandboxMode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "required" => Ok(Self::Required),
            "off" => Ok(Self::Off),
            _ => Err(format!("`{word}` is not one of `required`, `off`")),
        }
    }
}

/// Colours of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Theme {
    /// The terminal's own sixteen.
    Auto,
    Light,
    Dark,
    None,
}

/// A part of the screen's status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusItem {
    Model,
    /// How much the model may think, where it is told.
    Thinking,
    Mode,
    Sandbox,
    Context,
    Cost,
    /// The state of the composer with vim keys.
    Vim,
    Branch,
    Queue,
    /// Commands that run in the background.
    Background,
    /// The name of the project's directory.
    Project,
    /// What the session is called.
    Title,
}

impl StatusItem {
    /// What is there when nobody chose.
    pub const USUAL: [Self; 10] = [
        Self::Model,
        Self::Thinking,
        Self::Mode,
        Self::Sandbox,
        Self::Context,
        Self::Cost,
        Self::Vim,
        Self::Branch,
        Self::Queue,
        Self::Background,
    ];
}

/// The keys of an action: one, or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct KeyNames(pub Vec<String>);

impl<'de> Deserialize<'de> for KeyNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = KeyNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key such as \"ctrl-s\", or a list of keys")
            }

            fn visit_str<E: de::Error>(self, key: &str) -> Result<KeyNames, E> {
                Ok(KeyNames(vec![key.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<KeyNames, A::Error> {
                let mut keys = Vec::new();
                while let Some(key) = list.next_element()? {
                    keys.push(key);
                }
                Ok(KeyNames(keys))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// HTTP headers. Their values may be keys, so they are never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Headers(pub(crate) BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.keys().map(|name| (name, "(hidden)")))
    }
}

/// A permission rule as it is written; the gate gives it meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `tool` or `tool(pattern)`.
    pub text: String,
    /// Inputs the rule has to match, checked when it is loaded.
    pub matches: Vec<String>,
    /// Inputs it must not match.
    pub not_matches: Vec<String>,
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            rule: String,
            #[serde(default, rename = "match")]
            matches: Vec<String>,
            #[serde(default, rename = "not_match")]
            not_matches: Vec<String>,
            #[serde(default, rename = "note")]
            _note: Option<String>,
        }

        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Rule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule such as \"bash(cargo test *)\" or { rule = …, match = […] }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rule, E> {
                Ok(Rule {
                    text: text.to_owned(),
                    matches: Vec::new(),
                    not_matches: Vec::new(),
                })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Rule, A::Error> {
                let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Rule {
                    text: table.rule,
                    matches: table.matches,
                    not_matches: table.not_matches,
                })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
