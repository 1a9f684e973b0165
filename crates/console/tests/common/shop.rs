//! A shop of four services, which call each other by four protocols: what the pictures of the guide show.

use std::hint::black_box;
use std::time::Duration;

use polyrpc::discovery::List;
use polyrpc::layers::Metrics;
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Result, Server, Status, propagation};
use polyrpc_console::{Admin, AdminHandle, Console, Role};

pub(crate) const TOKEN: &str = "a-token-for-writing";

#[polyrpc::service]
trait Web {
    async fn order(&self, item: String, count: u32) -> Result<u64>;
}

#[polyrpc::service]
trait Shop {
    async fn buy(&self, item: String, count: u32) -> Result<u64>;
    async fn search(&self, words: String) -> Result<Vec<String>>;
}

#[polyrpc::service]
trait Stock {
    async fn take(&self, item: String, count: u32) -> Result<u64>;
}

#[polyrpc::service]
trait Ledger {
    async fn book(&self, item: String, count: u32) -> Result<u64>;
}

struct Front(ShopClient);

impl Web for Front {
    async fn order(&self, item: String, count: u32) -> Result<u64> {
        self.0.search(item.clone()).await?;
        Ok(self.0.buy(item, count).await?)
    }
}

struct Clerk(StockClient);

impl Shop for Clerk {
    async fn buy(&self, item: String, count: u32) -> Result<u64> {
        propagation::note(format_args!("{count} of {item}"));
        Ok(self.0.take(item, count).await?)
    }

    async fn search(&self, words: String) -> Result<Vec<String>> {
        Ok((0..match_words()).map(|n| format!("{words} {n}")).collect())
    }
}

struct Store(LedgerClient);

impl Stock for Store {
    async fn take(&self, item: String, count: u32) -> Result<u64> {
        match item.as_str() {
            "moon" => Err(Status::not_found("there is no moon in stock").into()),
            _ => Ok(self.0.book(item, count).await? + weigh_parcel()),
        }
    }
}

struct Book;

impl Ledger for Book {
    async fn book(&self, _item: String, count: u32) -> Result<u64> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(u64::from(count) + add_up())
    }
}

#[inline(never)]
fn match_words() -> u64 {
    black_box(work(5) % 3)
}

#[inline(never)]
fn weigh_parcel() -> u64 {
    black_box(work(3) % 2)
}

#[inline(never)]
fn add_up() -> u64 {
    black_box(work(2) % 2)
}

/// Uses the CPU for about this many milliseconds. It counts no time: on a busy machine it has to be as much of a profile.
#[inline(never)]
fn work(millis: u64) -> u64 {
    let mut sum = 0_u64;
    for number in 0..millis * 1_000_000 {
        sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
    }
    sum
}

/// A server with its console, and what has to live as long.
pub(crate) struct Member {
    pub(crate) console: Console,
    pub(crate) server: ServerHandle,
    pub(crate) admin: AdminHandle,
    _shown: Option<Box<dyn Send + Sync>>,
}

/// Starts a server with pages of its own.
async fn member(server: Server, version: &str, client: Option<(&str, &Client)>) -> Member {
    let console = Console::new();
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, TOKEN).writable();
    let admin = admin.start(&console).unwrap();
    let server = server.version(version).count_calls(&Metrics::new());
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    console.observe(&server);
    let shown = client.map(|(name, client)| console.observe_client(name, client));
    Member { console, server, admin, _shown: shown.map(|shown| Box::new(shown) as Box<dyn Send + Sync>) }
}

/// The servers: one of the ledger, two of the stock, two of the shop and one before them.
pub(crate) struct Mall {
    pub(crate) web: Member,
    _others: Vec<Member>,
}

impl Mall {
    pub(crate) async fn open() -> Self {
        let mut all_metrics = Vec::new();
        let counted = |url: &str| {
            let metrics = Metrics::new();
            (Client::builder(url).layer(metrics.clone()).build().unwrap(), metrics)
        };
        let list = |members: &[Member]| {
            members.iter().map(|member| member.server.address().to_string()).collect::<Vec<_>>().join(",")
        };
        let ledger = vec![member(Server::new().service(LedgerServer::new(Book)), "ledger 2", None).await];
        let mut stock = Vec::new();
        for version in ["stock 7", "stock 8"] {
            let (client, metrics) = counted(&format!("http+list://{}", list(&ledger)));
            let service = StockServer::new(Store(LedgerClient::new(client.clone())));
            stock.push(member(Server::new().service(service), version, Some(("ledger", &client))).await);
            all_metrics.push(metrics);
        }
        let mut shops = Vec::new();
        for _ in 0..2 {
            let (client, metrics) = counted(&format!("baidu-std+list://{}", list(&stock)));
            let service = ShopServer::new(Clerk(StockClient::new(client.clone())));
            shops.push(member(Server::new().service(service), "shop 3", Some(("stock", &client))).await);
            all_metrics.push(metrics);
        }
        let (client, metrics) = counted(&format!("rpcx+list://{}", list(&shops)));
        let service = WebServer::new(Front(ShopClient::new(client.clone())));
        let web = member(Server::new().service(service), "web 12", Some(("shops", &client))).await;
        all_metrics.push(metrics);
        // A profile is that of the process, in which are all of them.
        let servers = ledger.iter().chain(&stock).chain(&shops);
        all_metrics.extend(servers.filter_map(|member| member.server.monitor().metrics()));
        all_metrics.iter().for_each(|metrics| web.console.observe_metrics(metrics));
        let listed: Vec<String> = ledger
            .iter()
            .chain(&stock)
            .chain(&shops)
            .chain([&web])
            .map(|member| format!("{} admin={}", member.server.address(), member.admin.address()))
            .collect();
        let listed: List = listed.join(",").parse().unwrap();
        web.console.observe_fleet("etcd://10.0.0.1:2379/mall", Box::new(listed), Some(TOKEN.into())).unwrap();
        let others = ledger.into_iter().chain(stock).chain(shops).collect();
        Self { web, _others: others }
    }

    /// Calls the first server by several protocols until it is aborted.
    pub(crate) fn visit(&self) -> tokio::task::JoinHandle<()> {
        let address = self.web.server.address().to_string();
        let client =
            |protocol: &str| WebClient::new(Client::new(&format!("{protocol}://{address}")).unwrap());
        let clients = ["grpc", "http", "rpcx", "baidu-std"].map(client);
        tokio::spawn(async move {
            for turn in 0_u64.. {
                for client in &clients {
                    let item = if turn % 40 == 39 { "moon" } else { "lamp" };
                    let _ = client.order(item.to_owned(), 2).await;
                }
                tokio::time::sleep(Duration::from_millis(4 + turn % 7)).await;
            }
        })
    }
}
