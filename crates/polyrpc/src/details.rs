use polyrpc_core::Status;
use prost::{Message, Name};

/// Typed details of a failure, as messages of prost: those of `google/rpc/error_details.proto` (`RetryInfo`, `ErrorInfo`,
/// `BadRequest`), or any other. They travel in gRPC's `grpc-status-details-bin`.
///
/// The message must provide its name (`prost_build::Config::enable_type_names`). Without prost there are
/// [`Status::with_detail`] and [`Status::typed_details`].
///
/// ```
/// use polyrpc::{Details, Status};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct ErrorInfo {
///     #[prost(string, tag = "1")]
///     reason: String,
/// }
///
/// impl prost::Name for ErrorInfo {
///     const PACKAGE: &'static str = "google.rpc";
///     const NAME: &'static str = "ErrorInfo";
/// }
///
/// let info = ErrorInfo { reason: "STOCKOUT".into() };
/// let status = Status::failed_precondition("sold out").with(&info);
/// assert_eq!(status.detail::<ErrorInfo>(), Some(info));
/// ```
pub trait Details: Sized {
    /// Returns the first detail of this type; `None` if there is none that can be decoded.
    fn detail<M: Message + Name + Default>(&self) -> Option<M> {
        self.details_of().next()
    }

    /// Returns every detail of this type that can be decoded, in order.
    fn details_of<M: Message + Name + Default>(&self) -> impl Iterator<Item = M>;

    /// Adds a detail after the existing ones.
    #[must_use]
    fn with<M: Message + Name>(self, detail: &M) -> Self;
}

impl Details for Status {
    fn details_of<M: Message + Name + Default>(&self) -> impl Iterator<Item = M> {
        let name = M::full_name();
        let of_type = self.typed_details().into_iter().filter(move |detail| detail.type_name() == name);
        of_type.filter_map(|detail| M::decode(detail.value).ok())
    }

    fn with<M: Message + Name>(self, detail: &M) -> Self {
        let type_url = format!("type.googleapis.com/{}", M::full_name());
        self.with_detail(&type_url, &detail.encode_to_vec())
    }
}
