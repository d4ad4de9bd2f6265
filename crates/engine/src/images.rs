//! Images in a conversation: kept as artifacts, sent as `data:` addresses, never fetched.

use std::sync::Arc;

use agent_provider::conversation::{Image, Message, UserPart};

/// What stands in place of an image for a model that can see none.
const NOT_SHOWN: &str = "[an image is here that this model cannot see]";

/// The image as the model gets it.
pub(crate) fn data_url(media_type: &str, bytes: &[u8]) -> String {
    use base64::Engine as _;
    format!(
        "data:{media_type};base64,{}",
        base64::engine::general_purpose::STANDARD.encode(bytes)
    )
}

/// Puts words in place of every image; gives back how many there were.
pub(crate) fn leave_out(messages: &mut [Arc<Message>]) -> usize {
    let mut count = 0;
    for message in messages {
        let Message::User(parts) = &**message else {
            continue;
        };
        let images = parts.iter();
        let images = images.filter(|part| matches!(part, UserPart::Image(_)));
        let found = images.count();
        if found == 0 {
            continue;
        }
        count += found;
        let words = parts.iter().map(|part| match part {
            UserPart::Image(_) => UserPart::Text(NOT_SHOWN.to_owned()),
            UserPart::Text(text) => UserPart::Text(text.clone()),
        });
        *message = Arc::new(Message::User(words.collect()));
    }
    count
}

/// The part of a user message that carries it.
pub(crate) fn part(url: &str) -> UserPart {
    UserPart::Image(Image {
        url: url.to_owned(),
        detail: None,
    })
}
