use crate::config::{Rule, RuleAction};

/// Differences to ignore, by path.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// Returns the first rule that matches a path.
    pub(super) fn at(&self, path: &str) -> Option<&RuleAction> {
        let rule = self.0.iter().find(|rule| !rule.action.is_rename() && rule.path.matches(path))?;
        Some(&rule.action)
    }

    /// Returns the name of a member in the other server's answers.
    pub(super) fn renamed(&self, path: &str) -> Option<&str> {
        self.0.iter().filter(|rule| rule.path.matches(path)).find_map(|rule| match &rule.action {
            RuleAction::Rename(name) => Some(name.as_str()),
            _ => None,
        })
    }
}
