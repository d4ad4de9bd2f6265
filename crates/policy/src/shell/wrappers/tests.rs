use super::*;

fn check(command: &str, expected: &str) {
    let words: Vec<Word> = command.split(' ').map(Word::literal).collect();
    let shown = unwrap(&words).map_or("-".to_owned(), |unwrapped| {
        unwrapped
            .inner
            .iter()
            .map(|inner| match inner {
                Inner::Words(words) => words
                    .iter()
                    .map(|word| word.sketch().to_owned())
                    .collect::<Vec<_>>()
                    .join(" "),
                Inner::Script(script) => format!("`{script}`"),
                Inner::Opaque(_) => "?".to_owned(),
            })
            .collect::<Vec<_>>()
            .join(" / ")
    });
    assert_eq!(shown, expected, "{command}");
}

#[test]
fn the_inner_command_is_found() {
    check("ls -la", "-");
    check("sudo -u root -E A=1 rm -rf x", "rm -rf x");
    check("sudo -uroot rm x", "rm x");
    check("/usr/bin/env -u B A=1 terraform apply", "terraform apply");
    check("env -i -- ls", "ls");
    check("timeout -s KILL 60 npm test", "npm test");
    check("nice -n 5 ls", "ls");
    check("nice -5 ls", "ls");
    check("stdbuf -oL ls", "ls");
    check("xargs -0 -n1 rm", "rm");
    check("find . -name x -exec rm {} ;", "rm {}");
    check("bash -lc ls", "`ls`");
    check("bash -c -e ls", "`ls`");
    check("bash deploy.sh", "?");
    check("eval terraform apply", "`terraform apply`");
    check("poetry run rm x", "rm x");
    check("git bisect run make", "make");
    check("python3 -c os.system(\"rm\")", "`rm`");
    check(
        "python3 -c subprocess.run([\"rm\",\"-rf\",\"x\"])",
        "`rm -rf x`",
    );
    check("python3 -c print(\"rm\")", "-");
    check("env -Sls", "`ls`");
    check("git -c alias.x=push x", "? / `git push`");
    check("git -C a -c alias.x=!ls x", "? / `ls`");
    check("git log -c", "-");
    check("timeout --weird 60 ls", "60 ls / ls");
}
