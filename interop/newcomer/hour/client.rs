use std::error::Error;
use std::time::Duration;

use polyrpc::client::Request;
use polyrpc::{Client, Code, tls};

mod shop {
    polyrpc::include_proto!("shop");
}

use shop::{PriceRequest, PricesClient, SlowRequest};

/// Calls the server at a URL, which may name a registry; one of the calls takes the time in the second argument.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    polyrpc_discovery::install();
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: client URL MILLIS")?;
    let millis = arguments.next().ok_or("usage: client URL MILLIS")?.parse()?;
    let client = Client::builder(&url)
        .tls(tls::Client::new().ca("ca.pem"))
        .credential("Bearer secret")
        .timeout(Duration::from_secs(5))
        .build()?;
    let prices = PricesClient::new(client);

    let tea = prices.price(PriceRequest { item: "tea".into(), ..Default::default() }).await?;
    println!("{} costs {} cents", tea.item, tea.cents);
    let coffee = prices.price(PriceRequest { item: "coffee".into(), ..Default::default() }).await.unwrap_err();
    println!("{}: {}", coffee.code(), coffee.message());

    let slow = || SlowRequest { millis: 2000, ..Default::default() };
    let late = prices.slow_with(Request::new(slow()).with_timeout(Duration::from_millis(200))).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    println!("{}", late.code());

    println!("waiting");
    let patience = prices.slow(SlowRequest { millis, ..Default::default() }).await?;
    println!("{}", patience.item);
    Ok(())
}
