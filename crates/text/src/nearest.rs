//! "Did you mean": the nearest of a few known words.

/// Longer words from outside are not compared: no known word is as long.
const LONGEST: usize = 64;

/// The known word that `given` was most probably meant to be, if one is near: a few slips away, or one inside the
/// other. Letter case, `-` and `_` do not count.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if given.is_empty() || given.len() > LONGEST {
        return None;
    }
    let flat = flatten(given);
    known
        .into_iter()
        .filter_map(|word| {
            let candidate = flatten(word);
            let distance = distance(&flat, &candidate);
            let longer = candidate.chars().count().max(flat.chars().count());
            let has_room = candidate.len() >= 3 && flat.len() >= 3;
            let contains = has_room && (flat.contains(&candidate) || candidate.contains(&flat));
            (distance <= (longer / 3).max(1) || contains).then_some((distance, word))
        })
        .min()
        .map(|(_, word)| word)
}

/// `filePath`, `file_path` and `file-path` are one word.
fn flatten(word: &str) -> String {
    word.chars()
        .filter(|character| character.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
#[must_use]
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (row, from) in a.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, to) in b.iter().enumerate() {
            let replaced = last[column] + usize::from(from != to);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            let swapped = row > 0 && column > 0 && a[row - 1] == *to && b[column - 1] == *from;
            if swapped {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, known: &[&str], expected: Option<&str>) {
        assert_eq!(nearest(given, known.iter().copied()), expected, "{given}");
    }

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let fields = ["path", "offset", "limit", "old_string", "new_string"];
        check("pth", &fields, Some("path"));
        check("file_path", &fields, Some("path"));
        check("oldString", &fields, Some("old_string"));
        check("ofset", &fields, Some("offset"));
        check("colour", &fields, None);
        check("", &fields, None);
        check(&"path".repeat(1_000_000), &fields, None);
        let settings = ["max_steps", "max_cost", "mode"];
        check("max_setps", &settings, Some("max_steps"));
        check("mdoe", &settings, Some("mode"));
        check("colour", &settings, None);
    }
}
