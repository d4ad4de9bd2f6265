//! A question that costs nothing: which models an endpoint lists. It shows that the server is there and
//! takes the key.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::HeaderValue;
use serde_json::Value;
use tokio::time::timeout;

use super::{HttpProvider, connection_error, slow};
use crate::error::{ModelError, escape_bounded};
use crate::hint::hint;

/// The most bytes of a list that are read; a reseller lists thousands of models.
const LIST_CAP: usize = 8 << 20;

/// Answer of a server that was asked for its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// These models, in its own order.
    Listed(Vec<String>),
    /// It refuses the key, or wants one.
    Unauthorised(u16),
    /// It answered with this status, and not with a list; not every server has one.
    Answered(u16),
}

impl HttpProvider {
    /// Asks the server for its models, once.
    ///
    /// # Errors
    /// When no server answers within `patience`, or the connection cannot be made.
    pub async fn list_models(&self, patience: Duration) -> Result<Reached, ModelError> {
        let asked = timeout(patience, self.ask_for_models()).await;
        asked
            .unwrap_or_else(|_| Err(slow("no list of models", patience)))
            .map_err(|mut error| {
                self.censor(&mut error);
                error.hint = hint(&error, &self.endpoint, "");
                error
            })
    }

    async fn ask_for_models(&self) -> Result<Reached, ModelError> {
        let mut url = self.url.clone();
        let path = url.path();
        let base = path.strip_suffix(self.endpoint.dialect.path());
        url.set_path(&format!("{}/models", base.unwrap_or(path)));
        let mut headers = self.headers.clone();
        headers.remove("content-type");
        headers.insert("accept", HeaderValue::from_static("application/json"));
        let request = self.client()?.get(url).headers(headers);
        let response = request.send().await;
        let response = response.map_err(|error| connection_error(&error))?;
        let status = response.status().as_u16();
        if matches!(status, 401 | 403) {
            return Ok(Reached::Unauthorised(status));
        }
        if !response.status().is_success() {
            return Ok(Reached::Answered(status));
        }
        let mut body = response.bytes_stream();
        let mut bytes = Vec::new();
        while let Some(Ok(piece)) = body.next().await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > LIST_CAP {
                break;
            }
        }
        Ok(match names(&bytes) {
            Some(models) => Reached::Listed(models),
            None => Reached::Answered(status),
        })
    }
}

/// The ids of a list, as every dialect has them.
fn names(bytes: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(bytes).ok()?;
    let entries = list.get("data")?.as_array()?.iter();
    let ids = entries.filter_map(|entry| entry.get("id")?.as_str());
    Some(ids.map(escape_bounded).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_is_one() {
        let check = |text: &str, expected: Option<&[&str]>| {
            let found = names(text.as_bytes());
            let expected = expected.map(|ids| ids.iter().map(ToString::to_string).collect());
            assert_eq!(found, expected, "{text}");
        };
        check(
            r#"{"data":[{"id":"a"},{"id":"b"},{"no":1}]}"#,
            Some(&["a", "b"]),
        );
        check(r#"{"data":[]}"#, Some(&[]));
        check(r#"{"data":"x"}"#, None);
        check("<html>", None);
    }
}
