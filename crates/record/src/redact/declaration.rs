use polyrpc_payload::schema::{Kind, Message, Pool, Spelling};

/// Declaration of a value by the schema, for formats that name their fields (JSON, MessagePack).
#[derive(Debug, Clone, Copy)]
pub(super) struct Declaration<'s> {
    pool: &'s Pool,
    kind: Kind,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    List,
    Map,
}

impl<'s> Declaration<'s> {
    /// Returns the declaration of a message. `positional`: it is the argument in a list of arguments.
    pub(super) fn of_message(message: &'s Message, positional: bool) -> Self {
        let form = if positional { Form::List } else { Form::One };
        Self { pool: message.pool(), kind: Kind::Message(message.id()), form }
    }

    /// Returns the type of the value, or of its elements or entries.
    pub(super) fn kind(self) -> Kind {
        self.kind
    }

    /// Returns the declaration of a member of an object. `None` if it is not declared.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        let message = self.pool.message_at(self.kind.message()?);
        let field = match self.form {
            Form::One => {
                let spelled = |spelling| message.index_spelled(spelling, name, usize::MAX);
                let index = [Spelling::Json, Spelling::Brpc, Spelling::Go].into_iter().find_map(spelled)?;
                message.fields().get(index as usize)?
            }
            Form::Map => message.field(2)?,
            Form::List => return None,
        };
        let form = match () {
            () if field.is_map() => Form::Map,
            () if field.is_repeated() => Form::List,
            () => Form::One,
        };
        Some(Self { kind: field.kind(), form, ..self })
    }

    /// Returns the declaration of an element of a list. brpc writes a map as the list of its entries unless its keys are
    /// texts.
    pub(super) fn item(self) -> Option<Self> {
        (self.form != Form::One).then_some(Self { form: Form::One, ..self })
    }
}

/// Whether values are whole numbers; those of enums are names.
pub(super) fn is_whole_number(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Fixed32
            | Kind::Fixed64
            | Kind::Sfixed32
            | Kind::Sfixed64
    )
}
