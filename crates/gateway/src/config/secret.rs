use std::{env, fmt, fs};

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// Where a secret is: `env:NAME` or `file:PATH`. The file itself never contains one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    Env(String),
    File(String),
}

impl Secret {
    /// Reads the secret, without space around it.
    pub(crate) fn read(&self) -> Result<String, String> {
        let secret = match self {
            Self::Env(name) => env::var(name).map_err(|_| format!("there is no variable {name}"))?,
            Self::File(path) => {
                let bytes = fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
                let advice = "write it as text, such as the output of `head -c 32 /dev/urandom | base64`";
                String::from_utf8(bytes).map_err(|_| format!("{path} is not text: {advice}"))?
            }
        };
        match secret.trim() {
            "" => Err(format!("{self} is empty")),
            secret => Ok(secret.to_owned()),
        }
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(':') {
            Some(("env", name)) => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) => Ok(Self::File(path.to_owned())),
            // The text may be the secret itself.
            _ => Err(D::Error::custom("a secret is env:NAME or file:PATH")),
        }
    }
}
