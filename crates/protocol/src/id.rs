//! Ids. Each kind is its own type with its own prefix, so that no single message id stands for all
//! work, and all of them sort by the time they were made.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Clock;

/// Common interface of all id types.
pub trait Id: Sized {
    /// Stands in front of the random part: `ses` in `ses_01k…`.
    const PREFIX: &'static str;

    /// Takes over text that has been checked by `check_id`.
    fn from_checked(text: Arc<str>) -> Self;
}

/// Reason why some text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an id: ids have 1 to 128 letters, digits, `_`, `-`, `.` or `:` and do not start with a dot"
)]
pub struct IdError {
    text: String,
}

/// Ids become file names and are shown on terminals, so their alphabet is narrow.
fn check_id(text: &str) -> Result<(), IdError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    if (1..=128).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with('.') {
        Ok(())
    } else {
        let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
        Err(IdError { text: shown })
    }
}

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as it stands in the log.
            #[must_use]
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl Id for $name {
            const PREFIX: &'static str = $prefix;
            fn from_checked(text: Arc<str>) -> Self { Self(text) }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                check_id(text)?;
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(&self.0) }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }

        /// A placeholder that is never written: emitters that forget an id fail their log check.
        impl Default for $name {
            fn default() -> Self { Self("unset".into()) }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool { true }
            fn schema_name() -> std::borrow::Cow<'static, str> { stringify!($name).into() }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "minLength": 1, "maxLength": 128 })
            }
        }
    )*};
}

ids! {
    /// This installation; the same in all its sessions.
    RuntimeId = "rt";
    /// The durable container of one or more threads; also the name of its directory.
    SessionId = "ses";
    /// An ordered context inside a session.
    ThreadId = "thr";
    /// One submitted input and what came of it.
    TurnId = "trn";
    /// A unit of work with an owner and a state of its own.
    TaskId = "tsk";
    /// One attempt at a task.
    RunId = "run";
    /// An ordered item of a turn: one model request and the calls it led to.
    StepId = "stp";
    /// One tool call, from intent to observation.
    ToolCallId = "call";
    /// A tool call as the model requested it.
    IntentId = "int";
    /// An accepted call; its presence means that execution began.
    InvocationId = "inv";
    /// An observation: the part of a result that model and user saw.
    ObservationId = "obs";
    /// One pending decision.
    ActionId = "act";
    /// A child context.
    SubagentId = "sub";
    /// A started command.
    ProcessId = "proc";
    /// One event.
    EventId = "ev";
    /// One request to a model, over all its attempts on the wire.
    ModelRequestId = "req";
    /// One decision about what the model sees.
    ContextId = "ctx";
    /// A verification, replay or review record.
    EvidenceId = "evd";
    /// A background or batch job.
    JobId = "job";
    /// A connected peer.
    ChannelId = "chn";
}

/// The name of an artifact: `sha256:` and the hash of its bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArtifactId(Arc<str>);

impl ArtifactId {
    /// The name of content with this SHA-256.
    #[must_use]
    pub fn from_digest(digest: &[u8; 32]) -> Self {
        use fmt::Write as _;
        let mut text = String::with_capacity(71);
        text.push_str("sha256:");
        for byte in digest {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text.into())
    }

    /// `sha256:<64 hex digits>`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hex digits, which are also the file's name.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl FromStr for ArtifactId {
    type Err = ArtifactIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == 64 && hex.bytes().all(lower_hex) {
            Ok(Self(text.into()))
        } else {
            Err(ArtifactIdError {
                text: text.chars().take(80).flat_map(char::escape_debug).collect(),
            })
        }
    }
}

/// Reason why some text is not an artifact id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an artifact id: it has the form `sha256:` and 64 lower-case hex digits")]
pub struct ArtifactIdError {
    text: String,
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Default for ArtifactId {
    fn default() -> Self {
        Self::from_digest(&[0; 32])
    }
}

impl Serialize for ArtifactId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ArtifactId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for ArtifactId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ArtifactId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
    }
}

/// Makes ids: 48 bits of time, then 80 bits that do not repeat, as 26 letters and digits that sort
/// like the moment they were made. The same clock and seed give the same ids, which tests use.
pub struct IdMint {
    clock: Arc<dyn Clock>,
    state: Mutex<MintState>,
}

struct MintState {
    last_millis: u64,
    random: u64,
    counter: u32,
}

impl IdMint {
    /// `seed` should come from the system's random source; it keeps two processes apart that
    /// start in the same millisecond.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        let state = MintState {
            last_millis: 0,
            random: seed,
            counter: 0,
        };
        Self {
            clock,
            state: Mutex::new(state),
        }
    }

    /// A new id, greater than every id of its kind this mint made before, also when the clock
    /// went backwards.
    pub fn mint<I: Id>(&self) -> I {
        let now = u64::try_from(self.clock.now().unix_millis()).unwrap_or(0);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now > state.last_millis {
            state.last_millis = now;
            state.counter = 0;
        } else {
            state.counter = state.counter.wrapping_add(1);
            if state.counter == 0 {
                state.last_millis += 1;
            }
        }
        state.random = split_mix(state.random);
        let bits = (u128::from(state.last_millis & 0xFFFF_FFFF_FFFF) << 80)
            | (u128::from(state.counter) << 48)
            | u128::from(state.random >> 16);
        drop(state);
        let mut text = String::with_capacity(I::PREFIX.len() + 27);
        text.push_str(I::PREFIX);
        text.push('_');
        for place in (0..26).rev() {
            let digit = (bits >> (place * 5)) & 31;
            text.push(char::from(
                b"0123456789abcdefghjkmnpqrstvwxyz"[digit as usize],
            ));
        }
        I::from_checked(text.into())
    }
}

/// One step of the SplitMix64 generator: enough to tell ids apart, not a source of secrets.
fn split_mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    struct Backwards(Mutex<i64>);

    impl Clock for Backwards {
        fn now(&self) -> Timestamp {
            let mut millis = self.0.lock().unwrap();
            *millis -= 7;
            Timestamp::from_unix_millis(*millis)
        }
    }

    #[test]
    fn ids_grow_even_when_the_clock_does_not() {
        let mint = IdMint::new(Arc::new(Backwards(Mutex::new(1_794_799_680_123))), 42);
        let mut last: EventId = mint.mint();
        for _ in 0..10_000 {
            let next: EventId = mint.mint();
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        assert!(last.as_str().starts_with("ev_01"), "{last}");
        assert_eq!(last.as_str().len(), 29);
    }

    #[test]
    fn an_id_cannot_leave_its_directory() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            "a b",
            "a\n",
            "é",
            &"x".repeat(129),
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad:?}");
        }
        assert!("ses_01k".parse::<SessionId>().is_ok());
    }

    #[test]
    fn artifact_ids_are_exact() {
        let id = ArtifactId::from_digest(&[0xAB; 32]);
        assert_eq!(id.hex().len(), 64);
        assert_eq!(id.as_str().parse::<ArtifactId>().as_ref(), Ok(&id));
        for bad in [
            "sha256:00",
            "sha256:../../../../etc/passwd",
            &id.as_str().to_uppercase(),
        ] {
            assert!(bad.parse::<ArtifactId>().is_err(), "{bad}");
        }
    }
}
