//! The tags of a page: what each means to a reader, and which hide what is in them.

use std::collections::BTreeMap;

use html5gum::HtmlString;
use html5gum::emitters::default::StartTag;

/// A tag that changes how what is in it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Paragraph,
    Heading(u8),
    /// Begins and ends a line.
    Block,
    Main,
    List,
    Numbered,
    Item,
    Quote,
    Preformatted,
    Table,
    Row,
    Cell,
    Code,
    Strong,
    Link,
    Title,
}

pub(crate) fn kind(name: &[u8]) -> Option<Kind> {
    Some(match name {
        b"p" => Kind::Paragraph,
        b"h1" => Kind::Heading(1),
        b"h2" => Kind::Heading(2),
        b"h3" => Kind::Heading(3),
        b"h4" => Kind::Heading(4),
        b"h5" | b"h6" => Kind::Heading(5),
        b"main" | b"article" => Kind::Main,
        b"ul" | b"menu" | b"dl" => Kind::List,
        b"ol" => Kind::Numbered,
        b"li" | b"dt" | b"dd" => Kind::Item,
        b"blockquote" => Kind::Quote,
        b"pre" | b"listing" | b"xmp" | b"plaintext" => Kind::Preformatted,
        b"table" => Kind::Table,
        b"tr" => Kind::Row,
        b"td" | b"th" => Kind::Cell,
        b"code" | b"kbd" | b"samp" | b"tt" => Kind::Code,
        b"strong" | b"b" => Kind::Strong,
        b"a" => Kind::Link,
        b"title" => Kind::Title,
        b"div" | b"section" | b"header" | b"footer" | b"nav" | b"aside" | b"address"
        | b"figure" | b"figcaption" | b"form" | b"fieldset" | b"details" | b"summary"
        | b"caption" | b"body" | b"center" | b"hgroup" | b"search" | b"legend" | b"dialog" => {
            Kind::Block
        }
        _ => return None,
    })
}

/// Tags whose content nobody reads as text.
pub(crate) const UNREAD: &[&[u8]] = &[
    b"script",
    b"style",
    b"template",
    b"noscript",
    b"svg",
    b"math",
    b"iframe",
    b"object",
    b"canvas",
    b"video",
    b"audio",
    b"select",
    b"datalist",
    b"textarea",
    b"noembed",
    b"noframes",
    b"map",
];

/// Tags without content.
pub(crate) const EMPTY: &[&[u8]] = &[
    b"area", b"base", b"br", b"col", b"embed", b"hr", b"img", b"input", b"link", b"meta", b"param",
    b"source", b"track", b"wbr",
];

/// Ways in which the `style` of a tag hides it, without blanks.
const HIDING: &[&str] = &[
    "display:none",
    "visibility:hidden",
    "visibility:collapse",
    "opacity:0;",
    "opacity:0.0",
    "font-size:0",
    "left:-9",
    "top:-9",
    "text-indent:-9",
    "clip:rect(0",
    "clip:rect(1px",
    "clip-path:inset(50%",
    "clip-path:inset(100%",
    "transform:scale(0)",
];

pub(crate) type Attributes = BTreeMap<HtmlString, html5gum::Spanned<HtmlString, ()>>;

pub(crate) fn attribute<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a [u8]> {
    attributes
        .get(name.as_bytes())
        .map(|value| &value.value[..])
}

pub(crate) fn is_hidden(tag: &StartTag<()>) -> bool {
    if tag.attributes.is_empty() {
        return *tag.name == b"dialog";
    }
    let attribute = |name| attribute(&tag.attributes, name);
    let is = |name, value: &[u8]| attribute(name).is_some_and(|is| is.eq_ignore_ascii_case(value));
    let style = attribute("style").is_some_and(|style| {
        let mut style = String::from_utf8_lossy(style).to_ascii_lowercase();
        style.retain(|sign| !sign.is_whitespace());
        style.push(';');
        // `font-size:0.9em` is small, not hidden.
        let hides = |way: &&str| match style.split_once(*way) {
            Some((_, rest)) => !(way.ends_with('0') && rest.starts_with(['.', '1', '2', '3'])),
            None => false,
        };
        HIDING.iter().any(hides)
    });
    attribute("hidden").is_some()
        || is("aria-hidden", b"true")
        || style
        || *tag.name == b"dialog" && attribute("open").is_none()
}

/// The language that a class names: `language-rust`, `lang-rust`, `highlight-source-rust`.
pub(crate) fn language(class: &[u8]) -> Option<String> {
    let class = std::str::from_utf8(class).ok()?;
    let named = class.split_ascii_whitespace().find_map(|word| {
        let prefixes = ["language-", "lang-", "highlight-source-"];
        prefixes.iter().find_map(|prefix| word.strip_prefix(prefix))
    })?;
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || "+#-_".contains(sign);
    (named.len() <= 20 && named.chars().all(is_word)).then(|| named.to_owned())
}
