//! The findings of a code review, read from the model's final answer. What it says is untrusted: every finding
//! is bounded, and one about a place that does not exist is dropped and counted.

use serde_json::{Map, Value, json};

use crate::sarif;

/// The most findings that are taken from one answer.
const MOST_FINDINGS: usize = 500;
const MOST_PATH: usize = 1_024;
const MOST_TITLE: usize = 200;
const MOST_BODY: usize = 8_000;
const MOST_SUMMARY: usize = 8_000;

/// Weight of a finding, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Low,
    Medium,
    High,
    Critical,
}

impl Severity {
    /// All of them, the worst first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Medium, Self::Low];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The severity that a model's word stands for.
    fn read(word: &str) -> Option<Self> {
        Some(match word.trim().to_ascii_lowercase().as_str() {
            "critical" | "blocker" | "p0" => Self::Critical,
            "high" | "major" | "error" | "p1" => Self::High,
            "medium" | "moderate" | "warning" | "p2" => Self::Medium,
            "low" | "minor" | "info" | "note" | "nit" | "p3" => Self::Low,
            _ => return None,
        })
    }

    /// The word of SARIF.
    fn level(self) -> &'static str {
        match self {
            Self::Critical | Self::High => "error",
            Self::Medium => "warning",
            Self::Low => "note",
        }
    }
}

/// Something to fix, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the project's root, with slashes.
    pub file: String,
    /// Counts from 1.
    pub line: u64,
    pub end_line: Option<u64>,
    pub severity: Severity,
    pub title: String,
    pub body: String,
}

/// Content of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Review {
    pub summary: String,
    /// The worst first, otherwise as the model had them.
    pub findings: Vec<Finding>,
    /// Findings about a place that does not exist.
    pub dropped: Vec<Finding>,
    /// Entries that are no findings: without a file, a line or words.
    pub malformed: u64,
}

impl Review {
    /// Reads an answer that ends with one JSON object; nothing when it has none. `exists` says whether the
    /// project has the line of the file.
    #[must_use]
    pub fn read(answer: &str, exists: impl Fn(&str, u64) -> bool) -> Option<Self> {
        let object = object_in(answer)?;
        let entries = object.get("findings")?.as_array()?;
        let mut review = Self {
            summary: text(object.get("summary"), MOST_SUMMARY).unwrap_or_default(),
            ..Self::default()
        };
        for entry in entries {
            let Some(mut finding) = finding(entry)
                .filter(|_| review.findings.len() + review.dropped.len() < MOST_FINDINGS)
            else {
                review.malformed += 1;
                continue;
            };
            let there = names_of(&finding.file).find(|name| exists(name, finding.line));
            match there.map(str::to_owned) {
                Some(name) => {
                    finding.file = name;
                    // A range that leaves the file, or runs backwards, ends where it begins.
                    let (line, file) = (finding.line, &finding.file);
                    let holds = |end: &u64| *end >= line && exists(file, *end);
                    finding.end_line = finding.end_line.filter(holds);
                    review.findings.push(finding);
                }
                None => review.dropped.push(finding),
            }
        }
        review
            .findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Some(review)
    }

    /// The worst finding.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// The findings as a SARIF log of the program with this version.
    #[must_use]
    pub fn to_sarif(&self, version: &str) -> Value {
        let rules = Severity::ALL.iter().map(|severity| {
            json!({
                "id": rule(*severity),
                "shortDescription": { "text": format!("A finding of {} severity", severity.as_str()) },
                "defaultConfiguration": { "level": severity.level() },
            })
        });
        let results = self.findings.iter().map(result).collect();
        let mut log = sarif::log("agent review", version, rules.collect(), results);
        log["runs"][0]["properties"] = json!({
            "summary": self.summary,
            "dropped": self.dropped.len(),
            "malformed": self.malformed,
        });
        log
    }
}

fn rule(severity: Severity) -> String {
    format!("review/{}", severity.as_str())
}

fn result(finding: &Finding) -> Value {
    let mut region = json!({ "startLine": finding.line });
    if let Some(end) = finding.end_line {
        region["endLine"] = json!(end);
    }
    let words = match finding.body.is_empty() {
        true => finding.title.clone(),
        false => format!("{}\n\n{}", finding.title, finding.body),
    };
    json!({
        "ruleId": rule(finding.severity),
        "level": finding.severity.level(),
        "message": { "text": words },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": sarif::uri(&finding.file) },
            "region": region,
        } }],
        "partialFingerprints": {
            "file/title": format!("{}/{}", finding.file, finding.title),
        },
    })
}

/// The object an answer ends with: in its last fenced block, or from its first brace to its last.
fn object_in(answer: &str) -> Option<Map<String, Value>> {
    let mut pieces: Vec<&str> = Vec::new();
    let mut from = 0;
    while let Some(at) = answer[from..].find("```") {
        let begin = from + at + 3;
        let Some(length) = answer[begin..].find("\n```") else {
            // A string inside may hold a fence: take all there is.
            pieces.push(&answer[begin..]);
            break;
        };
        pieces.push(&answer[begin..begin + length]);
        from = begin + length + 4;
    }
    pieces.reverse();
    pieces.push(answer);
    pieces.into_iter().find_map(|piece| {
        let object = piece.get(piece.find('{')?..=piece.rfind('}')?)?;
        match serde_json::from_str(object) {
            Ok(Value::Object(object)) if object.contains_key("findings") => Some(object),
            _ => None,
        }
    })
}

fn finding(entry: &Value) -> Option<Finding> {
    let file = text(entry.get("file").or_else(|| entry.get("path")), MOST_PATH)?;
    let body = text(entry.get("body"), MOST_BODY).unwrap_or_default();
    let first_line = || {
        body.lines()
            .next()
            .map(|line| agent_text::brief(line, MOST_TITLE))
    };
    let title = text(entry.get("title"), MOST_TITLE)
        .map(|title| title.lines().collect::<Vec<_>>().join(" "))
        .or_else(first_line)?;
    let severity = text(entry.get("severity"), 32);
    Some(Finding {
        file,
        line: number(entry.get("line")?)?,
        end_line: entry.get("end_line").and_then(number),
        severity: severity
            .and_then(|word| Severity::read(&word))
            .unwrap_or(Severity::Medium),
        title,
        body,
    })
}

/// A line, also as `"12"` or `"12-14"`; there is none before the first.
fn number(value: &Value) -> Option<u64> {
    let number = match value {
        Value::String(text) => {
            let digits = text.trim().trim_start_matches(['L', 'l']);
            let end = digits.find(|c: char| !c.is_ascii_digit());
            digits[..end.unwrap_or(digits.len())].parse().ok()
        }
        other => other.as_u64(),
    };
    number.filter(|line| *line > 0)
}

fn text(value: Option<&Value>, most: usize) -> Option<String> {
    let text = value?.as_str()?.trim();
    (!text.is_empty()).then(|| agent_text::brief(text, most))
}

/// A file as the model wrote it, and without what diffs and habits put before it.
fn names_of(file: &str) -> impl Iterator<Item = &str> {
    let ways = ["./", "a/", "b/"].into_iter();
    std::iter::once(file).chain(ways.filter_map(|before| file.strip_prefix(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &str) -> Option<Review> {
        Review::read(answer, |file, line| file == "src/a.rs" && line <= 10)
    }

    const ONE: &str = r#"{"summary":"S.","findings":[{"file":"src/a.rs","line":3,"severity":"high","title":"T","body":"B"}]}"#;

    #[test]
    fn the_object_is_found_where_models_put_it() {
        let plain = read(ONE).unwrap();
        assert_eq!(plain.findings.len(), 1);
        assert_eq!(plain.summary, "S.");
        for answer in [
            format!("I looked.\n\n```json\n{ONE}\n```\n"),
            format!("```rust\nfn f() {{}}\n```\nand\n```\n{ONE}\n```"),
            format!("Findings: {ONE} That is all."),
            format!("```json\n{ONE}"),
        ] {
            assert_eq!(read(&answer).as_ref(), Some(&plain), "{answer}");
        }
        assert_eq!(read("No findings."), None);
        assert_eq!(read("{\"verdict\": 1}"), None);
        assert_eq!(read("} and {"), None);
    }

    #[test]
    fn what_is_not_there_is_dropped_and_counted() {
        let answer = r#"{"findings":[
            {"file":"src/a.rs","line":11,"title":"past the end"},
            {"file":"src/none.rs","line":1,"title":"no file"},
            {"file":"b/src/a.rs","line":"L4-6","severity":"nit","title":"of a diff"},
            {"file":"./src/a.rs","line":2,"end_line":99,"severity":"blocker","body":"only a body\nmore"},
            {"file":"src/a.rs","line":0,"title":"no such line"},
            {"line":3,"title":"no file"},
            "words"]}"#;
        let review = read(answer).unwrap();
        let found: Vec<(&str, u64, Severity, &str)> = review
            .findings
            .iter()
            .map(|it| (it.file.as_str(), it.line, it.severity, it.title.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("src/a.rs", 2, Severity::Critical, "only a body"),
                ("src/a.rs", 4, Severity::Low, "of a diff"),
            ]
        );
        assert_eq!(review.findings[0].end_line, None);
        assert_eq!((review.dropped.len(), review.malformed), (2, 3));
        assert_eq!(review.worst(), Some(Severity::Critical));
    }

    proptest::proptest! {
        /// Whatever a model says: a finding that is reported has a place that exists, and none is lost
        /// without being counted.
        #[test]
        fn every_finding_has_a_place(
            entries in proptest::collection::vec(("(src/a.rs|b/src/a.rs|src/b.rs|)", 0u64..14, "[a-z]{0,2}"), 0..20),
            around in "[`{}\"\\[\\]a-z\n ]{0,30}",
        ) {
            let findings: Vec<Value> = entries
                .iter()
                .map(|(file, line, title)| json!({"file": file, "line": line, "title": title}))
                .collect();
            let object = json!({ "findings": findings });
            let review = read(&format!("```json\n{object}\n```")).unwrap();
            let exists = |it: &Finding| it.file == "src/a.rs" && (1..=10).contains(&it.line);
            proptest::prop_assert!(review.findings.iter().all(exists));
            let told = review.findings.len() + review.dropped.len();
            proptest::prop_assert_eq!(told as u64 + review.malformed, entries.len() as u64);
            // The simple rule, said again.
            let expected = entries.iter().filter(|(file, line, title)| {
                file.ends_with("src/a.rs") && (1..=10).contains(line) && !title.is_empty()
            });
            proptest::prop_assert_eq!(review.findings.len(), expected.count());
            let _ = read(&format!("{around}{object}{around}"));
        }
    }

    #[test]
    fn sarif_names_file_line_and_level() {
        let sarif = read(ONE).unwrap().to_sarif("1.0.0");
        let result = &sarif["runs"][0]["results"][0];
        assert_eq!(result["level"], "error");
        assert_eq!(result["message"]["text"], "T\n\nB");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "src/a.rs");
        assert_eq!(place["region"]["startLine"], 3);
    }
}
