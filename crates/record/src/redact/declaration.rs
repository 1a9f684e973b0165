use polyrpc_payload::schema::{Field, Kind, Message, MessageType, Pool, Spelling, WellKnown};

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
    /// A value of any type: a `google.protobuf.Struct`, `Value` or `ListValue`, or a part of one.
    Dynamic,
}

impl<'s> Declaration<'s> {
    /// Returns the declaration of a message. `positional`: it is the argument in a list of arguments.
    pub(super) fn of_message(message: &'s Message, positional: bool) -> Self {
        let kind = Kind::Message(message.id());
        match positional {
            true => Self { pool: message.pool(), kind, form: Form::List },
            false => Self::of_value(message.pool(), kind),
        }
    }

    /// Returns the declaration of a single value.
    fn of_value(pool: &'s Pool, kind: Kind) -> Self {
        let is_dynamic = kind.message().is_some_and(|id| is_dynamic(&pool.message_at(id)));
        Self { pool, kind, form: if is_dynamic { Form::Dynamic } else { Form::One } }
    }

    /// Returns the type of the value, or of its elements or entries.
    pub(super) fn kind(self) -> Kind {
        match self.form {
            // Its numbers are no whole ones.
            Form::Dynamic => Kind::String,
            _ => self.kind,
        }
    }

    /// Whether it is a value of any type.
    pub(super) fn is_dynamic(self) -> bool {
        self.form == Form::Dynamic
    }

    /// Returns which well-known message the value is, if any.
    pub(super) fn well_known(self) -> Option<WellKnown> {
        match self.form {
            Form::One | Form::Dynamic => self.pool.message_at(self.kind.message()?).well_known(),
            Form::List | Form::Map => None,
        }
    }

    /// Returns the message that an `Any` with this URL contains. `None` if it is unknown.
    pub(super) fn message_of(self, url: &str) -> Option<Message> {
        message_of(self.pool, url)
    }

    /// Returns the declaration of a message of the same pool.
    pub(super) fn of_other(self, message: &Message) -> Self {
        Self::of_value(self.pool, Kind::Message(message.id()))
    }

    /// Returns the declaration of a text.
    pub(super) fn of_text(self) -> Self {
        Self { kind: Kind::String, form: Form::One, ..self }
    }

    /// Returns the number of the field that a member of a message's object is.
    pub(super) fn number(self, name: &str) -> Option<u32> {
        let message = self.pool.message_at(self.kind.message()?);
        find_field(&message, name).map(Field::number)
    }

    /// Returns the declaration of a member of an object. `None` if it is not declared.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        let message = self.pool.message_at(self.kind.message()?);
        let field = match self.form {
            Form::One => find_field(&message, name)?,
            Form::Map => message.field(2)?,
            Form::Dynamic => return Some(self),
            Form::List => return None,
        };
        Some(match () {
            () if field.is_map() => Self { kind: field.kind(), form: Form::Map, ..self },
            () if field.is_repeated() => Self { kind: field.kind(), form: Form::List, ..self },
            () => Self::of_value(self.pool, field.kind()),
        })
    }

    /// Returns the declaration of an element of a list. brpc writes a map as the list of its entries unless its keys are
    /// texts.
    pub(super) fn item(self) -> Option<Self> {
        match self.form {
            Form::One => None,
            Form::Dynamic => Some(self),
            Form::List | Form::Map => Some(Self::of_value(self.pool, self.kind)),
        }
    }
}

fn find_field<'m>(message: &'m MessageType, name: &str) -> Option<&'m Field> {
    let spelled = |spelling| message.index_spelled(spelling, name, usize::MAX);
    let index = [Spelling::Json, Spelling::Brpc, Spelling::Go].into_iter().find_map(spelled)?;
    message.fields().get(index as usize)
}

/// Whether the message is a value of any type, or a part of one.
pub(super) fn is_dynamic(message: &MessageType) -> bool {
    matches!(message.well_known(), Some(WellKnown::Struct | WellKnown::Value | WellKnown::ListValue))
}

/// Returns the message that an `Any` with this URL contains. `None` if it is unknown.
pub(super) fn message_of(pool: &Pool, url: &str) -> Option<Message> {
    pool.message(url.rsplit('/').next()?)
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
