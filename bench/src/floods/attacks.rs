//! List of the attacks.

use super::attack::{Attack, BUSY_CLIENT};
use super::{control, data, headers, resets, slow};

pub(super) fn all() -> impl Iterator<Item = &'static Attack> {
    [&resets::ATTACKS[..], &control::ATTACKS, &headers::ATTACKS, &data::ATTACKS, &slow::ATTACKS]
        .into_iter()
        .flatten()
}

pub(super) fn find(name: &str) -> Option<&'static Attack> {
    all().chain([&BUSY_CLIENT]).find(|attack| attack.name == name)
}
