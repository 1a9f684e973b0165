use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polyrpc_wire::{Protocol, Status};

use super::dial::Dialer;
use super::link::Link;

/// How calls share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// All calls share one connection, many at a time. A protocol without correlation ids (HTTP/1) uses a
    /// pool instead, since one slow call would hold up the rest.
    #[default]
    Single,
    /// Every call has a connection to itself, which goes back to a pool afterwards.
    Pooled,
    /// Every call makes a connection and closes it.
    Short,
}

/// The connections to one server.
pub(super) struct Pool {
    dialer: Option<Dialer>,
    kind: Kind,
    links: Mutex<Vec<Arc<dyn Link>>>,
    /// Held while the shared connection is made, so that it is made once.
    dialing: tokio::sync::Mutex<()>,
    /// How many connections may wait in the pool.
    idle: usize,
}

impl Pool {
    pub(super) fn new(dialer: Dialer, kind: Kind, idle: usize) -> Self {
        let kind = match (kind, dialer.url.protocol) {
            (Kind::Single, Protocol::Http) => Kind::Pooled,
            (kind, _) => kind,
        };
        Self {
            dialer: Some(dialer),
            kind,
            links: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
            idle,
        }
    }

    /// A pool of one connection that cannot be made again.
    pub(super) fn fixed(link: Arc<dyn Link>) -> Self {
        Self {
            dialer: None,
            kind: Kind::Single,
            links: Mutex::new(vec![link]),
            dialing: tokio::sync::Mutex::default(),
            idle: 1,
        }
    }

    /// A connection for one call, if there is one already.
    pub(super) fn ready(self: &Arc<Self>) -> Option<Lease> {
        match self.kind {
            Kind::Single => self.shared().map(|link| Lease { link, back: Back::Nowhere }),
            Kind::Pooled => self.waiting().map(|link| Lease { link, back: Back::Pool(self.clone()) }),
            Kind::Short => None,
        }
    }

    /// A connection for one call, made if need be.
    pub(super) async fn lease(self: &Arc<Self>) -> Result<Lease, Status> {
        match self.kind {
            Kind::Single => Ok(Lease { link: self.share().await?, back: Back::Nowhere }),
            Kind::Pooled => Ok(Lease { link: self.dial().await?, back: Back::Pool(self.clone()) }),
            Kind::Short => Ok(Lease { link: self.dial().await?, back: Back::Close }),
        }
    }

    fn shared(&self) -> Option<Arc<dyn Link>> {
        self.lock().first().filter(|link| link.available()).cloned()
    }

    /// Makes the shared connection, unless another caller has just done so.
    async fn share(&self) -> Result<Arc<dyn Link>, Status> {
        let _dialing = self.dialing.lock().await;
        if let Some(link) = self.shared() {
            return Ok(link);
        }
        let link = self.dial().await?;
        // One that takes no more calls closes itself when its last call has ended.
        for old in std::mem::replace(&mut *self.lock(), vec![link.clone()]) {
            old.close();
        }
        Ok(link)
    }

    fn waiting(&self) -> Option<Arc<dyn Link>> {
        loop {
            let link = self.lock().pop()?;
            if link.available() {
                return Some(link);
            }
            link.close();
        }
    }

    async fn dial(&self) -> Result<Arc<dyn Link>, Status> {
        match &self.dialer {
            Some(dialer) => dialer.dial().await,
            None => Err(Status::unavailable("the connection is closed")),
        }
    }

    fn take_back(&self, link: Arc<dyn Link>) {
        let mut links = self.lock();
        if link.available() && links.len() < self.idle {
            links.push(link);
        } else {
            link.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for link in self.lock().drain(..) {
            link.close();
        }
    }
}

/// A connection lent to one call.
pub(super) struct Lease {
    pub(super) link: Arc<dyn Link>,
    back: Back,
}

/// Where a connection goes after its call.
enum Back {
    Nowhere,
    Pool(Arc<Pool>),
    Close,
}

impl Drop for Lease {
    fn drop(&mut self) {
        match &self.back {
            Back::Nowhere => {}
            Back::Pool(pool) => pool.take_back(self.link.clone()),
            Back::Close => self.link.close(),
        }
    }
}
