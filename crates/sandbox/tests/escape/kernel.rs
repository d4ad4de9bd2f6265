//! System calls that no build needs, and other ways into the kernel.

use crate::{Case, Proof, python};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = refused();
    all.extend(other_entries());
    all.extend(mounts());
    all
}

/// A program that makes one call. The answer "not permitted" or "no such call" is what should
/// happen; anything else, an invalid argument for example, means that the kernel handled it.
fn call(number: i64, arguments: &str) -> String {
    python(&format!(
        "import ctypes,os\nlibc=ctypes.CDLL(None,use_errno=True)\nr=libc.syscall(ctypes.c_long({number}),{arguments})\ne=ctypes.get_errno()\nprint(r,e)\nif r>=0 or e not in (1,38): print(os.environ[\"ESCAPED\"])"
    ))
}

fn refused() -> Vec<Case> {
    let zero = "0,0,0,0,0,0";
    [
        (
            "ptrace",
            libc::SYS_ptrace,
            "16,ctypes.c_long(int(os.environ[\"VICTIM\"])),0,0",
            Proof::AsRoot,
        ),
        (
            "ptrace of itself",
            libc::SYS_ptrace,
            "0,0,0,0",
            Proof::Always,
        ),
        (
            "process_vm_readv",
            libc::SYS_process_vm_readv,
            "ctypes.c_long(int(os.environ[\"VICTIM\"])),0,0,0,0,0",
            Proof::Always,
        ),
        (
            "pidfd_getfd",
            libc::SYS_pidfd_getfd,
            "-1,0,0",
            Proof::Always,
        ),
        (
            "kcmp",
            libc::SYS_kcmp,
            "os.getpid(),os.getpid(),0,1,1",
            Proof::Always,
        ),
        (
            "mount",
            libc::SYS_mount,
            "b\"none\",b\"/tmp\",b\"nosuch\",0,0",
            Proof::AsRoot,
        ),
        ("umount", libc::SYS_umount2, "b\"/nosuch\",0", Proof::AsRoot),
        (
            "pivot_root",
            libc::SYS_pivot_root,
            "b\"/nosuch\",b\"/nosuch\"",
            Proof::AsRoot,
        ),
        ("chroot", libc::SYS_chroot, "b\"/nosuch\"", Proof::Always),
        (
            "open_tree",
            libc::SYS_open_tree,
            "-100,b\"/\",0",
            Proof::Always,
        ),
        ("open_tree_attr", 467, "-100,b\"/\",0,0,0", Proof::Never),
        (
            "move_mount",
            libc::SYS_move_mount,
            "-1,b\"\",-1,b\"\",0",
            Proof::AsRoot,
        ),
        ("fsopen", libc::SYS_fsopen, "b\"nosuch\",0", Proof::AsRoot),
        (
            "fspick",
            libc::SYS_fspick,
            "-100,b\"/nosuch\",0",
            Proof::AsRoot,
        ),
        ("fsmount", libc::SYS_fsmount, "-1,0,0", Proof::AsRoot),
        (
            "mount_setattr",
            libc::SYS_mount_setattr,
            "-100,b\".git\",0,0,0",
            Proof::Always,
        ),
        ("unshare", libc::SYS_unshare, "0x10000000", Proof::Always),
        (
            "unshare of mounts",
            libc::SYS_unshare,
            "0x10020000",
            Proof::Always,
        ),
        ("setns", libc::SYS_setns, "-1,0", Proof::Always),
        ("clone3", libc::SYS_clone3, "0,0", Proof::Always),
        (
            "io_uring_setup",
            libc::SYS_io_uring_setup,
            "1,0",
            Proof::Never,
        ),
        (
            "io_uring_enter",
            libc::SYS_io_uring_enter,
            "-1,0,0,0,0,0",
            Proof::Always,
        ),
        ("bpf", libc::SYS_bpf, "0,0,0", Proof::AsRoot),
        (
            "perf_event_open",
            libc::SYS_perf_event_open,
            "0,0,0,0,0",
            Proof::Always,
        ),
        ("userfaultfd", libc::SYS_userfaultfd, "1", Proof::Always),
        ("keyctl", libc::SYS_keyctl, "0,-3,1", Proof::Always),
        (
            "add_key",
            libc::SYS_add_key,
            "b\"user\",b\"x\",b\"y\",1,-2",
            Proof::Always,
        ),
        (
            "request_key",
            libc::SYS_request_key,
            "b\"user\",b\"x\",0,-2",
            Proof::Always,
        ),
        (
            "open_by_handle_at",
            libc::SYS_open_by_handle_at,
            "-100,0,0",
            Proof::Never,
        ),
        (
            "personality",
            libc::SYS_personality,
            "0x0040000",
            Proof::Always,
        ),
        ("fanotify", libc::SYS_fanotify_init, "0,0", Proof::AsRoot),
        (
            "kexec",
            libc::SYS_kexec_load,
            "0,999,0,0xffff",
            Proof::Never,
        ),
        ("module", libc::SYS_init_module, "0,0,0", Proof::Never),
        ("reboot", libc::SYS_reboot, "0,0,0,0", Proof::AsRoot),
        ("swapon", libc::SYS_swapon, "b\"/nosuch\",0", Proof::AsRoot),
        ("acct", libc::SYS_acct, "b\"/nosuch\"", Proof::AsRoot),
        ("quotactl", libc::SYS_quotactl, "0,0,0,0", Proof::Never),
        ("kernel log", libc::SYS_syslog, "10,0,0", Proof::AsRoot),
        (
            "set the clock",
            libc::SYS_clock_settime,
            "99,0",
            Proof::Always,
        ),
        ("adjust the clock", libc::SYS_adjtimex, "0", Proof::Always),
        ("host name", libc::SYS_sethostname, "0,-1", Proof::AsRoot),
        ("iopl", libc::SYS_iopl, "9", Proof::Never),
        ("modify_ldt", libc::SYS_modify_ldt, "0,0,0", Proof::Always),
        (
            "listener of its own",
            libc::SYS_seccomp,
            "1,8,0",
            Proof::Never,
        ),
        (
            "terminal typing",
            libc::SYS_ioctl,
            "0,0x5412,b\"x\"",
            Proof::Always,
        ),
        (
            "terminal typing in the upper half",
            libc::SYS_ioctl,
            "0,ctypes.c_ulong(0x100005412),b\"x\"",
            Proof::Always,
        ),
        ("console", libc::SYS_ioctl, "0,0x541c,b\"x\"", Proof::Always),
        (
            "vsock in the upper half",
            libc::SYS_socket,
            "ctypes.c_ulong(0x200000028),1,0",
            Proof::Never,
        ),
        (
            "pair of a family that reaches the network",
            libc::SYS_socketpair,
            "30,1,0,0",
            Proof::Always,
        ),
        (
            "pair of internet sockets",
            libc::SYS_socketpair,
            "2,1,0,0",
            Proof::Always,
        ),
        (
            "pair of a kind that can be sent anywhere",
            libc::SYS_socketpair,
            "1,4,0,0",
            Proof::Always,
        ),
        (
            "file that runs as its owner",
            libc::SYS_chmod,
            "b\"README.md\",0o4755",
            Proof::Always,
        ),
        (
            "file that runs as its owner by descriptor",
            libc::SYS_fchmod,
            "os.open(\"README.md\",0),0o4755",
            Proof::Always,
        ),
        (
            "file that runs as its owner from the start",
            libc::SYS_openat,
            "-100,b\"new\",0o101,0o4755",
            Proof::Always,
        ),
        ("vhangup", libc::SYS_vhangup, zero, Proof::Never),
    ]
    .map(|(name, number, arguments, proof)| {
        Case::new(&format!("kernel: {name}"), &call(number, arguments)).proof(proof)
    })
    .into()
}

/// Machine code, because no library goes this way.
fn machine_code(code: &str) -> String {
    python(&format!(
        "import ctypes,mmap,os\nm=mmap.mmap(-1,4096,prot=7)\nm.write(bytes.fromhex(\"{code}\"))\nf=ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nprint(f(),os.environ[\"ESCAPED\"])"
    ))
}

fn other_entries() -> Vec<Case> {
    vec![
        // mov eax,20; int 0x80; ret: getpid by the 32-bit entry.
        Case::new("entry: 32-bit", &machine_code("b814000000cd80c3")),
        // mov eax,359; mov ebx,1; mov ecx,1; xor edx,edx; int 0x80: a UNIX socket that way.
        Case::new(
            "entry: 32-bit socket",
            &machine_code("53b867010000bb01000000b90100000031d2cd805bc3"),
        ),
        // mov eax,0x40000027; syscall; ret: getpid by the x32 entry.
        Case::new("entry: x32", &machine_code("b8270000400f05c3")).proof(Proof::Never),
    ]
}

fn mounts() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("user namespace", "unshare -Ur true && echo $ESCAPED", Proof::Always),
        ("all namespaces", "unshare -Urmpf true && echo $ESCAPED", Proof::Always),
        ("network namespace", "unshare -rn true && echo $ESCAPED", Proof::Always),
        ("namespaces of the first process", "nsenter -t 1 -m true && echo $ESCAPED", Proof::Never),
        ("remount", "mount -o remount,rw / && echo $ESCAPED", Proof::Never),
        ("unmount the cover", "umount -l $REALHOME && echo $ESCAPED", Proof::Never),
        ("new mount", "mkdir m; mount -t tmpfs none m && echo $ESCAPED; umount m", Proof::AsRoot),
        ("bind", "mkdir m; mount --bind / m && echo $ESCAPED; umount m", Proof::AsRoot),
        ("device file", "mknod d b 254 0 && echo $ESCAPED", Proof::AsRoot),
        ("character device", "mknod d c 1 1 && echo $ESCAPED", Proof::AsRoot),
        ("kernel setting", "cat /proc/sys/kernel/core_pattern > p; cat p > /proc/sys/kernel/core_pattern && echo $ESCAPED", Proof::AsRoot),
        ("kernel trigger", ": >> /proc/sysrq-trigger && echo $ESCAPED", Proof::Never),
        ("kernel object", "f=$(find /sys -maxdepth 4 -type f -perm -200 2>/dev/null | head -1); : >> $f && echo $ESCAPED", Proof::Never),
        ("control group", "mkdir /sys/fs/cgroup/escape-$LONG && echo $ESCAPED", Proof::Never),
        ("other user", "setpriv --reuid 12345 true && echo $ESCAPED", Proof::AsRoot),
        ("capabilities", "grep -E 'Cap(Eff|Prm|Bnd).*[1-9a-f]' /proc/self/status && echo $ESCAPED", Proof::Always),
        ("new privileges", "grep -q 'NoNewPrivs:.0' /proc/self/status && echo $ESCAPED", Proof::Always),
        ("user mapping", "echo '0 0 1' > /proc/self/uid_map && echo $ESCAPED", Proof::Never),
        ("terminal", "exec 3<>/dev/tty && echo $ESCAPED", Proof::Never),
        ("owner of a file", "chown 12345 README.md && echo $ESCAPED", Proof::AsRoot),
        ("raised priority", "was=$(nice); nice -n -5 sh -c \"test \\$(nice) -lt $was\" && echo $ESCAPED", Proof::AsRoot),
        ("clock", "date -s '2001-01-01' && echo $ESCAPED", Proof::Never),
        ("host name", "hostname escape && echo $ESCAPED", Proof::Never),
    ]
    .map(|(name, script, proof)| Case::new(&format!("system: {name}"), script).proof(proof))
    .into();
    // CLONE_NEWUSER by the plain call, past every library.
    let program = format!(
        "import ctypes,os\nlibc=ctypes.CDLL(None,use_errno=True)\nr=libc.syscall(ctypes.c_long({}),0x10000011,0,0,0,0)\nif r==0: os._exit(0)\nif r>0: print(os.environ[\"ESCAPED\"])",
        libc::SYS_clone
    );
    all.push(Case::new(
        "system: user namespace by clone",
        &python(&program),
    ));
    all
}
