//! The kinds of memory, each with a program that takes some and keeps it. None takes more than half a
//! gigabyte, and all of it is given back when the program ends.

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Megabytes.
    pub(crate) limit: u64,
    /// The project and the temporary directory are kept in memory.
    pub(crate) in_memory: bool,
    pub(crate) host_network: bool,
    /// It cannot be measured and counts as its bound, which even a little of it may pass.
    pub(crate) unseen: bool,
    /// The program gets an error instead of the memory.
    pub(crate) refused: bool,
    pub(crate) script: &'static str,
}

const fn kind(name: &'static str, limit: u64, script: &'static str) -> Kind {
    Kind {
        name,
        limit,
        in_memory: false,
        host_network: false,
        unseen: false,
        refused: false,
        script,
    }
}

impl Kind {
    const fn refused(mut self) -> Self {
        self.refused = true;
        self
    }
}

/// Beginning of every program: `much(whole, little)` is how much to take, `held()` keeps it.
pub(crate) const COMMON: &str = r#"
import array, ctypes, errno, fcntl, mmap, os, select, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def much(whole, little): return whole if os.environ["PART"] == "1" else little
def held():
    print("held", flush=True)
    time.sleep(float(os.environ["HOLD"]))
def fill(s, piece=b"x" * 65536):
    s.setblocking(False)
    try:
        while True: s.send(piece)
    except BlockingIOError: pass
def large(*sockets):
    for s in sockets:
        for o in (socket.SO_SNDBUF, socket.SO_RCVBUF): s.setsockopt(socket.SOL_SOCKET, o, 4 << 20)
keep = []
def until(bytes, step):
    taken = 0
    while taken < bytes: taken += step()
def held_by_children(number, work):
    ready, done = os.pipe(); wait, end = os.pipe()
    for i in range(number):
        if os.fork() == 0:
            os.close(end); work(); os.write(done, b"x"); os.read(wait, 1); os._exit(0)
    for i in range(number): os.read(ready, 1)
    held()
"#;

const PAIRS: &str = r#"
def step():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM); keep.append((a, b)); large(a, b); fill(a); fill(b)
    return max(2 * a.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), 65536)
until(much(256 << 20, 1), step); held()
"#;

macro_rules! pipes {
    () => {
        r#"
for i in range(much(3900, 8)):
    r, w = os.pipe(); keep.append(r); os.set_blocking(w, False)
    try:
        while True: os.write(w, b"x" * 4096)
    except BlockingIOError: pass
    os.close(w)
held()
"#
    };
}

pub(crate) const KINDS: &[Kind] = &[
    kind("socket pairs", 64, PAIRS),
    kind(
        "socket pairs of packets",
        64,
        r#"
def step():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); keep.append((a, b)); large(a, b); fill(a, b"x" * 4096)
    return max(a.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), 65536)
until(much(192 << 20, 1), step); held()
"#,
    ),
    Kind {
        host_network: true,
        ..kind("socket pairs with the network", 64, PAIRS)
    },
    kind(
        "socket pairs without a sender, byte by byte",
        64,
        r#"
def step():
    a, b = socket.socketpair(); keep.append(b); large(a); fill(a, b"x"); a.close()
    return max(b.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), 4 << 20)
until(much(160 << 20, 1), step); held()
"#,
    ),
    kind(
        "socket pairs of empty packets without a sender",
        64,
        r#"
def step():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); keep.append(b); large(a); fill(a, b""); a.close()
    return 4 << 20
until(much(160 << 20, 1), step); held()
"#,
    ),
    kind(
        "socket pairs that are on their way",
        64,
        r#"
carrier = socket.socketpair()
def step():
    a, b = socket.socketpair(); large(a, b); fill(a); fill(b)
    size = max(2 * a.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), 65536)
    socket.send_fds(carrier[0], [b"x"], [a.fileno(), b.fileno()]); a.close(); b.close()
    return size
until(much(256 << 20, 1), step); held()
"#,
    ),
    kind(
        "socket pairs without content",
        200,
        "held_by_children(much(12, 2), lambda: keep.extend(socket.socketpair() for i in range(much(1500, 50))))",
    ),
    kind(
        "connections",
        64,
        r#"
server = socket.create_server(("127.0.0.1", 0)); large(server)
def step():
    a = socket.socket(); large(a); a.connect(server.getsockname()); b = server.accept()[0]; keep.append((a, b)); fill(a); fill(b)
    return 8 << 20
until(much(192 << 20, 1), step); held()
"#,
    ),
    kind(
        "connections that are not accepted",
        64,
        r#"
server = socket.create_server(("::1", 0), family=socket.AF_INET6, backlog=100); large(server)
def step():
    a = socket.socket(socket.AF_INET6); large(a); a.connect(server.getsockname()); keep.append(a); fill(a)
    return 8 << 20
until(much(192 << 20, 1), step); held()
"#,
    ),
    kind(
        "datagrams",
        64,
        r#"
def step():
    a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for i in range(2)); large(a, b); b.bind(("127.0.0.1", 0)); keep.append(b)
    a.connect(b.getsockname()); size = b.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    for i in range(size // 60000 + 1): a.send(b"x" * 60000)
    return size
until(much(192 << 20, 1), step); held()
"#,
    ),
    kind(
        "answers about routes",
        64,
        r#"
def step():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); large(s); keep.append(s); s.setblocking(False)
    size = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    for i in range(size // 16384 + 1):
        try: s.send(struct.pack("=IHHII", 16016, 0x7fff, 5, i, 0) + bytes(16000))
        except OSError: break
    return size
until(much(192 << 20, 1), step); held()
"#,
    ),
    kind("pipes", 32, pipes!()),
    Kind {
        unseen: true,
        ..kind(
            "pipes of a process that cannot be inspected",
            32,
            concat!("libc.prctl(4, 0, 0, 0, 0)", pipes!()),
        )
    },
    kind(
        "pipes with a name",
        32,
        r#"
for i in range(much(1900, 8)):
    os.mkfifo("/tmp/%d" % i); r = os.open("/tmp/%d" % i, os.O_RDWR | os.O_NONBLOCK); keep.append(r)
    try:
        while True: os.write(r, b"x" * 4096)
    except BlockingIOError: pass
held()
"#,
    ),
    kind(
        "pages given to a pipe",
        64,
        r#"
r, w = os.pipe(); page = ctypes.create_string_buffer(4096); vector = (ctypes.c_size_t * 2)(ctypes.addressof(page), 4096)
given = libc.vmsplice(w, ctypes.byref(vector), 1, 0)
print("refused" if given < 0 and ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS) else "given")
"#,
    )
    .refused(),
    kind(
        "files without a name",
        64,
        r#"
made = libc.memfd_create(b"x", 0)
print("refused" if made < 0 and ctypes.get_errno() == errno.ENOSYS else "given")
"#,
    )
    .refused(),
    kind(
        "shared files that were removed",
        64,
        r#"
f = open("/dev/shm/x", "wb"); os.unlink("/dev/shm/x")
for i in range(much(192, 8)): f.write(b"x" * (1 << 20))
f.flush(); held()
"#,
    ),
    kind(
        "names of shared files",
        64,
        "\nfor i in range(much(100000, 1000)): os.close(os.open(\"/dev/shm/%d\" % i, os.O_CREAT))\nheld()",
    ),
    Kind {
        in_memory: true,
        ..kind(
            "a temporary directory in memory",
            64,
            "\nwith open(\"/tmp/x\", \"wb\") as f:\n    for i in range(much(192, 8)): f.write(b\"x\" * (1 << 20))\nheld()",
        )
    },
    Kind {
        in_memory: true,
        ..kind(
            "a project in memory",
            64,
            "\nwith open(\"x\", \"wb\") as f:\n    for i in range(much(192, 8)): f.write(b\"x\" * (1 << 20))\nheld()",
        )
    },
    kind(
        "shared segments",
        64,
        r#"
libc.shmat.restype = ctypes.c_void_p; libc.shmdt.argtypes = [ctypes.c_void_p]
for i in range(much(24, 1)):
    at = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0); ctypes.memset(at, 1, 8 << 20); libc.shmdt(ctypes.c_void_p(at))
held()
"#,
    ),
    kind(
        "messages",
        64,
        r#"
text = ctypes.create_string_buffer(b"\1" + bytes(7) + b"x" * 8000, 8008)
for i in range(much(8000, 100)):
    queue = libc.msgget(0, 0o1600)
    while libc.msgsnd(queue, text, 8000, 0o4000) == 0: pass
held()
"#,
    ),
    kind(
        "messages of one byte",
        64,
        r#"
text = ctypes.create_string_buffer(b"\1" + bytes(7) + b"x", 9)
for i in range(much(80, 1)):
    queue = libc.msgget(0, 0o1600)
    while libc.msgsnd(queue, text, 1, 0o4000) == 0: pass
held()
"#,
    ),
    kind(
        "semaphores",
        64,
        "\nfor i in range(much(64, 1)): libc.semget(0, 32000, 0o1600)\nheld()",
    ),
    kind(
        "page tables",
        64,
        r#"
m = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
for i in range(0, much(64 << 30, 1 << 30), 2 << 20): m[i]
held()
"#,
    ),
    kind(
        "mappings",
        400,
        r#"
libc.mmap.restype = ctypes.c_void_p; libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def work():
    for i in range(much(60000, 100)): libc.mmap(None, 4096, i % 2, 34, -1, 0)
held_by_children(much(20, 2), work)
"#,
    ),
    kind(
        "shared mappings given up",
        64,
        r#"
size = much(192 << 20, 8 << 20); m = mmap.mmap(-1, size)
for i in range(0, size, 4096): m[i] = 1
m.madvise(mmap.MADV_DONTNEED); held()
"#,
    ),
    kind(
        "watched descriptors",
        64,
        r#"
watched = [os.eventfd(0) for i in range(much(1000, 20))]
for i in range(much(800, 4)):
    e = select.epoll(); keep.append(e)
    for d in watched: e.register(d, select.EPOLLIN)
held()
"#,
    ),
    kind(
        "news of files",
        64,
        r#"
os.mkdir("d")
for i in range(much(16, 2)): d = libc.inotify_init(); keep.append(d); libc.inotify_add_watch(d, b"d", 0x300)
for i in range(much(8100, 10)): name = "d/%0250d" % i; os.close(os.open(name, os.O_CREAT)); os.unlink(name)
held()
"#,
    ),
];
