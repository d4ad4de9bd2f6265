//! Read models kept beside the log, so that a long session opens quickly. They may be deleted at
//! any time, and are used only when the log vouches for them.
//!
//! A cache says up to which line it was folded, and a `snapshot.updated` event after that line
//! holds the cache's hash. A cache whose line has another hash, or whose own hash no event after
//! that line names, is not used: the models are folded anew, and whoever leaves the session next
//! records `snapshot.repaired`. A short log is folded faster than a cache is read, so it gets none.

use std::borrow::Cow;
use std::io::{Read as _, Seek as _, SeekFrom};

use agent_log::{
    AppendError, Head, Lines, LogReader, Place, PlaceError, ReadError, SessionDirectory,
    SessionWriter,
};
use agent_protocol::payload::conversation::{SnapshotRepaired, SnapshotUpdated};
use agent_protocol::{Payload, Refs, Scope};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fold::{Fold as _, ReadModels};

const CACHE: &str = "cache";
const FILE: &str = "read-models.json";
const NAME: &str = "read_models";
/// Changes whenever a read model does; an older cache is then folded anew.
const FORMAT: &str = concat!(env!("CARGO_PKG_VERSION"), "-4");
const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// A cache spares the folding of at least this many events.
const WORTH_A_CACHE: u64 = 1000;

/// Why the read models are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Read models, and where they came from.
#[derive(Debug)]
pub struct Loaded {
    pub models: ReadModels,
    /// The event up to which a cache was used; missing when all was folded from the log.
    pub cached_up_to: Option<u64>,
    /// Why a cache that was there was not used.
    pub rejected: Option<String>,
    /// Lines that are damaged, which the folds passed over.
    pub damaged_lines: u64,
}

/// The read models of a session, from its cache as far as the log vouches for it, and from the log.
/// Changes nothing.
///
/// # Errors
/// When the log cannot be read.
pub fn load_read_models(session: &SessionDirectory) -> Result<Loaded, CacheError> {
    let mut rejected = None;
    match read_cache(&session.place()?) {
        Ok(None) => {}
        Ok(Some(cache)) => match continue_from(session, cache)? {
            Ok(loaded) => return Ok(loaded),
            Err(reason) => rejected = Some(reason),
        },
        Err(reason) => rejected = Some(reason),
    }
    let mut loaded = Loaded {
        models: ReadModels::default(),
        cached_up_to: None,
        rejected,
        damaged_lines: 0,
    };
    for item in session.reader()? {
        let item = item?;
        loaded.damaged_lines += u64::from(item.damage.is_some());
        if let Some(event) = &item.event {
            loaded.models.fold(event);
        }
    }
    Ok(loaded)
}

/// Writes the cache of a session that is open for writing, and records it.
///
/// # Errors
/// When the event could not be appended. A cache that cannot be written is not an error: the log
/// is enough.
pub fn store_read_models(writer: &SessionWriter, models: &ReadModels) -> Result<bool, CacheError> {
    let head = writer.head();
    if models.next_sequence() != head.next_sequence || head.next_sequence == 0 {
        return Ok(false);
    }
    let Ok(text) = serde_json::to_string(&CacheText {
        format: FORMAT.into(),
        next_sequence: head.next_sequence,
        bytes: head.bytes,
        hash: agent_text::hex(&head.hash).into(),
        models,
    }) else {
        return Ok(false);
    };
    let written = Place::open(writer.directory())
        .and_then(|place| place.child_or_create(CACHE))
        .and_then(|cache| cache.replace_unsynced(FILE, text.as_bytes()));
    if written.is_err() {
        return Ok(false);
    }
    let updated = SnapshotUpdated {
        name: NAME.into(),
        path: format!("{CACHE}/{FILE}"),
        sha256: agent_text::sha256_hex(text.as_bytes()),
        as_of_sequence: head.next_sequence - 1,
    };
    writer.append(&Scope::default(), updated, Refs::default())?;
    Ok(true)
}

/// Records that a cache disagreed with the log, after [`load_read_models`] said so.
///
/// # Errors
/// As [`SessionWriter::append`].
pub fn record_repair(writer: &SessionWriter, loaded: &Loaded) -> Result<bool, CacheError> {
    let Some(reason) = &loaded.rejected else {
        return Ok(false);
    };
    let repaired = SnapshotRepaired {
        name: NAME.into(),
        reason: reason.clone(),
        as_of_sequence: writer.head().next_sequence.saturating_sub(1),
    };
    writer.append(&Scope::default(), repaired, Refs::default())?;
    Ok(true)
}

/// Brings the cache of a session up to date for whoever leaves it: records that one that was there
/// disagreed with the log, and writes another when there is enough that it spares.
///
/// # Errors
/// When the log cannot be read or written.
pub fn refresh_read_models(writer: &SessionWriter) -> Result<(), CacheError> {
    let session = SessionDirectory::at(writer.directory())?;
    let is_short = writer.head().next_sequence < WORTH_A_CACHE;
    let has_cache = session
        .place()
        .and_then(|place| place.child(CACHE))
        .is_ok_and(|cache| cache.read(FILE).is_ok());
    if is_short && !has_cache {
        return Ok(());
    }
    let mut loaded = load_read_models(&session)?;
    if record_repair(writer, &loaded)? {
        // Said once is enough, also when there is too little for another one.
        let cache = session.place()?.child(CACHE);
        let _ = cache.and_then(|cache| cache.remove_file(FILE));
        // The event that says so belongs to what is cached.
        loaded = load_read_models(&session)?;
    }
    let spared = loaded.cached_up_to.unwrap_or(0);
    if writer.head().next_sequence.saturating_sub(spared) >= WORTH_A_CACHE {
        store_read_models(writer, &loaded.models)?;
    }
    Ok(())
}

struct Cache {
    head: Head,
    sha256: String,
    models: ReadModels,
}

/// The file of the cache.
#[derive(Serialize, Deserialize)]
struct CacheText<'a, M> {
    format: Cow<'a, str>,
    next_sequence: u64,
    bytes: u64,
    hash: Cow<'a, str>,
    models: M,
}

/// Reads the cache file; an error says why it is not one.
fn read_cache(place: &Place) -> Result<Option<Cache>, String> {
    let file = match place.child(CACHE).and_then(|cache| cache.read(FILE)) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    let read = file.take(MOST_BYTES).read_to_end(&mut text);
    read.map_err(|error| format!("the cache cannot be read: {error}"))?;
    let broken = || "the cache is not readable".to_owned();
    let whole = std::str::from_utf8(&text).map_err(|_| broken())?;
    // The models are read when it is known that they are of this version.
    let read: CacheText<'_, &RawValue> = serde_json::from_str(whole).map_err(|_| broken())?;
    if read.format != FORMAT {
        return Err("the cache was written by another version".into());
    }
    let hash = agent_text::hex::from_hex(read.hash.as_bytes()).ok_or_else(broken)?;
    let models = serde_json::from_str(read.models.get()).map_err(|_| broken())?;
    Ok(Some(Cache {
        head: Head {
            next_sequence: read.next_sequence,
            hash,
            bytes: read.bytes,
        },
        sha256: agent_text::sha256_hex(&text),
        models,
    }))
}

/// Folds what came after the cache; says why not when the log does not vouch for it.
fn continue_from(
    session: &SessionDirectory,
    cache: Cache,
) -> Result<Result<Loaded, String>, CacheError> {
    let path = session.log_path();
    let mut log = session.open_log()?;
    let read_error = |source| ReadError {
        path: path.clone(),
        source,
    };
    // The last line the cache covers has to be where it was, and what it was.
    let size = log.seek(SeekFrom::End(0)).map_err(read_error)?;
    let look = cache
        .head
        .bytes
        .min(2 * (agent_protocol::MAX_LINE_BYTES as u64 + 1));
    if size < cache.head.bytes || look == 0 {
        return Ok(Err("the log is shorter than the cache says".into()));
    }
    log.seek(SeekFrom::Start(cache.head.bytes - look))
        .map_err(read_error)?;
    let mut before = Lines::new((&log).take(look));
    let mut last = None;
    while let Some(line) = before.next_line().map_err(read_error)? {
        last = line.is_terminated.then(|| line.hash());
    }
    if last != Some(cache.head.hash) {
        return Ok(Err("the log has another line where the cache ends".into()));
    }
    log.seek(SeekFrom::Start(cache.head.bytes))
        .map_err(read_error)?;
    let mut loaded = Loaded {
        cached_up_to: cache.head.next_sequence.checked_sub(1),
        models: cache.models,
        rejected: None,
        damaged_lines: 0,
    };
    let mut is_vouched_for = false;
    for item in LogReader::continuing(log, session.id().clone(), path.clone(), cache.head) {
        let item = item?;
        loaded.damaged_lines += u64::from(item.damage.is_some());
        if let Some(event) = &item.event {
            if let Payload::SnapshotUpdated(updated) = &event.payload {
                is_vouched_for |= updated.name == NAME && updated.sha256 == cache.sha256;
            }
            loaded.models.fold(event);
        }
    }
    if !is_vouched_for {
        return Ok(Err("no event of the log names this cache".into()));
    }
    Ok(Ok(loaded))
}
