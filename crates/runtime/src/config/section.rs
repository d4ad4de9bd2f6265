//! The shape all sections share: what a file may say, what comes out, and how the layers meet.

use serde::{Deserialize, Deserializer, Serialize, de};
use toml::Spanned;

use super::file::LayerValues;
use super::origin::{Layer, Origin, Setting};
use super::sections::ConfigFile;

/// What a file that came with the repository may do to a setting.
pub enum Guard<T> {
    /// Anything: the setting can only tighten, or cannot harm.
    Free,
    /// Only make it tighter, until the user trusts the file. Also what makes a managed value a
    /// bound instead of a fixed value.
    Tighter(fn(new: &T, old: &T) -> bool),
    /// Nothing until the user trusts the file.
    Trusted,
    /// Nothing, ever.
    Never,
}

impl<T: PartialOrd> Guard<T> {
    /// A smaller value is tighter.
    pub fn lower() -> Self {
        Self::Tighter(|new, old| new < old)
    }

    /// A greater value is tighter; `true` is greater than `false`.
    pub fn higher() -> Self {
        Self::Tighter(|new, old| new > old)
    }
}

/// A setting as `agent config show` prints it.
pub struct Shown {
    pub key: String,
    pub value: serde_json::Value,
    pub origin: Origin,
    /// Whether this is one entry of a list all layers add to.
    pub of_list: bool,
}

impl Shown {
    pub fn new<T: Serialize>(key: String, setting: &Setting<T>) -> Self {
        Self {
            key,
            value: serde_json::to_value(&setting.value).unwrap_or_default(),
            origin: setting.origin.clone(),
            of_list: false,
        }
    }
}

/// Joins the layers, weakest first, and notes what it did not follow.
pub struct Resolver<'a> {
    /// Weakest first.
    pub layers: &'a [LayerValues],
    pub notes: Vec<Note>,
}

/// Something a project file asked for and did not get.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub key: String,
    pub origin: Origin,
    /// Whether trusting the file would change it.
    pub until_trusted: bool,
}

impl<'a> Resolver<'a> {
    /// The value of a key that may be missing everywhere.
    pub fn optional<T: Clone + 'a>(
        &mut self,
        key: &str,
        guard: &Guard<T>,
        get: impl Fn(&'a ConfigFile) -> Option<&'a Spanned<T>>,
    ) -> Option<Setting<T>> {
        self.fold(key, None, guard, get)
    }

    /// The value of a key that always has one.
    pub fn value<T: Clone + 'a>(
        &mut self,
        key: &str,
        default: T,
        guard: &Guard<T>,
        get: impl Fn(&'a ConfigFile) -> Option<&'a Spanned<T>>,
    ) -> Setting<T> {
        let built_in = Setting {
            value: default,
            origin: Origin::BUILT_IN,
        };
        let resolved = self.fold(key, Some(built_in.clone()), guard, get);
        resolved.unwrap_or(built_in)
    }

    /// The entries of a list, which all layers add to.
    pub fn list<T: Clone + 'a>(
        &mut self,
        key: &str,
        guard: &Guard<T>,
        get: impl Fn(&'a ConfigFile) -> Option<&'a Vec<Spanned<T>>>,
    ) -> Vec<Setting<T>> {
        let mut settings = Vec::new();
        for layer in self.layers {
            for entry in get(&layer.values).into_iter().flatten() {
                let origin = layer.origin(key, &entry.span());
                if self.admits(layer, key, &origin, matches!(guard, Guard::Free), guard) {
                    let value = entry.get_ref().clone();
                    settings.push(Setting { value, origin });
                }
            }
        }
        settings
    }

    fn fold<T: Clone + 'a>(
        &mut self,
        key: &str,
        built_in: Option<Setting<T>>,
        guard: &Guard<T>,
        get: impl Fn(&'a ConfigFile) -> Option<&'a Spanned<T>>,
    ) -> Option<Setting<T>> {
        let mut current = built_in;
        for layer in self.layers {
            let Some(found) = get(&layer.values) else {
                continue;
            };
            let value = found.get_ref();
            let origin = layer.origin(key, &found.span());
            let tighter = match (guard, &current) {
                (Guard::Free, _) => true,
                (Guard::Tighter(tighter), Some(current)) => tighter(value, &current.value),
                (Guard::Tighter(_), None) => true,
                (Guard::Trusted | Guard::Never, _) => false,
            };
            // A managed limit is a bound: whoever asked for less keeps it.
            let bounded = layer.layer == Layer::Managed
                && matches!(guard, Guard::Tighter(_))
                && current
                    .as_ref()
                    .is_some_and(|current| current.origin.layer != Layer::BuiltIn)
                && !tighter;
            if !bounded && self.admits(layer, key, &origin, tighter, guard) {
                let value = value.clone();
                current = Some(Setting { value, origin });
            }
        }
        current
    }

    fn admits<T>(
        &mut self,
        layer: &LayerValues,
        key: &str,
        origin: &Origin,
        tighter: bool,
        guard: &Guard<T>,
    ) -> bool {
        let never = matches!(guard, Guard::Never);
        if !layer.layer.is_project() || (!never && (layer.trusted || tighter)) {
            return true;
        }
        self.notes.push(Note {
            key: key.to_owned(),
            origin: origin.clone(),
            until_trusted: !never,
        });
        false
    }
}

/// Declares a section twice: as a file may say it, and as it comes out of all layers. The guard
/// after each key says what a project file may do to it. `tables` are sections by name inside this
/// one, which are resolved on their own.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident from $file:ident {
            $(values { $($(#[$vm:meta])* $value:ident: $vt:ty = $default:expr, $vg:expr;)* })?
            $(optional { $($(#[$om:meta])* $option:ident: $ot:ty, $og:expr;)* })?
            $(lists { $($(#[$lm:meta])* $list:ident: $lt:ty, $lg:expr;)* })?
            $(tables { $($table:ident: $tt:ty;)* })?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($($(#[$vm])* pub $value: Setting<$vt>,)*)?
            $($($(#[$om])* pub $option: Option<Setting<$ot>>,)*)?
            $($($(#[$lm])* pub $list: Vec<Setting<$lt>>,)*)?
        }

        #[doc = concat!("[`", stringify!($name), "`] as one layer says it.")]
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $file {
            $($(pub $value: Option<Spanned<$vt>>,)*)?
            $($(pub $option: Option<Spanned<$ot>>,)*)?
            $($(pub $list: Vec<Spanned<$lt>>,)*)?
            $($(pub $table: BTreeMap<String, $tt>,)*)?
        }

        impl $name {
            /// Joins what the layers say about this section, found by `file`, under `prefix`.
            pub fn resolve<'a>(
                resolver: &mut Resolver<'a>,
                prefix: &str,
                file: impl Fn(&'a ConfigFile) -> Option<&'a $file>,
            ) -> Self {
                let key = |name: &str| format!("{prefix}.{name}");
                Self {
                    $($($value: resolver.value(&key(stringify!($value)), $default, &$vg, |layer| {
                        file(layer).and_then(|section| section.$value.as_ref())
                    }),)*)?
                    $($($option: resolver.optional(&key(stringify!($option)), &$og, |layer| {
                        file(layer).and_then(|section| section.$option.as_ref())
                    }),)*)?
                    $($($list: resolver.list(&key(stringify!($list)), &$lg, |layer| {
                        file(layer).map(|section| &section.$list)
                    }),)*)?
                }
            }

            /// Every key that has a value.
            pub fn shown(&self, prefix: &str, shown: &mut Vec<Shown>) {
                let key = |name: &str| format!("{prefix}.{name}");
                $($(shown.push(Shown::new(key(stringify!($value)), &self.$value));)*)?
                $($(shown.extend(self.$option.iter().map(|setting| Shown::new(key(stringify!($option)), setting)));)*)?
                $($(shown.extend(self.$list.iter().map(|setting| Shown {
                    of_list: true,
                    ..Shown::new(key(stringify!($list)), setting)
                }));)*)?
            }
        }
    };
}

pub(crate) use section;

/// A section that may be written as one word, `sandbox = "off"`, or as a table.
pub(super) trait FromWord: Default {
    /// The section that says only `word`.
    fn from_word(word: Spanned<String>) -> Result<Self, String>;
}

/// Reads a section in either form.
pub(super) fn word_or_table<'de, D, F>(deserializer: D) -> Result<F, D::Error>
where
    D: Deserializer<'de>,
    F: FromWord + Deserialize<'de>,
{
    struct Form<F>(Result<F, String>);

    impl<'de, F: Deserialize<'de>> Deserialize<'de> for Form<F> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor<F>(std::marker::PhantomData<F>);

            impl<'de, F: Deserialize<'de>> de::Visitor<'de> for Visitor<F> {
                type Value = Form<F>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a string or a table")
                }

                fn visit_str<E: de::Error>(self, word: &str) -> Result<Form<F>, E> {
                    Ok(Form(Err(word.to_owned())))
                }

                fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Form<F>, A::Error> {
                    F::deserialize(de::value::MapAccessDeserializer::new(map))
                        .map(|section| Form(Ok(section)))
                }
            }

            deserializer.deserialize_any(Visitor(std::marker::PhantomData))
        }
    }

    let form = Spanned::<Form<F>>::deserialize(deserializer)?;
    let span = form.span();
    match form.into_inner().0 {
        Ok(section) => Ok(section),
        Err(word) => F::from_word(Spanned::new(span, word)).map_err(de::Error::custom),
    }
}
