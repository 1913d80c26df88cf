//! The arguments of every command as COMMAND DOCS describes them. Not which values they get.

use wire::resp::Value;

use crate::cluster::text;

/// One argument, or a choice or a row of them.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) token: Option<String>,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
    /// Each of several has the token in front of it.
    pub(crate) multiple_token: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// By the name of its type.
    Leaf(String),
    OneOf(Vec<Argument>),
    Block(Vec<Argument>),
}

/// A command or subcommand, `config|get`.
#[derive(Clone, Debug)]
pub(crate) struct Documented {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) arguments: Vec<Argument>,
}

/// All that stand for themselves, by name, out of the reply to COMMAND DOCS.
pub(crate) fn commands(docs: &Value) -> Vec<Documented> {
    let mut found = Vec::new();
    add(docs, &mut found);
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn add(docs: &Value, found: &mut Vec<Documented>) {
    for (name, doc) in pairs(docs) {
        let fields = pairs(doc);
        let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
        match field("subcommands") {
            Some(subcommands) => add(subcommands, found),
            None => found.push(Documented {
                name,
                group: field("group").map(text).expect("a group"),
                arguments: field("arguments").map(arguments).unwrap_or_default(),
            }),
        }
    }
}

fn arguments(value: &Value) -> Vec<Argument> {
    value.elements().expect("a list of arguments").iter().map(argument).collect()
}

fn argument(value: &Value) -> Argument {
    let fields = pairs(value);
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
    let flags: Vec<String> =
        field("flags").and_then(Value::elements).unwrap_or_default().iter().map(text).collect();
    let has = |flag: &str| flags.iter().any(|own| own == flag);
    let kind = match field("type").map(text).expect("a type").as_str() {
        "oneof" => Kind::OneOf(arguments(field("arguments").expect("a choice"))),
        "block" => Kind::Block(arguments(field("arguments").expect("a row"))),
        leaf => Kind::Leaf(leaf.to_owned()),
    };
    Argument {
        name: field("name").map(text).expect("a name"),
        kind,
        token: field("token").map(text),
        optional: has("optional"),
        multiple: has("multiple"),
        multiple_token: has("multiple_token"),
    }
}

/// RESP2's flat form of a map.
fn pairs(value: &Value) -> Vec<(String, &Value)> {
    let elements = value.elements().expect("a map");
    elements.chunks(2).map(|pair| (text(&pair[0]), &pair[1])).collect()
}
