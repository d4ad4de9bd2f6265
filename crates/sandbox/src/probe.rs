//! What this machine can enforce, found by trying.

use std::path::PathBuf;

use crate::report::Level;

/// Present with a value, or absent with the reason in words.
pub type Finding<T> = Result<T, String>;

/// One mechanism that a level may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    UserNamespaces,
    Landlock,
    Seccomp,
    Bubblewrap,
    Cgroup,
}

/// What can be enforced here, each absence with its reason. Probed once, then passed to every
/// launch; a launch that cannot keep what was found fails and runs nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    pub user_namespaces: Finding<()>,
    /// The ABI version.
    pub landlock: Finding<u32>,
    pub seccomp: Finding<()>,
    pub bubblewrap: Finding<PathBuf>,
    /// A control group of our own to put commands in.
    pub cgroup: Finding<PathBuf>,
}

impl Capabilities {
    /// The strongest level these allow.
    pub fn level(&self) -> Level {
        match (
            &self.user_namespaces,
            &self.landlock,
            &self.seccomp,
            &self.bubblewrap,
        ) {
            (Ok(()), Ok(_), Ok(()), _) => Level::Full,
            (Ok(()), Err(_), Ok(()), _) => Level::NoLandlock,
            (Err(_), Ok(_), Ok(()), Ok(_)) => Level::Bubblewrap,
            (Err(_), Ok(_), Ok(()), Err(_)) => Level::Partial,
            _ => Level::None,
        }
    }

    /// The same machine with one mechanism switched off; for tests and for a careful user.
    #[must_use]
    pub fn without(mut self, feature: Feature) -> Self {
        let reason = || String::from("switched off");
        match feature {
            Feature::UserNamespaces => self.user_namespaces = Err(reason()),
            Feature::Landlock => self.landlock = Err(reason()),
            Feature::Seccomp => self.seccomp = Err(reason()),
            Feature::Bubblewrap => self.bubblewrap = Err(reason()),
            Feature::Cgroup => self.cgroup = Err(reason()),
        }
        self
    }

    /// Why the level is not full, in words for a person; empty at level full.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut note = |name: &str, reason: Option<&String>| {
            if let Some(reason) = reason {
                reasons.push(format!("{name}: {reason}"));
            }
        };
        note("user namespaces", self.user_namespaces.as_ref().err());
        note("Landlock", self.landlock.as_ref().err());
        note("seccomp", self.seccomp.as_ref().err());
        if self.user_namespaces.is_err() {
            note("bubblewrap", self.bubblewrap.as_ref().err());
        }
        reasons
    }
}

/// Finds out what can be enforced.
pub fn probe() -> Capabilities {
    let absent = || String::from("not built in yet");
    Capabilities {
        user_namespaces: Err(absent()),
        landlock: Err(absent()),
        seccomp: Err(absent()),
        bubblewrap: Err(absent()),
        cgroup: Err(absent()),
    }
}
