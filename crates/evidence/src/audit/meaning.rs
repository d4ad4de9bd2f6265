//! What each finding means for whoever has to act on it.

/// Every code an audit can give, with what it means.
pub const MEANINGS: &[(&str, &str)] = &[
    // The log itself.
    (
        "bad_hash",
        "A line was changed after it was written: nothing after the last good line can be relied on.",
    ),
    (
        "missing_sequence",
        "Lines were removed: what happened there is not known.",
    ),
    (
        "repeated_sequence",
        "A line was copied into the log; the copy is ignored.",
    ),
    (
        "out_of_order",
        "Lines were moved: the order of events is not what it says.",
    ),
    (
        "other_session",
        "A line of another session was put into this log.",
    ),
    ("not_utf8", "A line was overwritten with something else."),
    (
        "nul_byte",
        "A line was overwritten, by a program or by a failing disk.",
    ),
    ("not_an_event", "A line was overwritten or damaged."),
    (
        "oversized_line",
        "A line is longer than any this program writes.",
    ),
    (
        "torn_tail",
        "The writer was killed in the middle of a line that nobody had been told about.",
    ),
    (
        "being_written",
        "The session is running; look again when it has ended.",
    ),
    (
        "event_id_repeated",
        "Two events have the same id: one of them was not written by this program.",
    ),
    (
        "session_created_misplaced",
        "The log does not begin where a session begins.",
    ),
    (
        "unknown_type",
        "A newer version may have written these events; this one cannot judge them.",
    ),
    (
        "unknown_shape",
        "A newer version may have written these events; this one cannot judge them.",
    ),
    (
        "unknown_field",
        "A newer version may have written these fields; this one cannot judge them.",
    ),
    (
        "other_schema_version",
        "Another version wrote these events; this one reads them as far as it can.",
    ),
    (
        "imported",
        "The session was recorded by another program: how its calls were decided and confined is unknown.",
    ),
    // The anchor.
    (
        "no_anchor",
        "No turn has ended yet, the session was recorded elsewhere, or its anchor was removed: a cut-off end would not be noticed.",
    ),
    (
        "anchor_unreadable",
        "The file that says how far the log had come is damaged.",
    ),
    (
        "anchor_mismatch",
        "The log was rewritten after it was anchored: this is not the log that was recorded.",
    ),
    (
        "cut_off",
        "The end of the log was removed after it was anchored.",
    ),
    ("log_deleted", "A session that existed here is gone."),
    // The log as a whole.
    ("unreadable", "There is a log, but it cannot be read."),
    (
        "no_log",
        "A session was being made here and never began; there is nothing to check.",
    ),
    // Artifacts.
    (
        "artifacts_unreadable",
        "The evidence the log names cannot be read.",
    ),
    (
        "artifact_unrecorded",
        "An event names evidence that was never recorded.",
    ),
    (
        "artifact_missing",
        "Evidence was removed without a word in the log.",
    ),
    (
        "artifact_altered",
        "Evidence was changed after it was recorded.",
    ),
    (
        "artifact_size",
        "Evidence has a size other than the one recorded.",
    ),
    (
        "artifact_unreadable",
        "Evidence is there but cannot be read.",
    ),
    (
        "artifact_left_out",
        "The pack was made without images of files; they can only be compared by their hashes.",
    ),
    (
        "artifact_masked",
        "The pack has masked copies where artifacts hold secrets; the originals can only be compared by their hashes.",
    ),
    (
        "artifact_unnamed",
        "A killed writer leaves files that no event names; they prove nothing.",
    ),
    (
        "history_unreadable",
        "What a fork took over from the session it came from cannot be read, or was changed.",
    ),
    (
        "inherited_missing",
        "Outputs or images of the session it came from were pruned there before the fork, or are gone.",
    ),
    // Calls.
    ("call_missing", "An event of a call does not say of which."),
    (
        "step_missing",
        "An event of a call does not say in which step.",
    ),
    (
        "call_without_intent",
        "Something was done that nobody had asked for.",
    ),
    ("intent_repeated", "One call was asked for twice."),
    (
        "validation_too_late",
        "A call was checked only after it was decided or started.",
    ),
    (
        "validation_repeated",
        "A call that had failed its check was checked again.",
    ),
    (
        "args_without_validation",
        "Arguments were used although they had not been found valid.",
    ),
    (
        "args_differ",
        "A call ran with arguments other than those asked for, checked or decided on.",
    ),
    (
        "permission_without_validation",
        "A call was decided although it had not been found valid.",
    ),
    (
        "args_missing",
        "It is not recorded what exactly was decided on.",
    ),
    (
        "decision_contradicts_rule",
        "A rule denied the call, and it was let through.",
    ),
    (
        "permission_too_late",
        "A call was decided only after it had begun.",
    ),
    (
        "asked_without_need",
        "A question was asked that no decision had called for.",
    ),
    (
        "request_missing",
        "A question was asked without its request.",
    ),
    (
        "answer_without_question",
        "An answer is recorded to a question nobody was asked.",
    ),
    (
        "resolved_without_answer",
        "A call was let through without anybody's answer.",
    ),
    (
        "answer_contradicted",
        "Somebody's no became a yes, or the other way round.",
    ),
    (
        "started_without_permission",
        "A call ran that nothing had allowed.",
    ),
    (
        "permission_ref_unknown",
        "A call ran on the strength of a decision that is not in the log.",
    ),
    ("started_twice", "One permission was used twice."),
    ("started_after_end", "A call ran after it had ended."),
    (
        "sandbox_without_start",
        "A boundary was drawn around nothing.",
    ),
    (
        "process_without_start",
        "A command ran outside of any started call.",
    ),
    (
        "process_without_sandbox",
        "A command ran, and nothing shows what it could reach.",
    ),
    (
        "sandbox_ref_unknown",
        "A command ran in a boundary that is not in the log.",
    ),
    (
        "sandbox_contradicts_itself",
        "A boundary is said to hold, but it has a hole.",
    ),
    (
        "ran_unconfined",
        "What the command reached was bounded by nothing but the account it ran under.",
    ),
    (
        "command_differs",
        "The command that ran is not the one that was decided on.",
    ),
    (
        "process_end_without_start",
        "A command ended, and nothing shows when and how it began.",
    ),
    (
        "process_ended_twice",
        "A command has two ends; only one of them can be true.",
    ),
    (
        "result_without_sandbox",
        "A command gave a result, and nothing shows what it could reach.",
    ),
    (
        "result_without_process",
        "A result is recorded for a command that the log does not show running.",
    ),
    (
        "exit_code_differs",
        "A call is said to have ended differently from its command.",
    ),
    (
        "second_end",
        "A call has two ends; only one of them can be true.",
    ),
    (
        "result_without_start",
        "A result is recorded for something that never ran.",
    ),
    (
        "invocation_differs",
        "An end is recorded for an invocation other than the one that began.",
    ),
    (
        "result_contradicts_itself",
        "A result says it worked and names a failure, or the other way round.",
    ),
    (
        "phase_contradicts_start",
        "A failure is recorded for a phase the call had not reached or had left.",
    ),
    (
        "phase_contradicts_validation",
        "A call is said to be invalid, but it was found valid.",
    ),
    (
        "phase_contradicts_permission",
        "A call is said to be refused, but it was allowed.",
    ),
    (
        "observation_without_end",
        "Something was shown before it had happened.",
    ),
    (
        "observation_differs",
        "What was shown is not what happened.",
    ),
    (
        "event_after_observation",
        "A call went on after its end had been shown.",
    ),
    (
        "call_open_in_ended_turn",
        "A turn ended although one of its calls had not.",
    ),
    (
        "open_call",
        "The call is still running, or its writer ended before it did; whether it had an effect is then unknown.",
    ),
    // Turns.
    ("turn_missing", "An event of a turn does not say of which."),
    ("event_after_turn_end", "A turn went on after its end."),
    ("turn_submitted_twice", "One input was taken twice."),
    (
        "turn_not_submitted",
        "Work was done for an input that was never given.",
    ),
    ("turn_started_twice", "One input was worked on twice."),
    ("turn_not_started", "A turn ended that had never begun."),
    (
        "model_without_catalog",
        "It is not recorded which tools the model could see.",
    ),
    (
        "model_without_context",
        "It is not recorded what the model was shown.",
    ),
    (
        "model_end_without_request",
        "An answer is recorded to a question that was never asked.",
    ),
    (
        "request_open_in_ended_turn",
        "A turn ended although an answer it waited for never came, or was removed.",
    ),
    (
        "intent_without_answer",
        "A call is put into the mouth of a model that did not ask for it.",
    ),
    (
        "call_unrecorded",
        "The model asked for something, and what became of it was removed.",
    ),
    (
        "answer_differs",
        "The answer was changed after it had come in.",
    ),
    (
        "final_text_differs",
        "The turn ends with words that the model did not say.",
    ),
    (
        "usage_differs",
        "The turn's account of what was used is not what its answers used.",
    ),
    (
        "outcome_differs",
        "The turn's account of how it went does not follow from its events.",
    ),
    // What the model was sent.
    (
        "input_hash_differs",
        "It is not known what the model was sent: two records of it disagree.",
    ),
    (
        "catalog_differs",
        "It is not known which tools the model could see: two records of it disagree.",
    ),
    (
        "model_input_differs",
        "The words of an event were changed: the model was sent others.",
    ),
    (
        "action_not_open",
        "An answer is recorded to a question that was not open.",
    ),
    (
        "open_turn",
        "The turn is still running, or its writer ended before it did.",
    ),
    (
        "open_request",
        "The model is still answering, or the writer ended before it had.",
    ),
    (
        "open_action",
        "A question waits for an answer; `agent actions` lists it.",
    ),
    // Changes to files.
    (
        "image_differs",
        "The image kept for undo is not of the file that changed.",
    ),
    (
        "effect_contradicts_itself",
        "What a call is said to have done to a file contradicts the file's hashes.",
    ),
    (
        "image_unclaimed",
        "A file was changed, and the change was removed from the record.",
    ),
    (
        "effect_elsewhere",
        "A call changed a file other than the one it was let through for.",
    ),
    (
        "fetched_elsewhere",
        "A page came from another host than the one the call was let through for.",
    ),
    ("image_missing", "This change cannot be taken back."),
    (
        "changed_outside",
        "Somebody else worked on the file during the session.",
    ),
    (
        "read_only_changed_files",
        "A call wrote although it was allowed because it only reads.",
    ),
    (
        "observation_effects_differ",
        "The changes that were shown are not the changes that were made.",
    ),
    (
        "files_changed_differ",
        "The turn's own account of its changes is not what its calls did.",
    ),
    // Verification and claims.
    (
        "evidence_differs",
        "A verification is recorded with a result its command did not have.",
    ),
    (
        "evidence_without_command",
        "A verification is claimed that nobody ran.",
    ),
    (
        "evidence_unrecognised",
        "What counts as verified may verify nothing; the settings may have changed since.",
    ),
    (
        "evidence_missing",
        "A check ran whose result does not count; this version knows more runners, or it was removed.",
    ),
    (
        "verification_differs",
        "The turn's verdict does not follow from its events.",
    ),
    (
        "claim_differs",
        "What the turn says of the model's claim is not what its events show, here and now.",
    ),
    ("claim_supported", "The model said what the events show."),
    (
        "claim_contradicted",
        "The model said that something passes although its last run failed; it was marked when it happened.",
    ),
    (
        "claim_could_not_be_judged",
        "What the model said may be right: the check ran, and the log does not have its exit status.",
    ),
    (
        "claim_stale",
        "What the model said was shown before a later change; it was marked when it happened.",
    ),
    (
        "claim_not_run",
        "The model said more than the events show; it was marked when it happened.",
    ),
    (
        "claim_unmarked",
        "The model said more than the events show, and whoever read it was not warned.",
    ),
    // Masking.
    (
        "secret_unmasked",
        "Treat the value as disclosed: change it, and do not pass this session on.",
    ),
];

/// What a finding with this code means.
#[must_use]
pub fn meaning(code: &str) -> &'static str {
    MEANINGS
        .iter()
        .find(|(known, _)| *known == code)
        .map_or("", |(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The sources in which codes are written as `"snake_case"` words.
    const SOURCES: &[&str] = &[
        include_str!("mod.rs"),
        include_str!("artifacts.rs"),
        include_str!("calls.rs"),
        include_str!("commands.rs"),
        include_str!("inputs.rs"),
        include_str!("words.rs"),
        include_str!("report.rs"),
        include_str!("turns.rs"),
        include_str!("effects.rs"),
        include_str!("verification.rs"),
        include_str!("secrets.rs"),
    ];

    #[test]
    fn every_code_has_a_meaning_and_every_meaning_a_code() {
        let known: BTreeSet<&str> = MEANINGS.iter().map(|(code, _)| *code).collect();
        assert_eq!(known.len(), MEANINGS.len(), "a code stands twice");
        // Kinds of damage have their codes where lines are read.
        let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/../log/src/reader.rs");
        let reader = std::fs::read_to_string(reader).unwrap();
        let used = |code: &str| {
            let quoted = format!("\"{code}\"");
            SOURCES.iter().any(|source| source.contains(&quoted)) || reader.contains(&quoted)
        };
        let unused: Vec<_> = known.iter().filter(|code| !used(code)).collect();
        assert!(unused.is_empty(), "{unused:?}");
        // Whatever stands where a code stands has to be known.
        let words = regex::Regex::new(
            r#"(?:_at\(\s*event,\s*|(?:note|warning|error|wrong)\(\s*|code: |Some\(\(\s*)"([a-z]+(?:_[a-z]+)+)""#,
        )
        .unwrap();
        for source in SOURCES {
            for found in words.captures_iter(source) {
                assert!(known.contains(&found[1]), "{} has no meaning", &found[1]);
            }
        }
    }
}
