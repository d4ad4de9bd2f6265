//! Harming other processes, outliving the call, using everything up.

use crate::{Case, Proof, few_processes, python, small, some_hundred_processes};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = others();
    all.extend(survivors());
    all.extend(bombs());
    all
}

fn others() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("kill", "kill -9 $VICTIM; sleep 0.2"),
        ("stop", "kill -STOP $VICTIM; sleep 0.3"),
        ("renice", "renice -n 19 -p $VICTIM"),
        ("limits", "prlimit --pid $VICTIM --nofile=10:10"),
        (
            "out-of-memory score",
            "echo 1000 > /proc/$VICTIM/oom_score_adj",
        ),
    ]
    .map(|(name, script)| Case::new(&format!("others: {name}"), script))
    .into();
    all.extend(
        [
            ("pid descriptor", "import os,signal; signal.pidfd_send_signal(os.pidfd_open(int(os.environ[\"VICTIM\"])),9)"),
            ("queued signal", "import ctypes,os; ctypes.CDLL(None).sigqueue(int(os.environ[\"VICTIM\"]),9,0)"),
            ("resource limits", "import os,resource; resource.prlimit(int(os.environ[\"VICTIM\"]),resource.RLIMIT_NOFILE,(9,9))"),
        ]
        .map(|(name, program)| Case::new(&format!("others: {name}"), &format!("{}; sleep 0.2", python(program)))),
    );
    all.extend(
        [
            ("kill the agent", "kill -9 $AGENT"),
            ("kill the parent", "kill -9 $PPID; sleep 0.2"),
            ("kill everybody", "kill -9 -1"),
            ("kill by group", "kill -9 -$AGENT"),
            ("stop the first process", "kill -STOP 1; sleep 0.1"),
        ]
        .map(|(name, script)| Case::new(&format!("others: {name}"), script).proof(Proof::Never)),
    );
    all
}

fn survivors() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("background", "sleep $LONG & sleep 0.1"),
        ("session of its own", "setsid sleep $LONG & sleep 0.1"),
        (
            "no hang-up",
            "nohup sleep $LONG >/dev/null 2>&1 & sleep 0.1",
        ),
        (
            "double fork",
            "(sleep $LONG &) ; (setsid sleep $LONG &); sleep 0.1",
        ),
        ("disowned", "sleep $LONG & disown -a; sleep 0.1"),
        (
            "deaf to TERM",
            "(trap '' TERM HUP INT; exec sleep $LONG) & sleep 0.1",
        ),
        (
            "holding the output open",
            "(trap '' TERM; exec sleep $LONG) & echo started; sleep 0.2",
        ),
        (
            "many",
            "for i in $(seq 40); do setsid sleep $LONG & done; sleep 0.2",
        ),
        ("stopped", "sleep $LONG & sleep 0.1; kill -STOP $!"),
    ]
    .map(|(name, script)| Case::new(&format!("survivors: {name}"), script))
    .into();
    all.push(Case::new(
        "survivors: daemon",
        &python("import os\nif os.fork()==0:\n os.setsid()\n if os.fork()==0:\n  os.closerange(0,9); os.execvp(\"sleep\",[\"sleep\",os.environ[\"LONG\"]])\n os._exit(0)\nimport time; time.sleep(0.2)"),
    ));
    all
}

/// The scripts print the mark when they could take more than they were given.
fn bombs() -> Vec<Case> {
    vec![
        // Counted without a fork, which may be refused by then.
        Case::new(
            "bombs: fork",
            "f() { f | f & }; f; while test $SECONDS -lt 2; do set -- /proc/[0-9]*; test $# -gt 310 && echo $ESCAPED && exit; done",
        )
        .with(few_processes)
        .proof(Proof::Never),
        Case::new(
            "bombs: many processes",
            // Not by bash, which waits and tries again.
            &python("import os,time\nmade=0\ntry:\n for i in range(600):\n  if os.fork()==0: time.sleep(20); os._exit(0)\n  made+=1\nexcept OSError: pass\nif made>330: print(os.environ[\"ESCAPED\"])"),
        )
        .with(some_hundred_processes)
        .proof(Proof::Never),
        Case::new(
            "bombs: threads",
            &python("import threading,time,os\ntry:\n for i in range(200): threading.Thread(target=time.sleep,args=(1,),daemon=True).start()\n print(os.environ[\"ESCAPED\"])\nexcept RuntimeError: pass"),
        )
        .with(small),
        Case::new(
            "bombs: memory of one process",
            &python("import os\nx=bytearray(400<<20)\nfor i in range(0,len(x),4096): x[i]=1\nprint(os.environ[\"ESCAPED\"])"),
        )
        .with(small),
        Case::new(
            "bombs: memory of many processes",
            &format!("for i in 1 2 3 4 5; do {} & done; wait; echo $ESCAPED", python("import time; x=b\"1\"*(90<<20); time.sleep(2)")),
        )
        .with(small),
        Case::new("bombs: file", "head -c 3000000 /dev/zero > big; test $(stat -c %s big) -gt 2000000 && echo $ESCAPED").with(small),
        Case::new(
            "bombs: open files",
            &python("import os\ntry:\n for i in range(200): os.dup(1)\n print(os.environ[\"ESCAPED\"])\nexcept OSError: pass"),
        )
        .with(small),
        Case::new("bombs: limits raised again", "ulimit -n 4000 && ulimit -f unlimited && echo $ESCAPED").with(small).proof(Proof::Never),
        Case::new("bombs: core file", "ulimit -c unlimited && echo $ESCAPED").proof(Proof::Never),
        Case::new("bombs: output", "head -c 300000000 /dev/zero").proof(Proof::Never),
        Case::new("bombs: shared memory", "head -c 1200000000 /dev/zero > /dev/shm/escape-$LONG && echo $ESCAPED").proof(Proof::Never),
        Case::new("bombs: process limit raised", "echo 99999 > /proc/sys/kernel/pid_max && echo $ESCAPED").proof(Proof::Never),
    ]
}
