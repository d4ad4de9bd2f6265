//! A pasted web address: said to be something the model can fetch, where it can.

use super::Ui;

impl Ui {
    pub(super) fn offer_address(&mut self, pasted: &str) {
        let mut tools = self.state.facts.tools.iter();
        if let Some(tool) = tools.find(|tool| tool.fetches)
            && is_address(pasted)
        {
            let name = tool.name.clone();
            self.hint(format!(
                "the model can read this page with {name}; it asks first"
            ));
        }
    }
}

/// True for one address of a page and nothing else.
fn is_address(text: &str) -> bool {
    let text = text.trim();
    let host = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    host.is_some_and(|host| host.starts_with(char::is_alphanumeric))
        && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Settings;
    use crate::state::ToolLine;

    #[track_caller]
    fn check(pasted: &str, fetches: bool, expected: bool) {
        let mut ui = Ui::new(Settings::default());
        ui.state.facts.tools = vec![ToolLine {
            name: "fetch".to_owned(),
            policy: String::new(),
            description: String::new(),
            fetches,
        }];
        ui.paste(pasted);
        assert_eq!(ui.hint.is_some(), expected, "{pasted}");
        assert_eq!(ui.composer.editor.text(), pasted);
    }

    #[test]
    fn an_address_is_offered_only_where_it_can_be_fetched() {
        check("https://docs.rs/serde", true, true);
        check("https://docs.rs/serde", false, false);
        check("see https://docs.rs/serde", true, false);
        check("https://", true, false);
        check("ftp://x.org", true, false);
    }
}
