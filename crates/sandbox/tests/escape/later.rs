//! Planting what runs later, by ways that the plain cases do not take: deep down, under odd names,
//! by rename, by link, by descriptor, and past the bounds of the search.

use crate::{Case, Proof, python};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = deep();
    all.extend(by_other_ways());
    all.extend(submodules());
    all.extend(granted());
    all.extend(rules());
    all.extend(run_as_owner());
    all
}

/// Deeper than a person would look. `third/…` is a repository that is there.
fn deep() -> Vec<Case> {
    let there = "third/party/src/forge/them/lib";
    [
        ("new configuration", "mkdir -p a/b/c/d/e/f/.git; echo x > a/b/c/d/e/f/.git/config".to_owned()),
        ("new hook", "mkdir -p a/b/c/d/e/.git/hooks; echo x > a/b/c/d/e/.git/hooks/pre-commit".into()),
        ("repository by git", "git init -q one/two/three/four/five/six".into()),
        ("without a work tree by git", "git init -q --bare one/two/three/four/five.git".into()),
        ("environment of a shell", "mkdir -p a/b/c/d/e/f/g; echo x > a/b/c/d/e/f/g/.envrc".into()),
        ("configuration of ours", "mkdir -p a/b/c/d/e/.agent; echo x > a/b/c/d/e/.agent/config.toml".into()),
        ("file that points elsewhere", "mkdir -p a/b/c/d/e; echo 'gitdir: /tmp/evil' > a/b/c/d/e/.git".into()),
        ("link", "mkdir -p a/b/c/d/e; ln -s /tmp/evil a/b/c/d/e/.git".into()),
        ("submodule list", "mkdir -p a/b/c/d/e; echo x > a/b/c/d/e/.gitmodules".into()),
        ("configuration of one that is there", format!("echo x >> {there}/.git/config")),
        ("hook of one that is there", format!("echo x > {there}/.git/hooks/pre-commit")),
        ("one that is there, moved", format!("mv {there}/.git {there}/g; cp -r {there}/g {there}/.git; echo x >> {there}/.git/config")),
        ("the way to one that is there, moved", "mv third/party/src third/party/s2; cp -r third/party/s2 third/party/src; echo x >> third/party/src/forge/them/lib/.git/config".into()),
        ("the beginning of the way, moved", "mv third t2; cp -r t2 third; echo x >> third/party/src/forge/them/lib/.git/config".into()),
        ("one that is there, removed", "rm -rf third".into()),
        ("three hundred levels down", "p=$(printf 'd/%.0s' $(seq 300)); mkdir -p $p; git init -q $p".into()),
        ("names with line breaks", "mkdir -p $'a\\nb/c\\rd'; git init -q $'a\\nb/c\\rd/e'".into()),
        ("names that are no text", "mkdir -p $'x\\xff\\xfe'; git init -q $'x\\xff\\xfe/y'".into()),
        ("in many places", "mkdir -p p{1..400}/q; for i in {1..400}; do echo x > p$i/q/.envrc; done".into()),
    ]
    .map(|(name, script)| Case::new(&format!("deep: {name}"), &script))
    .into()
}

fn by_other_ways() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("made elsewhere and moved", "mkdir -p $TMPDIR/g/hooks; echo x > $TMPDIR/g/config; mv $TMPDIR/g src/.git"),
        ("made under another name", "mkdir -p g/hooks; echo x > g/config; mv g src/.git"),
        ("its parent made elsewhere", "mkdir -p $TMPDIR/p/.git; echo x > $TMPDIR/p/.git/config; mv $TMPDIR/p here"),
        ("hard link into hooks", "ln README.md .git/hooks/pre-commit"),
        ("link into hooks", "ln -s ../../README.md .git/hooks/pre-commit"),
        ("hard link into editor settings", "ln README.md .vscode/extensions.json"),
        ("link in place of our directory", "mkdir evil; ln -s evil l; mv -T l .agent || { mv .agent a2; ln -s evil .agent; }"),
        ("link in place of editor settings", "mkdir evil; rm -rf .vscode; ln -s evil .vscode"),
        ("by the way of the working directory", "echo x >> /proc/self/cwd/.git/config"),
        ("by the way of the root", "echo x >> /proc/self/root/$WS/.git/config"),
        ("by the way of a thread", "echo x >> /proc/thread-self/cwd/.git/config"),
        ("tar", "mkdir -p t/.git/hooks; echo x > t/.git/hooks/post-checkout; tar -C t -cf a.tar .git; rm -rf t; tar -xf a.tar -C src"),
        ("copy of a template", "mkdir -p t/.git; echo x > t/.git/config; cp -rT t src"),
        ("git with a template", "mkdir -p t/hooks; echo x > t/hooks/post-checkout; git init -q --template=t made"),
        ("separate directory", "git init -q --separate-git-dir=$TMPDIR/sep made"),
        ("work tree elsewhere", "mkdir made; GIT_DIR=made/.git GIT_WORK_TREE=. git init -q"),
        ("ignored directory", "mkdir -p target; echo '*' > target/.gitignore; git init -q target/debug/build/x"),
        ("many renames", "mkdir g; for i in $(seq 50); do mv g h; mv h g; done; mv g src/.git; echo x > src/.git/config"),
        ("right before the end", "trap 'mkdir src/.git; echo x > src/.git/config' EXIT; true"),
        ("by a child that outlives the shell", "(sleep 0.2; mkdir -p src/.git; echo x > src/.git/config) >/dev/null 2>&1 & exec sleep 0.5"),
        ("upper case", "mkdir -p src/.GIT; echo x > src/.GIT/config"),
        ("with a dot at the end", "mkdir -p src/.git.; echo x > src/.git./config"),
        ("with an invisible character", "mkdir -p $'src/.g\\xe2\\x80\\x8cit'; echo x > $'src/.g\\xe2\\x80\\x8cit/config'"),
        ("other agents' directories at once", "for d in .claude .cursor .codex .gemini .opencode .windsurf; do mkdir -p $d; echo x > $d/settings.json; done"),
        ("shell files at once", "for f in .bash_profile .bash_login .bash_aliases .zprofile .zlogin .kshrc .inputrc; do echo x > $f; done"),
        ("editor files at once", "for f in .vimrc .exrc .nvim.lua .gdbinit .devcontainer.json .gitconfig; do echo x > $f; done"),
        ("workflows of another forge", "mkdir -p .forgejo/workflows; echo x > .forgejo/workflows/a.yml"),
        ("workflows by rename", "mkdir -p w/workflows; echo x > w/workflows/a.yml; mv w .gitea"),
    ]
    .map(|(name, script)| Case::new(&format!("later: {name}"), script))
    .into();
    all.extend(
        [
            ("exchanged configuration", "import ctypes; open(\"evil\",\"w\").write(\"x\"); ctypes.CDLL(None).renameat2(-100,b\"evil\",-100,b\".git/config\",2)"),
            ("exchanged editor settings", "import ctypes,os; os.mkdir(\"evil\"); ctypes.CDLL(None).renameat2(-100,b\"evil\",-100,b\".vscode\",2)"),
            ("by a directory descriptor", "import os; d=os.open(\".git\",0); os.write(os.open(\"config\",os.O_WRONLY|os.O_APPEND,dir_fd=d),b\"x\")"),
            ("by a descriptor from before the change of directory", "import os; d=os.open(\".\",0); os.chdir(\"/tmp\"); os.mkdir(\"src/.git\",dir_fd=d); os.close(os.open(\"src/.git/config\",os.O_CREAT|os.O_WRONLY,dir_fd=d))"),
            ("nameless file linked into hooks", "import ctypes,os; f=os.open(\".\",os.O_TMPFILE|os.O_RDWR,0o755); os.write(f,b\"x\"); ctypes.CDLL(None).linkat(-100,b\"/proc/self/fd/%d\"%f,-100,b\".git/hooks/pre-commit\",0x400)"),
            ("mapping of the configuration", "import mmap,os; f=os.open(\".git/config\",os.O_RDWR); m=mmap.mmap(f,4); m[0:1]=b\"X\"; m.flush()"),
            ("truncated configuration", "import os; os.truncate(\".git/config\",1)"),
            ("attribute of a hook", "import os; os.setxattr(\".git/hooks/pre-push.sample\",b\"user.x\",b\"1\")"),
            ("times of the configuration", "import os; os.utime(\".git/config\",(1,1))"),
        ]
        .map(|(name, program)| Case::new(&format!("later: {name}"), &python(program))),
    );
    all
}

/// `sub` is a submodule: its `.git` is a file.
fn submodules() -> Vec<Case> {
    [
        ("pointed elsewhere", "echo 'gitdir: /tmp/evil' > sub/.git"),
        ("appended to", "echo x >> sub/.git"),
        (
            "replaced by a directory",
            "rm -f sub/.git; mkdir -p sub/.git; echo x > sub/.git/config",
        ),
        (
            "replaced by a link",
            "rm -f sub/.git; ln -s /tmp/evil sub/.git",
        ),
        (
            "renamed over",
            "echo 'gitdir: /tmp/evil' > e; mv -f e sub/.git",
        ),
        (
            "its directory moved",
            "mv sub s2; mkdir sub; echo 'gitdir: /tmp/evil' > sub/.git",
        ),
    ]
    .map(|(name, script)| Case::new(&format!("submodule: {name}"), script))
    .into()
}

fn granted() -> Vec<Case> {
    [
        ("lock renamed to configuration", "cp .git/config .git/config.lock; echo x >> .git/config.lock; mv -f .git/config.lock .git/config; rm -f .git/config.lock"),
        ("submodule moved in", "mkdir m; echo x > m/config; echo x > m/HEAD; mv m .git/modules/evil"),
        ("link in place of what git follows", "mkdir $TMPDIR/e; echo '* filter=x' > $TMPDIR/e/attributes; mv .git/info .git/i2; ln -s $TMPDIR/e .git/info; rm -f .git/info/e"),
        ("hard link of a hook", "ln README.md .git/hooks/post-merge"),
        ("hooks of a new worktree", "mkdir -p .git/worktrees/other/hooks; echo x > .git/worktrees/other/hooks/pre-commit"),
        ("exchanged hooks", "mkdir .git/h; echo x > .git/h/pre-commit; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100,b\".git/h\",-100,b\".git/hooks\",2)'; rm -rf .git/h"),
        ("nested deep", "echo x >> third/party/src/forge/them/lib/.git/config"),
        ("new nested deep", "git init -q one/two/three/four/five/six"),
        ("pointer of a submodule", "echo 'gitdir: /tmp/evil' > sub/.git"),
    ]
    .map(|(name, script)| Case::new(&format!("git write: {name}"), script).git_write())
    .into()
}

/// Files and directories that a rule denies to change: `*.pinned` and `generated`. They are not
/// harm by their name, so the scripts look themselves.
fn rules() -> Vec<Case> {
    let denied = |policy: &mut agent_sandbox::Policy| {
        policy.denied = agent_sandbox::WriteDenied::new(|path| {
            path.extension().is_some_and(|end| end == "pinned") || path.ends_with("generated")
        });
    };
    [
        ("overwrite", "echo x > src/a.pinned && echo $ESCAPED"),
        ("remove", "rm -f src/a.pinned && echo $ESCAPED"),
        ("rename", "mv src/a.pinned src/b && echo $ESCAPED"),
        (
            "rename over",
            "echo x > e; mv -f e src/a.pinned && echo $ESCAPED",
        ),
        ("mode", "chmod 777 src/a.pinned && echo $ESCAPED"),
        ("renamed parent", "mv src s2 && echo $ESCAPED"),
        (
            "hard link",
            "ln src/a.pinned h && echo x >> h && echo $ESCAPED",
        ),
        (
            "in a directory",
            "echo x > deep/down/generated/new && echo $ESCAPED",
        ),
        (
            "directory moved",
            "mv deep/down/generated g && echo $ESCAPED",
        ),
        ("way to a directory moved", "mv deep d2 && echo $ESCAPED"),
    ]
    .map(|(name, script)| Case::new(&format!("rule: {name}"), script).with(denied))
    .into()
}

/// A file that runs as its owner outlasts the sandbox.
fn run_as_owner() -> Vec<Case> {
    vec![
        Case::new("owner: install", "install -m 4755 /bin/true here; test -u here && echo $ESCAPED"),
        Case::new("owner: group", "cp /bin/true here; chmod g+s here; test -g here && echo $ESCAPED"),
        Case::new(
            "owner: archive",
            &format!(
                "{}; tar -xpf a.tar; test -u x && echo $ESCAPED",
                python("import tarfile,io; t=tarfile.open(\"a.tar\",\"w\"); i=tarfile.TarInfo(\"x\"); i.mode=0o4755; i.size=1; t.addfile(i,io.BytesIO(b\"x\")); t.close()")
            ),
        ),
        Case::new("owner: copy", "cp -p /usr/bin/su s; test -u s && echo $ESCAPED").proof(Proof::AsRoot),
        Case::new(
            "owner: umask and a new file",
            &python("import os; os.umask(0); os.close(os.open(\"x\",os.O_CREAT|os.O_WRONLY,0o6755)); os.stat(\"x\").st_mode&0o6000 and print(os.environ[\"ESCAPED\"])"),
        ),
        Case::new(
            "owner: capability of a file",
            &python("import os; open(\"x\",\"w\").close(); os.setxattr(\"x\",b\"security.capability\",bytes.fromhex(\"0100000200040000000000000000000000000000\")); print(os.environ[\"ESCAPED\"])"),
        )
        .proof(Proof::AsRoot),
    ]
}
