//! Runs the cases in `fixtures/edits/`. A case is data: files, calls with the code each must end
//! with, and the files afterwards. Whatever a case does not name must be as it was, to the byte.
//! `fixtures/edits/README.md` says how a case is written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::stage::Stage;

#[test]
fn every_case_ends_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/edits");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let table: toml::Table = text
            .parse()
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let table = serde_json::to_value(table).unwrap();
        for case in table["case"].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            let label = format!("{}: {name}", file.file_stem().unwrap().display());
            cases.push((label, case.clone()));
        }
    }
    let count = cases.len();
    let failures = in_parallel(&cases);
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(count >= 120, "only {count} cases");
}

/// Most of the time goes into waiting for the disk, so the cases wait together.
fn in_parallel(cases: &[(String, Value)]) -> Vec<String> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some((label, case)) =
                    cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    if let Err(problem) = run(case) {
                        failures.lock().unwrap().push(format!("{label}: {problem}"));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    failures
}

fn run(case: &Value) -> Result<(), String> {
    let stage = Stage::new();
    for (name, content) in entries(&case["files"]) {
        make(stage.project(), name, content);
    }
    let mut expected = tree(stage.project());
    for call in calls(case) {
        if let Some(changes) = call.get("change") {
            for (name, content) in entries(changes) {
                make(stage.project(), name, content);
            }
            expected = tree(stage.project());
            continue;
        }
        let tool = call["tool"].as_str().unwrap();
        let input = substituted(&call["input"], stage.project());
        let observation = stage.call(tool, &input);
        let code = call["code"].as_str().unwrap_or("ok");
        let text = stage.model_text(&observation);
        if observation.code.as_str() != code {
            return Err(format!(
                "{tool} ended with {}, not {code}:\n{text}",
                observation.code
            ));
        }
        for needle in call["says"].as_array().into_iter().flatten() {
            let needle = needle.as_str().unwrap();
            if !text.contains(needle) {
                return Err(format!("{tool} does not say {needle:?}:\n{text}"));
            }
        }
        for needle in call["silent"].as_array().into_iter().flatten() {
            let needle = needle.as_str().unwrap();
            if text.contains(needle) {
                return Err(format!("{tool} says {needle:?}:\n{text}"));
            }
        }
        check_diff(&stage, &observation)?;
    }
    stage.check_log()?;
    for (name, content) in entries(&case["after"]) {
        match content {
            Value::Bool(false) => {
                expected.remove(Path::new(name));
            }
            other => {
                let mode = expected
                    .get(Path::new(name))
                    .map_or(0o644, |entry| entry.mode);
                let mode = other.get("mode").map_or(mode, mode_of);
                expected.insert(
                    name.into(),
                    Entry {
                        bytes: bytes(other),
                        mode,
                    },
                );
            }
        }
    }
    let found = tree(stage.project());
    for (name, entry) in &expected {
        match found.get(name) {
            None => return Err(format!("`{}` is gone", name.display())),
            Some(other) if other != entry => {
                return Err(format!("`{}` is {other:?}, not {entry:?}", name.display()));
            }
            Some(_) => {}
        }
    }
    match found.keys().find(|name| !expected.contains_key(*name)) {
        Some(name) => Err(format!("`{}` is new", name.display())),
        None => Ok(()),
    }
}

/// The kept diff applies to the kept image before and gives the one after.
fn check_diff(
    stage: &Stage,
    observation: &agent_protocol::payload::tool::ToolObservation,
) -> Result<(), String> {
    for effect in &observation.side_effects {
        let (Some(before), Some(after)) = (&effect.before_ref, &effect.after_ref) else {
            continue;
        };
        let (before, after) = (stage.artifact(before), stage.artifact(after));
        if fs::read(stage.project().join(&effect.path)).ok().as_deref() != Some(after.as_slice()) {
            return Err("the image after is not the file".into());
        }
        if before == after {
            return Err("nothing changed, but an effect is claimed".into());
        }
    }
    Ok(())
}

fn calls(case: &Value) -> Vec<Value> {
    let mut calls = Vec::new();
    if let Some(path) = case.get("read") {
        calls.push(serde_json::json!({"tool": "read", "input": {"path": path}}));
    }
    for tool in ["edit", "write"] {
        if let Some(input) = case.get(tool) {
            let mut call = serde_json::json!({"tool": tool, "input": input});
            for field in ["code", "says", "silent"] {
                if let Some(value) = case.get(field) {
                    call[field] = value.clone();
                }
            }
            calls.push(call);
        }
    }
    calls.extend(case["calls"].as_array().cloned().unwrap_or_default());
    assert!(!calls.is_empty(), "a case without calls");
    calls
}

/// `$PROJECT` stands for the project root, and `{repeat = ["x", 3]}` for a long text.
fn substituted(value: &Value, project: &Path) -> Value {
    match value {
        Value::String(text) => text.replace("$PROJECT", project.to_str().unwrap()).into(),
        Value::Array(items) => items
            .iter()
            .map(|item| substituted(item, project))
            .collect(),
        Value::Object(fields) if fields.contains_key("repeat") => {
            String::from_utf8(bytes(value)).unwrap().into()
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(name, item)| (name.clone(), substituted(item, project)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, content)| (name.as_str(), content))
}

fn make(project: &Path, name: &str, content: &Value) {
    let path = project.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if let Some(target) = content.get("symlink") {
        let target = target
            .as_str()
            .unwrap()
            .replace("$PROJECT", project.to_str().unwrap());
        symlink(target, &path).unwrap();
    } else if let Some(target) = content.get("hardlink") {
        fs::hard_link(project.join(target.as_str().unwrap()), &path).unwrap();
    } else if content.get("directory").is_some() {
        fs::create_dir_all(&path).unwrap();
    } else if content.get("fifo").is_some() {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    } else if let Some(size) = content.get("sparse") {
        fs::File::create(&path)
            .unwrap()
            .set_len(size.as_u64().unwrap())
            .unwrap();
    } else if content.get("touch").is_some() {
        let file = fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
    } else if content == &Value::Bool(false) {
        fs::remove_file(&path).unwrap();
    } else {
        fs::write(&path, bytes(content)).unwrap();
        let mode = content.get("mode").map_or(0o644, mode_of);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn mode_of(value: &Value) -> u32 {
    u32::from_str_radix(value.as_str().unwrap(), 8).unwrap()
}

/// The bytes a case means by a content.
fn bytes(content: &Value) -> Vec<u8> {
    let text = |name: &str| content.get(name).and_then(Value::as_str);
    let wide = |text: &str, mark: [u8; 2], unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        mark.into_iter()
            .chain(text.encode_utf16().flat_map(unit))
            .collect()
    };
    if let Some(text) = content.as_str().or_else(|| text("text")) {
        text.as_bytes().to_vec()
    } else if let Some(text) = text("latin1") {
        text.chars()
            .map(|character| u8::try_from(u32::from(character)).unwrap())
            .collect()
    } else if let Some(text) = text("bom") {
        [b"\xEF\xBB\xBF", text.as_bytes()].concat()
    } else if let Some(text) = text("utf16le") {
        wide(text, [0xFF, 0xFE], u16::to_le_bytes)
    } else if let Some(text) = text("utf16be") {
        wide(text, [0xFE, 0xFF], u16::to_be_bytes)
    } else if let Some(text) = text("hex") {
        let digits: Vec<u8> = text
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    } else if let Some(repeat) = content.get("repeat") {
        let before = text("before").unwrap_or_default();
        let after = text("then").unwrap_or_default();
        let times = usize::try_from(repeat[1].as_u64().unwrap()).unwrap();
        format!(
            "{before}{}{after}",
            repeat[0].as_str().unwrap().repeat(times)
        )
        .into_bytes()
    } else {
        panic!("not a content: {content}")
    }
}

#[derive(PartialEq, Eq)]
struct Entry {
    bytes: Vec<u8>,
    mode: u32,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.bytes[..self.bytes.len().min(200)];
        write!(f, "\"{}\" mode {:o}", shown.escape_ascii(), self.mode)
    }
}

/// Every file, link and pipe of the project.
fn tree(project: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut folders = vec![project.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(project).unwrap().to_owned();
            let mode = metadata.mode() & 0o7777;
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_symlink() {
                let bytes = fs::read_link(&path)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .as_bytes()
                    .to_vec();
                found.insert(name, Entry { bytes, mode });
            } else if metadata.is_file() && metadata.len() < 1 << 30 {
                found.insert(
                    name,
                    Entry {
                        bytes: fs::read(&path).unwrap(),
                        mode,
                    },
                );
            } else {
                found.insert(
                    name,
                    Entry {
                        bytes: format!("{} bytes", metadata.len()).into_bytes(),
                        mode,
                    },
                );
            }
        }
    }
    found
}
