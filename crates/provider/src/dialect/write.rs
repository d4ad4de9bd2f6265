//! JSON written straight into the bytes of a body. A conversation is encoded anew for every request,
//! so nothing of it is copied into a tree of values first.

use serde::Serialize;

/// An object whose fields are written in the order they are named.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

/// A list.
pub(super) struct List<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

/// A body that is one object, of a request with so many messages.
pub(super) fn body(messages: usize, fill: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    // A guess: most bodies are not moved while they grow, and memory that is not used is not taken.
    let mut out = Vec::with_capacity(32 * 1024 + messages * 512);
    object(&mut out, fill);
    out
}

fn object(out: &mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
    out.push(b'{');
    fill(&mut Object {
        out,
        is_empty: true,
    });
    out.push(b'}');
}

fn list(out: &mut Vec<u8>, fill: impl FnOnce(&mut List<'_>)) {
    out.push(b'[');
    fill(&mut List {
        out,
        is_empty: true,
    });
    out.push(b']');
}

fn value(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Cannot fail: what is written here has strings for keys, and a vector takes every byte.
    let _ = serde_json::to_writer(out, value);
}

impl Object<'_> {
    fn key(&mut self, key: &str) {
        // Keys are our own words: nothing in them has to be escaped.
        debug_assert!(
            key.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        );
        let begins = if std::mem::replace(&mut self.is_empty, false) {
            "\""
        } else {
            ",\""
        };
        self.out.extend_from_slice(begins.as_bytes());
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    pub(super) fn field(&mut self, key: &str, content: &(impl Serialize + ?Sized)) -> &mut Self {
        self.key(key);
        value(self.out, content);
        self
    }

    /// A field whose content is JSON already.
    pub(super) fn json(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key);
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        self.key(key);
        object(self.out, fill);
        self
    }

    pub(super) fn list(&mut self, key: &str, fill: impl FnOnce(&mut List<'_>)) -> &mut Self {
        self.key(key);
        list(self.out, fill);
        self
    }
}

impl List<'_> {
    fn next(&mut self) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
    }

    pub(super) fn value(&mut self, content: &(impl Serialize + ?Sized)) {
        self.next();
        value(self.out, content);
    }

    pub(super) fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        self.next();
        object(self.out, fill);
    }
}
