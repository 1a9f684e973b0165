use crate::config::{Rule, RuleAction};

/// Differences to ignore, by path.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// Returns the first rule that matches a path.
    pub(super) fn action_for(&self, path: &str) -> Option<&RuleAction> {
        let rule = self.0.iter().find(|rule| !rule.action.is_rename() && rule.path.matches(path))?;
        Some(&rule.action)
    }

    /// Whether a rule ignores what is compared besides the message, such as `(status)`. Only its own name does: a
    /// pattern of members, such as `*`, is not meant for it.
    pub(crate) fn ignores_outside_message(&self, name: &str) -> bool {
        let is_of_it = |rule: &&Rule| rule.path.exact() == Some(name);
        self.0.iter().find(is_of_it).is_some_and(|rule| rule.action == RuleAction::Ignore)
    }

    /// Returns the name of a member in the other server's answers.
    pub(super) fn new_name(&self, path: &str) -> Option<&str> {
        self.0.iter().filter(|rule| rule.path.matches(path)).find_map(|rule| match &rule.action {
            RuleAction::Rename(name) => Some(name.as_str()),
            _ => None,
        })
    }
}
