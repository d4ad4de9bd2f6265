//! The frame of SARIF 2.1.0, which build servers and code hosts show beside the code.

use serde_json::{Value, json};

/// One run of `tool` with its `rules` and `results`.
pub(crate) fn log(tool: &str, version: &str, rules: Vec<Value>, results: Vec<Value>) -> Value {
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": tool,
                "version": version,
                "semanticVersion": version,
                "rules": rules,
            } },
            "columnKind": "utf16CodeUnits",
            "results": results,
        }],
    })
}

/// A path as a URI reference: what is not plain is escaped.
pub(crate) fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}
