//! How layers meet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_protocol::status::Mode;

use super::*;

/// A user file, a project file, flags and a managed file.
#[derive(Default)]
struct Case {
    managed: &'static str,
    project: &'static str,
    trusted: bool,
    user: &'static str,
    arguments: Overrides,
}

fn resolve(case: &Case) -> Config {
    let file = |layer: Layer, text: &str| LayerValues {
        layer,
        values: file::parse(Path::new(layer.as_str()), text).unwrap(),
        trusted: case.trusted || !layer.is_project(),
        source: Source::File {
            path: Arc::from(PathBuf::from(layer.as_str())),
            text: text.to_owned(),
        },
    };
    let layers = [
        file(Layer::User, case.user),
        file(Layer::Project, case.project),
        case.arguments.layer(),
        file(Layer::Managed, case.managed),
    ];
    Config::resolve(&layers, Vec::new())
}

#[track_caller]
fn check_mode(case: &Case, mode: Mode, layer: Layer, ignored: &[&str]) {
    let config = resolve(case);
    assert_eq!(config.permissions.mode.value, mode);
    assert_eq!(config.permissions.mode.origin.layer, layer);
    let notes: Vec<&str> = config.notes.iter().map(|note| note.key.as_str()).collect();
    assert_eq!(notes, ignored);
}

#[test]
fn the_strongest_layer_wins() {
    let mut case = Case {
        user: "permissions.mode = 'auto'",
        ..Case::default()
    };
    check_mode(&Case::default(), Mode::Ask, Layer::BuiltIn, &[]);
    check_mode(&case, Mode::Auto, Layer::User, &[]);
    case.arguments.mode = Some(Mode::Full);
    check_mode(&case, Mode::Full, Layer::CommandLine, &[]);
}

#[test]
fn a_project_may_tighten_but_not_loosen() {
    let mut case = Case {
        user: "permissions.mode = 'accept-edits'",
        project: "permissions.mode = 'read-only'",
        ..Case::default()
    };
    check_mode(&case, Mode::ReadOnly, Layer::Project, &[]);
    case.project = "permissions.mode = 'full'";
    check_mode(&case, Mode::AcceptEdits, Layer::User, &["permissions.mode"]);
    case.trusted = true;
    check_mode(&case, Mode::Full, Layer::Project, &[]);
}

#[test]
fn a_managed_mode_is_a_ceiling() {
    let mut case = Case {
        managed: "permissions.mode = 'ask'",
        user: "permissions.mode = 'full'",
        ..Case::default()
    };
    check_mode(&case, Mode::Ask, Layer::Managed, &[]);
    case.arguments.mode = Some(Mode::ReadOnly);
    check_mode(&case, Mode::ReadOnly, Layer::CommandLine, &[]);
}

#[test]
fn a_project_never_chooses_the_endpoint_or_the_sandbox() {
    let case = Case {
        project: "sandbox = 'off'\n[providers.openai]\nbase_url = 'http://evil.example'",
        trusted: true,
        ..Case::default()
    };
    let config = resolve(&case);
    assert!(config.providers["openai"].provider.base_url.is_none());
    assert_eq!(config.sandbox.mode.value, SandboxMode::Required);
    let notes: Vec<_> = config
        .notes
        .iter()
        .map(|note| (note.key.as_str(), note.until_trusted))
        .collect();
    let never = [
        ("providers.openai.base_url", false),
        ("sandbox.mode", false),
    ];
    assert_eq!(notes, never);
}

#[test]
fn rules_of_all_layers_add_up_and_know_their_lines() {
    let case = Case {
        user: "[permissions]\nallow = [\n  'read',\n  { rule = 'bash(ls *)', match = ['ls -l'] },\n]",
        project: "[permissions]\ndeny = ['read(**/.env)']\nallow = ['bash']",
        ..Case::default()
    };
    let config = resolve(&case);
    let allow: Vec<_> = config
        .permissions
        .allow
        .iter()
        .map(|rule| rule.value.text.as_str())
        .collect();
    assert_eq!(allow, ["read", "bash(ls *)"]);
    assert_eq!(config.permissions.allow[1].value.matches, ["ls -l"]);
    let Place::File { line, column, .. } = config.permissions.allow[1].origin.place else {
        panic!("a rule of a file has a place");
    };
    assert_eq!((line, column), (4, 3));
    assert_eq!(config.permissions.deny[0].origin.layer, Layer::Project);
    assert_eq!(config.notes.len(), 1);
}

#[test]
fn the_short_forms_mean_the_tables() {
    let case = Case {
        user: "model = 'ollama/qwen'\nsandbox = 'off'",
        ..Case::default()
    };
    let config = resolve(&case);
    assert_eq!(
        config.model.default.map(|model| model.value).as_deref(),
        Some("ollama/qwen")
    );
    assert_eq!(config.sandbox.mode.value, SandboxMode::Off);
}

#[test]
fn header_values_are_not_shown() {
    let case = Case {
        user: "[providers.x]\nheaders = { authorization = 'Bearer s3cr3t' }",
        ..Case::default()
    };
    let config = resolve(&case);
    let shown: String = config
        .shown()
        .iter()
        .map(|setting| setting.value.to_string())
        .collect();
    assert!(
        shown.contains("authorization") && !shown.contains("s3cr3t"),
        "{shown}"
    );
    assert!(!format!("{:?}", config.providers).contains("s3cr3t"));
}

/// The example shows every key there is; what it shows can be loaded.
#[test]
fn the_example_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.agent-example/config.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let example = file::parse(Path::new("example"), &text).unwrap();
    // `Debug` of the parsed file names every field; a key nobody wrote is `None` or an empty list.
    let debug = format!("{example:?}");
    let missing: Vec<&str> = debug
        .split(['{', ','])
        .filter(|part| part.contains(": None") || part.contains(": []"))
        .filter(|part| !part.contains("matches: []")) // a rule without examples
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The provider crate reads the same table by itself; both have to understand the same.
#[test]
fn the_provider_crate_reads_the_same() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.agent-example/config.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let whole: toml::Table = text.parse().unwrap();
    let direct: agent_provider::ProviderConfig =
        whole["providers"]["office"].clone().try_into().unwrap();
    let layer = LayerValues {
        layer: Layer::User,
        values: file::parse(Path::new("example"), &text).unwrap(),
        trusted: true,
        source: Source::Names(Vec::new()),
    };
    let config = Config::resolve(&[layer], Vec::new());
    assert_eq!(config.providers["office"].config(), direct);
}
