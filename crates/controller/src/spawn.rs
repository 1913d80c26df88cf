//! Starts a controller: its listener, its API and the thread that lets its time pass.

use runtime::threads;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::Address;
use config::{Config, Member};
use runtime::admin::{self, HttpDoor, HttpGuard};
use runtime::clock;
use runtime::heartbeat::HeartbeatKey;
use runtime::instance::{Instance, MapCell, StartError};
use runtime::orders::Orders;
use runtime::spans::SpanQueue;
use runtime::status::{MemberStatus, StatusCell};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use tokio::sync::Semaphore;

use crate::http::{HttpApi, LARGE_MAX, routes};
use crate::service::Service;
use crate::store::{ControllerStore, EtcdSettings, EtcdStore, MemoryStore};

/// Lapsed leases and grace periods are noticed this late at worst.
const TICK: Duration = Duration::from_millis(100);

/// Binds the controller's listener, then runs it until `stop`.
pub fn spawn(
    config: &Arc<Config>,
    certificates: &Certificates,
    id: &str,
    stop: &Stop,
) -> Result<Instance, StartError> {
    let Some(Member::Controller(index)) = config.member(id) else {
        return Err(StartError::unknown("controller", id));
    };
    let address = config.controllers[index].listen;
    let listen_error = |error| StartError::listen(id, Address::Tcp(address))(error);
    let member = tracing::error_span!("member", id, role = "controller");
    let _member = member.enter();
    let listener = admin::bind(address).map_err(listen_error)?;
    let bound = listener.local_addr().map_err(listen_error)?;

    let store = store(config, certificates, index);
    let store = store.map_err(StartError::system(id, "cannot start the threads of its store"))?;
    let mut service = Service::new(clock::now(), Arc::clone(config), index, store);
    // A store in memory is read by that, one elsewhere begins to be.
    service.tick(clock::now());
    let status = StatusCell::new(MemberStatus::Controller(service.own_status()));
    let key = HeartbeatKey::derive(config.secret());
    let large = Arc::new(Semaphore::new(LARGE_MAX));
    let api = HttpApi { service: Arc::new(Mutex::new(service)), key, large, clock: clock::now };
    let (guard, tls) = (HttpGuard::new(config), certificates.http_acceptor().cloned());
    let server = admin::serve(id, HttpDoor { listener, tls, guard }, routes(api.clone()), stop);
    let server = server.map_err(StartError::system(id, "cannot serve HTTP"))?;

    let (cell, stop) = (status.clone(), stop.clone());
    let thread = threads::spawn(&format!("{id}-ticks"), move || {
        while !stop.wait_timeout(TICK) {
            let mut service = api.service();
            service.tick(clock::now());
            cell.set(MemberStatus::Controller(service.own_status()));
        }
        if server.join().is_err() {
            tracing::error!("the HTTP server ended badly");
        }
    });
    let thread = thread.map_err(StartError::system(id, "cannot start a thread"))?;
    Ok(Instance {
        id: id.to_owned(),
        addresses: vec![Address::Tcp(bound)],
        status,
        maps: MapCell::default(),
        orders: Orders::default(),
        spans: SpanQueue::default(),
        threads: vec![thread],
    })
}

fn store(config: &Config, certificates: &Certificates, index: usize) -> io::Result<Box<dyn ControllerStore>> {
    let own = &config.controllers[index];
    Ok(match own.etcd() {
        None => Box::new(MemoryStore::new(own.member_lease())),
        Some(etcd) => {
            let password = own.store_password.as_ref().map(|password| password.0.clone());
            Box::new(EtcdStore::start(EtcdSettings {
                endpoints: etcd.endpoints.into_iter().map(str::to_owned).collect(),
                login: etcd.user.map(str::to_owned).zip(password),
                tls: certificates.store().filter(|_| etcd.tls).cloned(),
                cluster: config.cluster.name.clone(),
                lease: own.member_lease(),
            })?)
        }
    })
}
