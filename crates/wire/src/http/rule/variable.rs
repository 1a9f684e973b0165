/// Field of the request whose value is in the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Names of the field and of the messages around it, the outermost first.
    pub field: Vec<String>,
    /// Number of wildcards that belong to it: 0 if all of its value is given.
    pub wildcards: usize,
    /// Whether its last wildcard stands for any number of segments (`**`).
    pub rest: bool,
}
