//! The registries, against fakes and against the real programs if they are installed. One program: its tests, most of which
//! wait, run at the same time.

#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "etcd")]
mod etcd;
mod fake;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "nacos")]
mod nacos;
mod outage;
mod real;
mod servers;
#[cfg(all(feature = "consul", feature = "tls"))]
mod tls;
