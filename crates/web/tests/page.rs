//! Pages as Markdown: what a reader sees, and nothing of what they do not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure is the report

use agent_policy::WebAddress;
use agent_web::markdown;
use proptest::prelude::*;

fn read(html: &str) -> String {
    let address = WebAddress::parse("https://docs.example/guide/page.html").unwrap();
    markdown(html, &address).text
}

fn check(html: &str, expected: &str) {
    assert_eq!(read(html), expected, "{html}");
}

#[test]
fn a_page_is_read_in_order() {
    check(
        "<html><head><title>T</title></head><body><h1>Guide</h1><p>One  two\nthree<br>four</p><h2>Next</h2><div>a</div>\
         <div>b</div><hr>end",
        "# Guide\n\nOne two three\nfour\n\n## Next\n\na\nb\n\n---\n\nend",
    );
    check("<p>a<p>b", "a\n\nb");
    check(
        "<p>x &lt;y&gt; &amp;&nbsp;z &eacute; &#x41;</p>",
        "x <y> &\u{a0}z é A",
    );
    check(
        "<p>a <b>bold</b>, <code>x y</code> and <b> </b>c",
        "a **bold**, `x y` and c",
    );
    check(
        "<a href='/x'>up</a> <a href='other.html#y'>o</a> <a href='#z'>here</a> <a href='javascript:x()'>js</a> \
         <a href='mailto:a@b'>m</a> <a href='/e'></a>.",
        "[up](https://docs.example/x) [o](https://docs.example/guide/other.html) here js m .",
    );
    check(
        "<p>a<img src=x alt='A plot'>b<img src=y alt=''>",
        "a[image: A plot]b",
    );
}

#[test]
fn lists_quotations_and_programs_keep_their_form() {
    check(
        "<p>x</p><ul><li>one<li>two<ul><li>in</ul></li><li><p>three</p></ul><p>after",
        "x\n\n- one\n- two\n  - in\n- three\n\nafter",
    );
    check("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b");
    check(
        "<blockquote><p>a</p><p>b</p></blockquote>c",
        "> a\n>\n> b\n\nc",
    );
    check(
        "<pre class='x language-rust'><code>fn main() {\n\n    <span>x</span>(\"`\");\n}\n</code></pre>y",
        "```rust\nfn main() {\n\n    x(\"`\");\n}\n```\n\ny",
    );
    check("<pre>a\n```\nb</pre>", "````\na\n```\nb\n````");
}

#[test]
fn tables_are_rows() {
    check(
        "<table><thead><tr><th>n</th><th>what</th></tr></thead><tbody><tr><td>1<td>a <b>b</b> | c<p>d</p><tr><td>2<td></table>z",
        "| n | what |\n| --- | --- |\n| 1 | a **b** \\| c d |\n| 2 | |\n\nz",
    );
    // One that holds a program is there for its looks.
    let read = read("<table><tr><td><pre>1\n2</pre><td><pre>a\n  b</pre></table>");
    assert!(read.contains("```\na\n  b\n```"), "{read}");
}

#[test]
fn what_nobody_sees_is_not_shown() {
    for hidden in [
        "<script>SECRET</script>",
        "<style>SECRET</style>",
        "<!-- SECRET -->",
        "<template><p>SECRET</template>",
        "<noscript>SECRET</noscript>",
        "<svg><title>SECRET</title><text>SECRET</text></svg>",
        "<p hidden>SECRET</p>",
        "<div hidden=until-found><div>SECRET</div>SECRET</div>",
        "<span aria-hidden=TRUE>SECRET <span>SECRET</span> SECRET</span>",
        "<div style='Display : none'>SECRET<p>SECRET</div>",
        "<span style='font-size:0px'>SECRET</span>",
        "<span style='color:red;opacity:0'>SECRET</span>",
        "<span style='position:absolute;left:-9999px'>SECRET</span>",
        "<x-thing hidden><b>SECRET</b></x-thing>",
        "<a href='/SECRET' hidden>SECRET</a>",
        "<select><option>SECRET</select>",
        "<textarea>SECRET</textarea>",
        "<iframe>SECRET</iframe>",
        "<dialog>SECRET</dialog>",
        "<input type=hidden value=SECRET>",
        "<meta name=description content=SECRET>",
        "<img src=SECRET style='display:none' alt=SECRET>",
        "<title>x</title><title>SECRET</title>",
    ] {
        check(
            &format!("<p>before</p>{hidden}<p>after</p>"),
            "before\n\nafter",
        );
    }
    check(
        "<span style='font-size:0.9em; opacity:0.5'>small</span>",
        "small",
    );
    check("<p hidden>SECRET<p>after", "after");
    check("<dialog open>a</dialog>", "a");
}

#[test]
fn the_main_part_is_enough_where_there_is_one() {
    let words = "word ".repeat(100);
    let page = format!(
        "<title> A  page </title><nav>menu</nav><main><h1>Top</h1><p>{words}</main><footer>foot</footer>"
    );
    let address = WebAddress::parse("https://docs.example/").unwrap();
    let page = markdown(&page, &address);
    assert_eq!(page.title.as_deref(), Some("A page"));
    assert!(page.text.starts_with("# Top\n\nword") && page.text.ends_with("word"));
    assert!(page.beside > 8, "{}", page.beside);
    check(
        "<nav>menu</nav><main>little</main><footer>foot</footer>",
        "menu\n\nlittle\n\nfoot",
    );
}

#[test]
fn what_is_out_of_all_measure_is_read_all_the_same() {
    let deep = format!(
        "{}x{}",
        "<div><ul><li><b>".repeat(50_000),
        "</b></li></ul></div>".repeat(50_000)
    );
    assert_eq!(read(&deep).matches('x').count(), 1);
    let quotes = format!("{}{}", "<blockquote>".repeat(5_000), "<p>a".repeat(20_000));
    assert!(read(&quotes).len() < 2_000_000);
    let ends = "</p></table></a>".repeat(100_000);
    assert_eq!(read(&ends), "");
    let attributes = format!("<p {}>x", "a b=c ".repeat(50_000));
    assert_eq!(read(&attributes), "x");
    let cells = format!("<table><tr>{}", "<td>a".repeat(20_000));
    assert_eq!(read(&cells).matches('a').count(), 20_000);
}

/// A page as a tree, with what a reader would see of it.
#[derive(Clone, Debug)]
enum Node {
    Word(u32),
    Tag(&'static str, Vec<Node>),
    Hidden(&'static str, Vec<Node>),
}

/// Without `main` and `article`: with enough text in them they are all that is shown.
const TAGS: &[&str] = &[
    "div",
    "section",
    "p",
    "ul",
    "ol",
    "li",
    "blockquote",
    "span",
    "b",
    "code",
    "em",
    "h2",
    "table",
    "tr",
    "td",
    "header",
    "x-y",
    "a href='/l'",
    "pre",
];
const HIDDEN: &[&str] = &[
    "div hidden",
    "span style='display:none'",
    "section aria-hidden='true'",
    "template",
    "svg",
];

fn node() -> impl Strategy<Value = Node> {
    let word = any::<u32>().prop_map(Node::Word);
    word.prop_recursive(6, 60, 6, |inner| {
        let inner = prop::collection::vec(inner, 0..6);
        prop_oneof![
            4 => (prop::sample::select(TAGS), inner.clone()).prop_map(|(tag, inner)| Node::Tag(tag, inner)),
            1 => (prop::sample::select(HIDDEN), inner).prop_map(|(tag, inner)| Node::Hidden(tag, inner)),
        ]
    })
}

fn write(node: &Node, html: &mut String) {
    match node {
        Node::Word(word) => html.push_str(&format!(" w{word}w ")),
        Node::Tag(tag, inner) | Node::Hidden(tag, inner) => {
            html.push_str(&format!("<{tag}>"));
            for node in inner {
                write(node, html);
            }
            let name = tag.split(' ').next().unwrap();
            html.push_str(&format!("</{name}>"));
        }
    }
}

fn seen(node: &Node, words: &mut Vec<String>) {
    match node {
        Node::Word(word) => words.push(format!("w{word}w")),
        Node::Tag(_, inner) => inner.iter().for_each(|node| seen(node, words)),
        Node::Hidden(..) => {}
    }
}

proptest! {
    /// Every word that is seen comes once and in order; none that is hidden does.
    #[test]
    fn exactly_what_is_seen_is_shown(nodes in prop::collection::vec(node(), 0..8)) {
        let (mut html, mut expected) = (String::new(), Vec::new());
        for node in &nodes {
            write(node, &mut html);
            seen(node, &mut expected);
        }
        let text = read(&html);
        let words = text.split(|sign: char| !sign.is_ascii_alphanumeric());
        let is_word = |word: &&str| word.len() > 2 && word.starts_with('w') && word.ends_with('w');
        let found: Vec<String> = words.filter(is_word).map(str::to_owned).collect();
        prop_assert_eq!(found, expected, "{}\n{}", html, text);
    }

    /// Whatever the bytes are, they are read, and not to many more.
    #[test]
    fn any_page_is_read(parts in prop::collection::vec(prop_oneof![
        prop::sample::select(&["<", ">", "</", "<!--", "-->", "<p", "<pre>", "<table><tr><td>", "</td>", "<li>", "<ul>",
            "<script>", "</script>", "<a href=x>", "</a>", "`", "|", "&#0;", "\u{202e}", "<main>", "</main>", "<b>",
            "hidden", " ", "\n", "'", "\"", "=", "<title>", "<svg/>", "<blockquote>"][..]).prop_map(str::to_owned),
        any::<String>(),
    ], 0..60)) {
        let html = parts.concat();
        let text = read(&html);
        prop_assert!(text.len() <= 40 * html.len() + 100, "{} of {}", text.len(), html.len());
    }
}
