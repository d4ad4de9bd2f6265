//! The table of wrappers: options, operands, and whether the command inside is all that happens.

/// One row of the table: flags are separated by blanks, `operands` come before the command.
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    pub(super) flags: &'static str,
    pub(super) flags_with_value: &'static str,
    pub(super) operands: usize,
    pub(super) assignments: bool,
    /// Starting the inner command this way changes nothing about what it may do.
    pub(super) harmless: bool,
    /// Of the flags, those with which it does: the environment that keeps a reader from more is gone, or the words
    /// that it gets are other ones.
    pub(super) changing: &'static str,
}

const fn wrapper(
    name: &'static str,
    flags: &'static str,
    flags_with_value: &'static str,
    operands: usize,
) -> Wrapper {
    Wrapper {
        name,
        flags,
        flags_with_value,
        operands,
        assignments: false,
        harmless: false,
        changing: "",
    }
}

const fn harmless(
    name: &'static str,
    flags: &'static str,
    flags_with_value: &'static str,
    operands: usize,
) -> Wrapper {
    Wrapper {
        harmless: true,
        ..wrapper(name, flags, flags_with_value, operands)
    }
}

const fn except(changing: &'static str, wrapper: Wrapper) -> Wrapper {
    Wrapper {
        changing,
        ..wrapper
    }
}

const fn with_assignments(wrapper: Wrapper) -> Wrapper {
    Wrapper {
        assignments: true,
        ..wrapper
    }
}

/// Programs that run the command in their arguments.
#[rustfmt::skip]
pub(super) const WRAPPERS: &[Wrapper] = &[
    //                      name        flags                                   flags with a value              operands
    except("-i - -u --ignore-environment --unset",
    with_assignments(harmless("env",    "-i -0 -v - --ignore-environment --null", "-u --unset",                 0))),
    harmless("command",     "-p",                                               "",                             0),
    harmless("builtin",     "",                                                 "",                             0),
    harmless("nice",        "",                                                 "-n --adjustment",              0),
    harmless("timeout",     "-v --foreground --preserve-status --verbose",      "-s -k --signal --kill-after",  1),
    harmless("stdbuf",      "",                                                 "-i -o -e --input --output --error", 0),
    harmless("ionice",      "-t --ignore",                                      "-c -n --class --classdata",    0),
    harmless("time",        "-p -v",                                            "",                             0),
    wrapper("exec",         "-c -l",                                            "-a",                           0),
    wrapper("nohup",        "",                                                 "",                             0),
    wrapper("setsid",       "-c -f -w --ctty --fork --wait",                    "",                             0),
    wrapper("chrt",         "-b -d -f -i -o -r -a -m -v",                       "-p -T -P -D",                  1),
    wrapper("taskset",      "-a -c",                                            "-p",                           1),
    wrapper("chroot",       "--skip-chdir",                                     "--userspec --groups",          1),
    wrapper("unshare",      "-U -r -m -n -p -f -i -u -C -T --fork --map-root-user --user --mount --net --pid", "-S -G -R -w --root --wd", 0),
    wrapper("nsenter",      "-a -F -r",                                         "-t -S -G",                     0),
    wrapper("setpriv",      "--no-new-privs --clear-groups --init-groups",      "--reuid --regid --groups",     0),
    wrapper("strace",       "-f -ff -c -q -qq -v -y -yy -t -tt -T -x -i -n -r", "-e -o -p -s -u -E -P -O -S -a -b -I", 0),
    wrapper("ltrace",       "-f -c -C -i -S -t -T",                             "-e -o -p -s -u -n -l",         0),
    wrapper("flock",        "-s -x -e -n -u -o -F --shared --exclusive --nonblock --no-fork", "-w -E --timeout", 1),
    wrapper("chronic",      "-v -e",                                            "",                             0),
    wrapper("unbuffer",     "-p",                                               "",                             0),
    wrapper("fakeroot",     "-u",                                               "-l -s -i -b",                  0),
    wrapper("rlwrap",       "-a -c -i -r",                                      "-f -H",                        0),
    wrapper("numactl",      "-a -l --localalloc --all",                         "-m -N -C -i",                  0),
    wrapper("catchsegv",    "",                                                 "",                             0),
    wrapper("coproc",       "",                                                 "",                             0),
    wrapper("busybox",      "",                                                 "",                             0),
    wrapper("toybox",       "",                                                 "",                             0),
    wrapper("npx",          "-y --yes --no -q",                                 "-p --package -c --call",       0),
    wrapper("bunx",         "",                                                 "",                             0),
    wrapper("uvx",          "-q",                                               "--from --with -p",             0),
    wrapper("dotenv",       "-o",                                               "-e -f",                        0),
    with_assignments(wrapper("cross-env", "",                                   "",                             0)),
    with_assignments(wrapper("systemd-run", "-q -t -P -G -S --user --scope --pty --wait", "-u -p -E --uid --gid --unit --property --setenv", 0)),
    with_assignments(wrapper("sudo", "-A -b -E -e -H -i -K -k -n -P -S -s -V -v --login --shell --non-interactive --preserve-env --set-home --stdin --background", "-C -D -g -h -p -R -r -T -t -U -u --user --group --chdir --host --prompt --close-from --other-user", 0)),
    with_assignments(wrapper("doas", "-L -n -s",                                "-a -C -u",                     0)),
    except("-d --delimiter",
    harmless("xargs",       "-0 -r -t -x --null --no-run-if-empty --verbose --exit", "-d -E -L -n -P -s --delimiter --max-args --max-procs --max-lines --max-chars", 0)),
];
