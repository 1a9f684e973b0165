use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use polyrpc_core::Status;

use super::Registration;
use super::address::AdvertisedAddress;
use crate::discovery::{Attributes, Registrar};
use crate::service::Router;

/// A registration whose services and address have been checked.
pub(in crate::server) struct CheckedRegistration {
    pub(super) registry: Arc<dyn Registrar>,
    pub(super) registration: Registration,
    pub(super) advertised: AdvertisedAddress,
    pub(super) services: Vec<String>,
    pub(super) attributes: ServiceAttributes,
}

impl CheckedRegistration {
    /// Checks a registration against the server's services.
    ///
    /// # Errors
    ///
    /// If there is no service to publish, if a requested service does not exist, or if the address is invalid.
    pub(in crate::server) fn new(
        registry: Arc<dyn Registrar>,
        registration: Registration,
        router: &Router,
    ) -> io::Result<Self> {
        let wrong = |status: Status| io::Error::new(io::ErrorKind::InvalidInput, status.message().to_owned());
        let advertised = AdvertisedAddress::read(registration.advertise.as_deref()).map_err(wrong)?;
        let services = services(&registration, router).map_err(wrong)?;
        let attributes = ServiceAttributes {
            of_all: registration.attributes.clone(),
            of_services: registration.of_services.clone(),
        };
        Ok(Self { registry, registration, advertised, services, attributes })
    }
}

fn services(registration: &Registration, router: &Router) -> Result<Vec<String>, Status> {
    let mut offered: Vec<String> = router.list().into_iter().map(|(service, _)| service).collect();
    let has_functions = offered.iter().any(String::is_empty);
    offered.retain(|service| !service.is_empty());
    if let (Some(name), true) = (&registration.functions, has_functions) {
        offered.push(name.clone());
    }
    let services = match &registration.services {
        None => offered,
        Some(wanted) => match wanted.iter().find(|wanted| !offered.contains(wanted)) {
            Some(missing) => {
                return Err(Status::invalid_argument(format!("there is no service `{missing}` to register")));
            }
            None => wanted.clone(),
        },
    };
    if services.is_empty() {
        return Err(Status::invalid_argument(
            "there is nothing to register: functions without a service need Registration::functions_as",
        ));
    }
    Ok(services)
}

/// Attributes of a server's services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ServiceAttributes {
    of_all: Attributes,
    of_services: BTreeMap<String, Attributes>,
}

impl ServiceAttributes {
    /// Returns an attribute of all services.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.of_all.value(name)
    }

    /// Returns the attributes of one service.
    pub(super) fn attributes_of(&self, service: &str) -> Attributes {
        let mut attributes = self.of_all.clone();
        let Some(own) = self.of_services.get(service) else { return attributes };
        own.iter().for_each(|(name, _)| attributes.remove(name));
        own.iter().for_each(|(name, value)| attributes.append(name, value));
        attributes
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.of_all.set(name, value);
    }

    pub(super) fn set_of(&mut self, service: &str, name: &str, value: &str) {
        self.of_services.entry(service.to_owned()).or_default().set(name, value);
    }

    pub(super) fn remove_of(&mut self, service: &str, name: &str) {
        if let Some(own) = self.of_services.get_mut(service) {
            own.remove(name);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.of_all.remove(name);
        self.of_services.values_mut().for_each(|own| own.remove(name));
    }
}
