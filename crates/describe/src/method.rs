use std::sync::Arc;

use polyrpc::layer::StreamType;
use polyrpc::payload::TypeSchema;
use polyrpc::payload::schema::{self, Message, Pool};
use polyrpc::payload::struct_pack;
use polyrpc::service::MethodInfo;

use crate::Comments;

/// Declarations of `.proto` files and their comments. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct ProtoFiles {
    pub(crate) pool: Pool,
    pub(crate) comments: Arc<Comments>,
}

impl ProtoFiles {
    /// Reads the comments of a pool, if it has some.
    pub fn new(pool: Pool) -> Self {
        let comments = Arc::new(Comments::from_set(pool.encoded()));
        Self { pool, comments }
    }

    /// Returns the methods of all services, in the order of their declaration.
    pub fn methods(&self) -> Vec<Method> {
        let services = self.pool.services();
        services
            .flat_map(|service| {
                service.methods().map(move |method| self.describe(service.full_name(), method))
            })
            .collect()
    }

    /// Returns a method by the full name of its service.
    pub fn method(&self, service: &str, method: &str) -> Option<Method> {
        let declared = self.pool.service(service)?.methods().find(|known| known.name() == method)?;
        Some(self.describe(service, declared))
    }

    fn describe(&self, service: &str, method: schema::Method<'_>) -> Method {
        let stream_type = StreamType {
            client_streaming: method.client_streaming(),
            server_streaming: method.server_streaming(),
        };
        let content = |message| Content::Message(message, self.comments.clone());
        Method {
            service: service.to_owned(),
            name: method.name().to_owned(),
            input: content(method.input()),
            output: content(method.output()),
            stream_type,
            description: self.comments.comment(&format!("{service}.{}", method.name())).map(str::to_owned),
            no_side_effects: method.has_no_side_effects(),
            idempotent: method.is_idempotent(),
            deprecated: method.is_deprecated(),
            http_rule: method.http_rule().map(Into::into),
        }
    }
}

/// A method that is described.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Method {
    /// The full name of its service; empty for a plain function.
    pub service: String,
    /// The method, or the function's name.
    pub name: String,
    /// Its request.
    pub input: Content,
    /// Its response.
    pub output: Content,
    /// The directions in which it streams messages.
    pub stream_type: StreamType,
    /// The comment of its declaration.
    pub description: Option<String>,
    /// Whether it is declared to have no side effects (`idempotency_level = NO_SIDE_EFFECTS`).
    pub no_side_effects: bool,
    /// Whether it is declared idempotent, which includes methods without side effects.
    pub idempotent: bool,
    /// Whether it is declared as deprecated.
    pub deprecated: bool,
    /// Option `google.api.http`, if it is declared: a serialized `google.api.HttpRule`.
    pub http_rule: Option<Box<[u8]>>,
}

/// Messages of a method in one direction.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Content {
    /// A message of a `.proto`, with the comments of its files.
    Message(Message, Arc<Comments>),
    /// Values of a serde type; the arguments of a function are [`TypeSchema::Tuple`].
    Type(TypeSchema),
    /// Arguments of a C++ function, as a list.
    Arguments(Vec<struct_pack::Type>),
    /// Result of a C++ function.
    Result(struct_pack::Type),
    /// A table of a `.fbs`, by its index.
    #[cfg(feature = "fbs")]
    Table(Arc<polyrpc_build::fbs::Schema>, usize),
}

impl Method {
    /// Creates a unary method without any further description.
    pub fn new(service: impl Into<String>, name: impl Into<String>, input: Content, output: Content) -> Self {
        Self {
            service: service.into(),
            name: name.into(),
            input,
            output,
            stream_type: StreamType::UNARY,
            description: None,
            no_side_effects: false,
            idempotent: false,
            deprecated: false,
            http_rule: None,
        }
    }

    /// Returns the methods of a server, without the framework's own: [`Monitor::methods`] with its
    /// [`descriptors`](polyrpc::server::Monitor::descriptors).
    ///
    /// [`Monitor::methods`]: polyrpc::server::Monitor::methods
    pub fn from_server(methods: &[MethodInfo], descriptors: &[Pool]) -> Vec<Self> {
        let files: Vec<_> = descriptors.iter().map(|pool| ProtoFiles::new(pool.clone())).collect();
        let own = methods.iter().filter(|info| !info.is_standard);
        own.map(|info| Self::from_info(info, &files)).collect()
    }

    fn from_info(info: &MethodInfo, files: &[ProtoFiles]) -> Self {
        let declared = info
            .messages
            .as_ref()
            .and_then(|_| files.iter().rev().find_map(|files| files.method(&info.service, &info.name)));
        // The server's behaviour counts, not the declaration.
        match declared {
            Some(declared) => Self { stream_type: info.stream_type, ..declared },
            None => {
                let (input, output) = info.schemas.clone();
                let (input, output) = (Content::Type(input), Content::Type(output));
                Self { stream_type: info.stream_type, ..Self::new(&info.service, &info.name, input, output) }
            }
        }
    }

    /// Returns the methods that `.fbs` files declare.
    #[cfg(feature = "fbs")]
    pub fn from_fbs(schema: &Arc<polyrpc_build::fbs::Schema>) -> Vec<Self> {
        let mut methods = Vec::new();
        for service in &schema.services {
            for method in &service.methods {
                let table = |index| Content::Table(schema.clone(), index);
                let description =
                    Some(method.docs.join("\n").trim().to_owned()).filter(|text| !text.is_empty());
                let stream_type = StreamType {
                    client_streaming: method.client_streams,
                    server_streaming: method.server_streams,
                };
                let (input, output) = (table(method.request), table(method.response));
                let plain = Self::new(service.full_name(), &method.name, input, output);
                methods.push(Self { stream_type, description, ..plain });
            }
        }
        methods
    }

    /// Returns both names: `Service/Method`, or the function alone.
    pub fn target(&self) -> String {
        match self.service.as_str() {
            "" => self.name.clone(),
            service => format!("{service}/{}", self.name),
        }
    }
}
