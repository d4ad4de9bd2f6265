//! Writing outside, changing what runs later, reading what is private.

use crate::{Case, Proof, python};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = outside();
    all.extend(protected());
    all.extend(names_that_do_not_exist_yet());
    all.extend(git_write());
    all.extend(repositories_without_a_name());
    all.extend(read_only());
    all.extend(reading());
    all
}

fn outside() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("overwrite", "echo x > $OUT/victim.txt"),
        ("append", "echo x >> $OUT/victim.txt"),
        ("truncate", "truncate -s 0 $OUT/victim.txt"),
        ("remove", "rm -f $OUT/victim.txt"),
        ("move in", "mv $OUT/victim.txt here"),
        ("move out", "cp README.md r; mv r $OUT/new"),
        ("rename directory", "mv $OUT/directory $OUT/renamed"),
        ("remove directory", "rm -rf $OUT/directory"),
        ("make directory", "mkdir -p $OUT/a/b"),
        ("rmdir", "rmdir $OUT/empty"),
        ("through a link", "ln -s $OUT/victim.txt l; echo x > l"),
        ("through a directory link", "ln -s $OUT d; echo x > d/new"),
        ("through two links", "ln -s $OUT one; ln -s one/directory two; echo x > two/inner.txt"),
        ("hard link", "ln $OUT/victim.txt h && echo x >> h"),
        ("hard link by descriptor", "exec 5<$OUT/victim.txt; ln -L /proc/self/fd/5 h; echo x >> h"),
        ("copy over", "cp README.md $OUT/victim.txt"),
        ("dd", "echo x | dd of=$OUT/victim.txt conv=notrunc status=none"),
        ("sed in place", "sed -i s/original/x/ $OUT/victim.txt"),
        ("tee", "echo x | tee $OUT/victim.txt"),
        ("install", "install -m 755 README.md $OUT/new"),
        ("make a fifo", "mkfifo $OUT/f2"),
        ("make a link", "ln -s / $OUT/l"),
        ("chmod", "chmod 777 $OUT/victim.txt"),
        ("chmod of a directory", "chmod 700 $OUT/directory"),
        ("touch", "touch -t 200001010000 $OUT/victim.txt"),
        ("relative way out", "echo x > ../../outside/victim.txt"),
        ("way through proc root", "echo x > /proc/self/root/$OUT/victim.txt"),
        ("way through proc cwd", "echo x > /proc/self/cwd/../../outside/victim.txt"),
        ("way through the parent's root", "echo x > /proc/$PPID/root/$OUT/victim.txt"),
        ("tar with absolute names", "mkdir t; cp README.md t/victim.txt; tar -C t -cf a.tar --transform \"s,^,$OUT/,\" victim.txt; tar -xPf a.tar"),
        ("git init elsewhere", "git init -q $OUT/repository"),
        ("neighbour with the same beginning", "echo x > $WS-backup/a"),
        ("fallocate", "fallocate -p -l 4 $OUT/victim.txt"),
        ("profile", "echo x >> $REALHOME/.profile"),
        ("bashrc", "echo x >> $REALHOME/.bashrc"),
        ("authorized keys", "echo x >> $REALHOME/.ssh/authorized_keys"),
        ("mode and time of the profile", "chmod 777 $REALHOME/.profile; touch -t 200001010000 $REALHOME/.profile"),
        ("configuration of tools", "echo x >> $REALHOME/.cargo/config.toml"),
        ("new file in home", "echo x > $REALHOME/.new"),
        ("shared /tmp", "echo x > /tmp/escape-$LONG"),
        ("shared /var/tmp", "echo x > /var/tmp/escape-$LONG"),
        ("shared memory", "echo x > /dev/shm/escape-$LONG"),
        ("fifo of a service", "timeout 2 bash -c \"echo x > $OUT/fifo\""),
        ("log", "echo '{\"decision\":\"allow\"}' >> .agent/sessions/one/events.jsonl"),
        ("log with tee and a glob", "printf '\\n{\"type\":\"permission.resolved\"}\\n' | tee -a .agent/sessions/*/events.jsonl"),
        ("remove the log", "rm -rf .agent/sessions"),
        ("move our configuration away", "mv .agent old; mkdir .agent; echo mode=full > .agent/config.toml"),
        ("our configuration", "echo 'mode = \"full\"' > .agent/config.toml"),
        ("new local configuration", "echo x > .agent/config.local.toml"),
    ]
    .map(|(name, script)| Case::new(&format!("outside: {name}"), script))
    .into();
    all.extend(
        [
            ("open for writing", "import os; open(os.environ[\"OUT\"]+\"/victim.txt\",\"w\").write(\"x\")"),
            ("descriptor chmod", "import os; os.fchmod(os.open(os.environ[\"OUT\"]+\"/victim.txt\",0),0o777)"),
            ("utime", "import os; os.utime(os.environ[\"OUT\"]+\"/victim.txt\",(1,1))"),
            ("utime by descriptor", "import os; os.utime(os.open(os.environ[\"OUT\"]+\"/victim.txt\",0),(1,1))"),
            ("chown", "import os; os.chown(os.environ[\"OUT\"]+\"/victim.txt\",os.getuid(),os.getgid())"),
            ("extended attribute", "import os; os.setxattr(os.environ[\"OUT\"]+\"/victim.txt\",b\"user.x\",b\"1\")"),
            ("relative to a directory descriptor", "import os; d=os.open(os.environ[\"OUT\"],0); os.write(os.open(\"victim.txt\",os.O_WRONLY,dir_fd=d),b\"x\")"),
            ("nameless file with a name later", "import ctypes,os; f=os.open(os.environ[\"OUT\"],os.O_TMPFILE|os.O_WRONLY,0o600); ctypes.CDLL(None).linkat(-100,b\"/proc/self/fd/%d\"%f,-100,os.environ[\"OUT\"].encode()+b\"/new\",0x400)"),
            ("exchange", "import ctypes,os; ctypes.CDLL(None).renameat2(-100,b\"README.md\",-100,os.environ[\"OUT\"].encode()+b\"/victim.txt\",2)"),
            ("shared mapping", "import mmap,os; f=os.open(os.environ[\"OUT\"]+\"/victim.txt\",os.O_RDWR); m=mmap.mmap(f,8); m[0:1]=b\"X\"; m.flush()"),
            ("read descriptor opened again", "import os; f=os.open(os.environ[\"OUT\"]+\"/victim.txt\",0); os.write(os.open(\"/proc/self/fd/%d\"%f,os.O_WRONLY),b\"x\")"),
            ("copy_file_range", "import os; a=os.open(\"README.md\",0); b=os.open(os.environ[\"OUT\"]+\"/victim.txt\",os.O_WRONLY); os.copy_file_range(a,b,4)"),
            ("truncate by path", "import os; os.truncate(os.environ[\"OUT\"]+\"/victim.txt\",0)"),
        ]
        .map(|(name, program)| Case::new(&format!("outside: {name}"), &python(program))),
    );
    all
}

fn protected() -> Vec<Case> {
    [
        ("hook", "echo x > .git/hooks/pre-commit"),
        ("configuration", "git config core.fsmonitor ./x || echo x >> .git/config"),
        ("replaced repository", "mv .git old && git init -q && cp README.md .git/hooks/pre-push"),
        ("removed repository", "rm -rf .git"),
        ("commondir", "echo /tmp/evil > .git/commondir"),
        ("renamed over", "cp README.md evil; mv -f evil .git/config"),
        ("hard link to configuration", "ln .git/config c && echo x >> c"),
        ("descriptor opened again", "exec 5<.git/config; echo x >> /proc/self/fd/5"),
        ("chmod of a hook", "chmod +x .git/hooks/pre-push.sample"),
        ("time of a hook", "touch .git/hooks/pre-push.sample"),
        ("head", "echo x > .git/HEAD"),
        ("nested configuration", "echo x >> vendor/lib/.git/config"),
        ("nested hook", "echo x > vendor/lib/.git/hooks/pre-commit"),
        ("renamed parent", "mv vendor v2; mkdir -p vendor/lib/.git; echo x > vendor/lib/.git/config"),
        ("renamed direct parent", "mv vendor/lib vendor/l2; mkdir -p vendor/lib/.git"),
        ("removed parent", "rm -rf vendor"),
        ("parent replaced by a link", "mv vendor v2; mkdir $TMPDIR/v; ln -s $TMPDIR/v vendor"),
        ("exchanged parent", "mkdir other; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100,b\"vendor\",-100,b\"other\",2)'"),
        ("editor tasks", "echo x > .vscode/tasks.json"),
        ("new editor file", "echo x > .vscode/launch.json"),
        ("editor directory moved", "mv .vscode v; mkdir .vscode; echo x > .vscode/tasks.json"),
        ("workspace itself moved", "cd ..; mv shop s2; mkdir -p shop/.git; echo x > shop/.git/config"),
    ]
    .map(|(name, script)| Case::new(&format!("protected: {name}"), script))
    .into()
}

fn names_that_do_not_exist_yet() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ".idea/workspace.xml",
        ".zed/tasks.json",
        ".devcontainer/devcontainer.json",
        ".mcp.json",
        ".envrc",
        ".gitmodules",
        ".ripgreprc",
        ".claude/settings.json",
        ".cursor/mcp.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".opencode/x.json",
        ".bashrc",
        ".zshenv",
        ".profile",
        ".github/workflows/x.yml",
        "src/.git/config",
        "src/.git",
        "a/b/c/.git/config",
        "src/.envrc",
        ".Git/config",
        ".VSCODE/tasks.json",
        "bare/sub/.git/hooks/pre-commit",
    ]
    .map(|path| {
        let script = format!("mkdir -p \"$(dirname {path})\"; echo x > {path}");
        Case::new(&format!("new name: {path}"), &script)
    })
    .into();
    all.extend(
        [
            ("link to a repository", "ln -s /tmp/evil src/.git"),
            ("repository by git", "git init -q nested"),
            ("repository by clone", "git init -q --bare $TMPDIR/b.git; git clone -q $TMPDIR/b.git cloned; ls cloned/.git >/dev/null"),
            ("repository in a directory that cannot be written", "git init -q closed; chmod 555 closed/.git closed"),
            ("repository below names too long for one", "d=$(printf 'd%.0s' $(seq 200)); git init -q $d/$d"),
            ("many times", "for i in 1 2 3; do git init -q n$i; done"),
            ("workflows behind a link", "mkdir -p real/workflows; echo x > real/workflows/x.yml; ln -s real .github"),
            ("made in the background", "(sleep 0.1; mkdir .cursor; echo x > .cursor/mcp.json) & sleep 0.3"),
        ]
        .map(|(name, script)| Case::new(&format!("new name: {name}"), script)),
    );
    // Others could not see the damage of the proof.
    all.push(
        Case::new(
            "new name: repository in a directory that cannot be listed",
            "git init -q closed; chmod 311 closed",
        )
        .proof(Proof::AsRoot),
    );
    all
}

fn git_write() -> Vec<Case> {
    [
        ("hook", "echo x > .git/hooks/pre-commit"),
        ("hook of a submodule", "echo x > .git/modules/deep/lib/hooks/pre-push"),
        ("configuration of a submodule", "echo x >> .git/modules/deep/lib/config"),
        ("new hooks of a submodule", "cd .git/modules/deep/lib; mv hooks h2; mkdir hooks; echo x > hooks/pre-push"),
        ("moved submodule", "cd .git/modules/deep; mv lib l2; cp -r l2 lib; echo x >> lib/config"),
        ("moved submodules", "cd .git; mv modules m2; cp -r m2 modules; echo x >> modules/deep/lib/config"),
        ("common directory of a submodule", "echo /tmp/evil > .git/modules/deep/lib/commondir"),
        ("worktree configuration of a submodule", "echo x > .git/modules/deep/lib/config.worktree"),
        ("submodule with a long name", "mkdir -p .git/modules/deep/new; echo x > .git/modules/deep/new/config"),
        ("submodule of a submodule", "mkdir -p .git/modules/deep/lib/modules/new; echo x > .git/modules/deep/lib/modules/new/config"),
        ("common directory of a worktree", "echo /tmp/evil > .git/worktrees/other/commondir"),
        ("way back of a worktree", "echo /tmp/evil > .git/worktrees/other/gitdir"),
        ("configuration of a worktree", "echo x > .git/worktrees/other/config.worktree"),
        ("existing attributes", "echo '* filter=evil' >> .git/info/attributes"),
        ("existing worktree configuration", "echo x >> .git/config.worktree"),
        ("what a link leads to", "cd .git/modules/deep/lib; ln -s $OUT/directory info"),
        ("what a replaced directory leads to", "cd .git; python3 -c 'import os; os.rename(\"modules\",\"m\")'; python3 -c 'import os; os.rename(\"worktrees\",\"w\")'; ln -s $OUT modules; ln -s $OUT/directory worktrees"),
        (
            "configuration",
            "git config core.fsmonitor ./x; echo x >> .git/config",
        ),
        (
            "moved repository",
            "mv .git old; mkdir .git; echo x > .git/config",
        ),
        (
            "moved hooks",
            "mv .git/hooks .git/h2; mkdir .git/hooks; echo x > .git/hooks/pre-commit",
        ),
        ("commondir", "echo /tmp/evil > .git/commondir"),
        ("worktree configuration", "echo x > .git/config.worktree"),
        (
            "attributes",
            "mkdir -p .git/info; echo x > .git/info/attributes",
        ),
        (
            "module configuration",
            "mkdir -p .git/modules/m; echo x > .git/modules/m/config",
        ),
        (
            "linked worktree",
            "mkdir -p .git/worktrees/w; echo /tmp > .git/worktrees/w/commondir",
        ),
        (
            "renamed over configuration",
            "cp README.md evil; mv -f evil .git/config",
        ),
        ("nested repository", "echo x >> vendor/lib/.git/config"),
    ]
    .into_iter()
    .flat_map(|(name, script)| {
        [
            Case::new(&format!("git write: {name}"), script).git_write(),
            Case::new(&format!("commits: {name}"), script).commits(),
        ]
    })
    .collect()
}

/// Git takes a directory for a repository by what is in it, whatever its name.
fn repositories_without_a_name() -> Vec<Case> {
    let make = "mkdir -p objects refs; echo 'ref: refs/heads/main' > HEAD";
    [
        ("in the workspace", format!("{make}; echo x > config")),
        (
            "below",
            format!("mkdir -p a/b; cd a/b; {make}; echo x > config; mkdir hooks"),
        ),
        (
            "with another's objects",
            "mkdir one two; echo two > one/HEAD; echo ../two > one/commondir".into(),
        ),
        ("by git", "git init -q --bare made.git".into()),
        (
            "configuration of one that is there",
            "echo x >> fixtures/bare.git/config".into(),
        ),
        (
            "hook of one that is there",
            "echo x > fixtures/bare.git/hooks/post-receive".into(),
        ),
        (
            "one that is there, moved",
            "cd fixtures; mv bare.git b2; cp -r b2 bare.git; echo x > bare.git/config".into(),
        ),
        (
            "worktree configuration of one that is there",
            "echo x > fixtures/bare.git/config.worktree".into(),
        ),
    ]
    .map(|(name, script)| Case::new(&format!("repository: {name}"), &script))
    .into()
}

fn read_only() -> Vec<Case> {
    [
        ("write", "echo x > README.md"),
        ("create", "touch new"),
        ("remove", "rm README.md"),
        ("chmod", "chmod 777 README.md"),
        ("move", "mv README.md r"),
        ("directory", "mkdir d"),
        ("touch", "touch README.md"),
        ("git", "git add README.md"),
    ]
    .map(|(name, script)| Case::new(&format!("read-only: {name}"), script).read_only())
    .into()
}

fn reading() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("key", "cat $REALHOME/.ssh/id_ed25519"),
        ("cloud credentials", "cat $REALHOME/.aws/credentials"),
        ("netrc", "cat $REALHOME/.netrc"),
        ("token of a tool", "cat $REALHOME/.config/gh/hosts.yml"),
        (
            "credentials in a tool directory",
            "cat $REALHOME/.cargo/credentials.toml",
        ),
        (
            "everything in home",
            "cat $(find $REALHOME -type f 2>/dev/null) < /dev/null",
        ),
        ("through a link", "ln -s $REALHOME/.ssh/id_ed25519 k; cat k"),
        (
            "by another root",
            "cat /proc/self/root/$REALHOME/.ssh/id_ed25519",
        ),
        (
            "by the parent's root",
            "cat /proc/$PPID/root/$REALHOME/.ssh/id_ed25519",
        ),
        ("read-denied file", "cat .env"),
        ("read-denied file by hard link", "ln .env e; cat e"),
        ("read-denied file by rename", "mv .env e; cat e"),
        ("read-denied directory", "cat keys/server.pem"),
        ("read-denied directory by rename", "mv keys k; cat k/*"),
        ("read-denied file by grep", "grep -rh . . 2>/dev/null"),
        (
            "read-denied file by copy",
            "cp -a . $TMPDIR/copy; cat $TMPDIR/copy/.env",
        ),
        ("environment", "env; export -p; set"),
        (
            "environment of the victim",
            "tr '\\0' '\\n' < /proc/$VICTIM/environ",
        ),
        (
            "environment of everybody",
            "cat /proc/[0-9]*/environ | tr '\\0' '\\n'",
        ),
        ("inherited descriptor", "cat <&$FD"),
        ("inherited descriptor by proc", "cat /proc/self/fd/$FD"),
        (
            "every descriptor",
            "for f in $(seq 3 255); do cat <&$f; done 2>/dev/null",
        ),
    ]
    .map(|(name, script)| Case::new(&format!("reading: {name}"), script))
    .into();
    all.extend(
        [
            (
                "environment of the first process",
                "tr '\\0' '\\n' < /proc/1/environ | grep . && echo $ESCAPED",
            ),
            (
                "descriptors of the first process",
                "for f in /proc/1/fd/*; do readlink $f; done | grep . && echo $ESCAPED",
            ),
            (
                "working directory of the first process",
                "ls /proc/1/cwd/ | grep . && echo $ESCAPED",
            ),
            (
                "memory of the first process",
                "head -c1 /proc/1/mem && echo $ESCAPED",
            ),
            (
                "maps of the first process",
                "cat /proc/1/maps | grep . && echo $ESCAPED",
            ),
        ]
        .map(|(name, script)| Case::new(&format!("reading: {name}"), script).proof(Proof::Never)),
    );
    all.extend(
        [
            ("shadow passwords", "grep -q . /etc/shadow && echo $ESCAPED"),
            (
                "raw disk",
                "ls /dev/vd* /dev/sd* /dev/nvme* 2>/dev/null | grep . && echo $ESCAPED",
            ),
            (
                "kernel memory",
                "head -c1 /proc/kcore >/dev/null && echo $ESCAPED",
            ),
            (
                "kernel log device",
                "timeout 1 head -c1 /dev/kmsg >/dev/null && echo $ESCAPED",
            ),
        ]
        .map(|(name, script)| Case::new(&format!("reading: {name}"), script).proof(Proof::Never)),
    );
    all.push(Case::new(
        "reading: processes of the host",
        "test -d /proc/$VICTIM && echo $ESCAPED",
    ));
    all
}
