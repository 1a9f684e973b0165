use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use domain::base::iana::{Rcode, Rtype};
use domain::base::message::Message;
use domain::base::name::Name;
use domain::base::rdata::ParseRecordData;
use domain::base::wire::ParseError;
use domain::rdata::{A, Aaaa, Srv};
use domain::resolv::StubResolver;
use domain::resolv::stub::conf::{ResolvConf, ServerConf, Transport};
use polyrpc_core::Status;
use tokio::task::spawn_blocking;

use crate::discovery::host_list::{keep_one_family, system_lookup};
use crate::runtime::AbortOnDrop;

/// Resolver that uses DNS, and the system where DNS does not apply.
pub(super) struct Resolver {
    stub: StubResolver,
    /// Whether it uses the system's name servers.
    is_systems: bool,
    ipv6_first: bool,
    /// Hosts of `/etc/hosts`.
    hosts: Vec<String>,
}

/// Result of a lookup, with its time to live.
pub(super) struct Lookup<T> {
    pub(super) records: Vec<T>,
    pub(super) ttl: Duration,
}

/// Target of an SRV record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SrvTarget {
    /// Absolute name.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) weight: u16,
    priority: u16,
}

/// Checks that a name can be looked up.
pub(super) fn check(name: &str) -> Result<(), Status> {
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if literal.parse::<IpAddr>().is_ok() { Ok(()) } else { parse_absolute(name).map(|_| ()) }
}

fn parse_absolute(name: &str) -> Result<Name<Vec<u8>>, Status> {
    Name::vec_from_str(name)
        .map_err(|error| Status::invalid_argument(format!("`{name}` is not a DNS name: {error}")))
}

impl Resolver {
    /// Uses this name server, or those of the system.
    pub(super) async fn new(server: Option<SocketAddr>, ipv6_first: bool) -> Self {
        let (conf, hosts) = match server {
            Some(server) => {
                let mut conf = ResolvConf::new();
                conf.servers.push(ServerConf::new(server, Transport::UdpTcp));
                (conf, Vec::new())
            }
            None => {
                let read = spawn_blocking(|| (ResolvConf::default(), hosts()));
                // The task fails only when the runtime ends, and then the result is not needed.
                AbortOnDrop::from(read).await.unwrap_or_else(|_| (ResolvConf::new(), Vec::new()))
            }
        };
        Self { stub: StubResolver::from_conf(conf), is_systems: server.is_none(), ipv6_first, hosts }
    }

    /// Uses this name server as the system's, with these search domains.
    #[cfg(test)]
    pub(super) fn with_search_domains(server: SocketAddr, domains: &[&str]) -> Self {
        let mut conf = ResolvConf::new();
        conf.servers.push(ServerConf::new(server, Transport::UdpTcp));
        domains.iter().for_each(|domain| conf.options.search.push(domain.parse().expect("it is a name")));
        Self { stub: StubResolver::from_conf(conf), is_systems: true, ipv6_first: false, hosts: Vec::new() }
    }

    /// Returns all addresses of a host.
    ///
    /// # Errors
    ///
    /// [`NotFound`](polyrpc_core::Code::NotFound) if it has none.
    pub(super) async fn addresses(&self, host: &str) -> Result<Lookup<IpAddr>, Status> {
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = literal.parse() {
            return Ok(Lookup { records: vec![ip], ttl: Duration::MAX });
        }
        if self.is_systems && self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            return look_up(host).await;
        }
        let mut failure = None;
        for name in self.names(host)? {
            match self.addresses_of(&name).await {
                Ok(found) if !found.records.is_empty() => return Ok(found),
                Ok(_) => {}
                Err(status) => drop(failure.get_or_insert(status)),
            }
        }
        let found = match self.is_systems {
            true => look_up(host).await,
            false => Err(Status::not_found(format!("DNS has no address of `{host}`"))),
        };
        // A name whose lookup failed may have some.
        found.map_err(|unknown| failure.unwrap_or(unknown))
    }

    /// Returns the addresses of one family, if a name has any.
    async fn addresses_of(&self, name: &Name<Vec<u8>>) -> Result<Lookup<IpAddr>, Status> {
        let kinds = if self.ipv6_first { [Rtype::AAAA, Rtype::A] } else { [Rtype::A, Rtype::AAAA] };
        for kind in kinds {
            let answer = self.query(name, kind).await?;
            let found = match kind {
                Rtype::A => records(&answer, |a: A| IpAddr::from(a.addr())),
                _ => records(&answer, |aaaa: Aaaa| IpAddr::from(aaaa.addr())),
            };
            let found = found.map_err(unreadable)?;
            if !found.records.is_empty() {
                return Ok(found);
            }
        }
        Ok(Lookup { records: Vec::new(), ttl: Duration::MAX })
    }

    /// Returns the targets of a service with the lowest priority value.
    ///
    /// # Errors
    ///
    /// [`NotFound`](polyrpc_core::Code::NotFound) if there are none.
    pub(super) async fn service_records(&self, service: &str) -> Result<Lookup<SrvTarget>, Status> {
        let mut failure = None;
        for name in self.names(service)? {
            match self.service_records_of(&name).await {
                Ok(found) if !found.records.is_empty() => return Ok(found),
                Ok(_) => {}
                Err(status) => drop(failure.get_or_insert(status)),
            }
        }
        Err(failure.unwrap_or_else(|| Status::not_found(format!("DNS has no SRV record of `{service}`"))))
    }

    /// Returns the targets with the lowest priority value, if a name has any.
    async fn service_records_of(&self, name: &Name<Vec<u8>>) -> Result<Lookup<SrvTarget>, Status> {
        let answer = self.query(name, Rtype::SRV).await?;
        let found = records(&answer, |srv: Srv<_>| SrvTarget {
            // The name is absolute: search domains do not apply.
            host: format!("{}.", srv.target()),
            port: srv.port(),
            weight: srv.weight(),
            priority: srv.priority(),
        });
        let mut found = found.map_err(unreadable)?;
        // A target that is the root means that the service is not available (RFC 2782).
        found.records.retain(|record| record.host.len() > 2 && record.port > 0);
        let first = found.records.iter().map(|record| record.priority).min();
        found.records.retain(|record| Some(record.priority) == first);
        Ok(found)
    }

    /// Returns the candidates for a short name, in the order of the system's search list (`resolv.conf(5)`). A failed
    /// lookup continues the search like a missing name, as in glibc (`res_search`).
    fn names(&self, name: &str) -> Result<Vec<Name<Vec<u8>>>, Status> {
        let itself = parse_absolute(name)?;
        if name.ends_with('.') || !self.is_systems {
            return Ok(vec![itself]);
        }
        let options = self.stub.options();
        let suffixes = options.search.as_slice().iter().filter(|suffix| !suffix.is_root());
        let mut names: Vec<_> =
            suffixes.filter_map(|suffix| parse_absolute(&format!("{name}.{suffix}")).ok()).collect();
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        let index = if dots >= options.ndots { 0 } else { names.len() };
        names.insert(index, itself);
        Ok(names)
    }

    async fn query(&self, name: &Name<Vec<u8>>, kind: Rtype) -> Result<Message<Bytes>, Status> {
        let failed =
            |why: &dyn std::fmt::Display| Status::unavailable(format!("DNS query for {name}: {why}"));
        let answer = self.stub.query((name, kind)).await.map_err(|error| failed(&error))?;
        match answer.header().rcode() {
            Rcode::NOERROR | Rcode::NXDOMAIN => Ok(answer.into_message()),
            refusal => Err(failed(&format_args!("the server responded with {refusal}"))),
        }
    }
}

/// Returns the records of the queried name, or of the name for which it is an alias.
fn records<'a, D, T>(answer: &'a Message<Bytes>, read: impl Fn(D) -> T) -> Result<Lookup<T>, ParseError>
where
    D: ParseRecordData<'a, Bytes>,
{
    let name = answer.canonical_name().ok_or_else(|| ParseError::form_error("its aliases form a cycle"))?;
    let mut found = Lookup { records: Vec::new(), ttl: Duration::MAX };
    for record in answer.answer()?.limit_to_in::<D>() {
        let record = record?;
        if *record.owner() == name {
            found.records.push(read(record.into_data()));
        }
    }
    // The time to live of aliases counts as well.
    for record in answer.answer()? {
        found.ttl = found.ttl.min(record?.ttl().into_duration());
    }
    Ok(found)
}

fn unreadable(error: ParseError) -> Status {
    Status::unavailable(format!("the DNS server's answer cannot be read: {error}"))
}

async fn look_up(host: &str) -> Result<Lookup<IpAddr>, Status> {
    match system_lookup(host.trim_end_matches('.').to_owned()).await {
        Ok(addresses) if addresses.is_empty() => Err(Status::not_found(format!("`{host}` has no address"))),
        Ok(addresses) => Ok(Lookup { records: keep_one_family(addresses), ttl: DEFAULT_TTL }),
        Err(error) => Err(Status::unavailable(format!("cannot look `{host}` up: {error}"))),
    }
}

/// Validity of an address whose record has no time to live.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// Names in the machine's own hosts file; blocks.
fn hosts() -> Vec<String> {
    let text = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names = lines.flat_map(|line| line.split_whitespace().skip(1));
    names.map(str::to_owned).chain(["localhost".to_owned()]).collect()
}
