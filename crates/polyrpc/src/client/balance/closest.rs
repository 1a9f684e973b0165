use super::tiers::Tiers;
use super::{Candidate, LoadBalancer, Picker};

/// See [`Policy::closest`](super::Policy::closest).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closest {
    latitude: f64,
    longitude: f64,
}

impl Closest {
    /// Creates a balancer for a client at this position, in degrees north and east.
    pub(crate) fn new(latitude: f64, longitude: f64) -> Self {
        Self { latitude, longitude }
    }

    /// Distance along the surface, in metres, by the haversine formula.
    fn distance(&self, (latitude, longitude): (f64, f64)) -> f64 {
        let (from, to) = (self.latitude.to_radians(), latitude.to_radians());
        let haversine = |angle: f64| (angle / 2.0).sin().powi(2);
        let east = (longitude - self.longitude).to_radians();
        let h = haversine(to - from) + from.cos() * to.cos() * haversine(east);
        // Rounding may yield a value above one for antipodes.
        2.0 * RADIUS * h.clamp(0.0, 1.0).sqrt().asin()
    }
}

/// Equatorial radius, as in rpcx (`client/geo_utils.go`).
const RADIUS: f64 = 6_378_100.0;

impl LoadBalancer for Closest {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let distance = |candidate: &Candidate| {
            Some(self.distance(candidate.instance().attributes.location()?)).filter(|metres| !metres.is_nan())
        };
        let indexed = candidates.iter().enumerate();
        Box::new(Tiers::from_ranks(
            indexed.filter_map(|(index, candidate)| Some((index, distance(candidate)?))),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_follow_the_surface_of_the_earth() {
        let from = Closest::new(0.0, 0.0);
        let quarter = RADIUS * std::f64::consts::FRAC_PI_2;
        for (place, metres) in [
            ((0.0, 0.0), 0.0),
            ((0.0, 90.0), quarter),
            ((90.0, 17.0), quarter),
            ((0.0, 180.0), 2.0 * quarter),
            ((0.0, -180.0), 2.0 * quarter),
        ] {
            assert!((from.distance(place) - metres).abs() < 1e-3, "{place:?}: {}", from.distance(place));
        }
        // The distance is short across the date line.
        assert!(Closest::new(0.0, 179.0).distance((0.0, -179.0)) < 223_000.0);
    }
}
