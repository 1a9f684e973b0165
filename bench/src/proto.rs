//! The called services, as generated for the command.
#![allow(warnings, reason = "generated")]

pub(crate) mod example {
    include!("../../crates/cli/src/proto/example.rs");
}

pub(crate) mod helloworld {
    include!("../../crates/cli/src/proto/helloworld.rs");
}

pub(crate) mod pb {
    include!("../../crates/cli/src/proto/pb.rs");
}
