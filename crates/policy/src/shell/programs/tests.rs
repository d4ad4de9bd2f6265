use super::table::{GRANTED, TABLE, read_table};
use super::*;

#[test]
fn the_table_can_be_read() {
    let table = read_table(TABLE).unwrap();
    assert!(table.len() > 90, "{}", table.len());
    for program in table.values() {
        if let Some(other) = &program.same_as {
            assert!(table[other].same_as.is_none(), "{other}");
        }
    }
}

#[test]
fn the_table_of_what_is_granted_can_be_read() {
    let table = read_table(GRANTED).unwrap();
    assert_eq!(table.keys().collect::<Vec<_>>(), ["gh", "git"]);
}

fn check(command: &str, expected: bool) {
    let words: Vec<Word> = command.split(' ').map(Word::literal).collect();
    let judged = judge(&words, &Directories::Unknown);
    assert_eq!(judged.is_ok(), expected, "{command}: {judged:?}");
}

#[test]
fn flags_and_operands_decide() {
    for command in [
        "ls -lah crates",
        "head -30 a.rs",
        "head -n 5 a",
        "tail -n50 a",
        "git status -sb",
        "git branch -vv",
        "git branch",
        "git branch --list x*",
        "git log -n 5 --format=%s",
        "git -C sub log",
        "git stash list",
        "git reflog",
        "git show HEAD~2 -- a",
        "git cat-file -p HEAD",
        "find . -name x -o -type f",
        "sort -k 2 a",
        "uniq -c a",
        "grep -rn x a b",
        "grep -e x a",
        "python3 -V",
        "npm ls --depth=0",
        "cargo metadata --no-deps --format-version 1",
        "date +%s",
    ] {
        check(command, true);
    }
    for command in [
        "git branch x",
        "git branch -D x",
        "git branch -m x",
        "git tag v1",
        "git stash",
        "git stash pop",
        "git reflog expire",
        "git -c a=b status",
        "git remote add x y",
        "git config a b",
        "git",
        "find . -delete",
        "find . -exec rm {} ;",
        "find . -fprint x",
        "sort -o a b",
        "sort --output=a b",
        "uniq a b",
        "xxd -r a",
        "xxd a b",
        "rg --pre x y",
        "python3 x.py",
        "python3",
        "npm test",
        "npm",
        "date -s x",
        "date 12312359",
        "node",
        "tail -f a",
    ] {
        check(command, false);
    }
}
