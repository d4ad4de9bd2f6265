//! "Did you mean": the nearest of a few known words.

/// The known word that `given` most probably was meant to be, if one is near.
pub(crate) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A name from outside may be megabytes long; no known word is.
    if given.is_empty() || given.len() > 64 {
        return None;
    }
    let flat = flatten(given);
    known
        .filter_map(|word| {
            let candidate = flatten(word);
            let distance = distance(&flat, &candidate);
            let allowed = (candidate.chars().count() / 3).max(1);
            let part = candidate.len() >= 3 && flat.len() >= 3;
            let contains = part && (flat.contains(&candidate) || candidate.contains(&flat));
            (distance <= allowed || contains).then_some((distance, word))
        })
        .min_by_key(|(distance, word)| (*distance, *word))
        .map(|(_, word)| word)
}

/// `filePath`, `file_path` and `file-path` are one word.
fn flatten(word: &str) -> String {
    word.chars()
        .filter(|character| character.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// Levenshtein's edit distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in right.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replace.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: Option<&str>) {
        let known = ["path", "offset", "limit", "old_string", "new_string"];
        assert_eq!(nearest(given, known.into_iter()), expected, "{given}");
    }

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        check("pth", Some("path"));
        check("file_path", Some("path"));
        check("oldString", Some("old_string"));
        check("ofset", Some("offset"));
        check("colour", None);
        check("", None);
        check(&"path".repeat(1_000_000), None);
    }
}
