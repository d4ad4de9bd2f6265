//! The argument text of an intent, read under limits, and checked against a tool's schema.
//!
//! The text comes from a model over a network: it may be no JSON, megabytes long, nested without
//! end or say the same key twice. All of that ends in a list of errors with JSON pointers.

use std::cell::RefCell;
use std::fmt;
use std::sync::OnceLock;

use agent_protocol::Code;
use agent_protocol::payload::tool::ValidationError;
use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use agent_text::nearest;
use agent_text::visible_excerpt;

/// The longest argument text that is read at all.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 16 * 1024 * 1024;

/// More errors than this help nobody.
const MAX_ERRORS: usize = 20;

/// Why an argument text is no input.
#[derive(Debug, PartialEq)]
pub(crate) struct BadArguments {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) errors: Vec<ValidationError>,
}

impl BadArguments {
    fn whole(code: Code, message: String) -> Self {
        let errors = vec![ValidationError {
            path: String::new(),
            message: message.clone(),
        }];
        Self {
            code,
            message,
            errors,
        }
    }

    fn listed(errors: Vec<ValidationError>) -> Self {
        let first = errors.first().map_or_else(String::new, |error| {
            if error.path.is_empty() {
                error.message.clone()
            } else {
                format!("`{}`: {}", error.path, error.message)
            }
        });
        let message = match errors.len() {
            0 | 1 => format!("the input does not fit the schema: {first}"),
            count => format!("the input does not fit the schema in {count} places, first {first}"),
        };
        Self {
            code: Code::SchemaInvalid,
            message,
            errors,
        }
    }
}

/// Reads the text into an object. Empty text is an empty object: some models send nothing for tools
/// without required fields.
pub(crate) fn parse(text: &str) -> Result<Value, BadArguments> {
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(BadArguments::whole(
            Code::TooLarge,
            format!(
                "the arguments are {} bytes long, and at most {MAX_ARGUMENT_BYTES} are accepted",
                text.len()
            ),
        ));
    }
    if text.trim_ascii().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let trace = Trace::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = Reader { trace: &trace }.deserialize(&mut deserializer);
    let value = read
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| not_json(&error, &trace))?;
    let duplicates = trace.duplicates.into_inner();
    if !duplicates.is_empty() {
        return Err(BadArguments::listed(duplicates));
    }
    match value {
        Value::Object(_) => Ok(value),
        other => Err(BadArguments::whole(
            Code::SchemaInvalid,
            format!(
                "the arguments have to be a JSON object, and are {}",
                kind_of(&other)
            ),
        )),
    }
}

fn not_json(error: &serde_json::Error, trace: &Trace) -> BadArguments {
    let text = error.to_string();
    let path = bounded_pointer(&trace.pointer());
    let message = if text.starts_with("recursion limit exceeded") {
        "the arguments are nested more than 127 levels deep".to_owned()
    } else if error.is_eof() {
        format!("the arguments are cut short: {text}")
    } else {
        format!("the arguments are not valid JSON: {text}")
    };
    BadArguments {
        code: Code::SchemaInvalid,
        errors: vec![ValidationError {
            path,
            message: message.clone(),
        }],
        message,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Where the reader is, and what it found on the way.
#[derive(Default)]
struct Trace {
    path: RefCell<Vec<String>>,
    duplicates: RefCell<Vec<ValidationError>>,
}

impl Trace {
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for part in self.path.borrow().iter() {
            pointer.push('/');
            pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
        }
        pointer
    }

    fn note_duplicate(&self) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < MAX_ERRORS {
            duplicates.push(ValidationError {
                path: bounded_pointer(&self.pointer()),
                message: "this key is given twice".to_owned(),
            });
        }
    }
}

/// Reads any JSON value and notes keys that come twice, which `serde_json` alone would not.
#[derive(Clone, Copy)]
struct Reader<'a> {
    trace: &'a Trace,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        self.trace.path.borrow_mut().push("0".to_owned());
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
            if let Some(last) = self.trace.path.borrow_mut().last_mut() {
                *last = array.len().to_string();
            }
        }
        self.trace.path.borrow_mut().pop();
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.trace.path.borrow_mut().push(key.clone());
            if object.contains_key(&key) {
                self.trace.note_duplicate();
            }
            let value = entries.next_value_seed(self)?;
            object.insert(key, value);
            self.trace.path.borrow_mut().pop();
        }
        Ok(Value::Object(object))
    }
}

/// A schema to check inputs with. The one place that knows the `jsonschema` crate. Getting one
/// ready takes longer than most calls, and a session uses few of its tools: it is done once, when
/// the first input comes.
pub(crate) struct Schema {
    validator: OnceLock<Result<Validator, String>>,
    source: Value,
}

impl Schema {
    pub(crate) fn new(source: &Value) -> Self {
        Self {
            validator: OnceLock::new(),
            source: source.clone(),
        }
    }

    /// The schema, ready.
    ///
    /// # Errors
    /// When it is not a JSON Schema.
    pub(crate) fn ready(&self) -> Result<&Validator, &str> {
        let build = || {
            jsonschema::options()
                .offline()
                .with_pattern_options(jsonschema::PatternOptions::regex())
                .build(&self.source)
                .map_err(|error| error.to_string())
        };
        let ready = self.validator.get_or_init(build);
        ready.as_ref().map_err(String::as_str)
    }

    /// Every place where `input` does not fit. Without a usable schema nothing fits.
    pub(crate) fn check(&self, input: &Value) -> Result<(), BadArguments> {
        let validator = self.ready().map_err(|problem| {
            let message = format!("the tool's own input schema is not usable: {problem}");
            BadArguments::whole(Code::InternalError, message)
        })?;
        if validator.is_valid(input) {
            return Ok(());
        }
        let mut errors = Vec::new();
        for error in validator.iter_errors(input) {
            self.describe(&error, input, &mut errors);
            if errors.len() >= MAX_ERRORS {
                break;
            }
        }
        errors.truncate(MAX_ERRORS);
        errors.sort_by(|left, right| left.path.cmp(&right.path));
        Err(BadArguments::listed(errors))
    }

    fn describe(
        &self,
        error: &jsonschema::ValidationError<'_>,
        input: &Value,
        out: &mut Vec<ValidationError>,
    ) {
        let pointer = error.instance_path().to_string();
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let schema_path = error.schema_path().to_string();
                let known = self.properties_beside(&schema_path);
                for name in unexpected {
                    out.push(unknown_field(&pointer, name, &known));
                }
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                out.push(ValidationError {
                    path: bounded_pointer(&format!("{pointer}/{name}")),
                    message: format!("the required field `{name}` is missing"),
                });
            }
            // Of several ways to write the input, the one that is nearest to what was given.
            ValidationErrorKind::AnyOf { context }
            | ValidationErrorKind::OneOfNotValid { context } => {
                match context.iter().min_by_key(|branch| branch.len()) {
                    Some(branch) if !branch.is_empty() => {
                        for inner in branch {
                            self.describe(inner, input, out);
                        }
                    }
                    _ => out.push(plain(&pointer, error, input)),
                }
            }
            _ => out.push(plain(&pointer, error, input)),
        }
    }

    /// The names in `properties` next to the keyword at `schema_path`.
    fn properties_beside(&self, schema_path: &str) -> Vec<String> {
        let parent = schema_path
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent);
        self.source
            .pointer(parent)
            .and_then(|schema| schema.get("properties"))
            .and_then(Value::as_object)
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    }
}

fn unknown_field(pointer: &str, name: &str, known: &[String]) -> ValidationError {
    let shown = visible_excerpt(name, 64);
    let message = match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("unknown field `{shown}`; did you mean `{meant}`?"),
        None => {
            let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
            format!(
                "unknown field `{shown}`; the fields are {}",
                names.join(", ")
            )
        }
    };
    ValidationError {
        path: bounded_pointer(&format!("{pointer}/{name}")),
        message,
    }
}

fn plain(pointer: &str, error: &jsonschema::ValidationError<'_>, input: &Value) -> ValidationError {
    // The value itself may be long or a secret; short ones help.
    let given = input.pointer(pointer).map(|value| match value {
        Value::String(text) => format!("`{}`", visible_excerpt(text, 40)),
        Value::Array(_) | Value::Object(_) => kind_of(value).to_owned(),
        scalar => format!("`{scalar}`"),
    });
    let what = visible_excerpt(&error.masked().to_string(), 300);
    let message = match given {
        Some(given) => format!("{what} (given {given})"),
        None => what,
    };
    ValidationError {
        path: bounded_pointer(pointer),
        message,
    }
}

fn bounded_pointer(pointer: &str) -> String {
    visible_excerpt(pointer, 200)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::new(&json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "maxLength": 4096},
                "mode": {"enum": ["lines", "files"]},
                "limit": {"type": "integer", "minimum": 1},
                "edits": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"old_string": {"type": "string"}},
                    "required": ["old_string"],
                    "additionalProperties": false,
                }},
            },
            "required": ["path"],
            "additionalProperties": false,
        }))
    }

    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = parse(text).and_then(|input| schema().check(&input));
        let errors = found.err().map(|bad| bad.errors).unwrap_or_default();
        let found: Vec<_> = errors
            .iter()
            .map(|error| (&*error.path, &*error.message))
            .collect();
        assert_eq!(found.len(), expected.len(), "{text:.200}: {found:?}");
        for ((path, message), (expected_path, part)) in found.iter().zip(expected) {
            assert_eq!(path, expected_path, "{message}");
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn good_input_passes() {
        check(r#"{"path":"a","limit":3,"mode":"files"}"#, &[]);
    }

    #[test]
    fn every_error_has_its_place() {
        check("{}", &[("/path", "required field `path`")]);
        check("", &[("/path", "required field `path`")]);
        check(
            r#"{"path":7,"limit":0,"mode":"x"}"#,
            &[("/limit", "1"), ("/mode", "`x`"), ("/path", "string")],
        );
        check(
            r#"{"path":"a","ofset":1,"limt":2}"#,
            &[
                ("/limt", "did you mean `limit`?"),
                ("/ofset", "the fields are `path`"),
            ],
        );
        check(
            r#"{"path":"a","edits":[{"oldString":"x"}]}"#,
            &[
                ("/edits/0/oldString", "did you mean `old_string`"),
                ("/edits/0/old_string", "missing"),
            ],
        );
    }

    #[test]
    fn text_that_is_no_object() {
        check("[1]", &[("", "and are an array")]);
        check("\"x\"", &[("", "and are a string")]);
        check("{\"path\":", &[("/path", "cut short")]);
        check("{\"path\": nope}", &[("/path", "not valid JSON")]);
        check("{} {}", &[("", "trailing")]);
        check(r#"{"path":"\ud800"}"#, &[("/path", "not valid JSON")]);
    }

    #[test]
    fn keys_given_twice_are_found_at_any_depth() {
        check(r#"{"path":"a","path":"b"}"#, &[("/path", "twice")]);
        check(
            r#"{"path":"a","edits":[{},{"x":1,"x":2}]}"#,
            &[("/edits/1/x", "twice")],
        );
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = format!("{{\"path\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
        let bad = parse(&deep).unwrap_err();
        assert!(bad.message.contains("127 levels"), "{}", bad.message);
        let long = format!("{{\"path\":\"{}\"}}", "x".repeat(20 << 20));
        let bad = parse(&long).unwrap_err();
        assert_eq!(bad.code, Code::TooLarge);
        assert!(bad.message.contains("bytes"), "{}", bad.message);
    }

    proptest::proptest! {
        #[test]
        fn what_serde_json_reads_is_read_the_same(text in r#"[\[\]{}",:0-9a\\ untrefals]{0,40}"#) {
            if let (Ok(ours), Ok(theirs)) = (parse(&text), serde_json::from_str::<Value>(&text)) {
                proptest::prop_assert_eq!(ours, theirs);
            }
        }
    }
}
