//! Reaching anything outside the command's own loopback.

use crate::{Case, Proof, host_network, python};

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("TCP", "echo x > /dev/tcp/127.0.0.1/$PORT"),
        ("TCP version 6", "echo x > /dev/tcp/::1/$PORT6"),
        ("UDP", "echo x > /dev/udp/127.0.0.1/$UPORT"),
    ]
    .map(|(name, script)| Case::new(&format!("network: {name}"), script))
    .into();
    let unix = "import os,socket; s=socket.socket(socket.AF_UNIX,socket.SOCK_STREAM);";
    let datagram = "import os,socket; a,b=socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM);";
    let unix_cases = [
        ("socket outside", format!("{unix} s.connect(os.environ[\"OUT\"]+\"/host.sock\")")),
        ("socket in the workspace", format!("{unix} s.connect(\"host.sock\")")),
        ("abstract socket", format!("{unix} s.connect(chr(0)+os.environ[\"ABSTRACT\"])")),
        (
            "datagram socket",
            "import socket; socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM).sendto(b\"x\",\"datagram.sock\")".into(),
        ),
        ("datagram from a pair", format!("{datagram} a.sendto(b\"x\",\"datagram.sock\")")),
        ("pair connected again", format!("{datagram} a.connect(\"datagram.sock\"); a.send(b\"x\")")),
    ];
    for (name, program) in &unix_cases {
        all.push(Case::new(&format!("network: {name}"), &python(program)));
        // Granting the network grants no sockets of services on this machine.
        all.push(
            Case::new(&format!("network granted: {name}"), &python(program)).with(host_network),
        );
    }
    // The kernel lets no such pair go anywhere else, which is why they may be made.
    for (kind, name) in [(1, "stream"), (5, "packet")] {
        let paths = "[\"datagram.sock\",\"host.sock\",os.environ[\"OUT\"]+\"/host.sock\",chr(0)+os.environ[\"ABSTRACT\"]]";
        for (way, call) in [
            ("sent to", "a.sendto(b\"x\",p)"),
            ("connected to", "a.connect(p)"),
        ] {
            let program = format!(
                "import os,socket\na,b=socket.socketpair(1,{kind})\nfor p in {paths}:\n try: {call}; a.send(b\"x\")\n except OSError as e: print(e)"
            );
            let name = format!("network: {name} pair {way} a path");
            all.push(Case::new(&name, &python(&program)).proof(Proof::Never));
        }
    }
    // Families by number: not every Python knows their names.
    for (name, family, kind, protocol, proof) in [
        ("vsock", 40, 1, 0, Proof::Always),
        ("packet", 17, 3, 0x300, Proof::AsRoot),
        ("kernel crypto", 38, 5, 0, Proof::Never),
        ("bluetooth", 31, 3, 1, Proof::Never),
        ("kernel events by netlink", 16, 3, 15, Proof::Always),
        ("audit by netlink", 16, 3, 9, Proof::Never),
        ("netfilter by netlink", 16, 3, 12, Proof::Always),
        ("CAN", 29, 3, 1, Proof::Never),
        ("raw internet", 2, 3, 1, Proof::AsRoot),
        ("multipath TCP", 2, 1, 262, Proof::Never),
        ("SCTP", 10, 5, 132, Proof::Never),
        ("UDP-Lite", 2, 2, 136, Proof::Never),
        ("phonet", 35, 2, 0, Proof::Never),
    ] {
        let program = format!(
            "import socket,os\ntry:\n socket.socket({family},{kind},{protocol}); print(os.environ[\"ESCAPED\"])\nexcept OSError as e: print(e)"
        );
        all.push(Case::new(&format!("network: {name}"), &python(&program)).proof(proof));
    }
    all.push(
        Case::new(
            "network: interfaces of the host",
            "cat /proc/net/dev | grep -vE 'Inter|face|lo:|tunl|sit|gre|ip6|erspan|ip_vti|dummy' | grep . && echo $ESCAPED",
        )
        .proof(Proof::Never),
    );
    all.push(
        Case::new(
            "network: way out",
            "timeout 2 bash -c 'echo x > /dev/tcp/192.0.2.1/80' && echo $ESCAPED",
        )
        .proof(Proof::Never),
    );
    all
}
