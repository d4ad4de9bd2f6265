//! Images in a conversation: kept as artifacts, sent as `data:` addresses, never fetched.

use agent_provider::conversation::{Image, UserPart};

/// The image as the model gets it.
pub(crate) fn data_url(media_type: &str, bytes: &[u8]) -> String {
    use base64::Engine as _;
    format!(
        "data:{media_type};base64,{}",
        base64::engine::general_purpose::STANDARD.encode(bytes)
    )
}

/// The part of a user message that carries it.
pub(crate) fn part(url: &str) -> UserPart {
    UserPart::Image(Image {
        url: url.to_owned(),
        detail: None,
    })
}
