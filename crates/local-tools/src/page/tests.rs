use super::*;
use std::os::unix::fs::FileExt;

const ALL: Window = Window {
    offset: 0,
    column: 0,
    limit: 2_000,
    characters: 28_000,
};

fn page(content: &[u8], window: Window) -> Page {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(content, 0).unwrap();
    read_page(&file, window, &|_| Vec::new()).unwrap()
}

fn check(content: &[u8], window: Window, text: &str, total: u64, omitted: u64) {
    let page = page(content, window);
    assert_eq!(page.text, text);
    assert_eq!((page.total, page.omitted), (Some(total), omitted), "{text}");
    assert_eq!(page.sha256.unwrap(), crate::file::hash_bytes(content));
}

#[test]
fn lines_are_numbered() {
    check(b"", ALL, "", 0, 0);
    check(b"a", ALL, "1\ta\n", 1, 0);
    check(b"a\n", ALL, "1\ta\n", 1, 0);
    check(b"a\r\n\r\nb", ALL, "1\ta\n2\t\n3\tb\n", 3, 0);
    check(b"\xEF\xBB\xBFa\n", ALL, "1\ta\n", 1, 0);
    check(b"\xFF\xFEa\0\r\0\n\0b\0", ALL, "1\ta\n2\tb\n", 2, 0);
    check(b"caf\xE9\n", ALL, "1\tcaf\u{e9}\n", 1, 0);
    let two = Window {
        offset: 1,
        limit: 2,
        ..ALL
    };
    check(b"a\nb\nc\nd\n", two, "2\tb\n3\tc\n", 4, 2);
    let far = Window { offset: 9, ..ALL };
    check(b"a\nb\n", far, "", 2, 0);
}

#[test]
fn long_lines_and_long_pages_are_cut_and_say_so() {
    let long = [vec![b'x'; 5_000], b"\ny\n".to_vec()].concat();
    let page = page(&long, ALL);
    assert!(page.text.starts_with(&format!(
        "1\t{} [line clipped: 3000 more bytes; read on with offset 1, column 2000]\n2\ty\n",
        "x".repeat(2_000)
    )));
    assert_eq!((page.clipped, page.omitted), (1, 3_000));
    let few = Window {
        characters: 10,
        ..ALL
    };
    check(b"aaa\nbbb\nccc\n", few, "1\taaa\n", 3, 8);
}

#[test]
fn a_clipped_line_is_read_to_its_end() {
    let line: String = (0..9_000).map(|number| format!("{number}é,")).collect();
    for (content, unit) in [
        (format!("a\n{line}\r\nend\n").into_bytes(), 1),
        (wide(&format!("a\n{line}\r\nend\n")), 2),
    ] {
        let (mut read, mut column) = (String::new(), 0);
        loop {
            let window = Window {
                offset: 1,
                column,
                ..ALL
            };
            let page = page(&content, window);
            let row = page.text.strip_prefix("2\t").unwrap();
            match page.goes_on {
                Some((1, next)) => {
                    assert!(next > column && next % unit == 0);
                    column = next;
                    read.push_str(row.split(" [line clipped").next().unwrap());
                }
                other => {
                    assert_eq!(other, None);
                    read.push_str(row.strip_suffix("\n3\tend\n").unwrap());
                    break;
                }
            }
        }
        assert!(read == line);
    }
    let inside = Window {
        offset: 0,
        column: 2,
        ..ALL
    };
    assert_eq!(page("aéb\n".as_bytes(), inside).text, "1\tb\n");
    let behind = Window {
        offset: 0,
        column: 20,
        ..ALL
    };
    assert_eq!(page("aéb\nc\n".as_bytes(), behind).text, "1\t\n2\tc\n");
}

fn wide(text: &str) -> Vec<u8> {
    let units = text.encode_utf16().flat_map(u16::to_le_bytes);
    [0xFF, 0xFE].into_iter().chain(units).collect()
}

#[test]
fn a_secret_of_several_lines_is_one_placeholder_wherever_the_page_begins() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(b"one\nk = `AAA\nBBB\nCCC`;\nlast\n", 0)
        .unwrap();
    let secrets = |bytes: &[u8]| {
        let start = memchr::memmem::find(bytes, b"AAA");
        let end = memchr::memmem::find(bytes, b"CCC");
        let place = start
            .zip(end)
            .map(|(start, end)| (start..end + 3, "[x]".to_owned()));
        place.into_iter().collect::<Vec<_>>()
    };
    let check = |offset: u64, limit: u64, expected: &str| {
        let window = Window {
            offset,
            limit,
            ..ALL
        };
        assert_eq!(read_page(&file, window, &secrets).unwrap().text, expected);
    };
    check(0, 9, "1\tone\n2\tk = `[x]`;\n5\tlast\n");
    check(2, 1, "3\t[x]");
    check(2, 9, "3\t[x]`;\n5\tlast\n");
    check(3, 1, "4\t[x]`;\n");
    check(1, 1, "2\tk = `[x]");
}

#[test]
fn a_line_longer_than_a_chunk_is_one_line() {
    let content = [vec![b'z'; CHUNK - 1], b"\r\nend".to_vec()].concat();
    let page = page(&content, ALL);
    assert_eq!((page.total, page.line_ending), (Some(2), "crlf"));
    assert!(!page.ends_with_break);
    assert_eq!(page.clipped, 1);
}

#[test]
fn a_sparse_giant_answers_from_its_first_page() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(5 << 30).unwrap();
    file.write_all_at("line\n".repeat(100_000).as_bytes(), 0)
        .unwrap();
    let page = read_page(&file, Window { limit: 3, ..ALL }, &|_| Vec::new()).unwrap();
    assert_eq!(page.text, "1\tline\n2\tline\n3\tline\n");
    assert_eq!((page.total, page.sha256), (None, None));
    assert_eq!(page.omitted, (5 << 30) - 15);
}
