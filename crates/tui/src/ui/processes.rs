//! Background commands on the screen: the list of them, and the output of one, which is looked at again while it
//! runs.

use agent_protocol::id::ProcessId;

use super::overlay::{Choices, Overlay, Picker, Reader, Scroll};
use super::{Effect, Ui};
use crate::host::{Document, HostRequest, ProcessLine, ProcessRequest};

/// Milliseconds between two looks at an output.
const LOOK_AGAIN_MS: u64 = 1000;

impl Ui {
    /// `/ps`, with what stands behind it.
    pub(crate) fn processes(&mut self, arguments: &str) -> Vec<Effect> {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let request = match words.as_slice() {
            [] => ProcessRequest::List,
            ["stop" | "kill", name] => ProcessRequest::Stop((*name).to_owned()),
            [name] => ProcessRequest::Tail((*name).to_owned()),
            _ => {
                let text = "/ps takes nothing, a number, or `stop` and a number";
                self.state.say(crate::state::cell::NoticeLevel::Error, text);
                return Vec::new();
            }
        };
        vec![Effect::Host(HostRequest::Processes(request))]
    }

    pub(super) fn list_processes(&mut self, processes: Vec<ProcessLine>) {
        let running = self.state.facts.background.len();
        let title = format!("background commands · {running} running");
        let picker = Picker::new(&title, Choices::Processes(processes));
        self.overlay = Some(Overlay::Picker(picker));
    }

    /// Shows an output. Where its end was in view, its end stays in view.
    pub(super) fn show_tail(
        &mut self,
        process_id: ProcessId,
        (is_running, is_again): (bool, bool),
        document: Document,
    ) {
        let shown = match &self.overlay {
            Some(Overlay::Reader(reader)) => {
                reader.watched.as_ref().map(|(id, _)| (id, reader.scroll))
            }
            _ => None,
        };
        let shown = shown.filter(|(id, _)| **id == process_id);
        if is_again && shown.is_none() {
            return;
        }
        let at_end = Scroll {
            at: usize::MAX,
            last: usize::MAX,
            page: 0,
        };
        let scroll = shown.map(|(_, scroll)| scroll);
        let scroll = scroll
            .filter(|scroll| scroll.at < scroll.last)
            .unwrap_or(at_end);
        let next = self.now + LOOK_AGAIN_MS;
        self.overlay = Some(Overlay::Reader(Reader {
            document,
            scroll,
            watched: Some((process_id, if is_running { next } else { u64::MAX })),
        }));
    }

    /// When the output on the screen is to be looked at again.
    pub(super) fn next_look(&self) -> Option<u64> {
        match &self.overlay {
            Some(Overlay::Reader(reader)) => {
                let (_, at) = reader.watched.as_ref()?;
                (*at != u64::MAX).then_some(*at)
            }
            _ => None,
        }
    }

    /// Asks for the output on the screen, if it is time.
    pub(super) fn look_again(&mut self) -> Vec<Effect> {
        let now = self.now;
        let Some(Overlay::Reader(reader)) = &mut self.overlay else {
            return Vec::new();
        };
        match &mut reader.watched {
            Some((process_id, at)) if *at <= now => {
                *at = now + LOOK_AGAIN_MS;
                let request = ProcessRequest::TailAgain(process_id.clone());
                vec![Effect::Host(HostRequest::Processes(request))]
            }
            _ => Vec::new(),
        }
    }

    /// Stops the command whose output is on the screen.
    pub(crate) fn stop_watched(&self, reader: &Reader) -> Vec<Effect> {
        let watched = reader.watched.as_ref();
        let running = watched.filter(|(_, at)| *at != u64::MAX);
        let stop = running.map(|(id, _)| ProcessRequest::Stop(id.to_string()));
        stop.map(|stop| Effect::Host(HostRequest::Processes(stop)))
            .into_iter()
            .collect()
    }
}
