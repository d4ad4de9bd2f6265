//! Two small macros that keep the vocabulary readable: one line per field, one word per variant.

/// Declares a payload record. `name: T` is required, `name?: T` may be missing, `name*: T` is a list
/// that is always written and may be missing when read. All records have a `Default`, so that an
/// emitter names only the facts it has.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident { $($body:tt)* }) => {
        record!(@munch [$(#[$meta])*] $name [] $($body)*);
    };
    (@munch [$($meta:tt)*] $name:ident [$($out:tt)*] $(#[$m:meta])* $field:ident ? : $ty:ty, $($rest:tt)*) => {
        record!(@munch [$($meta)*] $name [$($out)*
            $(#[$m])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $field: Option<$ty>,
        ] $($rest)*);
    };
    (@munch [$($meta:tt)*] $name:ident [$($out:tt)*] $(#[$m:meta])* $field:ident * : $ty:ty, $($rest:tt)*) => {
        record!(@munch [$($meta)*] $name [$($out)*
            $(#[$m])*
            #[serde(default)]
            pub $field: Vec<$ty>,
        ] $($rest)*);
    };
    (@munch [$($meta:tt)*] $name:ident [$($out:tt)*] $(#[$m:meta])* $field:ident : $ty:ty, $($rest:tt)*) => {
        record!(@munch [$($meta)*] $name [$($out)*
            $(#[$m])*
            pub $field: $ty,
        ] $($rest)*);
    };
    (@munch [$($meta:tt)*] $name:ident [$($out:tt)*]) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        $($meta)*
        pub struct $name { $($out)* }
    };
}

/// Declares a closed set of words, written in `snake_case`. The first variant is the default and
/// therefore the most careful one: what is not said is not claimed.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $(#[$fm:meta])* $first:ident = $fw:literal $(, $(#[$vm:meta])* $variant:ident = $word:literal)* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $(#[$fm])* #[default] #[serde(rename = $fw)] $first,
            $($(#[$vm])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every word of this set, in declaration order.
            pub const ALL: &[Self] = &[Self::$first, $(Self::$variant,)*];

            /// The word as it stands in the log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { Self::$first => $fw, $(Self::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::status::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| {
                    $crate::status::UnknownWord::new(text, Self::ALL.iter().map(|word| word.as_str()))
                })
            }
        }
    };
}

pub(crate) use record;
pub(crate) use words;
