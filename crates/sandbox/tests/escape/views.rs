//! Kernel interfaces: `/proc`, `/sys`, `/dev`, sockets of every kind, memory that is not mapped, attributes of files
//! outside.

use agent_sandbox::{Limits, Policy};

use crate::{Case, Proof, host_network, python};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = settings();
    all.extend(attributes());
    all.extend(sockets());
    all.extend(memory());
    all.extend(descriptors());
    all
}

fn settings() -> Vec<Case> {
    [
        ("any kernel setting", "find /proc/sys /sys -type f -writable 2>/dev/null | grep -q . && echo $ESCAPED", Proof::AsRoot),
        ("setting by descriptor", "exec 5<>/proc/sys/kernel/domainname && echo $ESCAPED", Proof::AsRoot),
        ("other programs' format", "ls /proc/sys/fs/binfmt_misc/register 2>/dev/null && echo x > /proc/sys/fs/binfmt_misc/register && echo $ESCAPED", Proof::Never),
        ("memory of the machine", "echo 1 > /proc/sys/vm/drop_caches && echo $ESCAPED", Proof::Never),
        ("network of the machine", "echo 1 > /proc/sys/net/ipv4/ip_forward && echo $ESCAPED", Proof::Never),
        ("last number of a process", "echo 1 > /proc/sys/kernel/ns_last_pid && echo $ESCAPED", Proof::Never),
        ("own place when memory runs out", "echo -500 > /proc/self/oom_score_adj && echo $ESCAPED", Proof::Never),
        ("own audit number", "echo 0 > /proc/self/loginuid && echo $ESCAPED", Proof::Never),
        ("own groups", "echo allow > /proc/self/setgroups && echo $ESCAPED", Proof::Never),
        ("own clock", "echo 'monotonic 1 0' > /proc/self/timens_offsets && echo $ESCAPED", Proof::Never),
        ("new device in /dev", "mknod /dev/x c 1 3 && echo $ESCAPED; mkdir /dev/y && echo $ESCAPED", Proof::Never),
        ("devices of the machine", "for d in mem port kmem kvm fuse net/tun vhost-vsock vhost-net userfaultfd loop-control uinput vfio/vfio kmsg console tty0 rtc0 sda vda; do test -e /dev/$d && echo $ESCAPED; done", Proof::AsRoot),
        ("debugging of the kernel", "ls /sys/kernel/debug/* /sys/kernel/tracing/* 2>/dev/null | grep -q . && echo $ESCAPED", Proof::Never),
        ("power of the machine", "echo disk > /sys/power/state && echo $ESCAPED", Proof::Never),
        ("keys of the machine", "cat /etc/ssh/*key /etc/gshadow /etc/sudoers 2>/dev/null | grep -q . && echo $ESCAPED", Proof::Never),
        ("stack of the first process", "cat /proc/1/stack /proc/1/syscall /proc/1/auxv 2>/dev/null | tr -d '\\0' | grep -q . && echo $ESCAPED", Proof::Never),
        ("threads of the first process", "cat /proc/1/task/1/environ /proc/1/task/1/maps 2>/dev/null | grep -q . && echo $ESCAPED", Proof::Never),
        ("root of the first process", "ls /proc/1/root/ | grep -q . && echo $ESCAPED", Proof::Never),
        ("map of the first process's files", "for d in map_files fdinfo; do ls /proc/1/$d 2>/dev/null; done | grep -q . && echo $ESCAPED", Proof::Never),
        ("name of the machine", "echo x > /proc/sys/kernel/hostname && echo $ESCAPED", Proof::Never),
        ("real-time priority", "chrt -f 10 true && echo $ESCAPED", Proof::AsRoot),
        ("priority of the disk", "ionice -c 1 -n 0 true && echo $ESCAPED", Proof::AsRoot),
        ("root by set-user-id", "cp /bin/true t; su root -c true </dev/null && echo $ESCAPED", Proof::AsRoot),
        ("terminal of its own as console", "python3 -c 'import fcntl,os,pty; m,s=pty.openpty(); fcntl.ioctl(s,0x541d); print(os.environ[\"ESCAPED\"])'", Proof::Never),
        ("typing into its own terminal", "python3 -c 'import fcntl,os,pty; m,s=pty.openpty(); os.setsid(); fcntl.ioctl(s,0x540e,0); fcntl.ioctl(s,0x5412,b\"x\"); print(os.environ[\"ESCAPED\"])'", Proof::AsRoot),
    ]
    .map(|(name, script, proof)| Case::new(&format!("view: {name}"), script).proof(proof))
    .into()
}

/// Visible in the time of the last change, which no program can set.
fn attributes() -> Vec<Case> {
    let victim = "import fcntl,os,struct; f=os.open(os.environ[\"OUT\"]+\"/victim.txt\",0);";
    [
        ("flags of a file", format!("{victim} fcntl.ioctl(f,0x40086602,struct.pack(\"l\",0x40))")),
        ("access list", format!("{victim} os.setxattr(f,b\"system.posix_acl_access\",struct.pack(\"<IHHIHHIHHIHHIHHI\",2,1,6,0xffffffff,2,4,4242,4,4,0xffffffff,0x10,4,0xffffffff,0x20,0,0xffffffff))")),
        ("attribute by descriptor", format!("{victim} os.setxattr(f,b\"user.x\",b\"1\")")),
        ("attribute through the root", "import os; os.setxattr(\"/proc/self/root\"+os.environ[\"OUT\"]+\"/victim.txt\",b\"user.x\",b\"1\")".into()),
        ("time through a link", "import os; os.symlink(os.environ[\"OUT\"]+\"/victim.txt\",\"l\"); os.utime(\"l\",(1,1))".into()),
        ("mode through the descriptor's name", format!("{victim} os.chmod(\"/proc/self/fd/%d\"%f,0o777)")),
        ("owner by descriptor", format!("{victim} os.fchown(f,os.getuid(),os.getgid())")),
    ]
    .map(|(name, program)| Case::new(&format!("attribute: {name}"), &python(&program)))
    .into_iter()
    .chain([
        Case::new("attribute: mode of the home directory", "chmod 777 $REALHOME/.ssh $REALHOME/.cargo"),
        Case::new("attribute: time of the key", "touch -h -d @1 $REALHOME/.ssh/id_ed25519"),
        Case::new("attribute: mode in a tool directory", "chmod 600 $REALHOME/.cargo/config.toml"),
    ])
    .collect()
}

fn sockets() -> Vec<Case> {
    // The internet families and routes by netlink are the network namespace's business.
    let families = python(
        "import socket,os\nfor f in range(1,47):\n  for k in (1,2,3,5):\n    try: s=socket.socket(f,k,0)\n    except OSError: continue\n    if f not in (2,10,16): print(f,k,os.environ[\"ESCAPED\"])",
    );
    let netlink = python(
        "import socket,os\nfor p in range(1,23):\n  try: socket.socket(16,3,p); print(p,os.environ[\"ESCAPED\"])\n  except OSError: pass",
    );
    let mapped = "import socket,os; socket.create_connection((\"::ffff:127.0.0.1\",int(os.environ[\"PORT\"])),2)";
    vec![
        Case::new("socket: every family", &families),
        Case::new("socket: every family with the network", &families).with(host_network),
        Case::new("socket: every netlink", &netlink),
        Case::new("socket: every netlink with the network", &netlink).with(host_network),
        Case::new("socket: version 4 in version 6", &python(mapped)),
        Case::new("socket: the unspecified address", "echo x > /dev/tcp/0.0.0.0/$PORT"),
        Case::new("socket: another loopback address", "echo x > /dev/udp/127.0.0.1/$UPORT; echo x > /dev/tcp/127.0.0.1/$PORT"),
        Case::new(
            "socket: interfaces",
            &python("import fcntl,os,socket,struct; s=socket.socket(); fcntl.ioctl(s,0x8914,struct.pack(\"16sh14x\",b\"lo\",0)); print(os.environ[\"ESCAPED\"])"),
        )
        .proof(Proof::Never),
        Case::new(
            "socket: raw with the network",
            &python("import os,socket; socket.socket(2,3,1); print(os.environ[\"ESCAPED\"])"),
        )
        .with(host_network)
        .proof(Proof::AsRoot),
        Case::new(
            "socket: packets with the network",
            &python("import os,socket; socket.socket(17,3,0x300); print(os.environ[\"ESCAPED\"])"),
        )
        .with(host_network)
        .proof(Proof::AsRoot),
        Case::new(
            "socket: descriptor of another process",
            &python("import os; d=os.pidfd_open(1); import ctypes; r=ctypes.CDLL(None).syscall(438,d,0,0); r>=0 and print(os.environ[\"ESCAPED\"])"),
        )
        .proof(Proof::Never),
    ]
}

fn some_memory(policy: &mut Policy) {
    policy.limits = Limits {
        memory: Some(200 << 20),
        free_disk: None,
        ..Limits::default()
    };
}

/// Two hundred megabytes are allowed. The scripts hold more than that for a second where no
/// process shows it.
fn memory() -> Vec<Case> {
    let hold = "time.sleep(1.5); print(os.environ[\"ESCAPED\"])";
    [
        ("file without a name", format!("import os,time\nb=b\"x\"*1000000\nfs=[os.memfd_create(\"m\") for i in range(40)]\nfor i in range(600): os.pwrite(fs[i%40],b,i//40*1000000)\n{hold}")),
        ("shared mapping given up", format!("import mmap,os,time\nm=mmap.mmap(-1,600<<20)\nfor i in range(0,600<<20,4096): m[i]=1\nm.madvise(mmap.MADV_DONTNEED)\n{hold}")),
        ("segments", format!("import ctypes,os,time\nl=ctypes.CDLL(None); l.shmat.restype=ctypes.c_void_p; l.shmdt.argtypes=[ctypes.c_void_p]\nfor i in range(12):\n  s=l.shmget(0,50<<20,0o1600); p=l.shmat(s,None,0); ctypes.memset(p,1,50<<20); l.shmdt(p)\n{hold}")),
        ("shared files", format!("import os,time\nb=b\"x\"*(1<<20)\nfor i in range(600): open(\"/dev/shm/%d\"%i,\"wb\").write(b[:1000000])\n{hold}")),
    ]
    .map(|(name, program)| {
        // Segments and shared files would outlive the proof.
        Case::new(&format!("memory: {name}"), &python(&program))
            .with(some_memory)
            .proof(if name.starts_with('s') && name != "shared mapping given up" { Proof::Never } else { Proof::Always })
    })
    .into()
}

fn descriptors() -> Vec<Case> {
    vec![
        // A shell keeps descriptors of its own while it redirects.
        Case::new(
            "descriptor: any that is open",
            &python("import os\nfor f in range(3,1024):\n  try: os.fstat(f); print(f,os.readlink(\"/proc/self/fd/%d\"%f),os.environ[\"ESCAPED\"])\n  except OSError: pass"),
        ),
        Case::new("descriptor: standard input", "test \"$(readlink /proc/self/fd/0)\" = /dev/null || echo $ESCAPED; read -t 1 x && echo $ESCAPED").proof(Proof::Never),
        Case::new(
            "descriptor: private page of a file outside",
            &python("import ctypes,mmap,os; f=os.open(os.environ[\"OUT\"]+\"/victim.txt\",0); m=mmap.mmap(f,8,mmap.MAP_PRIVATE,mmap.PROT_READ|mmap.PROT_WRITE); a=ctypes.addressof(ctypes.c_char.from_buffer(m)); g=os.open(\"/proc/self/mem\",os.O_RDWR); os.pwrite(g,b\"X\",a)"),
        )
        .proof(Proof::Never),
        Case::new(
            "descriptor: program that runs",
            "cp /proc/self/exe x; echo x > /proc/self/exe && echo $ESCAPED; echo x > /proc/1/exe && echo $ESCAPED",
        )
        .proof(Proof::Never),
        Case::new("descriptor: output opened for reading", "cat /proc/self/fd/1 </dev/null & sleep 0.2; echo done").proof(Proof::Never),
    ]
}
